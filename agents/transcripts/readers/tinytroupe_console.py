"""TinyTroupe console output, as text or in a notebook: speech is what agents TALK, and each stimulus once, however many agents received it.

The console shows the same words again and again: to every listener, and in full when an agent's interactions are printed (then
with times). So words are counted per view and receiver, and are new only when that count exceeds what is in the transcript.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agents.transcripts.json_input import json_values
from agents.transcripts.records import Record, Skipped, SourceMessage, TranscriptError, parse_time
from agents.transcripts.source import Source


def is_notebook(value: dict[str, Any]) -> bool:
    """Whether this JSON object is a notebook."""
    return "nbformat" in value and isinstance(value.get("cells"), list)


def printed_outputs(source: Source) -> Iterator[Iterator[tuple[int, str]]]:
    """Yield each output of the cells that is text, in order, as (line number, line); lines are numbered through from 1."""
    _, value = next(json_values(source), (0, None))
    if not isinstance(value, dict) or not is_notebook(value):
        raise TranscriptError(source.name, 1, "JSON, but no Jupyter notebook")
    number = 1
    for cell in value["cells"]:
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            lines = _text(output).split("\n")
            yield enumerate(lines, start=number)
            number += len(lines)


def _text(output: Any) -> str:
    """The text of an output: what it streamed, or the plain form of what it displayed."""
    output = output if isinstance(output, dict) else {}
    data = output.get("data")
    text = data.get("text/plain") if isinstance(data, dict) else output.get("text")
    parts = text if isinstance(text, list) else [text]
    return "".join(part for part in parts if isinstance(part, str))


ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_MARKUP = re.compile(r"\[/?(?:[a-z][a-z0-9_# ]*)?\]")
STIMULUS = re.compile(r"\s*(?P<source>\S.{0,120}?) --> (?P<target>\S.{0,120}?): \[(?P<type>[A-Z_ ]+)\]\s*(?P<rest>.*)")
ACTION = re.compile(r"\s*(?P<source>\S.{0,120}?) acts: \[(?P<type>[A-Z_ ]+)\]\s*(?P<rest>.*)")
_MORE = re.compile(r"\s*\+ --> (?P<target>\S.*)")
_TIME = re.compile(r"\s*>{5,} Date and time of events: (?P<time>.+)")
_CONTENT = re.compile(r"\s*> ?(?P<text>.*)")
USER = "USER"


@dataclass(slots=True)
class _Block:
    """A heading and the lines under it. `target` is empty for an action; `view` 0 is the conversation as it ran."""

    line: int
    source: str
    target: str
    type: str
    marked_up: bool
    sent_at: datetime | None = None
    view: int = 0
    lines: list[str] = field(default_factory=list)
    size: int = 0

    @property
    def text(self) -> str:
        """The text, unwrapped: the console broke its lines."""
        text = " ".join(line for line in (part.strip() for part in self.lines) if line)
        return text.removesuffix("[/]").rstrip() if self.marked_up else text


def looks_like_console(head: str) -> bool:
    """Whether any line is the heading of a block."""
    return any(p.fullmatch(line) for line in ANSI.sub("", head).split("\n") for p in (ACTION, STIMULUS))


def read_console(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read a console log, with or without terminal colours, also from the outputs of a Jupyter notebook."""
    notebook = source.head(1024).lstrip().startswith("{")
    said: Counter[int] = Counter()  # how often words are in the transcript
    shown: Counter[tuple[int, int, str]] = Counter()  # how often each view showed them to each receiver
    empty = True
    for item in _Console(source).blocks(printed_outputs(source) if notebook else [source.lines()]):
        empty = empty and isinstance(item, Skipped)
        yield item if isinstance(item, Skipped) else _record(item, said, shown)
    if empty:
        raise TranscriptError(source.name, 0, "no 'NAME acts: [TALK]' or 'USER --> NAME: [CONVERSATION]' in the file")


def _record(block: _Block, said: Counter[int], shown: Counter[tuple[int, int, str]]) -> Record:
    """The message of a block, or why there is none."""
    if block.type != ("CONVERSATION" if block.target else "TALK"):
        return Skipped(f"{'stimulus' if block.target else 'action'} {block.type}", block.line)
    if not block.text:
        return Skipped("empty message", block.line)
    words = hash((block.source, "".join(block.text.split())))
    view = (words, block.view, block.target)
    shown[view] += 1
    if shown[view] <= said[words]:
        return Skipped("shown before", block.line)
    said[words] += 1
    return SourceMessage(
        speaker=block.source,
        kind="stimulus" if block.source == USER else "named",
        text=block.text,
        line=block.line,
        sent_at=block.sent_at,
    )


class _Console:
    """Finds the blocks, and in which view they stand: one that is printed later has a time before each block."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.moment: datetime | None = None
        self.view = 0

    def blocks(self, outputs: Iterable[Iterable[tuple[int, str]]]) -> Iterator[_Block | Skipped]:
        for output in outputs:
            self.moment = None
            block: _Block | None = None
            for line, raw in output:
                text = ANSI.sub("", raw).rstrip()
                if not text or _MORE.fullmatch(text) or self._is_time(line, text):
                    continue
                if heading := self._heading(line, text):
                    if block is not None:
                        yield block
                    block = heading
                elif block is not None and (content := _CONTENT.fullmatch(text)):
                    block.lines.append(content["text"])
                    block.size += len(content["text"]) + 1
                    self.source.check_message(block.line, block.size)
                else:
                    self.moment = None
                    yield Skipped("other console output", line)
            if block is not None:
                yield block

    def _is_time(self, line: int, text: str) -> bool:
        stamp = _TIME.fullmatch(text)
        if stamp is None:
            return False
        if self.moment is None:
            self.view += 1
        try:
            self.moment = None if stamp["time"].strip() == "None" else parse_time(stamp["time"])
        except ValueError as error:
            raise TranscriptError(self.source.name, line, str(error)) from None
        return True

    def _heading(self, line: int, text: str) -> _Block | None:
        plain = _MARKUP.sub("", text)
        for pattern in (STIMULUS, ACTION):
            if match := pattern.fullmatch(plain):
                parts = match.groupdict()
                block = _Block(line, parts["source"], parts.get("target") or "", parts["type"], plain != text)
                if self.moment is not None:
                    block.sent_at, block.view = self.moment, self.view
                if rest := parts["rest"].removeprefix(">").strip():
                    block.lines.append(rest)
                return block
        return None

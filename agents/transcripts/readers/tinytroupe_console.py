"""TinyTroupe console output, as text or in a notebook: speech is what agents TALK, and each stimulus once, however many agents received it.

The console shows the same words again and again: to every listener, and in full when an agent's interactions are printed (then
with times). So words are counted per view and receiver, and are new only when that count exceeds what is in the transcript.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agents.transcripts.json_input import json_values
from agents.transcripts.records import ReaderOptions, Record, Skipped, SourceMessage, TranscriptError, parse_time
from agents.transcripts.source import MAX_MESSAGE, Source


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
        for output in _list(cell, "outputs"):
            lines = _text(output).split("\n")
            yield enumerate(lines, start=number)
            number += len(lines)


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _text(output: Any) -> str:
    """The text of an output: what it streamed, or the plain form of what it displayed."""
    if not isinstance(output, dict):
        return ""
    data = output.get("data")
    text = output.get("text") if not isinstance(data, dict) else data.get("text/plain")
    if isinstance(text, list):
        text = "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""


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


def read_console(source: Source, options: ReaderOptions) -> Iterator[Record]:
    """Read a console log, with or without terminal colours, also from the outputs of a Jupyter notebook."""
    notebook = source.head(1024).lstrip().startswith("{")
    heard = _Heard()
    found = False
    for item in _Console(source).blocks(printed_outputs(source) if notebook else [source.lines()]):
        if isinstance(item, Skipped):
            yield item
        else:
            found = True
            yield heard.record(item)
    if not found:
        raise TranscriptError(source.name, 0, "no 'NAME acts: [TALK]' or 'USER --> NAME: [CONVERSATION]' in the file")


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
                    self._add(block, content["text"])
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

    def _add(self, block: _Block, text: str) -> None:
        block.size += len(text) + 1
        if block.size > MAX_MESSAGE:
            raise TranscriptError(self.source.name, block.line, f"a message of more than {MAX_MESSAGE:,} characters")
        block.lines.append(text)


class _Heard:
    """How often words are in the transcript, and how often each view showed them to each receiver."""

    def __init__(self) -> None:
        self._said: Counter[int] = Counter()
        self._shown: Counter[tuple[int, int, str]] = Counter()

    def record(self, block: _Block) -> Record:
        """The message of a block, or why there is none."""
        if block.type != ("CONVERSATION" if block.target else "TALK"):
            return Skipped(f"{'stimulus' if block.target else 'action'} {block.type}", block.line)
        if not block.text:
            return Skipped("empty message", block.line)
        words = hash((block.source, "".join(block.text.split())))
        shown = (words, block.view, block.target)
        self._shown[shown] += 1
        if self._shown[shown] <= self._said[words]:
            return Skipped("shown before", block.line)
        self._said[words] += 1
        return SourceMessage(
            speaker=block.source,
            kind="stimulus" if block.source == USER else "named",
            text=block.text,
            line=block.line,
            sent_at=block.sent_at,
        )

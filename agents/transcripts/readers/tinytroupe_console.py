"""TinyTroupe console output, as text or in a notebook: speech is what agents TALK, and each stimulus once, however many agents received it.

The console shows the same words again and again: to every listener, and in full when an agent's interactions are printed (then
with times). So words are counted per view and receiver, and are new only when that count exceeds what is in the transcript.

One output may hold several sessions, which share no words: a session is an environment's, by the name in its "step 1 of 2" lines, or
that of the agents who were spoken to together or hear each other.
Read: https://github.com/microsoft/TinyTroupe, examples/simple_chat.ipynb and examples/advertisement_for_tv.ipynb.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agents.kit.files.json_input import json_values
from agents.kit.files.source import FileError, Source
from agents.kit.files.times import parse_time
from agents.transcripts.records import Record, Skipped, SourceMessage


def is_notebook(value: dict[str, Any]) -> bool:
    """Return whether this JSON object is a notebook."""
    return "nbformat" in value and isinstance(value.get("cells"), list)


def printed_outputs(source: Source) -> Iterator[Iterator[tuple[int, str]]]:
    """Yield each output of the cells that is text, in order, as (line number, line); lines are numbered through from 1."""
    _, value = next(json_values(source), (0, None))
    if not isinstance(value, dict) or not is_notebook(value):
        raise FileError(source.name, 1, "JSON, but no Jupyter notebook")
    number = 1
    for cell in value["cells"]:
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            lines = _text(output).split("\n")
            yield enumerate(lines, start=number)
            number += len(lines)


def _text(output: Any) -> str:
    """Return the text of an output: what it streamed, or the plain form of what it displayed."""
    if not isinstance(output, dict):
        return ""
    text = output.get("text")
    if isinstance(output.get("data"), dict):
        text = output["data"].get("text/plain")
    parts = text if isinstance(text, list) else [text]
    return "".join(part for part in parts if isinstance(part, str))


ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_MARKUP = re.compile(r"\[/?(?:[a-z][a-z0-9_# ]*)?\]")
STIMULUS = re.compile(r"\s*(?P<source>\S.{0,120}?) --> (?P<target>\S.{0,120}?): \[(?P<type>[A-Z_ ]+)\]\s*(?P<rest>.*)")
ACTION = re.compile(r"\s*(?P<source>\S.{0,120}?) acts: \[(?P<type>[A-Z_ ]+)\]\s*(?P<rest>.*)")
_MORE = re.compile(r"\s*\+ --> (?P<target>\S.{0,120})")
_STEP = re.compile(r"\s*[─━—-]{3,} (?P<name>\S.{0,200}?) step \d+ of \d+\b.*")
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
    more: list[str] = field(default_factory=list)
    size: int = 0

    @property
    def hearers(self) -> set[str]:
        """Return those to whom it was said."""
        return {self.target, *self.more}

    @property
    def text(self) -> str:
        """Return the text, unwrapped: the console broke its lines."""
        parts = [line.strip() for line in self.lines]
        text = " ".join(part for part in parts if part)
        return text.removesuffix("[/]").rstrip() if self.marked_up else text


def looks_like_console(head: str) -> bool:
    """Return whether any line is the heading of a block."""
    lines = ANSI.sub("", head).split("\n")
    return any(ACTION.fullmatch(line) or STIMULUS.fullmatch(line) for line in lines)


def read_console(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read a console log, with or without terminal colours, also from the outputs of a Jupyter notebook."""
    notebook = source.head(1024).lstrip().startswith("{")
    sessions = _Sessions()
    empty = True
    for item in _Console(source).blocks(printed_outputs(source) if notebook else [source.lines()]):
        if isinstance(item, _Block):
            empty = False
            yield from sessions.read(item)
        elif isinstance(item, _Step):
            yield from sessions.step(item.name)
            yield Skipped("other console output", item.line)
        else:
            yield item
    yield from sessions.flush()
    if empty:
        raise FileError(source.name, 0, "no 'NAME acts: [TALK]' or 'USER --> NAME: [CONVERSATION]' in the file")


@dataclass(slots=True)
class _Session:
    """Agents who hear each other, in an environment where its name is known."""

    number: int
    agents: set[str] = field(default_factory=set)
    environment: str = ""
    said: Counter[int] = field(default_factory=Counter)  # how often words are in the transcript
    shown: Counter[tuple[int, int, str]] = field(
        default_factory=Counter
    )  # how often each view showed them to each receiver


class _Sessions:
    """Gives each block its session. Stimuli wait for what follows them: an environment's step says where they belong."""

    def __init__(self) -> None:
        self.all: list[_Session] = []
        self.waiting: list[_Block] = []
        self.stepping = False

    def step(self, environment: str) -> Iterator[Record]:
        """Begin a step of an environment: what waits, and what follows, is its session's."""
        hearers: set[str] = set()
        for block in self.waiting:
            hearers |= block.hearers
        if not self.all or not self._may_belong(self.all[-1], environment, hearers):
            self._enter(self._latest_of(environment, hearers))
        session = self.all[-1]
        session.environment = environment
        session.agents |= hearers
        self.stepping = True
        waiting = self.waiting
        self.waiting = []
        for block in waiting:
            yield _record(block, session)

    def _latest_of(self, environment: str, hearers: set[str]) -> _Session | None:
        """Return the latest session of an environment to which these agents may belong."""
        for session in reversed(self.all):
            if session.environment and self._may_belong(session, environment, hearers):
                return session
        return None

    def _may_belong(self, session: _Session, environment: str, hearers: set[str]) -> bool:
        """Return whether a step of an environment, which these agents hear, may be one of a session."""
        if session.environment not in ("", environment):
            return False
        return not hearers or not session.agents or bool(hearers & session.agents)

    def _enter(self, session: _Session | None) -> None:
        """Make a session the current one, which is the last; a new one without."""
        if session is None:
            session = _Session(len(self.all) + 1)
        else:
            self.all.remove(session)
        self.all.append(session)

    def _with(self, names: set[str]) -> _Session | None:
        """Return the latest session in which one of these takes part."""
        return next((session for session in reversed(self.all) if names & session.agents), None)

    def read(self, block: _Block) -> Iterator[Record]:
        """Yield what a block and, where it ends their wait, earlier stimuli come to."""
        if block.type != ("CONVERSATION" if block.target else "TALK"):
            if not block.target and not block.view:
                yield from self.flush()
                self._enter_for({block.source})
            yield Skipped(f"{'stimulus' if block.target else 'action'} {block.type}", block.line)
        elif not block.text:
            yield Skipped("empty message", block.line)
        elif block.view:
            yield from self.flush()
            yield self._printed_later(block)
        elif block.target and block.source == USER:
            if len(self.waiting) >= MOST_WAITING:
                yield from self.flush()
            self.waiting.append(block)
        else:
            yield from self.flush()
            self._enter_for({block.source, block.target, *block.more} - {""})
            yield _record(block, self.all[-1])

    def flush(self) -> Iterator[Record]:
        """Yield the stimuli that wait, each in the session of those who hear it; the same words in a row are one for all who do."""
        waiting = self.waiting
        self.waiting = []
        while waiting:
            hearers = set(waiting[0].hearers)
            count = 1
            for block in waiting[1:]:
                if block.text != waiting[count - 1].text and not hearers & block.hearers:
                    break
                hearers |= block.hearers
                count += 1
            self.stepping = False
            self._enter_for(hearers, asked=True)
            for block in waiting[:count]:
                yield _record(block, self.all[-1])
            waiting = waiting[count:]

    def _enter_for(self, names: set[str], *, asked: bool = False) -> None:
        """Enter the session of these agents. Those who are in none are `asked` something in a new one, else they act in the current one."""
        current = self.all[-1] if self.all else None
        if current is None or not (self.stepping or names & current.agents):
            self._enter(self._with(names) or (None if asked else current))
        self.all[-1].agents |= names

    def _printed_later(self, block: _Block) -> Record:
        """Return the record of a block that is printed again.

        It belongs to the session where it was said; what is new there, to the agent's latest.
        """
        agent = {block.target or block.source}
        sessions = [session for session in self.all if agent & session.agents]
        words, shown_words = _words(block)
        for session in sessions:
            if session.shown[shown_words] < session.said[words]:
                return _record(block, session)
        if not sessions:
            self._enter_for(agent, asked=not self.all)
        return _record(block, (sessions or self.all)[-1])


MOST_WAITING = 1000


def _words(block: _Block) -> tuple[int, tuple[int, int, str]]:
    """Return what stands for the words of a block, and for these words as its view shows them to its receiver."""
    words = hash((block.source, "".join(block.text.split())))
    return words, (words, block.view, block.target)


def _record(block: _Block, session: _Session) -> Record:
    """Return the message of a block, or that it was shown before."""
    words, view = _words(block)
    session.shown[view] += 1
    if session.shown[view] <= session.said[words]:
        return Skipped("shown before", block.line)
    session.said[words] += 1
    return SourceMessage(
        speaker=block.source,
        kind="stimulus" if block.source == USER else "named",
        text=block.text,
        line=block.line,
        sent_at=block.sent_at,
        conversation=session.number,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    line: int
    name: str


class _Console:
    """Finds the blocks, and in which view they stand: one that is printed later has a time before each block."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.moment: datetime | None = None
        self.view = 0

    def blocks(self, outputs: Iterable[Iterable[tuple[int, str]]]) -> Iterator[_Block | _Step | Skipped]:
        """Yield the blocks and the steps of outputs, each a list of numbered lines, and an entry for other lines."""
        for output in outputs:
            self.moment = None
            block: _Block | None = None
            for line, raw in output:
                text = ANSI.sub("", raw).rstrip()
                if not text or self._is_time(line, text):
                    continue
                if self._goes_on(block, text):
                    continue
                beginning = self._step(line, text) or self._heading(line, text)
                if beginning is None:
                    self.moment = None
                    yield Skipped("other console output", line)
                    continue
                if block is not None:
                    yield block
                block = None
                if isinstance(beginning, _Step):
                    yield beginning
                else:
                    block = beginning
            if block is not None:
                yield block

    def _step(self, line: int, text: str) -> _Step | None:
        match = _STEP.fullmatch(text)
        return _Step(line, match["name"].strip()) if match else None

    def _goes_on(self, block: _Block | None, text: str) -> bool:
        """Add a line to a block: a further receiver, or text; return whether it is such a line."""
        receiver = _MORE.fullmatch(text)
        if receiver:
            if block is not None:
                block.more.append(receiver["target"])
            return True
        content = _CONTENT.fullmatch(text)
        if block is None or content is None or _STEP.fullmatch(text) or _is_heading(text):
            return False
        block.lines.append(content["text"])
        block.size += len(content["text"]) + 1
        self.source.check_message(block.line, block.size)
        return True

    def _is_time(self, line: int, text: str) -> bool:
        """Return whether a line is the time of the next block, and keep it; the first of several begins another view.

        Raises:
            FileError: There is no such time.
        """
        stamp = _TIME.fullmatch(text)
        if stamp is None:
            return False
        if self.moment is None:
            self.view += 1
        try:
            self.moment = None if stamp["time"].strip() == "None" else parse_time(stamp["time"])
        except ValueError as error:
            raise FileError(self.source.name, line, str(error)) from None
        return True

    def _heading(self, line: int, text: str) -> _Block | None:
        """Return the block that begins on a line; None where none does."""
        plain = _MARKUP.sub("", text)
        match = STIMULUS.fullmatch(plain) or ACTION.fullmatch(plain)
        if match is None:
            return None
        parts = match.groupdict()
        block = _Block(line, parts["source"], parts.get("target") or "", parts["type"], plain != text)
        if self.moment is not None:
            block.sent_at = self.moment
            block.view = self.view
        first_line = parts["rest"].removeprefix(">").strip()
        if first_line:
            block.lines.append(first_line)
        return block


def _is_heading(text: str) -> bool:
    plain = _MARKUP.sub("", text)
    return bool(STIMULUS.fullmatch(plain) or ACTION.fullmatch(plain))

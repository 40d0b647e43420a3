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
    """Yield each output of a notebook's cells, in order, as (line number, line); lines are numbered through from 1.

    An output that is no text, such as a picture, is one empty line.

    Raises:
        FileError: It is no Jupyter notebook.
    """
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
    """A heading and the lines under it: an action, such as speech (TALK), or a stimulus that an agent receives.

    Attributes:
        source: The agent who acts, or who gives the stimulus (`USER`: the person).
        target: Who receives the stimulus; empty for an action. `more`: further receivers.
        type: Of the action or stimulus, e.g. TALK, THINK, CONVERSATION.
        marked_up: The heading holds markup such as ``[bold]``, and the text ends in ``[/]``.
        view: 0: the conversation as it ran; above: which later printing of an agent's interactions it stands in.
        size: Characters so far.
    """

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
    """Read a console log, with or without terminal colours, also from the outputs of a Jupyter notebook.

    Yields speech and stimuli once each; an entry for all else, such as thoughts, and what was shown before.

    Raises:
        FileError: There is no action and no stimulus in it, or a time that cannot be read.
    """
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
    in_transcript: Counter[int] = field(default_factory=Counter)  # how often words are in the transcript
    # How often each view showed them to each receiver.
    in_views: Counter[tuple[int, int, str]] = field(default_factory=Counter)


class _Sessions:
    """Gives each block its session. Stimuli wait for what follows them: an environment's step says where they belong.

    Attributes:
        all: The sessions; the last is the current one.
        waiting: Stimuli of the person whose session is not known yet.
        stepping: A step of an environment is being printed: what follows belongs to the current session, no matter who acts.
    """

    def __init__(self) -> None:
        self.all: list[_Session] = []
        self.waiting: list[_Block] = []
        self.stepping = False

    def step(self, environment: str) -> Iterator[Record]:
        """Begin a step of an environment: its session becomes the current one; yield what waits as this session's.

        It stays in the current session where it may be one of it; else it enters the environment's latest, or a new one.
        """
        hearers: set[str] = set()
        for block in self.waiting:
            hearers |= block.hearers
        if not self.all or not self._may_belong(self.all[-1], environment, hearers):
            self._make_current(self._latest_of(environment, hearers))
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
        """Return whether a step of an environment, which these agents hear, may be one of a session.

        It may where the session's environment has this name or none yet, and they share an agent or one of them has none.
        """
        if session.environment not in ("", environment):
            return False
        return not hearers or not session.agents or bool(hearers & session.agents)

    def _make_current(self, session: _Session | None) -> None:
        """Make a session the current one, which is the last; a new one without."""
        if session is None:
            session = _Session(len(self.all) + 1)
        else:
            self.all.remove(session)
        self.all.append(session)

    def _latest_with(self, names: set[str]) -> _Session | None:
        """Return the latest session in which one of these takes part."""
        return next((session for session in reversed(self.all) if names & session.agents), None)

    def read(self, block: _Block) -> Iterator[Record]:
        """Yield what a block and, where it ends their wait, earlier stimuli come to.

        A person's stimulus waits, so nothing is yielded for it yet. Other kinds of blocks than speech are skipped, but an agent's
        action as it ran says which session goes on.
        """
        is_speech = block.type == ("CONVERSATION" if block.target else "TALK")
        if not is_speech:
            is_action_as_it_ran = not block.target and not block.view
            if is_action_as_it_ran:
                yield from self.flush()
                self._enter_for({block.source})
            yield Skipped(f"{'stimulus' if block.target else 'action'} {block.type}", block.line)
        elif not block.text:
            yield Skipped("empty message", block.line)
        elif block.view:  # printed again, or for the first time, in an agent's interactions
            yield from self.flush()
            yield self._printed_later(block)
        elif block.target and block.source == USER:
            if len(self.waiting) >= MOST_WAITING:
                yield from self.flush()
            self.waiting.append(block)
        else:  # an agent speaks, or is spoken to by another
            yield from self.flush()
            self._enter_for({block.source, block.target, *block.more} - {""})
            yield _record(block, self.all[-1])

    def flush(self) -> Iterator[Record]:
        """Yield the stimuli that wait, each in the session of those who hear it; none waits afterwards.

        Stimuli in a row with the same words or a common hearer are of one session.
        """
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
        """Make the session of these agents the current one, and add them to it.

        They stay in the current one where a step is being printed or one of them takes part in it; else they enter the latest in which
        one does. Those who are in none are `asked` something in a new one, else they act in the current one.
        """
        current = self.all[-1] if self.all else None
        if current is None or not (self.stepping or names & current.agents):
            self._make_current(self._latest_with(names) or (None if asked else current))
        self.all[-1].agents |= names

    def _printed_later(self, block: _Block) -> Record:
        """Return the record of a block that is printed later, in a view of an agent's interactions.

        It belongs to the agent's latest session in which its words were said more often than this view showed them so far, and is
        skipped there; what is new in all of them is a message of the agent's latest. An agent without a session joins the current one.
        """
        agent = {block.target or block.source}
        sessions = [session for session in self.all if agent & session.agents]
        words, shown_words = _words(block)
        for session in sessions:
            if session.in_views[shown_words] < session.in_transcript[words]:
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
    """Return the message of a block, or that it was shown before.

    It is new when this view has shown its words to this receiver more often than they are in the session's transcript.
    """
    words, view = _words(block)
    session.in_views[view] += 1
    if session.in_views[view] <= session.in_transcript[words]:
        return Skipped("shown before", block.line)
    session.in_transcript[words] += 1
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
        """Yield the blocks and the steps of outputs, each a list of numbered lines, and an entry for other lines.

        A block ends where the next or a step begins, or its output ends. Empty lines and times yield nothing.

        Raises:
            FileError: There is no such time, or a message is too long.
        """
        for output in outputs:
            self.moment = None
            block: _Block | None = None
            for line, raw in output:
                text = ANSI.sub("", raw).rstrip()
                if not text or self._keep_time(line, text):
                    continue
                if self._add_to_block(block, text):
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

    def _add_to_block(self, block: _Block | None, text: str) -> bool:
        """Add a line to a block: a further receiver ("+ --> Ann"), or text ("> words"); return whether it is such a line.

        Raises:
            FileError: The message is too long.
        """
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

    def _keep_time(self, line: int, text: str) -> bool:
        """Return whether a line is the time of the next block, and keep it as `moment`; "None" is kept as no time.

        A time after none (at the beginning of an output, after other lines) begins another view.

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
        """Return the block that begins on a line, e.g. "Ann acts: [TALK]" or "USER --> Ann: [CONVERSATION]"; None where none does.

        With a time before it, it stands in the view that is being printed.
        """
        plain = _MARKUP.sub("", text)
        match = STIMULUS.fullmatch(plain) or ACTION.fullmatch(plain)
        if match is None:
            return None
        parts = match.groupdict()
        block = _Block(line, parts["source"], parts.get("target") or "", parts["type"], marked_up=plain != text)
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

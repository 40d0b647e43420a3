"""Chat logs: "Name: text", IRC and messenger exports, with or without time stamps; lines without a speaker go on.

Read: public parsers of irssi's logs (its line forms, "--- Day changed", "-!-") and for WhatsApp what `whatsapp` names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import islice, pairwise
from typing import Literal

from agents.kit.files.source import FileError, Source
from agents.transcripts.readers import whatsapp
from agents.transcripts.records import Guess, Record, Skipped, SourceMessage

STAMP = re.compile(
    r"""
    (?P<open>[\[(]?)
    (?:(?P<date>\d{4}(?:[-/.]|\.[ ])\d{1,2}(?:[-/.]|\.[ ])\d{1,2}\.?|\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2}))
       (?:,?\s+(?:(?:à|às|alle|um|kl\.?|at)\s+)?|T|,))?
    (?:(?P<before>오전|오후|上午|下午|午前|午後)\s?)?
    (?P<hour>\d{1,2})(?(date)[:.]|:)(?P<minute>\d{2})(?:(?(date)[:.]|:)(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,6}))?)?
    (?:\s?(?P<half>[AaPp])\.?\s?[Mm]\b\.?)?
    (?:\s?(?P<offset>Z|UTC|[+-]\d{2}:?\d{2}))?
    (?:[\])]|(?<=.)(?=\s|:\s))
    (?::(?=\s))?\s*(?:[-–|]\s+)?
    """,
    re.VERBOSE,
)


def _clock_and_day(match: re.Match[str], *, day_first: bool) -> tuple[time, date | None]:
    """Read a match of `STAMP`, with or without a date. Raises `ValueError`: no such date or time."""
    hour, offset = int(match["hour"]), (match["offset"] or "").replace("UTC", "Z")
    if match["half"] or match["before"]:
        if not 1 <= hour <= 12:
            raise ValueError(f"{hour} is no hour of a 12-hour clock")
        hour = hour % 12 + (12 if match["half"] in ("p", "P") or match["before"] in ("오후", "下午", "午後") else 0)
    clock = time(
        hour,
        int(match["minute"]),
        int(match["second"] or 0),
        int((match["fraction"] or "0").ljust(6, "0")),
        tzinfo=datetime.strptime(offset, "%z").tzinfo if offset else None,
    )
    if not match["date"]:
        return clock, None
    first, second, third = _numbers(match["date"])
    if first > 999:
        return clock, date(first, second, third)
    year = third + 2000 if third < 100 else third
    return clock, date(year, second, first) if day_first else date(year, first, second)


def _numbers(text: str) -> tuple[int, int, int]:
    first, second, third = re.split(r"[-/.] ?", text.rstrip("."))
    return int(first), int(second), int(third)


def day_comes_first(source: Source, match: re.Match[str]) -> tuple[bool, str]:
    """Whether 01/02/2026 is the 1st of February in this file, and, where that is only likely, why.

    A number above 12 anywhere decides, else the order of the messages: the reading in which time runs backwards less often. Likely
    is month first in US English ("AM", "PM" in capitals after slashes), day first in everything else.
    """
    if source.dates or _numbers(match["date"])[0] > 999:
        return source.dates == "day-first", ""
    dotted = "." in match["date"]  # 01.02.2026 is written by those only who put the day first
    days: list[tuple[int, int, int]] = []
    for _, text in source.lines():
        other = STAMP.match(text.lstrip("\u200e\ufeff"))
        if other and other["date"]:
            first, second, year = _numbers(other["date"])
            if 12 < first <= 31:
                return True, ""
            if 12 < second <= 31:
                return False, ""
            if not days or days[-1] != (year, second, first):
                days.append((year, second, first))
    swapped = [(year, day, month) for year, month, day in days]
    backwards = [sum(this < before for before, this in pairwise(order)) for order in (days, swapped)]
    if backwards[0] != backwards[1]:
        return backwards[0] < backwards[1], ""
    if dotted or all(first == second for _, second, first in days):
        return True, ""
    if re.search(r"\d\s?[AP]M\b", match.group()) and "/" in match["date"]:
        return False, "AM and PM in capitals are the US form"
    return True, "only the US form, with slashes and AM or PM in capitals, has the month first"


Style = Literal["stamped", "nick", "named"]

_NICK = re.compile(r"<[~&@%+ ]?(?P<speaker>[^<>\s][^<>]{0,63})>(?:[ \t](?P<text>.*)|$)")
_ACTION = re.compile(r"\*[ \t](?P<speaker>[^\s:*]{1,64}) (?P<text>.+)")
_NOTICE = re.compile(r"(?:-!-|-[^\s-]\S{0,80}-|\*\*\*|-->|<--|<->|===?|---?)(?:\s|$)")
_AFTER_STAMP = re.compile(r"(?P<speaker>[^\s:<][^:\t]{0,79}):(?:\s+(?P<text>.*)|$)")
_NAMED = re.compile(
    r"(?P<bold>\*\*|__)?(?P<speaker>[^\W_][^:<>\[\]{}|\"*]{0,39})(?(bold)(?::(?P=bold)|(?P=bold):)|:)(?:\s+(?P<text>.*)|$)"
)
_DAY_CHANGED = re.compile(
    r"(?:-+ (?:Day changed|Log (?:opened|closed))|Session (?:Start|Time|Close|Ident):|\*+ (?:BEGIN|ENDING) LOGGING AT) (?P<text>.+)"
)
_MARKED = re.compile(r"(?m)^[\u200e\ufeff]*\[[^\[\]\n]{8,40}\] ?[^:\n]{1,80}: ?\u200e")
_QUOTED = re.compile('["“”„«»]')  # in what stands before a colon: 'Ann changed the subject to "Ferries: late"'
MAX_WORDS = 5


@dataclass(slots=True)
class _Draft:
    """A message that may go on in the next lines."""

    line: int
    speaker: str
    lines: list[str]
    action: bool = False
    clock: time | None = None
    day: date | None = None
    size: int = 0
    messenger: str = ""
    """``marked`` or ``plain`` for a messenger's export: whether its own texts have a mark before them."""

    def record(self) -> Record:
        text, reason = "\n".join(self.lines).strip(), "empty message"
        if self.messenger:
            text, reason = whatsapp.said_in(self.lines, marks=self.messenger == "marked")
        if not text:
            return Skipped(reason, self.line)
        payload: dict[str, object] = {"action": True} if self.action else {}
        sent_at = None
        if self.clock is not None and self.day is not None:
            sent_at = datetime.combine(self.day, self.clock)
        elif self.clock is not None:
            payload["time"] = self.clock.isoformat()
        return SourceMessage(speaker=self.speaker, text=text, line=self.line, sent_at=sent_at, payload=payload)


def bare(line: str) -> str:
    """The line without the direction marks of messengers and the blanks at its end."""
    return line.strip("\u200e\ufeff").rstrip()


def style_of(line: str) -> Style | None:
    """How this line names its speaker; None when it does not."""
    if STAMP.match(line):
        return "stamped"
    if _NICK.fullmatch(line):
        return "nick"
    return "named" if _named(line) else None


def looks_like_chat(head: str) -> bool:
    """Whether at least half of the first lines that are not blank name a speaker in the style of the first."""
    lines = [bare(line) for line in islice((line for line in head.split("\n") if line.strip()), 60)]
    lines = [line for line in lines if not _DAY_CHANGED.fullmatch(line) and not _NOTICE.match(line)]
    style = style_of(lines[0]) if lines else None
    return style is not None and 2 * sum(style_of(line) == style for line in lines) >= len(lines)


def read_log(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read a chat log. The first line that names a speaker sets the style; other lines go on with the message before.

    A time without a date is kept as ``{"time": …}`` in the payload, unless a line such as "--- Day changed …" gave the date.
    """
    return _Log(source).records()


class _Log:
    """The style, the date and the form of dates that the lines so far have set."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.style: Style | None = None
        self.shape: tuple[bool, str] | None = None
        self.day: date | None = None
        self.day_first: bool | None = None
        self.guess: Guess | None = None
        # WhatsApp on iOS writes a mark before its own texts; some languages have no comma after the date.
        self.marked = _MARKED.search(source.head()) is not None
        self.one_line = False  # IRC: a message is one line

    def records(self) -> Iterator[Record]:
        draft: _Draft | None = None
        for line, raw in self.source.lines():
            text = bare(raw)
            if raw.strip().startswith(whatsapp.MARK) and draft is not None and STAMP.match(text) is None:
                text = raw.rstrip()  # the mark says that the messenger wrote this line
            if changed := _DAY_CHANGED.fullmatch(text):
                self.day = _day(changed["text"]) or self.day
                continue
            if not text and self.style is None:
                continue
            start = self._start(line, text)
            if self.guess is not None:
                yield self.guess
                self.guess = None
            if start is not None:
                if draft is not None:
                    yield draft.record()
                draft = start if isinstance(start, _Draft) else None
                if isinstance(start, Skipped):
                    yield start
            elif self.one_line and text:
                yield from () if draft is None else (draft.record(),)
                draft = None
                yield Skipped("line not understood", line, text=text)
            elif draft is not None:
                draft.lines.append(text)
                draft.size += len(text) + 1
                self.source.check_message(draft.line, draft.size)
            elif self.style is None:
                raise FileError(
                    self.source.name, line, "no speaker; expected 'Name: text', '<nick> text' or a time before one"
                )
        if draft is not None:
            yield draft.record()
        if self.style is None:
            raise FileError(self.source.name, 0, "the file is empty")

    def _start(self, line: int, text: str) -> _Draft | Skipped | None:
        """The message or notice that begins on this line; None when the line goes on with the one before."""
        self.style = self.style or style_of(text)
        if self.style == "stamped":
            return self._stamped(line, text)
        self.one_line = self.style == "nick"
        if match := _NICK.fullmatch(text) if self.style == "nick" else _named(text):
            return _Draft(line, match["speaker"].strip(), [match["text"] or ""])
        return _other(line, text) if self.style == "nick" else None

    def _stamped(self, line: int, text: str) -> _Draft | Skipped | None:
        match = STAMP.match(text)
        if match is None:
            return _other(line, text) if self.one_line else None
        shape = (match["date"] is not None, match["open"])
        self.shape = self.shape or shape
        if shape != self.shape:
            return None  # a time inside a text, not a stamp like the others
        why = ""
        if self.day_first is None and match["date"]:
            self.day_first, why = day_comes_first(self.source, match)
        try:
            clock, day = _clock_and_day(match, day_first=bool(self.day_first))
        except ValueError as error:
            raise FileError(self.source.name, line, f"{match.group().strip()!r} is no time: {error}") from None
        if why and day:
            self.guess = _guess(line, match["date"], day, self.day_first is True, why)
        rest = text[match.end() :].strip("\u200e").strip(" \t\u202f\xa0")
        if other := _other(line, rest):
            start: _Draft | Skipped = other
        elif said := _NICK.fullmatch(rest):
            self.one_line = True
            start = _Draft(line, said["speaker"].strip(), [said["text"] or ""])
        else:
            start = self._messenger(line, match, rest)
        if isinstance(start, _Draft):
            start.clock, start.day = clock, day or self.day
        return start

    def _messenger(self, line: int, match: re.Match[str], rest: str) -> _Draft | Skipped:
        """A line "Name: text" after its time; in a messenger's export one without a name is a notice of the messenger's."""
        written = match.group()
        ios = match["open"] == "[" and ("," in written or self.marked)
        exported = bool(match["date"]) and (ios if match["open"] else written.rstrip()[-1:] in ("-", "–"))
        said = _AFTER_STAMP.fullmatch(rest)
        if said and not (exported and _QUOTED.search(said["speaker"])):
            speaker = said["speaker"].lstrip("~\u202f\xa0 ").strip() or said["speaker"].strip()
            messenger = ("marked" if match["open"] else "plain") if exported else ""
            return _Draft(line, speaker, [said["text"] or ""], messenger=messenger)
        return Skipped("notice", line) if exported else Skipped("line not understood", line, text=rest)


def _guess(line: int, text: str, day: date, day_first: bool, why: str) -> Guess:
    form, option = ("day first", "month-first") if day_first else ("month first", "day-first")
    return Guess(
        f"Dates are read {form} ({text} as {day}), which is a guess: {why}. If that is wrong: --dates {option}", line
    )


def _other(line: int, text: str) -> _Draft | Skipped | None:
    """IRC's actions ("* nick waves") and notices (joins, parts, topics)."""
    if _NOTICE.match(text):
        return Skipped("notice", line)
    match = _ACTION.fullmatch(text)
    return _Draft(line, match["speaker"], [match["text"]], action=True) if match else None


def _named(text: str) -> re.Match[str] | None:
    match = _NAMED.fullmatch(text)
    return match if match and len(match["speaker"].split()) <= MAX_WORDS else None


def _day(text: str) -> date | None:
    for form in ("%a %b %d %Y", "%a %b %d %H:%M:%S %Y", "%Y-%m-%d"):
        try:
            return datetime.strptime(text.strip(), form).date()
        except ValueError:
            continue
    return None

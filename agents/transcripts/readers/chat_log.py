"""Chat logs: "Name: text", IRC and messenger exports, with or without time stamps; lines without a speaker go on.

Read: public parsers of irssi's logs (its line forms, "--- Day changed", "-!-") and for WhatsApp what `whatsapp` names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import pairwise
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


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a stamp, and its day where the stamp has a date."""

    clock: time
    day: date | None


def _moment(match: re.Match[str], *, day_first: bool) -> Moment:
    """Read a match of `STAMP`, with or without a date. A year comes first where it has four digits; one of two digits is in this century.

    Raises:
        ValueError: There is no such date or time.
    """
    offset = (match["offset"] or "").replace("UTC", "Z")
    clock = time(
        _hour(match),
        int(match["minute"]),
        int(match["second"] or 0),
        int((match["fraction"] or "0").ljust(6, "0")),
        tzinfo=datetime.strptime(offset, "%z").tzinfo if offset else None,
    )
    if not match["date"]:
        return Moment(clock, day=None)
    first, second, third = _numbers(match["date"])
    if first > 999:
        return Moment(clock, date(first, second, third))
    year = third + 2000 if third < 100 else third
    if day_first:
        return Moment(clock, date(year, second, first))
    return Moment(clock, date(year, first, second))


def _hour(match: re.Match[str]) -> int:
    """Return the hour of a stamp, 0 to 23; AM and PM, or their words in other languages, may stand with it."""
    hour = int(match["hour"])
    if not match["half"] and not match["before"]:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(f"{hour} is no hour of a 12-hour clock")
    is_afternoon = match["half"] in ("p", "P") or match["before"] in ("오후", "下午", "午後")
    return hour % 12 + (12 if is_afternoon else 0)


def _numbers(text: str) -> tuple[int, int, int]:
    """Return the three numbers of a date in their order."""
    first, second, third = re.split(r"[-/.] ?", text.rstrip("."))
    return int(first), int(second), int(third)


@dataclass(frozen=True, slots=True)
class DateOrder:
    """Whether the day comes before the month in a file's dates, and, where that is only likely, why."""

    day_first: bool
    guessed_because: str = ""


def date_order(source: Source, match: re.Match[str]) -> DateOrder:
    """Find out whether 01/02/2026 is the 1st of February in a file.

    A number above 12 anywhere decides, else the order of the messages: the reading in which time runs backwards less often. Likely
    is month first in US English ("AM", "PM" in capitals after slashes), day first in everything else.

    Args:
        match: Of `STAMP`, the first with a date.
    """
    year_comes_first = _numbers(match["date"])[0] > 999
    if source.dates or year_comes_first:  # said by the user, or of no account
        return DateOrder(day_first=source.dates == "day-first")
    days: list[tuple[int, int, int]] = []  # year, second and first number: in order where the day comes first
    for first, second, year in _dates_in(source):
        if 12 < first <= 31:
            return DateOrder(day_first=True)
        if 12 < second <= 31:
            return DateOrder(day_first=False)
        if not days or days[-1] != (year, second, first):
            days.append((year, second, first))
    months_first = [(year, first, second) for year, second, first in days]
    backwards_day_first = _times_backwards(days)
    backwards_month_first = _times_backwards(months_first)
    if backwards_day_first != backwards_month_first:
        return DateOrder(day_first=backwards_day_first < backwards_month_first)
    is_dotted = "." in match["date"]  # 01.02.2026 is written by those only who put the day first
    both_ways_alike = days == months_first  # such as 02/02/2026 alone
    if is_dotted or both_ways_alike:
        return DateOrder(day_first=True)
    if re.search(r"\d\s?[AP]M\b", match.group()) and "/" in match["date"]:
        return DateOrder(day_first=False, guessed_because="AM and PM in capitals are the US form")
    return DateOrder(
        day_first=True, guessed_because="only the US form, with slashes and AM or PM in capitals, has the month first"
    )


def _dates_in(source: Source) -> Iterator[tuple[int, int, int]]:
    """Yield the three numbers of each date in the stamps of a file."""
    for _, text in source.lines():
        match = STAMP.match(text.lstrip("\u200e\ufeff"))
        if match and match["date"]:
            yield _numbers(match["date"])


def _times_backwards(days: list[tuple[int, int, int]]) -> int:
    """Return how often a day comes before the one above it."""
    return sum(later < earlier for earlier, later in pairwise(days))


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
MAX_WORDS = 5  # of a name


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
    messenger: str = (
        ""  # ``marked`` or ``plain`` for a messenger's export: whether its own texts have a mark before them
    )

    def record(self) -> Record:
        """Return the message, or that it is none: nothing was said, or only by the messenger.

        With a time but no day, the time is in the payload (``{"time": "14:30:00"}``) and `sent_at` is None.
        """
        text = "\n".join(self.lines).strip()
        reason = "empty message"
        if self.messenger:
            content = whatsapp.said_in(self.lines, marks=self.messenger == "marked")
            text = content.text
            reason = content.reason
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
    """Return the line without the direction marks of messengers and the blanks at its end."""
    return line.strip("\u200e\ufeff").rstrip()


def style_of(line: str) -> Style | None:
    """Return how this line names its speaker; None when it does not."""
    if STAMP.match(line):
        return "stamped"
    if _NICK.fullmatch(line):
        return "nick"
    return "named" if _match_name(line) else None


def looks_like_chat(head: str) -> bool:
    """Return whether at least half of the first 60 lines, without blank ones, notices and changes of the day, name a speaker in one style.

    The first of them sets the style, so it must name a speaker.
    """
    first_lines = [bare(line) for line in head.split("\n") if line.strip()][:60]
    lines = [line for line in first_lines if not _DAY_CHANGED.fullmatch(line) and not _NOTICE.match(line)]
    if not lines:
        return False
    style = style_of(lines[0])
    same_style = [line for line in lines if style_of(line) == style]
    return style is not None and 2 * len(same_style) >= len(lines)


def read_log(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read a chat log. The first line that names a speaker sets the style; other lines go on with the message before.

    A time without a date is kept as ``{"time": …}`` in the payload, unless a line such as "--- Day changed …" gave the date.
    """
    return _Log(source).records()


class _Log:
    """Reads a log line by line.

    Attributes:
        style: How lines name their speakers; set by the first line that names one.
        stamp_form: Whether stamps have a date, and their opening bracket; set by the first stamp.
        day: Of a line such as "--- Day changed …", for times without a date.
        day_first: Whether the day comes before the month; None before the first date.
        guess: To be reported before the next message.
        is_marked: The export has marks before the messenger's own texts, as WhatsApp's on iOS.
        one_line: A message is one line, as on IRC.
        draft: The message that may go on in the next line.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.style: Style | None = None
        self.stamp_form: tuple[bool, str] | None = None
        self.day: date | None = None
        self.day_first: bool | None = None
        self.guess: Guess | None = None
        self.is_marked = _MARKED.search(source.head()) is not None
        self.one_line = False
        self.draft: _Draft | None = None

    def records(self) -> Iterator[Record]:
        """Yield the messages and what is none.

        Raises:
            FileError: The first line names no speaker, there is none, a stamp is no time, or a message is too long.
        """
        for line, raw in self.source.lines():
            text = self._text_of(raw)
            day_changed = _DAY_CHANGED.fullmatch(text)
            if day_changed:
                self.day = _read_day(day_changed["text"]) or self.day
            elif text or self.style is not None:  # blank lines before the first message are passed over
                yield from self._read_line(line, text)
        yield from self._end_message()
        if self.style is None:
            raise FileError(self.source.name, 0, "the file is empty")

    def _text_of(self, raw: str) -> str:
        """Return a line without marks, but for the one that says that the messenger wrote this line of a message."""
        text = bare(raw)
        is_messengers = raw.strip().startswith(whatsapp.MARK)
        if is_messengers and self.draft is not None and STAMP.match(text) is None:
            return raw.rstrip()
        return text

    def _read_line(self, line: int, text: str) -> Iterator[Record]:
        """Yield what a line ends: the message before, where another one or a notice begins. Other lines go on with that message.

        In logs of one line a message, a line that names no speaker is not understood; elsewhere it is passed over after a notice. A guess
        about the order of day and month is yielded first.

        Raises:
            FileError: No line named a speaker yet, and this one does not; or the message is too long.
        """
        start = self._start(line, text)
        if self.guess is not None:
            yield self.guess
            self.guess = None
        if isinstance(start, _Draft):
            yield from self._end_message()
            self.draft = start
        elif isinstance(start, Skipped):
            yield from self._end_message()
            yield start
        elif self.one_line and text:
            yield from self._end_message()
            yield Skipped("line not understood", line, text=text)
        elif self.draft is not None:
            self.draft.lines.append(text)
            self.draft.size += len(text) + 1
            self.source.check_message(self.draft.line, self.draft.size)
        elif self.style is None:
            raise FileError(
                self.source.name, line, "no speaker; expected 'Name: text', '<nick> text' or a time before one"
            )

    def _end_message(self) -> Iterator[Record]:
        if self.draft is not None:
            yield self.draft.record()
            self.draft = None

    def _start(self, line: int, text: str) -> _Draft | Skipped | None:
        """Return the message or notice that begins on this line; None when the line goes on with the one before.

        The first line that names a speaker sets the style for all.
        """
        self.style = self.style or style_of(text)
        if self.style == "stamped":
            return self._stamped(line, text)
        if self.style == "nick":
            self.one_line = True
            match = _NICK.fullmatch(text)
            return _message_of(line, match) if match else _action_or_notice(line, text)
        match = _match_name(text)
        return _message_of(line, match) if match else None

    def _stamped(self, line: int, text: str) -> _Draft | Skipped | None:
        """Return what begins with a time, with that time; None for a line that goes on with the one before.

        Without a day of its own, the day is that of the last line such as "--- Day changed …"; None where there was none.

        Raises:
            FileError: There is no such time.
        """
        match = STAMP.match(text)
        if match is None:
            return _action_or_notice(line, text) if self.one_line else None
        form = (match["date"] is not None, match["open"])
        self.stamp_form = self.stamp_form or form
        if form != self.stamp_form:
            return None  # a time inside a text, not a stamp like the others
        moment = self._moment_of(line, match)
        after_stamp = text[match.end() :].strip("\u200e").strip(" \t\u202f\xa0")
        start = self._after_stamp(line, match, after_stamp)
        if isinstance(start, _Draft):
            start.clock = moment.clock
            start.day = moment.day or self.day
        return start

    def _moment_of(self, line: int, match: re.Match[str]) -> Moment:
        """Read a stamp; at the first with a date, find out the order of day and month for all, and keep a guess to be reported.

        Raises:
            FileError: There is no such time.
        """
        order: DateOrder | None = None
        if self.day_first is None and match["date"]:
            order = date_order(self.source, match)
            self.day_first = order.day_first
        try:
            moment = _moment(match, day_first=bool(self.day_first))
        except ValueError as error:
            raise FileError(self.source.name, line, f"{match.group().strip()!r} is no time: {error}") from None
        if order and order.guessed_because and moment.day:
            self.guess = _guess(line, match["date"], moment.day, order)
        return moment

    def _after_stamp(self, line: int, match: re.Match[str], text: str) -> _Draft | Skipped:
        """Return what stands behind a time: a notice or an action, a message in IRC's form, or one of a messenger."""
        action_or_notice = _action_or_notice(line, text)
        if action_or_notice:
            return action_or_notice
        nick = _NICK.fullmatch(text)
        if nick:
            self.one_line = True
            return _message_of(line, nick)
        return self._messenger(line, match, text)

    def _messenger(self, line: int, match: re.Match[str], text: str) -> _Draft | Skipped:
        """Return the message of a line "Name: text" after its time. Other lines are skipped: in a messenger's export as its notices.

        So is, in an export, a line with quotation marks before the colon ('Ann changed the subject to "Ferries: late"'). A ``~`` before a
        name, which marks who is not in the address book, is left out.
        """
        is_export = self._is_messengers_stamp(match)
        speech = _AFTER_STAMP.fullmatch(text)
        if speech and not (is_export and _QUOTED.search(speech["speaker"])):
            speaker = speech["speaker"].lstrip("~\u202f\xa0 ").strip() or speech["speaker"].strip()
            messenger = ""
            if is_export:
                messenger = "marked" if match["open"] else "plain"
            return _Draft(line, speaker, [speech["text"] or ""], messenger=messenger)
        if is_export:
            return Skipped("notice", line)
        return Skipped("line not understood", line, text=text)

    def _is_messengers_stamp(self, match: re.Match[str]) -> bool:
        """Return whether a stamp has the form of a messenger's export: WhatsApp writes brackets on iOS, a dash elsewhere."""
        if not match["date"]:
            return False
        stamp = match.group()
        if match["open"]:  # some languages have no comma after the date
            return match["open"] == "[" and ("," in stamp or self.is_marked)
        return stamp.rstrip()[-1:] in ("-", "–")


def _message_of(line: int, match: re.Match[str]) -> _Draft:
    return _Draft(line, match["speaker"].strip(), [match["text"] or ""])


def _guess(line: int, text: str, day: date, order: DateOrder) -> Guess:
    form, other_option = ("day first", "month-first") if order.day_first else ("month first", "day-first")
    return Guess(
        f"Dates are read {form} ({text} as {day}), which is a guess: {order.guessed_because}.",
        line,
        f"If that is wrong: --dates {other_option}",
        question="dates",
        answer="day-first" if order.day_first else "month-first",
        example=text,
    )


def _action_or_notice(line: int, text: str) -> _Draft | Skipped | None:
    """Return one of IRC's actions ("* nick waves") and notices (joins, parts, topics); None for another line."""
    if _NOTICE.match(text):
        return Skipped("notice", line)
    match = _ACTION.fullmatch(text)
    if match is None:
        return None
    return _Draft(line, match["speaker"], [match["text"]], action=True)


def _match_name(text: str) -> re.Match[str] | None:
    """Match "Name: text"; a name of more words is a part of a sentence."""
    match = _NAMED.fullmatch(text)
    if match is None or len(match["speaker"].split()) > MAX_WORDS:
        return None
    return match


def _read_day(text: str) -> date | None:
    """Return the day of a line such as "--- Day changed …"; None where it has none."""
    for form in ("%a %b %d %Y", "%a %b %d %H:%M:%S %Y", "%Y-%m-%d"):
        try:
            return datetime.strptime(text.strip(), form).date()
        except ValueError:
            continue
    return None

"""Logs of WeeChat (tab-separated: time, prefix, text) and of HexChat and XChat ("Mar 03 10:28:41 <nick>", tab, text).

Read: https://github.com/misterhat/weechat-log (test.js), the sample in plaso's parser of XChat's logs, and public logs of HexChat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from agents.transcripts.records import Record, Skipped, SourceMessage, TranscriptError
from agents.transcripts.source import Source

_WEECHAT = re.compile(r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\t(?P<prefix>[^\t]{0,80})\t(?P<text>.*)")
_NOTICES = frozenset({"", "-->", "<--", "--", "=!=", "---", "<->"})
_BEGIN = re.compile(r"\*\*\*\* (?:BEGIN|ENDING) LOGGING AT (?P<when>\S+ \S+ +\d+ [\d:]{8} (?P<year>\d{4}))\s*")
_HEXCHAT = re.compile(
    r"(?P<time>[^\W\d_]{3} {1,2}\d{1,2} \d\d:\d\d:\d\d) (?P<prefix><[^<>]{1,64}>|\*|-{1,3}[^\s-]*-*>?|<-+)[ \t]\s*(?P<text>.*)"
)
_EVENT = re.compile(
    r"(?:now talking|you (?:are|have|were)\b|disconnected|topic for|users for|ping reply|\S+ (?:\([^()]*\) )?(?:has (?:joined|left|quit"
    r"|changed)|is now known as|sets? (?:mode|ban|a)\b|gives?\b|removes?\b|have been|\[[^\]]*@)|.{0,200}\bhas (?:kicked|joined|left|quit))",
    re.IGNORECASE,
)


def is_weechat(head: str) -> bool:
    """Whether most of the first lines are of WeeChat."""
    return _mostly(_WEECHAT, head)


def is_hexchat(head: str) -> bool:
    """Whether most of the first lines are of HexChat, beside those that say when a log begins."""
    return _mostly(_HEXCHAT, "\n".join(line for line in head.split("\n") if not _BEGIN.fullmatch(line.strip())))


def _mostly(pattern: re.Pattern[str], head: str) -> bool:
    lines = [line.rstrip("\r") for line in head.split("\n") if line.strip()][:60]
    return bool(lines) and 2 * sum(pattern.fullmatch(line) is not None for line in lines) > len(lines)


def read_weechat(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read WeeChat's log: the prefix is the nick, an arrow or dashes for what the server said, or ``*`` before an action."""
    for line, text in source.lines():
        match = _WEECHAT.fullmatch(text)
        if match is None:
            if text.strip():
                yield Skipped("line not understood", line, text=text)
            continue
        prefix = match["prefix"].strip()
        moment = _moment(source, line, match["time"], "%Y-%m-%d %H:%M:%S")
        yield Skipped("notice", line) if prefix in _NOTICES else _said(line, prefix, match["text"], moment)


def read_hexchat(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read HexChat's log. The year of a time is that of the last "BEGIN LOGGING AT"; without one there is no time."""
    year, month = 0, 0
    for line, text in source.lines():
        if begin := _BEGIN.fullmatch(text.strip()):
            year, month = int(begin["year"]), 0
            yield Skipped("notice", line)
        elif match := _HEXCHAT.fullmatch(text.rstrip()):
            prefix = match["prefix"]
            moment = _moment(source, line, f"{year or 2000} {match['time']}", "%Y %b %d %H:%M:%S")
            if year and moment.month < month:  # the log went on into the next year
                year += 1
                moment = _moment(source, line, f"{year} {match['time']}", "%Y %b %d %H:%M:%S")
            month = moment.month
            if prefix[0] == "<" and prefix[-1] == ">":
                yield _said(line, prefix[1:-1], match["text"], moment if year else None)
            elif prefix == "*" and not _EVENT.match(match["text"]):
                yield _said(line, "*", match["text"], moment if year else None)
            else:
                yield Skipped("notice", line)
        elif text.strip():
            yield Skipped("line not understood", line, text=text)


def _moment(source: Source, line: int, text: str, form: str) -> datetime:
    try:
        return datetime.strptime(text, form)
    except ValueError:
        raise TranscriptError(source.name, line, f"{text[:60]!r} is no time") from None


def _said(line: int, prefix: str, text: str, moment: datetime | None) -> Record:
    """A message by the nick before it, or an action, whose text begins with the nick."""
    action = prefix == "*"
    speaker, _, rest = text.partition(" ") if action else (prefix.lstrip("@+%&~!"), "", text)
    if not rest.strip() or not speaker:
        return Skipped("empty message", line)
    return SourceMessage(
        speaker=speaker, text=rest.strip(), line=line, sent_at=moment, payload={"action": True} if action else {}
    )

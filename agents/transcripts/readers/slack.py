"""Slack's export: the zip with ``users.json`` and a folder of day files for each channel, or one such day file.

Read: https://github.com/omgitsjessie/slack-exports and https://github.com/yangdanny97/slack-export-extraction (folders and files), and the
schemas at https://gist.github.com/viccro/734581d3c9777f9733d1f665279e5b54.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from agents.transcripts.json_input import MAX_DEPTH, Row, json_values, parse
from agents.transcripts.records import ChannelInfo, Record, Skipped, SourceMessage, TranscriptError
from agents.transcripts.source import Source

SPEECH = (
    *("", "bot_message", "me_message", "thread_broadcast", "file_share", "file_comment"),
    *("reply_broadcast", "slackbot_response"),
)
_LINK = re.compile(r"<([@#!]?)([^<>|]{0,2000})(?:\|([^<>]{0,2000}))?>")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LISTS = {"channels.json": "public", "groups.json": "private", "mpims.json": "private", "dms.json": "dm"}
Names = Mapping[str, str]


def is_slack(value: dict[str, Any]) -> bool:
    """Whether it is a message of a day file."""
    return isinstance(value.get("ts"), str) and (
        value.get("type") == "message" or bool({"user", "bot_id", "subtype"} & set(value))
    )


def is_slack_zip(names: list[str]) -> bool:
    """Whether a zip with these files is an export."""
    paths = [PurePosixPath(name) for name in names]
    return any(path.name in ("users.json", "channels.json") for path in paths) and any(
        path.suffix == ".json" and _DAY.fullmatch(path.stem) for path in paths
    )


def read_slack(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read the zip, or a day file, whose speakers have the names that stand in it.

    Replies in a thread have the thread's first message as parent; what tells of an edit or a deletion is a notice.
    """
    if source.is_zip:
        yield from _read_zip(source)
        return
    rows = [Row(value, path=source.name, line=line, what="a message") for line, value in json_values(source)]
    if not rows:
        raise TranscriptError(source.name, 0, "the file holds no message")
    yield from (_entry(row, {}, "") for row in rows)


def _read_zip(source: Source) -> Iterator[Record]:
    days: dict[str, list[str]] = {}
    lists: dict[str, list[Row]] = {}
    for name in sorted(source.members()):
        path = PurePosixPath(name)
        if "__MACOSX" in path.parts or path.suffix != ".json":
            continue
        if path.name in _LISTS or path.name == "users.json":
            lists[path.name] = _rows(source, name)
        elif _DAY.fullmatch(path.stem):
            days.setdefault(path.parent.name, []).append(name)
    if not days:
        raise TranscriptError(
            source.name, 0, "a zip without day files such as general/2026-01-31.json: no Slack export"
        )
    names = _names(lists.pop("users.json", []))
    infos = {}
    for file, kind in _LISTS.items():
        for row in lists.get(file, []):
            purposes = (row.child(row.object(key), f"{key!r}").text("value") for key in ("topic", "purpose"))
            infos[row.name("name") or row.name("id")] = kind, next(filter(None, purposes), "")
    for channel, files in days.items():
        kind, topic = infos.get(channel, ("", ""))
        yield ChannelInfo(channel=channel, name=channel, kind=kind, topic=topic)
        yield from (_entry(row, names, channel) for name in files for row in _rows(source, name))


def _rows(source: Source, name: str) -> list[Row]:
    path = f"{source.name}, {name}"
    values = parse(source.member(name), path=path, line=1)
    return [
        Row(value, path=path, line=1, what="an entry") for value in (values if isinstance(values, list) else [values])
    ]


def _names(users: Iterable[Row]) -> Names:
    """What users and their bots are called, by id."""
    names: dict[str, str] = {}
    for user in users:
        profile = user.child(user.object("profile"), "'profile'")
        name = _called(profile) or _called(user) or user.name("id")
        names |= {key: name for key in (user.name("id"), profile.name("bot_id")) if key}
    return names


def _called(row: Row) -> str:
    return next(filter(None, (row.name(key).strip() for key in ("display_name", "real_name", "name"))), "")


def _entry(row: Row, names: Names, channel: str) -> Record:
    subtype = row.text("subtype")
    if subtype in SPEECH and row.text("type") in ("", "message"):
        return _message(row, names, channel)
    return Skipped("deleted message" if subtype == "tombstone" else f"notice {subtype or row.text('type')}", row.line)


def _message(row: Row, names: Names, channel: str) -> Record:
    user, bot = row.name("user"), row.name("bot_id")
    profiles = (row.child(row.object(key), f"{key!r}") for key in ("user_profile", "bot_profile"))
    known = (row.name("username"), names.get(user, ""), names.get(bot, ""), *map(_called, profiles), user, bot)
    speaker = next((name.strip() for name in known if name.strip()), "")
    text = plain(
        row.text("text") or "\n".join(_blocks(row.value.get("blocks"))) or "\n".join(_fallbacks(row)), names
    ).strip()
    files = len(row.list("files")) if row.has("files") else 0
    if not text:
        return Skipped("file" if files else "empty message", row.line)
    if not speaker:
        row.fail("a message has a text, but neither 'user' nor 'bot_id' nor 'username'")
    thread, at = row.name("thread_ts"), row.name("ts")
    return SourceMessage(
        speaker=speaker,
        role=user or bot,
        text=text,
        line=row.line,
        source_id=at,
        sent_at=row.time("ts"),
        parent_source_id=thread if thread != at else "",
        channel=channel,
        payload=({"action": True} if row.text("subtype") == "me_message" else {})
        | ({"bot": True} if bot else {})
        | ({"edited": True} if row.has("edited") else {})
        | ({"files": files} if files else {}),
    )


def _blocks(value: Any, depth: int = 0) -> Iterator[str]:
    """The texts of blocks, without those of buttons."""
    if isinstance(value, list) and depth < MAX_DEPTH:
        for one in value:
            yield from _blocks(one, depth + 1)
    elif isinstance(value, dict) and value.get("type") not in ("actions", "input", "image"):
        if isinstance(text := value.get("text"), str):
            yield text
        else:
            yield from _blocks([text, value.get("elements"), value.get("fields")], depth + 1)


def _fallbacks(row: Row) -> Iterator[str]:
    """What a message without a text of its own says in its attachments."""
    for value in row.list("attachments") if row.has("attachments") else []:
        one = row.child(value, "an attachment")
        with suppress(StopIteration):
            yield next(filter(None, (one.text(key) for key in ("text", "fallback", "title"))))


def plain(text: str, names: Names) -> str:
    """Slack's text without its markup for mentions, channels and links."""

    def shown(match: re.Match[str]) -> str:
        sign, target, label = match[1], match[2], match[3] or ""
        if sign == "@":
            return f"@{names.get(target) or label or target}"
        if sign == "#":
            return f"#{label or target}"
        if sign == "!":
            return label or f"@{target.partition('^')[0]}"
        return label if label and label in target else f"{label} ({target})" if label else target

    return html.unescape(_LINK.sub(shown, text))

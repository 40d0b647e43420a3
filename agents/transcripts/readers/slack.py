"""Slack's export: the zip with ``users.json`` and a folder of day files for each channel, or one such day file.

Read: https://github.com/omgitsjessie/slack-exports and https://github.com/yangdanny97/slack-export-extraction (folders and files), and the
schemas at https://gist.github.com/viccro/734581d3c9777f9733d1f665279e5b54.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from agents.kit.files.json_input import MAX_DEPTH, Row, json_values, parse
from agents.kit.files.source import FileError, Source
from agents.transcripts.records import ChannelInfo, Record, Skipped, SourceMessage

SPEECH = frozenset(
    {
        "",
        "bot_message",
        "me_message",
        "thread_broadcast",
        "file_share",
        "file_comment",
        "reply_broadcast",
        "slackbot_response",
    }
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
    """Read the zip, or a day file; beside one that lies in its unpacked export the names and the channel are found.

    Replies in a thread have the thread's first message as parent. An edited message has its last text; a deleted one is skipped.
    """
    if source.is_zip:
        yield from _read_zip(source)
        return
    names, channel = _beside(source)
    rows = [Row(value, path=source.name, line=line, what="a message") for line, value in json_values(source)]
    if not rows:
        raise FileError(source.name, 0, "the file holds no message")
    yield from _messages(rows, names, channel)


def _beside(source: Source) -> tuple[Names, str]:
    """The names and the channel of a day file that lies in the folder of its channel; empty for an upload."""
    folder = Path(source.name).resolve().parent
    users = folder.parent / "users.json"
    if source.name != str(source.path) or not _DAY.fullmatch(source.stem) or not users.is_file():
        return {}, ""
    listed = Source(users)
    return _names([Row(value, path=listed.name, line=line) for line, value in json_values(listed)]), folder.name


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
        raise FileError(source.name, 0, "a zip without day files such as general/2026-01-31.json: no Slack export")
    names = _names(lists.pop("users.json", []))
    infos = {}
    for file, kind in _LISTS.items():
        for row in lists.get(file, []):
            purposes = (row.child(row.object(key), f"{key!r}").text("value") for key in ("topic", "purpose"))
            infos[row.name("name") or row.name("id")] = kind, next(filter(None, purposes), "")
    for channel, files in days.items():
        kind, topic = infos.get(channel, ("", ""))
        yield ChannelInfo(channel=channel, name=channel, kind=kind, topic=topic)
        yield from _messages([row for name in files for row in _rows(source, name)], names, channel)


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


def _messages(rows: list[Row], names: Names, channel: str) -> Iterator[Record]:
    """The messages of a channel; entries that tell of an edit or a deletion are applied to those they are about."""
    there = {row.name("ts") for row in rows if row.text("subtype") in SPEECH}
    deleted = {row.name("deleted_ts") for row in rows if row.text("subtype") == "message_deleted"}
    edits = {}
    for row in rows:
        if row.text("subtype") == "message_changed":
            edited = row.child(row.object("message"), "'message'")
            edits[edited.name("ts")] = edited
    for row in rows:
        at, subtype = row.name("ts"), row.text("subtype")
        changed = row.child(row.object("message"), "'message'").name("ts") if subtype == "message_changed" else ""
        if changed and changed not in there | deleted:
            there.add(changed)  # the message itself is in another export: its last text is here
            yield _message(edits[changed], names, channel)
        elif subtype in SPEECH and at in deleted:
            yield Skipped("deleted message", row.line)
        elif subtype in SPEECH and row.text("type") in ("", "message"):
            yield _message(edits.get(at) or row, names, channel)
        else:
            yield Skipped(
                "deleted message" if subtype == "tombstone" else f"notice {subtype or row.text('type')}", row.line
            )


def _message(row: Row, names: Names, channel: str) -> Record:
    user, bot = row.name("user"), row.name("bot_id")
    profiles = (row.child(row.object(key), f"{key!r}") for key in ("user_profile", "bot_profile"))
    known = (row.name("username"), names.get(user, ""), names.get(bot, ""), *map(_called, profiles), user, bot)
    speaker = next((name.strip() for name in known if name.strip()), "")
    text = plain(row.text("text") or "\n".join(_blocks(row)) or "\n".join(_fallbacks(row)), names).strip()
    files = len(row.list("files"))
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


def _blocks(row: Row) -> Iterator[str]:
    """The texts of a message's blocks, of rich text with its mentions and links as Slack marks them."""
    for value in row.list("blocks"):
        said = _marked(value, 0).strip()
        if said:
            yield said


def _marked(value: Any, depth: int) -> str:
    if isinstance(value, list):
        return "".join(_marked(one, depth + 1) for one in value)
    if not isinstance(value, dict) or depth > MAX_DEPTH:
        return ""
    kind = value.get("type")
    if isinstance(target := value.get({"user": "user_id", "channel": "channel_id"}.get(str(kind), "")), str):
        return f"<{'@' if kind == 'user' else '#'}{target}>"
    if kind in ("actions", "input", "image"):
        return ""
    text = value.get("text")
    if kind == "emoji":
        return f":{value.get('name')}:"
    if kind == "broadcast":
        return f"<!{value.get('range')}>"
    said = text if isinstance(text, str) else _marked(text, depth + 1)
    if isinstance(text, str) and kind != "mrkdwn":  # which alone has Slack's markup
        said = html.escape(said, quote=False)
    inner = said or _marked(value.get("elements") or value.get("fields"), depth + 1)
    if kind == "link":
        return inner or html.escape(str(value.get("url") or ""), quote=False)
    return inner + "\n" * (str(kind).startswith("rich_text_") or kind in ("mrkdwn", "plain_text"))


def _fallbacks(row: Row) -> Iterator[str]:
    """What a message without a text of its own says in its attachments."""
    for value in row.list("attachments"):
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

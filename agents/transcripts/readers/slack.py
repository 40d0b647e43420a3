"""Slack's export: the zip with ``users.json`` and a folder of day files for each channel, or one such day file.

Read: https://github.com/omgitsjessie/slack-exports and https://github.com/yangdanny97/slack-export-extraction (folders and files), and the
schemas at https://gist.github.com/viccro/734581d3c9777f9733d1f665279e5b54.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
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
    """Return whether it is a message of a day file."""
    if not isinstance(value.get("ts"), str):
        return False
    return value.get("type") == "message" or bool({"user", "bot_id", "subtype"} & set(value))


def is_slack_zip(names: list[str]) -> bool:
    """Return whether a zip with these files is an export."""
    paths = [PurePosixPath(name) for name in names]
    has_lists = any(path.name in ("users.json", "channels.json") for path in paths)
    has_days = any(path.suffix == ".json" and _DAY.fullmatch(path.stem) for path in paths)
    return has_lists and has_days


def read_slack(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read the zip, or a day file; beside one that lies in its unpacked export the names and the channel are found.

    Replies in a thread have the thread's first message as parent. An edited message has its last text; a deleted one is skipped.

    Raises:
        FileError: It holds no message or no day file, or is malformed.
    """
    if source.is_zip:
        yield from _read_zip(source)
        return
    rows = [Row(value, path=source.name, line=line, what="a message") for line, value in json_values(source)]
    if not rows:
        raise FileError(source.name, 0, "the file holds no message")
    folder = _export_folder(source)
    if folder is None:
        yield from _messages(rows, {}, "")
        return
    users = Source(folder.parent / "users.json")
    names = _names([Row(value, path=users.name, line=line) for line, value in json_values(users)])
    yield from _messages(rows, names, folder.name)


def _export_folder(source: Source) -> Path | None:
    """Return the folder of a day file in an unpacked export, which has the name of its channel; None for other files and uploads."""
    folder = Path(source.name).resolve().parent
    is_upload = source.name != str(source.path)
    if is_upload or not _DAY.fullmatch(source.stem) or not (folder.parent / "users.json").is_file():
        return None
    return folder


def _read_zip(source: Source) -> Iterator[Record]:
    """Yield each channel of an export with its messages, day by day. Files that are no day files and no lists are passed over.

    Raises:
        FileError: There is no day file, or one is malformed.
    """
    days_of: dict[str, list[str]] = {}  # channel to its day files
    lists: dict[str, list[Row]] = {}  # users.json and the lists of channels
    for name in sorted(source.members()):
        path = PurePosixPath(name)
        if "__MACOSX" in path.parts or path.suffix != ".json":
            continue
        if path.name in _LISTS or path.name == "users.json":
            lists[path.name] = _rows(source, name)
        elif _DAY.fullmatch(path.stem):
            days_of.setdefault(path.parent.name, []).append(name)
    if not days_of:
        raise FileError(source.name, 0, "a zip without day files such as general/2026-01-31.json: no Slack export")
    names = _names(lists.get("users.json", []))
    infos = _channel_infos(lists)
    for channel, files in days_of.items():
        yield infos.get(channel) or ChannelInfo(channel=channel, name=channel)
        rows: list[Row] = []
        for name in files:
            rows += _rows(source, name)
        yield from _messages(rows, names, channel)


def _channel_infos(lists: Mapping[str, list[Row]]) -> dict[str, ChannelInfo]:
    """Return what the lists of an export say of its channels: kind, and topic or purpose."""
    infos: dict[str, ChannelInfo] = {}
    for file, kind in _LISTS.items():
        for row in lists.get(file, []):
            channel = row.name("name") or row.name("id")
            topic = row.child(row.object("topic"), "'topic'").text("value")
            purpose = row.child(row.object("purpose"), "'purpose'").text("value")
            infos[channel] = ChannelInfo(channel=channel, name=channel, kind=kind, topic=topic or purpose)
    return infos


def _rows(source: Source, name: str) -> list[Row]:
    path = f"{source.name}, {name}"
    values = parse(source.member(name), path=path, line=1)
    if not isinstance(values, list):
        values = [values]
    return [Row(value, path=path, line=1, what="an entry") for value in values]


def _names(users: Iterable[Row]) -> Names:
    """Return what users and their bots are called, by id: the display name, else the real name, else the user name or the id."""
    names: dict[str, str] = {}
    for user in users:
        profile = user.child(user.object("profile"), "'profile'")
        name = _called(profile) or _called(user) or user.name("id")
        for user_id in (user.name("id"), profile.name("bot_id")):
            if user_id:
                names[user_id] = name
    return names


def _called(row: Row) -> str:
    """Return what a user or a profile is called; empty where it does not say."""
    for key in ("display_name", "real_name", "name"):
        name = row.name(key).strip()
        if name:
            return name
    return ""


def _messages(rows: list[Row], names: Names, channel: str) -> Iterator[Record]:
    """Yield the messages of a channel; entries that tell of an edit or a deletion are applied to those they are about.

    An edit of a message that is not in this export is yielded as that message, once; other edits are skipped as notices.

    Args:
        rows: All entries, in their order.
        names: What users are called, by id.
        channel: The channel's name; empty: not known.
    """
    stamps = {row.name("ts") for row in rows if row.text("subtype") in SPEECH}
    deleted = {row.name("deleted_ts") for row in rows if row.text("subtype") == "message_deleted"}
    stamps |= deleted
    edited: dict[str, Row] = {}  # by time stamp, with the last text
    for row in rows:
        if row.text("subtype") == "message_changed":
            message = row.child(row.object("message"), "'message'")
            edited[message.name("ts")] = message
    for row in rows:
        stamp = row.name("ts")
        subtype = row.text("subtype")
        if subtype == "message_changed":
            changed = row.child(row.object("message"), "'message'").name("ts")
            if changed and changed not in stamps:
                stamps.add(changed)  # the message itself is in another export: its last text is here
                yield _message(edited[changed], names, channel)
                continue
        if subtype in SPEECH and stamp in deleted:
            yield Skipped("deleted message", row.line)
        elif subtype in SPEECH and row.text("type") in ("", "message"):
            yield _message(edited.get(stamp) or row, names, channel)
        elif subtype == "tombstone":
            yield Skipped("deleted message", row.line)
        else:
            yield Skipped(f"notice {subtype or row.text('type')}", row.line)


def _message(row: Row, names: Names, channel: str) -> Record:
    """Return a message without Slack's markup, or why it is none; its text is that of its blocks or attachments where it has no own.

    Raises:
        FileError: It has a text and no author.
    """
    marked_up = row.text("text") or "\n".join(_blocks(row)) or "\n".join(_fallbacks(row))
    text = plain(marked_up, names).strip()
    files = len(row.list("files"))
    if not text:
        return Skipped("file" if files else "empty message", row.line)
    speaker = _speaker(row, names)
    if not speaker:
        row.fail("a message has a text, but neither 'user' nor 'bot_id' nor 'username'")
    payload: dict[str, Any] = {}
    if row.text("subtype") == "me_message":
        payload["action"] = True
    if row.name("bot_id"):
        payload["bot"] = True
    if row.has("edited"):
        payload["edited"] = True
    if files:
        payload["files"] = files
    stamp = row.name("ts")
    thread = row.name("thread_ts")
    return SourceMessage(
        speaker=speaker,
        role=row.name("user") or row.name("bot_id"),
        text=text,
        line=row.line,
        source_id=stamp,
        sent_at=row.time("ts"),
        parent_source_id=thread if thread != stamp else "",
        channel=channel,
        payload=payload,
    )


def _speaker(row: Row, names: Names) -> str:
    """Return what the author of a message is called, at least their id; empty where it names none.

    First comes the name given in the message, then that in the list of users, then that of the profile beside the message.
    """
    user = row.name("user")
    bot = row.name("bot_id")
    names_in_order = [row.name("username"), names.get(user, ""), names.get(bot, "")]
    for key in ("user_profile", "bot_profile"):
        names_in_order.append(_called(row.child(row.object(key), f"{key!r}")))
    for name in (*names_in_order, user, bot):
        if name.strip():
            return name.strip()
    return ""


def _blocks(row: Row) -> Iterator[str]:
    """Yield the texts of a message's blocks, of rich text with its mentions and links as Slack marks them."""
    for block in row.list("blocks"):
        text = _marked_up(block, depth=0).strip()
        if text:
            yield text


def _marked_up(value: Any, depth: int) -> str:
    """Return the text of a block or an element of one, with Slack's markup; empty for pictures, buttons and what is nested too deep.

    Blocks and lines of rich text end with a line break.
    """
    if isinstance(value, list):
        return "".join(_marked_up(element, depth + 1) for element in value)
    if not isinstance(value, dict) or depth > MAX_DEPTH:
        return ""
    kind = value.get("type")
    if kind == "user" and isinstance(value.get("user_id"), str):
        return f"<@{value['user_id']}>"
    if kind == "channel" and isinstance(value.get("channel_id"), str):
        return f"<#{value['channel_id']}>"
    if kind in ("actions", "input", "image"):
        return ""
    if kind == "emoji":
        return f":{value.get('name')}:"
    if kind == "broadcast":
        return f"<!{value.get('range')}>"
    text = _own_text(value, depth) or _marked_up(value.get("elements") or value.get("fields"), depth + 1)
    if kind == "link":
        return text or html.escape(str(value.get("url") or ""), quote=False)
    ends_line = str(kind).startswith("rich_text_") or kind in ("mrkdwn", "plain_text")
    return f"{text}\n" if ends_line else text


def _own_text(value: dict[str, Any], depth: int) -> str:
    """Return the text of an element, escaped but for ``mrkdwn``, which alone has Slack's markup."""
    text = value.get("text")
    if not isinstance(text, str):
        return _marked_up(text, depth + 1)
    return text if value.get("type") == "mrkdwn" else html.escape(text, quote=False)


def _fallbacks(row: Row) -> Iterator[str]:
    """Yield what a message without a text of its own says in its attachments."""
    for value in row.list("attachments"):
        attachment = row.child(value, "an attachment")
        text = attachment.text("text") or attachment.text("fallback") or attachment.text("title")
        if text:
            yield text


def plain(text: str, names: Names) -> str:
    """Return Slack's text without its markup for mentions, channels and links, and with plain characters for ``&amp;`` and the like.

    ``<@U1>`` becomes ``@Ann``, ``<#C1|general>`` ``#general``, ``<!here>`` ``@here``, ``<https://a.example|here>``
    ``here (https://a.example)``.
    """

    def without_markup(match: re.Match[str]) -> str:
        sign, target, label = match[1], match[2], match[3] or ""
        if sign == "@":
            return f"@{names.get(target) or label or target}"
        if sign == "#":
            return f"#{label or target}"
        if sign == "!":
            return label or f"@{target.partition('^')[0]}"
        if not label:
            return target
        return label if label in target else f"{label} ({target})"

    return html.unescape(_LINK.sub(without_markup, text))

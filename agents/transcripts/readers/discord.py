"""Exports of DiscordChatExporter as JSON: one channel per file.

Read: https://github.com/Tyrrrz/DiscordChatExporter, Exporting/JsonMessageWriter.cs and Discord/Data/MessageKind.cs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents.kit.files.json_input import Row, json_values
from agents.kit.files.source import FileError, Source
from agents.transcripts.records import ChannelInfo, Record, Skipped, SourceMessage

_SPEECH = frozenset({"Default", "Reply", "ChatInputCommand", "ContextMenuCommand", "20", "23"})  # answers of bots, too
_KINDS = {"DirectTextChat": "dm", "DirectGroupTextChat": "private"}


def is_discord(value: dict[str, Any]) -> bool:
    """Return whether it is an export of a channel."""
    return all(isinstance(value.get(key), dict) for key in ("guild", "channel")) and isinstance(
        value.get("messages"), list
    )


def read_discord(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read a channel, oldest message first. Joins, pins and other notices are skipped.

    A speaker is known by nickname, or by user name as role.

    Raises:
        FileError: The file holds no channel, or is malformed.
    """
    empty = True
    for line, value in json_values(source):
        empty = False
        row = Row(value, path=source.name, line=line, what="an export")
        guild, about = (row.child(row.object(key), f"{key!r}") for key in ("guild", "channel"))
        name = about.name("name")
        channel = " ".join(filter(None, (guild.name("name"), name))) or about.name("id")
        kind = _KINDS.get(about.text("type"), "")
        yield ChannelInfo(channel=channel, name=channel, kind=kind, topic=about.text("topic"), line=line)
        rows = [
            row.child(message, f"message {position}")
            for position, message in enumerate(row.list("messages", required=True), start=1)
        ]
        if rows and (rows[0].name("timestamp") > rows[-1].name("timestamp")):
            rows.reverse()  # exported with the newest first; its times are ISO 8601 in one zone
        for message in rows:
            yield _message(message, channel)
    if empty:
        raise FileError(source.name, 0, "the file holds no channel")


def _message(row: Row, channel: str) -> Record:
    """Return a message, or why it is none; only a reply has a parent.

    Raises:
        FileError: It has a text and no author with a name, or is malformed.
    """
    kind = row.name("type")
    if kind and kind not in _SPEECH:
        return Skipped(f"notice {kind}", row.line)
    author = row.child(row.object("author"), "'author'")
    is_bot = author.flag("isBot")
    text = row.text("content").strip()
    if not text and is_bot:  # a bot may say all it says in an embed
        text = _text_of_embeds(row)
    if not text:
        return Skipped(_why_empty(row), row.line)
    name = author.name("name")
    nickname = author.name("nickname")
    if not name and not nickname:
        row.fail(f"{row.what} has no author with a name")
    payload: dict[str, Any] = {}
    if is_bot:
        payload["bot"] = True
    files = len(row.list("attachments"))
    if files:
        payload["files"] = files
    reference = row.child(row.object("reference"), "'reference'")
    return SourceMessage(
        speaker=nickname or name,
        role=name or nickname,
        text=text,
        line=row.line,
        source_id=row.name("id"),
        sent_at=row.time("timestamp"),
        parent_source_id=reference.name("messageId") if kind == "Reply" else "",
        channel=channel,
        payload=payload,
    )


def _text_of_embeds(row: Row) -> str:
    """Return the titles and descriptions of a message's embeds, a line each."""
    texts: list[str] = []
    for value in row.list("embeds"):
        embed = row.child(value, "an embed")
        for key in ("title", "description"):
            text = embed.text(key).strip()
            if text:
                texts.append(text)
    return "\n".join(texts)


def _why_empty(row: Row) -> str:
    """Return what a message without a text holds instead, the first of these kinds; that is why it is skipped."""
    if row.value.get("forwardedMessage"):
        return "forwarded message"
    if row.value.get("stickers"):
        return "sticker"
    if row.value.get("attachments"):
        return "file"
    if row.value.get("embeds"):
        return "link"
    return "empty message"

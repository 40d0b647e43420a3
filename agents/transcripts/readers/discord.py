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
    """Read a channel. Joins, pins and other notices are skipped; a speaker is known by nickname, or by user name as role."""
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
            row.child(message, f"message {place}")
            for place, message in enumerate(row.list("messages", required=True), start=1)
        ]
        if rows and (rows[0].name("timestamp") > rows[-1].name("timestamp")):
            rows.reverse()  # exported with the newest first; its times are ISO 8601 in one zone
        for message in rows:
            yield _message(message, channel)
    if empty:
        raise FileError(source.name, 0, "the file holds no channel")


def _message(row: Row, channel: str) -> Record:
    kind, author = row.name("type"), row.child(row.object("author"), "'author'")
    if kind and kind not in _SPEECH:
        return Skipped(f"notice {kind}", row.line)
    text, embeds = row.text("content").strip(), [row.child(one, "an embed") for one in row.list("embeds")]
    if not text and author.flag("isBot"):  # a bot may say all it says in an embed
        text = "\n".join(filter(None, (one.text(key).strip() for one in embeds for key in ("title", "description"))))
    if not text:
        what = (
            ("forwardedMessage", "forwarded message"),
            ("stickers", "sticker"),
            ("attachments", "file"),
            ("embeds", "link"),
        )
        return Skipped(next((reason for key, reason in what if row.value.get(key)), "empty message"), row.line)
    reference = row.child(row.object("reference"), "'reference'")
    names = [name for name in (author.name("nickname"), author.name("name")) if name]
    if not names:
        row.fail(f"{row.what} has no author with a name")
    files = len(row.list("attachments"))
    return SourceMessage(
        speaker=names[0],
        role=names[-1],
        text=text,
        line=row.line,
        source_id=row.name("id"),
        sent_at=row.time("timestamp"),
        parent_source_id=reference.name("messageId") if kind == "Reply" else "",
        channel=channel,
        payload=({"bot": True} if author.flag("isBot") else {}) | ({"files": files} if files else {}),
    )

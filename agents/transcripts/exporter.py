"""Export a channel's messages as text, piece by piece."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC
from typing import Any

from agents.models import Channel, Message
from agents.transcripts.readers.csv_table import escape
from agents.transcripts.readers.plumbline import MESSAGE_KEYS, VERSION
from agents.transcripts.records import NotThere, OptionError

CHUNK = 2000


def export_transcript(
    *, channel: Channel, format: str = "jsonl", agent: str = "", where: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield the text of a channel's transcript, in the order of its messages.

    Args:
        channel: The channel.
        format: One of `EXPORTS`.
        agent: For ``openai``: slug of the agent whose messages are ``assistant``; may be empty when only one agent speaks.
        where: Tags (key and value) a message must have. A reply keeps its parent only when that is exported too.

    Raises:
        OptionError: Unknown format; an agent that does not speak in the channel, or none named where several do.
    """
    if format not in EXPORTS:
        raise OptionError(f"unknown format {format!r}; allowed: {', '.join(EXPORTS)}")
    if format == "openai":
        agent = _assistant(channel, agent)
    return EXPORTS[format](channel, _messages(channel, where or {}), agent)


def _assistant(channel: Channel, agent: str) -> str:
    """Return the slug of the agent whose messages are ``assistant``: the one named, or the only one that speaks.

    Raises:
        OptionError: It does not speak in the channel, or none is named where several do.
    """
    speaking = channel.messages.filter(agent__isnull=False).order_by("agent__slug")
    slugs = list(speaking.values_list("agent__slug", flat=True).distinct())
    listed = ", ".join(slugs) or "none"
    if agent and agent not in slugs:
        raise NotThere(f"agent {agent!r} says nothing in {channel.slug!r}; agents there: {listed}")
    if not agent and len(slugs) != 1:
        raise OptionError(f"whose messages are 'assistant'? Say --agent; agents in {channel.slug!r}: {listed}")
    return agent or slugs[0]


def _messages(channel: Channel, where: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield one mapping per message that has these tags, with the keys of our JSON Lines."""
    rows = (
        Message.objects.filter(channel=channel)
        .select_related("agent", "user", "parent")
        .order_by("position")
        .defer("parent__text", "parent__payload", "agent__system_prompt", "agent__sample_lines")
    )
    for row in rows.iterator(chunk_size=CHUNK):
        if _has_tags(row, where):
            yield _message(row, channel, where)


def _has_tags(row: Message, where: Mapping[str, str]) -> bool:
    return row.tags is not None and all(row.tags.get(key) == value for key, value in where.items())


def _message(row: Message, channel: Channel, where: Mapping[str, str]) -> dict[str, Any]:
    """Return a message with the keys of our JSON Lines: of agent, user and outsider only the one who spoke; times in UTC.

    Its parent is None unless that is exported too: in the same channel, with the tags that messages must have. Its time is None where
    none is known.
    """
    parent = row.parent
    if parent and (parent.channel_id != channel.pk or not _has_tags(parent, where)):
        parent = None
    message: dict[str, Any] = {"id": row.external_id, "channel": channel.slug, "speaker": row.author_name}
    if row.agent is not None:
        message["agent"] = row.agent.slug
    elif row.user is not None:
        message["user"] = row.user.get_username()
    else:
        message["outsider"] = row.outsider
    message["text"] = row.text
    message["sent_at"] = row.sent_at and row.sent_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    message["reply_to"] = parent.external_id if parent else None
    message["tags"] = row.tags
    message["payload"] = row.payload
    message["synthetic"] = row.synthetic
    if row.idempotency_key is not None:
        message["idempotency_key"] = row.idempotency_key
    return message


def _json(value: Any) -> str:
    """Return one line of JSON, the same for the same value; line separators that some readers split at are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")


def _ordered(value: Any) -> Any:
    """Return the value with the keys of its objects in order (databases keep them in different ones)."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return value


def _jsonl(channel: Channel, messages: Iterable[dict[str, Any]], _: str) -> Iterator[str]:
    """Yield a header line that describes the channel with its agents, then a line of JSON for each message."""
    members = channel.memberships.filter(agent__isnull=False).order_by("agent__slug")
    header = {
        "plumbline": "transcript",
        "version": VERSION,
        "channel": channel.slug,
        "name": channel.name,
        "kind": channel.kind,
        "topic": channel.topic,
        "tags": _ordered(channel.tags),
        "members": list(members.values_list("agent__slug", flat=True)),
    }
    if channel.inclusion_probability < 1:
        header["inclusion_probability"] = channel.inclusion_probability
    yield _json(header) + "\n"
    for message in messages:
        yield _json(message | {"tags": _ordered(message["tags"]), "payload": _ordered(message["payload"])}) + "\n"


def _csv(_channel: Channel, messages: Iterable[dict[str, Any]], _: str) -> Iterator[str]:
    """Yield a header line, then a line of CSV for each message: tags, payload and synthetic as JSON, nothing as an empty cell.

    Cells that a spreadsheet would run as formulas are escaped.
    """

    def line(cells: Iterable[str]) -> str:
        buffer = io.StringIO()
        csv.writer(buffer).writerow(cells)
        return buffer.getvalue()

    yield line(MESSAGE_KEYS)
    for message in messages:
        cells = message | {key: _json(_ordered(message[key])) for key in ("tags", "payload", "synthetic")}
        yield line([escape(cells.get(column) or "") for column in MESSAGE_KEYS])


def _openai(_channel: Channel, messages: Iterable[dict[str, Any]], assistant: str) -> Iterator[str]:
    """Yield, in pieces, one ``{"messages": […]}``; the other speakers are users with a `name` that OpenAI's API accepts.

    Args:
        assistant: Slug of the agent whose messages are the assistant's.
    """
    before = '{"messages": ['
    for message in messages:
        entry = {"role": "assistant", "content": message["text"]}
        if message.get("agent") != assistant:
            name = str(message.get("agent") or re.sub(r"[\s<|\\/>]+", "_", message["speaker"])[:64])
            entry = {"role": "user", "name": name, "content": message["text"]}
        yield f"{before}\n{_json(entry)}"
        before = ","
    yield "\n]}\n" if before == "," else before + "]}\n"


EXPORTS: dict[str, Callable[[Channel, Iterable[dict[str, Any]], str], Iterator[str]]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "openai": _openai,
}

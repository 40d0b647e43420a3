"""Our own JSON Lines: one message per line, exact with its header line, lenient without."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from agents.kit.files.json_input import Row, json_values, scalar_text, shown, with_nested_keys
from agents.kit.files.source import FileError, Source
from agents.kit.text.tags import TAG_KEY
from agents.transcripts.readers.conversations import channel_of, conversation_key
from agents.transcripts.records import (
    ChannelInfo,
    Guess,
    Kind,
    NotThere,
    OptionError,
    Record,
    Skipped,
    SourceMessage,
    bad_tag_key,
    guess_no_time,
    list_names,
)

VERSION = 1
HEADER_KEYS = ("plumbline", "version", "channel", "name", "kind", "topic", "tags", "members", "inclusion_probability")
MESSAGE_KEYS = (
    "id", "channel", "speaker", "agent", "user", "outsider", "text", "sent_at", "reply_to",
    "tags", "payload", "synthetic", "idempotency_key",
)  # fmt: skip
AUTHORS: tuple[Kind, ...] = ("agent", "user", "outsider")
MOST_KEYS_SHOWN = 50
UNDATED_UNTIL_WARNED = 1_000  # messages: so that it is seen in a preview, which reads some thousand


def read_jsonl(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read our JSONL.

    With a header, unknown keys and unknown agents are errors. Without one, other keys are ignored, a name that is no
    agent's is an outsider, `role` is understood (``agent``, ``stimulus``, ``system``, or a name of its own), and a usual key of
    conversations, such as ``thread_id``, counts as `channel`.

    Args:
        columns: Our field, or ``tags.NAME``, to the key that holds it; an empty key: none does.

    Raises:
        FileError: A message is malformed, or no key holds the texts.
        OptionError: A key of `columns` is in no object, or the file is an export of ours.
    """
    _check_named_keys(source, columns)
    conversation = ""
    if "channel" not in columns:
        conversation, is_guessed = conversation_key(source, taken=columns.values())
        if is_guessed:
            yield Guess(
                f"Each value of the key {conversation!r} is read as a conversation of its own.",
                1,
                "If the file is one conversation: --columns channel=",
                # The console asks about columns only of JSON with other keys than ours, for which it names some.
                question="channel" if columns else "",
                answer=conversation,
            )
    header: ChannelInfo | None = None
    keys: dict[str, None] = {}  # of messages in a file without a header
    undated = 0  # messages, until one has a time
    may_lack_times = "sent_at" not in columns
    for line, value in json_values(source):
        row = Row(value, path=source.name, line=line, what="a message")
        if "plumbline" in row.value:
            header = _header(row)
            yield header
        elif header:
            yield _strict(row, header.channel)
        else:
            keys.update(dict.fromkeys(row.value))
            may_lack_times = may_lack_times and not row.has("sent_at")
            undated += 1
            renamed = _with_our_keys(row, columns) if columns else row
            if conversation not in ("", "channel"):
                channel = channel_of(row.value.get(conversation), source)
                renamed = renamed.child({**renamed.value, "channel": channel}, row.what)
            is_empty = columns and not renamed.text("text")
            yield Skipped("empty message", line) if is_empty else _lenient(renamed)
            if may_lack_times and undated == UNDATED_UNTIL_WARNED:
                may_lack_times = False  # warned
                yield from _guess_no_time(keys, columns, where=f" of the first {undated:,} messages")
    if may_lack_times:
        yield from _guess_no_time(keys, columns)


def _guess_no_time(keys: Collection[str], columns: Mapping[str, str], where: str = "") -> Iterator[Record]:
    named = {field: key for field, key in columns.items() if key}
    read = {key: key for key in (*MESSAGE_KEYS, "role") if key in keys} | named
    yield from guess_no_time(keys, read, line=1, what="key", where=where)


def is_message(value: dict[str, Any]) -> bool:
    """Return whether it could be a message of ours, without a header before it."""
    return "text" in value and bool({"agent", "speaker", "user", "outsider", "role"} & set(value))


def check_is_no_list_in_object(source: Source) -> None:
    """Raise `FileError` where the file is one object around the list of its messages."""
    values = [value for _, value in islice(json_values(source), 2)]
    if len(values) != 1 or not isinstance(values[0], dict):
        return
    for key, inner in values[0].items():
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            raise FileError(
                source.name,
                1,
                f"one object of no format that is known; its messages seem to be the list {key!r}: save that list as a file of its own",
            )


def _check_named_keys(source: Source, columns: Mapping[str, str]) -> None:
    """Check that each of these keys, and one for the text, is in some object of the file; read it only until they were seen.

    Raises:
        FileError: No key holds the text.
        OptionError: A key is in no object, or the file is our own export.
    """
    if not columns:
        return
    needed = {key for key in columns.values() if key}
    if "text" not in columns:
        needed.add("text")
    keys: dict[str, None] = {}
    for _, value in json_values(source):
        if isinstance(value, dict):
            keys.update(dict.fromkeys(with_nested_keys(value)))
        if needed <= keys.keys():
            break
    if "plumbline" in keys:
        raise OptionError("this is an export of Plumbline, whose keys are fixed", option="--columns:")
    key_list = list_names(list(keys)[:MOST_KEYS_SHOWN]) or "none"
    for key in columns.values():
        if key and key not in keys:
            check_is_no_list_in_object(source)
            raise NotThere(f"no key {key!r}; the objects of the file have: {key_list}", option="--columns:")
    if not columns.get("text", "text") or "text" not in {*keys, *columns}:
        raise FileError(source.name, 0, f"no key for 'text' among {key_list}", advice="say which: --columns text=KEY")


def _with_our_keys(row: Row, columns: Mapping[str, str]) -> Row:
    """Return a message in which our keys hold what `columns` says.

    A speaker who is named so counts alone; where a message has none, its role counts. A key of ours that is not named there, and whose
    value is of another kind than ours, means something else and is passed over.

    Raises:
        FileError: A value that should be a text is none.
    """
    if any("." in key for key in columns.values()):
        row = row.child(with_nested_keys(row.value), row.what)
    values = {key: value for key, value in row.value.items() if _may_be_ours(key, value)}
    if "speaker" in columns:
        for author in AUTHORS:
            values.pop(author, None)
    tags = row.object("tags") if "tags" in values else {}
    for field, key in columns.items():
        if field.startswith("tags."):
            value = row.value.get(key)
            if value is not None:
                text = scalar_text(value) if isinstance(value, bool) else row.name(key)
                tags = {**tags, field.removeprefix("tags."): text}
        elif field == "sent_at":
            values[field] = row.value.get(key)
        else:
            values[field] = row.name(key) or None
    return row.child({**values, "tags": tags}, row.what)


def _may_be_ours(key: str, value: object) -> bool:
    match key:
        case "tags":
            return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
        case "payload":
            return isinstance(value, dict)
        case "synthetic":
            return isinstance(value, bool)
        case "role" | "idempotency_key":
            return isinstance(value, str)
    return True


def _header(row: Row) -> ChannelInfo:
    """Return what the first line of our export says of the channel.

    Raises:
        FileError: It has unknown keys, another version, or is malformed.
    """
    _check_keys(row, HEADER_KEYS)
    if row.value["plumbline"] != "transcript":
        row.fail(f"'plumbline' must be \"transcript\", got {shown(row.value['plumbline'])}")
    if row.value.get("version") != VERSION:
        row.fail(f"'version' must be {VERSION}, got {shown(row.value.get('version'))}")
    members = row.list("members")
    if not all(isinstance(member, str) for member in members):
        row.fail("'members' must be a list of agent slugs")
    return ChannelInfo(
        channel=row.name("channel"),
        name=row.text("name"),
        kind=row.text("kind"),
        topic=row.text("topic"),
        tags=_tags(row),
        members=tuple(members),
        inclusion_probability=_probability(row),
        line=row.line,
    )


def _probability(row: Row) -> float:
    """Return the chance with which the channel was kept where it was exported; 1 where the header says nothing of it.

    Raises:
        FileError: It is no number above 0 to 1.
    """
    value = row.value.get("inclusion_probability", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        row.fail(f"'inclusion_probability' must be a number above 0 to 1, got {shown(value)}")
    return float(value)


def _check_keys(row: Row, allowed: Collection[str]) -> None:
    for key in row.value:
        if key not in allowed:
            row.fail(f"unknown key {key!r}; allowed: {', '.join(sorted(allowed))}")


def _strict(row: Row, channel: str) -> SourceMessage:
    """Return a message of our own export: only its keys are allowed, and one author; without one, `speaker` may be an agent's name.

    Args:
        channel: Where a message goes that names none.

    Raises:
        FileError: It has unknown keys, several authors or none, or is malformed.
    """
    _check_keys(row, MESSAGE_KEYS)
    authors = [kind for kind in AUTHORS if row.has(kind)]
    if len(authors) > 1:
        row.fail(f"a message has one author, but {' and '.join(map(repr, authors))} are given")
    if not authors:
        return message_of(row, "named", row.text("speaker", required=True), channel)
    author = authors[0]
    return message_of(row, author, row.text(author, required=True), channel)


def _lenient(row: Row) -> SourceMessage:
    """Return a message of a file without our header: a speaker's name may be an agent's, and other keys are passed over.

    The speaker is the first of `outsider`, `user`, `agent`, `speaker` that is given, else the role. A role "system", "developer" or
    "stimulus" decides what kind of message it is.

    Raises:
        FileError: It has no speaker, or is malformed.
    """
    role = row.name("role")
    author_keys = [key for key in ("outsider", "user", "agent", "speaker") if row.has(key)]
    speaker = row.text(author_keys[0]).strip() if author_keys else role
    if not speaker:
        row.fail(
            "a message needs a speaker: 'agent', 'user', 'outsider', 'speaker' or 'role'",
            advice="for another key: --columns speaker=KEY",
        )
    kind: Kind = "named"
    if role in ("system", "developer"):
        kind = "system"
    elif role == "stimulus":
        kind = "stimulus"
    elif author_keys and author_keys[0] == "outsider":
        kind = "outsider"
    elif author_keys and author_keys[0] == "user":
        kind = "user"
    return message_of(row, kind, speaker, role=role)


def message_of(row: Row, kind: Kind, speaker: str, channel: str = "", role: str = "") -> SourceMessage:
    """Return the message of an object with the keys `MESSAGE_KEYS`; `channel` is where one goes that names none."""
    return SourceMessage(
        speaker=speaker,
        kind=kind,
        role=role,
        text=row.text("text", required=True),
        line=row.line,
        source_id=row.name("id"),
        sent_at=row.time("sent_at"),
        parent_source_id=row.name("reply_to"),
        channel=row.name("channel") or channel,
        tags=_tags(row),
        payload=row.object("payload"),
        synthetic=row.flag("synthetic"),
        idempotency_key=row.text("idempotency_key"),
    )


def _tags(row: Row) -> Mapping[str, str]:
    """Return an object of texts whose keys are tag keys."""
    tags = row.object("tags")
    for name, value in tags.items():
        if not isinstance(value, str):
            row.fail(f"'tags': the value of {name!r} must be a text, e.g. \"41\", got {shown(value)}")
        if not TAG_KEY.fullmatch(name):
            row.fail(f"'tags': {bad_tag_key(name)}")
    return tags

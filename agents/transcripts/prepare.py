"""From what a reader yields to what can be stored: cleaned, checked, with author, channel and identity."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from agents.transcripts.channels import Target, Targets
from agents.transcripts.clean import Cleaner
from agents.transcripts.records import ChannelInfo, Record, Skipped, SourceMessage, TranscriptError
from agents.transcripts.speakers import NAME_LIMIT, Author, Speakers, UnknownAgentError
from agents.transcripts.times import to_utc

ID_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message that can be stored as it is. `key` is its identity in its channel."""

    target: Target
    key: str
    author: Author
    text: str
    sent_at: datetime | None
    parent_key: str
    tags: dict[str, str]
    payload: dict[str, Any]
    synthetic: bool
    idempotency_key: str


@dataclass(slots=True)
class Tally:
    """What was found in the file. ``read = messages + system_prompts + skipped``."""

    read: int = 0
    messages: int = 0
    system_prompts: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    speakers: dict[str, tuple[str | None, int]] = field(default_factory=dict)

    def count(self, speaker: str, slug: str | None) -> None:
        self.messages += 1
        self.speakers[speaker] = (slug, self.speakers.get(speaker, (None, 0))[1] + 1)


class Preparer:
    """Turns records into messages. Two of them, made alike, give the same messages for the same file."""

    def __init__(
        self, *, path: str, speakers: Speakers, targets: Targets, tags: Mapping[str, str], zone: tzinfo
    ) -> None:
        self.path = path
        self.speakers = speakers
        self.targets = targets
        self.tally = Tally()
        self.cleaner = Cleaner()
        self._tags = tags
        self._zone = zone
        self._contents: dict[int, int] = {}
        self._seen: set[int] = set()
        self._repeats: dict[int, int] = {}

    def messages(self, records: Iterable[Record]) -> Iterator[Prepared]:
        """Yield the messages among `records`.

        Raises:
            TranscriptError: A record cannot be stored; names the line and the reason.
        """
        for record in records:
            if isinstance(record, ChannelInfo):
                self._announce(record)
                continue
            self.tally.read += 1
            if isinstance(record, Skipped):
                self.tally.skipped[record.reason] += 1
            elif record.kind == "system":
                self.tally.system_prompts += 1
            else:
                yield self._prepare(record)

    def _announce(self, info: ChannelInfo) -> None:
        try:
            self.targets.announce(info)
        except ValueError as error:
            raise TranscriptError(self.path, info.line, str(error)) from None

    def _prepare(self, message: SourceMessage) -> Prepared:
        try:
            author = self.speakers.author(message)
            sent_at = to_utc(message.sent_at, self._zone) if message.sent_at is not None else None
        except (UnknownAgentError, ValueError) as error:
            raise TranscriptError(self.path, message.line, str(error)) from None
        speaker = self.cleaner.text(message.speaker)
        if len(speaker) > NAME_LIMIT:
            raise TranscriptError(
                self.path, message.line, f"a speaker's name of more than {NAME_LIMIT} characters: {speaker[:60]!r}..."
            )
        text = self.cleaner.text(message.text)
        target = self.targets.of(message)
        self.tally.count(speaker, author.slug)
        return Prepared(
            target=target,
            key=self._key(message, target, speaker, text),
            author=Author(outsider=speaker) if author.outsider else author,
            text=self.cleaner.shorten(text),
            sent_at=sent_at,
            parent_key=self._id(message.parent_source_id, message.line),
            tags={**self.cleaner.value(message.tags), **self._tags},
            payload=self.cleaner.value(message.payload),
            synthetic=message.synthetic,
            idempotency_key=self._id(message.idempotency_key, message.line),
        )

    def _id(self, text: str, line: int) -> str:
        clean = self.cleaner.text(text)
        if len(clean) > ID_LIMIT:
            raise TranscriptError(self.path, line, f"an id of more than {ID_LIMIT} characters: {clean[:60]!r}...")
        return clean

    def _key(self, message: SourceMessage, target: Target, speaker: str, text: str) -> str:
        """The source's id, or one made of speaker, text, time and how often these came before in the channel."""
        written = message.sent_at.isoformat() if message.sent_at is not None else ""
        content = "\x00".join((speaker, text, written))
        if not message.source_id:
            occurrence = self._occurrence(_short(target.slug, content))
            return "auto:" + hashlib.sha256(f"{content}\x00{occurrence}".encode()).hexdigest()
        key = self._id(message.source_id, message.line)
        before = self._contents.setdefault(_short(target.slug, key), _short(content))
        if before != _short(content):
            raise TranscriptError(
                self.path, message.line, f"the id {key[:60]!r} was used before for another message of this channel"
            )
        return key

    def _occurrence(self, content: int) -> int:
        """From 1. Most contents occur once: only their 8 bytes are kept, a number only for those that come again."""
        if content not in self._seen:
            self._seen.add(content)
            return 1
        self._repeats[content] = number = self._repeats.get(content, 1) + 1
        return number


def _short(*parts: str) -> int:
    return int.from_bytes(hashlib.blake2b("\x00".join(parts).encode(), digest_size=8).digest(), "big")

"""From what a reader yields to what can be stored: cleaned, checked, with author, channel and identity."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from django.contrib.auth import get_user_model
from django.core.validators import slug_re
from django.utils.text import slugify

from agents.kit.files.source import FileError
from agents.kit.files.times import to_utc
from agents.kit.text.cleaner import Cleaner
from agents.kit.text.fences import check_name
from agents.models import Agent, Channel
from agents.models.conversations import names_of_agents, outsider_name
from agents.transcripts.records import ChannelInfo, Guess, NotThere, OptionError, Record, Skipped, SourceMessage

NAME_LIMIT = 200
Unknown = Callable[[str, str], None]
"""Called with a speaker's name and why it is not known who that is here."""


@dataclass(frozen=True, slots=True)
class Author:
    """One of agent, user (primary keys) and outsider (a name) is set. `slug` is the agent's."""

    agent_id: int | None = None
    slug: str = ""
    user_id: int | None = None
    outsider: str = ""


class Speakers:
    """Matches speakers to authors: by `--map`, else by slug, else by display name, without regard to case."""

    def __init__(self, mapping: Mapping[str, str], *, on_unknown: Unknown | None = None) -> None:
        """Read the agents once.

        Args:
            mapping: Speaker or role -> agent slug; an empty slug keeps the speaker an outsider.
            on_unknown: Called for a speaker with no agent, or more than one, who is an outsider then; without it, an error.

        Raises:
            OptionError: A slug of the mapping does not exist; the message lists the nearest names.
        """
        self._slugs: dict[str, Author] = {}
        self._names: dict[str, list[Author]] = {}
        for pk, slug, name in Agent.objects.listed().values_list("pk", "slug", "display_name").order_by("slug"):
            author = Author(agent_id=pk, slug=slug)
            self._slugs[slug.casefold()] = author
            self._names.setdefault(name.casefold(), []).append(author)
        for key, slug in mapping.items():
            if slug and slug.casefold() not in self._slugs:
                raise NotThere(f"--map {key}={slug}: {self._unknown(slug)}")
        self._map = {key.casefold(): self._slugs.get(slug.casefold()) for key, slug in mapping.items()}
        self._unused = {key.casefold(): key for key in mapping}
        self._authors: dict[tuple[str, str, str], Author] = {}
        self._on_unknown = on_unknown
        self._names_of_agents = names_of_agents()

    def outsider(self, name: str) -> str:
        """The name under which an outsider is stored, see `outsider_name`."""
        return outsider_name(name, self._names_of_agents)

    def author(self, message: SourceMessage) -> Author:
        """The author of a message.

        Raises:
            OptionError: The message needs an agent that does not exist, or its name fits several.
        """
        key = (message.kind, message.speaker, message.role)
        if key not in self._authors:
            self._authors[key] = self._author(message)
        return self._authors[key]

    def _author(self, message: SourceMessage) -> Author:
        shown, name = message.speaker, message.speaker.casefold()
        outsider = Author(outsider=self.outsider(shown))
        for key in (name, message.role.casefold()):
            if key in self._map:
                self._unused.pop(key, None)
                return self._map[key] or outsider
        if message.kind == "user":
            users = get_user_model().objects.filter(username=shown)
            user = users.values_list("pk", flat=True).first()
            return outsider if user is None else Author(user_id=user)
        if message.kind not in ("agent", "named"):
            return outsider
        if name in self._slugs:
            return self._slugs[name]
        namesakes = self._names.get(name, []) if message.kind == "named" else []
        if message.kind == "agent":
            why = self._unknown(shown)
            advice = f"import the agent first, or use --map '{shown}=SLUG' ('{shown}=' keeps it an outsider)"
        elif len(namesakes) > 1:
            slugs = ", ".join(author.slug for author in namesakes)
            why = f"{shown!r} is the display name of several agents ({slugs})"
            advice = f"say which: --map '{shown}=SLUG'"
        else:
            return namesakes[0] if namesakes else outsider
        if self._on_unknown is None:
            raise NotThere(f"{why}; {advice}")
        self._on_unknown(shown, why)
        return outsider

    def _unknown(self, name: str) -> str:
        """A sentence that `name` is no agent, with the nearest that are."""
        if not self._slugs:
            return f"no agent {name!r}; there are no agents yet, import them first (manage.py import_agents)"
        near = difflib.get_close_matches(name.casefold(), [*self._slugs, *self._names], n=5, cutoff=0.5)
        authors = [author for key in near for author in (*self._names.get(key, ()), self._slugs.get(key)) if author]
        shown = dict.fromkeys(author.slug for author in authors or list(self._slugs.values())[:10])
        return f"no agent {name!r}; {'nearest' if authors else 'agents'}: {', '.join(shown)}"

    def unused(self) -> list[str]:
        """Keys of the mapping that no speaker and no role of the file had."""
        return sorted(self._unused.values())


@dataclass(slots=True)
class Tally:
    """What is in the file. ``read = messages + system_prompts + skipped``.

    `not_understood` of the skipped are lines that the reader could not read; `first_not_understood` the first three.
    `speakers`: by name, the agent's slug and the number of messages. `authors`: who speaks in which channel (slug); outsiders
    are one empty author.
    """

    read: int = 0
    messages: int = 0
    system_prompts: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    not_understood: int = 0
    first_not_understood: list[str] = field(default_factory=list)
    guesses: list[str] = field(default_factory=list)
    first: datetime | None = None
    last: datetime | None = None
    undated: int = 0
    speakers: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    authors: dict[tuple[str, Author], None] = field(default_factory=dict)

    def count(self, speaker: str, author: Author, channel: str, sent_at: datetime | None) -> None:
        """Count the next message of a channel."""
        self.messages += 1
        if sent_at is None:
            self.undated += 1
        else:
            self.first = sent_at if self.first is None or sent_at < self.first else self.first
            self.last = sent_at if self.last is None or sent_at > self.last else self.last
        self.speakers[speaker] = (author.slug or None, self.speakers.get(speaker, (None, 0))[1] + 1)
        self.authors[channel, Author() if author.outsider else author] = None

    def skip(self, entry: Skipped) -> None:
        """Count something that is no message."""
        self.skipped[entry.reason] += 1
        if entry.text:
            self.not_understood += 1
            if len(self.first_not_understood) < 3:
                self.first_not_understood.append(f"line {entry.line}: {entry.text[:80]!r}")

    @property
    def channels(self) -> list[str]:
        """The channels (slugs) that a message is in, in order."""
        return list(dict.fromkeys(slug for slug, _ in self.authors))

    def times(self) -> dict[str, str]:
        """When the first and the last message with a time were sent, as texts."""
        first, last = (
            moment.isoformat().replace("+00:00", "Z") if moment else "" for moment in (self.first, self.last)
        )
        return {"first_sent_at": first, "last_sent_at": last}

    def check_understood(self, name: str) -> None:
        """Refuse a file of which too much was not understood.

        Raises:
            FileError: More than `MOST_NOT_UNDERSTOOD` of its entries; names the first three.
        """
        if self.not_understood > MOST_NOT_UNDERSTOOD * self.read:
            raise FileError(name, 0, f"{self._said_of_lines()}. Is it another format? Name it: --format")

    def warnings(self) -> list[str]:
        """What a person should look at before the messages are measured."""
        many = self.not_understood > WARN_NOT_UNDERSTOOD * self.read
        return [*([f"{self._said_of_lines()}."] if many else []), *self.guesses]

    def _said_of_lines(self) -> str:
        share = 100 * self.not_understood / self.read
        what = f"{self.not_understood:,} of {self.read:,} entries ({share:.0f} %) were not understood"
        return f"{what}, the first: {'; '.join(self.first_not_understood)}"


WARN_NOT_UNDERSTOOD, MOST_NOT_UNDERSTOOD = 0.02, 0.2  # shares of the entries of a file
SLUG_LIMIT = 120


@dataclass(slots=True)
class Target:
    """A channel to import into, and how to make it when it is missing."""

    slug: str
    name: str
    kind: str = Channel.Kind.PUBLIC
    topic: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    members: tuple[str, ...] = ()


class Targets:
    """Gives each conversation its channel: the wished one (``base``, ``base-2`` …), else its own, else the file's."""

    def __init__(self, *, wished: str, stem: str) -> None:
        self._wished = wished
        self._name = wished or stem
        self._targets: dict[str, Target] = {}
        self._slugs: set[str] = set()
        self._numbers: dict[str, int] = {}

    def announce(self, info: ChannelInfo) -> None:
        """Store what the file says about a channel.

        Raises:
            ValueError: The kind is not one that exists.
        """
        if info.kind and info.kind not in Channel.Kind.values:
            raise ValueError(f"'kind' must be one of {', '.join(Channel.Kind.values)}, got {info.kind!r}")
        target = self.of(info.channel, 1)
        target.kind = info.kind or target.kind
        target.topic, target.tags, target.members = info.topic, info.tags, info.members
        if info.name and not self._wished:
            target.name = info.name[:200]

    def of(self, channel: str, conversation: int) -> Target:
        """The channel of a conversation: by its name in the file, else by its number there."""
        key = channel or f"#{conversation}"
        if key in self._targets:
            return self._targets[key]
        own = "" if self._wished else slug_of(channel)
        base, name = (own, channel) if own else (slug_of(self._name) or "transcript", self._name)
        slug, number = base, self._numbers.get(base, 1)
        while slug in self._slugs:
            number += 1
            ending = f"-{number}"
            slug = base[: SLUG_LIMIT - len(ending)] + ending
        self._slugs.add(slug)
        self._numbers[base] = number
        name = name if number == 1 or own else f"{name} {number}"
        target = self._targets[key] = Target(slug=slug, name=name[:200])
        return target


def slug_of(name: str) -> str:
    """A channel id made of a name: ASCII letters, digits, - and _ only, whatever the name tries."""
    if len(name) <= SLUG_LIMIT and slug_re.fullmatch(name):
        return name
    return slugify(name)[:SLUG_LIMIT].strip("-_")


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


class Preparer:
    """Turns records into messages. Two of them, made alike, give the same messages for the same file."""

    def __init__(
        self, *, path: str, speakers: Speakers, targets: Targets, tags: Mapping[str, str], zone: tzinfo
    ) -> None:
        self.speakers = speakers
        self.targets = targets
        self.tally = Tally()
        self.cleaner = Cleaner()
        self._path, self._tags, self._zone = path, tags, zone
        self._contents: dict[int, int] = {}  # by channel and id
        self._occurrences: Counter[int] = Counter()  # of each content, by 8 bytes of its digest

    def messages(self, records: Iterable[Record]) -> Iterator[Prepared]:
        """Yield the messages among `records`.

        Raises:
            FileError: A record cannot be stored; names the line and the reason.
        """
        for record in records:
            self.tally.read += not isinstance(record, ChannelInfo | Guess)
            try:
                if isinstance(record, ChannelInfo):
                    self.targets.announce(record)
                elif isinstance(record, Guess):
                    self.tally.guesses.append(record.text)
                elif isinstance(record, Skipped):
                    self.tally.skip(record)
                elif record.kind == "system":
                    self.tally.system_prompts += 1
                else:
                    yield self._prepared(record)
            except (OptionError, ValueError) as error:
                raise FileError(self._path, record.line, str(error)) from None

    def _prepared(self, message: SourceMessage) -> Prepared:
        author = self.speakers.author(message)
        sent_at = to_utc(message.sent_at, self._zone) if message.sent_at is not None else None
        speaker = check_name(self.cleaner.text(message.speaker))
        if len(speaker) > NAME_LIMIT:
            raise ValueError(f"a speaker's name of more than {NAME_LIMIT} characters: {speaker[:60]!r}...")
        text = self.cleaner.text(message.text)
        target = self.targets.of(message.channel, message.conversation)
        self.tally.count(speaker, author, target.slug, sent_at)
        return Prepared(
            target=target,
            key=self._key(message, target, speaker, text),
            author=Author(outsider=self.speakers.outsider(speaker)) if author.outsider else author,
            text=self.cleaner.shorten(text),
            sent_at=sent_at,
            parent_key=self._id(message.parent_source_id),
            tags={**self.cleaner.value(message.tags), **self._tags},
            payload=self.cleaner.value(message.payload),
            synthetic=message.synthetic,
            idempotency_key=self._id(message.idempotency_key),
        )

    def _id(self, text: str) -> str:
        clean = self.cleaner.text(text)
        if len(clean) > ID_LIMIT:
            raise ValueError(f"an id of more than {ID_LIMIT} characters: {clean[:60]!r}...")
        return clean

    def _key(self, message: SourceMessage, target: Target, speaker: str, text: str) -> str:
        """The source's id, or one made of speaker, text, time and how often these came before in the channel."""
        written = message.sent_at.isoformat() if message.sent_at is not None else ""
        content = "\x00".join((speaker, text, written))
        if message.source_id:
            key = self._id(message.source_id)
            if self._contents.setdefault(_short(target.slug, key), _short(content)) != _short(content):
                raise ValueError(f"the id {key[:60]!r} was used before for another message of this channel")
            return key
        short = _short(target.slug, content)
        self._occurrences[short] += 1
        return "auto:" + hashlib.sha256(f"{content}\x00{self._occurrences[short]}".encode()).hexdigest()


def _short(*parts: str) -> int:
    return int.from_bytes(hashlib.blake2b("\x00".join(parts).encode(), digest_size=8).digest(), "big")

"""Turn what a reader yields into what can be stored: cleaned, checked, with author, channel and identity."""

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
OnUnknownSpeaker = Callable[[str, str], None]  # called with a speaker's name and why it is not known who that is here


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a message: one of agent, user (primary keys) and outsider (a name) is set. `slug` is the agent's."""

    agent_id: int | None = None
    slug: str = ""
    user_id: int | None = None
    outsider: str = ""


class Speakers:
    """Matches speakers to authors: by `--map`, else by slug, else by display name, without regard to case."""

    def __init__(self, mapping: Mapping[str, str], *, on_unknown: OnUnknownSpeaker | None = None) -> None:
        """Read the agents once.

        Args:
            mapping: Speaker or role -> agent slug; an empty slug keeps the speaker an outsider.
            on_unknown: Called for a speaker with no agent, or more than one, who is an outsider then; without it, an error.

        Raises:
            OptionError: A slug of the mapping does not exist; the message lists the nearest names.
        """
        self._by_slug: dict[str, Author] = {}
        self._by_name: dict[str, list[Author]] = {}
        for pk, slug, name in Agent.objects.listed().values_list("pk", "slug", "display_name").order_by("slug"):
            author = Author(agent_id=pk, slug=slug)
            self._by_slug[slug.casefold()] = author
            self._by_name.setdefault(name.casefold(), []).append(author)
        self._mapped: dict[str, Author | None] = {}  # None: stays an outsider
        self._unused_keys: dict[str, str] = {}  # folded: as it was given
        for key, slug in mapping.items():
            if slug and slug.casefold() not in self._by_slug:
                raise NotThere(f"{key}={slug}: {self._no_such_agent(slug)}", option="--map")
            self._mapped[key.casefold()] = self._by_slug.get(slug.casefold())
            self._unused_keys[key.casefold()] = key
        self._authors: dict[tuple[str, str, str], Author] = {}  # by kind, speaker and role
        self._on_unknown = on_unknown
        self._names_of_agents = names_of_agents()

    def outsider(self, name: str) -> str:
        """Return the name under which an outsider is stored, see `outsider_name`."""
        return outsider_name(name, self._names_of_agents)

    def author(self, message: SourceMessage) -> Author:
        """Return the author of a message.

        Raises:
            OptionError: The message needs an agent that does not exist, or its name fits several.
        """
        key = (message.kind, message.speaker, message.role)
        if key not in self._authors:
            self._authors[key] = self._find_author(message)
        return self._authors[key]

    def _find_author(self, message: SourceMessage) -> Author:
        """Return who the mapping says, by speaker and else by role; else the user, agent or namesake, by the kind of the message.

        Who is not found, and every other kind of speaker, is an outsider.

        Raises:
            NotThere: An agent is not found, or several fit, and nobody takes reports of that.
        """
        outsider = Author(outsider=self.outsider(message.speaker))
        for key in (message.speaker.casefold(), message.role.casefold()):
            if key in self._mapped:
                self._unused_keys.pop(key, None)
                return self._mapped[key] or outsider
        if message.kind == "user":
            return self._find_user(message.speaker) or outsider
        if message.kind == "agent":
            return self._find_agent(message.speaker) or outsider
        if message.kind == "named":
            return self._find_named(message.speaker) or outsider
        return outsider

    def _find_user(self, username: str) -> Author | None:
        user_id = get_user_model().objects.filter(username=username).values_list("pk", flat=True).first()
        return None if user_id is None else Author(user_id=user_id)

    def _find_agent(self, slug: str) -> Author | None:
        """Return the agent with a slug; where there is none, report that."""
        author = self._by_slug.get(slug.casefold())
        if author is None:
            advice = f"import the agent first, or use --map '{slug}=SLUG' ('{slug}=' keeps it an outsider)"
            self._report_or_refuse(slug, self._no_such_agent(slug), advice)
        return author

    def _find_named(self, name: str) -> Author | None:
        """Return the agent with a slug or display name; None where none has it, or several, which is reported.

        Raises:
            NotThere: Several have it, and nobody takes reports of that.
        """
        if name.casefold() in self._by_slug:
            return self._by_slug[name.casefold()]
        namesakes = self._by_name.get(name.casefold(), [])
        if len(namesakes) > 1:
            slugs = ", ".join(author.slug for author in namesakes)
            why = f"{name!r} is the display name of several agents ({slugs})"
            self._report_or_refuse(name, why, f"say which: --map '{name}=SLUG'")
            return None
        return namesakes[0] if namesakes else None

    def _report_or_refuse(self, speaker: str, why: str, advice: str) -> None:
        """Report a speaker of whom it is not known who that is.

        Raises:
            NotThere: Nobody takes such reports.
        """
        if self._on_unknown is None:
            raise NotThere(why, advice=advice)
        self._on_unknown(speaker, why)

    def _no_such_agent(self, name: str) -> str:
        """Return a sentence that `name` is no agent, with the nearest slugs; where none is near, with the first ten."""
        if not self._by_slug:
            return f"no agent {name!r}; there are no agents yet, import them first (manage.py import_agents)"
        similar = difflib.get_close_matches(name.casefold(), [*self._by_slug, *self._by_name], n=5, cutoff=0.5)
        slugs: list[str] = []
        for match in similar:
            slugs += [author.slug for author in self._by_name.get(match, [])]
            if match in self._by_slug:
                slugs.append(self._by_slug[match].slug)
        if slugs:
            return f"no agent {name!r}; nearest: {', '.join(dict.fromkeys(slugs))}"
        first_slugs = [author.slug for author in list(self._by_slug.values())[:10]]
        return f"no agent {name!r}; agents: {', '.join(first_slugs)}"

    def unused(self) -> list[str]:
        """Return the keys of the mapping that no speaker and no role of the file had."""
        return sorted(self._unused_keys.values())


@dataclass(frozen=True, slots=True)
class SpeakerCount:
    """How much a speaker says, and the slug of the agent it is; None for others."""

    slug: str | None
    messages: int


@dataclass(slots=True)
class FileCounts:
    """Counts what is in a file. ``read = messages + system_prompts + skipped``.

    Attributes:
        skipped: How many entries are no messages, by reason. `skipped_lines`: the lines of the first `MOST_LINES` of each.
        first_system_prompt: How the first of the system prompts begins.
        not_understood: How many of them are lines that the reader could not read. `first_not_understood`: the first three.
        guesses: What the reader had to assume about the file.
        first, last: When the first and the last message with a time were sent. `undated`: how many messages have none.
        without_zone: How many times have no offset. `first_without_zone`: the first of them.
        speakers: By name.
        authors: Who speaks in which channel (slug), in order; outsiders are one empty author.
    """

    read: int = 0
    messages: int = 0
    system_prompts: int = 0
    first_system_prompt: str = ""
    skipped: Counter[str] = field(default_factory=Counter)
    not_understood: int = 0
    first_not_understood: list[str] = field(default_factory=list)
    skipped_lines: dict[str, list[int]] = field(default_factory=dict)
    guesses: list[Guess] = field(default_factory=list)
    first: datetime | None = None
    last: datetime | None = None
    undated: int = 0
    without_zone: int = 0
    first_without_zone: datetime | None = None
    speakers: dict[str, SpeakerCount] = field(default_factory=dict)
    authors: dict[tuple[str, Author], None] = field(default_factory=dict)

    def count(self, speaker: str, author: Author, channel: str, sent_at: datetime | None) -> None:
        """Count the next message of a channel.

        Args:
            channel: Its slug.
            sent_at: None: the source gives no time.
        """
        self.messages += 1
        if sent_at is None:
            self.undated += 1
        else:
            self.first = min(sent_at, self.first or sent_at)
            self.last = max(sent_at, self.last or sent_at)
        counted = self.speakers.get(speaker)
        self.speakers[speaker] = SpeakerCount(author.slug or None, 1 + (counted.messages if counted else 0))
        self.authors[channel, Author() if author.outsider else author] = None

    def count_zone(self, sent_at: datetime | None) -> None:
        """Count a time as the source has it, if it has no offset."""
        if sent_at is None or sent_at.tzinfo is not None:
            return
        self.without_zone += 1
        self.first_without_zone = self.first_without_zone or sent_at

    def skip(self, entry: Skipped) -> None:
        """Count something that is no message."""
        self.skipped[entry.reason] += 1
        lines = self.skipped_lines.setdefault(entry.reason, [])
        if len(lines) < MOST_LINES:
            lines.append(entry.line)
        if not entry.text:
            return
        self.not_understood += 1
        if len(self.first_not_understood) < 3:
            self.first_not_understood.append(f"line {entry.line}: {entry.text[:80]!r}")

    @property
    def channels(self) -> list[str]:
        """Return the channels (slugs) that a message is in, in order."""
        return list(dict.fromkeys(slug for slug, _ in self.authors))

    def times(self) -> dict[str, str]:
        """Return when the first and the last message with a time were sent, as texts."""
        return {"first_sent_at": _as_text(self.first), "last_sent_at": _as_text(self.last)}

    def check_understood(self, name: str) -> None:
        """Refuse a file of which too much was not understood.

        Raises:
            FileError: More than `MOST_NOT_UNDERSTOOD` of its entries; names the first three.
        """
        if self.not_understood > MOST_NOT_UNDERSTOOD * self.read:
            raise FileError(
                name, 0, self._not_understood_sentence(), advice="if it is another format, name it: --format"
            )

    def warnings(self) -> list[Guess]:
        """Return what a person should look at before the messages are measured."""
        if self.not_understood > WARN_NOT_UNDERSTOOD * self.read:
            return [Guess(f"{self._not_understood_sentence()}.", 0), *self.guesses]
        return self.guesses

    def _not_understood_sentence(self) -> str:
        share = 100 * self.not_understood / self.read
        counts = f"{self.not_understood:,} of {self.read:,} entries ({share:.0f} %) were not understood"
        return f"{counts}, the first: {'; '.join(self.first_not_understood)}"


def _as_text(moment: datetime | None) -> str:
    return moment.isoformat().replace("+00:00", "Z") if moment else ""


MOST_LINES = 5
PROMPT_KEPT = 1_000  # characters
WARN_NOT_UNDERSTOOD = 0.02  # share of the entries of a file
MOST_NOT_UNDERSTOOD = 0.2  # share of them
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
    inclusion_probability: float = 1.0


class Targets:
    """Gives each conversation its channel: the wished one (``base``, ``base-2`` …), else its own, else the file's."""

    def __init__(self, *, wished: str, stem: str) -> None:
        self._wished = wished
        self._name = wished or stem
        self._targets: dict[str, Target] = {}
        self._slugs: set[str] = set()
        self._numbers: dict[str, int] = {}

    def announce(self, info: ChannelInfo) -> None:
        """Keep what the file says about a channel for when it is made; a name that was wished for stays.

        Raises:
            ValueError: The kind is not one that exists.
        """
        if info.kind and info.kind not in Channel.Kind.values:
            raise ValueError(f"'kind' must be one of {', '.join(Channel.Kind.values)}, got {info.kind!r}")
        target = self.target_of(info.channel, conversation=1)
        target.kind = info.kind or target.kind
        target.topic = info.topic
        target.tags = info.tags
        target.members = info.members
        target.inclusion_probability = info.inclusion_probability
        if info.name and not self._wished:
            target.name = info.name[:200]

    def target_of(self, channel: str, conversation: int) -> Target:
        """Return the channel of a conversation: by its name in the file, else by its number there."""
        key = channel or f"#{conversation}"
        if key not in self._targets:
            self._targets[key] = self._new_target(channel)
        return self._targets[key]

    def _new_target(self, channel: str) -> Target:
        """Return a target whose slug no other has: by the wished name, else by the channel's own, else by the file's.

        For example ``chat`` with the name "chat" for the first conversation of chat.json, ``chat-2`` with "chat 2" for the next.
        """
        own_slug = "" if self._wished else slug_of(channel)
        if own_slug:
            return Target(slug=self._free_slug(own_slug), name=channel[:200])
        base = slug_of(self._name) or "transcript"
        slug = self._free_slug(base)
        number = self._numbers[base]
        name = self._name if number == 1 else f"{self._name} {number}"
        return Target(slug=slug, name=name[:200])

    def _free_slug(self, base: str) -> str:
        """Return ``base``, or the first of ``base-2``, ``base-3`` … that is not taken, and take it."""
        slug = base
        number = self._numbers.get(base, 1)
        while slug in self._slugs:
            number += 1
            ending = f"-{number}"
            slug = base[: SLUG_LIMIT - len(ending)] + ending
        self._slugs.add(slug)
        self._numbers[base] = number
        return slug


def slug_of(name: str) -> str:
    """Return a channel id made of a name: ASCII letters, digits, - and _ only, whatever the name tries."""
    if len(name) <= SLUG_LIMIT and slug_re.fullmatch(name):
        return name
    return slugify(name)[:SLUG_LIMIT].strip("-_")


ID_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message that can be stored as it is. `key` is its identity in its channel. `speaker` and `role` are as in the file."""

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
    speaker: str = ""
    role: str = ""


class Preparer:
    """Turns records into messages. Two of them, made alike, give the same messages for the same file."""

    def __init__(
        self, *, path: str, speakers: Speakers, targets: Targets, tags: Mapping[str, str], zone: tzinfo
    ) -> None:
        self.speakers = speakers
        self.targets = targets
        self.counts = FileCounts()
        self.cleaner = Cleaner()
        self._path = path
        self._tags = tags
        self._zone = zone
        self._content_of_id: dict[int, int] = {}  # digest of channel and id: digest of the content
        self._occurrences: Counter[int] = Counter()  # of each content in a channel, by its digest

    def messages(self, records: Iterable[Record]) -> Iterator[Prepared]:
        """Yield the messages among `records`. System prompts and what is no message are counted in `counts` alone, guesses noted there.

        Raises:
            FileError: A record cannot be stored; names the line and the reason. Or the reader cannot go on.
        """
        for record in records:
            is_entry = not isinstance(record, ChannelInfo | Guess)  # those two tell of a channel or of the file
            self.counts.read += is_entry
            try:
                if isinstance(record, ChannelInfo):
                    self.targets.announce(record)
                elif isinstance(record, Guess):
                    self.counts.guesses.append(record)
                elif isinstance(record, Skipped):
                    self.counts.skip(record)
                elif record.kind == "system":
                    self.counts.system_prompts += 1
                    self.counts.first_system_prompt = self.counts.first_system_prompt or record.text[:PROMPT_KEPT]
                else:
                    yield self._prepared(record)
            except (OptionError, ValueError) as error:
                raise FileError(self._path, record.line, str(error)) from None

    def _prepared(self, message: SourceMessage) -> Prepared:
        """Return a message as it is stored, with cleaned and shortened texts and its time in UTC, and count it.

        Raises:
            OptionError: Its speaker needs an agent that does not exist, or fits several.
            ValueError: Its speaker's name or an id is too long or not allowed, or the id was used for another message.
        """
        author = self.speakers.author(message)
        sent_at = to_utc(message.sent_at, self._zone) if message.sent_at is not None else None
        speaker = check_name(self.cleaner.text(message.speaker))
        if len(speaker) > NAME_LIMIT:
            raise ValueError(f"a speaker's name of more than {NAME_LIMIT} characters: {speaker[:60]!r}...")
        text = self.cleaner.text(message.text)
        target = self.targets.target_of(message.channel, message.conversation)
        self.counts.count(speaker, author, target.slug, sent_at)
        self.counts.count_zone(message.sent_at)
        if author.outsider:  # under the cleaned name
            author = Author(outsider=self.speakers.outsider(speaker))
        return Prepared(
            target=target,
            key=self._key(message, target, speaker, text),
            author=author,
            text=self.cleaner.shorten(text),
            sent_at=sent_at,
            parent_key=self._checked_id(message.parent_source_id),
            tags={**self.cleaner.value(message.tags), **self._tags},
            payload=self.cleaner.value(message.payload),
            synthetic=message.synthetic,
            idempotency_key=self._checked_id(message.idempotency_key),
            speaker=speaker,
            role=message.role,
        )

    def _checked_id(self, text: str) -> str:
        clean = self.cleaner.text(text)
        if len(clean) > ID_LIMIT:
            raise ValueError(f"an id of more than {ID_LIMIT} characters: {clean[:60]!r}...")
        return clean

    def _key(self, message: SourceMessage, target: Target, speaker: str, text: str) -> str:
        """Return the source's id, or one made of speaker, text, time and how often these came before in the channel.

        Raises:
            ValueError: The source's id is too long, or was used before in this channel for another speaker, text or time.
        """
        time_text = message.sent_at.isoformat() if message.sent_at is not None else ""
        content = "\x00".join((speaker, text, time_text))
        if not message.source_id:
            digest = _digest(target.slug, content)
            self._occurrences[digest] += 1
            occurrence = f"{content}\x00{self._occurrences[digest]}"
            return "auto:" + hashlib.sha256(occurrence.encode()).hexdigest()
        key = self._checked_id(message.source_id)
        first_content = self._content_of_id.setdefault(_digest(target.slug, key), _digest(content))
        if first_content != _digest(content):
            raise ValueError(f"the id {key[:60]!r} was used before for another message of this channel")
        return key


def _digest(*parts: str) -> int:
    """Return 8 bytes that stand for these texts: a file may hold millions of them."""
    return int.from_bytes(hashlib.blake2b("\x00".join(parts).encode(), digest_size=8).digest(), "big")

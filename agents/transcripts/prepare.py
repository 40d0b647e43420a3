"""From what a reader yields to what can be stored: cleaned, checked, with author, channel and identity."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.core.validators import slug_re
from django.db.models import Exists, OuterRef
from django.utils.text import slugify

from agents.models import Agent, Channel, Message
from agents.transcripts.records import (
    ChannelInfo,
    Cleaner,
    OptionError,
    Record,
    Skipped,
    SourceMessage,
    TranscriptError,
    to_utc,
)

NAME_LIMIT = 200
_NEAR = 0.8  # likeness of two names, 0 to 1, from which they may be the same
_ANSWERS = 3  # messages before a speaker is one who always answers
_MOST_GUESSED, _MOST_COMPARED = 20, 1_000  # speakers and agents that are compared by name
_WORD = re.compile(r"\w+")
_BOT = re.compile(r"\b(assistant|ai|agent|model|gpt|llm|chatgpt|claude|gemini|llama)\b|bot\b", re.IGNORECASE)
_PEOPLE = {"user", "human", "customer", "client", "guest", "visitor", "person", "people", "me", "you", "i"}
Unknown = Callable[[str, str], None]
"""Called with a speaker's name and why it is not known who that is here."""


class UnknownAgentError(OptionError):
    """A mapping or a file names an agent that does not exist, or a name that several have."""


@dataclass(frozen=True, slots=True)
class Author:
    """Exactly one of the three is set. `slug` is the agent's."""

    agent_id: int | None = None
    slug: str | None = None
    user_id: int | None = None
    outsider: str = ""


class Speakers:
    """Matches speakers to authors: by `--map`, else by slug, else by display name, without regard to case."""

    def __init__(self, mapping: Mapping[str, str], *, on_unknown: Unknown | None = None) -> None:
        """Read the agents once.

        Args:
            mapping: Speaker or role -> agent slug; an empty slug keeps the speaker an outsider.
            on_unknown: Told of a speaker for whom there is no agent, or more than one, who is an outsider then; without it, an error.

        Raises:
            UnknownAgentError: A slug of the mapping does not exist; the message lists the nearest names.
        """
        self._slugs: dict[str, Author] = {}
        self._names: dict[str, list[Author]] = {}
        for pk, slug, name in Agent.objects.values_list("pk", "slug", "display_name").order_by("slug"):
            author = Author(agent_id=pk, slug=slug)
            self._slugs[slug.casefold()] = author
            self._names.setdefault(name.casefold(), []).append(author)
        self._map = {key.casefold(): self._mapped(key, slug) for key, slug in mapping.items()}
        self._keys = {key.casefold(): key for key in mapping}
        self._users: dict[str, int | None] = {}
        self._known: dict[tuple[str, str, str], Author] = {}
        self._on_unknown = on_unknown

    def _mapped(self, key: str, slug: str) -> Author | None:
        if not slug:
            return None
        author = self._slugs.get(slug.casefold())
        if author is None:
            raise UnknownAgentError(f"--map {key}={slug}: {self.unknown(slug)}")
        return author

    def unknown(self, name: str) -> str:
        """A sentence that `name` is no agent, with the nearest that are."""
        if not self._slugs:
            return f"no agent {name!r}; there are no agents yet, import them first (manage.py import_agents)"
        candidates = [*self._slugs, *self._names]
        near = difflib.get_close_matches(name.casefold(), candidates, n=5, cutoff=0.5)
        slugs = [
            author.slug or "" for key in near for author in [*self._names.get(key, ()), *_one(self._slugs.get(key))]
        ]
        label = "nearest" if slugs else "agents"
        shown = list(dict.fromkeys(slugs)) or [author.slug or "" for author in list(self._slugs.values())[:10]]
        return f"no agent {name!r}; {label}: {', '.join(shown)}"

    def author(self, message: SourceMessage) -> Author:
        """The author of a message.

        Raises:
            UnknownAgentError: The message needs an agent that does not exist, or its name fits several.
        """
        key = (message.kind, message.speaker, message.role)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._find(message)
        return found

    def _find(self, message: SourceMessage) -> Author:
        name = message.speaker.casefold()
        for key in (name, message.role.casefold()):
            if key in self._map:
                self._keys.pop(key, None)
                return self._map[key] or Author(outsider=message.speaker)
        if message.kind == "agent":
            return self._slugs.get(name) or self._outsider(
                message.speaker,
                self.unknown(message.speaker),
                f"import the agent first, or use --map '{message.speaker}=SLUG' ('{message.speaker}=' keeps it an outsider)",
            )
        if message.kind == "named":
            return self._by_name(name, message.speaker) or Author(outsider=message.speaker)
        if message.kind == "user":
            user = self._user(message.speaker)
            return Author(user_id=user) if user is not None else Author(outsider=message.speaker)
        return Author(outsider=message.speaker)

    def _by_name(self, name: str, shown: str) -> Author | None:
        if name in self._slugs:
            return self._slugs[name]
        authors = self._names.get(name, [])
        if len(authors) > 1:
            slugs = ", ".join(author.slug or "" for author in authors)
            why = f"{shown!r} is the display name of several agents ({slugs})"
            return self._outsider(shown, why, f"say which: --map '{shown}=SLUG'")
        return authors[0] if authors else None

    def _outsider(self, name: str, why: str, advice: str) -> Author:
        if self._on_unknown is None:
            raise UnknownAgentError(f"{why}; {advice}")
        self._on_unknown(name, why)
        return Author(outsider=name)

    def _user(self, username: str) -> int | None:
        if username not in self._users:
            users = get_user_model().objects.filter(username=username)
            self._users[username] = users.values_list("pk", flat=True).first()
        return self._users[username]

    def unused(self) -> list[str]:
        """Keys of the mapping that no speaker and no role of the file had."""
        return sorted(self._keys.values())


class Likely(NamedTuple):
    """Why a speaker is likely an agent, and which one; an empty slug where that is not known."""

    slug: str
    why: str


class Answering:
    """Finds the speaker who always answers: each of its messages directly follows one of another speaker."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._answers: Counter[str] = Counter()
        self._begins: set[str] = set()

    def add(self, channel: str, speaker: str) -> None:
        """Note the next message of a channel."""
        before = self._last.get(channel, speaker)
        self._last[channel] = speaker
        self._answers[speaker] += 1
        if before == speaker:
            self._begins.add(speaker)

    @property
    def speaker(self) -> str:
        """Its name; empty where none, or more than one, does so."""
        found = [name for name, count in self._answers.items() if count >= _ANSWERS and name not in self._begins]
        return found[0] if len(found) == 1 else ""


def likely_agents(speakers: Sequence[str], *, answering: str) -> dict[str, Likely]:
    """Guess which speakers are agents, in a conversation in which none is known to be one.

    In this order: who is named nearly like an agent, who is named like a bot, who always answers.

    Args:
        speakers: Their names, those who say most first.
        answering: Who always answers; empty where nobody does.
    """
    names = speakers[:_MOST_GUESSED]
    agents = list(Agent.objects.order_by("slug").values_list("slug", "display_name")[:_MOST_COMPARED])
    near = {name: slug for name in names if (slug := _named_nearly(name, agents))}
    if near:
        return {name: Likely(slug, f"named nearly like {slug}") for name, slug in near.items()}
    bots = {name: "it is named like a bot" for name in names if _BOT.search(name)}
    if not bots and answering in names:
        bots = {answering: "it always answers"}
    silent = Agent.objects.filter(~Exists(Message.objects.filter(agent=OuterRef("pk"))))
    known = [slug for slug, _ in agents] if len(agents) == 1 else list(silent.values_list("slug", flat=True)[:2])
    slug = known[0] if len(bots) == len(known) == 1 else ""
    return {name: Likely(slug, why) for name, why in bots.items()}


def _named_nearly(name: str, agents: Iterable[tuple[str, str]]) -> str:
    """The slug of the one agent that is named nearly so; empty where none or several are."""
    words = set(_WORD.findall(name.casefold()))
    if not words or words <= _PEOPLE:
        return ""
    found, spelled = set(), {}
    for slug, display_name in agents:
        for known in (slug, display_name):
            spelled[known.casefold()] = slug
            theirs = set(_WORD.findall(known.casefold().replace("-", " ").replace("_", " ")))
            if theirs and (theirs <= words or words <= theirs):
                found.add(slug)
    found = found or {spelled[known] for known in difflib.get_close_matches(name.casefold(), spelled, cutoff=_NEAR)}
    return found.pop() if len(found) == 1 else ""


def _one(author: Author | None) -> Iterable[Author]:
    return () if author is None else (author,)


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
        self._base = slug_of(wished or stem) or "transcript"
        self._stem = wished or stem
        self._targets: dict[str, Target] = {}
        self._slugs: set[str] = set()
        self._numbers: dict[str, int] = {}

    def announce(self, info: ChannelInfo) -> Target:
        """Take what the file says about a channel.

        Raises:
            ValueError: The kind is not one that exists.
        """
        if info.kind and info.kind not in Channel.Kind.values:
            raise ValueError(f"'kind' must be one of {', '.join(Channel.Kind.values)}, got {info.kind!r}")
        target = self._target(info.channel or "#1", info.channel)
        target.kind = info.kind or target.kind
        target.topic = info.topic
        target.tags = info.tags
        target.members = info.members
        if info.name and not self._wished:
            target.name = info.name[:200]
        return target

    def of(self, message: SourceMessage) -> Target:
        """The channel of a message."""
        key = message.channel or f"#{message.conversation}"
        return self._targets.get(key) or self._target(key, message.channel)

    def _target(self, key: str, own_name: str) -> Target:
        if key in self._targets:
            return self._targets[key]
        own_slug = "" if self._wished else slug_of(own_name)
        base, name = (own_slug, own_name) if own_slug else (self._base, self._stem)
        slug, number = base, self._numbers.get(base, 1)
        while slug in self._slugs:
            number += 1
            ending = f"-{number}"
            slug = base[: SLUG_LIMIT - len(ending)] + ending
        self._slugs.add(slug)
        self._numbers[base] = number
        shown = name if number == 1 or own_slug else f"{name} {number}"
        target = self._targets[key] = Target(slug=slug, name=shown[:200])
        return target

    @property
    def slugs(self) -> list[str]:
        """The channels met so far, in order."""
        return [target.slug for target in self._targets.values()]


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

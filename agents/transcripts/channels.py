"""Which channel each conversation of a file goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.core.validators import slug_re
from django.utils.text import slugify

from agents.models import Channel
from agents.transcripts.records import ChannelInfo, SourceMessage

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

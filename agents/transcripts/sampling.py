"""Decide which new conversations are kept, before anything of them is stored: an app above declares how (`conversation_sampler`)."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from django.conf import settings
from django.utils.encoding import force_bytes
from django.utils.module_loading import import_string

from agents.kit.capability import declared_one
from agents.kit.text.wording import counted
from agents.transcripts.prepare import Prepared

MOST_REASONS = 5  # that a note of what was left out gives


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What was decided of a conversation.

    Attributes:
        kept: Whether its messages are stored.
        probability: The chance with which it was to be kept, above 0 to 1.
        setting: The setting that decided it, for people.
    """

    kept: bool
    probability: float
    setting: str


class ConversationSampler(Protocol):
    """Draws the conversations of one batch."""

    def draw(self, agents_by_slug: Mapping[str, Collection[int]]) -> Mapping[str, Draw]:
        """Return by slug what is decided of the conversations that some setting samples; the others are always kept.

        One that is stored already is kept; its probability may have become larger.

        Args:
            agents_by_slug: Of each conversation the agents (pk) that speak in what came in; none where only others speak.
        """

    def count_kept(self, slugs: Collection[str], *, begun: Collection[str]) -> None:
        """Count conversations that have new messages, and those of them that begin; called in the transaction that stores them."""


def find_sampler() -> ConversationSampler | None:
    """Return what draws conversations; None where no setting samples any, which takes one query."""
    path = declared_one("conversation_sampler")
    if not path:
        return None
    find: Callable[[], ConversationSampler | None] = import_string(path)
    return find()


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled(Generic[Item]):
    """What is left of a batch of messages or spans.

    Attributes:
        kept: Those that are kept, in their order.
        draws: What was decided of the conversations that were drawn, by slug.
        left_out: By slug of the conversations that are not kept: how many messages of each.
        notes: Why they are not, in sentences.
    """

    kept: Sequence[Item]
    draws: Mapping[str, Draw] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Sequence[str] = ()

    @property
    def number(self) -> int:
        """Return how many messages are left out."""
        return self.left_out.total()


def sample_messages(messages: Sequence[Prepared], sampler: ConversationSampler | None) -> Sampled[Prepared]:
    """Leave out the messages of new conversations that are not drawn; the others' channels get the chance of being kept."""
    if sampler is None:
        return Sampled(kept=messages)
    agents_by_slug: dict[str, set[int]] = {}
    for message in messages:
        agents = agents_by_slug.setdefault(message.target.slug, set())
        if message.author.agent_id is not None:
            agents.add(message.author.agent_id)
    draws = sampler.draw(agents_by_slug)
    kept: list[Prepared] = []
    left_out: Counter[str] = Counter()
    for message in messages:
        draw = draws.get(message.target.slug)
        if draw is None:
            kept.append(message)
        elif draw.kept:
            target = replace(message.target, inclusion_probability=draw.probability)
            kept.append(replace(message, target=target))
        else:
            left_out[message.target.slug] += 1
    return Sampled(kept=kept, draws=draws, left_out=left_out, notes=notes_on(left_out, draws))


def notes_on(left_out: Mapping[str, int], draws: Mapping[str, Draw]) -> list[str]:
    """Return a sentence about the messages that are left out, by number and setting; none where all are kept."""
    if not left_out:
        return []
    by_reason = Counter(draws[slug].setting for slug in left_out)
    reasons = [
        f"{setting} ({counted(number, 'conversation')})" for setting, number in by_reason.most_common(MOST_REASONS)
    ]
    number = sum(left_out.values())
    return [f"{counted(number, 'message')} left out on purpose, by sampling: {'; '.join(reasons)}"]


def conversation_fraction(slug: str, purpose: str) -> float:
    """Return a number from 0 to below 1 by which a conversation is drawn: the same on every machine, at any time.

    It is keyed with `SECRET_KEY`, so that who chooses the ids of conversations cannot choose ids that are always or never kept.

    Args:
        purpose: What it is drawn for; draws for different purposes do not depend on each other.
    """
    digest = hmac.digest(force_bytes(settings.SECRET_KEY), f"{purpose}\0{slug}".encode(), "sha256")
    return int.from_bytes(digest[:6], "big") / 2**48

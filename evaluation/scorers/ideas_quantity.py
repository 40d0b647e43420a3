"""Ideas quantity (S-6.6): how many distinct ideas a conversation holds. A count, never a score of 0 to 9."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from django.conf import settings
from django.db.models.functions import Length

from agents.models import Message
from evaluation.scorers.context import Context
from evaluation.scorers.subjects import ChannelSubject, plan_on_window

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition


plan = plan_on_window


def context(
    subject: ChannelSubject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """Raise ValueError: ideas are listed part by part (`stretches`), a judge is never shown the conversation as a whole."""
    raise ValueError("ideas are counted part by part")


def not_evaluable(subject: ChannelSubject) -> str:
    """Return why nothing can be counted; empty when it can. People's ideas are counted beside agents', but not without any agent."""
    silent = subject.why_silent()
    return f"not evaluable: {silent}" if silent else ""


def stretches(subject: ChannelSubject) -> Iterator[tuple[int, int]]:
    """Yield first and last position of each part of the conversation: as many messages as fit `IDEAS_PART_CHARACTERS`, none left out.

    A message that is longer is a part of its own. Lengths are read in portions, texts not at all.
    """
    most = int(settings.IDEAS_PART_CHARACTERS)
    size = 0
    first = last = 0
    lengths = subject.messages().annotate(characters=Length("text")).values_list("position", "characters")
    for position, characters in lengths.iterator(chunk_size=5000):
        if size and size + characters > most:
            yield first, last
            size = 0
        if not size:
            first = position
        size += characters + 1
        last = position
    if size:
        yield first, last

"""The ideas a run found, for reading: each distinct one with its repetitions, where it was said and by whom."""

from __future__ import annotations

from dataclasses import dataclass

from agents.models import Message
from evaluation.models import EvaluationRun, Idea


@dataclass(frozen=True, slots=True)
class DistinctIdea:
    """One idea that counts, those that say the same, positions in the channel of all of them, and their speakers' names."""

    idea: Idea
    variants: tuple[Idea, ...]
    positions: tuple[int, ...]
    speakers: tuple[str, ...]


def distinct_ideas(run: EvaluationRun, *, repeat: int = 1) -> list[DistinctIdea]:
    """The distinct ideas of a channel's run, in order of first mention; empty for an agent's run.

    Args:
        run: A run that counted ideas.
        repeat: Which of its repeated judgements.
    """
    found = Idea.objects.filter(
        part__evaluation_score__evaluation_run=run,
        part__evaluation_score__repeat=repeat,
        part__evaluation_score__status="scored",
    )
    ideas = list(found.order_by("part__evaluation_score", "part__number", "number"))
    variants: dict[int, list[Idea]] = {}
    for idea in ideas:
        if idea.same_as_id is not None:
            variants.setdefault(idea.same_as_id, []).append(idea)
    wanted = {position for idea in ideas for position in idea.positions}
    said = Message.objects.filter(channel=run.channel_id, position__in=wanted).select_related("agent", "user")
    names = {message.position: message.author_name for message in said}
    return [_distinct(idea, variants.get(idea.pk, []), names) for idea in ideas if idea.same_as_id is None]


def _distinct(idea: Idea, variants: list[Idea], names: dict[int, str]) -> DistinctIdea:
    positions = sorted({position for one in (idea, *variants) for position in one.positions})
    speakers = tuple(dict.fromkeys(names[position] for position in positions if position in names))
    return DistinctIdea(idea, tuple(variants), tuple(positions), speakers)

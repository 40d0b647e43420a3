"""What a run is about: its agent or channel as it looks at it, and the claims it judges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from django.conf import settings

from agents.persona import TraitLike, render_persona
from agents.text.names import one_line
from evaluation.models import CHANNEL_DIMENSIONS, EvaluationRun
from evaluation.propositions.files import LoadedFile, propositions_for
from evaluation.propositions.schema import Proposition
from evaluation.propositions.traits import with_traits
from evaluation.scorers.base import Subject
from evaluation.scorers.channel import ChannelSubject
from evaluation.windows import parse_history, parse_window


def claims_for(
    *,
    slug: str,
    dimension: str,
    hard: bool,
    files: Sequence[LoadedFile] | None = None,
    traits: Iterable[TraitLike] | None = None,
    seeded: bool = False,
) -> list[Proposition]:
    """The propositions of a run about the agent (or channel) of that slug; in a hard run all that can be hard are.

    Args:
        slug: Of the agent or channel.
        dimension: Its id.
        hard: Whether it is a hard run.
        files: What `load_all` returned, for callers that ask for several dimensions.
        traits: Of the agent: each is measured in adherence.
        seeded: Whether the agent is one of the examples.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    found = propositions_for(agent_slug=slug, dimension=dimension, files=files, seeded=seeded)
    if traits is not None and dimension == "adherence":
        found = with_traits(found, traits, automatic=settings.TRAIT_PROPOSITIONS)
    if not hard or dimension == "ideas_quantity":
        return found
    return [p if p.inverted or p.rule else replace(p, hard=True) for p in found]


def claims_of(run: EvaluationRun, subject: Subject | ChannelSubject, files: Sequence[LoadedFile]) -> list[Proposition]:
    """All that a run asks about its subject, as propositions and traits are now.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    if isinstance(subject, Subject):
        slug, traits, seeded = subject.agent.slug, list(subject.agent.traits.all()), subject.agent.seeded
    else:
        slug, traits, seeded = subject.channel.slug, None, False
    return [
        claim
        for dimension in run.own_dimensions
        for claim in claims_for(
            slug=slug, dimension=dimension, hard=run.hard, files=files, traits=traits, seeded=seeded
        )
    ]


def subject_of(run: EvaluationRun) -> Subject | ChannelSubject:
    """The agent or channel as this run looks at it; the same when the run is taken up again later.

    Raises:
        ValueError: The run has no target, or its dimensions are not those of a channel.
    """
    window = replace(parse_window(run.window), start=run.window_start, end=run.window_end)
    if run.agent is None:
        if run.channel is None:
            raise ValueError(f"evaluation run {run.pk} has no target")
        if set(run.dimensions) - set(CHANNEL_DIMENSIONS):
            raise ValueError(f"evaluation run {run.pk} targets a channel, not an agent")
        return ChannelSubject(channel=run.channel, window=window, where=run.where, seed=run.seed)
    history = replace(parse_history(run.history), start=run.history_start, end=run.history_end)
    return Subject(
        agent=run.agent,
        persona=render_persona(system_prompt=run.agent.system_prompt, traits=run.agent.traits.all()),
        window=window,
        where=run.where,
        samples=run.samples,
        seed=run.seed,
        history=history,
        history_where=run.history_where,
        simulated=run.simulated,
        position_bins=tuple((first, last) for first, last in run.position_bins),
    )


def variables_of(subject: Subject | ChannelSubject) -> dict[str, str]:
    """What claims about the whole window may name; a channel is both its own name and its channel's."""
    if isinstance(subject, ChannelSubject):
        return dict.fromkeys(("agent_name", "channel_name"), one_line(subject.name))
    return {"agent_name": subject.agent.display_name}

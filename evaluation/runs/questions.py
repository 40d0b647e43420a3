"""What a run is about, and its judgements on their way to the judge: some need none, the others share calls (AC-6.0.4, AC-6.0.15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from django.conf import settings

from agents.models import Message
from agents.persona import TraitLike, render_persona
from agents.text.fences import one_line
from evaluation.judge.prompts import Context
from evaluation.judge.verdicts import Verdict, trivial, unscored, verdict_by_rule
from evaluation.models import CHANNEL_DIMENSIONS, EvaluationRun
from evaluation.propositions.files import LoadedFile, propositions_for
from evaluation.propositions.rules import PRECONDITIONS, Target
from evaluation.propositions.schema import Proposition
from evaluation.propositions.traits import with_traits
from evaluation.scorers.subjects import ChannelSubject, Subject, stretch_end
from evaluation.scorers.windows import parse_history, parse_window

T = TypeVar("T")


class Open(NamedTuple, Generic[T]):
    """An item that needs the judge, with what it is about."""

    item: T
    proposition: Proposition
    message: Message | None
    earlier: Message | None = None
    repeat: int = 1


def context_of(scorer: Any, subject: Subject | ChannelSubject, entry: Open[Any], additional: Any) -> Context:
    """What the judge is shown for an item, with what is given to every judgement of the run."""
    found: Context = scorer.context(subject, entry.proposition, entry.message, entry.earlier)
    return replace(found, additional=additional or None)


class Group(NamedTuple, Generic[T]):
    """Items that share a call. `alone` when no other group is shown the same window."""

    entries: list[Open[T]]
    alone: bool


def groups(entries: Iterable[Open[T]], per_call: int) -> Iterator[Group[T]]:
    """Items that may share a call: the same message, window and repeat, up to `per_call` of them.

    What begins alike comes as far apart as possible, the messages of one stretch and the repeats of one item: by then the prompt cache
    may hold what they share.
    """
    found: dict[tuple[object, ...], list[Open[T]]] = {}
    for entry in entries:
        message = entry.message.pk if entry.message else None
        found.setdefault((message, entry.repeat, *entry.proposition.context_key), []).append(entry)
    seen: Counter[tuple[object, ...]] = Counter()
    ordered = []
    for group in found.values():
        shared = (group[0].repeat, *_shown(group[0]))
        ordered.append((group[0].repeat, seen[shared], shared, group))
        seen[shared] += 1
    for _, _, shared, group in sorted(ordered, key=lambda place: place[:2]):
        alone = seen[shared] == 1 and group[0].earlier is None and len(group) <= per_call
        for start in range(0, len(group), per_call):
            yield Group(group[start : start + per_call], alone)


def _shown(entry: Open[Any]) -> tuple[object, ...]:
    """Equal for items that are shown the same window."""
    message, proposition = entry.message, entry.proposition
    end = stretch_end(message.position, proposition.last_n) if message and entry.earlier is None else None
    return (message.channel_id if message else None, end, *proposition.context_key)


def settle(
    proposition: Proposition,
    message: Message | None,
    subject: Subject | ChannelSubject,
    earlier: Message | None = None,
    additional: Mapping[str, Any] | None = None,
) -> Verdict | None:
    """The verdict of what needs no judge: a false precondition, a rule, a message that is gone. None when the judge is needed."""
    if message is None and proposition.dimension == "adherence" and not proposition.over_window:
        return unscored("the message was deleted before it was judged")
    if proposition.dimension == "consistency" and (message is None or earlier is None):
        return unscored("a message of the pair was deleted before it was judged")
    if message is not None and proposition.precondition:
        target = Target(message.text, message.channel.kind, message.parent_id is not None)
        if not PRECONDITIONS[proposition.precondition](target, additional or {}, variables_in(subject, message)):
            return trivial(f"precondition {proposition.precondition} does not hold")
    if message is not None and proposition.rule:
        return verdict_by_rule(proposition.rule, message.text, inverted=proposition.inverted)
    return None


def variables_in(subject: Subject | ChannelSubject, message: Message) -> dict[str, str]:
    """Values of the variables of a claim about one message."""
    name = subject.agent.display_name if isinstance(subject, Subject) else subject.name
    return {"agent_name": one_line(name), "channel_name": one_line(str(message.channel))}


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

"""What the gate asks about a draft: the action-level claims of each dimension, and the questions to a judge made of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.llm import Label
from correction.gate_values import Action
from evaluation.judge import MAX_PER_CALL, Question
from evaluation.prompts import Context
from evaluation.propositions.files import DEFAULT, LoadedFile, PropositionError, applying, load_all, propositions_for
from evaluation.propositions.schema import Proposition
from evaluation.trajectory import Window, cut_window


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims for a judge by dimension, and the files they and the agent's rules come from; `problem` where those are unusable."""

    files: tuple[LoadedFile, ...]
    judged: Mapping[str, tuple[Proposition, ...]]
    problem: str = ""

    @property
    def first_n(self) -> int:
        """Events that some claim wants to see from the start of the conversation."""
        return max((p.first_n for claims in self.judged.values() for p in claims), default=0)

    @property
    def last_n(self) -> int:
        """Events that some claim wants to see from its end."""
        return max((p.last_n for claims in self.judged.values() for p in claims), default=0)


def load_claims(
    *,
    agent_slug: str,
    dimensions: Collection[str],
    hard_adherence: bool = False,
    own: Sequence[LoadedFile] = (),
    seeded: bool = False,
) -> Claims:
    """The claims about a draft of this agent; the folders are looked at once.

    Args:
        agent_slug: Whose.
        dimensions: Those a judge is to be asked about. One without an action-level file has no claims.
        hard_adherence: Ask the adherence claims in hard mode (those that are not inverted).
        own: Files that lie in no folder; at action level they take the place of the shipped ones of their dimension.
        seeded: Whether the agent is one of the examples (`Agent.seeded`): only then their propositions apply.

    Returns:
        The claims. Files that cannot be used are no exception: a draft must not wait for somebody to mend a file.
    """
    try:
        files = tuple(applying(load_all(), seeded=seeded))
    except PropositionError as error:
        return Claims((), {}, f"proposition files cannot be used: {error.problems[0]}")
    replaced = {file.dimension for file in own if file.level == "action"}
    files = (
        *(f for f in files if not (f.agent_id == DEFAULT and f.level == "action" and f.dimension in replaced)),
        *own,
    )
    judged: dict[str, tuple[Proposition, ...]] = {}
    for dimension in dimensions:
        found = propositions_for(agent_slug=agent_slug, dimension=dimension, level="action", files=files, seeded=seeded)
        hard = hard_adherence and dimension == "adherence"
        judged[dimension] = tuple(replace(p, hard=p.hard or (hard and not p.inverted)) for p in found if p.rule is None)
    return Claims(files, judged)


def questions(*, action: Action, claims: Claims, label: Label, model: str, gate: bool) -> list[tuple[str, Question]]:
    """The questions to a judge, with their dimensions: one per dimension unless its claims want to see different things."""
    found: list[tuple[str, Question]] = []
    for dimension, propositions in claims.judged.items():
        for group in _sharing_context(propositions):
            question = Question(
                propositions=group,
                context=context_of(action, group[0].first_n, group[0].last_n),
                label=replace(label, dimension=dimension),
                model=model,
                gate=gate,
            )
            found.append((dimension, question))
    return found


def _sharing_context(claims: Sequence[Proposition]) -> Iterator[tuple[Proposition, ...]]:
    groups: dict[object, list[Proposition]] = {}
    for claim in claims:
        groups.setdefault(claim.context_key, []).append(claim)
    for group in groups.values():
        for start in range(0, len(group), MAX_PER_CALL):
            yield tuple(group[start : start + MAX_PER_CALL])


def context_of(action: Action, first_n: int, last_n: int) -> Context:
    """What the judge is shown of a draft, with that many events around the gap. The persona stays away where a claim withholds it."""
    return Context(
        agent_name=action.agent_name,
        persona=action.persona,
        window=_window(action, first_n, last_n),
        action=action.text,
        channel_name=action.channel_name,
    )


def _window(action: Action, first_n: int, last_n: int) -> Window:
    if not action.omitted:
        return cut_window(action.events, first_n=first_n, last_n=last_n)
    first, last = action.events[: action.head], action.events[action.head :]
    last_start = max(0, len(last) - last_n)
    omitted = action.omitted + max(0, len(first) - first_n) + last_start
    return Window(first[:first_n], omitted, last[last_start:])

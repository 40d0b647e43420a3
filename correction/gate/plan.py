"""Choose what a draft is checked for: dimensions, thresholds, and the propositions that the judge is asked about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from django.conf import settings

from agents.models import Agent
from correction.config.settings import ResolvedConfig
from evaluation.propositions.files import (
    DEFAULT,
    LoadedFile,
    PropositionError,
    applying,
    load_all,
    problems_at_gate,
    propositions_for,
)
from evaluation.propositions.schema import Proposition


@dataclass(frozen=True, slots=True)
class DraftPropositions:
    """The propositions a judge is asked about a draft, and the files they and the agent's rules come from.

    Attributes:
        files: All files that apply; the agent's rules are read from them.
        judged: The propositions by dimension.
        problem: Why the files cannot be used; empty when they can.
    """

    files: tuple[LoadedFile, ...]
    judged: Mapping[str, tuple[Proposition, ...]]
    problem: str = ""

    @property
    def all_judged(self) -> list[Proposition]:
        """Return the propositions of all dimensions."""
        return [proposition for propositions in self.judged.values() for proposition in propositions]

    @property
    def first_n(self) -> int:
        """Return the most events that one of them wants to see from the start of the conversation."""
        return max((proposition.first_n for proposition in self.all_judged), default=0)

    @property
    def last_n(self) -> int:
        """Return the most events that one of them wants to see from the end of the conversation."""
        return max((proposition.last_n for proposition in self.all_judged), default=0)

    @property
    def show_persona(self) -> bool:
        """Return whether one of them is judged with the persona in sight."""
        return any(proposition.include_personas for proposition in self.all_judged)


def load_propositions(
    *,
    agent_slug: str,
    dimensions: Sequence[str],
    hard: Collection[str] = (),
    own: Sequence[LoadedFile] = (),
    seeded: bool = False,
) -> DraftPropositions:
    """Return the propositions about a draft of this agent; the folders are read once.

    Files that cannot be used are a `problem` and no exception: a draft must not wait until they are corrected. Then the result has
    neither files nor propositions.

    Args:
        agent_slug: Whose propositions, with those of every agent; empty where no agent speaks.
        dimensions: Those a judge is to be asked about. One without an action-level file has no propositions.
        hard: Dimensions to ask about in hard mode, in which every flaw takes 20 % off (not the inverted propositions).
        own: Files that lie in no folder; at action level they replace the shipped ones of their dimension.
        seeded: Whether the agent is one of the examples (`Agent.seeded`): only then their propositions apply.
    """
    try:
        stored = applying(load_all(), seeded=seeded)
    except PropositionError as error:
        return DraftPropositions((), {}, f"proposition files cannot be used: {error.problems[0]}")
    problems = problems_at_gate(stored, agent_slug=agent_slug, dimensions=dimensions)
    if problems:
        return DraftPropositions((), {}, f"proposition files cannot be used: {problems[0]}")
    files = (*_not_replaced(stored, own), *own)
    for_judge: dict[str, tuple[Proposition, ...]] = {}
    for dimension in dimensions:
        propositions = propositions_for(
            agent_slug=agent_slug, dimension=dimension, level="action", files=files, seeded=seeded
        )
        # Rules need no judge: they are checked from `files`.
        without_rule = [proposition for proposition in propositions if proposition.rule is None]
        if dimension in hard:
            without_rule = [replace(p, hard=p.hard or not p.inverted) for p in without_rule]
        for_judge[dimension] = tuple(without_rule)
    return DraftPropositions(files, for_judge)


def _not_replaced(stored: Iterable[LoadedFile], own: Iterable[LoadedFile]) -> list[LoadedFile]:
    """Return the usable stored files, without the shipped action-level ones of a dimension for which there is an own file."""
    replaced = {file.dimension for file in own if file.level == "action"}
    unreplaced = []
    for file in stored:
        is_shipped_action = file.agent_id == DEFAULT and file.level == "action"
        if not file.problems and not (is_shipped_action and file.dimension in replaced):
            unreplaced.append(file)
    return unreplaced


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """What a draft is checked for.

    Attributes:
        agent: Who speaks; None for a speaker whom another program described.
        config: Of the agent, or the defaults.
        judge: The model that is asked.
        dimensions: All that get a result.
        judged_dimensions: Those that a judge is asked about; the others are checked by rules alone.
        thresholds: The lowest score (0 to 9) that passes, by dimension.
        check_rules: Whether the agent's rules, and with an offline judge its cues, are checked.
    """

    agent: Agent | None
    config: ResolvedConfig
    judge: str
    dimensions: tuple[str, ...]
    judged_dimensions: tuple[str, ...]
    thresholds: Mapping[str, Decimal]
    check_rules: bool
    propositions: DraftPropositions


def plan_check(
    *,
    agent: Agent | None,
    config: ResolvedConfig,
    dimensions: Sequence[str] = (),
    thresholds: Mapping[str, Decimal] | None = None,
    own: Sequence[LoadedFile] = (),
    check_rules: bool | None = None,
    judge: str = "",
) -> CheckPlan:
    """Return what a draft is to be checked for, with the propositions.

    Args:
        agent: Who speaks; None for a speaker whom another program described.
        dimensions: All that are checked, each by a judge; empty: as the configuration says, by which some are checked by rules alone.
        thresholds: Lowest scores that pass, 0 to 9; those of other dimensions are the configuration's.
        own: Files that lie in no folder, see `load_propositions`.
        check_rules: Whether rules and cues are checked; None: as the configuration says.
        judge: The model that is asked; empty: JUDGE_MODEL.
    """
    if dimensions:
        judged_dimensions = tuple(dimensions)
    else:
        dimensions = config.gate_dimensions
        judged_dimensions = tuple(d for d in dimensions if config[f"gate_{d}_enabled"])
    if check_rules is None:
        check_rules = bool(config["gate_rules_enabled"])
    limits = {dimension: config.threshold(dimension) for dimension in dimensions}
    limits |= thresholds or {}
    return CheckPlan(
        agent=agent,
        config=config,
        judge=judge or str(settings.JUDGE_MODEL),
        dimensions=tuple(dimensions),
        judged_dimensions=judged_dimensions,
        thresholds=limits,
        check_rules=check_rules,
        propositions=load_propositions(
            agent_slug=agent.slug if agent is not None else "",
            dimensions=judged_dimensions,
            hard=config.hard_dimensions,
            own=own,
            seeded=agent is not None and agent.seeded,
        ),
    )

"""TODO: what this module is for."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import sentry_sdk
from django.conf import settings
from django.db.models import Count, Subquery

from agents.llm import Label, complete_guarded, complete_together, warm_up
from agents.models import Agent, Channel, Message, PersonaVersion
from agents.persona import TraitValue, render_persona
from agents.turn.pipeline import Draft, Turn
from correction.config.resolve import ResolvedConfig
from correction.costs import over_budget
from correction.gate.scores import (
    Action,
    DimensionCheck,
    DimensionStatus,
    GateResult,
    Part,
    combine,
    judge_parts,
    part_of,
)
from evaluation.judge import MAX_PER_CALL, Question, build_request
from evaluation.models import is_heuristic
from evaluation.prompts import Context
from evaluation.propositions.files import DEFAULT, LoadedFile, PropositionError, applying, load_all, propositions_for
from evaluation.propositions.offline import check_draft
from evaluation.propositions.schema import Proposition, fill
from evaluation.trajectory import Event, Window, cut_window
from evaluation.verdicts import RULE_JUDGE


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


def action_of_draft(turn: Turn, draft: Draft, claims: Claims) -> Action:
    """A draft of a turn, with the end and the start of its channel as they are now."""
    trigger = turn.trigger
    return _action(
        text=draft.text,
        agent=turn.agent,
        channel=turn.channel,
        persona_version_id=turn.persona_version_id,
        before=None,
        is_reply=trigger is not None and trigger.channel_id == turn.channel.pk and trigger.parent_id is not None,
        claims=claims,
    )


def action_of_message(message: Message, agent: Agent, claims: Claims) -> Action:
    """A message that was said already, with what stood before it."""
    return _action(
        text=message.text,
        agent=agent,
        channel=message.channel,
        persona_version_id=message.persona_version_id,
        before=message.position,
        is_reply=message.parent_id is not None,
        claims=claims,
    )


def _action(
    *,
    text: str,
    agent: Agent,
    channel: Channel,
    persona_version_id: int | None,
    before: int | None,
    is_reply: bool,
    claims: Claims,
) -> Action:
    shown = any(p.include_personas for judged in claims.judged.values() for p in judged)
    asked = any(claims.judged.values())
    before_gap = _conversation(agent, channel, before, claims.first_n, claims.last_n) if asked else {}
    return Action(
        text=text,
        agent_name=agent.display_name,
        agent_slug=agent.slug,
        seeded=agent.seeded,
        persona=persona_of(agent, persona_version_id) if shown else None,
        channel_name=str(channel),
        channel_kind=channel.kind,
        is_reply=is_reply,
        **before_gap,
    )


def persona_of(agent: Agent, version_id: int | None) -> str:
    """The persona it speaks under: that of the version, or the agent's present one where there is no version."""
    found = PersonaVersion.objects.filter(pk=version_id).order_by() if version_id is not None else None
    version = found.values_list("system_prompt", "traits").first() if found is not None else None
    if version is None:
        return render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    return render_persona(system_prompt=version[0], traits=[TraitValue(**row) for row in version[1]])


def _conversation(agent: Agent, channel: Channel, before: int | None, first_n: int, last_n: int) -> dict[str, Any]:
    """The first and the last events of the channel. A short channel costs one query, a long one two."""
    said = Message.objects.filter(channel=channel)
    if not channel.synthetic:  # what was played for an evaluation is no part of a real conversation
        said = said.filter(synthetic=False)
    if before is not None:
        said = said.filter(position__lt=before)
    latest = list(said.order_by("-position").values_list(*_COLUMNS)[: first_n + last_n + 1])[::-1]
    if len(latest) <= first_n + last_n:
        return {"events": tuple(_event(agent, row) for row in latest)}
    total = said.order_by().values("channel").annotate(number=Count("pk")).values("number")
    first = list(said.annotate(total=Subquery(total)).order_by("position").values_list(*_COLUMNS, "total")[:first_n])
    known = first[0][-1] if first else said.count()
    events = tuple(_event(agent, row) for row in (*first, *latest[len(latest) - last_n :]))
    return {"events": events, "head": len(first), "omitted": max(1, known - len(events))}


# The columns an event is made of, and no others: rows of three whole tables cost more than the query itself.
_COLUMNS = ("agent", "agent__display_name", "user__username", "user__first_name", "user__last_name", "outsider", "text")


def _event(agent: Agent, row: Sequence[Any]) -> Event:
    author, display_name, username, first_name, last_name, outsider, text = row[: len(_COLUMNS)]
    if author == agent.pk:
        return Event("action", agent.display_name, text)
    speaker = display_name or f"{first_name or ''} {last_name or ''}".strip() or username or outsider
    return Event("stimulus", agent.display_name, text, speaker=speaker)


NO_CLAIM = "no proposition file of this dimension has level: action"


def check_action_quality(
    *,
    action: Action,
    dimensions: Sequence[str],
    thresholds: Mapping[str, Decimal],
    label: Label,
    deadline: float,
    judged: Collection[str] | None = None,
    rules: bool = True,
    hard_adherence: bool = False,
    within_budget: bool = True,
    model: str = "",
    gate: bool = True,
    shortened: bool = False,
    claims: Claims | None = None,
) -> GateResult:
    """Judge a draft on every dimension, all at once (AC-7.0.1). Never raises for what a judge, a server or a proposition file does.

    The agent's own rules, and with an offline judge its cues, are looked at first and cost nothing; the worst of judge, rules and
    cues is the score of adherence. What cannot be judged passes, and says why. No transaction may be open here.

    Args:
        action: The draft, and what it is judged by.
        dimensions: What to check, in the order of the answer.
        thresholds: Lowest score that passes, 0 to 9, by dimension.
        label: Columns of the ledger rows; `dimension` is filled in.
        deadline: Seconds for judging each dimension; they run side by side. 0 or less: no time is left, nobody is asked.
        judged: The dimensions a judge is asked about; default all. The others are checked by rules alone.
        rules: Whether the agent's rules and cues are looked at (adherence).
        hard_adherence: Judge adherence in hard mode: every flaw takes 20 % off.
        within_budget: False when the agent's budget is used up: no judge is asked.
        model: Overrides the configured judge.
        gate: Whether the calls may use the slots reserved for drafts, without retries, and pass at once where the judge hangs;
            False for what can wait.
        shortened: The deadline is less than what is configured: that a judge is late says nothing about it.
        claims: What `load_claims` returned for the same agent and dimensions, where the caller has it.
    """
    judge = model or str(settings.JUDGE_MODEL)
    asked = [d for d in dimensions if judged is None or d in judged]
    if asked:
        warm_up("judge", model=model)  # the first call of a process: importing is no judging
    begun, started_at = time.perf_counter(), datetime.now(UTC)
    with sentry_sdk.start_span(op="correction.gate.check", name="check a draft") as span:
        own: list[Part] = []
        looked_ms = 0.0
        parts: dict[str, list[Part]] = {dimension: [] for dimension in dimensions}
        claims = claims or load_claims(
            agent_slug=action.agent_slug, dimensions=asked, hard_adherence=hard_adherence, seeded=action.seeded
        )
        if claims.problem:
            parts = {dimension: [_unjudged("error", claims.problem)] for dimension in dimensions}
        else:
            own = _own_parts(action, claims, judge) if rules and "adherence" in parts else []
            looked_ms = (time.perf_counter() - begun) * 1000
            hindrance = _hindrance(deadline=deadline, within_budget=within_budget)
            for dimension, answers in _ask(action, claims, label, model, gate, shortened, deadline, hindrance):
                parts[dimension] += answers
            for dimension in asked:
                parts[dimension] = parts[dimension] or [_unjudged("unscored", NO_CLAIM)]
        checks = tuple(
            combine(dimension=d, threshold=thresholds[d], claims=parts[d], own=own if d == "adherence" else ())
            for d in dimensions
        )
        for check in checks:
            _trace(check, started_at)
        result = GateResult(
            dimensions=checks,
            judge=judge if asked else RULE_JUDGE,
            duration_ms=round(looked_ms + max((check.duration_ms for check in checks), default=0)),
        )
        span.set_data("gate.passed", result.passed)
        span.set_data("gate.judge", result.judge)
        return result


def _own_parts(action: Action, claims: Claims, judge: str) -> list[Part]:
    """What the agent's own propositions say of the draft without a model."""
    variables = context_of(action, 0, 0).variables()
    verdicts = check_draft(
        agent_slug=action.agent_slug,
        text=action.text,
        channel_kind=action.channel_kind,
        is_reply=action.is_reply,
        cues=is_heuristic(judge),
        variables=variables,
        files=claims.files,
        seeded=action.seeded,
    )
    return [
        part_of(p, replace(verdict, judge=verdict.judge or judge), about=_about(p, variables))
        for p, verdict in verdicts
    ]


def _about(proposition: Proposition, variables: Mapping[str, str]) -> str:
    """The claim in words; of an anti-pattern, that it is one."""
    claim = fill(proposition.claim, {"channel_name": "this channel", **variables})
    return f"Not to be seen in this agent: “{claim}”" if proposition.inverted else claim


def _hindrance(*, deadline: float, within_budget: bool) -> tuple[DimensionStatus, str] | None:
    """Why no judge is asked; None when it is."""
    if not within_budget:
        return "budget", "the agent's budget for today is used up"
    if deadline <= 0:
        return "timeout", "the time for judging this message was used up by earlier attempts"
    return None


def _ask(
    action: Action,
    claims: Claims,
    label: Label,
    model: str,
    gate: bool,
    shortened: bool,
    deadline: float,
    hindrance: tuple[DimensionStatus, str] | None,
) -> list[tuple[str, list[Part]]]:
    """The judge's parts, by dimension; all questions are asked at the same time."""
    if hindrance is not None:
        status, reason = hindrance
        return [(d, [_unjudged(status, reason, p.id) for p in found]) for d, found in claims.judged.items()]
    asked = questions(action=action, claims=claims, label=label, model=model, gate=gate)
    if not asked:
        return []
    requests = [build_request(question) for _, question in asked]
    if gate:
        about = None if shortened else (action.agent_slug, action.agent_name, hash(action.text))
        replies = complete_guarded(requests, deadline=deadline, about=about)
    else:
        replies = complete_together(requests, deadline=deadline)
    return [(d, judge_parts(question, reply)) for (d, question), reply in zip(asked, replies, strict=True)]


def _unjudged(status: DimensionStatus, reason: str, name: str = "") -> Part:
    return Part(id=name, judge="", status=status, reason=reason[:300])


def _trace(check: DimensionCheck, started_at: datetime) -> None:
    """A span per dimension (AC-7.0.16). They ran side by side, so it is made afterwards with the time it took."""
    span = sentry_sdk.start_span(
        op="correction.gate.check.dimension", name=f"check {check.dimension}", start_timestamp=started_at
    )
    span.set_data("gate.dimension", check.dimension)
    span.set_data("gate.status", check.status)
    span.set_data("gate.passed", check.passed)
    if check.score is not None:
        span.set_data("gate.score", check.score)
    span.finish(end_timestamp=started_at + timedelta(milliseconds=check.duration_ms))


def check_for_agent(
    *,
    agent: Agent,
    config: ResolvedConfig,
    run_id: int | None,
    work_id: str,
    deadline: float,
    action: Callable[[Claims], Action],
    gate: bool = True,
) -> GateResult:
    """Check what an agent is about to say, or said, on the dimensions its configuration enables.

    Args:
        agent: Who speaks.
        config: Its configuration in effect.
        run_id, work_id: Columns of the ledger rows.
        deadline: Seconds for judging each dimension; 0 or less: there is no time left.
        action: Makes the draft and its context, once it is known what the claims want to see.
        gate: Whether the calls may use the slots reserved for drafts; False for what can wait.
    """
    dimensions = config.gate_dimensions
    judged = [d for d in dimensions if config[f"gate_{d}_enabled"]]
    claims = load_claims(
        agent_slug=agent.slug,
        dimensions=judged,
        hard_adherence=bool(config["gate_adherence_hard"]),
        seeded=agent.seeded,
    )
    return check_action_quality(
        action=action(claims),
        dimensions=dimensions,
        thresholds={d: config.threshold(d) for d in dimensions},
        label=Label(purpose="gate", mechanism="gate", agent_id=agent.pk, run_id=run_id, work_id=work_id),
        deadline=deadline,
        judged=judged,
        rules=bool(config["gate_rules_enabled"]),
        within_budget=not (judged and over_budget(agent, config)),
        gate=gate,
        shortened=deadline < float(config["gate_deadline_seconds"]),
        claims=claims,
    )

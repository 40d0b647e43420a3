"""Checking a draft on several dimensions at once (S-7.0). Knows no session and no row: a draft, a persona and a window are enough."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import sentry_sdk
from django.conf import settings

from agents.llm import Label, complete_guarded, complete_together, warm_up
from correction.gate_claims import Claims, context_of, load_claims, questions
from correction.gate_scores import combine, judge_parts, part_of
from correction.gate_values import Action, DimensionCheck, DimensionStatus, GateResult, Part
from evaluation.judge import build_request
from evaluation.models import is_heuristic
from evaluation.propositions.offline import check_draft
from evaluation.propositions.schema import Proposition, fill
from evaluation.verdicts import RULE_JUDGE

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
    with sentry_sdk.start_span(op="correction.gate", name="check a draft") as span:
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
        op="correction.gate.dimension", name=f"check {check.dimension}", start_timestamp=started_at
    )
    span.set_data("gate.dimension", check.dimension)
    span.set_data("gate.status", check.status)
    span.set_data("gate.passed", check.passed)
    if check.score is not None:
        span.set_data("gate.score", check.score)
    span.finish(end_timestamp=started_at + timedelta(milliseconds=check.duration_ms))

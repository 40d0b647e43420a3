"""Check a draft on several dimensions at once (S-7.0): rules and judge, and their verdicts as one result per dimension.

It knows no session and no row: a draft with its surroundings (`actions`) and what it is checked for (`plan`) are enough.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import sentry_sdk

from agents.kit.llm import Label, Reply, complete_guarded, complete_together, warm_up
from agents.kit.running import OUTAGE
from correction.costs import over_budget
from correction.gate.actions import Action
from correction.gate.plan import CheckPlan, DraftPropositions
from correction.gate.results import (
    DimensionStatus,
    GateResult,
    PropositionResult,
    combine,
    read_judge_reply,
    result_of_verdict,
)
from correction.models import GateDimensionResult
from evaluation.dimensions import TAKES_RULES
from evaluation.judge.offline import check_draft
from evaluation.judge.questions import MAX_PER_CALL, Question, build_request
from evaluation.models import RULE_JUDGE, PatternTimeout, is_heuristic
from evaluation.propositions.schema import Proposition, fill

BUDGET_USED_UP = "the agent's budget for today is used up"
logger = logging.getLogger(__name__)


def check_action_quality(
    action: Action,
    plan: CheckPlan,
    *,
    work_id: str,
    deadline: float,
    run_id: int | None = None,
    gate: bool = True,
    replies: Sequence[Reply | None] | None = None,
) -> GateResult:
    """Judge a draft on every dimension of its plan at once (AC-7.0.1).

    Never raises for what a judge, a server or a proposition file does: an unjudgeable draft is let through, and the result says why. The
    agent's own rules, and with an offline judge its cues, are checked first and cost nothing; the worst of judge, rules and cues is the
    dimension's score. No transaction may be open here.

    Args:
        run_id, work_id: Columns of the ledger rows.
        deadline: Seconds for judging each dimension, all at the same time. 0 or less: no time is left, no judge is asked.
        gate: Whether the calls may use the slots reserved for drafts, without retries, and pass at once where the judge hangs;
            False for what can wait.
        replies: What the judge answered to `questions_of_check` already, in their order: then it is not asked here. None in place of one:
            it could not be asked, as the budget is used up.
    """
    checked = check_actions(
        [action], plan, work_id=work_id, deadline=deadline, run_id=run_id, gate=gate, replies=replies
    )
    return checked[0]


def check_actions(
    actions: Sequence[Action],
    plan: CheckPlan,
    *,
    work_id: str,
    deadline: float,
    run_id: int | None = None,
    gate: bool = True,
    replies: Sequence[Reply | None] | None = None,
    about: str = "",
) -> list[GateResult]:
    """Judge several texts of one speaker at the same time, such as the beginnings of one message; see `check_action_quality`.

    Args:
        about: Tells the message from others, where it is checked several times while it grows; empty: its text does.

    Returns:
        A result for each, in their order.
    """
    judge = RULE_JUDGE
    if plan.judged_dimensions:
        judge = plan.judge
        warm_up("judge", model=judge)  # the first call of a process imports the SDK: that is no time of judging
    started_at = datetime.now(UTC)
    with sentry_sdk.start_span(op="correction.gate", name="check a draft") as span:
        by_rules: list[dict[str, list[PropositionResult]]] = []
        rules_ms: list[float] = []
        for action in actions:
            started = time.perf_counter()
            by_rules.append(_results_of_rules(action, plan))
            rules_ms.append((time.perf_counter() - started) * 1000)
        by_judge = _results_of_judge(
            actions, plan, work_id=work_id, run_id=run_id, deadline=deadline, gate=gate, replies=replies, about=about
        )
        _count_slow_patterns(*by_rules, *by_judge)
        gate_results = []
        for number in range(len(actions)):
            result = _gate_result(
                plan, judge=judge, by_rules=by_rules[number], by_judge=by_judge[number], rules_ms=rules_ms[number]
            )
            for dimension_result in result.dimensions:
                _add_span(dimension_result, started_at)
            gate_results.append(result)
        span.set_data("gate.passed", all(result.passed for result in gate_results))
        span.set_data("gate.judge", judge)
        return gate_results


def _gate_result(
    plan: CheckPlan,
    *,
    judge: str,
    by_rules: Mapping[str, Sequence[PropositionResult]],
    by_judge: Mapping[str, Sequence[PropositionResult]],
    rules_ms: float,
) -> GateResult:
    """Return the result of one text on all dimensions of the plan."""
    dimension_results = []
    for dimension in plan.dimensions:
        dimension_result = combine(
            dimension=dimension,
            threshold=plan.thresholds[dimension],
            judged=by_judge.get(dimension, ()),
            own=by_rules.get(dimension, ()),
        )
        dimension_results.append(dimension_result)
    slowest_ms = max((result.duration_ms for result in dimension_results), default=0)  # they ran side by side
    calls = {result.call for results in by_judge.values() for result in results if result.call is not None}
    return GateResult(
        dimensions=tuple(dimension_results),
        judge=judge,
        duration_ms=round(rules_ms + slowest_ms),
        calls=frozenset(calls),
    )


def _count_slow_patterns(*results_by_dimension: Mapping[str, Sequence[PropositionResult]]) -> None:
    """Store how often which pattern took too long, for the pages of their rules; results of other kinds are passed over.

    Where the database is out of reach nothing is counted, and a warning is logged.
    """
    reasons = []
    for by_dimension in results_by_dimension:
        for dimension, results in by_dimension.items():
            reasons += [(dimension, result.id, result.reason) for result in results]
    try:
        PatternTimeout.count(reasons)  # only those whose reason is a time-out
    except OUTAGE as error:  # the verdicts are here: a count is not worth the check
        logger.warning("patterns that took too long are not counted: %s", error)


def _add_span(result: GateDimensionResult, started_at: datetime) -> None:
    """Send a dimension's span to the tracing service (AC-7.0.16), begun at `started_at` and as long as its slowest call took.

    It is made afterwards, as the dimensions were judged at the same time.
    """
    span = sentry_sdk.start_span(
        op="correction.gate.dimension", name=f"check {result.dimension}", start_timestamp=started_at
    )
    span.set_data("gate.dimension", result.dimension)
    span.set_data("gate.status", result.status)
    span.set_data("gate.passed", result.passed)
    if result.score is not None:
        span.set_data("gate.score", result.score)
    span.finish(end_timestamp=started_at + timedelta(milliseconds=result.duration_ms))


def _results_of_rules(action: Action, plan: CheckPlan) -> dict[str, list[PropositionResult]]:
    """Return by dimension what rules, and with an offline judge cues, say of the draft without a model.

    A dimension that takes rules has an empty list where nothing is checked: rules are switched off, or the files cannot be used.
    """
    by_dimension: dict[str, list[PropositionResult]] = {d: [] for d in plan.dimensions if d in TAKES_RULES}
    if not by_dimension or not plan.check_rules or plan.propositions.problem:
        return by_dimension
    judge = plan.judge
    variables = action.context(0, 0).variables()
    verdicts = check_draft(
        agent_slug=action.agent_slug,
        text=action.text,
        channel_kind=action.channel_kind,
        is_reply=action.is_reply,
        cues=is_heuristic(judge),
        variables=variables,
        files=plan.propositions.files,
        seeded=action.seeded,
        growing=action.growing,
    )
    for proposition, verdict in verdicts:
        if proposition.dimension in by_dimension:
            about = fill(proposition.claim, {"channel_name": "this channel", **variables})
            if proposition.inverted:
                about = f"Not to be seen in this agent: “{about}”"
            with_judge = replace(verdict, judge=verdict.judge or judge)
            by_dimension[proposition.dimension].append(result_of_verdict(proposition, with_judge, about=about))
    return by_dimension


def questions_of_check(
    action: Action, plan: CheckPlan, *, work_id: str, run_id: int | None = None, gate: bool
) -> list[tuple[str, Question]]:
    """Return what a judge is asked in `check_action_quality`, each question with its dimension; nothing where the files cannot be used."""
    label = Label(
        purpose="gate",
        mechanism="gate",
        agent_id=plan.agent.pk if plan.agent is not None else None,
        run_id=run_id,
        work_id=work_id,
    )
    return questions_of(action, plan.propositions, label, gate=gate, judge=plan.judge)


def questions_of(
    action: Action, propositions: DraftPropositions, label: Label, *, gate: bool, judge: str = ""
) -> list[tuple[str, Question]]:
    """Return what a judge is asked about a draft, each question with its dimension.

    Propositions of a dimension that are judged with the same context go together, at most `MAX_PER_CALL` in a question. Those whose
    precondition the draft does not meet are not asked about.

    Args:
        gate: Whether the calls may use the slots reserved for drafts.
        judge: The model that is asked; empty: JUDGE_MODEL.
    """
    questions: list[tuple[str, Question]] = []
    for dimension, of_dimension in propositions.judged.items():
        by_context: dict[object, list[Proposition]] = {}
        for proposition in of_dimension:
            if action.without_judge(proposition) is None:
                by_context.setdefault(proposition.context_key, []).append(proposition)
        for same_context in by_context.values():
            context = action.context(same_context[0].first_n, same_context[0].last_n)
            for start in range(0, len(same_context), MAX_PER_CALL):
                question = Question(
                    propositions=tuple(same_context[start : start + MAX_PER_CALL]),
                    context=context,
                    label=replace(label, dimension=dimension),
                    model=judge,
                    gate=gate,
                )
                questions.append((dimension, question))
    return questions


class _NumberedQuestion(NamedTuple):
    """A question about the text of that number, in one dimension."""

    number: int
    dimension: str
    question: Question


def _results_of_judge(
    actions: Sequence[Action],
    plan: CheckPlan,
    *,
    work_id: str,
    run_id: int | None,
    deadline: float,
    gate: bool,
    replies: Sequence[Reply | None] | None,
    about: str,
) -> list[dict[str, list[PropositionResult]]]:
    """Return for each text by dimension what the judge says of it, or why it was not asked.

    It is not asked where the proposition files cannot be used (an error in every dimension), no dimension is to be judged (empty), the
    agent's budget is used up, or no time is left (`deadline`, in seconds); nor where there are `replies` already.
    """
    problem = plan.propositions.problem
    if problem:
        return [{dimension: [_unjudged("error", problem)] for dimension in plan.dimensions} for _ in actions]
    if not plan.judged_dimensions:
        return [{} for _ in actions]
    questions: list[_NumberedQuestion] = []
    for number, action in enumerate(actions):
        for dimension, question in questions_of_check(action, plan, work_id=work_id, run_id=run_id, gate=gate):
            questions.append(_NumberedQuestion(number, dimension, question))
    if replies is None:
        if plan.config.has_budget and over_budget(plan.agent, plan.config):
            return [_not_asked(action, plan, "budget", BUDGET_USED_UP) for action in actions]
        if deadline <= 0:
            why = "the time for judging this message was used up by earlier attempts"
            return [_not_asked(action, plan, "timeout", why) for action in actions]
        replies = []
        if questions:
            key = _key_for_breaker(actions[-1], plan, deadline, about)
            replies = _ask_judge([numbered.question for numbered in questions], deadline=deadline, gate=gate, key=key)
    results = [_results_without_judge(action, plan) for action in actions]
    for numbered, reply in zip(questions, replies, strict=True):
        results[numbered.number][numbered.dimension] += _results_of_reply(numbered.question, reply)
    return [_with_reason_for_none(by_dimension) for by_dimension in results]


def _results_of_reply(question: Question, reply: Reply | None) -> list[PropositionResult]:
    """Return a result for each proposition of a question; without a reply its call was not made, as the budget is used up."""
    if reply is None:
        return [_unjudged("budget", BUDGET_USED_UP, proposition.id) for proposition in question.propositions]
    return read_judge_reply(question, reply)


def _ask_judge(
    questions: Sequence[Question], *, deadline: float, gate: bool, key: tuple[str, str, int] | None
) -> list[Reply]:
    """Ask all questions at the same time, and return the replies. Those of a gate are not asked while the judge hangs; see `Breaker`."""
    requests = [build_request(question) for question in questions]
    if gate:
        return complete_guarded(requests, deadline=deadline, about=key)
    return complete_together(requests, deadline=deadline)


def _key_for_breaker(action: Action, plan: CheckPlan, deadline: float, about: str) -> tuple[str, str, int] | None:
    """Return what tells the draft from others for the breaker of an endpoint that hangs.

    None where less time is left than is configured: that a judge is late then says nothing about it.
    """
    if deadline < float(plan.config["gate_deadline_seconds"]):
        return None
    return action.agent_slug, action.agent_name, hash(about or action.text)


def _results_without_judge(action: Action, plan: CheckPlan) -> dict[str, list[PropositionResult]]:
    """Return by judged dimension the results of the propositions whose precondition decides about this draft."""
    by_dimension: dict[str, list[PropositionResult]] = {}
    for dimension in plan.judged_dimensions:
        by_dimension[dimension] = []
        for proposition in plan.propositions.judged[dimension]:
            verdict = action.without_judge(proposition)
            if verdict is not None:
                by_dimension[dimension].append(result_of_verdict(proposition, verdict))
    return by_dimension


def _not_asked(
    action: Action, plan: CheckPlan, status: DimensionStatus, reason: str
) -> dict[str, list[PropositionResult]]:
    """Return by dimension that none of its propositions was asked about, and why; no reason is needed where its precondition decides."""
    by_dimension = _results_without_judge(action, plan)
    for dimension, results in by_dimension.items():
        decided = {result.id for result in results}
        for proposition in plan.propositions.judged[dimension]:
            if proposition.id not in decided:
                results.append(_unjudged(status, reason, proposition.id))
    return _with_reason_for_none(by_dimension)


def _with_reason_for_none(
    by_dimension: dict[str, list[PropositionResult]],
) -> dict[str, list[PropositionResult]]:
    """Say of each dimension without propositions why there is nothing to ask."""
    for results in by_dimension.values():
        if not results:
            results.append(_unjudged("unscored", "no proposition file of this dimension has level: action"))
    return by_dimension


def _unjudged(status: DimensionStatus, reason: str, proposition_id: str = "") -> PropositionResult:
    return PropositionResult(id=proposition_id, judge="", status=status, reason=reason[:300])

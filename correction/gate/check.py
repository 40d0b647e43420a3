"""Check a draft on several dimensions at once (S-7.0): what the judge is asked and shown, and its verdicts as one result per dimension.

Three steps: `plan_check` chooses dimensions and propositions, `action_of_draft` or `action_of_message` reads what the propositions want
to see, `check_action_quality` judges. The last knows no session and no row: a draft, a persona and a window are enough.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import sentry_sdk
from django.conf import settings

from agents.kit.llm import Label, Reply, Status, complete_guarded, complete_together, warm_up
from agents.kit.running import OUTAGE
from agents.kit.text.patterns import TIMED_OUT
from agents.kit.text.storable import storable
from agents.models import Agent, Channel, Message, PersonaVersion
from agents.personas.persona import TraitValue, render_persona
from agents.turn.pipeline import Draft, Turn
from correction.config.settings import ResolvedConfig
from correction.costs import over_budget
from correction.models import CorrectionLog, GateDimensionResult, Outcome
from evaluation.dimensions import TAKES_RULES
from evaluation.judge.offline import check_draft
from evaluation.judge.questions import (
    MALFORMED,
    MAX_PER_CALL,
    MAX_SCORE,
    PRECONDITION_FAILED,
    Question,
    Verdict,
    build_request,
    read_reply,
    verdict_by_precondition,
)
from evaluation.models import RULE_JUDGE, PatternTimeout, is_heuristic
from evaluation.propositions.files import (
    DEFAULT,
    LoadedFile,
    PropositionError,
    applying,
    load_all,
    problems_at_gate,
    propositions_for,
)
from evaluation.propositions.preconditions import Target
from evaluation.propositions.schema import Proposition, fill
from evaluation.scorers.subjects import Context, Event, Window, cut_window, event_of, manners_of, read_ends

DimensionStatus = Literal["scored", "trivial", "unscored", "timeout", "overload", "error", "budget"]
BUDGET_USED_UP = "the agent's budget for today is used up"
REQUESTS_STAGE = "behavior"  # its sections say what people asked for in this channel
logger = logging.getLogger(__name__)

# Where nothing failed and not everything could be judged, the first of these that occurs names the outcome.
UNJUDGED: dict[DimensionStatus, Outcome] = {
    "timeout": Outcome.TIMEOUT_PASSED,
    "overload": Outcome.OVERLOAD_PASSED,
    "error": Outcome.ERROR_PASSED,
    "budget": Outcome.BUDGET_PASSED,
    "unscored": Outcome.UNSCORED_PASSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PropositionResult:
    """The result of one rule, cue or judged proposition of a dimension. `about` says in words what a rule or cue stands for."""

    id: str
    judge: str
    status: DimensionStatus
    score: float | None = None
    weight: float = 1.0
    about: str = ""
    reasoning: str = ""
    recommendations: str = ""
    reason: str = ""
    call: int | None = None
    duration_ms: int = 0

    @property
    def sentence(self) -> str:
        """Return the reasoning, with what the rule or cue stands for before it; empty without a reasoning."""
        if self.about and self.reasoning:
            return f"{self.about.rstrip('. ')}: {self.reasoning}"
        return self.reasoning

    def as_json(self) -> dict[str, Any]:
        """Return what the log stores of it."""
        return {
            "id": self.id,
            "judge": self.judge,
            "status": self.status,
            "score": self.score,
            "reasoning": self.reasoning or self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The result of a draft on all dimensions that were asked for.

    Attributes:
        dimensions: A row for each, not saved yet. An unjudgeable one has no score and passed (fail-open).
        judge: The model asked; ``rule`` where none was.
        duration_ms: The time of rules and of the slowest call, without what a process does once (importing the SDK, making its client).
        calls: Ledger rows of the calls.
    """

    dimensions: tuple[GateDimensionResult, ...]
    judge: str = ""
    duration_ms: int = 0
    calls: frozenset[int] = frozenset()

    @property
    def failures(self) -> tuple[GateDimensionResult, ...]:
        """Return the dimensions that failed."""
        return tuple(result for result in self.dimensions if not result.passed)

    @property
    def passed(self) -> bool:
        """Return whether no dimension failed."""
        return not self.failures

    @property
    def unjudged_outcome(self) -> Outcome | None:
        """Return the outcome of a draft that passes although not everything could be judged; None when everything was."""
        statuses = {result.status for result in self.dimensions}
        for status, outcome in UNJUDGED.items():
            if status in statuses:
                return outcome
        return None

    @property
    def score_sum(self) -> float | None:
        """Return the sum of the scores; None where nothing was scored."""
        scores = scores_of(self.dimensions)
        return sum(scores.values()) if scores else None

    def log(self, *, attempt: int, outcome: Outcome | None = None, **columns: Any) -> CorrectionLog:
        """Return the attempt (from 1) as a row that is not saved yet, with the dimensions as its `results`.

        Args:
            outcome: None: `CORRECTED`, which means sent back, where it failed; else passed (at once, after a retry, or unjudged and why).
            columns: Further columns of the row.
        """
        log = CorrectionLog(
            attempt=attempt,
            outcome=outcome or self._outcome(attempt),
            judge=self.judge[:200],
            duration_ms=self.duration_ms,
            score_sum=self.score_sum,
            **columns,
        )
        log.results = self.dimensions
        return log

    def _outcome(self, attempt: int) -> Outcome:
        """Return how the attempt ends."""
        if not self.passed:
            return Outcome.CORRECTED
        if self.unjudged_outcome is not None:
            return self.unjudged_outcome
        return Outcome.PASSED if attempt == 1 else Outcome.PASSED_AFTER_RETRY


def scores_of(results: Iterable[GateDimensionResult]) -> dict[str, float]:
    """Return the scores by dimension, of those that have one of their own."""
    return {r.dimension: r.score for r in results if r.status == "scored" and r.score is not None}


def read_judge_reply(question: Question, reply: Reply) -> list[PropositionResult]:
    """Return a result for each proposition that a judge was asked about, in their order.

    Its status is that of the call where the call failed; its duration the milliseconds of the whole call with its waiting.
    """
    claims = question.claims()
    results = []
    for (key, proposition), verdict in zip(question.keyed().items(), read_reply(question, reply), strict=True):
        about = ""
        if proposition.cues and is_heuristic(verdict.judge):
            # The offline judge names only the words it matched: they mean nothing without the claim.
            about = claims[key]
        result = result_of_verdict(proposition, verdict, about=about)
        status = _status_of_call(reply, verdict) or result.status
        results.append(replace(result, status=status, duration_ms=reply.latency_ms + reply.waited_ms))
    return results


def _status_of_call(reply: Reply, verdict: Verdict) -> DimensionStatus | None:
    """Return how the call failed; None where it brought an answer, even if only that this cannot be judged."""
    if reply.ok:
        return "error" if verdict.cause == MALFORMED else None
    if reply.status is not Status.TIMEOUT:
        return "error"
    if reply.attempts == 0:  # there was no free slot, or the endpoint hangs and was not asked
        return "overload"
    return "timeout"


def result_of_verdict(proposition: Proposition, verdict: Verdict, *, about: str = "") -> PropositionResult:
    """Return a verdict on a proposition as its result; without a score where the verdict has no value (not judged).

    A precondition that failed is an error, as a failed call is.

    Args:
        about: What the rule or cue stands for, in words; empty where the reasoning says enough.
    """
    return PropositionResult(
        id=proposition.id,
        judge=verdict.judge,
        status="error" if verdict.cause == PRECONDITION_FAILED else verdict.status,
        score=None if verdict.value is None else float(verdict.value),
        weight=proposition.weight,
        about=about,
        reasoning=verdict.reasoning,
        recommendations=proposition.recommendations,
        reason=verdict.reason,
        call=verdict.call,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """The outcome of a dimension. `decisive` is the proposition that decided it; None where there is none."""

    status: DimensionStatus
    score: float | None = None
    passed: bool = True
    decisive: PropositionResult | None = None
    reasoning: str = ""
    recommendations: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _LowestScore:
    """The lowest score of a dimension, and the proposition that stands for it."""

    score: float
    decisive: PropositionResult


def combine(
    *,
    dimension: str,
    threshold: Decimal,
    judged: Sequence[PropositionResult],
    own: Sequence[PropositionResult] = (),
) -> GateDimensionResult:
    """Return one dimension's result, not saved yet: its score is the worst of the judge's and of each of the agent's own rules and cues.

    The judge's score is the weighted mean of its propositions. Decided in this order: it fails where that score, or the one of a rule or
    cue, is below the threshold; it passes unjudged where a call failed or was not made for want of time or budget, however well the
    rules held, for they are only a part of it; it passes by its score; it passes where nothing has a score.

    Args:
        threshold: The lowest score (0 to 9) that passes.
        judged: Results of the propositions that a judge was asked about, also of those it could not be asked about.
        own: Results of the agent's rules and cues.
    """
    results = (*own, *judged)
    lowest = _lowest_score(judged, own)
    missing_verdict = _missing_verdict(results)
    if lowest is not None and lowest.score < threshold:
        finding = _failed_by_score(lowest, results, threshold)
    elif missing_verdict is not None:
        finding = _passed_without_verdict(missing_verdict)
    elif lowest is not None:
        finding = _passed_by_score(lowest)
    else:
        finding = _passed_without_score(results)
    decisive = finding.decisive  # the proposition that decided; None: none did
    row = GateDimensionResult(
        dimension=dimension,
        status=finding.status,
        score=finding.score,
        threshold=threshold,
        passed=finding.passed,
        reasoning=storable(finding.reasoning),
        recommendations=storable(finding.recommendations),
        reason=storable(finding.reason)[:300],
        parts=storable([result.as_json() for result in results]),
        call_id=next((result.call for result in judged if result.call is not None), None),
        duration_ms=max((result.duration_ms for result in judged), default=0),
    )
    if decisive is not None:
        row.judge = storable(decisive.judge)[:200]
        row.proposition_id = decisive.id
    return row


def _lowest_score(judged: Sequence[PropositionResult], own: Sequence[PropositionResult]) -> _LowestScore | None:
    """Return the lowest of the judge's mean score and of the score of each rule and cue; None where nothing is scored."""
    lowest = _mean_of_judge(judged)
    for result in own:
        if result.status == "scored" and result.score is not None and (lowest is None or result.score < lowest.score):
            lowest = _LowestScore(result.score, result)
    return lowest


def _mean_of_judge(judged: Sequence[PropositionResult]) -> _LowestScore | None:
    """Return the weighted mean of the judge's scores, with the proposition of the lowest one as decisive; None without any score."""
    total = 0.0
    weights = 0.0
    lowest: _LowestScore | None = None
    for result in judged:
        if result.status != "scored" or result.score is None:
            continue
        total += result.score * result.weight
        weights += result.weight
        if lowest is None or result.score < lowest.score:
            lowest = _LowestScore(result.score, result)
    if lowest is None:
        return None
    return _LowestScore(round(total / weights, 2), lowest.decisive)


def _missing_verdict(results: Iterable[PropositionResult]) -> PropositionResult | None:
    """Return a result whose call failed or was not made: a time-out before overload, error and budget; None where all were made."""
    failed: dict[str, PropositionResult] = {}
    for result in results:
        failed.setdefault(result.status, result)
    for status in ("timeout", "overload", "error", "budget"):
        if status in failed:
            return failed[status]
    return None


def _failed_by_score(lowest: _LowestScore, results: Sequence[PropositionResult], threshold: Decimal) -> _Finding:
    """Return a failed dimension with everything that speaks against the draft: what decided first, then by score, the lowest first."""
    below = [result for result in results if result.status == "scored" and (result.score or 0.0) < threshold]
    below.sort(key=lambda result: result.score or 0.0)
    against = [lowest.decisive, *(result for result in below if result is not lowest.decisive)]
    return _Finding(
        status="scored",
        score=lowest.score,
        passed=False,
        decisive=lowest.decisive,
        reasoning=_lines(result.sentence for result in against),
        recommendations=_lines(result.recommendations for result in below),
    )


def _lines(texts: Iterable[str]) -> str:
    """Return the texts as lines, each once, without empty ones."""
    return "\n".join(dict.fromkeys(text for text in texts if text))


def _passed_without_verdict(failed_call: PropositionResult) -> _Finding:
    """Return a dimension that passes because a call about it failed."""
    return _Finding(
        status=failed_call.status,
        decisive=failed_call,
        reasoning=failed_call.reasoning,
        reason=failed_call.reason,
    )


def _passed_by_score(lowest: _LowestScore) -> _Finding:
    """Return a dimension that passes by its score."""
    return _Finding(status="scored", score=lowest.score, decisive=lowest.decisive, reasoning=lowest.decisive.reasoning)


def _passed_without_score(results: Sequence[PropositionResult]) -> _Finding:
    """Return a dimension that passes because no proposition of it was scored.

    One that could not be false here (status `trivial`) gives it the best score, 9. Else it has none, and the reason of one that could
    not be scored; or the reason that there was nothing to check.
    """
    # False sorts before True: a pattern that took too long is named first, as its rule can be mended.
    time_outs_first = sorted(results, key=lambda result: not result.reason.startswith(TIMED_OUT))
    for status in ("trivial", "unscored"):
        for result in time_outs_first:
            if result.status == status:
                score = float(MAX_SCORE) if status == "trivial" else None
                return _Finding(
                    status=result.status,
                    score=score,
                    decisive=result,
                    reasoning=result.reasoning,
                    reason=result.reason,
                )
    return _Finding(status="unscored", reason="nothing to check it by")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A draft with everything it is judged by.

    Attributes:
        excerpt: What the judge is shown in place of `text`, where that is too long to show; rules are checked on all of it.
        agent_name: Who is about to say it, as the judge reads it.
        agent_slug: Whose propositions hold for it; those of every agent always do.
        seeded: Whether the agent is one of the examples, so that their propositions hold.
        persona: The rendered persona; None when there is none to show.
        events: What happened before, oldest first, without the draft. Where the conversation is long, the first `events_at_start`
            of them are its first events, `omitted` ones are left out after those, and the rest are its last events.
        channel_name, channel_kind: Where it is about to be said.
        is_reply: Whether it answers a message in a thread.
        growing: Whether `text` is the beginning of a message that is still being written: what only the whole can meet is not checked.
    """

    text: str
    agent_name: str
    agent_slug: str = ""
    seeded: bool = False
    persona: str | None = None
    events: tuple[Event, ...] = ()
    events_at_start: int = 0
    omitted: int = 0
    channel_name: str = ""
    channel_kind: str = ""
    is_reply: bool = False
    growing: bool = False
    excerpt: str = ""

    def context(self, first_n: int, last_n: int) -> Context:
        """Return what the judge is shown, with that many events from the start and the end."""
        return Context(
            agent_name=self.agent_name,
            persona=self.persona,
            window=self._window(first_n, last_n),
            action=self.excerpt or self.text,
            growing=self.growing,
            channel_name=self.channel_name,
        )

    def without_judge(self, proposition: Proposition) -> Verdict | None:
        """Return the verdict where the proposition's precondition decides; None where the judge is to be asked."""
        target = Target(text=self.text, channel_kind=self.channel_kind, is_reply=self.is_reply)
        return verdict_by_precondition(proposition, target, variables=self.context(0, 0).variables())

    def _window(self, first_n: int, last_n: int) -> Window:
        """Return the events that the judge is shown, and how many are left out between them."""
        if not self.omitted:  # `events` are all there were
            return cut_window(self.events, first_n=first_n, last_n=last_n)
        at_start = self.events[: self.events_at_start]
        at_end = self.events[self.events_at_start :]
        first = at_start[:first_n]
        last = at_end[max(0, len(at_end) - last_n) :]  # not [-last_n:], which is all for 0
        omitted = self.omitted + len(at_start) - len(first) + len(at_end) - len(last)
        return Window(first, omitted, last)


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
    judged: dict[str, tuple[Proposition, ...]] = {}
    for dimension in dimensions:
        propositions = propositions_for(
            agent_slug=agent_slug, dimension=dimension, level="action", files=files, seeded=seeded
        )
        # Rules need no judge: they are checked from `files`.
        without_rule = [proposition for proposition in propositions if proposition.rule is None]
        if dimension in hard:
            without_rule = [replace(p, hard=p.hard or not p.inverted) for p in without_rule]
        judged[dimension] = tuple(without_rule)
    return DraftPropositions(files, judged)


def _not_replaced(stored: Iterable[LoadedFile], own: Iterable[LoadedFile]) -> list[LoadedFile]:
    """Return the usable stored files, without the shipped action-level ones of a dimension for which there is an own file."""
    replaced = {file.dimension for file in own if file.level == "action"}
    kept = []
    for file in stored:
        is_shipped_action = file.agent_id == DEFAULT and file.level == "action"
        if not file.problems and not (is_shipped_action and file.dimension in replaced):
            kept.append(file)
    return kept


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
    asked: list[tuple[int, str, Question]] = []  # number of the text, dimension, question
    for number, action in enumerate(actions):
        for dimension, question in questions_of_check(action, plan, work_id=work_id, run_id=run_id, gate=gate):
            asked.append((number, dimension, question))
    if replies is None:
        if plan.config.has_budget and over_budget(plan.agent, plan.config):
            return [_not_asked(action, plan, "budget", BUDGET_USED_UP) for action in actions]
        if deadline <= 0:
            why = "the time for judging this message was used up by earlier attempts"
            return [_not_asked(action, plan, "timeout", why) for action in actions]
        replies = []
        if asked:
            key = _key_for_breaker(actions[-1], plan, deadline, about)
            replies = _ask_judge([question for _, _, question in asked], deadline=deadline, gate=gate, key=key)
    results = [_results_without_judge(action, plan) for action in actions]
    for (number, dimension, question), reply in zip(asked, replies, strict=True):
        if reply is None:
            unjudged = [_unjudged("budget", BUDGET_USED_UP, proposition.id) for proposition in question.propositions]
            results[number][dimension] += unjudged
        else:
            results[number][dimension] += read_judge_reply(question, reply)
    return [_with_reason_for_none(by_dimension) for by_dimension in results]


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


def action_of_draft(turn: Turn, draft: Draft, propositions: DraftPropositions) -> Action:
    """Read a draft of a turn with the start and the end of its channel as they are now.

    The persona, where one is shown, is followed by what people of this channel asked for, as the agent itself was prompted.
    """
    trigger = turn.trigger  # the message that the turn answers
    action = _read_action(
        text=draft.text,
        agent=turn.agent,
        channel=turn.channel,
        persona_version_id=turn.persona_version_id,
        is_reply=trigger is not None and trigger.channel_id == turn.channel.pk and trigger.parent_id is not None,
        propositions=propositions,
    )
    requests = [section.body for section in turn.sections if section.stage == REQUESTS_STAGE]
    if action.persona is None or not requests:
        return action
    return replace(action, persona="\n\n".join((action.persona, *requests)))


def action_of_message(message: Message, agent: Agent, propositions: DraftPropositions) -> Action:
    """Read a message that was sent already, with what stood before it and the persona version it was spoken with.

    The persona, where one is shown, is followed by what people had asked for there.
    """
    action = _read_action(
        text=message.text,
        agent=agent,
        channel=message.channel,
        persona_version_id=message.persona_version_id,
        is_reply=message.parent_id is not None,
        propositions=propositions,
        before_position=message.position,
    )
    manner = manners_of(agent)(message) if action.persona is not None else ""
    return replace(action, persona=f"{action.persona}\n\n{manner}") if manner else action


def _read_action(
    *,
    text: str,
    agent: Agent,
    channel: Channel,
    persona_version_id: int | None,
    is_reply: bool,
    propositions: DraftPropositions,
    before_position: int | None = None,
) -> Action:
    """Read what the propositions want to see of persona and channel; a short channel costs one query, a long one three.

    Args:
        persona_version_id: None: the agent's present persona.
        before_position: Only messages before this position; None: all there are.
    """
    action = Action(
        text=text,
        agent_name=agent.display_name,
        agent_slug=agent.slug,
        seeded=agent.seeded,
        channel_name=str(channel),
        channel_kind=channel.kind,
        is_reply=is_reply,
    )
    if propositions.show_persona:
        action = replace(action, persona=persona_of(agent, persona_version_id))
    if not propositions.all_judged:
        return action
    messages = Message.objects.filter(channel=channel)
    if not channel.synthetic:  # a simulation is no part of a real conversation
        messages = messages.filter(synthetic=False)
    if before_position is not None:
        messages = messages.filter(position__lt=before_position)
    ends = read_ends(messages, propositions.first_n, propositions.last_n)
    return replace(
        action,
        events=tuple(event_of(agent, row) for row in (*ends.first, *ends.last)),
        events_at_start=len(ends.first),
        omitted=ends.omitted,
    )


def persona_of(agent: Agent, version_id: int | None) -> str:
    """Return the persona an agent speaks under: that of the version, or its present one where there is no version."""
    if version_id is not None:
        versions = PersonaVersion.objects.filter(pk=version_id).order_by()
        version = versions.values_list("system_prompt", "traits").first()
        if version is not None:
            system_prompt, traits = version
            return render_persona(system_prompt=system_prompt, traits=[TraitValue(**trait) for trait in traits])
    return render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())

"""Checking a draft on several dimensions at once (S-7.0): what the judge is asked and shown, and its verdicts as one check per dimension.

`check_action_quality` knows no session and no row: a draft, a persona and a window are enough. `action_of_draft` and
`action_of_message` read what is judged from the database in one to three queries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from evaluation.judge.questions import MALFORMED, MAX_PER_CALL, MAX_SCORE, Question, Verdict, build_request, read_reply
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
from evaluation.propositions.schema import Proposition, fill
from evaluation.scorers.subjects import Context, Event, Window, cut_window, event_of, read_ends

DimensionStatus = Literal["scored", "trivial", "unscored", "timeout", "overload", "error", "budget"]
SCOPED = "behavior"  # the stage whose sections say what was asked for in this channel, or by this person
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
class Part:
    """One rule, cue or proposition that was checked for a dimension. `about` says in words what a rule or cue stands for."""

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
    def scored(self) -> bool:
        return self.status == "scored" and self.score is not None

    def as_json(self) -> dict[str, Any]:
        """As the log stores it."""
        shown = {name: getattr(self, name) for name in ("id", "judge", "status", "score")}
        return {**shown, "reasoning": self.reasoning or self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """A draft on all dimensions that were asked for.

    Attributes:
        dimensions: A row for each, not saved yet. What could not be judged has no score and passed (fail-open).
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
        return tuple(result for result in self.dimensions if not result.passed)

    @property
    def passed(self) -> bool:
        """Whether no dimension failed."""
        return not self.failures

    @property
    def unjudged_outcome(self) -> Outcome | None:
        """The outcome of a draft that passes although not everything could be judged; None when everything was."""
        statuses = {result.status for result in self.dimensions}
        return next((outcome for status, outcome in UNJUDGED.items() if status in statuses), None)

    def log(self, *, attempt: int, **columns: Any) -> CorrectionLog:
        """The attempt (from 1) as a row that is not saved yet, with how it ends: one that failed is sent back."""
        outcome = self.unjudged_outcome or (Outcome.PASSED if attempt == 1 else Outcome.PASSED_AFTER_RETRY)
        fields: dict[str, Any] = {"outcome": outcome if self.passed else Outcome.CORRECTED, **columns}
        log = CorrectionLog(attempt=attempt, judge=self.judge[:200], duration_ms=self.duration_ms, **fields)
        log.results = self.dimensions
        scores = scores_of(self.dimensions)
        log.score_sum = sum(scores.values()) if scores else None
        return log


def scores_of(results: Iterable[GateDimensionResult]) -> dict[str, float]:
    """Scores by dimension, of those really scored."""
    return {r.dimension: r.score for r in results if r.status == "scored" and r.score is not None}


def judge_parts(question: Question, reply: Reply) -> list[Part]:
    """What a judge's reply says of each proposition of its question. Cues that were matched mean nothing without their claim."""
    claims, parts = question.claims(), []
    for (key, proposition), verdict in zip(question.keyed().items(), read_reply(question, reply), strict=True):
        failed: DimensionStatus | None = None  # the call brought an answer, even if only that this cannot be judged
        if reply.ok:
            failed = "error" if verdict.cause == MALFORMED else None
        elif reply.status is Status.TIMEOUT:
            failed = "timeout" if reply.attempts else "overload"  # without an attempt: no free slot, or it hangs
        else:
            failed = "error"
        about = claims[key] if proposition.cues and is_heuristic(verdict.judge) else ""
        took = reply.latency_ms + reply.waited_ms
        parts.append(part_of(proposition, verdict, call_failed=failed, duration_ms=took, about=about))
    return parts


def part_of(
    proposition: Proposition,
    verdict: Verdict,
    *,
    call_failed: DimensionStatus | None = None,
    duration_ms: int = 0,
    about: str = "",
) -> Part:
    """A verdict as a part of its dimension."""
    return Part(
        id=proposition.id,
        judge=verdict.judge,
        status=call_failed or verdict.status,
        score=None if verdict.value is None else float(verdict.value),
        weight=proposition.weight,
        about=about,
        reasoning=verdict.reasoning,
        recommendations=proposition.recommendations,
        reason=verdict.reason,
        call=verdict.call,
        duration_ms=duration_ms,
    )


def combine(
    *, dimension: str, threshold: Decimal, judged: Sequence[Part], own: Sequence[Part] = ()
) -> GateDimensionResult:
    """One dimension's result: the worst of the judge's number and of each of the agent's own rules and cues.

    Where there are several propositions the judge's number is their weighted mean. A call that failed leaves the dimension unjudged and
    passed, however well the rules held: they are a part of it. A broken rule fails it all the same.
    """
    parts = (*own, *judged)
    candidates = [(p.score or 0.0, p) for p in own if p.scored]
    if scored := [p for p in judged if p.scored]:
        mean = round(sum((p.score or 0.0) * p.weight for p in scored) / sum(p.weight for p in scored), 2)
        candidates.insert(0, (mean, min(scored, key=lambda p: p.score or 0.0)))
    score, decisive = min(candidates, key=lambda pair: pair[0]) if candidates else (None, None)
    broken = score is not None and score < threshold
    # The calls that brought no verdict, the one that says most first.
    failed = next((p for s in ("timeout", "overload", "error", "budget") for p in parts if p.status == s), None)
    status: DimensionStatus = "scored"
    if failed is not None and not broken:
        status, score, decisive = failed.status, None, failed
    elif decisive is None:
        slow_first = sorted(parts, key=lambda p: not p.reason.startswith(TIMED_OUT))
        decisive = next((p for s in ("trivial", "unscored") for p in slow_first if p.status == s), None)
        status = "unscored" if decisive is None else decisive.status
        score = float(MAX_SCORE) if status == "trivial" else None
    reasoning, recommendations = decisive.reasoning if decisive else "", ""
    if broken:  # everything that speaks against the draft, what decided first
        below = sorted((p for p in parts if p.scored and (p.score or 0.0) < threshold), key=lambda p: p.score or 0.0)
        against = [*([decisive] if decisive else []), *(p for p in below if p is not decisive)]
        said = (f"{p.about.rstrip('. ')}: {p.reasoning}" if p.about else p.reasoning for p in against if p.reasoning)
        reasoning = "\n".join(dict.fromkeys(said))
        recommendations = "\n".join(dict.fromkeys(p.recommendations for p in below if p.recommendations))
    reason = "" if status == "scored" else decisive.reason if decisive else "nothing to check it by"
    return GateDimensionResult(
        dimension=dimension,
        status=status,
        score=score,
        threshold=threshold,
        passed=not broken,
        reasoning=storable(reasoning),
        recommendations=storable(recommendations),
        reason=storable(reason)[:300],
        judge=storable(decisive.judge if decisive else "")[:200],
        proposition_id=decisive.id if decisive else "",
        parts=storable([part.as_json() for part in parts]),
        call_id=next((p.call for p in judged if p.call is not None), None),
        duration_ms=max((p.duration_ms for p in judged), default=0),
    )


@dataclass(frozen=True, slots=True)
class DraftPropositions:
    """The propositions a judge is asked by dimension, and the files they and the agent's rules come from; `problem` if unusable.

    `first_n` and `last_n` are the most events that one of them wants to see from the start and the end of the conversation.
    """

    files: tuple[LoadedFile, ...]
    judged: Mapping[str, tuple[Proposition, ...]]
    problem: str = ""

    @property
    def first_n(self) -> int:
        return max((p.first_n for propositions in self.judged.values() for p in propositions), default=0)

    @property
    def last_n(self) -> int:
        return max((p.last_n for propositions in self.judged.values() for p in propositions), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A draft with everything it is judged by.

    Attributes:
        agent_name: Who is about to say it, as the judge reads it.
        agent_slug: Whose propositions hold for it; those of every agent always do.
        seeded: Whether the agent is one of the examples, so that their propositions hold.
        persona: The rendered persona; None when there is none to show.
        events: What happened before, oldest first, without the draft: the first `head` of them stand at the start of the
            conversation, `omitted` are left out after those, the rest are the last ones.
        channel_name, channel_kind: Where it is about to be said.
        is_reply: Whether it answers a message in a thread.
    """

    text: str
    agent_name: str
    agent_slug: str = ""
    seeded: bool = False
    persona: str | None = None
    events: tuple[Event, ...] = ()
    head: int = 0
    omitted: int = 0
    channel_name: str = ""
    channel_kind: str = ""
    is_reply: bool = False

    def context(self, first_n: int, last_n: int) -> Context:
        """What the judge is shown, with that many events around the gap. A proposition that withholds the persona hides it."""
        if self.omitted:
            first, last = self.events[: self.head], self.events[self.head :]
            start = max(0, len(last) - last_n)
            omitted = self.omitted + max(0, len(first) - first_n) + start
            window = Window(first[:first_n], omitted, last[start:])
        else:
            window = cut_window(self.events, first_n=first_n, last_n=last_n)
        return Context(
            agent_name=self.agent_name,
            persona=self.persona,
            window=window,
            action=self.text,
            channel_name=self.channel_name,
        )


def load_propositions(
    *,
    agent_slug: str,
    dimensions: Iterable[str],
    hard: Collection[str] = (),
    own: Sequence[LoadedFile] = (),
    seeded: bool = False,
) -> DraftPropositions:
    """The propositions about a draft of this agent; the folders are read once.

    Files that cannot be used are a `problem` and no exception: a draft must not wait until they are corrected.

    Args:
        dimensions: Those a judge is to be asked about. One without an action-level file has no propositions.
        hard: Dimensions to ask about in hard mode, in which every flaw takes 20 % off (not the inverted propositions).
        own: Files that lie in no folder; at action level they replace the shipped ones of their dimension.
        seeded: Whether the agent is one of the examples (`Agent.seeded`): only then their propositions apply.
    """
    try:
        files = tuple(applying(load_all(), seeded=seeded))
    except PropositionError as error:
        return DraftPropositions((), {}, f"proposition files cannot be used: {error.problems[0]}")
    dimensions = tuple(dimensions)
    if problems := problems_at_gate(files, agent_slug=agent_slug, dimensions=dimensions):
        return DraftPropositions((), {}, f"proposition files cannot be used: {problems[0]}")
    replaced = {file.dimension for file in own if file.level == "action"}
    shipped = (
        f
        for f in files
        if not f.problems and not (f.agent_id == DEFAULT and f.level == "action" and f.dimension in replaced)
    )
    files = (*shipped, *own)
    judged: dict[str, tuple[Proposition, ...]] = {}
    for dimension in dimensions:
        of_agent = propositions_for(
            agent_slug=agent_slug, dimension=dimension, level="action", files=files, seeded=seeded
        )
        judged[dimension] = tuple(
            replace(p, hard=p.hard or (dimension in hard and not p.inverted)) for p in of_agent if p.rule is None
        )
    return DraftPropositions(files, judged)


def check_action_quality(
    *,
    agent: Agent | None,
    config: ResolvedConfig,
    work_id: str,
    deadline: float,
    action: Callable[[DraftPropositions], Action],
    run_id: int | None = None,
    gate: bool = True,
    dimensions: Sequence[str] = (),
    thresholds: Mapping[str, Decimal] | None = None,
    own: Sequence[LoadedFile] = (),
    rules: bool | None = None,
) -> GateResult:
    """Judge on every dimension at once (AC-7.0.1) what an agent, or a speaker who is none, is about to say or said.

    Never raises for what a judge, a server or a proposition file does: what cannot be judged passes, and says why. The agent's own rules,
    and with an offline judge its cues, are checked first and cost nothing; the worst of judge, rules and cues is the dimension's score.
    No transaction may be open here.

    Args:
        agent: Who speaks; None for a speaker whom another program described.
        run_id, work_id: Columns of the ledger rows.
        deadline: Seconds for judging each dimension, all at the same time. 0 or less: no time is left, no judge is asked.
        action: Makes the draft and its context, once it is known what the propositions want to see.
        gate: Whether the calls may use the slots reserved for drafts, without retries, and pass at once where the judge hangs;
            False for what can wait.
        dimensions: Those that a judge is asked about; empty: those that the configuration enables, some by rules alone.
        thresholds: Lowest scores that pass, 0 to 9; of the others, the configuration's.
        own: Files that lie in no folder, see `load_propositions`.
        rules: Whether rules and cues are checked; None: as the configuration says.
    """
    judge, limits = str(settings.JUDGE_MODEL), thresholds or {}
    dimensions, named = tuple(dimensions) or config.gate_dimensions, bool(dimensions)
    asked = [d for d in dimensions if named or config[f"gate_{d}_enabled"]]
    propositions = load_propositions(
        agent_slug=agent.slug if agent is not None else "",
        dimensions=asked,
        hard=config.hard_dimensions,
        own=own,
        seeded=agent is not None and agent.seeded,
    )
    draft, agent_id = action(propositions), agent.pk if agent is not None else None
    label = Label(purpose="gate", mechanism="gate", agent_id=agent_id, run_id=run_id, work_id=work_id)
    is_spent = bool(asked) and config.has_budget and over_budget(agent, config)
    if asked:
        warm_up("judge")  # the first call of a process: importing is no judging
    begun, started_at = time.perf_counter(), datetime.now(UTC)
    with sentry_sdk.start_span(op="correction.gate", name="check a draft") as span:
        by_rules: dict[str, list[Part]] = {d: [] for d in dimensions if d in TAKES_RULES}
        rules_ms = 0.0
        if propositions.problem:
            parts = {d: [_unjudged("error", propositions.problem)] for d in dimensions}
        else:
            if by_rules and (config["gate_rules_enabled"] if rules is None else rules):
                for d, part in _own_parts(draft, propositions, judge):
                    if d in by_rules:
                        by_rules[d].append(part)
            rules_ms = (time.perf_counter() - begun) * 1000
            if is_spent:
                parts = _unasked(propositions, "budget", "the agent's budget for today is used up")
            elif deadline <= 0:
                reason = "the time for judging this message was used up by earlier attempts"
                parts = _unasked(propositions, "timeout", reason)
            else:
                # That a judge is late says nothing about it where the deadline is less than what is configured.
                shortened = deadline < float(config["gate_deadline_seconds"])
                parts = _ask(draft, propositions, label, deadline, gate=gate, shortened=shortened)
            none = "no proposition file of this dimension has level: action"
            parts |= {d: [_unjudged("unscored", none)] for d in asked if not parts.get(d)}
        checks = tuple(
            combine(
                dimension=d,
                threshold=limits.get(d, config.threshold(d)),
                judged=parts.get(d, ()),
                own=by_rules.get(d, ()),
            )
            for d in dimensions
        )
        looked_at = [(d, part) for of_all in (by_rules, parts) for d in of_all for part in of_all[d]]
        try:
            PatternTimeout.count((d, part.id, part.reason) for d, part in looked_at)
        except OUTAGE as error:  # the verdicts are here: a count is not worth the check
            logger.warning("patterns that took too long are not counted: %s", error)
        for check in checks:  # they ran at the same time: spans are made afterwards with the time each took (AC-7.0.16)
            name = f"check {check.dimension}"
            one = sentry_sdk.start_span(op="correction.gate.dimension", name=name, start_timestamp=started_at)
            one.set_data("gate.dimension", check.dimension)
            one.set_data("gate.status", check.status)
            one.set_data("gate.passed", check.passed)
            if check.score is not None:
                one.set_data("gate.score", check.score)
            one.finish(end_timestamp=started_at + timedelta(milliseconds=check.duration_ms))
        result = GateResult(
            dimensions=checks,
            judge=judge if asked else RULE_JUDGE,
            duration_ms=round(rules_ms + max((check.duration_ms for check in checks), default=0)),
            calls=frozenset(part.call for _, part in looked_at if part.call is not None),
        )
        span.set_data("gate.passed", result.passed)
        span.set_data("gate.judge", result.judge)
        return result


def _own_parts(action: Action, propositions: DraftPropositions, judge: str) -> list[tuple[str, Part]]:
    """What the agent's own propositions say of the draft without a model, each with its dimension."""
    variables = action.context(0, 0).variables()
    verdicts = check_draft(
        agent_slug=action.agent_slug,
        text=action.text,
        channel_kind=action.channel_kind,
        is_reply=action.is_reply,
        cues=is_heuristic(judge),
        variables=variables,
        files=propositions.files,
        seeded=action.seeded,
    )
    parts = []
    for proposition, verdict in verdicts:
        about = fill(proposition.claim, {"channel_name": "this channel", **variables})
        about = f"Not to be seen in this agent: “{about}”" if proposition.inverted else about
        part = part_of(proposition, replace(verdict, judge=verdict.judge or judge), about=about)
        parts.append((proposition.dimension, part))
    return parts


def questions_of(
    action: Action, propositions: DraftPropositions, label: Label, *, gate: bool
) -> list[tuple[str, Question]]:
    """What a judge is asked about a draft, each with its dimension."""
    questions: list[tuple[str, Question]] = []
    for dimension, of_dimension in propositions.judged.items():
        groups: dict[object, list[Proposition]] = {}
        for proposition in of_dimension:
            groups.setdefault(proposition.context_key, []).append(proposition)
        for group in groups.values():
            context = action.context(group[0].first_n, group[0].last_n)
            for start in range(0, len(group), MAX_PER_CALL):
                together = tuple(group[start : start + MAX_PER_CALL])
                named = replace(label, dimension=dimension)
                question = Question(propositions=together, context=context, label=named, gate=gate)
                questions.append((dimension, question))
    return questions


def _ask(
    action: Action, propositions: DraftPropositions, label: Label, deadline: float, *, gate: bool, shortened: bool
) -> dict[str, list[Part]]:
    """The judge's parts by dimension; all questions are asked at once, one per dimension unless its propositions differ in context."""
    questions = questions_of(action, propositions, label, gate=gate)
    if not questions:
        return {}
    requests = [build_request(question) for _, question in questions]
    if gate:
        about = None if shortened else (action.agent_slug, action.agent_name, hash(action.text))
        replies = complete_guarded(requests, deadline=deadline, about=about)
    else:
        replies = complete_together(requests, deadline=deadline)
    parts: dict[str, list[Part]] = {}
    for (dimension, question), reply in zip(questions, replies, strict=True):
        parts.setdefault(dimension, []).extend(judge_parts(question, reply))
    return parts


def _unasked(propositions: DraftPropositions, status: DimensionStatus, reason: str) -> dict[str, list[Part]]:
    return {d: [_unjudged(status, reason, p.id) for p in judged] for d, judged in propositions.judged.items()}


def _unjudged(status: DimensionStatus, reason: str, name: str = "") -> Part:
    return Part(id=name, judge="", status=status, reason=reason[:300])


def action_of_draft(turn: Turn, draft: Draft, propositions: DraftPropositions) -> Action:
    """A draft of a turn, with the end and the start of its channel as they are now."""
    trigger = turn.trigger
    is_reply = trigger is not None and trigger.channel_id == turn.channel.pk and trigger.parent_id is not None
    action = _action(draft.text, turn.agent, turn.channel, turn.persona_version_id, None, is_reply, propositions)
    asked = [section.body for section in turn.sections if section.stage == SCOPED]
    return replace(action, persona="\n\n".join((action.persona, *asked))) if asked and action.persona else action


def action_of_message(message: Message, agent: Agent, propositions: DraftPropositions) -> Action:
    """A message that was sent already, with what stood before it."""
    version, is_reply = message.persona_version_id, message.parent_id is not None
    return _action(message.text, agent, message.channel, version, message.position, is_reply, propositions)


def _action(
    text: str,
    agent: Agent,
    channel: Channel,
    persona_version_id: int | None,
    before: int | None,
    is_reply: bool,
    propositions: DraftPropositions,
) -> Action:
    shown = any(p.include_personas for judged in propositions.judged.values() for p in judged)
    asked = any(propositions.judged.values())
    return Action(
        text=text,
        agent_name=agent.display_name,
        agent_slug=agent.slug,
        seeded=agent.seeded,
        persona=persona_of(agent, persona_version_id) if shown else None,
        channel_name=str(channel),
        channel_kind=channel.kind,
        is_reply=is_reply,
        **(_conversation(agent, channel, before, propositions.first_n, propositions.last_n) if asked else {}),
    )


def persona_of(agent: Agent, version_id: int | None) -> str:
    """The persona it speaks under: that of the version, or the agent's present one where there is no version."""
    versions = PersonaVersion.objects.filter(pk=version_id).order_by() if version_id is not None else None
    version = versions.values_list("system_prompt", "traits").first() if versions is not None else None
    if version is None:
        return render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    return render_persona(system_prompt=version[0], traits=[TraitValue(**row) for row in version[1]])


def _conversation(agent: Agent, channel: Channel, before: int | None, first_n: int, last_n: int) -> dict[str, Any]:
    """The first and the last events of the channel. A short channel costs one query, a long one three."""
    messages = Message.objects.filter(channel=channel)
    if not channel.synthetic:  # a simulation is no part of a real conversation
        messages = messages.filter(synthetic=False)
    if before is not None:
        messages = messages.filter(position__lt=before)
    ends = read_ends(messages, first_n, last_n)
    events = tuple(event_of(agent, row) for row in (*ends.first, *ends.last))
    return {"events": events, "head": len(ends.first), "omitted": ends.omitted}

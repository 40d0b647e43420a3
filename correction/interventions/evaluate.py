"""Evaluate the interventions of a turn: what is cheap first, then every judge at once; then the log, and the text in the prompt."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta

import sentry_sdk
from django.db.models import Max, QuerySet

from agents.kit.llm import Label
from agents.kit.text.fences import new_nonce
from agents.kit.text.patterns import one_message
from agents.kit.text.storable import storable
from agents.models import Channel
from agents.turn.pipeline import Turn
from correction.config.settings import ResolvedConfig, config_of
from correction.costs import over_budget
from correction.interventions.builtin import interventions_for
from correction.interventions.functions import InterventionContext, Surroundings
from correction.interventions.intervention import (
    AnyPrecondition,
    FunctionalPrecondition,
    Intervention,
    PreconditionResult,
    PromptModification,
    PropositionalPrecondition,
    not_asked,
    not_judged,
)
from correction.interventions.models import InterventionLog
from evaluation.judge.checks import Check, ask_together
from evaluation.judge.questions import Question

logger = logging.getLogger(__name__)

HEADING = "Conversation Guidance"  # of the section in the prompt (AC-7.1.9)


@dataclass(kw_only=True)
class Evaluation:
    """The evaluation of one intervention in one turn. `why` says why it fired or did not; empty as long as that is open."""

    intervention: Intervention
    context: InterventionContext
    key: uuid.UUID = field(default_factory=uuid.uuid4)
    results: list[PreconditionResult] = field(default_factory=list)
    fired: bool = False
    why: str = ""
    modification: PromptModification | None = None
    started: float = field(default_factory=time.time)
    seconds: float = 0.0

    @property
    def judge(self) -> str:
        """Return the model that was asked; empty where none was."""
        return next((result.judge for result in self.results if result.judge), "")

    @property
    def nudge_type(self) -> str:
        """Return the kind of the nudge; empty where it did not fire."""
        return self.modification.nudge_type if self.modification else ""

    def end_unasked(self, why: str, preconditions: Sequence[AnyPrecondition], reason: str) -> None:
        """End it without asking about these preconditions.

        Args:
            why: Why it does not fire.
            reason: Why each precondition was not asked.
        """
        self.why = why
        self.results += [not_asked(precondition, reason) for precondition in preconditions]


def prepare(turn: Turn) -> None:
    """Evaluate the interventions that are enabled for the turn's agent; those that fire add to the prompt of this turn.

    Nothing is evaluated, and the turn's trace says why, where none is enabled, in a direct message none is allowed, or in a preview.
    """
    config = config_of(turn)
    enabled = interventions_for(turn.agent, config)
    usable = enabled
    if turn.channel.kind == Channel.Kind.DM:
        usable = [intervention for intervention in enabled if intervention.dm_allowed]
    if not enabled:
        turn.skip("no intervention is enabled for this agent")
    elif not usable:
        turn.skip("direct message: the interventions enabled for this agent are for channels only")
    elif turn.preview:
        names = ", ".join(intervention.name for intervention in usable)
        turn.skip(f"preview: nothing is evaluated; in a turn these would be looked at: {names}")
    else:
        evaluate_interventions(turn, usable, config=config)


def evaluate_interventions(
    turn: Turn, interventions: Sequence[Intervention], *, config: ResolvedConfig
) -> list[Evaluation]:
    """Evaluate interventions for a turn, log each, add the nudges of those that fire to the prompt; return the evaluations.

    Functions come first, for they cost nothing; judges are asked only about what functions, cooldowns and earlier questions left open.
    Interventions that are for another agent are passed over. No transaction may be open: judges are asked.

    Args:
        config: The deadline (`gate_deadline_seconds`, for all judges together) and the budget.
    """
    own = [intervention for intervention in interventions if intervention.agent_id in (None, turn.agent.pk)]
    if not own:
        return []
    with sentry_sdk.start_span(op="correction.interventions", name="evaluate interventions") as span:
        longest_window = max(intervention.window for intervention in own)
        surroundings = Surroundings.read(agent=turn.agent, channel=turn.channel, reach=longest_window)
        evaluations = [_begin(intervention, surroundings) for intervention in own]
        _apply_cooldown(turn, evaluations, surroundings)
        with one_message():  # the patterns of all functions share the time limit of one message
            for evaluation in evaluations:
                _ask_functions(evaluation)
        _apply_ask_every(turn, evaluations, surroundings)
        judge_calls = _ask_judges(turn, evaluations, config)
        for evaluation in evaluations:
            _decide_and_fire(evaluation)
            _add_span(evaluation)
        _store_logs(turn, evaluations, surroundings)
        _add_nudges(turn, evaluations)
        fired = [evaluation.intervention.name for evaluation in evaluations if evaluation.fired]
        turn.count(evaluated=len(evaluations), fired=len(fired), judge_calls=judge_calls)
        span.set_data("agent_id", turn.agent.pk)
        span.set_data("evaluated", len(evaluations))
        span.set_data("fired", fired)
    return evaluations


def _begin(intervention: Intervention, surroundings: Surroundings) -> Evaluation:
    """Return the evaluation of an intervention, with the messages of its window."""
    context = InterventionContext(
        agent=surroundings.agent,
        channel=surroundings.channel,
        messages=surroundings.messages[-intervention.window :],
        surroundings=surroundings,
    )
    return Evaluation(intervention=intervention, context=context)


def _apply_cooldown(turn: Turn, evaluations: Sequence[Evaluation], surroundings: Surroundings) -> None:
    """End, as not fired, those that fired fewer messages ago for this agent in this channel than their cooldown; one query for all."""
    cooling = [evaluation for evaluation in evaluations if evaluation.intervention.cooldown_messages]
    if not cooling:
        return
    fired = InterventionLog.objects.filter(agent=surroundings.agent, channel=surroundings.channel, fired=True)
    messages_since = _messages_since(turn, cooling, surroundings, fired)
    for evaluation in cooling:
        since = messages_since.get(evaluation.intervention.name)
        least = evaluation.intervention.cooldown_messages
        if since is not None and since < least:
            evaluation.end_unasked(
                why=f"cooldown: fired {since} messages ago, may fire again after {least}",
                preconditions=evaluation.intervention.preconditions,
                reason="cooldown",
            )


def _apply_ask_every(turn: Turn, evaluations: Sequence[Evaluation], surroundings: Surroundings) -> None:
    """End, as not fired, those about which a judge was asked lately in this channel, in whichever agent's turn; one query for all.

    Lately: fewer messages ago than their `ask_every`; 0 asks each time. Those that are decided already stay as they are.

    What a channel as a whole does changes little from one message to the next, and each question costs a call.
    """
    sparing = [evaluation for evaluation in evaluations if not evaluation.why and evaluation.intervention.ask_every]
    if not sparing:
        return
    longest = max(evaluation.intervention.ask_every for evaluation in sparing)
    logs = InterventionLog.objects.filter(
        channel=surroundings.channel, channel_position__gt=surroundings.position - longest
    ).exclude(judge="")
    messages_since = _messages_since(turn, sparing, surroundings, logs)
    for evaluation in sparing:
        since = messages_since.get(evaluation.intervention.name)
        least = evaluation.intervention.ask_every
        if since is not None and since < least:
            evaluation.end_unasked(
                why=f"not asked: the judge was asked {since} messages ago, is asked again after {least}",
                preconditions=evaluation.intervention.judged,
                reason="a judge was asked lately",
            )


def _messages_since(
    turn: Turn, evaluations: Sequence[Evaluation], surroundings: Surroundings, logs: QuerySet[InterventionLog]
) -> dict[str, int]:
    """Return by intervention how many messages of the channel ago the last of its logs is; those without a log are left out.

    What was logged in this very run does not count: it was interrupted before its agent read the nudge.
    """
    logs = logs.filter(name__in={evaluation.intervention.name for evaluation in evaluations})
    if turn.run is not None:
        logs = logs.exclude(run_id=turn.run.pk)
    last_positions = logs.order_by().values_list("name").annotate(Max("channel_position"))
    return {name: surroundings.position - position for name, position in last_positions}


def _ask_functions(evaluation: Evaluation) -> None:
    """Evaluate the preconditions that cost nothing, in order, up to the first that does not hold (None, not judged, does not either).

    That one ends the evaluation, and the preconditions after it are noted as not asked.
    """
    if evaluation.why:  # it is decided already
        return
    started = time.perf_counter()
    intervention = evaluation.intervention
    for number, precondition in enumerate(intervention.functional, 1):
        result = _ask_function(precondition, evaluation)
        evaluation.results.append(result)
        if not result.held:
            evaluation.end_unasked(
                why=_why_not_fired(result),
                preconditions=[*intervention.functional[number:], *intervention.judged],
                reason="another precondition does not hold",
            )
            break
    evaluation.seconds += time.perf_counter() - started


def _ask_function(precondition: FunctionalPrecondition, evaluation: Evaluation) -> PreconditionResult:
    """Return what a function says; one that raises could not be judged."""
    try:
        return precondition.evaluate(evaluation.context)
    except Exception as error:  # noqa: BLE001 (an operator's or a team's mistake must not cost the turn its other interventions)
        logger.warning("intervention %s: %s failed: %s", evaluation.intervention.name, precondition.text, error)
        sentry_sdk.capture_exception(error)
        return not_judged("functional", precondition.text, f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _JudgeQuestion:
    """A question to the judge, and the precondition it is about; `claim` is the precondition's text as it is asked here."""

    evaluation: Evaluation
    precondition: PropositionalPrecondition
    claim: str
    question: Check | Question


def _ask_judges(turn: Turn, evaluations: Sequence[Evaluation], config: ResolvedConfig) -> int:
    """Ask everything that needs a judge, of all interventions at once, within one deadline; return the number of questions asked.

    Adds the results to the evaluations. With the agent's budget used up nothing is asked, and the results say so. The time of the whole
    is added to each evaluation, as they waited together.
    """
    undecided = [evaluation for evaluation in evaluations if not evaluation.why and evaluation.intervention.judged]
    if not undecided:
        return 0
    if over_budget(turn.agent, config):
        for evaluation in undecided:
            for precondition in evaluation.intervention.judged:
                evaluation.results.append(not_asked(precondition, "the daily budget of the agent is used up"))
        return 0
    started = time.perf_counter()
    questions = _judge_questions(turn, undecided)
    answers = ask_together(
        [question.question for question in questions],
        deadline=float(config["gate_deadline_seconds"]),
        about=(turn.agent.slug, turn.trigger.pk if turn.trigger is not None else None),
    )
    for question, answer in zip(questions, answers, strict=True):
        question.evaluation.results.append(question.precondition.read(question.claim, answer))
    for evaluation in undecided:
        evaluation.seconds += time.perf_counter() - started
    return len(questions)


def _judge_questions(turn: Turn, evaluations: Sequence[Evaluation]) -> list[_JudgeQuestion]:
    """Return the questions to the judge; a claim with a variable that has no value here is noted as not judged instead."""
    nonce = new_nonce()
    questions = []
    for evaluation in evaluations:
        label = Label(
            purpose="intervention",
            mechanism=evaluation.intervention.name,
            agent_id=turn.agent.pk,
            run_id=turn.run.pk if turn.run is not None else None,
            work_id=f"intervention:{evaluation.key}",
        )
        for precondition in evaluation.intervention.judged:
            try:
                claim, question = precondition.ask(evaluation.context, label, nonce)
            except ValueError as error:
                evaluation.results.append(not_judged(precondition.kind, precondition.text, str(error)))
                continue
            questions.append(
                _JudgeQuestion(evaluation=evaluation, precondition=precondition, claim=claim, question=question)
            )
    return questions


def _decide_and_fire(evaluation: Evaluation) -> None:
    """Decide whether it fires, and call its effect if it does; sets `why`, and `fired` with the `modification` of the prompt.

    All preconditions must hold (AC-7.1.2), and one that could not be judged does not hold. One whose effect raises has not fired.
    """
    if evaluation.why:  # it is decided already
        return
    for result in evaluation.results:
        if not result.held:
            evaluation.why = _why_not_fired(result)
            return
    number = len(evaluation.results)
    evaluation.why = "its precondition held" if number == 1 else f"all {number} preconditions held"
    intervention = evaluation.intervention
    try:
        evaluation.modification = intervention.effect(evaluation.context)
        evaluation.fired = True
    except Exception as error:  # noqa: BLE001 (as for functions: one mistake costs one intervention)
        logger.warning("intervention %s: its effect failed: %s", intervention.name, error)
        sentry_sdk.capture_exception(error)
        evaluation.why += f", but its effect failed: {type(error).__name__}: {error}"


def _add_span(evaluation: Evaluation) -> None:
    """Add a span with the times at which it was evaluated (AC-7.1.15), without texts of messages or claims."""
    start = datetime.fromtimestamp(evaluation.started, UTC)
    span = sentry_sdk.start_span(op="correction.intervention", name=evaluation.intervention.name, start_timestamp=start)
    span.set_data("fired", evaluation.fired)
    span.set_data("held", [result.held for result in evaluation.results])
    span.finish(end_timestamp=start + timedelta(seconds=evaluation.seconds))


def _why_not_fired(result: PreconditionResult) -> str:
    """Return a sentence on a precondition that does not hold or could not be judged, with what was measured.

    As in ``the propositional precondition does not hold: score 6 is not below 5``.
    """
    if result.held is None:
        return f"{result.kind} precondition {result.reasoning}"
    sentence = f"the {result.kind} precondition does not hold"
    if result.threshold is not None:
        compared = "below" if (result.score or 0.0) < result.threshold else "not below"
        return f"{sentence}: score {result.score:g} is {compared} {result.threshold:g}"
    if result.kind == "functional" and result.reasoning:
        return f"{sentence}: {result.reasoning}"
    return sentence


def _store_logs(turn: Turn, evaluations: Sequence[Evaluation], surroundings: Surroundings) -> None:
    """Store a row for every evaluation (AC-7.1.13), in one insert, also for those that did not fire; with a nudge for those that did."""
    rows = []
    for evaluation in evaluations:
        row = InterventionLog(
            key=evaluation.key,
            name=evaluation.intervention.name,
            intervention_id=evaluation.intervention.row_id,
            agent=turn.agent,
            channel=turn.channel,
            channel_position=surroundings.position,
            run=turn.run,
            fired=evaluation.fired,
            why=storable(evaluation.why)[:300],
            preconditions=storable([asdict(result) for result in evaluation.results]),
            nudge_type=evaluation.nudge_type,
            judge=evaluation.judge[:200],
            duration_ms=round(evaluation.seconds * 1000),
        )
        if evaluation.modification is not None:
            row.nudge = storable(evaluation.modification.guidance)
        rows.append(row)
    InterventionLog.objects.bulk_create(rows)


def _add_nudges(turn: Turn, evaluations: Sequence[Evaluation]) -> None:
    """Add the nudges of those that fired to the prompt of this turn, equal texts once (AC-7.1.9, AC-7.1.10).

    Also puts all evaluations into the turn's report, and writes a line for each to the log file.
    """
    turn.reports["interventions"] = [
        {
            "name": evaluation.intervention.name,
            "fired": evaluation.fired,
            "why": evaluation.why,
            "nudge_type": evaluation.nudge_type,
        }
        for evaluation in evaluations
    ]
    nudges: list[str] = []
    for evaluation in evaluations:
        _write_to_log_file(turn, evaluation)
        if evaluation.modification is not None and evaluation.modification.guidance not in nudges:
            nudges.append(evaluation.modification.guidance)
    if nudges:
        with sentry_sdk.start_span(op="correction.nudge", name="inject nudge") as span:
            turn.add_section(HEADING, "\n\n".join(nudges))
            span.set_data("nudges", len(nudges))


def _write_to_log_file(turn: Turn, evaluation: Evaluation) -> None:
    """Write a line on what became of an evaluation; one that did not fire is only of use when debugging."""
    level = logging.DEBUG
    outcome = "did not fire"
    if evaluation.fired:
        level = logging.INFO
        outcome = "fired"
    logger.log(
        level,
        "intervention %s %s for agent %s in channel %s (run %s)",
        evaluation.intervention.name,
        outcome,
        turn.agent.slug,
        turn.channel.slug,
        turn.run.pk if turn.run is not None else None,
    )

"""Evaluating the interventions of a turn: what is cheap first, then every judge at once; then the log, and the text in the prompt."""

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
    Intervention,
    PreconditionResult,
    PromptModification,
    not_asked,
    not_judged,
)
from correction.interventions.models import InterventionLog
from evaluation.judge.questions import ask_together

logger = logging.getLogger(__name__)

HEADING = "Conversation Guidance"  # of the section in the prompt (AC-7.1.9)


@dataclass(kw_only=True)
class Evaluation:
    """One intervention being evaluated in one turn. `why` says why it fired or did not; empty as long as that is open."""

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
        return next((result.judge for result in self.results if result.judge), "")

    @property
    def nudge_type(self) -> str:
        return self.modification.nudge_type if self.modification else ""


def prepare(turn: Turn) -> None:
    """The stage: what is enabled for this agent, evaluated here and now; those that fire add to the prompt of this turn."""
    config = config_of(turn)
    enabled = interventions_for(turn.agent, config)
    usable = [one for one in enabled if one.dm_allowed or turn.channel.kind != Channel.Kind.DM]
    if not enabled:
        turn.skip("no intervention is enabled for this agent")
    elif not usable:
        turn.skip("direct message: the interventions enabled for this agent are for channels only")
    elif turn.preview:
        names = ", ".join(one.name for one in usable)
        turn.skip(f"preview: nothing is evaluated; in a turn these would be looked at: {names}")
    else:
        evaluate_interventions(turn, usable, config=config)


def evaluate_interventions(
    turn: Turn, interventions: Sequence[Intervention], *, config: ResolvedConfig
) -> list[Evaluation]:
    """Evaluate interventions for a turn, log each, and add the nudges of those that fire to the prompt.

    Interventions that are for another agent are passed over. No transaction may be open: judges are asked.

    Args:
        config: The deadline (`gate_deadline_seconds`, for all judges together) and the budget.
    """
    mine = [one for one in interventions if one.agent_id in (None, turn.agent.pk)]
    if not mine:
        return []
    with sentry_sdk.start_span(op="correction.interventions", name="evaluate interventions") as span:
        around = Surroundings.read(agent=turn.agent, channel=turn.channel, reach=max(one.window for one in mine))
        evaluations = []
        for one in mine:
            context = InterventionContext(
                agent=around.agent, channel=around.channel, messages=around.messages[-one.window :], surroundings=around
            )
            evaluations.append(Evaluation(intervention=one, context=context))
        _pass_over_cooling(turn, evaluations, around)
        with one_message():
            for evaluation in evaluations:
                _ask_functions(evaluation)
        _pass_over_asked(turn, evaluations, around)
        asked = _ask_judges(turn, [one for one in evaluations if not one.why], config)
        for evaluation in evaluations:
            _conclude(evaluation)
        _log(turn, evaluations, around)
        _apply(turn, evaluations)
        turn.count(evaluated=len(evaluations), fired=sum(one.fired for one in evaluations), judge_calls=asked)
        span.set_data("agent_id", turn.agent.pk)
        span.set_data("evaluated", len(evaluations))
        span.set_data("fired", [one.intervention.name for one in evaluations if one.fired])
    return evaluations


def _pass_over_cooling(turn: Turn, evaluations: Sequence[Evaluation], around: Surroundings) -> None:
    """Those that fired lately for this agent in this channel; one query for all of them."""
    fired = InterventionLog.objects.filter(agent=around.agent, channel=around.channel, fired=True)
    waits = [(one, one.intervention.cooldown_messages) for one in evaluations]
    for one, least, since in _lately(turn, waits, around, fired):
        one.why = f"cooldown: fired {since} messages ago, may fire again after {least}"
        one.results = [not_asked(other, "cooldown") for other in one.intervention.preconditions]


def _pass_over_asked(turn: Turn, evaluations: Sequence[Evaluation], around: Surroundings) -> None:
    """Those about which a judge was asked lately in this channel, in whichever agent's turn; one query for all of them."""
    waits = [(one, one.intervention.ask_every) for one in evaluations if not one.why]
    position = around.position - max((least for _, least in waits), default=0)
    asked = InterventionLog.objects.filter(channel=around.channel, channel_position__gt=position).exclude(judge="")
    for one, least, since in _lately(turn, waits, around, asked):
        one.why = f"not asked: the judge was asked {since} messages ago, is asked again after {least}"
        one.results += [not_asked(other, "a judge was asked lately") for other in one.intervention.judged]


def _lately(
    turn: Turn, waits: Sequence[tuple[Evaluation, int]], around: Surroundings, logs: QuerySet[InterventionLog]
) -> list[tuple[Evaluation, int, int]]:
    """Of evaluations with the messages they wait for, those with a log fewer messages ago; the last number is how many.

    What was logged in this very run does not count: it was interrupted before its agent read the nudge.
    """
    waits = [(one, least) for one, least in waits if least]
    if not waits:
        return []
    logs = logs.filter(name__in={one.intervention.name for one, _ in waits})
    if turn.run is not None:
        logs = logs.exclude(run_id=turn.run.pk)
    last = dict(logs.order_by().values_list("name").annotate(Max("channel_position")))
    since = [(one, least, around.position - last.get(one.intervention.name, -(10**9))) for one, least in waits]
    return [(one, least, messages) for one, least, messages in since if messages < least]


def _ask_functions(evaluation: Evaluation) -> None:
    """The preconditions that cost nothing, in order, up to the first that does not hold."""
    if evaluation.why:
        return
    begun = time.perf_counter()
    intervention = evaluation.intervention
    for number, precondition in enumerate(intervention.functional, 1):
        try:
            result = precondition.evaluate(evaluation.context)
        except Exception as error:  # noqa: BLE001 (an operator's or a team's mistake must not cost the turn its other interventions)
            logger.warning("intervention %s: %s failed: %s", intervention.name, precondition.text, error)
            sentry_sdk.capture_exception(error)
            result = not_judged("functional", precondition.text, f"{type(error).__name__}: {error}")
        evaluation.results.append(result)
        if not result.held:
            evaluation.why = _why_not(result)
            left: tuple[AnyPrecondition, ...] = (*intervention.functional[number:], *intervention.judged)
            evaluation.results += [not_asked(other, "another precondition does not hold") for other in left]
            break
    evaluation.seconds += time.perf_counter() - begun


def _ask_judges(turn: Turn, open_: Sequence[Evaluation], config: ResolvedConfig) -> int:
    """Everything that needs a judge, of all interventions at once, within one deadline. Returns the number of calls."""
    waiting = [(one, precondition) for one in open_ for precondition in one.intervention.judged]
    if not waiting:
        return 0
    if over_budget(turn.agent, config):
        for evaluation, precondition in waiting:
            evaluation.results.append(not_asked(precondition, "the daily budget of the agent is used up"))
        return 0
    begun, nonce = time.perf_counter(), new_nonce()
    asked = []
    for evaluation, precondition in waiting:
        label = Label(
            purpose="intervention",
            mechanism=evaluation.intervention.name,
            agent_id=turn.agent.pk,
            run_id=turn.run.pk if turn.run is not None else None,
            work_id=f"intervention:{evaluation.key}",
        )
        try:
            text, question = precondition.ask(evaluation.context, label, nonce)
        except ValueError as error:
            evaluation.results.append(not_judged(precondition.kind, precondition.text, str(error)))
        else:
            asked.append((evaluation, precondition, text, question))
    answers = ask_together(
        [question for *_, question in asked],
        deadline=float(config["gate_deadline_seconds"]),
        about=(turn.agent.slug, turn.trigger.pk if turn.trigger is not None else None),
    )
    for (evaluation, precondition, text, _), answer in zip(asked, answers, strict=True):
        evaluation.results.append(precondition.read(text, answer))
    for evaluation in open_:
        evaluation.seconds += time.perf_counter() - begun
    return len(asked)


def _conclude(evaluation: Evaluation) -> None:
    """All must hold (AC-7.1.2); what could not be judged does not hold. Then the effect says what to add."""
    intervention = evaluation.intervention
    if not evaluation.why:
        stopping = next((result for result in evaluation.results if not result.held), None)
        if stopping is not None:
            evaluation.why = _why_not(stopping)
        else:
            count = len(evaluation.results)
            evaluation.why = "its precondition held" if count == 1 else f"all {count} preconditions held"
            try:
                evaluation.modification = intervention.effect(evaluation.context)
                evaluation.fired = True
            except Exception as error:  # noqa: BLE001 (as for functions: one mistake costs one intervention)
                logger.warning("intervention %s: its effect failed: %s", intervention.name, error)
                sentry_sdk.capture_exception(error)
                evaluation.why += f", but its effect failed: {type(error).__name__}: {error}"
    # A span of its own, with the times at which it was evaluated (AC-7.1.15). No text of messages or claims.
    start = datetime.fromtimestamp(evaluation.started, UTC)
    span = sentry_sdk.start_span(op="correction.intervention", name=intervention.name, start_timestamp=start)
    span.set_data("fired", evaluation.fired)
    span.set_data("held", [result.held for result in evaluation.results])
    span.finish(end_timestamp=start + timedelta(seconds=evaluation.seconds))


def _why_not(result: PreconditionResult) -> str:
    if result.held is None:
        return f"{result.kind} precondition {result.reasoning}"
    measured = f": {result.reasoning}" if result.kind == "functional" and result.reasoning else ""
    if result.threshold is not None:
        above = "" if (result.score or 0.0) < result.threshold else "not "
        measured = f": score {result.score:g} is {above}below {result.threshold:g}"
    return f"the {result.kind} precondition does not hold{measured}"


def _log(turn: Turn, evaluations: Sequence[Evaluation], around: Surroundings) -> None:
    """A row for every evaluation, in one insert."""
    InterventionLog.objects.bulk_create(
        InterventionLog(
            key=one.key,
            name=one.intervention.name,
            intervention_id=one.intervention.row_id,
            agent=turn.agent,
            channel=turn.channel,
            channel_position=around.position,
            run=turn.run,
            fired=one.fired,
            why=storable(one.why)[:300],
            preconditions=storable([asdict(result) for result in one.results]),
            nudge_type=one.nudge_type,
            nudge=storable(one.modification.guidance) if one.modification else "",
            judge=one.judge[:200],
            duration_ms=round(one.seconds * 1000),
        )
        for one in evaluations
    )


def _apply(turn: Turn, evaluations: Sequence[Evaluation]) -> None:
    """Add the nudges of those that fired to the prompt, equal texts once. They are stored nowhere else (AC-7.1.9, AC-7.1.10)."""
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

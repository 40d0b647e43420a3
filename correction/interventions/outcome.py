"""What becomes of an intervention that was looked at: fired or not and why, its log row, its span, its text in the prompt."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import sentry_sdk

from agents.llm.extraction import storable
from agents.turn.values import Turn
from correction.interventions.context import InterventionContext, Surroundings
from correction.interventions.intervention import Intervention, PromptModification
from correction.interventions.preconditions import PreconditionResult
from correction.models import InterventionLog

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Evaluation:
    """One intervention being looked at in one turn. `why` says why it fired or did not; empty as long as that is open."""

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


def conclude(evaluation: Evaluation) -> None:
    """All must hold (AC-7.1.2); what could not be judged does not hold. Then the effect says what to add."""
    intervention = evaluation.intervention
    if not evaluation.why:
        stopping = next((result for result in evaluation.results if not result.held), None)
        if stopping is not None:
            evaluation.why = why_not(stopping)
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
    _trace(evaluation)


def why_not(result: PreconditionResult) -> str:
    if result.held is None:
        return f"{result.kind} precondition {result.reasoning}"
    measured = f": {result.reasoning}" if result.kind == "functional" and result.reasoning else ""
    if result.threshold is not None:
        measured = f": score {result.score:g} is {'not ' if result.fires_below else ''}below {result.threshold:g}"
    return f"the {result.kind} precondition does not hold{measured}"


def _trace(evaluation: Evaluation) -> None:
    """A span of its own, with the times at which it was looked at (AC-7.1.15). No text of messages or claims."""
    start = datetime.fromtimestamp(evaluation.started, UTC)
    span = sentry_sdk.start_span(op="correction.intervention", name=evaluation.intervention.name, start_timestamp=start)
    span.set_data("fired", evaluation.fired)
    span.set_data("held", [result.held for result in evaluation.results])
    span.finish(end_timestamp=start + timedelta(seconds=evaluation.seconds))


def log(turn: Turn, evaluations: Sequence[Evaluation], around: Surroundings) -> None:
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
            preconditions=storable([result.as_json() for result in one.results]),
            nudge_type=one.modification.nudge_type if one.modification else "",
            nudge=storable(one.modification.guidance) if one.modification else "",
            judge=one.judge[:200],
            duration_ms=round(one.seconds * 1000),
        )
        for one in evaluations
    )


def apply(turn: Turn, evaluations: Sequence[Evaluation]) -> None:
    """Add what fired to the prompt, equal texts once, under one heading each. It is kept nowhere else (AC-7.1.9, AC-7.1.10)."""
    turn.reports["interventions"] = [
        {
            "name": one.intervention.name,
            "fired": one.fired,
            "why": one.why,
            "nudge_type": one.modification.nudge_type if one.modification else "",
        }
        for one in evaluations
    ]
    sections: dict[str, dict[str, None]] = {}
    for one in evaluations:
        if one.modification is not None:
            sections.setdefault(one.modification.heading, {})[one.modification.guidance] = None
    for heading, texts in sections.items():
        with sentry_sdk.start_span(op="correction.nudge", name="inject nudge") as span:
            turn.add_section(heading, "\n\n".join(texts))
            span.set_data("nudges", len(texts))
    for one in evaluations:
        logger.log(
            logging.INFO if one.fired else logging.DEBUG,
            "intervention %s %s for agent %s in channel %s (run %s)",
            one.intervention.name,
            "fired" if one.fired else "did not fire",
            turn.agent.slug,
            turn.channel.slug,
            turn.run.pk if turn.run is not None else None,
        )

"""Changes as rows: computed when an evaluation ends, and again when what they rest on is another one. Pages read them.

The current rows of an agent, judge and procedure are what `compare` says of the agent's newest evidence and its baselines. Which
evaluations that are is in `evidence`: so rows that rest on others are outdated, whatever happened, and a chore computes them again.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import sentry_sdk
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils.module_loading import import_string
from pydantic_core import to_jsonable_python

from agents.kit.capability import declared_list
from agents.kit.running import is_outage
from agents.models import Agent
from evaluation.calibration.labels import Key
from evaluation.calibration.stored import agreements_of, calibration_of
from evaluation.change.change import ChangeResult
from evaluation.change.comparison import Comparison, compare
from evaluation.change.evidence import (
    ADHERENCE,
    JudgeAndProcedure,
    baseline_and_candidate,
    compared_evaluations,
    newest_since_baselines,
    runs_of,
)
from evaluation.change.examples import add_evidence
from evaluation.change.lost import fell_below_half
from evaluation.change.measured import MeasuredProposition
from evaluation.change.measurements import Measurement, NotComparable
from evaluation.change.models import Change
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, EvaluationScore
from evaluation.runs.shares import NOTHING, Share
from evaluation.statistics.difference import MARGIN

MOST_TRIES = 3  # of storing, while other evaluations of the agent end
MOST_AT_ONCE = 40  # agents computed again by a chore; the others the next time

COMPARED_COLUMNS = ("agent_id", "judge", "procedure", "dimension", "baseline_run_id", "evaluation_run_id")
UNIQUE_COLUMNS = ("evaluation_run", "dimension", "proposition")
VERDICT_COLUMNS = ("evaluation_run_id", "dimension", "proposition", "baseline_run_id", "verdict", "points")

log = logging.getLogger(__name__)


# -- what pages read
def current_changes(agents: Collection[int], judged: JudgeAndProcedure | None = None) -> QuerySet[Change]:
    """Return the rows that say how agents are now, compared with their baselines.

    Args:
        agents: Primary keys.
        judged: Only by this judge and procedure.
    """
    rows = Change.objects.filter(agent__in=agents, current=True).order_by("agent", "dimension", "proposition")
    return rows if judged is None else rows.filter(judge=judged.judge, procedure=judged.procedure)


def p_values_elsewhere(agents: Collection[int], judged: JudgeAndProcedure) -> tuple[list[float], list[float]]:
    """Return the p values of all other active agents' current dimensions, and of their propositions, by the same judge and procedure.

    Not corrected; without counts, which are in no family of scores.
    """
    others = Agent.objects.listed().filter(is_active=True).exclude(pk__in=agents).order_by()
    rows = Change.objects.filter(current=True, judge=judged.judge, procedure=judged.procedure, agent__in=others)
    rows = rows.exclude(dimension__in=COUNTED).order_by()
    dimensions: list[float] = []
    propositions: list[float] = []
    for proposition, p in rows.values_list("proposition", "p_alone"):
        if p is None:
            continue
        if proposition:
            propositions.append(p)
        else:
            dimensions.append(p)
    return dimensions, propositions


# -- two measurements as rows
def changes_between(agent: Agent, before: Measurement, now: Measurement) -> list[Change]:
    """Compare two measurements of an agent; return what changed as rows that are not stored: per dimension, and per proposition."""
    return rows_of(compare(before, now), agent)


def rows_of(comparison: Comparison, agent: Agent) -> list[Change]:
    """Return a comparison of an agent as rows that are not stored: per dimension, and per proposition."""
    agreements = calibration_of(comparison.judge, comparison.procedure)
    rows = []
    for result in (*comparison.dimensions, *comparison.proposition_changes):
        row = _row_of(result, comparison)
        row.agent = agent
        agreement = agreements.get(result.dimension)
        if agreement is not None:
            row.agreement = agreement.kappa
            row.labels = agreement.labels
        rows.append(row)
    return rows


def _row_of(result: ChangeResult, comparison: Comparison) -> Change:
    """Return a row that holds one change of a comparison; `agent` and `measured_at` are set by those who know them.

    What only a proposition has (judgements, wording) or only a dimension (`deleted`) is left at its default in the other.
    """
    row = Change(
        judge=comparison.judge,
        procedure=comparison.procedure,
        dimension=result.dimension,
        proposition=result.proposition,
        evaluation_run_id=comparison.candidate.runs[result.dimension],
        baseline_run_id=comparison.baseline.runs[result.dimension],
        verdict=result.verdict,
        baseline=result.baseline,
        candidate=result.candidate,
        points=result.points,
        p=result.p_adjusted,
        p_alone=result.p_value,
        n=result.n,
        baseline_n=result.baseline_n,
        n_more=result.n_more,
        value=to_jsonable_python(_value_of(result, comparison)),
    )
    if result.interval is not None:
        row.low = result.interval.low
        row.high = result.interval.high
    before = comparison.baseline.dimensions[result.dimension].propositions
    now = comparison.candidate.dimensions[result.dimension].propositions
    if result.proposition:
        _add_judgements(row, before[result.proposition], now[result.proposition])
    else:
        row.deleted = sum(measured.deleted for measured in (*before.values(), *now.values()))
    return row


def _add_judgements(row: Change, before: MeasuredProposition, now: MeasuredProposition) -> None:
    """Set how many judgements of a proposition there are, and what was asked."""
    row.scored = now.scored
    row.baseline_scored = before.scored
    row.unscored = now.unscored
    row.inverted = now.inverted
    row.proposition_digest = now.digest


def _value_of(result: ChangeResult, comparison: Comparison) -> dict[str, Any]:
    """Return what no column holds: the whole result, and what was lost, halved and reworded."""
    value: dict[str, Any] = {"result": _fields_beyond_defaults(result)}
    for lost in comparison.lost:
        if lost.dimension == result.dimension and lost.proposition == result.proposition:
            value["lost"] = dict(lost)
    if not result.proposition:
        halved = _halved(comparison, result.dimension)
        if halved is not None:
            value["halved"] = halved
        reworded = [name for name in comparison.changed if name.startswith(f"{result.dimension}/")]
        if reworded:
            value["reworded"] = reworded
    return value


def _fields_beyond_defaults(result: ChangeResult) -> dict[str, Any]:
    """Return the fields of a result that differ from their defaults, also those that are not shown."""
    defaults = {name: field.default for name, field in type(result).model_fields.items()}
    return {name: value for name, value in result if value != defaults[name]}


def _halved(comparison: Comparison, dimension: str) -> tuple[Share, Share] | None:
    """Return the shares scored before and now where now it is less than half as much; None where it is not.

    Of the propositions that are judged message by message; those compared by hits are left out: fewer hits are no loss.
    """
    measured_before = comparison.baseline.dimensions[dimension].propositions
    measured_now = comparison.candidate.dimensions[dimension].propositions
    before = NOTHING
    now = NOTHING
    for result in comparison.changes_of(dimension):
        proposition = result.proposition
        by_message = measured_before[proposition].by_message and measured_now[proposition].by_message
        if by_message and result.hits is None:
            before += result.baseline_share or NOTHING
            now += result.share or NOTHING
    if now.asked and fell_below_half(before, now):
        return before, now
    return None


# -- storing
def store_ended(run: EvaluationRun) -> None:
    """Store how an agent changed, after one of its evaluations was completed."""
    if run.agent is not None and not run.position_bins and not run.swap_test:
        store_changes(run.agent, JudgeAndProcedure(judge=run.judge, procedure=run.procedure))


def store_changes(agent: Agent, judged: JudgeAndProcedure) -> int:
    """Compare an agent's newest evidence with its baselines, and make that its current rows; return how many there are.

    It does the same however often it is called. What ended or was replaced while it compared is compared, too: by this one, which tries
    three times, by that which ended, or by the next `refresh_changes`. 0 also where it gave up, or the agent is gone.
    """
    for _ in range(MOST_TRIES):
        compared = compared_evaluations([agent.pk], judged)
        rows = _compared_now(agent, judged) if compared else []
        with transaction.atomic():
            # Of two writers the second sees the rows of the first.
            if not list(Agent.objects.select_for_update(no_key=True).filter(pk=agent.pk)):
                return 0
            if compared_evaluations([agent.pk], judged) == compared:
                _replace_current_rows(agent, judged, rows)
                return len(rows)
    return 0


def _compared_now(agent: Agent, judged: JudgeAndProcedure) -> list[Change]:
    """Return the rows that say how the agent is now, not stored yet; none where nothing can be compared (logged where it is refused)."""
    newest = newest_since_baselines([agent.pk], judged).get(agent.pk, {})
    if not newest:
        return []
    try:
        measured = baseline_and_candidate(runs_of(newest))
    except NotComparable as error:
        log.warning("the changes of %s by %s are not known: %s", agent.slug, judged, error)
        return []
    if measured is None:
        return []
    before, now = measured
    newest_message_at = {dimension: evidence.newest_message_at for dimension, evidence in newest.items()}
    rows = changes_between(agent, before, now)
    for row in rows:
        row.measured_at = newest_message_at.get(row.dimension) or max(newest_message_at.values())
    add_evidence([row for row in rows if row.proposition and abs(row.points or 0.0) >= MARGIN])
    return rows


def _replace_current_rows(agent: Agent, judged: JudgeAndProcedure, rows: Sequence[Change]) -> None:
    """Make these the agent's current rows by this judge; those of other evaluations stay as history.

    What the apps above declare as `change_observers` is called with those rows that say something new, in the same transaction.
    """
    own = Change.objects.filter(agent=agent, judge=judged.judge, procedure=judged.procedure)
    own.filter(current=True).update(current=False)
    if not rows:
        return
    own_verdicts = set(
        own.filter(evaluation_run__in={row.evaluation_run_id for row in rows}).values_list(*VERDICT_COLUMNS)
    )
    columns = []
    for field in Change._meta.concrete_fields:
        if not field.primary_key and field.name not in UNIQUE_COLUMNS:
            columns.append(field.name)
    Change.objects.bulk_create(rows, update_conflicts=True, unique_fields=UNIQUE_COLUMNS, update_fields=columns)
    computed_again = Q(pk__in=[])
    for run, dimension in {(row.evaluation_run_id, row.dimension) for row in rows}:
        computed_again |= Q(evaluation_run=run, dimension=dimension)
    own.filter(computed_again, current=False).delete()  # propositions that are not compared any more
    new_rows = [row for row in rows if tuple(getattr(row, name) for name in VERDICT_COLUMNS) not in own_verdicts]
    for path in declared_list("change_observers"):
        import_string(path)(new_rows)


# -- computed again in the background
def refresh_changes() -> str:
    """Compute the rows again that do not rest on what is compared now, or whose messages are gone; return how many, in words.

    An evaluation may have ended in a worker that was killed, or was deleted; a baseline may have been replaced.
    """
    expected = compared_evaluations()
    stored = _stored_evaluations()
    outdated = set()
    for key in expected.keys() | stored.keys():
        if _differ(expected.get(key, set()), stored.get(key, set())):
            outdated.add(key)
    outdated |= _with_messages_gone()
    done = 0
    # In another order each time, so that agents whose changes cannot be computed keep no others out.
    for pk, judged in random.sample(list(outdated), min(len(outdated), MOST_AT_ONCE)):
        try:
            store_changes(Agent.objects.get(pk=pk), judged)
            done += 1
        except Exception as error:
            if is_outage(error):
                raise
            log.exception("the changes of agent %s by %s cannot be computed", pk, judged)
            sentry_sdk.capture_exception(error)
    _note_agreements()
    return f"{done} computed again" if done else ""


ComparedRuns = set[tuple[str, int, int]]  # dimension, evaluation of the baseline, newest evaluation


def _stored_evaluations() -> dict[tuple[int, JudgeAndProcedure], ComparedRuns]:
    """Return which evaluations the current rows compare, as `compared_evaluations` has it."""
    stored: dict[tuple[int, JudgeAndProcedure], ComparedRuns] = defaultdict(set)
    rows = Change.objects.filter(current=True, proposition="").order_by()
    for agent, judge, procedure, dimension, baseline_run, evaluation_run in rows.values_list(*COMPARED_COLUMNS):
        stored[agent, JudgeAndProcedure(judge=judge, procedure=procedure)].add(
            (dimension, baseline_run, evaluation_run)
        )
    return stored


def _differ(expected: ComparedRuns, stored: ComparedRuns) -> bool:
    """Return whether other evaluations are compared now than those in the stored rows.

    Adherence may be compared without a baseline (`baseline_and_candidate`): stored rows of it alone are then no difference.
    """
    if expected and stored and all(dimension != ADHERENCE for dimension, _, _ in expected):
        stored = {compared for compared in stored if compared[0] != ADHERENCE}
    return expected != stored


def _with_messages_gone() -> set[tuple[int, JudgeAndProcedure]]:
    """Return whose judged messages were deleted since the rows were computed: fewer are counted, and quotes are gone.

    Each row has how many of its judgements had no message any more (`deleted`); that number is another one now.
    """
    rows = Change.objects.filter(current=True, proposition="", dimension__in=BY_MESSAGE).order_by()
    compared = rows.values("evaluation_run").union(rows.values("baseline_run"), all=True)
    of_deleted = EvaluationScore.objects.filter(
        evaluation_run__in=compared,
        message=None,
        over_window=False,
        status="scored",
        dimension__in=BY_MESSAGE,
        count=None,
    )
    per_dimension = of_deleted.order_by().values_list("evaluation_run", "dimension").annotate(Count("pk"))
    counts: Counter[tuple[int, str]] = Counter()
    for run, dimension, number in per_dimension:
        counts[run, dimension] = number
    gone = set()
    for agent, judge, procedure, dimension, before, now, deleted in rows.values_list(*COMPARED_COLUMNS, "deleted"):
        if deleted != counts[before, dimension] + counts[now, dimension]:
            gone.add((agent, JudgeAndProcedure(judge=judge, procedure=procedure)))
    return gone


def _note_agreements() -> None:
    """Store how well the judges agree with people now, beside what they say now; older rows keep what was known then.

    Where nothing is known of a judge its rows stay as they are.
    """
    rows = Change.objects.filter(current=True).order_by()
    stored_agreements = list(rows.values_list("judge", "procedure", "dimension", "agreement", "labels").distinct())
    agreements = agreements_of({judge for judge, *_ in stored_agreements})
    for judge, procedure, dimension, kappa, labels in stored_agreements:
        agreement = agreements.get(Key(judge, procedure, dimension))
        if agreement is None or (agreement.kappa, agreement.labels) == (kappa, labels):
            continue
        same = rows.filter(judge=judge, procedure=procedure, dimension=dimension)
        same.update(agreement=agreement.kappa, labels=agreement.labels)

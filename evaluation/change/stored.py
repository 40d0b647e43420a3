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
from pydantic_core import to_jsonable_python

from agents.kit.running import is_outage
from agents.models import Agent
from evaluation.calibration.agreement import all_agreements, calibration_of
from evaluation.calibration.labels import Key
from evaluation.change.change import ChangeResult
from evaluation.change.comparison import Comparison, compare
from evaluation.change.evidence import (
    ADHERENCE,
    Judged,
    baseline_and_candidate,
    compared_evaluations,
    newest_since_baselines,
    runs_of,
)
from evaluation.change.examples import add_evidence
from evaluation.change.lost import fell_below_half
from evaluation.change.measurements import Measurement, NotComparable
from evaluation.change.models import Change
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, EvaluationScore
from evaluation.runs.summary import NOTHING, Share, total
from evaluation.statistics.difference import MARGIN

TRIES = 3  # of storing, while other evaluations of the agent end
MOST_AT_ONCE = 40  # agents computed again by a chore; the others the next time

_WAY = ("agent_id", "judge", "procedure")
_COMPARED = (*_WAY, "dimension", "baseline_run_id", "evaluation_run_id")
_KEY = ("evaluation_run", "dimension", "proposition")

log = logging.getLogger(__name__)


# -- what pages read
def current_changes(agents: Collection[int], judged: Judged | None = None) -> QuerySet[Change]:
    """The rows that say how these agents (primary keys) are now, compared with their baselines; by every judge unless one is named."""
    rows = Change.objects.filter(agent__in=agents, current=True).order_by("agent", "dimension", "proposition")
    return rows if judged is None else rows.filter(judge=judged.judge, procedure=judged.procedure)


def chances_elsewhere(agents: Collection[int], judged: Judged) -> tuple[list[float], list[float]]:
    """The p values of all other active agents' current dimensions and propositions, by the same judge and procedure; one statement."""
    others = Agent.objects.listed().filter(is_active=True).exclude(pk__in=agents).order_by()
    rows = Change.objects.filter(current=True, judge=judged.judge, procedure=judged.procedure, agent__in=others)
    rows = rows.exclude(dimension__in=COUNTED).order_by()
    dimensions, propositions = list[float](), list[float]()
    for proposition, p in rows.values_list("proposition", "p_alone"):
        if p is not None:
            (propositions if proposition else dimensions).append(p)
    return dimensions, propositions


# -- two measurements as rows
def changes_between(agent: Agent, before: Measurement, now: Measurement) -> list[Change]:
    """Compare two measurements of an agent; return what changed as rows that are not stored: per dimension, and per proposition."""
    comparison = compare(before, now)
    lost = {(each.dimension, each.proposition): dict(each) for each in comparison.lost}
    agreements = calibration_of(comparison.judge, comparison.procedure)
    rows = []
    for result in (*comparison.dimensions, *comparison.proposition_changes):
        dimension = result.dimension
        value: dict[str, Any] = {"result": _set_fields(result), "lost": lost.get((dimension, result.proposition))}
        if not result.proposition:
            value["halved"] = _halved(comparison, dimension)
            value["reworded"] = [name for name in comparison.changed if name.startswith(f"{dimension}/")]
        row = Change(
            agent=agent,
            judge=comparison.judge,
            procedure=comparison.procedure,
            dimension=dimension,
            proposition=result.proposition,
            evaluation_run_id=now.runs[dimension],
            baseline_run_id=before.runs[dimension],
            verdict=result.verdict,
            baseline=result.baseline,
            candidate=result.candidate,
            points=result.points,
            p=result.p_adjusted,
            p_alone=result.p_value,
            n=result.n,
            baseline_n=result.baseline_n,
            n_more=result.n_more,
            value=to_jsonable_python({name: each for name, each in value.items() if each}),
        )
        if result.interval is not None:
            row.low, row.high = result.interval.low, result.interval.high
        if (agreement := agreements.get(dimension)) is not None:
            row.agreement, row.labels = agreement.kappa, agreement.labels
        _count(row, before, now)
        rows.append(row)
    return rows


def _set_fields(result: ChangeResult) -> dict[str, Any]:
    """The fields of a result that differ from their defaults, also those that are not shown."""
    usual = {name: field.default for name, field in type(result).model_fields.items()}
    return {name: value for name, value in result if value != usual[name]}


def _halved(comparison: Comparison, dimension: str) -> tuple[Share, Share] | None:
    """The shares scored of what is judged message by message in both, where now it is less than half; hits are no shares."""
    both = [side.dimensions[dimension].propositions for side in (comparison.baseline, comparison.candidate)]
    compared = [
        result
        for result in comparison.of(dimension)
        if result.hits is None and all(of[result.proposition].by_message for of in both)
    ]
    before = total(result.baseline_share or NOTHING for result in compared)
    now = total(result.share or NOTHING for result in compared)
    return (before, now) if now.asked and fell_below_half(before, now) else None


def _count(row: Change, before: Measurement, now: Measurement) -> None:
    """Set how many judgements there are, and what was asked."""
    both = [measurement.dimensions[row.dimension].propositions for measurement in (before, now)]
    if not row.proposition:
        row.deleted = sum(measured.deleted for of in both for measured in of.values())
        return
    earlier, later = (of[row.proposition] for of in both)
    row.scored, row.baseline_scored, row.unscored = later.scored, earlier.scored, later.unscored
    row.inverted, row.proposition_digest = later.inverted, later.digest


# -- storing
def store_ended(run: EvaluationRun) -> None:
    """Store how an agent changed, after one of its evaluations was completed."""
    if run.agent is not None and not run.position_bins and not run.swap_test:
        store_changes(run.agent, Judged(judge=run.judge, procedure=run.procedure))


def store_changes(agent: Agent, judged: Judged) -> int:
    """Compare an agent's newest evidence with its baselines, and make that its current rows; return how many there are.

    It does the same however often it is called. What ended or was replaced while it compared is compared, too: by this one, by that
    which ended, or by the next `refresh_changes`.
    """
    for _ in range(TRIES):
        compared = compared_evaluations([agent.pk], judged)
        rows = _compared_now(agent, judged) if compared else []
        with transaction.atomic():
            # Of two writers the second sees the rows of the first.
            if not list(Agent.objects.select_for_update(no_key=True).filter(pk=agent.pk)):
                return 0
            if compared_evaluations([agent.pk], judged) == compared:
                _write(agent, judged, rows)
                return len(rows)
    return 0


def _compared_now(agent: Agent, judged: Judged) -> list[Change]:
    newest = newest_since_baselines([agent.pk], judged).get(agent.pk, {})
    try:
        measured = baseline_and_candidate(runs_of(newest)) if newest else None
    except NotComparable as error:
        log.warning("the changes of %s by %s are not known: %s", agent.slug, judged, error)
        return []
    if measured is None:
        return []
    at = {dimension: evidence.newest_message_at for dimension, evidence in newest.items()}
    rows = changes_between(agent, *measured)
    for row in rows:
        row.measured_at = at.get(row.dimension) or max(at.values())
    add_evidence([row for row in rows if row.proposition and abs(row.points or 0.0) >= MARGIN])
    return rows


def _write(agent: Agent, judged: Judged, rows: Sequence[Change]) -> None:
    own = Change.objects.filter(agent=agent, judge=judged.judge, procedure=judged.procedure)
    own.filter(current=True).update(current=False)
    if not rows:
        return
    columns = [field.name for field in Change._meta.concrete_fields if not field.primary_key and field.name not in _KEY]
    Change.objects.bulk_create(rows, update_conflicts=True, unique_fields=_KEY, update_fields=columns)
    again = Q(pk__in=[])
    for run, dimension in {(row.evaluation_run_id, row.dimension) for row in rows}:
        again |= Q(evaluation_run=run, dimension=dimension)
    own.filter(again, current=False).delete()  # propositions that are not compared any more


# -- computed again in the background
def refresh_changes() -> str:
    """Compute the rows again that do not rest on what is compared now, or whose messages are gone; return how many agents' it were.

    An evaluation may have ended in a worker that was killed, or was deleted; a baseline may have been replaced.
    """
    expected, stored = compared_evaluations(), _stored_evaluations()
    outdated = {key for key in expected.keys() | stored.keys() if _differ(expected.get(key), stored.get(key))}
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


Compared = set[tuple[str, int, int]]  # dimension, evaluation of the baseline, newest evaluation


def _stored_evaluations() -> dict[tuple[int, Judged], Compared]:
    stored: dict[tuple[int, Judged], Compared] = defaultdict(set)
    rows = Change.objects.filter(current=True, proposition="").order_by()
    for agent, judge, procedure, dimension, baseline_run, evaluation_run in rows.values_list(*_COMPARED):
        stored[agent, Judged(judge=judge, procedure=procedure)].add((dimension, baseline_run, evaluation_run))
    return stored


def _differ(expected: Compared | None, stored: Compared | None) -> bool:
    """Whether other evaluations are compared now. Adherence may be compared without a baseline, see `baseline_and_candidate`."""
    if not (expected and stored):
        return bool(expected or stored)
    added = set() if any(name == ADHERENCE for name, *_ in expected) else {c for c in stored if c[0] == ADHERENCE}
    return expected != stored - added


def _with_messages_gone() -> set[tuple[int, Judged]]:
    """Whose judged messages were deleted since the rows were computed: fewer are counted, and quotes are gone."""
    rows = Change.objects.filter(current=True, proposition="", dimension__in=BY_MESSAGE).order_by()
    compared = rows.values("evaluation_run").union(rows.values("baseline_run"), all=True)
    deleted = EvaluationScore.objects.filter(
        evaluation_run__in=compared,
        message=None,
        over_window=False,
        status="scored",
        dimension__in=BY_MESSAGE,
        count=None,
    )
    counts: Counter[tuple[int, str]] = Counter()
    for run, dimension, number in deleted.order_by().values_list("evaluation_run", "dimension").annotate(Count("pk")):
        counts[run, dimension] = number
    gone = set()
    for agent, judge, procedure, dimension, before, now, known in rows.values_list(*_COMPARED, "deleted"):
        if known != counts[before, dimension] + counts[now, dimension]:
            gone.add((agent, Judged(judge=judge, procedure=procedure)))
    return gone


def _note_agreements() -> None:
    """Store how well the judges agree with people now, beside what they say now; older rows keep what was known then."""
    agreements = all_agreements()
    rows = Change.objects.filter(current=True).order_by()
    known = rows.values_list("judge", "procedure", "dimension", "agreement", "labels").distinct()
    for judge, procedure, dimension, agreement, labels in known:
        now = agreements.get(Key(judge, procedure, dimension))
        if now is not None and (now.kappa, now.labels) != (agreement, labels):
            same = rows.filter(judge=judge, procedure=procedure, dimension=dimension)
            same.update(agreement=now.kappa, labels=now.labels)

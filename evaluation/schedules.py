"""Measuring again and again: firing the schedules that are due, and looking at what their runs found."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sentry_sdk
from django.db import OperationalError, transaction
from django.utils import timezone

from agents.models import Agent
from agents.work.queues import wake_workers
from evaluation.change.over_time import look_for_drift, next_to_look_at
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.planning import Prepared, RunSpec, prepare_run
from evaluation.scorers.windows import parse_window

log = logging.getLogger("evaluation.schedules")

LEAST_MINUTES, MOST_MINUTES = 5, 366 * 24 * 60
ALLOWED_EVERY = "minutes, hours, days or weeks such as 30m, 6h, 1d, 1w; from 5m to 366d"
_EVERY = re.compile(r"(\d{1,6})([mhdw])")
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}
_WAITS = (EvaluationRun.Status.PENDING, EvaluationRun.Status.RUNNING, EvaluationRun.Status.PAUSED_BUDGET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What came of a schedule that was due.

    Attributes:
        runs: The evaluations that wait for a worker now.
        skipped: Agents that were left out, with the reason.
    """

    schedule: EvaluationSchedule
    runs: tuple[EvaluationRun, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """In a sentence, as it is kept with the schedule."""
        made = f"{len(self.runs)} evaluation{'s' if len(self.runs) != 1 else ''} queued"
        left = "; ".join(f"{slug} skipped: {why}" for slug, why in self.skipped.items())
        return f"{made}; {left}" if left else made


def parse_every(text: str) -> int:
    """Minutes between two measurements, as people write them.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    match = _EVERY.fullmatch(text.strip().lower())
    minutes = int(match[1]) * _MINUTES[match[2]] if match else 0
    if not LEAST_MINUTES <= minutes <= MOST_MINUTES:
        raise ValueError(f"every {text!r}: allowed: {ALLOWED_EVERY}")
    return minutes


def every_name(minutes: int) -> str:
    """As `parse_every` reads it, in the largest unit that fits."""
    unit = next(unit for unit in "wdhm" if minutes % _MINUTES[unit] == 0)
    return f"{minutes // _MINUTES[unit]}{unit}"


def work_one(*, owner: str) -> bool:
    """Fire a schedule that is due, or look at a run that ended; whether there was one. What `manage.py work` calls."""
    now = timezone.now()
    due = EvaluationSchedule.objects.filter(is_active=True, next_at__lte=now).order_by("next_at", "pk").first()
    if due is not None:
        return fire_if_due(due, now=now) is not None
    run = next_to_look_at()
    if run is None:
        return False
    with sentry_sdk.start_transaction(op="evaluation.drift", name="look for drift") as trace:
        trace.set_data("evaluation_run", run.pk)
        look_for_drift(run)
    return True


def fire_if_due(schedule: EvaluationSchedule, *, now: datetime | None = None) -> Fired | None:
    """Fire a schedule unless somebody else did; None then.

    `next_at` moves on in the statement that claims the firing, to its next regular time after now: what was missed while no worker
    ran is measured once, not once per period. The runs are made in the same transaction, so a worker that dies leaves it due.
    """
    now = now or timezone.now()
    was_due, following = schedule.next_at, next_after(schedule, now)

    def claim() -> bool:
        mine = EvaluationSchedule.objects.filter(pk=schedule.pk, is_active=True, next_at=was_due, next_at__lte=now)
        return bool(mine.update(next_at=following, last_fired_at=now))

    return _fire(schedule, claim, until=following - schedule.every, now=now)


def fire_now(schedule: EvaluationSchedule) -> Fired:
    """Fire a schedule by hand, whether or not it is due or active; its timetable stays as it is."""
    now = timezone.now()

    def claim() -> bool:
        EvaluationSchedule.objects.select_for_update().get(pk=schedule.pk)  # a second click waits, and finds the runs
        return bool(EvaluationSchedule.objects.filter(pk=schedule.pk).update(last_fired_at=now))

    return _fire(schedule, claim, until=now, now=now) or Fired(schedule=schedule)


def next_after(schedule: EvaluationSchedule, now: datetime) -> datetime:
    """The schedule's first regular time after `now`."""
    periods = max(0, (now - schedule.next_at) // schedule.every + 1)
    return schedule.next_at + periods * schedule.every


def _fire(schedule: EvaluationSchedule, claim: Callable[[], bool], *, until: datetime, now: datetime) -> Fired | None:
    try:
        with transaction.atomic():
            if not claim():
                return None
            schedule.refresh_from_db()
            fired = _make_runs(schedule, until)
            transaction.on_commit(wake_workers)
            _keep(schedule, fired.outcome)
    except (PropositionError, ValueError) as error:
        outcome = f"nothing measured: {error}"
    except OperationalError:  # of a moment: it stays due
        raise
    except Exception as error:  # it must not be due for ever, nor hide
        _keep_aside(schedule, claim, f"nothing measured: {type(error).__name__}")
        raise
    else:
        log.log(logging.WARNING if fired.skipped else logging.INFO, "schedule %r: %s", schedule.name, fired.outcome)
        return fired
    log.error("schedule %r: %s", schedule.name, outcome)
    _keep_aside(schedule, claim, outcome)
    return Fired(schedule=schedule, skipped={"everybody": outcome})


def _keep_aside(schedule: EvaluationSchedule, claim: Callable[[], bool], outcome: str) -> None:
    """Move a schedule on that could not be fired: the transaction that would have was rolled back."""
    with transaction.atomic():
        if claim():
            _keep(schedule, outcome)


def _keep(schedule: EvaluationSchedule, outcome: str) -> None:
    EvaluationSchedule.objects.filter(pk=schedule.pk).update(last_outcome=outcome)
    schedule.last_outcome = outcome


def _make_runs(schedule: EvaluationSchedule, until: datetime) -> Fired:
    """A pending run for each agent but those whose last one is not done."""
    dimensions = tuple(schedule.dimensions) or default_dimensions()
    waiting = {
        run.agent_id: run
        for run in EvaluationRun.objects.filter(schedule=schedule, agent__isnull=False, status__in=_WAITS)
    }
    runs, skipped, channels = [], {}, Prepared()
    for agent in agents_of(schedule):
        if (held := waiting.get(agent.pk)) is not None:
            skipped[agent.slug] = f"evaluation {held.pk} of {held.created_at:%Y-%m-%d %H:%M} is {held.status}"
            continue
        spec = RunSpec(
            agent=agent,
            dimensions=dimensions,
            window=parse_window(schedule.window, now=until),
            where=schedule.where,
            samples=schedule.samples,
            judge=schedule.judge,
            schedule=schedule,
            batch=schedule.batch,
        )
        runs.append(prepare_run(spec, channels=channels)[0])
    if not runs and not skipped:
        skipped["everybody"] = "there is no active agent to measure"
    return Fired(schedule=schedule, runs=tuple(runs), skipped=skipped)


def agents_of(schedule: EvaluationSchedule) -> list[Agent]:
    """Whom a schedule measures: the agents named, or all, as far as they are active."""
    named = schedule.agents.all() if schedule.agents.exists() else Agent.objects.all()
    return list(named.filter(is_active=True).order_by("slug"))


def overlap_note(schedule: EvaluationSchedule) -> str:
    """Why drift is tested more rarely than the schedule measures, or not at all; empty when each evaluation counts."""
    window = parse_window(schedule.window)
    if window.start is None or window.end is None:
        return (
            f"Window {schedule.window} looks at the same messages again, so drift is not tested; a duration such as "
            f"{every_name(schedule.every_minutes)} would be."
        )
    length: timedelta = window.end - window.start
    if length > schedule.every:
        return (
            f"Window {schedule.window} is longer than {every_name(schedule.every_minutes)}: only evaluations that share no messages "
            f"are tested for drift, about one in {-(-length // schedule.every)}."
        )
    return ""

"""Schedules of evaluations: making and changing them, and firing those that are due."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from django.db import OperationalError, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.kit.text.wording import counted, time_text
from agents.kit.work.queues import wake_workers
from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.planning import PreparedChannel, prepare_run
from evaluation.runs.spec import RunSpec
from evaluation.windows import parse_window

log = logging.getLogger("evaluation.runs.schedules")

LEAST_MINUTES = 5
MOST_MINUTES = 366 * 24 * 60
ALLOWED_EVERY = "minutes, hours, days or weeks such as 30m, 6h, 1d, 1w; from 5m to 366d"
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_EVERY = re.compile(r"(\d{1,6})([mhdw])")
_MINUTES_OF_UNIT = {"m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}
EXPECTED = (PropositionError, ValueError)  # what is asked for cannot be measured
_NOT_DONE = (EvaluationRun.Status.PENDING, EvaluationRun.Status.RUNNING, EvaluationRun.Status.PAUSED_BUDGET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """The outcome of firing a schedule.

    Attributes:
        runs: The evaluations that wait for a worker now.
        skipped: Agents that were left out, by slug, with the reason.
        names: The display name of each of them.
    """

    schedule: EvaluationSchedule
    runs: tuple[EvaluationRun, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """Say it in a sentence, as it is stored with the schedule."""
        parts = [f"{counted(len(self.runs), 'evaluation')} queued"]
        parts += [f"{self.names.get(slug, slug)} skipped: {why}" for slug, why in self.skipped.items()]
        return "; ".join(parts)


def parse_every(text: str) -> int:
    """Read the minutes between two measurements, as people write them.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    match = _EVERY.fullmatch(text.strip().lower())
    minutes = 0
    if match:
        minutes = int(match[1]) * _MINUTES_OF_UNIT[match[2]]
    if not LEAST_MINUTES <= minutes <= MOST_MINUTES:
        raise ValueError(f"{text!r}: allowed: {ALLOWED_EVERY}")
    return minutes


def every_name(minutes: int) -> str:
    """Write minutes as `parse_every` reads them, in the largest unit that fits."""
    unit = next(unit for unit in "wdhm" if minutes % _MINUTES_OF_UNIT[unit] == 0)
    return f"{minutes // _MINUTES_OF_UNIT[unit]}{unit}"


def work_one(*, owner: str) -> bool:
    """Fire a schedule that is due, or have the apps above look at a run that ended (`after_schedules` in their `apps.py`).

    Returns:
        Whether there was one.
    """
    now = timezone.now()
    due = EvaluationSchedule.objects.filter(is_active=True, next_at__lte=now).order_by("next_at", "pk").first()
    if due is not None:
        return fire_if_due(due, now=now) is not None
    return any(import_string(path)() for path in declared_list("after_schedules"))


def fire_if_due(schedule: EvaluationSchedule, *, now: datetime | None = None) -> Fired | None:
    """Fire a schedule that is due and active; return None where it is not (any more), for example because another worker fired it.

    `next_at` moves on in the statement that takes the firing, to its next regular time after now: what was missed while no worker
    ran is measured once, not once per period. The runs are made in the same transaction, so a worker that dies leaves it due.
    """
    now = now or timezone.now()
    was_due = schedule.next_at
    following = next_after(schedule, now)
    due = EvaluationSchedule.objects.filter(pk=schedule.pk, is_active=True, next_at=was_due, next_at__lte=now)

    def take() -> bool:
        return bool(due.update(next_at=following, last_fired_at=now))

    return _fire(schedule, take, until=following - schedule.every)


def fire_now(schedule: EvaluationSchedule) -> Fired:
    """Fire a schedule by hand, whether or not it is due or active; its timetable stays as it is."""
    now = timezone.now()
    rows = EvaluationSchedule.objects.filter(pk=schedule.pk)

    def take() -> bool:
        rows.select_for_update().get()  # a second click waits, and sees the runs of the first
        return bool(rows.update(last_fired_at=now))

    # By hand it is always taken; `_fire` returns None only where another worker took it.
    return _fire(schedule, take, until=now) or Fired(schedule=schedule)


def next_after(schedule: EvaluationSchedule, now: datetime) -> datetime:
    """Return the schedule's first regular time after `now`."""
    periods = max(0, (now - schedule.next_at) // schedule.every + 1)
    return schedule.next_at + periods * schedule.every


def _fire(schedule: EvaluationSchedule, take: Callable[[], bool], *, until: datetime) -> Fired | None:
    """Make the runs in the transaction of `take`, and store the outcome with the schedule.

    Where nothing can be measured the firing is taken all the same, with the reason as its outcome, so that it is not due for ever: an
    expected reason is logged, any other error is raised after that is stored. An error of the database that may pass takes nothing.

    Args:
        take: Takes the firing; returns False where another worker did.
        until: The end of the window that is measured.

    Returns:
        None when `take` returned False.
    """
    failure: Exception | None = None
    with transaction.atomic():
        if not take():
            return None
        schedule.refresh_from_db()
        try:
            with transaction.atomic():
                fired = _make_runs(schedule, until)
            outcome = fired.outcome
        except OperationalError:  # passes: it stays due
            raise
        except Exception as error:  # noqa: BLE001 (raised below: it must not be due for ever, nor hide)
            failure = error
            outcome = f"nothing measured: {error if isinstance(error, EXPECTED) else type(error).__name__}"
            fired = Fired(schedule=schedule, skipped={"all agents": outcome})
        EvaluationSchedule.objects.filter(pk=schedule.pk).update(last_outcome=outcome)
        schedule.last_outcome = outcome
        transaction.on_commit(wake_workers)
    if failure is not None and not isinstance(failure, EXPECTED):
        raise failure
    level = logging.INFO
    if failure:
        level = logging.ERROR
    elif fired.skipped:
        level = logging.WARNING
    log.log(level, "schedule %r: %s", schedule.name, outcome)
    return fired


def _make_runs(schedule: EvaluationSchedule, until: datetime) -> Fired:
    """Make a pending run for each agent but those whose last one is not done, and those whose proposition files cannot be used.

    Those are `skipped`, each with the reason; so is ``all agents`` where there is none, or where the judge takes no batches and the
    schedule wants them: at once they would cost twice as much. Channels that agents share are measured once.
    """
    if schedule.batch and schedule.batch_problem:
        return Fired(schedule=schedule, skipped={"all agents": f"the judge {schedule.batch_problem}"})
    dimensions = tuple(schedule.dimensions) or default_dimensions()
    unfinished = EvaluationRun.objects.filter(schedule=schedule, agent__isnull=False, status__in=_NOT_DONE)
    unfinished_by_agent = {run.agent_id: run for run in unfinished}
    runs: list[EvaluationRun] = []
    skipped: dict[str, str] = {}
    names: dict[str, str] = {}
    channels: list[PreparedChannel] = []
    for agent in agents_of(schedule):
        earlier = unfinished_by_agent.get(agent.pk)
        if earlier is not None:
            names[agent.slug] = agent.display_name
            skipped[agent.slug] = (
                f"evaluation {earlier.pk} of {time_text(earlier.created_at, zone=True)} is {earlier.status}"
            )
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
            additional_context=schedule.additional_context,
        )
        try:
            runs.append(prepare_run(spec, channels=channels).run)
        except PropositionError as error:
            names[agent.slug] = agent.display_name
            skipped[agent.slug] = f"proposition files cannot be used: {error.problems[0]}"
    if not runs and not skipped:
        skipped["all agents"] = "there is no active agent to measure"
    for path in declared_list("schedule_fired"):  # what the apps above do beside each scheduled evaluation
        import_string(path)(schedule, runs)
    return Fired(schedule=schedule, runs=tuple(runs), skipped=skipped, names=names)


def agents_of(schedule: EvaluationSchedule) -> list[Agent]:
    """Return the agents that a schedule measures: those named, or all, as far as they are active."""
    agents = Agent.objects.listed()
    if schedule.agents.exists():
        agents = schedule.agents.all()
    return list(agents.filter(is_active=True).order_by("slug"))


def overlap_note(schedule: EvaluationSchedule) -> str:
    """Return why drift is tested more rarely than the schedule measures, or not at all; empty when each evaluation counts."""
    window = parse_window(schedule.window)
    if window.start is None or window.end is None:
        return (
            f"Window {schedule.window} looks at the same messages again, so drift is not tested; a duration such as "
            f"{every_name(schedule.every_minutes)} would be."
        )
    length: timedelta = window.end - window.start
    if length <= schedule.every:
        return ""
    tested = ceil(length / schedule.every)
    return (
        f"Window {schedule.window} is longer than {every_name(schedule.every_minutes)}: only evaluations that share no messages "
        f"are tested for drift, about one in {tested}."
    )


class UnknownSchedule(ValueError):
    """A name that is no schedule's; says which there are."""


def find_schedule(name: str) -> EvaluationSchedule:
    """Return the schedule of that name.

    Raises:
        UnknownSchedule: There is none; says which there are.
    """
    schedule = EvaluationSchedule.objects.filter(name=name).first()
    if schedule is None:
        names = ", ".join(EvaluationSchedule.objects.values_list("name", flat=True)[:40])
        raise UnknownSchedule(f"no schedule {name!r}; schedules: {names or 'none yet; `schedule add` makes one'}")
    return schedule


def save_schedule(schedule: EvaluationSchedule, *, agents: Sequence[Agent] | None = None) -> EvaluationSchedule:
    """Check and store a schedule, new or changed.

    Args:
        schedule: With its fields set.
        agents: Whom it measures; empty: every active agent, also those that come later; None: as before.

    Raises:
        ValidationError: What is asked for cannot be measured, or the name is taken.
    """
    schedule.full_clean()
    with transaction.atomic():
        schedule.save()
        if agents is not None:
            schedule.agents.set(agents)
    return schedule


def default_window(every_minutes: int) -> str:
    """Return the window that joins the one before: as long as the time between two measurements, in whole hours or days."""
    hours = ceil(every_minutes / 60)
    if hours % 24 == 0:
        return f"{hours // 24}d"
    return f"{hours}h"


def first_time(at: str, *, now: datetime | None = None) -> datetime:
    """Return the next time the clock shows ``HH:MM`` in the configured time zone.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    match = _TIME_OF_DAY.fullmatch(at.strip())
    if match is None:
        raise ValueError(f"{at!r}: allowed: a time of day such as 03:30")
    local = timezone.localtime(now)
    today = local.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
    if today > local:
        return today
    return today + timedelta(days=1)


def schedule_json(schedule: EvaluationSchedule) -> dict[str, Any]:
    """Dump a schedule as commands print it.

    `agents` null: every active one; `dimensions` null: all with propositions; `judge` null: the configured one; `last_fired_at` null: never
    fired.
    """
    columns = (
        "name",
        "window",
        "where",
        "samples",
        "additional_context",
        "every_minutes",
        "drift_limit",
        "batch",
        "is_active",
        "last_outcome",
    )
    return {
        **{name: getattr(schedule, name) for name in columns},
        "agents": [agent.slug for agent in schedule.agents.all()] or None,
        "dimensions": schedule.dimensions or None,
        "judge": schedule.judge or None,
        "next_at": schedule.next_at.isoformat(),
        "last_fired_at": schedule.last_fired_at.isoformat() if schedule.last_fired_at else None,
    }

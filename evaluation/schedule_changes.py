"""Making and changing schedules: what the command and the console share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from agents.models import Agent
from evaluation.models import EvaluationSchedule

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


class UnknownSchedule(ValueError):
    """A name that is no schedule's; says which there are."""


def find_schedule(name: str) -> EvaluationSchedule:
    """The schedule of that name.

    Raises:
        UnknownSchedule: There is none.
    """
    found = EvaluationSchedule.objects.filter(name=name).first()
    if found is None:
        known = ", ".join(EvaluationSchedule.objects.values_list("name", flat=True)[:40])
        raise UnknownSchedule(f"no schedule {name!r}; schedules: {known or 'none yet; `schedule add` makes one'}")
    return found


def save_schedule(schedule: EvaluationSchedule, *, agents: Sequence[Agent] | None = None) -> EvaluationSchedule:
    """Check and store a schedule, new or changed.

    Args:
        schedule: With its fields set.
        agents: Whom it measures; empty: every active agent, also those that come later; None: as before.

    Raises:
        ValueError: What is asked for cannot be measured, or the name is taken; names field, value and what is allowed.
    """
    try:
        schedule.full_clean()
    except ValidationError as error:
        raise ValueError(_sentence(error)) from None
    with transaction.atomic():
        schedule.save()
        if agents is not None:
            schedule.agents.set(agents)
    return schedule


def _sentence(error: ValidationError) -> str:
    return "; ".join(f"{field}: {' '.join(messages)}" for field, messages in error.message_dict.items())


def default_window(every_minutes: int) -> str:
    """The window that joins the one before: as long as the time between two measurements, in whole hours or days."""
    hours = -(-every_minutes // 60)
    return f"{hours // 24}d" if hours % 24 == 0 else f"{hours}h"


def first_time(at: str, *, now: datetime | None = None) -> datetime:
    """The next time the clock shows ``HH:MM`` in the configured time zone.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    match = _TIME.fullmatch(at.strip())
    if match is None:
        raise ValueError(f"at {at!r}: allowed: a time of day such as 03:30")
    local = timezone.localtime(now)
    today = local.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0)
    return today if today > local else today + timedelta(days=1)


def schedule_json(schedule: EvaluationSchedule) -> dict[str, Any]:
    """A schedule as commands print it. `agents` null: every active one; `dimensions` null: all with propositions."""
    agents = [agent.slug for agent in schedule.agents.all()]
    return {
        "name": schedule.name,
        "agents": agents or None,
        "dimensions": schedule.dimensions or None,
        "window": schedule.window,
        "where": schedule.where,
        "samples": schedule.samples,
        "judge": schedule.judge or None,
        "every_minutes": schedule.every_minutes,
        "drift_limit": schedule.drift_limit,
        "batch": schedule.batch,
        "is_active": schedule.is_active,
        "next_at": schedule.next_at.isoformat(),
        "last_fired_at": schedule.last_fired_at.isoformat() if schedule.last_fired_at else None,
        "last_outcome": schedule.last_outcome,
    }

"""Schedules, and days of measurements as rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs.schedules import work_one
from tests.evaluation.judged import LLM, make_run, make_score
from tests.factories import MONDAY, make_agent, say, talk

DAY = timedelta(days=1)


def make_schedule(
    name: str = "nightly", *agents: Agent, due: datetime | None = None, **fields: Any
) -> EvaluationSchedule:
    """A schedule of adherence over a day, every day; due now unless said."""
    defaults: dict[str, Any] = {"dimensions": ["adherence"], "next_at": due or timezone.now()}
    schedule = EvaluationSchedule.objects.create(name=name, **{**defaults, **fields})
    schedule.agents.set(agents)
    return schedule


def measured_day(
    schedule: EvaluationSchedule,
    agent: Agent,
    day: int,
    scores: Iterable[int],
    *,
    judge: str = LLM,
    start: datetime = MONDAY,
    **fields: Any,
) -> EvaluationRun:
    """A completed run of the schedule's over one day, one message per score."""
    end = start + (day + 1) * DAY
    window = {"window": "24h", "window_start": end - DAY, "window_end": end}
    run = make_run(agent, judge=judge, **{"schedule": schedule, "persona_digest": "p1", **window, **fields})
    channel = agent.messages.first()
    for number, score in enumerate(scores):
        at = end - DAY + timedelta(minutes=number + 1)
        said = say(channel.channel, agent, f"{day}: {score}", sent_at=at) if channel else None
        make_score(run, score, message=said)
    return run


def fallen(slug: str = "ada", name: str = "nightly") -> tuple[EvaluationSchedule, Agent]:
    """Have an agent's scores fall on the fifteenth of eighteen days, with the alert."""
    agent = make_agent(slug)
    talk(agent, ["hello"])
    schedule = make_schedule(name, agent, due=MONDAY + 999 * DAY)
    for day in range(18):
        measured_day(schedule, agent, day, (7, 8, 7, 6 + day % 2) if day < 14 else (4, 5, 4, 3 + day % 2))
        assert work_one(owner="test")
    return schedule, agent

"""The sentinel: a judge that changed behind its name is one alert of the judge, and none of the agents it judges."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from agents.alerts.models import Alert
from agents.kit.models import LLMCall, owner_name
from agents.kit.work.queues import work_queues
from agents.models import Agent
from evaluation.change.models import DriftAlert, SentinelCheck
from evaluation.change.sentinel import accept
from evaluation.change.series import series_of
from evaluation.models import EvaluationSchedule
from tests.evaluation.change.drift.scheduling import DAY, make_schedule
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import claims_of, entry, tail_of
from tests.factories import MONDAY, make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
SCORES = (4, 5, 6, 7, 5, 6, 3, 6, 5, 7)  # what a day's messages are worth


@pytest.fixture
def nightly(propositions: PropositionFolder, settings: Settings) -> EvaluationSchedule:
    """A schedule of Ada by a judge at a server."""
    settings.LLM_MAX_CONCURRENCY = 2
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    ada = make_agent("ada")
    return make_schedule("nightly", ada, due=MONDAY + DAY)


def judge_that_adds(shift: int, *, model: str = "") -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A judge that gives a message what it is worth, and so much more."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        worth = int(re.findall(r"worth (\d)", tail_of(body))[0])
        found = {key: entry(worth + shift) for key in claims_of(body)}
        return {"json": found if len(found) > 1 else found["p1"], "model": model}

    return respond


def work_off() -> None:
    """Work until nothing is left, as a worker does."""
    owner = owner_name()
    while any(work_one(owner=owner) for work_one in work_queues().values()):
        pass


def day(number: int, time_machine: Any, *, scores: tuple[int, ...] = SCORES) -> None:
    """Ada speaks for a day, and the schedule is worked off at its end."""
    start = MONDAY + number * DAY
    channel = make_channel(f"day-{number}")
    texts = [f"{number}.{line} worth {score}" for line, score in enumerate(scores)]
    talk(Agent.objects.get(), texts, channel=channel, sent_at=start + timedelta(hours=1))
    time_machine.move_to(start + DAY + timedelta(minutes=1))
    work_off()


@pytest.mark.parametrize("shift", [1, -1])
def test_a_changed_judge_is_one_alert_and_none_of_the_agent(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any, shift: int
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(10):
        day(number, time_machine)
    assert not Alert.objects.exists()

    llm_server.respond = judge_that_adds(shift)
    for number in range(10, 16):
        day(number, time_machine)

    alert = Alert.objects.get()
    assert (alert.kind, alert.times, alert.ended_at) == ("judge_changed", 1, None)
    assert not DriftAlert.objects.exists()
    check = SentinelCheck.objects.get(changed=True)
    assert check.result is not None
    assert (check.result.delta, check.result.n) == (shift, 15)
    assert {call.purpose for call in LLMCall.objects.filter(work_id=check.work_id)} == {"sentinel"}
    assert LLMCall.objects.filter(work_id=check.work_id).count() == 15

    assert accept(check.sentinel, user=None)
    for number in range(16, 20):
        day(number, time_machine)

    alert.refresh_from_db()
    assert alert.ended_at is not None
    assert (Alert.objects.count(), DriftAlert.objects.count()) == (1, 0)
    (series,) = series_of(Agent.objects.get())
    assert [n for n, point in enumerate(series.points) if point.restarts] == [10, 16]
    assert "the judge changed" in series.newest_restart


def test_an_agent_that_fell_is_no_changed_judge(
    nightly: EvaluationSchedule, llm_server: LLMServer, time_machine: Any
) -> None:
    llm_server.respond = judge_that_adds(0)
    for number in range(10):
        day(number, time_machine)
    for number in range(10, 15):
        day(number, time_machine, scores=tuple(score - 2 for score in SCORES))

    assert [alert.kind for alert in Alert.objects.all()] == ["drift"]

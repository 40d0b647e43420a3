"""Scores of agents over time: from what schedules kept, and added up where no schedule asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents.models import Agent
from evaluation.change import over_time as score_history
from evaluation.change.evidence import Judged
from evaluation.change.over_time import MOST_SUMMED, History, histories, measured_lately
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs.summary import summarize
from tests.evaluation.judged import LLM, OFFLINE, make_baseline, make_run, make_score
from tests.factories import make_agent, talk

pytestmark = pytest.mark.django_db

WAY = Judged(judge=LLM, procedure="plumbline")
MONTH = timedelta(days=30)


def scheduled(agent: Agent, score: float | None, *, days_ago: float = 0, **fields: Any) -> EvaluationRun:
    """A scheduled evaluation as the look for drift leaves it."""
    schedule = EvaluationSchedule.objects.get_or_create(name="nightly", defaults={"next_at": timezone.now()})[0]
    points = {} if score is None else {"adherence": {"score": score, "error": 0.25, "of": "x"}}
    return dated(make_run(agent, schedule=schedule, series_points=points, **fields), days_ago)


def dated(run: EvaluationRun, days_ago: float) -> EvaluationRun:
    at = timezone.now() - timedelta(days=days_ago)
    EvaluationRun.objects.filter(pk=run.pk).update(created_at=at)
    return run


def read(*agents: Agent, way: Judged = WAY, dimension: str = "adherence") -> list[History]:
    keys = [agent.pk for agent in agents]
    return histories(agents=keys, judged=way, dimension=dimension, since=timezone.now() - MONTH)


def scores(history: History) -> list[float | None]:
    return [reading.score for reading in history.readings]


def test_readings_are_in_the_order_of_time_with_the_error_that_was_kept() -> None:
    ada = make_agent()
    for days, score in ((1, 3.5), (20, 8.0), (40, 9.0), (5, 6.0)):
        scheduled(ada, score, days_ago=days)
    (history,) = read(ada)

    assert scores(history) == [8.0, 6.0, 3.5], "older than the range is left out"
    assert history.readings[0].error == 0.25
    assert history.now == 3.5


def test_what_no_schedule_asked_for_is_added_up_as_its_summary_is() -> None:
    ada = make_agent()
    messages = talk(ada, ["one", "two", "three"])
    run = make_run(ada, repeats=2)
    for number, message in enumerate(messages):
        for repeat in (1, 2):
            make_score(run, 2 * number + repeat, message=message, repeat=repeat, weight=2.0)
        make_score(run, 9, message=message, proposition_id="short", judge="rule")
        make_score(run, None, message=message, proposition_id="loud")
    (history,) = read(ada)

    assert scores(history)[0] == pytest.approx(summarize(run).dimensions["adherence"].score, abs=1e-4)


def test_evaluations_that_are_too_many_to_add_up_are_counted_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_history, "MOST_SUMMED", 2)
    ada = make_agent()
    for number, message in enumerate(talk(ada, ["one", "two", "three"])):
        make_score(dated(make_run(ada), number), 7, message=message)
    (history,) = read(ada)

    assert (scores(history), history.left_out) == ([7.0, 7.0], 1)


def test_what_could_not_be_scored_is_a_reading_without_a_score() -> None:
    ada = make_agent()
    scheduled(ada, 7.0, days_ago=3)
    make_score(dated(make_run(ada), 2), None, message=talk(ada, ["one"])[0])
    scheduled(ada, None, days_ago=1)
    (history,) = read(ada)

    assert scores(history) == [7.0, None, None]
    assert history.now == 7.0


def test_other_judges_and_procedures_never_share_a_line() -> None:
    ada = make_agent()
    scheduled(ada, 8.0, days_ago=3)
    scheduled(ada, 2.0, days_ago=2, judge=OFFLINE)
    scheduled(ada, 3.0, days_ago=1, hard=True)

    assert scores(read(ada)[0]) == [8.0]
    assert scores(read(ada, way=Judged(judge=LLM, procedure="plumbline+hard"))[0]) == [3.0]
    assert set(measured_lately(since=timezone.now() - MONTH)) == {
        WAY,
        Judged(judge=OFFLINE, procedure="plumbline"),
        Judged(judge=LLM, procedure="plumbline+hard"),
    }


def test_who_lost_most_comes_first_and_who_has_no_baseline_last() -> None:
    fell, held, rose, new = (make_agent(slug) for slug in ("fell", "held", "rose", "new"))
    for agent, before, now in ((held, 7.0, 6.9), (rose, 4.0, 6.0), (fell, 8.0, 3.0), (new, None, 1.0)):
        run = scheduled(agent, now)
        if before is not None:
            make_baseline(agent, run, score=before)

    assert [history.agent for history in read(fell, held, rose, new)] == [fell, held, rose, new]
    assert [history.fall for history in read(fell, new)] == [5.0, None]


def test_of_many_evaluations_without_a_schedule_the_newest_are_added_up(django_assert_num_queries: Any) -> None:
    ada = make_agent()
    (message,) = talk(ada, ["one"])
    for _ in range(MOST_SUMMED + 3):
        make_score(make_run(ada), 5, message=message)

    with django_assert_num_queries(4):
        (history,) = read(ada)
    assert len(history.readings) == MOST_SUMMED

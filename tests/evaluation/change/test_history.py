"""Scores at the time of their messages: an imported log has its history at once, whoever measured it and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from agents.builds import first_said_with_tag
from agents.models import Agent
from evaluation.change import history
from evaluation.change.evidence import JudgeAndProcedure
from evaluation.change.history import History, histories
from tests.evaluation.change.measured import imported
from tests.evaluation.judged import LLM, OFFLINE, make_run, make_score
from tests.factories import MONDAY, make_agent

pytestmark = pytest.mark.django_db

WAY = JudgeAndProcedure(judge=LLM, procedure="plumbline")
DAY = timedelta(days=1)


def read(*agents: Agent, **choice: Any) -> list[History]:
    pks = [agent.pk for agent in agents]
    return histories(agents=pks, tags=first_said_with_tag(pks), **choice)


def values(one: History) -> list[float | None]:
    return [point.score for point in one.points]


def test_a_measured_log_has_a_point_at_each_message() -> None:
    ada = make_agent()
    imported(ada, [8, 7, None, 2])
    (one,) = read(ada)

    assert [point.at for point in one.points] == [MONDAY + day * DAY for day in range(4)]
    assert (values(one), one.unscored) == ([8, 7, None, 2], 1)
    assert {point.message for point in one.points} == set(ada.messages.values_list("pk", flat=True))


def test_a_rolling_mean_starts_again_at_each_build() -> None:
    ada = make_agent()
    imported(ada, [8, 9, 8, 9, 8, 9, 2, 1, 2, 1, 2, 1])
    (one,) = read(ada)

    assert [mean.starts for mean in one.rolling_means] == [number in (0, 6) for number in range(12)]
    assert (one.rolling_means[5].mean, one.now) == (8.5, 1.5)
    assert one.rolling_means[0].interval is None, "one message has none"
    assert one.rolling_means[5].interval is not None
    assert 7.5 < one.rolling_means[5].interval.low < 8.5 < one.rolling_means[5].interval.high <= 9


def test_of_a_message_that_was_judged_again_the_newest_evaluation_counts() -> None:
    ada = make_agent()
    first = imported(ada, [8, 8])
    again = make_run(ada)
    for message in ada.messages.all():
        make_score(again, 3, message=message, weight=2)
        make_score(again, 9, message=message, proposition_id="brief")
    (one,) = read(ada)

    assert values(one) == [5, 5]
    assert {point.run for point in one.points} == {again.pk} != {first.pk}


def test_judges_and_procedures_have_lines_of_their_own_and_models_come_first() -> None:
    ada = make_agent()
    for fields in ({"judge": OFFLINE}, {}, {"hard": True}):
        imported(ada, [8], **fields)

    assert [str(one.judged) for one in read(ada)] == [
        f"{LLM} plumbline",
        f"{LLM} plumbline+hard",
        f"{OFFLINE} plumbline",
    ]
    assert [one.judged for one in read(ada, judged=WAY)] == [WAY]


def test_only_completed_evaluations_of_real_speech_are_in_a_history() -> None:
    ada = make_agent()
    for fields in ({"simulated": True}, {"swap_test": "own"}, {"position_bins": [[1, None]]}, {"status": "failed"}):
        imported(ada, [1], **fields)

    assert read(ada) == []


def test_what_is_judged_over_a_window_stands_at_its_newest_message() -> None:
    ada = make_agent()
    run = make_run(ada, dimensions=["fluency"])
    run.evidence.update(newest_message_at=MONDAY)
    make_score(run, 6, dimension="fluency")
    (one,) = read(ada)

    assert [(point.at, point.score, point.message) for point in one.points] == [(MONDAY, 6, None)]
    assert (list(one.rolling_means), one.now) == ([], 6)


def test_too_many_points_become_means_of_days() -> None:
    ada = make_agent()
    for hour in range(3):
        imported(ada, [9 - hour, 8 - hour, None], start=MONDAY + timedelta(hours=hour))
    one = read(ada)[0].daily(8)

    assert one.by_day
    assert values(one) == [8, 7, None]
    assert [point.messages for point in one.points[:2]] == [3, 3]
    lowest = {message.pk: message.sent_at for message in ada.messages.all()}[one.points[0].message or 0]
    assert lowest == MONDAY + timedelta(hours=2)
    assert len(one.rolling_means) == 2
    assert read(ada)[0].daily(9).by_day is False
    assert read(ada)[0].daily(2).older


def test_only_the_newest_messages_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_JUDGED", 3)
    ada = make_agent()
    imported(ada, [9, 8, 7, 6, 5])
    (one,) = read(ada)

    assert (values(one), one.older) == ([7, 6, 5], True)

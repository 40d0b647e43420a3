"""Schedules: fired once when they are due, whoever looks, whatever was missed, and what came of it is said."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from agents.kit.models import owner_name
from agents.kit.work.tasks import work
from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs import schedules
from evaluation.runs.planning import prepare_run
from evaluation.runs.schedules import fire_if_due, fire_now
from evaluation.runs.spec import RunSpec
from tests.evaluation.change.drift.scheduling import DAY, make_schedule
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers
from tests.factories import make_agent, speaking
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def recent(propositions: PropositionFolder) -> Agent:
    """An agent that spoke within the last day."""
    propositions.claims("adherence/_default.yaml", "voice")
    agent = speaking("ada", ["No.", "Never."], sent_at=timezone.now() - timedelta(hours=1))
    return agent


def fire() -> bool:
    return schedules.work_one(owner=owner_name())


# -- when
def test_a_schedule_that_is_due_is_fired_by_the_worker_and_measured(recent: Agent, llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: 7)
    due = timezone.now() - timedelta(minutes=3)
    schedule = make_schedule("nightly", recent, due=due)

    assert [work() for _ in range(6)] == [True] * 5 + [
        False
    ]  # fired, judge checked, measured, looked at, passport computed

    run = EvaluationRun.objects.get(schedule=schedule)
    assert (run.agent, run.status, run.overall_score, run.is_baseline) == (recent, "completed", 7, False)
    assert (run.window_start, run.window_end) == (due - DAY, due), (
        "windows join without a gap however late the worker is"
    )
    assert set(run.series_points or {}) == {"adherence"}
    schedule.refresh_from_db()
    assert (schedule.next_at, schedule.last_outcome) == (due + DAY, "1 evaluation queued")
    assert not work()


@pytest.mark.parametrize("fields", [{"is_active": False}, {"due": timezone.now() + timedelta(days=400)}])
def test_a_schedule_that_is_paused_or_not_due_is_left_alone(recent: Agent, fields: dict[str, object]) -> None:
    make_schedule("nightly", recent, **fields)  # type: ignore[arg-type]

    assert not fire()
    assert not EvaluationRun.objects.exists()


def test_what_was_missed_is_measured_once_and_the_timetable_kept(recent: Agent, llm_server: LLMServer) -> None:
    due = timezone.now() - 10 * DAY - timedelta(hours=2)
    schedule = make_schedule("nightly", recent, due=due)

    assert fire()
    assert not fire()

    schedule.refresh_from_db()
    assert schedule.next_at == due + 11 * DAY
    assert EvaluationRun.objects.get(schedule=schedule).window_end == due + 10 * DAY


def test_an_agent_with_an_unfinished_run_is_skipped_and_that_is_said(
    recent: Agent, llm_server: LLMServer, caplog: pytest.LogCaptureFixture
) -> None:
    bea = make_agent("bea")
    schedule = make_schedule("nightly", recent, bea)
    assert fire()
    waiting = EvaluationRun.objects.get(agent=recent)
    EvaluationRun.objects.filter(agent=bea).update(status="completed")

    with caplog.at_level(logging.WARNING, "evaluation.runs.schedules"):
        fired = fire_if_due(schedule_again(schedule))

    assert fired is not None
    assert [run.agent for run in fired.runs] == [bea]
    assert f"Ada skipped: evaluation {waiting.pk} of" in fired.outcome
    assert fired.outcome.endswith("is pending")
    assert "Ada skipped" in caplog.text
    assert EvaluationRun.objects.filter(agent=recent).count() == 1


def schedule_again(schedule: EvaluationSchedule) -> EvaluationSchedule:
    """The schedule, due now again."""
    schedule.refresh_from_db()
    schedule.next_at = timezone.now()
    schedule.save()
    return schedule


def test_two_workers_that_saw_it_due_fire_it_once(recent: Agent) -> None:
    schedule = make_schedule("nightly", recent)
    seen_by_another = EvaluationSchedule.objects.get()

    assert fire_if_due(schedule) is not None
    assert fire_if_due(seen_by_another) is None
    assert EvaluationRun.objects.count() == 1


@pytest.mark.service
@pytest.mark.django_db(transaction=True)
def test_ten_threads_fire_a_schedule_once_on_postgresql(recent: Agent) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names no PostgreSQL: threads cannot share an in-memory SQLite")
    schedule = make_schedule()

    def fire_in_thread(number: int) -> bool:
        try:
            return fire_if_due(schedule) is not None
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        fired = list(pool.map(fire_in_thread, range(10)))

    assert fired.count(True) == 1
    assert EvaluationRun.objects.filter(schedule=schedule).count() == 1


# -- whom and what
def test_without_names_every_active_agent_is_measured(recent: Agent, llm_server: LLMServer) -> None:
    make_agent("bea")
    make_agent("gone", is_active=False)
    schedule = make_schedule()

    fired = fire_now(schedule)

    assert [run.agent.slug for run in fired.runs if run.agent] == ["ada", "bea"]


def test_dimensions_tags_samples_and_judge_are_the_schedules(recent: Agent, llm_server: LLMServer) -> None:
    schedule = make_schedule("nightly", recent, where={"build": "41"}, samples=7, judge="another", dimensions=[])

    (run,) = fire_now(schedule).runs

    assert (run.where, run.samples, run.judge, run.dimensions) == ({"build": "41"}, 7, "another", ["adherence"])


def test_channels_of_agents_are_measured_anew_each_time(
    recent: Agent, llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.write(
        "convergence/_default.yaml",
        "dimension: convergence\ntarget_type: environment\npropositions:\n  - {id: voices, claim: 'In {{channel_name}} voices differ'}\n",
    )
    bea = speaking("bea", ["YES!"], sent_at=timezone.now() - timedelta(hours=1))
    schedule = make_schedule("nightly", recent, bea, dimensions=["convergence"])

    for _ in range(2):
        fire_now(schedule)
        EvaluationRun.objects.update(status="completed")

    assert EvaluationRun.objects.filter(channel__isnull=False, schedule=schedule).count() == 2, "one a day for both"
    assert EvaluationRun.objects.filter(agent__isnull=False).count() == 4


def test_firing_by_hand_keeps_the_timetable(recent: Agent, llm_server: LLMServer) -> None:
    schedule = make_schedule("nightly", recent, due=timezone.now() + DAY, is_active=False)
    next_at = schedule.next_at

    fired = fire_now(schedule)
    again = fire_now(schedule)

    schedule.refresh_from_db()
    assert (len(fired.runs), len(again.runs), list(again.skipped)) == (1, 0, ["ada"])
    assert schedule.next_at == next_at
    assert schedule.last_outcome == again.outcome


# -- trouble
def test_unusable_proposition_files_are_named_and_not_tried_for_ever(
    recent: Agent, propositions: PropositionFolder
) -> None:
    propositions.write("adherence/_default.yaml", "dimension: [")
    schedule = make_schedule("nightly", recent)

    assert fire()
    assert not fire()

    schedule.refresh_from_db()
    assert schedule.next_at > timezone.now()
    assert "cannot be used" in schedule.last_outcome
    assert "_default.yaml" in schedule.last_outcome


def test_agents_whose_files_are_whole_are_measured_beside_one_whose_are_broken(
    recent: Agent, propositions: PropositionFolder
) -> None:
    bea = make_agent("bea")
    propositions.write("adherence/bea.yaml", "dimension: [")

    fired = fire_now(make_schedule("nightly", recent, bea))

    assert [run.agent for run in fired.runs] == [recent]
    assert "bea.yaml" in fired.skipped["bea"]


def test_a_crash_while_making_runs_leaves_none_and_shows_its_error(
    recent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    bea = make_agent("bea")
    schedule = make_schedule("nightly", recent, bea)

    def breaks(spec: RunSpec, **asked: Any) -> tuple[EvaluationRun, bool]:
        if spec.agent == bea:
            raise RuntimeError("out of luck")
        return prepare_run(spec, **asked)

    monkeypatch.setattr(schedules, "prepare_run", breaks)

    with pytest.raises(RuntimeError, match="out of luck"):
        fire()

    schedule.refresh_from_db()
    assert not EvaluationRun.objects.exists()
    assert schedule.last_outcome == "nothing measured: RuntimeError"
    assert schedule.next_at > timezone.now(), "it is not due for ever"


def test_nobody_to_measure_is_said() -> None:
    schedule = make_schedule()

    assert "no active agent" in fire_now(schedule).outcome

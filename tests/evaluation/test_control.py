"""Evaluations that people queue, cancel and have go on, while workers are at them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents.models import Agent
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs import judging
from evaluation.runs.control import NotPossible, Progress, cancel_run, progress_of, queue_run, resume_run
from evaluation.runs.execute import execute, work_one
from evaluation.runs.planning import prepare_run
from evaluation.runs.spec import RunSpec
from tests.evaluation.conversing import DRY, LOUD, converse, in_turn
from tests.evaluation.judging import answers, tail_of
from tests.evaluation.measuring import spec, statuses
from tests.factories import make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

WORKER = "worker:1:x"


@pytest.fixture
def judge(llm_server: LLMServer) -> LLMServer:
    llm_server.respond = answers(lambda claim: 7)
    return llm_server


@pytest.fixture
def noticing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that looks before every call whether the run is still its own, not every few seconds."""
    monkeypatch.setattr(judging, "HEARTBEAT", -1.0)


def status_of(run: EvaluationRun) -> str:
    run.refresh_from_db()
    return str(run.status)


# -- cancelling
def test_a_waiting_run_that_is_cancelled_is_never_judged(judge: LLMServer, ada: Agent) -> None:
    run, _ = queue_run(spec(ada))

    cancelled = cancel_run(run)

    assert (cancelled.status, cancelled.overall_score) == ("cancelled", None)
    assert cancelled.error
    assert cancelled.finished_at is not None
    assert not work_one(owner=WORKER)
    assert judge.calls == 0


def test_a_worker_stops_at_once_and_what_was_judged_stays(judge: LLMServer, chatty: Agent, noticing: None) -> None:
    run, _ = queue_run(spec(chatty, samples=30))
    seen: list[int] = []

    def cancel_after_three(_: EvaluationRun, done: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            cancel_run(run)

    execute([run], owner=WORKER, progress=cancel_after_three)

    assert status_of(run) == "cancelled"
    assert statuses(run) == {"scored": 3, "pending": 27}
    assert run.token_usage > 0, "what it cost until then"
    assert not Baseline.objects.exists(), "what is cut off is no baseline"


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_what_ended_cannot_be_cancelled(ada: Agent, status: str) -> None:
    run, _ = prepare_run(spec(ada))
    EvaluationRun.objects.filter(pk=run.pk).update(status=status)

    with pytest.raises(NotPossible, match=f"is {status}; only one that is pending, running or paused_budget can be"):
        cancel_run(run)


@pytest.fixture
def rooms(judge: LLMServer) -> dict[str, Agent]:
    """Ada alone in #one, Ada with Bea in #two."""
    converse(make_channel("one"), [("ada", text) for text in DRY])
    converse(make_channel("two"), in_turn(DRY, LOUD))
    return {agent.slug: agent for agent in Agent.objects.all()}


def channel_statuses() -> dict[str, str]:
    rows = EvaluationRun.objects.filter(channel__isnull=False)
    return dict(rows.values_list("channel__slug", "status"))


def test_its_channels_are_cancelled_too_unless_somebody_else_waits_for_them(rooms: dict[str, Agent]) -> None:
    ada_s, _ = queue_run(RunSpec(agent=rooms["ada"], dimensions=("fluency", "convergence")))
    bea_s, _ = queue_run(RunSpec(agent=rooms["bea"], dimensions=("fluency", "convergence")))

    cancel_run(ada_s)
    assert channel_statuses() == {"one": "cancelled", "two": "pending"}

    cancel_run(bea_s)
    assert channel_statuses() == {"one": "cancelled", "two": "cancelled"}


# -- going on
@pytest.mark.parametrize("status", ["errored", "paused_budget", "cancelled"])
def test_a_stopped_run_goes_on_with_what_is_left(judge: LLMServer, ada: Agent, status: str) -> None:
    run, _ = prepare_run(spec(ada))
    done = EvaluationScore.objects.filter(evaluation_run=run)[:4].values_list("pk", flat=True)
    EvaluationScore.objects.filter(pk__in=list(done)).update(status="scored", score=2, raw_score=2, judge=run.judge)
    EvaluationRun.objects.filter(pk=run.pk).update(status=status, error="it stopped")

    again = resume_run(run)

    assert (again.status, again.error, again.finished_at) == ("pending", "", None)
    assert work_one(owner=WORKER)
    assert status_of(run) == "completed"
    assert list(run.scores.order_by("score").values_list("score", flat=True)) == [2, 2, 2, 2, 7, 7]


def test_a_completed_run_goes_on_only_where_the_judge_did_not_answer(judge: LLMServer, ada: Agent) -> None:
    judge.respond = lambda body: {"status": 500} if "Why?" in tail_of(body) else answers(lambda _: 7)(body)
    run, _ = queue_run(spec(ada, per_call=1))
    work_one(owner=WORKER)
    assert status_of(run) == "completed"
    broken = statuses(run)["unscored"]
    assert broken > 0
    calls = judge.calls
    judge.respond = answers(lambda claim: 5)

    resume_run(run)
    work_one(owner=WORKER)

    assert status_of(run) == "completed"
    assert statuses(run) == {"scored": 6}
    assert judge.calls - calls == broken


@pytest.mark.parametrize(
    ("status", "words"),
    [("pending", "is pending"), ("running", "is running"), ("completed", "no call of its judge failed")],
)
def test_what_does_not_stand_still_cannot_be_resumed(ada: Agent, status: str, words: str) -> None:
    run, _ = prepare_run(spec(ada))
    EvaluationRun.objects.filter(pk=run.pk).update(status=status)

    with pytest.raises(NotPossible, match=words):
        resume_run(run)

    assert status_of(run) == status


def test_a_cancelled_run_brings_its_channels_back(rooms: dict[str, Agent]) -> None:
    run, _ = queue_run(RunSpec(agent=rooms["ada"], dimensions=("fluency", "convergence")))
    cancel_run(run)

    resume_run(run)

    assert channel_statuses() == {"one": "pending", "two": "pending"}
    while work_one(owner=WORKER):
        pass
    assert status_of(run) == "completed"


def test_an_agent_s_run_goes_on_when_only_its_channel_failed(rooms: dict[str, Agent]) -> None:
    run, _ = queue_run(RunSpec(agent=rooms["bea"], dimensions=("fluency", "convergence")))
    while work_one(owner=WORKER):
        pass
    EvaluationRun.objects.filter(channel__slug="two").update(status="failed")

    resume_run(run)

    assert channel_statuses()["two"] == "pending"
    assert status_of(run) == "pending"


# -- queueing, and how far it is


def test_what_a_worker_is_at_is_left_to_it(ada: Agent) -> None:
    run, _ = queue_run(spec(ada))
    assert run.acquire(owner=WORKER, lease=timedelta(minutes=1))

    again, taken_up = queue_run(spec(ada))

    assert (again.pk, again.status, taken_up) == (run.pk, "running", True)


def test_progress_counts_judgements_with_those_of_the_channels(rooms: dict[str, Agent]) -> None:
    run, _ = queue_run(RunSpec(agent=rooms["bea"], dimensions=("fluency", "convergence")))
    (channel_run,) = run.channel_runs.all()
    total = run.scores.count() + channel_run.scores.count()
    assert channel_run.scores.exists()

    assert progress_of([run])[run.pk] == Progress(0, total)
    execute([channel_run])
    found = progress_of([run, channel_run])
    assert {pk: (one.settled, one.total) for pk, one in found.items()} == {
        run.pk: (channel_run.scores.count(), total),
        channel_run.pk: (channel_run.scores.count(), channel_run.scores.count()),
    }
    assert found[run.pk].share == found[channel_run.pk].share


def test_a_run_cancelled_while_its_last_call_is_answered_is_no_baseline(judge: LLMServer, ada: Agent) -> None:
    run, _ = queue_run(spec(ada, per_call=10, samples=1))

    cancelled: list[EvaluationRun] = []
    execute([run], owner=WORKER, progress=lambda *_: None if cancelled else cancelled.append(cancel_run(run)))

    assert status_of(run) == "cancelled"
    assert statuses(run) == {"scored": 2}
    assert not Baseline.objects.exists()

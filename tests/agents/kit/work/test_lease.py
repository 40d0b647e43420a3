"""Leases: one owner holds a row, another takes it over when the owner is gone, and work that kills its workers ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings

from agents.alerts.models import Receiver
from agents.kit.models import LLMBatch, LLMBatchRequest, owner_is_dead, owner_name
from agents.kit.models.lease import Leasable, _namespace
from agents.kit.work.queues import release_lost_leases, work_models
from agents.models import Run
from correction.behavior.models import BehaviorRequest
from evaluation.change.models import JudgeSentinel
from evaluation.experiments.models import Experiment
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db
LEASE = timedelta(seconds=60)
OVER = timedelta(seconds=-1)
ELSEWHERE = "another-host:1:abcd"


def waiting(**fields: object) -> Run:
    run: Run = Run.objects.create(agent=make_agent(f"agent-{Run.objects.count()}"), **fields)
    return run


def copy(run: Run) -> Run:
    """The row as another process reads it."""
    found: Run = Run.objects.get(pk=run.pk)
    return found


@pytest.fixture(scope="module")
def dead_owner() -> str:
    """The name of a process of this host that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return f"{socket.gethostname()}:{process.pid}:abcd"


# -- every table of work
def held_by(model: type[Leasable], owner: str) -> Leasable:
    """A row of the table that a worker has in hand."""
    message = say(make_channel(), make_agent(), "Hello.")
    agent, channel = message.agent, message.channel
    targets: dict[str, dict[str, object]] = {
        "Run": {"agent": agent},
        "DescriptionUpdate": {"agent": agent},
        "EvaluationRun": {"agent": agent, "dimensions": ["fluency"]},
        "ObservedMessage": {"message": message, "session": uuid4()},
        "LLMBatch": {"next_look_at": timezone.now()},
        "Import": {},
        "Job": {},
        "GatedReply": {"call_id": "1"},
        "BehaviorRequest": {"agent": agent},
        "DialogSummary": {"agent": agent, "channel": channel, "from_position": 1, "to_position": 1},
        "Debate": {"channel": channel, "mode": "delphi", "topic": "Printer?"},
        "Experiment": {"name": "small", "judge": "offline:heuristic-1"},
    }
    if model.__name__ == "GatedReply":
        targets["GatedReply"]["user"] = User.objects.create_user("gateway")
    if model.__name__ == "Delivery":
        targets["Delivery"] = {"receiver": Receiver.objects.create(name="ops", address="ops@example.com")}
    if model.__name__ == "BehaviorEffect":
        targets["BehaviorEffect"] = {"request": BehaviorRequest.objects.create(agent=agent), "messages": 5}
    if model.__name__ == "SentinelCheck":
        sentinel = JudgeSentinel.objects.create(judge="m", procedure="plumbline", seed=1)
        targets["SentinelCheck"] = {"sentinel": sentinel, "every_minutes": 1_440, "fired_at": timezone.now()}
    if model.__name__ == "ExperimentEnvironment":
        experiment = Experiment.objects.create(name="small", status="completed")
        targets["ExperimentEnvironment"] = {"experiment": experiment, "arm": "a", "number": 1, "channel": channel}
    row: Leasable = model._default_manager.create(**targets[model.__name__])
    leased = model._default_manager.filter(pk=row.pk)
    leased.update(status=model.Status.RUNNING, attempt=1, lease_owner=owner, lease_expires_at=timezone.now() + LEASE)
    row.refresh_from_db()
    return row


@pytest.mark.parametrize("model", work_models(), ids=lambda model: model._meta.db_table)
def test_what_a_killed_worker_held_is_leased_once_more_at_once(model: type[Leasable], dead_owner: str) -> None:
    row = held_by(model, dead_owner)

    assert release_lost_leases() == 1
    row.refresh_from_db()
    assert (row.status, row.lease_owner, row.worker_losses) == (model.Status.PENDING, "", 1)
    assert row.acquire(owner=ELSEWHERE, lease=LEASE)
    assert not row.acquire(owner=owner_name(), lease=LEASE), "one at a time"
    row.refresh_from_db()
    assert row.attempt == 2
    assert not model._default_manager.get(pk=row.pk).finish(owner=dead_owner, status="completed"), "the dead one is out"


# -- acquiring
def test_pending_work_is_leased_by_one_of_two() -> None:
    run = waiting()
    other = copy(run)

    assert run.acquire(owner="one", lease=LEASE)
    assert not other.acquire(owner="two", lease=LEASE)

    run.refresh_from_db()
    assert (run.status, run.lease_owner, run.attempt) == ("running", "one", 1)
    assert run.started_at
    assert run.lease_expires_at is not None
    assert timedelta(seconds=50) < run.lease_expires_at - timezone.now() <= LEASE


@pytest.mark.parametrize("status", ["completed", "paused_budget"])
def test_what_is_over_is_leased_only_when_the_caller_says_so(status: str) -> None:
    run = waiting(status=status, error="why", finished_at=timezone.now())

    assert not run.acquire(owner="one", lease=LEASE)
    assert run.acquire(owner="one", lease=LEASE, resumable=(status,))
    assert (run.status, run.error, run.finished_at) == ("running", "", None)


@pytest.mark.parametrize("owner", [owner_name(), f"{socket.gethostname()}:x:y"], ids=["alive", "odd pid"])
def test_work_of_a_process_that_may_be_alive_is_not(owner: str) -> None:
    run = waiting()
    run.acquire(owner=owner, lease=LEASE)

    assert not copy(run).acquire(owner="two", lease=LEASE)


def test_the_oldest_that_is_free_comes_next() -> None:
    runs = [waiting() for _ in range(3)]
    runs[0].acquire(owner=ELSEWHERE, lease=LEASE)
    Run.objects.filter(pk=runs[2].pk).update(created_at=timezone.now() - timedelta(hours=1))

    found = [Run.acquire_next(owner="me", lease=LEASE) for _ in range(3)]

    assert found == [runs[2], runs[1], None]
    assert found[0] is not None
    assert found[0].status == "running"


# -- keeping and ending
def test_only_the_owner_of_running_work_keeps_it() -> None:
    run = waiting()
    run.acquire(owner="one", lease=timedelta(seconds=1))

    assert not run.extend_lease(owner="two", lease=LEASE)
    assert run.extend_lease(owner="one", lease=LEASE)
    run.refresh_from_db()
    assert run.lease_expires_at is not None
    assert run.lease_expires_at > timezone.now() + timedelta(seconds=50)


def test_cancelled_work_can_be_neither_kept_nor_finished() -> None:
    run = waiting()
    run.acquire(owner="one", lease=LEASE)
    Run.objects.filter(pk=run.pk).update(status="cancelled")

    assert not run.extend_lease(owner="one", lease=LEASE)
    assert not run.finish(owner="one", status="completed")
    assert copy(run).status == "cancelled"


def test_an_owner_that_lost_its_lease_cannot_finish_the_work_of_another() -> None:
    run = waiting()
    run.acquire(owner="slow", lease=OVER)
    copy(run).acquire(owner="fast", lease=LEASE)

    assert not run.finish(owner="slow", status="failed", error="too late")
    assert (copy(run).status, copy(run).lease_owner, copy(run).error) == ("running", "fast", "")


@pytest.mark.parametrize(
    ("status", "over"), [("completed", True), ("cancelled", True), ("pending", False), ("paused_budget", False)]
)
def test_an_end_is_stored_with_reason_and_time_where_it_is_one(status: str, over: bool) -> None:
    run = waiting()
    run.acquire(owner="one", lease=LEASE)

    assert run.finish(owner="one", status=status, error="why", stop_reason="error")

    assert (run.status, run.error, run.stop_reason, run.lease_owner) == (status, "why", "error", "")
    assert run.lease_expires_at is None
    assert bool(run.finished_at) is over


# -- who is who


def test_only_a_process_known_to_have_ended_is_dead(dead_owner: str) -> None:
    assert owner_is_dead(dead_owner)
    assert not owner_is_dead(owner_name())
    assert not owner_is_dead(f"{socket.gethostname()}:1:init")
    assert not owner_is_dead(dead_owner.replace(socket.gethostname(), "another-host"))
    assert not owner_is_dead("")


@pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="this system has no namespaces of processes")
def test_another_containers_work_under_our_host_name_is_left_to_its_lease(dead_owner: str) -> None:
    host_and_pid = dead_owner.rpartition(":")[0]
    ours, theirs = (f"{host_and_pid}:{int(_namespace()) + other}-abcd" for other in (0, 1))

    assert owner_is_dead(ours)
    assert not owner_is_dead(theirs)


# -- work that kills its workers
@pytest.fixture
def run(settings: Settings) -> Run:
    settings.WORKER_MOST_LOSSES = 3
    return waiting()


def test_what_killed_so_many_workers_ends_as_errored_and_says_why(run: Run, dead_owner: str) -> None:
    for _ in range(3):
        assert copy(run).acquire(owner=dead_owner, lease=LEASE)
        assert release_lost_leases() == 1

    ended = copy(run)
    assert (ended.status, ended.stop_reason, ended.lease_owner) == ("errored", "error", "")
    assert "lost 3 workers in a row" in ended.error
    assert ended.finished_at
    assert not ended.acquire(owner="me", lease=LEASE)


def test_what_hosts_lost_that_nobody_hears_of_counts_by_its_lease(run: Run) -> None:
    for _ in range(3):
        assert copy(run).acquire(owner=ELSEWHERE, lease=OVER)

    assert Run.in_turn() == [run]
    assert Run.acquire_next(owner="me", lease=LEASE) is None
    assert copy(run).status == "errored"
    assert copy(run).attempt == 3
    assert Run.in_turn() == []


def test_work_that_is_handed_back_is_never_ended_for_it(run: Run, dead_owner: str) -> None:
    for _ in range(5):
        for owner in (dead_owner, "a worker that stops"):
            assert copy(run).acquire(owner=owner, lease=LEASE)
            release_lost_leases()
        assert copy(run).finish(owner="a worker that stops", status="pending")

    assert (copy(run).status, copy(run).worker_losses, copy(run).attempt) == ("pending", 0, 10)


def test_two_workers_that_find_the_same_lost_work_count_one_death(run: Run) -> None:
    run.acquire(owner=ELSEWHERE, lease=OVER)
    first, second = copy(run), copy(run)

    assert first.acquire(owner="one", lease=LEASE)
    assert not second.acquire(owner="two", lease=LEASE)
    assert copy(run).worker_losses == 1


def test_a_batch_that_kills_its_workers_sets_its_questions_free(settings: Settings, dead_owner: str) -> None:
    settings.WORKER_MOST_LOSSES = 1
    batch = LLMBatch.objects.create(work_id="w", role="judge", model="m", base_url="u", next_look_at=timezone.now())
    question = LLMBatchRequest.objects.create(
        batch=batch, custom_id="1", work_id="w", request_key="k", request_digest="d", label={}
    )
    batch.acquire(owner=dead_owner, lease=LEASE)

    release_lost_leases()

    question.refresh_from_db()
    assert question.result == "errored"
    assert "lost 1 worker in a row" in question.error

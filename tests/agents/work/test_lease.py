"""Work that is claimed: by one owner, under a lease, taken over when its owner is gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import timedelta

import pytest
from django.utils import timezone

from agents.models import Run, owner_is_dead, owner_name
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
LEASE = timedelta(seconds=60)
ELSEWHERE = "another-host:1:abcd"


def waiting(**fields: object) -> Run:
    run: Run = Run.objects.create(agent=make_agent(f"agent-{Run.objects.count()}"), **fields)
    return run


def copy(run: Run) -> Run:
    """The row as another process reads it."""
    found: Run = Run.objects.get(pk=run.pk)
    return found


@pytest.fixture
def dead_owner() -> str:
    """The name of a process of this host that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return f"{socket.gethostname()}:{process.pid}:abcd"


# -- claiming
def test_pending_work_is_claimed_by_one_of_two() -> None:
    run = waiting()
    other = copy(run)

    assert run.acquire(owner="one", lease=LEASE)
    assert not other.acquire(owner="two", lease=LEASE)

    run.refresh_from_db()
    assert (run.status, run.lease_owner, run.attempt) == ("running", "one", 1)
    assert run.started_at
    assert run.lease_expires_at is not None
    assert timedelta(seconds=50) < run.lease_expires_at - timezone.now() <= LEASE


@pytest.mark.parametrize("status", ["completed", "failed", "errored", "cancelled", "paused_budget"])
def test_what_is_over_is_claimed_only_when_the_caller_says_so(status: str) -> None:
    run = waiting(status=status, error="why", finished_at=timezone.now())

    assert not run.acquire(owner="one", lease=LEASE)
    assert run.acquire(owner="one", lease=LEASE, resumable=(status,))
    assert (run.status, run.error, run.finished_at) == ("running", "", None)


def test_work_whose_lease_ran_out_is_taken_over() -> None:
    run = waiting()
    run.acquire(owner=ELSEWHERE, lease=timedelta(seconds=-1))
    started = run.started_at

    assert copy(run).acquire(owner="two", lease=LEASE)

    run.refresh_from_db()
    assert (run.lease_owner, run.attempt, run.started_at) == ("two", 2, started)


def test_work_of_a_dead_process_is_taken_over_before_its_lease_ends(dead_owner: str) -> None:
    run = waiting()
    run.acquire(owner=dead_owner, lease=LEASE)

    assert copy(run).acquire(owner="two", lease=LEASE)


@pytest.mark.parametrize(
    "owner",
    [owner_name(), ELSEWHERE, "no-pid", f"{socket.gethostname()}:x:y"],
    ids=["alive", "elsewhere", "no pid", "odd pid"],
)
def test_work_of_a_process_that_may_be_alive_is_not(owner: str) -> None:
    run = waiting()
    run.acquire(owner=owner, lease=LEASE)

    assert not copy(run).acquire(owner="two", lease=LEASE)


def test_a_dead_owner_does_not_cost_the_one_who_was_faster_his_claim(dead_owner: str) -> None:
    """The second reads the row before the first takes it over."""
    run = waiting()
    run.acquire(owner=dead_owner, lease=LEASE)
    first, second = copy(run), copy(run)

    assert first.acquire(owner="one", lease=LEASE)
    assert not second.acquire(owner="two", lease=LEASE)


def test_the_oldest_that_is_free_comes_next() -> None:
    runs = [waiting() for _ in range(3)]
    runs[0].acquire(owner=ELSEWHERE, lease=LEASE)
    Run.objects.filter(pk=runs[2].pk).update(created_at=timezone.now() - timedelta(hours=1))

    found = [Run.acquire_next(owner="me", lease=LEASE) for _ in range(3)]

    assert found == [runs[2], runs[1], None]
    assert found[0] is not None
    assert found[0].status == "running"


def test_a_busy_agents_next_run_waits_and_another_agents_goes_first() -> None:
    """An agent has one running turn at a time; the database sees to it."""
    agent = make_agent("ada")
    busy, next_one = Run.objects.create(agent=agent), Run.objects.create(agent=agent)
    other = Run.objects.create(agent=make_agent("bob"))
    assert busy.acquire(owner="one", lease=LEASE)

    assert not next_one.acquire(owner="two", lease=LEASE)
    assert Run.acquire_next(owner="two", lease=LEASE) == other


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


def test_who_lost_his_claim_cannot_finish_the_work_of_another() -> None:
    run = waiting()
    run.acquire(owner="slow", lease=timedelta(seconds=-1))
    copy(run).acquire(owner="fast", lease=LEASE)

    assert not run.finish(owner="slow", status="failed", error="too late")
    assert (copy(run).status, copy(run).lease_owner, copy(run).error) == ("running", "fast", "")


@pytest.mark.parametrize("status", Run.FINAL)
def test_an_end_is_stored_with_its_reason_and_time(status: str) -> None:
    run = waiting()
    run.acquire(owner="one", lease=LEASE)

    assert run.finish(owner="one", status=status, error="why", stop_reason="error")

    assert (run.status, run.error, run.stop_reason, run.lease_owner) == (status, "why", "error", "")
    assert run.lease_expires_at is None
    assert run.finished_at


@pytest.mark.parametrize("status", ["pending", "paused_budget"])
def test_work_that_is_handed_back_has_not_ended(status: str) -> None:
    run = waiting()
    run.acquire(owner="one", lease=LEASE)

    assert run.finish(owner="one", status=status)

    assert (run.status, run.finished_at, run.lease_owner) == (status, None, "")


# -- who is who
def test_an_owner_names_its_host_process_and_moment() -> None:
    host, pid, token = owner_name().split(":")

    assert (host, pid) == (socket.gethostname(), str(os.getpid()))
    assert owner_name().split(":")[2] != token


def test_only_a_process_known_to_have_ended_is_dead(dead_owner: str) -> None:
    assert owner_is_dead(dead_owner)
    assert not owner_is_dead(owner_name())
    assert not owner_is_dead(f"{socket.gethostname()}:1:init")
    assert not owner_is_dead(dead_owner.replace(socket.gethostname(), "another-host"))
    assert not owner_is_dead("")

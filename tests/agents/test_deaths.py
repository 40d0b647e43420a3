"""Work that kills its workers: after so many in a row it ends with the reason, instead of killing one after the other."""

from __future__ import annotations

import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from agents.models import LLMBatch, LLMBatchRequest, Run
from agents.work.queues import release_lost_leases, work_models
from tests.factories import make_agent
from tests.queued_work import installed, kind_judge, statuses_in

ELSEWHERE = "another-host:1:abcd"
LEASE = timedelta(minutes=5)
OVER = timedelta(seconds=-1)


@pytest.fixture(scope="module")
def dead_owner() -> str:
    """The name of a process of this host that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return f"{socket.gethostname()}:{process.pid}:abcd"


@pytest.fixture
def run(db: None, settings: Settings) -> Run:
    settings.WORKER_MOST_DEATHS = 3
    made: Run = Run.objects.create(agent=make_agent("ada"))
    return made


def copy(run: Run) -> Run:
    found: Run = Run.objects.get(pk=run.pk)
    return found


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

    assert (copy(run).status, copy(run).deaths, copy(run).attempt) == ("pending", 0, 10)


def test_what_a_person_resumes_may_kill_as_many_again(run: Run, dead_owner: str) -> None:
    for _ in range(3):
        copy(run).acquire(owner=dead_owner, lease=LEASE)
        release_lost_leases()
    assert copy(run).acquire(owner=dead_owner, lease=LEASE, resumable=("errored",))
    release_lost_leases()

    assert (copy(run).status, copy(run).deaths) == ("pending", 1)


def test_two_workers_that_find_the_same_lost_work_count_one_death(run: Run) -> None:
    run.acquire(owner=ELSEWHERE, lease=OVER)
    first, second = copy(run), copy(run)

    assert first.acquire(owner="one", lease=LEASE)
    assert not second.acquire(owner="two", lease=LEASE)
    assert copy(run).deaths == 1


@pytest.mark.django_db
def test_a_batch_that_kills_its_workers_sets_its_questions_free(settings: Settings, dead_owner: str) -> None:
    settings.WORKER_MOST_DEATHS = 1
    batch = LLMBatch.objects.create(work_id="w", role="judge", model="m", base_url="u", next_look_at=timezone.now())
    question = LLMBatchRequest.objects.create(
        batch=batch, custom_id="1", work_id="w", request_key="k", request_digest="d", label={}
    )
    batch.acquire(owner=dead_owner, lease=LEASE)

    release_lost_leases()

    question.refresh_from_db()
    assert question.result == "errored"
    assert "lost 1 worker in a row" in question.error


def test_every_table_of_work_counts_them() -> None:
    assert {model._meta.get_field("deaths").get_internal_type() for model in work_models()} == {"PositiveIntegerField"}


KILLS_WHO_ASKS = """
import os, signal
from django.core.management import call_command
from evaluation import asking
asking.complete_many = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
call_command("work", "--once", "--skip-checks")
"""


def test_an_evaluation_that_kills_its_workers_ends_and_the_queue_goes_on(tmp_path: Path, database_file: Path) -> None:
    """Real processes, each killed in the middle of an evaluation, until none is left to try it."""
    with kind_judge() as judge, installed(tmp_path, database_file, judge, WORKER_MOST_DEATHS="1") as plumbline:
        code = "import django\ndjango.setup()\n" + KILLS_WHO_ASKS
        for number in range(2):
            assert plumbline.start(f"killed-{number}", "-c", code).wait(60) == -9, plumbline.log_of(f"killed-{number}")

        plumbline.manage("work", "--once", "--skip-checks")

        assert statuses_in(database_file)() == ["errored", "errored"]
        assert judge.calls == 0

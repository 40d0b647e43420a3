"""`manage.py work` as people run it: real processes, stopped, killed, with several threads."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.evaluation.judging import answers
from tests.llm_server import LLMServer
from tests.machinery import Plumbline, kill_at_once, wait_until
from tests.queued_work import installed, kind_judge, statuses_in


@pytest.fixture
def judge() -> Iterator[LLMServer]:
    with kind_judge() as server:
        yield server


@pytest.fixture
def plumbline(tmp_path: Path, database_file: Path, judge: LLMServer) -> Iterator[Plumbline]:
    with installed(tmp_path, database_file, judge) as installation:
        yield installation


@pytest.fixture
def statuses(database_file: Path) -> Callable[[], list[str]]:
    return statuses_in(database_file)


def work(plumbline: Plumbline, name: str, *arguments: str):  # type: ignore[no-untyped-def]
    return plumbline.start(name, "manage.py", "work", "--poll", "0.1", "--skip-checks", *arguments)


def test_told_to_stop_it_finishes_work_in_hand_and_takes_nothing_more(
    plumbline: Plumbline, judge: LLMServer, statuses: Callable[[], list[str]]
) -> None:
    judge.respond = None
    judge.always(hold=True, json={"p1": 7})
    worker = work(plumbline, "worker", "--grace", "120")
    assert judge.wait_until(lambda: judge.inflight > 0, timeout=120)
    judge.respond = answers(lambda claim: 7)

    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: "Stopping" in plumbline.log_of("worker"), timeout=60, what="it says that it stops")
    judge.release()

    assert worker.wait(120) == 0
    assert statuses() == ["completed", "pending"]
    said = [
        line for line in plumbline.log_of("worker").splitlines() if line.startswith(("Work", "Stop", "eval", "Done"))
    ]
    assert [line.split()[0] for line in said] == ["Working", "Stopping", "evaluations:", "Stopped.", "Done:"]


def test_several_threads_share_the_work_and_hand_it_back_in_time(
    plumbline: Plumbline, judge: LLMServer, statuses: Callable[[], list[str]], database_file: Path
) -> None:
    judge.respond = None
    judge.always(hang=True)
    worker = work(plumbline, "worker", "--threads", "3", "--grace", "0.2")
    wait_until(lambda: statuses() == ["running", "running"], timeout=120, what="two threads have an evaluation each")
    with sqlite3.connect(database_file, timeout=20) as connection:
        owners = [owner for (owner,) in connection.execute("select lease_owner from evaluation_runs")]
    assert len({owner.partition("/")[0] for owner in owners}) == 1 < len(set(owners))
    assert judge.wait_until(lambda: judge.inflight > 0, timeout=120)

    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    assert time.monotonic() - began < 10
    assert judge.wait_until(lambda: judge.client_gone == judge.calls and judge.inflight == 0)
    assert statuses() == ["pending", "pending"]
    with sqlite3.connect(database_file, timeout=20) as connection:
        rows = connection.execute("select status, error, cost_usd from llm_calls").fetchall()
    assert len(rows) >= judge.calls > 0
    assert {(status, "given up" in error, cost) for status, error, cost in rows} == {("unavailable", True, None)}


@pytest.mark.slow
def test_several_threads_do_each_piece_of_work_of_the_queues_named_once(
    plumbline: Plumbline, judge: LLMServer, statuses: Callable[[], list[str]], database_file: Path
) -> None:
    out = plumbline.manage("work", "--once", "--queues", "interactive,schedules", "--skip-checks")
    assert out.strip() == "Nothing was waiting."

    out = plumbline.manage("work", "--once", "--queues", "evaluations", "--threads", "4", "--skip-checks")

    assert out.count("evaluations: done in ") == 2
    assert statuses() == ["completed"] * 2
    with sqlite3.connect(database_file, timeout=20) as connection:
        (calls,) = connection.execute("select count(*) from llm_calls").fetchone()
        (needed,) = connection.execute("select count(distinct call_id) from evaluation_scores").fetchone()
    assert calls == needed == judge.calls


def test_one_of_several_threads_only_takes_what_a_person_waits_for(
    plumbline: Plumbline, judge: LLMServer, statuses: Callable[[], list[str]]
) -> None:
    judge.respond = None
    judge.always(hang=True)
    worker = work(plumbline, "worker", "--threads", "2", "--grace", "0.2")

    assert judge.wait_until(lambda: judge.inflight > 0, timeout=120)
    time.sleep(0.5)

    assert sorted(statuses()) == ["pending", "running"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


@pytest.mark.slow
def test_liveness_is_what_the_heartbeat_says(plumbline: Plumbline) -> None:
    with pytest.raises(AssertionError, match="no worker of this machine was heard of lately"):
        plumbline.manage("work", "--check", "--skip-checks")

    worker = work(plumbline, "worker", "--queues", "calibration")
    wait_until(lambda: "Working as" in plumbline.log_of("worker"), timeout=120, what="it started")
    wait_until(lambda: _is_alive(plumbline), timeout=60, what="its heartbeat is there")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0

    assert not _is_alive(plumbline)


def _is_alive(plumbline: Plumbline) -> bool:
    try:
        return "is alive" in plumbline.manage("work", "--check", "--skip-checks")
    except AssertionError:
        return False


@pytest.mark.slow
def test_what_a_killed_worker_held_is_done_without_waiting_for_its_lease(
    plumbline: Plumbline, judge: LLMServer, statuses: Callable[[], list[str]]
) -> None:
    judge.respond = None
    judge.always(hang=True)
    worker = work(plumbline, "worker")
    assert judge.wait_until(lambda: judge.inflight > 0, timeout=120)
    kill_at_once(worker)
    assert "running" in statuses()
    judge.always()
    judge.respond = answers(lambda claim: 7)

    plumbline.manage("work", "--once", "--skip-checks")

    assert statuses() == ["completed"] * 2


@pytest.mark.slow
def test_a_long_evaluation_is_handed_back_after_its_slice_so_others_run(
    tmp_path: Path, database_file: Path, judge: LLMServer
) -> None:
    """No broker, one process: it goes on, with other agents and with chores."""
    judge.respond = None
    judge.always(hang=True)
    with installed(tmp_path, database_file, judge, WORKER_SLICE="1") as plumbline:
        worker = work(plumbline, "worker")
        statuses = statuses_in(database_file)
        wait_until(lambda: _handed_back(plumbline) >= 2, timeout=120, what="two evaluations had their slice")
        with sqlite3.connect(database_file, timeout=20) as connection:
            attempts = connection.execute("select attempt, worker_losses from evaluation_runs order by id").fetchall()
            chores = connection.execute("select count(*) from work_chores where last_at is not null").fetchone()
        assert all(attempt >= 1 and worker_losses == 0 for attempt, worker_losses in attempts)
        assert chores[0] >= 2
        judge.always()
        judge.respond = answers(lambda claim: 7)
        wait_until(lambda: statuses() == ["completed"] * 2, timeout=120, what="both are done")

        assert worker.poll() is None  # it is the same process
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def _handed_back(plumbline: Plumbline) -> int:
    return plumbline.log_of("worker").count("back in the queue after")

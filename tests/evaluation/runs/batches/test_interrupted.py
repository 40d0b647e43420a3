"""Batches that do not go as planned: lost names, servers that are away, runs that are cancelled."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.kit.models import LLMBatch, LLMBatchRequest, LLMCall, ModelPrice
from agents.kit.work import batches
from agents.models import Agent
from evaluation.runs.control import cancel_run, resume_run
from evaluation.runs.summary import waiting_words
from tests.batch_server import BatchServer
from tests.evaluation.measuring import statuses
from tests.evaluation.runs.batches.working import check_batches, handed_in, only_batch, work

pytestmark = pytest.mark.django_db


def nobody_holds_it() -> None:
    """As when the claims of a dead process are released: its batches are looked at anew."""
    LLMBatch.objects.filter(status__in=LLMBatch.OPEN).update(
        status="pending", lease_owner="", lease_expires_at=None, next_look_at=timezone.now()
    )


def test_a_batch_whose_name_was_lost_is_found_not_resubmitted(ada: Agent, server: BatchServer) -> None:
    server.forget_name = True
    run = handed_in(ada)
    assert (run.status, only_batch().batch_id, server.made()) == ("pending", "", 1)
    assert "being submitted" in waiting_words([run])[run.pk]
    nobody_holds_it()
    check_batches()
    assert only_batch().batch_id == "msgbatch_01"
    server.end()
    check_batches()
    assert (work(run).status, server.made(), server.live()) == ("completed", 1, 0)


def test_a_batch_that_never_arrived_is_handed_in_again(ada: Agent, server: BatchServer) -> None:
    server.fail = lambda method, path: 500 if method == "POST" else None
    run = handed_in(ada)
    assert (run.status, server.made()) == ("pending", 0)
    server.fail = lambda method, path: None
    nobody_holds_it()
    check_batches()
    assert only_batch().status == "failed"
    assert work(run).status == "pending"
    server.end()
    check_batches()
    assert (work(run).status, server.made()) == ("completed", 1)


def test_somebody_elses_batch_of_the_same_size_is_not_taken_for_ours(ada: Agent, server: BatchServer) -> None:
    server.forget_name = True
    run = handed_in(ada)
    ours = server.batches.pop("msgbatch_01")
    theirs = [{**request, "custom_id": f"other-{n}"} for n, request in enumerate(ours.requests)]
    server.batches = {
        "msgbatch_00": type(ours)("msgbatch_00", theirs, ours.created_at - timedelta(seconds=5)),
        "msgbatch_01": ours,
    }
    nobody_holds_it()
    server.end()
    for _ in range(4):  # found, not ours, found, collected
        check_batches()
    assert (only_batch().batch_id, only_batch().not_ours) == ("msgbatch_01", ["msgbatch_00"])
    assert (work(run).status, server.live()) == ("completed", 0)


def test_results_that_stop_coming_are_stored_once(
    ada: Agent, server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agents.kit.llm import batch_api

    monkeypatch.setattr(batch_api, "RESULTS_AT_ONCE", 1)
    run = handed_in(ada)
    server.end()
    server.cut_results = 2
    check_batches()
    assert "broke off" in only_batch().error
    stored = LLMBatchRequest.objects.filter(result="succeeded").count()
    assert 1 <= stored <= 2
    assert (only_batch().status, LLMCall.objects.count()) == ("pending", stored)
    assert work(run).status == "pending"
    server.cut_results = None
    check_batches()
    assert (only_batch().status, LLMCall.objects.count()) == ("completed", 3)
    assert (work(run).status, server.live(), server.made()) == ("completed", 0, 1)


def test_a_server_that_is_away_is_asked_again_later(ada: Agent, server: BatchServer, settings) -> None:  # type: ignore[no-untyped-def]
    run = handed_in(ada)
    settings.LLM_BATCH_POLL_SECONDS = 60
    server.fail = lambda method, path: 503
    check_batches()
    batch = only_batch()
    assert (batch.status, batch.looks) == ("pending", 1)
    assert "503" in batch.error
    assert "503" in waiting_words([run])[run.pk]
    assert batch.next_look_at > timezone.now() + timedelta(seconds=50)
    assert not batches.work_one(owner="test")  # not before its time
    server.fail = lambda method, path: None
    server.end()
    LLMBatch.objects.update(next_look_at=timezone.now())
    check_batches()
    assert work(run).status == "completed"


def test_cancelling_a_run_cancels_its_batch_and_what_was_answered_is_kept(
    ada: Agent, server: BatchServer, price: ModelPrice
) -> None:
    run = cancel_run(handed_in(ada))
    assert run.status == "cancelled"
    check_batches()
    (batch,) = server.batches.values()
    assert batch.status == "canceling"
    resumed = resume_run(run)
    assert work(resumed).status == "pending"  # until the server has ended it
    assert (server.made(), server.live()) == (1, 0)
    server.end(canceled={0, 2})
    check_batches()
    assert LLMCall.objects.filter(work_id=run.work_id, batch=True).count() == 1
    assert (work(run).status, statuses(run)) == ("pending", {"scored": 2, "pending": 4})
    assert len(server.batches["msgbatch_02"].requests) == 2
    server.end()
    check_batches()
    assert (work(run).status, server.live()) == ("completed", 0)


def test_a_batch_that_the_server_never_ends_is_given_up(ada: Agent, server: BatchServer) -> None:
    run = handed_in(ada)
    LLMBatch.objects.update(expires_at=timezone.now() - timedelta(hours=3))
    check_batches()
    assert (only_batch().status, only_batch().error) == ("failed", "the server did not end it in time")
    assert (work(run).status, server.live()) == ("completed", 3)


def test_answers_of_a_deleted_agent_are_in_the_ledger_without_it(
    ada: Agent, server: BatchServer, price: ModelPrice
) -> None:
    handed_in(ada)
    batch = only_batch()
    server.end()
    LLMBatchRequest.objects.update(label={"purpose": "evaluation", "agent_id": 10**9, "run_id": 10**9})

    check_batches()

    batch.refresh_from_db()
    assert batch.status == "completed"
    assert {call.agent_id for call in LLMCall.objects.filter(batch=True)} == {None}

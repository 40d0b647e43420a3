"""Batches of which little is known: found by their size, or of a server that will not talk about them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from agents.kit.models import LLMBatch
from agents.models import Agent
from evaluation.runs.control import cancel_run
from tests.batch_server import BatchServer
from tests.evaluation.runs.batches.working import check_batches, handed_in, only_batch, work

pytestmark = pytest.mark.django_db


def due(**fields: object) -> None:
    LLMBatch.objects.update(next_look_at=timezone.now(), **fields)


def ago(**units: float) -> object:
    return timezone.now() - timedelta(**units)


def test_a_batch_found_by_size_is_cancelled_only_once_known_ours(ada: Agent, server: BatchServer) -> None:
    server.forget_name = True
    run = handed_in(ada)
    due()
    check_batches()
    assert (only_batch().batch_id, only_batch().presumed) == ("msgbatch_01", True)

    cancel_run(run)
    check_batches()

    assert server.batches["msgbatch_01"].status == "in_progress"
    server.end()
    due()
    check_batches()
    assert (only_batch().status, only_batch().presumed) == ("completed", False)


def test_somebody_elses_batch_that_was_presumed_ours_is_left_and_forgotten(ada: Agent, server: BatchServer) -> None:
    server.forget_name = True
    handed_in(ada)
    theirs = server.batches["msgbatch_01"]
    for number, request in enumerate(theirs.requests):
        request["custom_id"] = f"other-{number}"
    due()
    check_batches()
    server.end()
    check_batches()

    batch = only_batch()
    assert (batch.batch_id, batch.presumed, batch.not_ours) == ("", False, ["msgbatch_01"])


def test_a_silent_server_is_given_up_after_two_days_and_asked_live(ada: Agent, server: BatchServer) -> None:
    run = handed_in(ada)
    server.fail = lambda method, path: 403
    due(expires_at=ago(days=2, minutes=-5))
    check_batches()
    assert only_batch().status == "pending"

    due(expires_at=ago(days=2, minutes=5))
    check_batches()

    assert only_batch().status == "failed"
    assert "the server said nothing about it" in only_batch().error
    server.fail = lambda method, path: None
    assert (work(run).status, server.live()) == ("completed", 3)


def test_a_batch_of_a_removed_endpoint_is_given_up_too(ada: Agent, server: BatchServer, settings: Settings) -> None:
    handed_in(ada)
    settings.JUDGE_BASE_URL = server.url.replace("127.0.0.1", "localhost")
    due(expires_at=ago(days=3))
    check_batches()
    assert only_batch().status == "failed"
    assert "was given this batch" in only_batch().error


def test_a_cancelled_batch_is_given_up_when_its_time_is_over(ada: Agent, server: BatchServer) -> None:
    cancel_run(handed_in(ada))
    server.fail = lambda method, path: 503
    due(expires_at=ago(minutes=-5))
    check_batches()
    assert only_batch().status == "pending"

    due(expires_at=ago(minutes=5))
    check_batches()

    assert only_batch().status == "failed"


def test_one_whose_deadline_was_never_said_has_a_day(ada: Agent, server: BatchServer) -> None:
    server.forget_name = True
    handed_in(ada)
    server.fail = lambda method, path: 401
    due(created_at=ago(days=2, hours=23))
    check_batches()
    assert only_batch().status == "pending"

    due(created_at=ago(days=3, hours=1))
    check_batches()
    assert only_batch().status == "failed"

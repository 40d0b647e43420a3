"""Judging an effect that is interrupted, paused by a budget, or taken by somebody else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.db import OperationalError, connection
from django.utils import timezone
from pytest_django import Settings

from agents.models import LLMCall, ModelPrice, owner_name
from agents.work.lease import LeaseLost
from correction.behavior import effects
from correction.behavior.applying import BehaviorError
from correction.behavior.effects import measure_now, queue_effect, resume_paused, work_one
from correction.config.configure import configure
from correction.models import BehaviorEffect
from tests.correction.behavior.changed import changed
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)


def test_a_worker_told_to_stop_hands_it_back_and_it_is_judged_anew_under_the_same_name(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    settings.LLM_CONCURRENCY = 1
    effect = queue_effect(request=changed(llm_server, settings, tmp_path / "p"))

    def stops(judged: int) -> None:
        raise KeyboardInterrupt

    effect.acquire(owner="w", lease=timedelta(minutes=5))
    with pytest.raises(KeyboardInterrupt):
        effects._measured(effect, "w", stops)
    paid = LLMCall.objects.filter(work_id=effect.work_id).count()
    assert paid >= 1
    assert effect.finish(owner="w", status="pending")

    assert work_one(owner="v")

    effect.refresh_from_db()
    result: Any = effect.result
    assert (effect.status, effect.attempt, result["after_scored"]) == ("completed", 2, 3)
    assert result["actual_calls"] == paid + 6, "what the first attempt cost is seen"


def test_whoever_lost_the_claim_asks_no_more_and_stores_nothing(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    effect = queue_effect(request=changed(llm_server, settings, tmp_path / "p", before=40, since=40), messages=40)
    effect.acquire(owner="w", lease=timedelta(minutes=5))
    BehaviorEffect.objects.update(lease_owner="another worker")
    with pytest.raises(LeaseLost):
        effects._measured(effect, "w")

    assert llm_server.calls < 80
    effect.refresh_from_db()
    assert (effect.status, effect.lease_owner, effect.result) == ("running", "another worker", None)


def test_a_lease_that_ran_out_is_taken_up(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    effect = queue_effect(request=changed(llm_server, settings, tmp_path / "p"))
    assert effect.acquire(owner="elsewhere:1:x", lease=timedelta(seconds=-1))
    assert work_one(owner="w")
    effect.refresh_from_db()
    assert (effect.status, effect.attempt) == ("completed", 2)


def test_an_outage_hands_it_back(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    settings.EVALUATION_BUDGET = f"{__name__}.is_away"
    effect = queue_effect(request=changed(llm_server, settings, tmp_path / "p"))
    with pytest.raises(OperationalError):
        work_one(owner="w")
    effect.refresh_from_db()
    assert (effect.status, effect.lease_owner) == ("pending", "")


def is_away(*args: Any, **kwargs: Any) -> str:
    raise OperationalError("database is locked")


def crashes(*args: Any, **kwargs: Any) -> str:
    raise ZeroDivisionError("a slip")


def test_a_crash_is_tried_again_and_ends_with_its_reason(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    settings.EVALUATION_BUDGET = f"{__name__}.crashes"
    queue_effect(request=changed(llm_server, settings, tmp_path / "p"))
    assert [work_one(owner="w") for _ in range(4)] == [True, True, True, False]
    effect = BehaviorEffect.objects.get()
    assert (effect.status, effect.attempt, effect.error) == ("errored", 3, "ZeroDivisionError: a slip")


def test_what_was_paid_for_again_and_again_is_not_begun_once_more(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    effect = queue_effect(request=changed(llm_server, settings, tmp_path / "p"), messages=1)
    for _ in range(effects.MOST_ANEW * 2):
        LLMCall.objects.create(purpose="before_after", work_id=effect.work_id, status="ok")
    assert work_one(owner="w")
    effect.refresh_from_db()
    assert (effect.status, llm_server.calls) == ("errored", 0)
    assert "6 calls were paid for it, and it was interrupted each time" in effect.error


def test_a_budget_that_is_used_up_pauses_it_until_midnight(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    with time_machine.travel(NOON, tick=True) as clock:
        ModelPrice.objects.create(
            model="test-model", effective_from=NOON.date(), input_usd=Decimal(100_000), output_usd=Decimal(0),
            cache_read_usd=Decimal(0), cache_write_usd=Decimal(0),
        )  # fmt: skip
        request = changed(llm_server, settings, tmp_path / "p")  # three calls, $10 each
        assert request.agent is not None
        configure(agent=request.agent, changes={"budget_enabled": True, "daily_budget_usd": "85"})
        queue_effect(request=request)
        assert work_one(owner="w")
        assert llm_server.calls == 6, "there was room when it began"
        queue_effect(request=request)
        assert work_one(owner="w")

        effect = BehaviorEffect.objects.first()
        assert effect is not None
        assert (effect.status, llm_server.calls) == ("paused_budget", 6)
        assert "the daily budget of ada is used up: $90.0000 of $85.0000" in effect.error
        assert resume_paused() is None
        with pytest.raises(BehaviorError, match="under way"):
            queue_effect(request=request)

        clock.shift(timedelta(hours=12, minutes=1))
        assert resume_paused() == "1 taken up again"
        assert work_one(owner="w")
        effect.refresh_from_db()
        assert (effect.status, llm_server.calls) == ("completed", 12)


def test_whoever_waits_for_it_is_told_that_the_budget_is_used_up(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    request = changed(llm_server, settings, tmp_path / "p")
    assert request.agent is not None
    configure(agent=request.agent, changes={"budget_enabled": True, "daily_budget_usd": "0"})
    effect = measure_now(request=request)
    assert (effect.status, effect.lease_expires_at, llm_server.calls) == ("failed", None, 0)
    assert "daily budget" in effect.error


def test_what_somebody_waits_for_is_left_alone_by_workers_and_cancelled_when_stopped(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def looks(judged: int) -> None:
        seen.append(work_one(owner="w"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_now(request=changed(llm_server, settings, tmp_path / "p"), done=looks)
    effect = BehaviorEffect.objects.get()
    assert (seen, effect.status, effect.finished_at is not None) == ([False], "cancelled", True)
    assert effect.finished_at is not None
    assert effect.finished_at <= timezone.now()


@pytest.mark.service
@pytest.mark.django_db(transaction=True)
def test_asked_for_by_many_at_once_it_is_queued_once(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names no PostgreSQL: threads cannot share an in-memory SQLite")
    request = changed(llm_server, settings, tmp_path / "p")

    def asks(_: int) -> str:
        try:
            return queue_effect(request=request).status
        except BehaviorError as error:
            return str(error)
        finally:
            connection.close()

    def works(_: int) -> bool:
        try:
            return work_one(owner=owner_name())
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(asks, range(8)))
        worked = list(pool.map(works, range(4)))

    assert told.count("pending") == 1
    assert all("under way" in text for text in told if text != "pending")
    assert worked.count(True) == 1
    assert (BehaviorEffect.objects.get().status, llm_server.calls) == ("completed", 6)

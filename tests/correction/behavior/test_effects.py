"""Whether an applied request changed anything, as queued work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import OperationalError, connection
from django.utils import timezone
from pytest_django import Settings

from agents.models import Channel, LLMCall, ModelPrice, owner_name
from agents.work.lease import LeaseLost
from agents.work.queues import work_models, work_queues
from correction.behavior import effects
from correction.behavior.applying import BehaviorError, revert_request
from correction.behavior.effects import measure_now, queue_effect, resume_paused, work_one
from correction.config.configure import configure
from correction.models import BehaviorEffect, BehaviorRequest
from tests.correction.behavior.changed import LESS, MORE, changed
from tests.correction.behavior.measured import clerk, reads, speak
from tests.correction.behavior.proposals import proposed
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("asked", "verdict", "means"), [(MORE, "more", (0.0, 9.0)), (LESS, "less", (9.0, 0.0))])
@pytest.mark.parametrize("followed", [True, False])
def test_a_worker_judges_both_sides_and_keeps_what_came_out(
    llm_server: LLMServer, settings: Settings, tmp_path: Path, asked: dict[str, Any], verdict: str,
    means: tuple[float, float], followed: bool,
) -> None:  # fmt: skip
    request = changed(llm_server, settings, tmp_path / "p", asked, followed=followed)
    eve = User.objects.create(username="eve")

    effect = queue_effect(request=request, messages=3, user=eve)
    assert (effect.status, effect.judge, llm_server.calls) == ("pending", "test-model", 0), "queueing asks nobody"
    assert work_one(owner="w")
    assert not work_one(owner="w")

    effect.refresh_from_db()
    result: Any = effect.result
    assert (effect.status, effect.requested_by, llm_server.calls) == ("completed", eve, 6)
    assert (result["mean_before"], result["mean_after"]) == (means if followed else (means[0], means[0]))
    assert (result["verdict"], result["as_requested"]) == ((verdict, True) if followed else ("no change shown", False))
    calls = LLMCall.objects.filter(work_id=effect.work_id)
    assert calls.count() == result["actual_calls"] == 6
    assert effect.work_id.startswith(request.work_id)


def test_it_is_work_like_any_other_before_evaluations(settings: Settings) -> None:
    assert BehaviorEffect in work_models()
    names = list(work_queues(["bulk"]))
    assert names.index("behavior effects") < names.index("evaluations")
    assert "correction.behavior.effects.resume_paused" in settings.CHORES


def test_what_cannot_be_judged_yet_is_refused_with_what_is_missing(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    request = changed(llm_server, settings, tmp_path / "p", since=0)
    with pytest.raises(BehaviorError, match="not yet: 0 of 10 messages since"):
        queue_effect(request=request)
    assert request.agent is not None
    with pytest.raises(BehaviorError, match="nothing was changed by it; allowed: a request that was applied"):
        queue_effect(request=proposed(request.agent))
    with pytest.raises(ValueError, match="n 101: allowed: 1 to 100"):
        queue_effect(request=request, messages=101)
    revert_request(request=request, user=None)
    request.refresh_from_db()
    with pytest.raises(BehaviorError, match="0 of 10 messages until it was reverted: there will be no more"):
        queue_effect(request=request)
    assert not BehaviorEffect.objects.exists()


def test_without_messages_before_there_is_nothing_to_compare(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    request = changed(llm_server, settings, tmp_path / "p", before=0, since=10)
    with pytest.raises(BehaviorError, match="the agent said nothing before"):
        queue_effect(request=request)


def test_one_at_a_time_is_under_way(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    request = changed(llm_server, settings, tmp_path / "p")
    first = queue_effect(request=request)
    for status in ("pending", "running", "paused_budget"):
        BehaviorEffect.objects.update(status=status)
        with pytest.raises(BehaviorError, match="under way already"):
            queue_effect(request=request)
    BehaviorEffect.objects.update(status="pending")
    work_one(owner="w")
    second = queue_effect(request=request)
    assert BehaviorEffect.objects.count() == 2
    assert second.pk != first.pk


def test_the_offline_judge_scores_nothing_and_says_so(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    request = changed(llm_server, settings, tmp_path / "p")
    settings.JUDGE_MODEL = "offline:lexical-1"
    queue_effect(request=request)
    work_one(owner="w")

    effect = BehaviorEffect.objects.get()
    result: Any = effect.result
    assert (effect.status, effect.judge, llm_server.calls) == ("failed", "offline:lexical-1", 0)
    assert "the judge scored none of 6 messages; the first: needs an LLM judge" in effect.error
    assert (result["before_unscored"], result["after_unscored"]) == (3, 3)
    assert (result["mean_before"], result["mean_after"], result["as_requested"]) == (None, None, None)


def test_a_judge_that_answers_nothing_fails_with_its_reason(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    request = changed(llm_server, settings, tmp_path / "p")
    llm_server.respond = lambda body: {"status": 400}
    queue_effect(request=request)
    work_one(owner="w")

    effect = BehaviorEffect.objects.get()
    assert effect.status == "failed"
    assert "the judge scored none of 6 messages; the first: rejected" in effect.error
    queue_effect(request=request)  # it can be asked for again


def test_the_agent_s_deletion_cancels_what_waits(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    request = changed(llm_server, settings, tmp_path / "p")
    queue_effect(request=request)
    assert request.agent is not None
    Channel.objects.all().delete()
    request.agent.delete()

    assert work_one(owner="w")

    effect = BehaviorEffect.objects.get()
    assert (effect.status, "its agent was deleted" in effect.error, llm_server.calls) == ("cancelled", True, 0)


def test_old_ones_that_measured_nothing_are_pruned_and_results_stay(settings: Settings, tmp_path: Path) -> None:
    agent, _ = clerk(settings, tmp_path / "p", 0.5)
    request = proposed(agent, status="applied", applied_at=timezone.now())
    old = timezone.now() - timedelta(days=200)
    for status in ("failed", "errored", "cancelled", "completed", "paused_budget"):
        fields: dict[str, Any] = {"status": status, "finished_at": old, "result": {} if status == "completed" else None}
        BehaviorEffect.objects.create(request=request, judge="m", **fields)
    BehaviorEffect.objects.create(request=request, judge="m", status="failed", finished_at=timezone.now())

    call_command("prune_logs", "--older-than", "90d", stdout=StringIO())

    kept = sorted(BehaviorEffect.objects.values_list("status", flat=True))
    assert kept == ["completed", "failed", "paused_budget"]
    BehaviorRequest.objects.all().delete()
    assert not BehaviorEffect.objects.exists()


def test_an_erased_person_s_words_leave_what_a_judge_said_and_figures_stay(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    request = changed(llm_server, settings, tmp_path / "p")
    said = "Please use emoji in every message."

    def quotes(body: dict[str, Any]) -> dict[str, Any]:
        answer = reads(body)
        answer["json"]["justification"] = f"It was told: {said}"
        return answer

    llm_server.respond = quotes
    queue_effect(request=request)
    work_one(owner="w")
    assert said in str(BehaviorEffect.objects.get().result)

    call_command("forget", "--user", "anna", stdout=StringIO())

    result: Any = BehaviorEffect.objects.get().result
    assert said not in str(result)
    assert (result["mean_before"], result["mean_after"], result["verdict"]) == (0.0, 9.0, "more")


def test_fewer_messages_than_wanted_are_judged(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    request = changed(llm_server, settings, tmp_path / "p", before=12, since=2)
    queue_effect(request=request)
    work_one(owner="w")
    result: Any = BehaviorEffect.objects.get().result
    assert (result["before_scored"], result["after_scored"], result["waits"]) == (
        10,
        2,
        "not yet: 2 of 10 messages since",
    )


def test_what_is_said_meanwhile_is_judged_too(llm_server: LLMServer, settings: Settings, tmp_path: Path) -> None:
    request = changed(llm_server, settings, tmp_path / "p", since=1)
    queue_effect(request=request)
    assert request.agent is not None
    assert request.message is not None
    speak(request.agent, request.message.channel, "3", emoji=True, n=2)
    work_one(owner="w")
    result: Any = BehaviorEffect.objects.get().result
    assert result["after_scored"] == 3


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

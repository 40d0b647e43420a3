"""A worker that stops, crashes or loses its claim: the work goes on at the tier it was at, and nobody pays for a tier twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine
from pytest_django import Settings

from agents.models import ModelPrice
from correction.behavior import resume_paused, work_one
from correction.behavior.tiers import TIERS, Tier
from correction.models import BehaviorRequest
from tests.correction.behavior import interrupting
from tests.correction.behavior.asking import CONCISE, SHORTER, YES, dm_with, judge, tier_of, traits_of, write
from tests.correction.behavior.interrupting import HERE
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)


@pytest.fixture
def asked(settings: Settings) -> Iterator[list[str]]:
    """The tiers that were asked, of a judge that answers at once."""
    settings.JUDGE_MODEL = "offline:lexical-1"
    settings.OFFLINE_RESPONDERS = {f"behavior_{tier}": HERE + "answer" for tier in TIERS}
    interrupting.asked.clear()
    yield interrupting.asked
    interrupting.asked.clear()


def happens(settings: Settings, what: str, tier: Tier) -> None:
    settings.OFFLINE_RESPONDERS = {**settings.OFFLINE_RESPONDERS, f"behavior_{tier}": HERE + what}


@pytest.mark.parametrize("tier", TIERS)
def test_a_worker_that_is_told_to_stop_hands_the_request_back_with_its_answers(
    asked: list[str], settings: Settings, tier: Tier
) -> None:
    agent, channel = dm_with()
    write(channel, "Be more concise")
    happens(settings, "is_told_to_stop", tier)

    with pytest.raises(KeyboardInterrupt):
        work_one(owner="w")

    request = BehaviorRequest.objects.get()
    stored = [name for name in TIERS if getattr(request, f"{name}_result") is not None]
    assert (request.status, request.lease_owner, stored) == ("queued", "", list(TIERS[: TIERS.index(tier)]))

    happens(settings, "answer", tier)
    assert work_one(owner="v")

    assert BehaviorRequest.objects.get().status == "applied"
    assert asked == sorted([*TIERS, tier], key=TIERS.index)
    assert traits_of(agent) == {"concise answers": 0.5}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(("what", "status"), [("loses_the_claim", "running"), ("is_cancelled", "cancelled")])
def test_a_worker_that_lost_the_request_stores_nothing_more(
    asked: list[str], settings: Settings, tier: Tier, what: str, status: str
) -> None:
    agent, channel = dm_with()
    write(channel, "Be more concise")
    happens(settings, what, tier)

    assert work_one(owner="w")

    request = BehaviorRequest.objects.get()
    assert request.status == status
    assert getattr(request, f"{tier}_result") is None
    assert asked == list(TIERS[: TIERS.index(tier) + 1])
    assert traits_of(agent) == {}


def test_answers_that_are_there_are_not_asked_for(asked: list[str]) -> None:
    agent, channel = dm_with()
    write(channel, "Be more concise")
    BehaviorRequest.objects.update(gate_result=YES, extract_result=SHORTER, confidence="high")

    assert work_one(owner="w")

    assert asked == ["map"]
    assert traits_of(agent) == {"concise answers": 0.5}


def test_a_worker_killed_before_the_decision_leaves_only_the_decision(asked: list[str]) -> None:
    agent, channel = dm_with()
    write(channel, "Be more concise")
    BehaviorRequest.objects.update(gate_result=YES, extract_result=SHORTER, map_result=CONCISE, confidence="high")

    assert work_one(owner="w")

    assert asked == []
    assert BehaviorRequest.objects.get().status == "applied"
    assert traits_of(agent) == {"concise answers": 0.5}


def test_a_persona_that_changed_meanwhile_is_shown_to_the_map_tier_again(asked: list[str], settings: Settings) -> None:
    agent, channel = dm_with()
    write(channel, "Be more concise")
    happens(settings, "sees_the_persona_changed", "map")

    assert work_one(owner="w")

    assert asked == ["gate", "extract", "map", "map"]
    assert BehaviorRequest.objects.get().status == "applied"
    assert traits_of(agent) == {"concise answers": 0.5, "late": 0.5}


def test_a_persona_that_never_stands_still_leaves_it_to_a_person(asked: list[str], settings: Settings) -> None:
    agent, channel = dm_with()
    write(channel, "Be more concise")
    happens(settings, "sees_the_persona_change_all_the_time", "map")

    assert work_one(owner="w")

    request = BehaviorRequest.objects.get()
    assert asked == ["gate", "extract", "map", "map", "map"]
    assert request.status == "pending_review"
    assert "changed while the request was read" in request.why
    assert "concise answers" not in traits_of(agent)


def test_a_crash_is_tried_again_and_then_final(settings: Settings) -> None:
    _, channel = dm_with()
    write(channel, "Be more concise")
    settings.LLM_MAX_CONCURRENCY, settings.JUDGE_MODEL = "many", "claude-haiku-5-5"

    assert [work_one(owner="w") for _ in range(4)] == [True, True, True, False]

    request = BehaviorRequest.objects.get()
    assert (request.status, request.attempt) == ("errored", 3)
    assert request.error


def test_requests_of_an_agent_are_looked_at_in_their_order(asked: list[str]) -> None:
    _, channel = dm_with()
    messages = [write(channel, text) for text in ("Be more concise", "Be kinder", "Stop joking")]

    looked_at: list[int | None] = []
    while work_one(owner="w"):
        looked_at += (
            BehaviorRequest.objects.exclude(status="queued")
            .exclude(message__in=looked_at)
            .values_list("message", flat=True)
        )

    assert looked_at == [message.pk for message in messages]


# -- the budget of a day
def test_a_budget_that_is_used_up_pauses_before_the_next_call_and_midnight_ends_it(llm_server: LLMServer) -> None:
    ModelPrice.objects.create(
        model="test-model", effective_from=NOON.date(), input_usd=Decimal(100_000), output_usd=Decimal(0),
        cache_read_usd=Decimal(0), cache_write_usd=Decimal(0),
    )  # fmt: skip
    with time_machine.travel(NOON, tick=False) as clock:
        agent, channel = dm_with(budget_enabled=True, daily_budget_usd=Decimal(15))  # a call costs 10
        write(channel, "Be more concise")
        llm_server.respond = judge()

        assert work_one(owner="w")

        request = BehaviorRequest.objects.get()
        assert (request.status, [tier_of(b) for b in llm_server.bodies]) == ("paused_budget", ["gate", "extract"])
        assert "the daily budget of ada is used up: $20.0000 of $15.0000" in request.error
        assert (request.extract_result, request.map_result) == (SHORTER, None)
        clock.shift(timedelta(hours=11, minutes=59))
        assert resume_paused() is None
        assert not work_one(owner="w")

        clock.shift(timedelta(minutes=2))
        assert resume_paused() == "1 taken up again"
        assert work_one(owner="w")

    assert [tier_of(b) for b in llm_server.bodies] == ["gate", "extract", "map"]
    assert BehaviorRequest.objects.get().status == "applied"
    assert traits_of(agent) == {"concise answers": 0.5}


def test_a_detector_that_costs_nothing_is_stopped_by_no_budget(asked: list[str]) -> None:
    _, channel = dm_with(budget_enabled=True, daily_budget_usd=Decimal(0))
    write(channel, "Be more concise")

    assert work_one(owner="w")

    assert BehaviorRequest.objects.get().status == "applied"

"""An outage of the judge costs nobody's request: it is tried again after 1, 5 and 30 minutes, and only then has failed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from agents.models import Agent, DescriptionUpdate
from correction.behavior import description, work
from correction.behavior.applying import retry_request
from correction.models import BehaviorRequest
from tests.correction.behavior.asking import dm_with, judge, traits_of, write
from tests.correction.behavior.proposals import Status, proposed
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_waiting(settings: Settings) -> None:
    settings.LLM_EVALUATION_RETRIES = 0


def minutes_to_wait(row: BehaviorRequest | DescriptionUpdate) -> float:
    assert row.lease_expires_at is not None
    return round((row.lease_expires_at - timezone.now()).total_seconds() / 60, 1)


def the_wait_is_over(model: type[BehaviorRequest] | type[DescriptionUpdate]) -> None:
    model.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def test_a_request_is_tried_four_times_before_it_has_failed(llm_server: LLMServer) -> None:
    _, channel = dm_with()
    write(channel, "Be more concise")
    llm_server.respond = judge(gate={"scripted": {"status": 529}})
    waits = []
    for _ in range(3):
        assert work.work_one(owner="w")
        request = BehaviorRequest.objects.get()
        assert request.status == "queued"
        assert "tried again in" in request.error
        assert not work.work_one(owner="w"), "not before its time"
        waits.append(minutes_to_wait(request))
        the_wait_is_over(BehaviorRequest)

    assert work.work_one(owner="w")

    assert waits == [1, 5, 30]
    request = BehaviorRequest.objects.get()
    assert (request.status, request.error.partition(" (")[0][:18]) == ("failed", "gate: unavailable:")
    assert llm_server.calls == 4


def test_a_request_lands_when_the_outage_is_over_and_pays_no_tier_twice(llm_server: LLMServer) -> None:
    agent, channel = dm_with()
    write(channel, "Be more concise")
    llm_server.respond = judge(map={"scripted": {"status": 529}})
    assert work.work_one(owner="w")
    llm_server.respond = judge()

    assert work.resume_paused() is None, "not before its time"
    the_wait_is_over(BehaviorRequest)
    assert work.resume_paused() == "1 taken up again"
    assert work.work_one(owner="w")

    assert BehaviorRequest.objects.get().status == "applied"
    assert traits_of(agent) == {"concise answers": 0.5}
    assert llm_server.calls == 4, "gate and extract once, the mapping twice"


def test_one_that_waits_holds_up_nobody_else(llm_server: LLMServer) -> None:
    _, channel = dm_with()
    write(channel, "Be more concise")
    llm_server.respond = judge(gate={"scripted": {"status": 529}})
    assert work.work_one(owner="w")
    llm_server.respond = judge()
    write(channel, "Use fewer words")

    assert work.work_one(owner="w")

    assert list(BehaviorRequest.objects.order_by("pk").values_list("status", flat=True)) == ["queued", "applied"]


def test_trying_again_by_hand_has_all_tries_anew() -> None:
    request = retry_request(request=proposed(make_agent(), status=Status.FAILED, attempt=4))

    assert (request.status, request.attempt, request.lease_expires_at) == ("queued", 0, None)


def test_a_description_is_tried_again_likewise(llm_server: LLMServer) -> None:
    agent = make_agent(description="A dry clerk.", description_origin="seed")
    description.queue_description(agent=agent)
    llm_server.respond = lambda body: {"status": 529}
    assert description.work_one(owner="w")
    update = DescriptionUpdate.objects.get()
    assert (update.status, minutes_to_wait(update)) == ("pending", 1)
    assert not description.work_one(owner="w")
    llm_server.respond = lambda body: {"json": {"description": "A clerk of few words."}}

    the_wait_is_over(DescriptionUpdate)
    assert description.resume_paused() == "1 taken up again"
    assert description.work_one(owner="w")

    assert Agent.objects.get().description == "A clerk of few words."


def test_a_description_that_never_comes_has_failed_in_the_end(llm_server: LLMServer) -> None:
    description.queue_description(agent=make_agent(description="A dry clerk.", description_origin="seed"))
    llm_server.respond = lambda body: {"status": 529}
    for _ in range(4):
        assert description.work_one(owner="w")
        the_wait_is_over(DescriptionUpdate)

    assert DescriptionUpdate.objects.get().status == "failed"
    assert not description.work_one(owner="w")

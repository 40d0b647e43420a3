"""Turns are claimed like all work: one at a time per agent, taken up when lost, cancelled between steps."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pytest_django import Settings

from agents.models import (
    Agent,
    Channel,
    Run,
    RunMessage,
    owner_name,
)
from agents.turn.orchestrator import cancel, run_turn, start_turn, work_one
from agents.work.lease import CANDIDATES
from tests.agents.turn import stages
from tests.agents.turn.playing import plays, take_turn, texts
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
HERE = "tests.agents.turn.stages."
SAY = ("send_message", {"channel": "office", "text": "No."})


# -- claiming
def test_an_agent_takes_one_turn_at_a_time_and_the_second_waits(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    one, two = start_turn(agent=ada, channel=office), start_turn(agent=ada, channel=office)
    assert one.acquire(owner="another-host:1:a", lease=timedelta(seconds=60))

    assert run_turn(two, owner=owner_name()).status == "pending"
    assert not work_one(owner=owner_name())
    assert not run_turn(Run.objects.get(pk=one.pk), owner=owner_name()).attempt > 1

    one.finish(owner="another-host:1:a", status="completed")
    plays(llm_server, SAY, "done")
    assert work_one(owner=owner_name())
    two.refresh_from_db()
    assert two.status == "completed"


def test_a_busy_agent_holds_up_nobody_else(ada: Agent, bob: Agent, office: Channel, llm_server: LLMServer) -> None:
    running = start_turn(agent=ada, channel=office)
    running.acquire(owner="another-host:1:a", lease=timedelta(seconds=60))
    for _ in range(CANDIDATES + 5):
        start_turn(agent=ada, channel=office)
    last = start_turn(agent=bob, channel=office)
    plays(llm_server, SAY, "done")

    assert work_one(owner=owner_name())

    last.refresh_from_db()
    assert last.status == "completed"


def test_a_lost_turn_is_taken_up_before_its_agents_next_one(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    waiting, lost = start_turn(agent=ada, channel=office), start_turn(agent=ada, channel=office)
    lost.acquire(owner="another-host:1:a", lease=timedelta(seconds=-1))
    plays(llm_server, SAY, "done")

    assert work_one(owner=owner_name())

    lost.refresh_from_db()
    waiting.refresh_from_db()
    assert (lost.status, lost.attempt, waiting.status) == ("completed", 2, "pending")


def test_a_turn_taken_over_by_another_process_is_left_to_it(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Stealing"]

    ended = take_turn(ada, office)

    assert (ended.status, ended.lease_owner) == ("running", "another-host:1:a")
    assert llm_server.calls == 0
    assert not RunMessage.objects.exists()


# -- cancelling
def test_a_turn_that_waits_is_cancelled_at_once(ada: Agent, office: Channel) -> None:
    run = cancel(start_turn(agent=ada, channel=office))

    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    assert run.finished_at is not None
    assert not work_one(owner=owner_name())


def test_a_turn_under_way_stops_before_its_next_step(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    """It is cancelled while its draft is reviewed, and sent back: nothing more is said, not even the best attempt."""
    settings.TURN_PIPELINE = [HERE + "Strict", HERE + "Cancelling"]
    plays(llm_server, ("send_message", {"channel": "office", "text": "fine"}), SAY)

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    assert llm_server.calls == 1
    assert texts(office) == ["fine"], "what was under way is finished"
    assert ("finish", "") in stages.heard


def test_a_cancelled_turn_says_no_best_attempt(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Cancelling", HERE + "Strict"]
    plays(llm_server, ("send_message", {"channel": "office", "text": "a bad one"}))

    run = take_turn(ada, office)

    assert run.status == "cancelled"
    assert stages.heard[-1] == ("finish", stages.SESSION)
    assert texts(office) == []

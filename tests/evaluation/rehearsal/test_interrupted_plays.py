"""Plays that something comes in the way of: an actor that is down, another process, a persona that changes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pytest_django import Settings

from agents.models import Agent, Message, Run
from agents.persona import save_persona
from agents.turn.orchestrator import start_turn
from correction.models import AgentEvaluationConfig
from evaluation.rehearsal import Situation
from tests.agents.turn.playing import join, shown
from tests.evaluation.rehearsal.acting import acts, played, said
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scripted(settings: Settings) -> Agent:
    settings.ACTOR_MODEL = "offline:scripted-1"
    return make_agent("ada", sample_lines=[f"Line {n}." for n in range(6)])


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def test_a_persona_that_changes_on_the_way_stops_the_play(llm_server: LLMServer, ada: Agent) -> None:
    llm_server.respond = acts(lambda body: "Yes.")

    def change(done: int, total: int) -> None:
        ada.system_prompt = "You shout."
        save_persona(agent=ada, note="louder")

    found = played(ada, progress=change)

    assert [c.played for c in found.conversations] == [1, 0]
    assert "the persona was changed meanwhile" in found.problem


def test_an_actor_that_is_down_is_said_and_nothing_is_invented(llm_server: LLMServer, ada: Agent) -> None:
    many = [Situation(f"s{n}", ("Hello?", "Hello again?")) for n in range(6)]
    llm_server.always(status=401)

    found = played(ada, *many)

    assert not found.complete
    assert not found.usable
    assert found.messages == 0
    assert [c.tried for c in found.conversations] == [True] * 3 + [False] * 3
    assert "the model call failed: rejected" in found.conversations[0].reason
    assert found.conversations[5].reason == "not tried after 3 in a row had failed"
    assert found.problem.startswith("6 of 6 conversations not played (s0, s1, s2, s3, s4 and 1 more): ")
    assert llm_server.calls == 3
    assert not Message.objects.filter(agent=ada).exists()


def test_what_failed_is_tried_again_and_what_was_played_is_not(llm_server: LLMServer, ada: Agent) -> None:
    answering = acts(lambda body: "Yes.")
    llm_server.respond = lambda body: {"status": 401} if "You are wrong." in shown(body) else answering(body)
    broken = played(ada)
    calls = llm_server.calls
    llm_server.respond = acts(lambda body: "No, I am not.")

    mended = played(ada)

    assert [c.complete for c in broken.conversations] == [True, False]
    assert broken.usable
    assert mended.id == broken.id
    assert mended.complete
    assert llm_server.calls == calls + 2, "one turn"
    assert said(mended)[-2:] == [("quarrel", "1", "Zed", "You are wrong."), ("quarrel", "1", "Ada", "No, I am not.")]


def test_what_another_process_plays_meanwhile_is_not_played_twice(scripted: Agent) -> None:
    """The other process plays everything while this one is between its first and its second line."""
    met: list[int] = []

    def meet(done: int, total: int) -> None:
        if not met:
            met.append(done)
            played(scripted)

    found = played(scripted, progress=meet)

    assert found.complete
    assert (Run.objects.count(), found.messages, len(said(found))) == (3, 3, 6)


def test_an_inactive_agent_is_not_played(scripted: Agent) -> None:
    Agent.objects.update(is_active=False)

    assert "agent 'ada' is inactive" in played(scripted).problem


def test_a_budget_that_is_used_up_stops_a_play_of_a_paid_model(llm_server: LLMServer, ada: Agent) -> None:
    AgentEvaluationConfig.objects.create(agent=ada, budget_enabled=True, daily_budget_usd=0)

    found = played(ada)

    assert "budget of ada" in found.problem
    assert llm_server.calls == 0


def test_a_turn_that_was_left_unfinished_is_named_and_not_waited_for(scripted: Agent) -> None:
    """Its process is gone, on another machine, and no worker runs."""
    office = make_channel("office")
    join(office, scripted)
    lost = start_turn(agent=scripted, channel=office)
    assert lost.acquire(owner="elsewhere:1:x", lease=timedelta(hours=-1))

    found = played(scripted)

    assert f"turn {lost.pk} of ada was left unfinished and holds it; manage.py work ends it" in found.problem
    assert not found.messages
    assert lost.finish(owner="elsewhere:1:x", status=Run.Status.ERRORED)
    assert played(scripted).complete


def test_a_queued_turn_of_the_agent_stands_in_nobodys_way(scripted: Agent) -> None:
    office = make_channel("office")
    join(office, scripted)
    waiting = start_turn(agent=scripted, channel=office)

    assert played(scripted).complete
    waiting.refresh_from_db()
    assert waiting.status == Run.Status.PENDING

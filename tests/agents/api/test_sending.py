"""An agent's draft over the API: said, or sent back; once per key; in time; refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, Message
from agents.turn.pipeline import Accept, Draft, Turn
from correction.models import AgentEvaluationConfig, CorrectionLog
from tests.agents.turn import stages
from tests.agents.turn.playing import texts
from tests.api_client import Program, program
from tests.console import staff
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db

SEND = "/api/messages/send/"
HI = {"agent": "ada", "channel": "office", "text": "Good morning."}
GATE = ["correction.stages.ActionGate"]


@pytest.fixture(autouse=True)
def _not_heard() -> Iterator[None]:
    stages.heard.clear()
    yield
    stages.heard.clear()


class TellsOverrides:
    """Says what overrides reached it."""

    name = "tells"

    def review(self, turn: Turn, draft: Draft) -> Accept:
        turn.reports["tells"] = dict(turn.overrides)
        turn.reports["object"] = object()
        return Accept(draft, "passed")


def test_a_draft_that_passes_is_said(client: Program, ada: Agent, office: Channel) -> None:
    first = say(office, "Guest", "Hello?")

    answer = client.post(
        SEND, {**HI, "parent": first.pk, "trigger": first.pk, "payload": {"mood": "dry"}, "tags": {"build": "41"}}
    )

    assert answer.status_code == 201
    shown = answer.json()
    assert (shown["committed"], shown["outcome"], shown["text"]) == (True, "sent", "Good morning.")
    assert (shown["feedback"], shown["session"], shown["reports"], shown["trace"]) == ("", None, {}, [])
    message = shown["message"]
    assert (message["agent"], message["channel"], message["position"], message["parent"]) == (
        "ada",
        "office",
        2,
        first.pk,
    )
    assert (message["payload"], message["tags"]) == ({"mood": "dry"}, {"build": "41"})
    assert client.get(answer["Location"]).json()["text"] == "Good morning."


def test_a_draft_that_is_sent_back_comes_with_feedback_and_a_session(
    client: Program, ada: Agent, office: Channel, settings: Settings
) -> None:
    settings.TURN_PIPELINE = ["tests.agents.turn.stages.Strict"]

    back = client.post(SEND, {**HI, "text": "bad words"})

    assert back.status_code == 200
    shown = back.json()
    assert (shown["committed"], shown["outcome"], shown["message"]) == (False, "corrected", None)
    assert (shown["text"], shown["feedback"], shown["session"]) == (
        "bad words",
        "It holds the word bad.",
        stages.SESSION,
    )
    assert (shown["trace"][0]["stage"], shown["trace"][0]["phase"], shown["trace"][0]["status"]) == (
        "strict", "review", "ran",
    )  # fmt: skip
    assert "Location" not in back
    assert texts(office) == []


def test_the_gate_sends_back_and_lets_the_sessions_next_attempt_pass(
    client: Program, ada: Agent, office: Channel, settings: Settings
) -> None:
    settings.TURN_PIPELINE = GATE
    settings.JUDGE_MODEL = "offline:lexical-1"
    AgentEvaluationConfig.objects.create(agent=ada, gate_fluency_enabled=True, gate_fluency_threshold=5)
    said = "I am very glad to see you here today, I am very glad indeed."
    for _ in range(4):
        say(office, ada, said)

    back = client.post(SEND, {**HI, "text": said}).json()
    passed = client.post(SEND, {**HI, "text": "Paper comes in reams.", "session": back["session"]}).json()

    log = CorrectionLog.objects.get(outcome="corrected")
    assert (back["committed"], back["session"]) == (False, str(log.session.uuid))
    fluency = back["reports"]["gate"]["dimensions"]["fluency"]
    assert (fluency["passed"], fluency["threshold"]) == (False, 5.0)
    assert (passed["committed"], passed["session"]) == (True, None)
    assert passed["reports"]["gate"]["attempt"] == 2
    again = client.post(SEND, {**HI, "session": back["session"]})
    assert again.status_code == 400
    assert "is closed" in again.json()["errors"]["session"][0]


def test_a_key_whose_answer_was_lost_says_nothing_twice_either(client: Program, ada: Agent, office: Channel) -> None:
    from agents.kit.models import IdempotentRequest

    long_key = "k" * 255
    first = client.post(SEND, HI, headers={"Idempotency-Key": long_key}).json()
    IdempotentRequest.objects.all().delete()  # the process died before it could store its answer

    again = client.post(SEND, HI, headers={"Idempotency-Key": long_key})

    assert (again.status_code, again.json()["message"]["id"]) == (201, first["message"]["id"])
    assert texts(office) == ["Good morning."]


# -- settings of one send


def test_overrides_are_for_those_who_may_change_agents(client: Program, ada: Agent, settings: Settings) -> None:
    settings.TURN_PIPELINE = [f"{__name__}.TellsOverrides"]
    chosen = {"gate_mode": "off", "tags": {"build": "41"}, "stages": ["tells"]}

    shown = client.post(SEND, {**HI, "overrides": chosen}).json()

    assert shown["reports"]["tells"] == chosen
    assert shown["message"]["tags"] == {"build": "41"}
    sender = program(staff("agents.add_message"))
    assert sender.post(SEND, {**HI, "overrides": chosen}).status_code == 403
    assert sender.post(SEND, {**HI, "deadline": 3}).status_code == 201


# -- refusals


def test_an_agent_that_may_not_speak_there_is_a_conflict(client: Program, ada: Agent) -> None:
    make_channel("attic")
    make_agent("idle", is_active=False)

    elsewhere = client.post(SEND, {**HI, "channel": "attic"})
    inactive = client.post(SEND, {**HI, "agent": "idle"})

    assert (elsewhere.status_code, inactive.status_code) == (409, 409)
    assert "is not a member of channel 'attic'; allowed: office" in elsewhere.json()["detail"]
    assert "is inactive; allowed: active agents" in inactive.json()["detail"]


def test_a_failed_required_stage_is_a_503_and_says_nothing(client: Program, ada: Agent, settings: Settings) -> None:
    settings.TURN_PIPELINE = ["tests.agents.turn.stages.Required"]

    answer = client.post(SEND, HI, headers={"Idempotency-Key": "k"})

    assert (answer.status_code, answer["Content-Type"]) == (503, "application/problem+json")
    assert "a required stage failed" in answer.json()["detail"]
    assert not Message.objects.exists()
    settings.TURN_PIPELINE = []
    assert client.post(SEND, HI, headers={"Idempotency-Key": "k"}).status_code == 201

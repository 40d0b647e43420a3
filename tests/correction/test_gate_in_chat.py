"""The gate in a chat: chosen for it alone, judged under the persona that spoke, and in no figure of real messages."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agents.chat import ask, ask_again, begin_chat, chats_of, delete_chat
from agents.kit.models import owner_name
from agents.models import Agent, Message, Run
from agents.turn.orchestrator import run_turn, work_one
from correction.config.settings import AgentEvaluationConfig
from correction.gate import observe
from correction.gate.statistics import get_gate_statistics
from correction.interventions.models import InterventionLog
from correction.models import CorrectionLog, ObservedMessage
from evaluation.calibration.models import ScoreLabel
from tests.console import page_of, read, signed_in, superuser
from tests.evaluation.judged import make_run as make_evaluation
from tests.evaluation.judged import make_score
from tests.evaluation.judging import answers, prompt_of
from tests.factories import make_agent
from tests.factories import say as speak
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]


@pytest.fixture
def ada() -> Agent:
    return make_agent()


@pytest.fixture
def client() -> Client:
    return signed_in(superuser())


def plays_and_judges(server: LLMServer, score: int = 8) -> None:
    """An actor that says one thing, and a judge that scores everything alike."""
    judge = answers(lambda claim: score)

    def respond(body: dict[str, Any]) -> dict[str, Any] | None:
        if not body.get("tools"):
            return judge(body)
        sent = any(part["type"] == "tool_result" for message in body["messages"] for part in message["content"])
        channel = re.search(r"(chat-ada|talk-\d+)-\d+", str(body["messages"]))
        said = {"channel": channel[0] if channel else "", "text": "Noted."}
        return {"text": "Done."} if sent else {"tool_calls": [("send_message", said)]}

    server.respond = respond


def say(client: Client, agent: Agent, mode: str) -> Message:
    url = reverse("admin:agents_channel_chats", args=[agent.pk])
    assert client.post(url, {"text": "Hello", "gate_mode": mode}).status_code == 302
    assert work_one(owner=owner_name())
    return Message.objects.get(channel=chats_of(agent).first(), agent=agent)


@pytest.mark.parametrize(("mode", "source"), [("enforce", "gate"), ("observe", "observe"), ("", "")])
def test_the_gate_s_mode_is_chosen_for_a_chat_alone(
    mode: str, source: str, ada: Agent, client: Client, llm_server: LLMServer
) -> None:
    plays_and_judges(llm_server)
    message = say(client, ada, mode)
    observe.work_one(owner=owner_name())
    logs = CorrectionLog.objects.filter(session__message=message)
    assert [log.session.source for log in logs] == [source] * bool(source)
    assert not AgentEvaluationConfig.objects.exists()
    html = read(client, page_of(message.channel, "chat"))
    assert ('class="pl-gate-note"' in html) is bool(source)
    if mode:
        assert f'value="{mode}" selected' in html  # the next message too
    assert get_gate_statistics(agent=ada).total_actions == 0


def test_another_mode_is_refused_in_words(ada: Agent, client: Client) -> None:
    url = reverse("admin:agents_channel_chats", args=[ada.pk])
    answer = client.post(url, {"text": "Hello", "gate_mode": "maybe"}, headers={"Accept": "application/json"})
    assert "maybe" in answer.json()["problem"]
    assert not Run.objects.exists()


def test_an_answer_under_an_edited_persona_is_judged_by_that_persona(ada: Agent, llm_server: LLMServer) -> None:
    plays_and_judges(llm_server)
    settings = {"gate_mode": "observe", "gate_adherence_enabled": True}
    run_turn(ask(ada, begin_chat(ada), "Hello"), owner=owner_name())
    question = Message.objects.get(text="Hello")
    run = ask_again(question, agent=ada, system_prompt="You are a pirate.", overrides=settings)
    run_turn(run, owner=owner_name())
    observe.work_one(owner=owner_name())
    judged = [prompt_of(body) for body in llm_server.bodies if not body.get("tools")]
    assert judged
    assert all("You are a pirate." in prompt and "careful clerk" not in prompt for prompt in judged)
    assert CorrectionLog.objects.get().persona_version is None


def test_logs_of_a_chat_are_deleted_with_it(ada: Agent, client: Client, llm_server: LLMServer) -> None:
    plays_and_judges(llm_server)
    message = say(client, ada, "enforce")
    InterventionLog.objects.create(name="variety", agent=ada, channel=message.channel, fired=False)
    delete_chat(message.channel)
    assert not CorrectionLog.objects.exists()
    assert not InterventionLog.objects.exists()
    assert not ObservedMessage.objects.exists()
    assert get_gate_statistics(agent=ada).total_actions == 0


def test_a_measurement_and_another_turn_outlast_the_messages_of_a_deleted_chat(ada: Agent) -> None:
    chat = begin_chat(ada)
    message = speak(chat, ada, "Good morning.", synthetic=True)
    score = make_score(make_evaluation(ada), 8, message=message)
    ScoreLabel.objects.create(evaluation_score=score, annotator="zed", value=8)
    elsewhere = Run.objects.create(agent=ada)
    said = elsewhere.run_messages.create(number=1, role="assistant", message=message)

    delete_chat(chat)

    score.refresh_from_db()
    said.refresh_from_db()
    assert (score.message, score.labels.count(), said.message) == (None, 1, None)

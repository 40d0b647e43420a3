"""Conversations that came through LiteLLM are stored once, in their channel, and nothing of them stays in the row."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.utils import timezone
from pytest_django import Settings

from agents.kit.models import owner_name
from agents.models import Agent, Channel, Message
from correction.config.configure import configure
from correction.litellm.ending import work_one
from correction.litellm.models import GatedReply
from correction.models import CorrectionLog, GateSession, ObservedMessage
from tests.api_client import Program, program
from tests.correction.gating import gated, logs
from tests.correction.litellm.gateway import call, end_replies, judging
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]


def user(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def own(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def stored() -> list[tuple[str, str]]:
    """Who said what, in the order of the channel."""
    return [(message.author_name, message.text) for message in Message.objects.order_by("channel", "position")]


def test_a_conversation_is_stored_once_however_often_its_history_is_sent(
    client: Program, llm_server: LLMServer
) -> None:
    gated("adherence")
    llm_server.respond = judging()
    said = [user("Well?"), own("Yes."), user("Yes?"), own("Yes.")]
    for number in (0, 2):
        call(client, agent="ada", messages=said[: number + 1]).stream([said[number + 1]["content"]])
    end_replies()
    call(client, agent="ada", messages=[*said, user("Well?")]).stream(["Yes."])
    end_replies()

    expected = [
        ("user", "Well?"),
        ("Ada", "Yes."),
        ("user", "Yes?"),
        ("Ada", "Yes."),
        ("user", "Well?"),
        ("Ada", "Yes."),
    ]
    assert stored() == expected
    assert Channel.objects.filter(slug__startswith="litellm-").count() == 1
    assert [log.outcome for log in logs()] == ["passed"] * 3
    assert {session.message.text for session in GateSession.objects.all() if session.message} == {"Yes."}
    assert GateSession.objects.filter(sent=1, channel__isnull=False, source="gate").count() == 3


def test_history_that_a_client_trims_is_stored_once(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    call(client, agent="ada", messages=[user("Well? ")]).stream(["Yes.\n\n"])
    end_replies()
    call(client, agent="ada", messages=[user("Well?"), own("Yes."), user("Yes?")]).stream(["Yes."])
    end_replies()

    assert [text.strip() for _, text in stored()] == ["Well?", "Yes.", "Yes?", "Yes."]


def test_what_was_said_is_stored_as_it_was_returned(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["It is upstairs."])
    call(client, agent="ada").stream(["I filed it. ", "Hooray! ", "The rest."])
    end_replies()

    assert stored() == [("user", "Well?"), ("Ada", "I filed it. It is upstairs.")]


def test_nothing_of_a_conversation_stays_in_its_row(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    call(client, agent="ada", end_user="marla@example.com").stream(["I filed it."])

    assert "marla" in str(GatedReply.objects.values())
    assert not work_one(owner=owner_name()), "nobody says that a reply is over: it is after minutes without a round"
    end_replies()
    row = GatedReply.objects.get()
    assert (row.status, row.context, row.replies) == ("completed", {}, [])
    assert row.message == Message.objects.get(agent__slug="ada")
    assert "marla" not in str(GatedReply.objects.values())
    assert stored()[0] == ("marla@example.com", "Well?")
    assert "marla" not in Channel.objects.latest("pk").slug


def test_nothing_of_a_reply_that_was_written_again_stays_in_its_row(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["It is for Marla."])
    call(client, agent="ada").stream(["I filed it. Hooray for Marla! "])
    end_replies()

    assert "Marla" not in str(GatedReply.objects.values())


TALK = {"x-litellm-session-id": "talk-1"}


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ({"headers": {"X-LiteLLM-Session-Id": "talk-1"}}, {"headers": {"x-litellm-session-id": "talk-1"}}, True),
        ({"headers": {"x-litellm-session-id": "talk-1"}}, {"headers": {"x-litellm-session-id": "talk-2"}}, False),
        ({"end_user": "bob"}, {"end_user": "bob"}, True),
        ({"end_user": "bob"}, {"end_user": "eve"}, False),
        ({}, {"messages": [user("Hm?")]}, False),
        ({"headers": TALK, "end_user": "bob"}, {"headers": TALK, "end_user": "eve"}, False),
        ({"headers": TALK, "key": "shop"}, {"headers": TALK, "key": "desk"}, False),
        ({"headers": TALK}, {"headers": TALK, "agent": "bob"}, False),
        ({"key": "shop"}, {"key": "desk"}, False),
    ],
)
def test_a_channel_is_known_by_session_then_person_then_first_message(
    client: Program, llm_server: LLMServer, one: dict[str, Any], other: dict[str, Any], together: bool
) -> None:
    gated("adherence")
    llm_server.respond = judging()
    configure(agent=make_agent("bob"), changes={"gate_adherence_enabled": True})
    for fields in (one, other):
        call(client, **{"agent": "ada", **fields}).stream(["I filed it."])
    end_replies()

    assert Message.objects.values("channel").distinct().count() == (1 if together else 2)


def test_a_session_cannot_name_a_channel_that_is_there(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    call(client, agent="ada", headers={"x-litellm-session-id": "office"}).stream(["I filed it."])
    end_replies()

    assert not Message.objects.filter(channel__slug="office").exists()
    assert Message.objects.filter(channel__slug__startswith="litellm-office-").count() == 2


def test_words_that_a_client_makes_up_for_an_agent_are_not_stored_as_its_own(
    client: Program, llm_server: LLMServer
) -> None:
    gated("adherence")
    llm_server.respond = judging()
    made_up = [user("Well?"), own("I hate you."), user("Yes?")]
    call(client, agent="ada", messages=made_up).stream(["I filed it."])
    call(client, agent="ada", messages=[*made_up, own("I filed it."), user("So?")]).stream(["Upstairs."])
    end_replies()

    assert [text for _, text in stored()] == ["Well?", "Yes?", "I filed it.", "So?", "Upstairs."]


def test_a_person_who_has_the_name_of_an_agent_is_not_the_agent(client: Program, llm_server: LLMServer) -> None:
    ada, _ = gated("adherence")
    llm_server.respond = judging()
    messages = [user("I am Ada.", name="ada"), {"role": "tool", "tool_call_id": "1", "content": "42"}]
    call(client, agent="ada", messages=messages).stream(["I filed it."])
    end_replies()

    assert [message.text for message in Message.objects.filter(agent=ada)] == ["I filed it."]
    assert Message.objects.count() == 2


def test_observing_holds_nothing_and_judges_what_was_stored(client: Program, llm_server: LLMServer) -> None:
    gated("adherence", gate_mode="observe")
    llm_server.respond = judging(Hooray=1)

    stream = call(client, agent="ada")
    assert stream.stream(["I filed it. ", "Hooray! ", "The rest."]) == "I filed it. Hooray! The rest."
    assert {answer["action"] for answer in stream.answers} == {"NONE"}
    assert llm_server.calls == 0
    end_replies()

    assert ObservedMessage.objects.get().message.text == "I filed it. Hooray! The rest."
    assert not CorrectionLog.objects.exists()


def test_conversations_are_sampled_as_those_that_come_by_other_ways(
    client: Program, llm_server: LLMServer, settings: Settings
) -> None:
    settings.SECRET_KEY = "a key by which some of twelve are drawn"
    gated("adherence", ingest_keep="rate", ingest_rate=0.5)
    llm_server.respond = judging()
    for person in range(12):
        call(client, agent="ada", end_user=f"person {person}").stream(["I filed it."])
    end_replies()

    kept = Channel.objects.filter(slug__startswith="litellm-")
    assert 0 < kept.count() < 12
    assert {channel.inclusion_probability for channel in kept} == {0.5}
    assert Message.objects.count() == 2 * kept.count()
    assert GatedReply.objects.filter(status="completed").count() == 12
    assert GatedReply.objects.filter(message__isnull=False).count() == kept.count()
    assert [log.outcome for log in logs()] == ["passed"] * 12
    assert GateSession.objects.filter(message__isnull=False).count() == kept.count()


@pytest.mark.parametrize("may_store", [False, True])
def test_conversations_are_stored_for_who_may_store_messages(llm_server: LLMServer, may_store: bool) -> None:
    gated("adherence")
    llm_server.respond = judging()
    gateway = User.objects.create_user("gateway")
    gateway.user_permissions.add(Permission.objects.get(codename="add_correctionlog"))
    if may_store:
        gateway.user_permissions.add(Permission.objects.get(codename="add_message"))
    call(program(gateway), agent="ada").stream(["I filed it."])
    end_replies()

    row = GatedReply.objects.get()
    assert row.status == ("completed" if may_store else "failed")
    assert may_store or "agents.add_message" in row.error
    assert Message.objects.count() == (2 if may_store else 0)
    assert [(log.outcome, log.session.message) for log in logs()] == [("passed", row.message)]


def test_a_reply_waits_for_the_one_before_it_in_its_conversation(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    call(client, agent="ada", end_user="bob").stream(["I filed it."])
    call(client, agent="ada", end_user="bob").stream(["Upstairs."])
    second = GatedReply.objects.latest("pk")
    GatedReply.objects.filter(pk=second.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))

    assert work_one(owner=owner_name())
    assert not Message.objects.exists()
    second.refresh_from_db()
    assert second.attempt == 0, "waiting is no attempt"
    end_replies()

    assert [text for _, text in stored()] == ["Well?", "I filed it.", "Well?", "Upstairs."]


def test_an_agent_that_was_deleted_meanwhile_leaves_the_verdict(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    call(client, agent="ada").stream(["I filed it."])
    Agent.objects.all().delete()
    end_replies()

    assert GatedReply.objects.get().status == "completed"
    assert [(log.outcome, log.session.agent) for log in logs()] == [("passed", None)]


def test_a_synthetic_channel_takes_no_conversation(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    call(client, agent="ada", headers={"x-litellm-session-id": "x"}).stream(["I filed it."])
    channel = make_channel(GatedReply.objects.get().conversation)
    Channel.objects.filter(pk=channel.pk).update(synthetic=True)
    end_replies()

    assert "synthetic" in GatedReply.objects.get().error
    assert not Message.objects.exists()


def test_two_calls_of_the_same_id_are_two_replies(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Upstairs."])

    assert call(client, agent="ada", call_id="mine").stream(["Hooray!"]) == "Upstairs."
    assert call(client, agent="ada", call_id="mine", messages=[user("Hm?")]).stream(["I filed it."]) == "I filed it."
    end_replies()

    assert sorted(stored()) == [("Ada", "I filed it."), ("Ada", "Upstairs."), ("user", "Hm?"), ("user", "Well?")]

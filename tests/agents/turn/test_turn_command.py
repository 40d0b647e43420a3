"""``manage.py turn``: a turn taken here, shown as a timeline."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.models import Agent, Channel, Message, Run
from tests.agents.turn.playing import plays, texts
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
HERE = "tests.agents.turn.stages."


def turn(agent: str = "ada", channel: str = "office", **options: Any) -> str:
    out = io.StringIO()
    call_command("turn", agent, channel=channel, stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue()


def refused(agent: str = "ada", channel: str = "office") -> CommandError:
    with pytest.raises(CommandError) as caught:
        turn(agent, channel)
    return caught.value


def test_the_timeline_tells_what_was_sent_back_why_and_what_was_said(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Hint", HERE + "Idle", HERE + "Strict"]
    llm_server.reply(text="Let me try.", tool_calls=[("send_message", {"channel": "office", "text": "a bad word"})])
    plays(llm_server, ("send_message", {"channel": "office", "text": "a good word"}), "done")

    shown = turn(prompt="Say hello.")

    assert Run.objects.get().prompt == "Say hello."
    facts = [
        "hint prepare ran",
        "sent back (corrected)",
        "a bad word",
        "It holds the word bad.",
        "idle review skipped",
        "off for this agent",
        "said in office as message 1 (passed_after_retry)",
        "a good word",
        "strict committed ran",
        "strict finish ran",
        "completed",
        "300 tokens in, 30 out, unpriced",
    ]
    places = [shown.find(fact) for fact in facts]
    assert -1 not in places, shown
    assert places == sorted(places), shown


def test_as_json_it_is_one_object(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, ("send_message", {"channel": "#office", "text": "Nö."}), "done")

    result = json.loads(turn(json=True))

    assert result["status"] == "completed"
    assert result["said"] == [{"channel": "office", "number": 1, "text": "Nö."}]
    assert [event["what"] for event in result["events"]] == ["model call", "send_message", "model call"]
    assert result["usage"]["calls"] == 2
    assert (result["usage"]["cost_usd"], result["usage"]["unpriced_calls"]) == ("0", 2)


def test_a_name_turns_no_line_of_the_timeline_around(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    Agent.objects.filter(pk=ada.pk).update(display_name="Ada\u202e")
    plays(llm_server, "done")

    assert "Ada<U+202E>" in turn()


def test_a_turn_that_fails_ends_with_1_and_its_reason(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    llm_server.always(status=400, message="no such model")
    out = io.StringIO()

    with pytest.raises(CommandError, match=r"failed: the model call failed: rejected: .*no such model") as caught:
        call_command("turn", "ada", channel="office", stdout=out)

    assert caught.value.returncode == 1
    assert "gave no usable answer (rejected)" in out.getvalue()


def test_names_that_are_not_there_end_with_3_and_what_is_allowed(ada: Agent, office: Channel) -> None:
    make_agent("adam")
    make_channel("attic")
    for error, said in (
        (refused("adaa"), "there is no agent 'adaa'; did you mean ada or adam?"),
        (refused("xyz"), "there is no agent 'xyz'; agents: ada, adam"),
        (refused(channel="nowhere"), "no channel 'nowhere'; allowed for ada: office"),
        (refused(channel="attic"), "agent 'ada' is not a member of channel 'attic'; allowed: office"),
    ):
        assert (error.returncode, str(error)) == (3, said)
    Agent.objects.update(is_active=False)
    assert refused().returncode == 3
    assert not Run.objects.exists()


def test_ctrl_c_hands_the_turn_back(ada: Agent, office: Channel, settings: Settings) -> None:
    settings.TURN_PIPELINE = [HERE + "Interrupting"]

    error = refused()

    run = Run.objects.get()
    assert error.returncode == 130
    assert str(error) == f"Stopped. Turn {run.pk} is back in the queue: `manage.py work` continues it."
    assert (run.status, run.lease_owner) == ("pending", "")


def test_offline_it_works_without_key_and_network(office: Channel, settings: Settings) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"
    mime = make_agent("mime", sample_lines=["Only this."])
    office.memberships.create(agent=mime)

    result = turn("mime")

    assert texts(office) == ["Only this."]
    assert "The agent's calls: 2, 0 tokens in, 0 out, $0.0000" in result
    assert Message.objects.get().run == Run.objects.get()

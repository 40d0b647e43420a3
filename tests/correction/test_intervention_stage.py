"""The stage before a turn: what is looked at, and what the agent is shown (S-7.1)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from agents.models import Agent, Channel, MemoryBlock, MemoryPassage, Message
from agents.turn.prompt import build_prompt, preview_prompt
from tests.correction.steering import (
    advice,
    chatter,
    configure,
    dormant,
    entry_of,
    guidance,
    logs,
    looked_at,
    prepared,
    row,
)
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- off
def test_with_everything_off_no_model_is_asked_nothing_is_logged_one_query_ac_7_1_12(
    llm_server: LLMServer, ada: Agent, office: Channel, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(3):  # the channel (by the test), the configuration, the operators' rows
        turn = prepared(ada, office)

    assert (llm_server.calls, logs(), turn.sections) == (0, [], [])
    assert (entry_of(turn).status, entry_of(turn).why) == ("skipped", "no intervention is enabled for this agent")
    assert entry_of(turn, "repetition").status == "skipped"


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"anti_convergence_enabled": True}, ["anti_convergence"]),
        ({"variety_intervention_enabled": True}, ["variety"]),
        ({"anti_convergence_enabled": True, "variety_intervention_enabled": True}, ["anti_convergence", "variety"]),
    ],
)
def test_each_kind_is_enabled_for_itself_and_for_one_agent_ac_7_1_12(
    llm_server: LLMServer, ada: Agent, office: Channel, config: dict[str, Any], names: list[str]
) -> None:
    configure(ada, **config)

    prepared(ada, office)
    prepared(make_agent("bob"), office)

    assert [(log.name, log.agent) for log in logs()] == [(name, ada) for name in names]


def test_a_turn_may_bring_its_own_settings(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    prepared(ada, office, overrides={"anti_convergence_enabled": True})

    assert [log.name for log in logs()] == ["anti_convergence"]


# -- what fires
def test_the_nudge_stands_under_conversation_guidance_in_the_prompt_ac_7_1_9(
    llm_server: LLMServer, ada: Agent, office: Channel
) -> None:
    turn = looked_at(ada, office, dormant())

    assert [(s.heading, s.body, s.stage) for s in guidance(turn)] == [
        ("Conversation Guidance", "Say something else.", "interventions")
    ]
    prompt = "\n".join(block.text for block in build_prompt(turn).system)
    assert re.search(r"^### Conversation Guidance\n+Say something else\.", prompt, re.MULTILINE)


def test_the_sections_of_other_stages_are_left_as_they_are(ada: Agent, office: Channel) -> None:
    plain = "\n".join(block.text for block in build_prompt(prepared(ada, office)).system)

    nudged = "\n".join(block.text for block in build_prompt(looked_at(ada, office, dormant())).system)

    assert nudged.startswith(plain.rstrip())


def test_two_that_fire_share_one_heading_and_equal_texts_stand_once(ada: Agent, office: Channel) -> None:
    turn = looked_at(
        ada, office, dormant(name="a"), dormant(name="b"), dormant(name="c", effect=advice("Ask a question."))
    )

    assert [section.body for section in guidance(turn)] == ["Say something else.\n\nAsk a question."]
    assert [log.fired for log in logs()] == [True, True, True]


def test_a_nudge_is_transient_it_is_stored_in_no_memory_and_no_message_ac_7_1_10(ada: Agent, office: Channel) -> None:
    MemoryBlock.objects.create(agent=ada, label="personality", value="dry")
    before = Message.objects.count()

    looked_at(ada, office, dormant(effect=advice("a nudge like no other")))

    assert list(MemoryBlock.objects.values_list("value", flat=True)) == ["dry"]
    assert not MemoryPassage.objects.exists()
    assert Message.objects.count() == before
    assert Agent.objects.get(pk=ada.pk).system_prompt == ada.system_prompt
    assert not prepared(ada, office).sections  # the next turn knows nothing of it


def test_an_effect_that_fails_costs_only_its_own_intervention(ada: Agent, office: Channel) -> None:
    def broken(context: Any) -> Any:
        raise RuntimeError("no such nudge")

    turn = looked_at(ada, office, dormant(name="broken", effect=broken), dormant(name="sound"))

    assert len(guidance(turn)) == 1
    assert [(log.fired, log.why) for log in logs()] == [
        (False, "its precondition held, but its effect failed: RuntimeError: no such nudge"),
        (True, "its precondition held"),
    ]


# -- direct messages
def test_in_a_direct_message_nothing_is_looked_at_unless_it_is_allowed_ac_7_1_11(
    llm_server: LLMServer, ada: Agent
) -> None:
    dm = make_channel("dm-ada-bob", kind="dm")
    chatter(dm)
    configure(ada, anti_convergence_enabled=True, variety_intervention_enabled=True, convergence_threshold=Decimal(0))
    row("for-channels", function="message_count", function_parameters={"at_least": 1, "of": "channel"})

    turn = prepared(ada, dm)

    assert (llm_server.calls, logs(), guidance(turn)) == (0, [], [])
    assert entry_of(turn).why.startswith("direct message")

    row("anywhere", function="message_count", function_parameters={"at_least": 1, "of": "channel"}, dm_allowed=True)
    turn = prepared(ada, dm)
    assert [log.name for log in logs()] == ["anywhere"]
    assert guidance(turn)[0].body == "Speak up."


# -- preview
def test_a_preview_asks_no_model_and_logs_nothing(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    configure(ada, anti_convergence_enabled=True)
    row("loud", textual_claim="It is loud.")

    shown = preview_prompt(agent=ada, channel=office)

    assert (llm_server.calls, logs()) == (0, [])
    assert "Conversation Guidance" not in shown.system
    note = next(entry for entry in shown.trace if entry.stage == "interventions")
    assert note.why == "preview: nothing is evaluated; in a turn these would be looked at: anti_convergence, loud"

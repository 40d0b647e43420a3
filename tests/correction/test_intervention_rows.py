"""Interventions that operators write down: which apply, what they become, what is refused (S-7.1, AC-7.1.12, AC-7.1.13)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agents.models import Agent, Channel
from correction.interventions import problems_of
from correction.models import Intervention
from tests.correction.steering import entry_of, guidance, logs, prepared, row
from tests.evaluation.judging import answers, claims_of, entry, prompt_of
from tests.factories import make_agent, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
ALWAYS: dict[str, Any] = {"function": "message_count", "function_parameters": {"at_least": 1, "of": "channel"}}


def test_a_row_with_all_three_kinds_fires_when_all_hold(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    llm_server.respond = answers(lambda text: 2 if "clerk" in text else True)
    written = row(
        "all-three",
        **ALWAYS,
        textual_claim="Nobody asks {{agent_name}}.",
        proposition_claim="{{agent_name}} sounds like a clerk",
        proposition_threshold=Decimal("5.0"),
        nudge="{{agent_name}}, speak up in {{channel_name}}, {{manner}}.",
    )

    turn = prepared(ada, office)

    assert guidance(turn)[0].body == "Ada, speak up in #office, as Ada would."
    log = logs()[0]
    assert (log.name, log.intervention, log.fired) == ("all-three", written, True)
    assert [(p["kind"], p["text"]) for p in log.preconditions] == [
        ("functional", "message_count(at_least=1, of='channel')"),
        ("textual", "Nobody asks Ada."),
        ("propositional", "Ada sounds like a clerk"),
    ]


@pytest.mark.parametrize(
    ("threshold", "value", "fires"), [(None, True, True), (None, False, False), ("5.0", 4, True), ("5.0", 5, False)]
)
def test_the_polarity_of_a_proposition_depends_on_its_threshold(
    llm_server: LLMServer, ada: Agent, office: Channel, threshold: str | None, value: Any, fires: bool
) -> None:
    llm_server.always(json=entry(value))
    row(proposition_claim="It is dull.", proposition_threshold=Decimal(threshold) if threshold else None)

    assert bool(guidance(prepared(ada, office))) is fires


def test_it_is_for_the_agents_it_names_or_for_all(ada: Agent, office: Channel) -> None:
    bob = make_agent("bob")
    row("for-all", **ALWAYS)
    row("for-bob", **ALWAYS).agents.add(bob)
    row("for-both", **ALWAYS).agents.add(ada, bob)
    row("disabled", **ALWAYS, is_enabled=False)

    prepared(ada, office)

    assert [log.name for log in logs()] == ["for-all", "for-both"]


def test_a_claim_that_names_the_agent_is_about_the_agent(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    llm_server.always(json=entry(False))
    row("about-her", textual_claim="{{ agent_name }} is silent.")
    row("about-all", textual_claim="Everybody is silent.")

    prepared(ada, office)

    shown = {claims_of(body)["p1"]: prompt_of(body) for body in llm_server.bodies}
    assert "--> Ada: Guest-0 says:" in shown["Ada is silent."]
    assert "Guest-0 acts:" in shown["Everybody is silent."]


def test_its_window_says_how_much_the_judge_is_shown(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    row("short", textual_claim="short", window=1)
    row("long", textual_claim="long", window=100)
    for number in range(110):
        say(office, "Visitor", f"remark {number}.")

    prepared(ada, office)

    shown = {claims_of(body)["p1"]: prompt_of(body) for body in llm_server.bodies}
    assert ("remark 109." in shown["short"], "remark 108." in shown["short"]) == (True, False)
    assert ("remark 10." in shown["long"], "remark 9." in shown["long"]) == (True, False)


def test_a_row_with_a_kind_instead_of_a_text_speaks_in_character(ada: Agent, office: Channel) -> None:
    row("story", **ALWAYS, nudge="", nudge_type="personal_story")

    turn = prepared(ada, office)

    assert "tell something that happened to you" in guidance(turn)[0].body
    assert logs()[0].nudge_type == "personal_story"


def test_its_own_text_goes_before_the_kind(ada: Agent, office: Channel) -> None:
    row("story", **ALWAYS, nudge="Once upon a time.", nudge_type="personal_story")

    assert guidance(prepared(ada, office))[0].body == "Once upon a time."
    assert logs()[0].nudge_type == "personal_story"


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"function": "mood"}, "function", "function 'mood' is not registered; allowed: mentions"),
        ({"function": "silence"}, "function_parameters", "silence: at_least: is required"),
        ({"function": "silence", "function_parameters": [1]}, "function_parameters", "parameters are an object"),
        ({"textual_claim": "{{action}} is rude"}, "textual_claim", "allowed: {{agent_name}}, {{channel_name}}"),
        ({"proposition_claim": "{{mood}}"}, "proposition_claim", "allowed: {{agent_name}}, {{channel_name}}"),
        ({**ALWAYS, "nudge": "Be {{mood}}."}, "nudge", "unknown variable; allowed: {{agent_name}}"),
        ({**ALWAYS, "nudge": "", "nudge_type": "mood"}, "nudge_type", "nudge_type 'mood' is unknown; allowed: devils_advocate"),
        ({**ALWAYS, "slug": "variety"}, "slug", "the name of a built-in"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_beside_its_field(fields: dict[str, Any], field: str, message: str) -> None:
    written = Intervention(**{"slug": "odd", "nudge": "Speak.", **fields})

    assert message in problems_of(written)[field]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"function": "mood"}, "function 'mood' is not registered"),
        ({"function": "silence", "function_parameters": {"at_least": "x"}}, "silence: at_least"),
        ({"textual_claim": " \n"}, "no precondition"),
        ({**ALWAYS, "nudge": "Be {{mood}}."}, "unknown variable"),
        ({**ALWAYS, "nudge": " ", "nudge_type": ""}, "give a nudge"),
    ],
)
def test_a_row_that_slipped_past_the_form_never_fires_and_its_log_says_why(
    ada: Agent, office: Channel, fields: dict[str, Any], why: str
) -> None:
    """Written by a script, or with a function that is gone: it costs the other interventions nothing."""
    row("broken", **fields)
    row("sound", **ALWAYS)

    turn = prepared(ada, office)

    assert {log.name: log.fired for log in logs()} == {"broken": False, "sound": True}
    assert why in logs(name="broken")[0].why
    assert entry_of(turn).status == "ran"


def test_a_deleted_row_leaves_its_logs(ada: Agent, office: Channel) -> None:
    written = row("gone", **ALWAYS)
    prepared(ada, office)

    written.delete()

    assert [(log.name, log.intervention) for log in logs()] == [("gone", None)]

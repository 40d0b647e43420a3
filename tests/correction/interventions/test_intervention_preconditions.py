"""The three kinds of preconditions, what the judge is asked, and that all must hold (AC-7.1.1, AC-7.1.2, AC-7.1.5, AC-7.1.14)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agents.models import Agent, Channel
from correction.interventions import (
    Finding,
    FunctionalPrecondition,
    InterventionContext,
    PromptModification,
    PropositionalPrecondition,
    TextualPrecondition,
)
from evaluation.propositions.rules import Rule
from evaluation.propositions.schema import Proposition
from tests.correction.interventions.steering import always, chatter, dormant, guidance, logs, looked_at
from tests.evaluation.judging import answers, claims_of, entry, prompt_of
from tests.factories import make_agent, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(office: Channel) -> Agent:
    agent = make_agent("ada", system_prompt="You are Ada, keeper of the stamp drawer.")
    chatter(office)
    say(office, agent, "I would rather sort stamps.")
    return agent


def scored(**fields: Any) -> Proposition:
    return Proposition(dimension="adherence", id="voice", claim="{{agent_name}} sounds like a clerk", **fields)


# -- functional
def test_a_functional_precondition_is_any_function_of_the_context_ac_7_1_1(ada: Agent, office: Channel) -> None:
    """It sees agent, channel and the recent messages, and may answer with a bool or with what it measured."""
    seen: list[InterventionContext] = []

    def long_enough(context: InterventionContext) -> bool:
        seen.append(context)
        return len(context.messages) >= 5

    measured = FunctionalPrecondition(test=lambda c: Finding(True, "five of them", 5), text="counts")

    turn = looked_at(ada, office, dormant(FunctionalPrecondition(test=long_enough, text="five"), measured))

    assert (seen[0].agent, seen[0].channel, seen[0].messages[-1].text) == (ada, office, "I would rather sort stamps.")
    assert guidance(turn)[0].body == "Say something else."
    assert [(p["kind"], p["held"], p["score"], p["reasoning"]) for p in logs()[0].preconditions] == [
        ("functional", True, None, ""),
        ("functional", True, 5, "five of them"),
    ]


def test_an_effect_gets_agent_channel_and_recent_messages_ac_7_1_3(ada: Agent, office: Channel) -> None:
    say(office, ada, "Stamps again.")
    given: list[InterventionContext] = []

    def effect(context: InterventionContext) -> PromptModification:
        given.append(context)
        last = context.own_messages[-1].text
        return PromptModification(guidance=f"Do not say {last!r} to {context.channel} again.")

    turn = looked_at(ada, office, dormant(effect=effect, window=2))

    [context] = given
    assert (context.agent, context.channel) == (ada, office)
    assert [message.text for message in context.messages] == ["I would rather sort stamps.", "Stamps again."]
    [section] = turn.sections
    assert (section.heading, section.body) == (
        "Conversation Guidance",
        f"Do not say 'Stamps again.' to {office} again.",
    )


def test_a_function_that_raises_is_unknown_and_costs_only_its_own_intervention(ada: Agent, office: Channel) -> None:
    def broken(context: InterventionContext) -> bool:
        raise KeyError("mood")

    turn = looked_at(ada, office, dormant(FunctionalPrecondition(test=broken, text="mood")), dormant(name="other"))

    log = logs(name="probe")[0]
    assert (log.fired, log.preconditions[0]["held"]) == (False, None)
    assert log.why == "functional precondition could not be judged: KeyError: 'mood'"
    assert len(guidance(turn)) == 1


# -- textual
@pytest.mark.parametrize("holds", [True, False])
def test_a_textual_precondition_asks_the_judge_about_the_conversation_ac_7_1_5(
    llm_server: LLMServer, ada: Agent, office: Channel, holds: bool
) -> None:
    """Given this conversation, is the following true? The claim, the whole conversation as data, a boolean as the answer."""
    llm_server.always(json=entry(holds))

    turn = looked_at(ada, office, dormant(TextualPrecondition(claim="Nobody has mentioned the weather.")))

    (body,) = llm_server.bodies
    assert claims_of(body) == {"p1": "Nobody has mentioned the weather."}
    assert "The conversation so far:" in prompt_of(body)
    assert "Guest-1 acts: I agree, the picnic is a great idea." in prompt_of(body)
    assert "Decide whether the claim is true" in prompt_of(body)
    assert body["output_config"]["format"]["schema"]["properties"]["value"] == {"type": "boolean"}
    assert "keeper of the stamp drawer" not in prompt_of(body)
    assert bool(guidance(turn)) is holds
    assert logs()[0].preconditions[0]["held"] is holds
    assert logs()[0].preconditions[0]["reasoning"] == "Two words, no more. “Not me.”"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"status": 529}, "unavailable"),
        pytest.param({"hang": True}, "timeout", marks=pytest.mark.slow),
        ({"json": entry("true")}, "malformed"),
    ],
)
def test_an_unjudged_precondition_does_not_fire_and_the_log_explains(
    llm_server: LLMServer, ada: Agent, office: Channel, reply: dict[str, Any], why: str
) -> None:
    llm_server.always(**reply)

    turn = looked_at(
        ada, office, dormant(TextualPrecondition(claim="All is well.")), overrides={"gate_deadline_seconds": 4}
    )

    assert not guidance(turn)
    log = logs()[0]
    assert (log.fired, log.preconditions[0]["held"]) == (False, None)
    assert log.why.startswith(f"textual precondition could not be judged: {why}")
    assert llm_server.calls == 1  # as in the gate, nothing is asked again


def test_a_claim_with_an_unknown_variable_is_not_judged(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    looked_at(ada, office, dormant(TextualPrecondition(claim="{{action}} is fine")))

    assert logs()[0].preconditions[0]["held"] is None
    assert "{{action}}" in logs()[0].why
    assert llm_server.calls == 0


# -- propositional
@pytest.mark.parametrize(("score", "fires"), [(4, True), (5, False)])
def test_a_proposition_with_a_threshold_fires_when_its_score_is_below_ac_7_1_1(
    llm_server: LLMServer, ada: Agent, office: Channel, score: int, fires: bool
) -> None:
    llm_server.always(json=entry(score))

    turn = looked_at(ada, office, dormant(PropositionalPrecondition(proposition=scored(), threshold=Decimal("5.0"))))

    assert bool(guidance(turn)) is fires
    result = logs()[0].preconditions[0]
    assert (result["kind"], result["held"], result["score"], result["threshold"]) == (
        "propositional",
        fires,
        score,
        5.0,
    )
    if not fires:
        assert logs()[0].why == f"the propositional precondition does not hold: score {score} is not below 5"


def test_without_evidence_a_scored_proposition_counts_as_true_and_fires_nothing(
    llm_server: LLMServer, ada: Agent, office: Channel
) -> None:
    llm_server.always(json=entry(2, evidence="absent"))

    looked_at(ada, office, dormant(PropositionalPrecondition(proposition=scored(), threshold=Decimal(5))))

    assert (logs()[0].fired, logs()[0].preconditions[0]["score"]) == (False, 9)


@pytest.mark.parametrize("fields", [{"rule": Rule(max_words=3)}, {"precondition": "is_reply"}])
def test_a_proposition_about_one_message_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="about one message"):
        PropositionalPrecondition(proposition=scored(**fields))


# -- and
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_all_preconditions_must_hold_ac_7_1_2(llm_server: LLMServer, ada: Agent, office: Channel, failing: int) -> None:
    llm_server.respond = answers(lambda text: not text.endswith(str(failing)))
    claims = [TextualPrecondition(claim=f"claim {n}") for n in (1, 2)]

    turn = looked_at(ada, office, dormant(always(failing != 0), *claims))

    assert not guidance(turn)
    assert logs()[0].fired is False


def test_no_judge_is_asked_where_a_function_does_not_hold(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    """Cheap ones first, wherever they stand in the list."""
    turn = looked_at(ada, office, dormant(TextualPrecondition(claim="claim"), always(False), always()))

    assert llm_server.calls == 0
    assert not guidance(turn)
    assert [(p["kind"], p["held"]) for p in logs()[0].preconditions] == [
        ("functional", False),
        ("functional", None),
        ("textual", None),
    ]
    assert logs()[0].preconditions[2]["reasoning"] == "not asked: another precondition does not hold"
    assert logs()[0].why == "the functional precondition does not hold"

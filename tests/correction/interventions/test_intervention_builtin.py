"""The built-in interventions, online and offline, and the demonstration of S-7.1 (AC-7.1.6, AC-7.1.7, AC-7.1.14)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.models import LLMCall, owner_name
from agents.models import Agent, Channel, Message, Run
from agents.turn.orchestrator import run_turn, start_turn
from correction.interventions.nudges import NudgeType, load_nudges
from tests.agents.turn.playing import join
from tests.correction.interventions.steering import AGREEMENT, chatter, configure, guidance, logs, prepared
from tests.evaluation.judging import answers, claims_of, entry, prompt_of
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def oscar(office: Channel) -> Agent:
    agent = make_agent("oscar", display_name="Oscar", origin="seed")
    join(office, agent)
    return agent


@pytest.fixture
def offline(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.ACTOR_MODEL = "offline:lexical-1", "offline:scripted-1"
    settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = "http://127.0.0.1:9"


def finds_agreement(body: dict[str, Any]) -> dict[str, Any]:
    """A judge that finds every claim true: as a score, and where it is asked for true or false."""
    return answers(lambda text: 8 if "merely agree" in text else True)(body)


# -- anti-convergence
@pytest.mark.parametrize(("said", "speakers", "asked"), [(4, 3, 1), (3, 3, 0), (4, 2, 0)])
def test_a_judge_is_asked_where_a_group_talks(
    llm_server: LLMServer, oscar: Agent, office: Channel, said: int, speakers: int, asked: int
) -> None:
    configure(oscar, anti_convergence_enabled=True)
    for number in range(said):
        say(office, f"Guest {number % speakers}", AGREEMENT[number % 4])

    prepared(oscar, office)

    assert llm_server.calls == asked
    if not asked:
        assert logs()[0].why.startswith("the functional precondition does not hold: ")
        assert f"{speakers} speakers and {said} messages" in logs()[0].why


@pytest.mark.parametrize(
    ("threshold", "score", "fires"), [(None, 6, True), (None, 5, False), ("8.0", 7, False), ("8.0", 8, True)]
)
def test_the_score_of_agreement_is_held_against_the_configuration_ac_7_1_12(
    llm_server: LLMServer, oscar: Agent, office: Channel, threshold: str | None, score: int, fires: bool
) -> None:
    configure(
        oscar, anti_convergence_enabled=True, convergence_threshold=None if threshold is None else Decimal(threshold)
    )
    chatter(office, AGREEMENT)
    llm_server.always(json=entry(score))

    assert bool(guidance(prepared(oscar, office))) is fires
    assert logs()[0].fired is fires
    if not fires:
        assert logs()[0].why.endswith(f"score {score} is below {threshold or '6'}".removesuffix(".0"))


def test_a_judge_that_finds_nothing_to_judge_by_is_no_agreement(
    llm_server: LLMServer, oscar: Agent, office: Channel
) -> None:
    configure(oscar, anti_convergence_enabled=True)
    chatter(office, AGREEMENT)
    llm_server.always(json=entry(9, evidence="absent"))

    assert not guidance(prepared(oscar, office))
    assert logs()[0].preconditions[1]["held"] is None


def test_a_channel_is_judged_at_most_once_in_five_messages(
    llm_server: LLMServer, oscar: Agent, office: Channel
) -> None:
    phyllis, elsewhere = make_agent("phyllis"), make_channel("elsewhere")
    for agent in (oscar, phyllis):
        configure(agent, anti_convergence_enabled=True)
    chatter(office, AGREEMENT)
    chatter(elsewhere, AGREEMENT)
    llm_server.always(json=entry(2))

    calls = []
    for agent in (oscar, oscar, phyllis, oscar, phyllis, oscar, phyllis, oscar):
        prepared(agent, office)
        calls.append(llm_server.calls)
        say(office, "Visitor", "And napkins.")
    prepared(oscar, elsewhere)

    assert calls == [1, 1, 1, 1, 1, 2, 2, 2]
    assert llm_server.calls == 3
    assert "the judge was asked 1 messages ago, is asked again after 5" in logs()[1].why
    assert [p["held"] for p in logs()[1].preconditions] == [True, None]


# -- variety
@pytest.mark.parametrize(("said", "looked_closer"), [(6, False), (7, True)])
def test_stagnation_is_looked_for_from_seven_messages_on_ac_7_1_7(
    llm_server: LLMServer, oscar: Agent, office: Channel, said: int, looked_closer: bool
) -> None:
    """Functional: the agent's messages >= N; textual: it proposes nothing new; effect: completely new and different ideas."""
    configure(oscar, variety_intervention_enabled=True)
    for number in range(said):
        say(office, oscar, f"As the ledger says, item {number}.")
    llm_server.always(json=entry(True))

    turn = prepared(oscar, office)

    assert llm_server.calls == looked_closer
    assert bool(guidance(turn)) is looked_closer
    if looked_closer:
        assert "Oscar is not proposing new ideas any more" in claims_of(llm_server.bodies[0])["p1"]
        assert "Oscar acts: As the ledger says, item 6." in prompt_of(llm_server.bodies[0])
        assert logs()[0].nudge_type == "new_ideas"
        assert logs()[0].nudge == load_nudges()["oscar"][NudgeType.NEW_IDEAS]


# -- offline
@pytest.mark.usefixtures("offline")
def test_offline_agreement_is_asked_about_unscored_and_does_not_fire(oscar: Agent, office: Channel) -> None:
    """No words tell agreement from other talk; the log says that a judge was asked and could not tell."""
    configure(oscar, anti_convergence_enabled=True)
    chatter(office, AGREEMENT)

    assert not guidance(prepared(oscar, office))
    log = logs()[0]
    assert (log.judge, log.preconditions[0]["held"], log.preconditions[1]["held"]) == ("offline:lexical-1", True, None)
    assert "could not be judged: needs an LLM judge" in log.why
    assert LLMCall.objects.get().cost_usd == 0


# -- the demonstration of S-7.1
def actor(nudged: str, plain: str) -> Any:
    """A model that follows the guidance it finds in its prompt, as one hopes; the judge finds agreement."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        if not body.get("tools"):
            return finds_agreement(body)
        if any(part["type"] == "tool_result" for message in body["messages"] for part in message["content"]):
            return {"tool_calls": [("do_nothing", {"reason": "said it"})]}
        text = nudged if "### Conversation Guidance" in prompt_of_turn(body) else plain
        return {"tool_calls": [("send_message", {"channel": "office", "text": text})]}

    return respond


def prompt_of_turn(body: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in body["system"])


def turn_of(agent: Agent, channel: Channel) -> Run:
    return run_turn(start_turn(agent=agent, channel=channel), owner=owner_name())


def test_demo_four_agents_agree_and_the_next_is_nudged(
    llm_server: LLMServer, settings: Settings, oscar: Agent, office: Channel
) -> None:
    """S-7.1, demo 1 to 5: agreement, the claim holds, the nudge of the character in the prompt, a more diverse answer."""
    settings.TURN_PIPELINE = ["correction.stages.RepetitionSuppression", "correction.interventions.stages.Nudges"]
    echo, other = "Friday it is. I will bring lemonade.", "Strictly speaking, nobody has counted the chairs."
    llm_server.respond = actor(nudged=other, plain=echo)
    chatter(office, AGREEMENT)
    without = make_agent("phyllis")
    join(office, without)

    turn_of(without, office)
    Message.objects.filter(agent=without).delete()
    configure(oscar, anti_convergence_enabled=True)
    run = turn_of(oscar, office)

    assert Message.objects.filter(channel=office).order_by("-position")[0].text == other
    assert [log.fired for log in logs(agent=oscar, run=run)] == [True]
    assert not logs(agent=without)
    nudged = [prompt_of_turn(b) for b in llm_server.bodies if b.get("tools") and "Oscar" in prompt_of_turn(b)]
    assert logs()[0].nudge in nudged[0]
    stage = next(e for e in run.trace if e["stage"] == "interventions" and e["phase"] == "prepare")
    assert stage["counters"]["fired"] == 1
    calls = {(call.purpose, call.run) for call in LLMCall.objects.filter(agent=oscar)}
    assert calls == {("intervention", run), ("turn", run)}

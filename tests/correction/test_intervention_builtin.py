"""The built-in interventions, online and offline, and the demonstration of S-7.1 (AC-7.1.6, AC-7.1.7, AC-7.1.14)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.models import Agent, Channel, LLMCall, Message, Run, owner_name
from agents.turn.orchestrator import run_turn, start_turn
from correction.interventions.nudges import AGAINST_CONVERGENCE, NudgeType, load_nudges
from tests.agents.turn.playing import join
from tests.correction.steering import ECHOES, MIXED, chatter, configure, entry_of, guidance, logs, prepared
from tests.evaluation.judging import answers, claims_of, entry, prompt_of
from tests.factories import make_agent, say
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


# -- anti-convergence
def test_agreement_is_seen_by_its_words_and_then_by_the_judge_ac_7_1_6(
    llm_server: LLMServer, oscar: Agent, office: Channel
) -> None:
    """Words alike, then the textual claim, then a nudge against the prevailing opinion, in the character's manner."""
    configure(oscar, anti_convergence_enabled=True)
    chatter(office)
    llm_server.always(json=entry(True))

    turn = prepared(oscar, office)

    assert "merely agree with each other" in claims_of(llm_server.bodies[0])["p1"]
    log = logs()[0]
    assert [(p["kind"], p["held"]) for p in log.preconditions] == [("functional", True), ("textual", True)]
    assert log.preconditions[0]["score"] > 0.6
    assert (log.name, log.fired, log.nudge) == ("anti_convergence", True, guidance(turn)[0].body)
    assert log.nudge_type in set(AGAINST_CONVERGENCE)
    assert log.nudge == load_nudges()["oscar"][NudgeType(log.nudge_type)]


def test_where_words_differ_no_judge_is_asked(llm_server: LLMServer, oscar: Agent, office: Channel) -> None:
    configure(oscar, anti_convergence_enabled=True)
    chatter(office, MIXED)

    turn = prepared(oscar, office)

    assert (llm_server.calls, guidance(turn)) == (0, [])
    assert logs()[0].why.startswith("the functional precondition does not hold: vocabulary similarity 0.")


def test_alike_words_in_a_quarrel_do_not_fire_when_the_judge_says_so(
    llm_server: LLMServer, oscar: Agent, office: Channel
) -> None:
    configure(oscar, anti_convergence_enabled=True)
    chatter(office)
    llm_server.always(json=entry(False))

    assert not guidance(prepared(oscar, office))
    assert logs()[0].why == "the textual precondition does not hold"


@pytest.mark.parametrize(("threshold", "asked"), [("0.000", 1), ("0.600", 1), ("0.990", 0)])
def test_the_threshold_of_similarity_comes_from_the_configuration_ac_7_1_12(
    llm_server: LLMServer, oscar: Agent, office: Channel, threshold: str, asked: int
) -> None:
    configure(oscar, anti_convergence_enabled=True, convergence_threshold=Decimal(threshold))
    chatter(office)

    prepared(oscar, office)

    assert llm_server.calls == asked


def test_only_the_last_ten_messages_count(llm_server: LLMServer, oscar: Agent, office: Channel) -> None:
    configure(oscar, anti_convergence_enabled=True)
    chatter(office)
    chatter(office, MIXED * 3, prefix="later")

    prepared(oscar, office)

    assert llm_server.calls == 0


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


def test_an_agent_with_new_ideas_is_left_alone(llm_server: LLMServer, oscar: Agent, office: Channel) -> None:
    configure(oscar, variety_intervention_enabled=True, variety_message_threshold=1)
    say(office, oscar, "What if we leased the forklift?")
    llm_server.always(json=entry(False))

    assert not guidance(prepared(oscar, office))


def test_both_may_fire_in_one_turn(llm_server: LLMServer, oscar: Agent, office: Channel) -> None:
    configure(oscar, anti_convergence_enabled=True, variety_intervention_enabled=True, variety_message_threshold=1)
    say(office, oscar, "I agree, a great idea, the picnic.")
    chatter(office)
    llm_server.always(json=entry(True))

    turn = prepared(oscar, office)

    assert [log.fired for log in logs()] == [True, True]
    assert guidance(turn)[0].body.count("\n\n") == 1
    assert llm_server.calls == 2


# -- offline
@pytest.mark.usefixtures("offline")
def test_offline_an_agreeing_channel_is_found_by_its_cues(oscar: Agent, office: Channel) -> None:
    configure(oscar, anti_convergence_enabled=True)
    chatter(office)

    assert guidance(prepared(oscar, office))
    assert logs()[0].judge == "offline:lexical-1"
    assert "Cues found for it" in logs()[0].preconditions[1]["reasoning"]


@pytest.mark.usefixtures("offline")
def test_offline_a_single_objection_is_enough_against_it(oscar: Agent, office: Channel) -> None:
    configure(oscar, anti_convergence_enabled=True, convergence_threshold=Decimal("0.3"))
    chatter(office, (*ECHOES, "I disagree, the picnic on Friday is a bad idea."))

    assert not guidance(prepared(oscar, office))
    assert logs()[0].preconditions[1]["held"] is False


@pytest.mark.usefixtures("offline")
def test_offline_what_no_cue_tells_is_not_judged_and_does_not_fire(oscar: Agent, office: Channel) -> None:
    configure(oscar, anti_convergence_enabled=True)
    chatter(office, ["The truck brings paper, pallets and tape."] * 4)

    assert not guidance(prepared(oscar, office))
    log = logs()[0]
    assert log.preconditions[1]["held"] is None
    assert "could not be judged: needs an LLM judge" in log.why
    assert LLMCall.objects.get().cost_usd == 0


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("last", "fires"),
    [
        ("Like I said, the receipts.", True),
        ("Like I said, the receipts. But what if we scan them?", False),
        ("The receipts are blue.", False),
    ],
)
def test_offline_stagnation_is_found_by_its_cues(oscar: Agent, office: Channel, last: str, fires: bool) -> None:
    configure(oscar, variety_intervention_enabled=True)
    say(office, "Visitor", "Like I said, what if we had a new idea?")  # another's words are no cue
    for number in range(6):
        say(office, oscar, f"Item {number}.")
    say(office, oscar, last)

    assert bool(guidance(prepared(oscar, office))) is fires


@pytest.mark.usefixtures("offline")
def test_offline_the_seeded_conversations_set_off_no_false_alarm() -> None:
    call_command("seed", verbosity=0)
    agents = list(Agent.objects.all())
    for agent in agents:
        configure(agent, anti_convergence_enabled=True)

    for channel in Channel.objects.exclude(kind="dm"):
        for agent in agents:
            prepared(agent, channel)

    assert len(logs()) > 50
    assert not [log for log in logs() if log.fired]


# -- the demonstration of S-7.1
def actor(nudged: str, plain: str) -> Any:
    """A model that follows the guidance it finds in its prompt, as one hopes; the judge finds agreement."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        if not body.get("tools"):
            return answers(lambda text: True)(body)
        if any(part["type"] == "tool_result" for message in body["messages"] for part in message["content"]):
            return {"tool_calls": [("do_nothing", {"reason": "said it"})]}
        text = nudged if "### Conversation Guidance" in prompt_of_turn(body) else plain
        return {"tool_calls": [("send_message", {"channel": "office", "text": text})]}

    return respond


def prompt_of_turn(body: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in body["system"])


def turn_of(agent: Agent, channel: Channel) -> Run:
    return run_turn(start_turn(agent=agent, channel=channel), owner=owner_name())


def test_demo_four_agents_agree_the_next_one_is_nudged_and_says_something_else(
    llm_server: LLMServer, settings: Settings, oscar: Agent, office: Channel
) -> None:
    """S-7.1, demo 1 to 5: agreement, the claim holds, the nudge of the character in the prompt, a more diverse answer."""
    settings.TURN_PIPELINE = ["correction.stages.RepetitionSuppression", "correction.stages.Interventions"]
    echo, other = "I agree, the picnic on Friday is a great idea.", "Strictly speaking, nobody has counted the chairs."
    llm_server.respond = actor(nudged=other, plain=echo)
    chatter(office)
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


def test_demo_variety_fires_after_seven_messages(
    llm_server: LLMServer, settings: Settings, oscar: Agent, office: Channel
) -> None:
    """S-7.1, demo 6: seven turns of the agent, then the nudge."""
    settings.TURN_PIPELINE = ["correction.stages.Interventions"]
    llm_server.respond = actor(nudged="What about a raft?", plain="Let me repeat the ledger.")
    configure(oscar, variety_intervention_enabled=True)

    for _ in range(8):
        turn_of(oscar, office)

    texts = list(Message.objects.filter(channel=office).order_by("position").values_list("text", flat=True))
    assert texts == ["Let me repeat the ledger."] * 7 + ["What about a raft?"]
    assert [log.fired for log in logs()] == [False] * 7 + [True]


@pytest.mark.usefixtures("offline")
def test_demo_offline_with_the_shipped_characters(office: Channel) -> None:
    """The same without any model: four agents agree, the built-in cues tell, Stanley is nudged in his own manner."""
    call_command("seed", verbosity=0)
    stanley = Agent.objects.get(slug="stanley")
    configure(stanley, anti_convergence_enabled=True)
    for slug, text in zip(("michael", "pam", "kevin", "andy"), ECHOES, strict=True):
        say(office, Agent.objects.get(slug=slug), text)

    turn = prepared(stanley, office)

    assert guidance(turn)[0].body in load_nudges()["stanley"].values()
    assert entry_of(turn).counters["fired"] == 1

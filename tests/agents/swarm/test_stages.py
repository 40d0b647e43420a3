"""A turn of an agent with a swarm, through the real SDK: calibration, answer, polish, and what is kept of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agents.kit.llm.endpoints import forget
from agents.kit.models import LLMCall, owner_name
from agents.models import Agent, Channel, Message, Run
from agents.swarm.models import DialogState, Swarm, SwarmTurn
from agents.swarm.phases import ensure_default_swarm
from agents.swarm.state import entries
from agents.turn.orchestrator import run_turn, start_turn
from agents.turn.pipeline import Turn
from agents.turn.prompt import preview_prompt
from agents.turn.send_message import send_message
from tests.agents.swarm.speaking import (
    ANSWER,
    Mind,
    asks,
    counters,
    milliseconds,
    noted,
    prompt_of,
    system_of,
    with_swarm,
)
from tests.agents.turn.playing import join, take_turn
from tests.agents.turn.stages import heard
from tests.declaring import declare
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
STAGES = ["agents.swarm.stages.Calibration", "agents.swarm.stages.Polish"]


@pytest.fixture(autouse=True)
def _swarm_alone(settings: Settings) -> None:
    settings.TURN_PIPELINE = STAGES
    heard.clear()


# -- one turn
def test_a_turn_is_calibrated_answered_and_polished(llm_server: LLMServer) -> None:
    mind = Mind(llm_server)
    mind.polishes = lambda draft: {"json": {"text": draft.replace("I would take it.", "I'd take it.")}}

    run, said = asks(with_swarm(), "Which of the two lamps should I buy?")

    assert mind.calls == ["pre", "turn", "post", "turn"]
    assert [message.text for message in said] == ["The blue one costs 40 euros and lasts two years. I'd take it."]
    row = noted(run)
    assert (row.swarm.name, row.intent, row.message) == ("personality", "general", said[0])  # type: ignore[union-attr]
    assert (row.draft, row.polished, row.rejected) == (ANSWER, said[0].text, [])
    assert row.calibration["reading"]["tone"] == "direct"
    assert set(row.milliseconds) == {"pre", "post"}
    assert not row.heuristic
    assert counters(run, "polish")["polished"] == 1
    assert counters(run, "calibration")["pre"] == 3
    purposes = LLMCall.objects.filter(run=run).order_by("pk").values_list("purpose", "mechanism")
    assert list(purposes) == [("swarm", "pre"), ("turn", "turn"), ("swarm", "post"), ("turn", "turn")]


def test_temperatures_are_those_of_the_phases_and_shown_as_applied(llm_server: LLMServer, settings: Settings) -> None:
    settings.ACTOR_MODEL = "llama3.2"
    mind = Mind(llm_server)

    run, _ = asks(with_swarm(), "Which of the two lamps should I buy?")

    sent = {kind: {body.get("temperature") for body in bodies} for kind, bodies in mind.bodies.items()}
    assert sent == {"pre": {0.55}, "turn": {0.55}, "post": {0.4}}
    assert set(LLMCall.objects.filter(run=run).values_list("temperature_applied", flat=True)) == {True}


def test_the_log_says_which_way_a_message_went(llm_server: LLMServer, caplog: pytest.LogCaptureFixture) -> None:
    Mind(llm_server)

    with caplog.at_level("INFO", logger="agents.swarm"):
        asks(with_swarm(), "Which of the two lamps should I buy?")

    assert [record.getMessage() for record in caplog.records] == [
        "[handleUserMessage] Intent: general",
        "[swarm-loader] ✓ Loaded swarm: personality",
        "[modelRouter] Selected: anthropic:test-model (temp=0.55)",
        "[buildSwarmPrompt] pre=3 main=1",
        f"[personality-post] mode=combined, length={len(ANSWER)}",
    ]


def test_a_preview_shows_the_guidance_asks_no_model_and_writes_nothing(llm_server: LLMServer) -> None:
    ada = with_swarm()
    message = say(Channel.objects.get(slug="dm"), "Zed", "Which of the two lamps should I buy?")

    prompt = preview_prompt(agent=ada, channel=message.channel, trigger=message)

    assert "How to answer" in [section.heading for section in prompt.sections]
    assert llm_server.bodies == []
    assert not SwarmTurn.objects.exists()
    assert not DialogState.objects.exists()


# -- criterion 1: paragraphs first
def test_a_polish_that_makes_a_wall_of_bullets_is_refused(llm_server: LLMServer) -> None:
    points = ["Take the lamp", "pay by card", "keep the box", "check the bulb", "note the date", "ask for help"]
    mind = Mind(llm_server, says=[", ".join(points) + "."])
    mind.polishes = lambda draft: {"json": {"text": "\n".join(f"- {point}" for point in points)}}

    run, said = asks(with_swarm(), "What should I do?")

    assert said[0].text == ", ".join(points) + "."
    assert "6 bullet points; allowed: 5" in noted(run).rejected[0]["why"]
    assert counters(run, "polish")["refused"] == 1


def test_offline_long_lists_become_a_paragraph_unless_asked_for(settings: Settings) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"
    wall = "You need:\n- a lamp\n- a bulb\n- a box\n- a card\n- a cable\n- a fuse"
    ada = with_swarm(sample_lines=[wall])

    run, said = asks(ada, "Which 6 things do I need for my desk by the window in Berlin?")
    _, listed = asks(ada, "Give me a list of the 6 things that I need for my desk by the window in Berlin.")

    assert said[0].text == "You need:\na lamp; a bulb; a box; a card; a cable; a fuse."
    assert listed[0].text == wall
    assert noted(run).heuristic


# -- criterion 3: numbers are echoed once, only if they are uncertain
@pytest.mark.parametrize(
    ("uncertainty", "polished", "sent"),
    [
        (0.15, "It costs 40 euros and lasts 2 years. That is 40 euros.", False),
        (0.16, "It costs 40 euros and lasts 2 years. That is 40 euros.", True),
        (0.9, "It costs 40 euros and lasts 2 years. That is 40 euros. So: 40 euros.", False),
        (0.9, "It costs 40 euros and lasts 2 years: 40 euros, 2 years.", True),
        (0.0, "It costs 40 euros and lasts 2 years.", True),
    ],
)
def test_numbers_are_repeated_once_each_and_only_where_they_are_uncertain(
    llm_server: LLMServer, uncertainty: float, polished: str, sent: bool
) -> None:
    draft = "Well, it costs 40 euros and lasts 2 years."
    mind = Mind(llm_server, says=[draft])
    mind.reading = {"uncertainty": uncertainty}
    mind.polishes = lambda _: {"json": {"text": polished}}

    run, said = asks(with_swarm(), "What does the blue lamp cost?")

    assert said[0].text == (polished if sent else draft)
    assert len(noted(run).rejected) == (0 if sent else 1)
    asked = prompt_of(mind.bodies["post"][0])
    assert ("Its numbers are uncertain" in asked) is (uncertainty > 0.15)


# -- preferences
def test_one_person_is_not_answered_as_another_of_the_conversation_likes_it(llm_server: LLMServer) -> None:
    mind, ada = Mind(llm_server, says=[ANSWER] * 4), with_swarm()
    wish = "From now on keep it short and use metric units."
    brief = {"name": "length", "value": "brief", "position": 1, "quote": wish}
    mind.reading = {"length": None, "preferences": [brief]}
    first, _ = asks(ada, wish, by="Zed")
    mind.reading = {"length": None}

    alone, _ = asks(ada, "Which lamp is better?", by="Zed")
    other, _ = asks(ada, "And which is cheaper?", by="Yan")

    preferences = [noted(run).calibration["preferences"] for run in (first, alone, other)]
    assert preferences == [{"length": "brief"}, {"length": "brief"}, {}]
    systems = [system_of(body) for body in mind.bodies["turn"] if len(body["messages"]) == 1]
    assert ["Be brief." in system for system in systems] == [True, True, False]


def test_a_question_to_one_person_does_not_wait_for_the_answer_of_another(settings: Settings) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"
    ada = with_swarm(sample_lines=["I am only a script."])
    asks(ada, "How much ibuprofen may I take?", by="Zed")

    run, said = asks(ada, "Lunch is at noon.", by="Yan")

    assert [message.text for message in said] == ["I am only a script."]
    assert noted(run).calibration["decision"]["kind"] == "nothing"
    assert entries(DialogState.objects.get(), "facts") == []


# -- the clarifier is a draft of its own
def test_a_question_takes_the_place_of_an_answer_once(llm_server: LLMServer) -> None:
    mind = Mind(llm_server, says=[ANSWER])
    mind.reading = {"risk": 0.8, "question": "Do you mean the desk lamp or the floor lamp?"}
    ada = with_swarm()

    first, asked = asks(ada, "Is it any good?")
    mind.reading = {"risk": 0.8, "question": "Do you mean the desk lamp or the floor lamp?"}
    second, answered = asks(ada, "The floor lamp.")

    assert [message.text for message in (*asked, *answered)] == ["Do you mean the desk lamp or the floor lamp?", ANSWER]
    assert mind.calls == ["pre", "pre", "turn", "post", "turn"], "a question is neither written nor polished by a model"
    assert (counters(first, "calibration").get("clarified"), counters(second, "calibration").get("clarified")) == (
        1,
        None,
    )
    assert DialogState.objects.get().pending == {}


def test_a_question_passes_the_gate(llm_server: LLMServer, settings: Settings) -> None:
    settings.TURN_PIPELINE = [*STAGES, "tests.agents.turn.stages.Strict"]
    mind = Mind(llm_server)
    mind.reading = {"risk": 0.8, "question": "Which bad lamp do you mean?"}

    _, said = asks(with_swarm(), "Is it any good?")

    assert [one for one in heard if one[0] == "review"] == [("review", "|Which bad lamp do you mean?")]
    assert [message.text for message in said] == ["Which bad lamp do you mean?"], "the gate commits its best attempt"


def test_the_actor_reads_the_assumption_or_what_cannot_be_answered(llm_server: LLMServer) -> None:
    mind = Mind(llm_server, says=[ANSWER, ANSWER])
    mind.reading = {"assumption": "You mean the desk lamp"}
    ada = with_swarm()
    asks(ada, "Is the lamp any good?")
    mind.reading = {"missing": ["body weight"], "question": "What do you weigh?", "cannot": "Not without your weight."}

    asks(ada, "How much of it may I take?")
    asks(ada, "No idea.")

    systems = [system_of(body) for body in mind.bodies["turn"]]
    assert "You mean the desk lamp" in systems[0]
    assert "Not without your weight." in systems[-1]
    assert "Not without your weight." not in systems[0]


# -- a turn that is taken again
def test_a_turn_killed_after_calibration_asks_the_calibrators_nothing_twice(
    llm_server: LLMServer, settings: Settings
) -> None:
    mind = Mind(llm_server)
    mind.reading = {"risk": 0.8, "question": "Do you mean the desk lamp?"}
    ada, channel = with_swarm(), Channel.objects.get(slug="dm")
    message = say(channel, "Zed", "Is it any good?")
    run = start_turn(agent=ada, channel=channel, trigger=message)
    settings.TURN_PIPELINE = [STAGES[0], f"{__name__}.Interrupting", STAGES[1]]
    mind.reading |= {"risk": 0.1, "question": ""}
    with pytest.raises(KeyboardInterrupt):
        run_turn(run, owner=owner_name())
    before = DialogState.objects.values().get()
    settings.TURN_PIPELINE = STAGES

    run = run_turn(Run.objects.get(pk=run.pk), owner=owner_name())

    assert run.status == "completed"
    assert mind.calls == ["pre", "turn", "post", "turn"]
    assert DialogState.objects.values().get() == before
    assert noted(run).polished == ""


class Interrupting:
    """Ctrl-C while the prompt is prepared."""

    name = "interrupting"

    def prepare(self, turn: Turn) -> None:
        raise KeyboardInterrupt


# -- polishing
def test_a_draft_that_was_sent_back_is_polished_again(llm_server: LLMServer, settings: Settings) -> None:
    settings.TURN_PIPELINE = [*STAGES, "tests.agents.turn.stages.Strict"]
    mind = Mind(llm_server, says=["It is a bad lamp.", "It is a good lamp."])
    mind.polishes = lambda draft: {"json": {"text": draft.replace("It is", "It's")}}

    run, said = asks(with_swarm(), "Is the blue lamp any good?")

    assert [message.text for message in said] == ["It's a good lamp."]
    assert mind.calls.count("post") == 2
    assert next(text for kind, text in heard if kind == "review") == "|It's a bad lamp."
    assert noted(run).polished == "It's a good lamp."


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("To summarize the report takes an hour.", "To summarize the report takes an hour."),
        ("In conclusion, the report is long.", "The report is long."),
    ],
)
def test_offline_an_empty_opening_goes_and_no_word_that_its_sentence_needs(
    line: str, sent: str, settings: Settings
) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"

    _, said = asks(with_swarm(sample_lines=[line]), "How long does the report take to write?")

    assert said[0].text == sent


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"json": {"text": ""}}, "empty"),
        ({"json": {"text": ANSWER + " It ships tomorrow from Berlin."}}, "adds"),
    ],
)
def test_for_a_refused_polish_the_draft_is_sent(llm_server: LLMServer, answer: dict[str, Any], why: str) -> None:
    mind = Mind(llm_server)
    mind.polishes = lambda _: answer

    run, said = asks(with_swarm(), "Which of the two lamps should I buy?")

    assert said[0].text == ANSWER
    assert why.lower() in noted(run).rejected[0]["why"].lower()
    assert noted(run).rejected[0]["phase"] == "post"


def test_safety_replaces_a_draft_with_a_reason(llm_server: LLMServer) -> None:
    mind = Mind(llm_server)
    text = "I cannot help with that. I can help you to choose a safe lamp."
    mind.polishes = lambda _: {
        "json": {"text": text, "replaced_by": "safety-and-refusal", "reason": "It would hurt someone."}
    }

    run, said = asks(with_swarm(), "How do I make the lamp give people a shock?")

    assert said[0].text == text
    assert noted(run).replaced == "safety-and-refusal: It would hurt someone."
    assert (noted(run).draft, counters(run, "polish")["replaced"]) == (ANSWER, 1)


@pytest.mark.parametrize(
    ("by", "reason", "text", "why"),
    [
        ("safety-and-refusal", " ", "I cannot help with that.", "without a reason"),
        ("structure-and-brevity", "Shorter.", "Take it.", "may not replace"),
        ("error-recovery", "The tool failed.", "That did not work.", "no tool failed"),
        ("safety-and-refusal", "Unsafe.", "Read https://example.org/buy instead.", "adds"),
    ],
)
def test_a_replacement_needs_right_reason_and_no_new_facts(
    llm_server: LLMServer, by: str, reason: str, text: str, why: str
) -> None:
    mind = Mind(llm_server)
    mind.polishes = lambda _: {"json": {"text": text, "replaced_by": by, "reason": reason}}

    run, said = asks(with_swarm(), "Which of the two lamps should I buy?")

    assert said[0].text == ANSWER
    assert why in noted(run).rejected[0]["why"]


def test_error_recovery_replaces_a_draft_that_hides_a_failed_tool(
    llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, "turn_tools", {"weigh": "tests.agents.turn.test_further_tools.Weigh"})
    ada = with_swarm()
    Swarm.objects.update(tools=["weigh", "gone"])
    mind = Mind(llm_server, says=[("weigh", {"thing": "nothing"}), "I have weighed it."])
    mind.polishes = lambda _: {
        "json": {"text": "I could not weigh it.", "replaced_by": "error-recovery", "reason": "Weighing failed."}
    }

    _, said = asks(ada, "Weigh the parcel, please.")

    assert [message.text for message in said] == ["I could not weigh it."]
    shown = prompt_of(mind.bodies["post"][0])
    assert "ERRORS" in shown
    assert "weigh: The field thing is 'nothing'" in shown
    assert "send_message" not in shown
    assert "weigh" in [tool["name"] for tool in mind.bodies["turn"][0]["tools"]]


@pytest.mark.parametrize(
    ("executor", "switch", "calls"),
    [("combined", "", 1), ("sequential", "", 6), ("off", "", 0), ("combined", "off", 0), ("off", "combined", 1)],
)
def test_the_executor_says_how_many_polishers_are_asked(
    llm_server: LLMServer, settings: Settings, executor: str, switch: str, calls: int
) -> None:
    settings.TURN_SWARM_POST = switch
    mind = Mind(llm_server)
    ada = with_swarm()
    Swarm.objects.update(post_executor=executor)

    run, said = asks(ada, "Which of the two lamps should I buy?")

    assert said[0].text == ANSWER
    assert mind.calls.count("post") == calls
    assert len(noted(run).milliseconds) == 1 + calls


def test_in_sequence_each_polisher_is_held_to_the_first_draft(
    llm_server: LLMServer,
) -> None:
    mind, answers = Mind(llm_server), iter(["I'd take it.", "I'd take it for 45 euros.", "I'd take it."])
    mind.polishes = lambda draft: {"json": {"text": draft.replace("I would take it.", next(answers, "I'd take it."))}}
    ada = with_swarm()
    Swarm.objects.update(post_executor="sequential")

    _, said = asks(ada, "Which of the two lamps should I buy?")

    drafts = [prompt_of(body).count("I'd take it.") for body in mind.bodies["post"]]
    assert drafts == [0, 1, 1, 1, 1, 1]
    assert said[0].text == ANSWER.replace("I would", "I'd")


def test_a_typed_payload_passes_untouched(llm_server: LLMServer) -> None:
    mind = Mind(llm_server)
    ada, channel = with_swarm(), Channel.objects.get(slug="dm")
    trigger = say(channel, "Zed", "Which one?")

    sent = send_message(agent=ada, channel=channel, text=ANSWER, payload={"choice": "blue"}, trigger=trigger)

    assert (sent.text, mind.calls) == (ANSWER, [])
    assert sent.message is not None
    assert sent.message.payload == {"choice": "blue"}


def test_a_draft_from_another_program_is_polished_where_it_answers_a_person(llm_server: LLMServer) -> None:
    mind = Mind(llm_server)
    mind.polishes = lambda draft: {"json": {"text": draft.replace("I would", "I'd")}}
    ada, channel = with_swarm(), Channel.objects.get(slug="dm")
    trigger = say(channel, "Zed", "Which one?")

    alone = send_message(agent=ada, channel=channel, text=ANSWER)
    answered = send_message(agent=ada, channel=channel, text=ANSWER, trigger=trigger)

    assert (alone.text, answered.text) == (ANSWER, ANSWER.replace("I would", "I'd"))
    assert SwarmTurn.objects.get().message == answered.message


def no_exclamation(agent: Agent) -> list[Callable[[str], bool]]:
    return [lambda text: "!" not in text]


def test_a_polish_may_not_break_a_rule_of_the_agent(llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, "swarm_guards", [f"{__name__}.no_exclamation"])
    mind = Mind(llm_server)
    mind.polishes = lambda draft: {"json": {"text": draft[:-1] + "!"}}

    run, said = asks(with_swarm(), "Which of the two lamps should I buy?")

    assert said[0].text == ANSWER
    assert "rule" in noted(run).rejected[0]["why"]


# -- without a swarm
def bare(body: dict[str, Any]) -> str:
    """A request without the random text in its fences."""
    return re.sub(r"(<<<(?:END )?[A-Z ]+ )[0-9a-f]{12}>>>", r"\1>>>", json.dumps(body))


def test_without_a_swarm_prompt_and_statements_are_the_same(llm_server: LLMServer, settings: Settings) -> None:
    prompts, statements, requests = [], [], []
    # The first turn warms caches up; the last two: swarms switched off, and a swarm that belongs to another agent.
    for stages, enabled in (([], True), ([], True), (STAGES, False), (STAGES, True)):
        Message.objects.all().delete()
        Agent.objects.all().delete()
        Channel.objects.all().delete()
        ada, channel = make_agent("ada"), make_channel("dm", kind="dm")
        join(channel, ada)
        ensure_default_swarm().agents.add(make_agent("bob"))
        message = say(channel, "Zed", "Which of the two lamps should I buy?")
        settings.TURN_PIPELINE, settings.TURN_SWARM_ENABLED = stages, enabled
        mind = Mind(llm_server)
        run = start_turn(agent=ada, channel=channel, trigger=message)
        with CaptureQueriesContext(connection) as captured:
            run_turn(run, owner=owner_name())
        prompts.append(bare(mind.bodies["turn"][0]))
        statements.append(len(captured))
        requests.append(mind.calls)

    assert prompts[1] == prompts[2] == prompts[3]
    assert requests == [["turn", "turn"]] * 4
    assert [n - statements[1] for n in statements[1:]] == [0, 0, 0]
    assert not SwarmTurn.objects.exists()


def test_what_no_person_said_is_answered_without_the_swarm(llm_server: LLMServer) -> None:
    mind = Mind(llm_server)
    ada, channel = with_swarm(), Channel.objects.get(slug="dm")
    bob = make_agent("bob")
    join(channel, bob)
    message = say(channel, bob, "Which of the two lamps should I buy?")

    runs = [take_turn(ada, channel, trigger=message), take_turn(ada, channel)]

    assert set(mind.calls) == {"turn"}
    skipped = {entry["why"] for run in runs for entry in run.trace if entry["status"] == "skipped"}
    assert skipped == {"no person's message is answered"}


# -- what goes wrong holds nothing up
DEADLINE = 0.3


@pytest.mark.parametrize(
    "fault",
    [
        {"hang": True},
        {"text": "No.", "stop_reason": "refusal"},
        {"json": {"answer": 42}},
        {"status": 400},
    ],
)
def test_a_call_that_goes_wrong_ends_at_its_deadline(
    llm_server: LLMServer, settings: Settings, fault: dict[str, Any]
) -> None:
    settings.TURN_SWARM_PRE_DEADLINE = settings.TURN_SWARM_POST_DEADLINE = DEADLINE
    forget()
    mind, ada = Mind(llm_server), with_swarm()
    mind.fails_reading, mind.polishes = fault, lambda _: fault

    run, said = asks(ada, "Is the lamp any good?")

    assert [message.text for message in said] == [ANSWER]
    assert run.status == "completed"
    assert [counters(run, stage)["failed"] for stage in ("calibration", "polish")] == [1, 1]
    assert "clarified" not in counters(run, "calibration"), "a failed call is no reason to ask back"
    calls = LLMCall.objects.filter(run=run, purpose="swarm")
    assert calls.count() == 2
    if "hang" in fault:
        assert {call.status for call in calls} == {"timeout"}
        assert max(milliseconds(run).values()) < 4_000, "by default the deadlines are 8 and 12 s"


def test_all_polishers_in_a_row_share_one_deadline(llm_server: LLMServer, settings: Settings) -> None:
    settings.TURN_SWARM_POST_DEADLINE = DEADLINE
    mind, ada = Mind(llm_server), with_swarm()
    Swarm.objects.update(post_executor="sequential")
    mind.polishes = lambda draft: {"json": {"text": draft}, "latency": 0.2}

    run, said = asks(ada, "Is the lamp any good?")

    assert [message.text for message in said] == [ANSWER]
    assert 1 <= mind.calls.count("post") <= 2, "of six, each 0.2 s"
    assert counters(run, "polish")["failed"] >= 1


def test_all_drafts_of_a_message_share_the_deadline_of_the_polishers(llm_server: LLMServer, settings: Settings) -> None:
    settings.TURN_PIPELINE = [*STAGES, "tests.agents.turn.stages.Strict"]
    settings.TURN_SWARM_POST_DEADLINE = DEADLINE
    mind = Mind(llm_server, says=["It is a bad lamp.", "It is a good lamp."])
    mind.polishes = lambda draft: {"hang": True}

    run, said = asks(with_swarm(), "Is the blue lamp any good?")

    assert [message.text for message in said] == ["It is a good lamp."]
    assert mind.calls.count("post") == 1
    assert counters(run, "polish")["failed"] == 2

"""The scenes of specification 000, offline and through the real SDK on loopback; what `manage.py demo` shows."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings

from agents.debates.models import Debate
from agents.kit.models import LLMCall
from agents.models import Agent, Message
from agents.personas.persona import upsert_agent
from agents.seed.loader import personas
from agents.swarm.models import SwarmTurn
from agents.turn.pipeline import SendResult
from correction.demo import demonstration as scenes
from correction.demo.demonstration import show_correction, show_debate, show_swarm
from correction.gate.statistics import get_gate_statistics
from correction.gate.thresholds import replay
from correction.interventions.models import InterventionLog
from correction.models import AgentEvaluationConfig, CorrectionLog, Outcome
from evaluation.models import EvaluationRun
from evaluation.scorers.selection import messages_of_agent
from evaluation.windows import parse_window
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def cast() -> None:
    """The example agents that play in the scenes."""
    for persona in personas():
        if persona.slug in {*scenes.MEMBERS, *scenes.DEBATE_LINES, scenes.SWARM_AGENT}:
            upsert_agent(values=persona, note="test", source="seed")


@pytest.fixture
def stage(cast: None) -> scenes.Stage:
    return scenes.Stage.set_up()


def outcomes(results: list[SendResult]) -> list[str]:
    return [result.outcome for result in results]


ANSWER = {"evidence": "present", "reasoning": "as planted", "justification": "j", "confidence": 0.9}


def judging(body: dict[str, Any]) -> dict[str, Any]:
    """A judge that finds the drafts of the scenes as a reader would: by the words that are out of character."""
    prompt = json.dumps(body["messages"])
    draft = prompt.rpartition("<<<MESSAGE")[2].partition("<<<END MESSAGE")[0]
    words = ("please be advised", "please note", "as per", "no action needed", "no further action")
    got = sum(word in draft.lower() for word in words)
    value = {0: 8, 1: 3}.get(got, 1) + (1 if got and "best party" in draft else 0)
    return {"json": {**ANSWER, "value": value}}


def play(stage: scenes.Stage) -> None:
    stage.add_messages(stage.channel, [("michael", scenes.UNCHECKED_MESSAGE)])
    on = scenes.gate_settings()
    assert outcomes(stage.send_drafts("michael", [scenes.MESSAGE_IN_VOICE], on)) == ["passed"]
    corrected = stage.send_drafts("michael", [scenes.DRAFT_OUT_OF_CHARACTER, scenes.SECOND_DRAFT], on)
    assert outcomes(corrected) == ["corrected", "passed_after_retry"]
    assert corrected[0].reports["gate"]["dimensions"]["adherence"]["passed"] is False
    assert "Persona adherence" in corrected[0].feedback
    forced = stage.send_drafts("michael", scenes.DRAFTS_THAT_FAIL, on)
    assert outcomes(forced) == ["corrected", "corrected", "forced_through"]
    assert forced[-1].text == scenes.DRAFTS_THAT_FAIL[1]  # the best, not the last


def test_the_scenes_at_the_gate_come_out_as_told_offline(stage: scenes.Stage) -> None:
    play(stage)


def test_the_scenes_at_the_gate_come_out_as_told_with_a_judge(stage: scenes.Stage, llm_server: LLMServer) -> None:
    llm_server.respond = judging
    play(stage)
    assert llm_server.calls == 3 * (1 + 2 + 3)  # three dimensions, each attempt, nothing asked twice


def test_agreement_of_four_nudges_the_fifth_in_this_turn_only(
    stage: scenes.Stage, llm_server: LLMServer, settings: Settings
) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"
    llm_server.always(json={**ANSWER, "value": 7})
    stage.add_messages(stage.picnic, scenes.AGREEING_MESSAGES)
    run = stage.take_turn(stage.picnic, "dwight", {**scenes.EVERYTHING_OFF, "anti_convergence_enabled": True})

    log = InterventionLog.objects.get(run=run)
    assert log.fired
    system = run.run_messages.get(role="system").content
    assert "### Conversation Guidance" in json.dumps(system)
    assert log.nudge not in "".join(stage.agents["dwight"].memory_blocks.values_list("value", flat=True))


def test_what_the_demonstration_says_enters_no_measurement_and_changes_no_configuration(cast: None) -> None:
    michael = Agent.objects.get(slug="michael")
    before = messages_of_agent(agent=michael, window=parse_window("all")).count()
    show_correction(shown := io.StringIO())

    assert Outcome.FORCED_THROUGH.label in shown.getvalue()
    assert Outcome.FORCED_THROUGH not in shown.getvalue()
    assert Message.objects.filter(agent=michael, synthetic=True).exists()
    assert messages_of_agent(agent=michael, window=parse_window("all")).count() == before
    assert get_gate_statistics(michael).total_actions == 0
    assert get_gate_statistics(michael, synthetic=True).total_actions == 3
    assert not replay(agent=michael, heuristic=True).dimensions
    assert not AgentEvaluationConfig.objects.exclude(gate_mode=None).exclude(gate_mode="off").exists()
    drafts = CorrectionLog.objects.count()
    show_correction(again := io.StringIO())
    assert again.getvalue().startswith(f"Shown before: {drafts} checked drafts")
    assert CorrectionLog.objects.count() == drafts


def test_four_agents_debate_offline_to_groupthink_and_an_exit(cast: None) -> None:
    out = io.StringIO()
    show_debate(out)
    shown, debate = out.getvalue(), Debate.objects.get()

    assert (debate.mode, debate.status, debate.exit_reason) == ("devils-advocate", "completed", "consensus")
    assert "heuristic" in debate.exit_details  # no model said how far they agree
    assert list(debate.rounds.values_list("number", "groupthink__detected")) == [(0, False), (1, False), (2, True)]
    assert list(debate.turns.exclude(violation="").values_list("round", "seat__agent__slug")) == [(2, "dwight")]
    assert {call.provider for call in LLMCall.objects.all()} == {"offline"}
    assert not Message.objects.filter(synthetic=False).exists()
    for text in ("Talking did not change the vote", "Warning: groupthink", "Ended by"):
        assert text in shown
    said = Message.objects.count()
    show_debate(again := io.StringIO())
    assert f"Shown before: debate {debate.pk}" in again.getvalue()
    assert Message.objects.count() == said


def test_the_swarm_asks_back_logs_a_meal_and_refuses_a_polish(cast: None) -> None:
    out, again = io.StringIO(), io.StringIO()

    show_swarm(out)
    show_swarm(again)

    shown = out.getvalue()
    assert "clarifier: clarify: How much does the person who takes it weigh?" in shown
    assert "tool log: Logged: 2 egg" in shown
    assert "clarifier: cannot" not in shown  # a meal is no answer to the question before it
    [refused] = SwarmTurn.objects.exclude(rejected=[])
    assert refused.message is not None
    assert refused.message.text == refused.draft, "the draft was sent"
    assert "polish refused (post)" in shown
    assert not Agent.objects.filter(swarms__isnull=False).exists()
    assert again.getvalue().startswith("Shown before")
    assert not Message.objects.filter(synthetic=False).exists()


def test_a_scene_makes_what_it_needs_on_an_empty_database_and_measures_nothing() -> None:
    call_command("demo", "--scene", "swarm", stdout=io.StringIO())

    assert Agent.objects.filter(origin=Agent.Origin.SEED).count() == 16
    assert SwarmTurn.objects.exists()
    assert not EvaluationRun.objects.exists()

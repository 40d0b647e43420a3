"""Fading within a conversation: what a run says by turn, and how it is shown."""

from __future__ import annotations

import io
import json
import re

import pytest
from pytest_django import Settings

from agents.models import Agent, Message
from evaluation.change.position import PositionProfile, parse_bins, position_json, position_profile
from evaluation.change.tables import position_table
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.planning import RunSpec, prepare_run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drift.talking import BINS, chat
from tests.evaluation.judging import answers, tail_of
from tests.evaluation.measuring import measured
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

LINE = re.compile(r"line (\d+)")


# -- what a run says
def by_turn(agent: Agent, *, samples: int = 40, **fields: object) -> PositionProfile:
    return position_profile(measured(agent, samples=samples, position_bins=BINS, **fields).summary.run)


def fading(body: dict[str, object]) -> dict[str, object]:
    """A judge whose scores fall with the turn that a message names: 8 at first, 3 in the end."""
    said = LINE.search(tail_of(body).split("Ada acts: ")[1])
    assert said is not None
    turn = int(said[1])
    return answers(lambda claim: 8 - (turn % 2) if turn <= 15 else 5 if turn <= 30 else 3 - (turn % 2))(body)


def test_a_conversation_that_fades_is_seen_to_fade(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    ada = make_agent("ada")
    chat(ada, "long", 50)
    llm_server.respond = fading

    profile = by_turn(ada)

    (found,) = profile.dimensions
    means = [row.score.value for row in found.bins]
    assert means == [pytest.approx(mean, abs=0.3) for mean in (7.5, 7.5, 5, 2.5)]
    assert [row.messages for row in found.bins] == [5, 10, 13, 12]
    assert [row.scored for row in found.bins] == [10, 20, 26, 24]
    assert found.within.delta.value == pytest.approx(-5, abs=0.7)
    assert found.within.delta.interval is not None
    assert found.within.delta.interval.high < -4
    assert found.within.decision.verdict == "drifted"
    assert (found.within.first, found.within.last, found.within.conversations) == ("1-5", "31+", 1)
    assert found.within.resampled == "messages"
    assert found.trend.value is not None
    assert found.trend.value < -0.7


def test_a_conversation_that_holds_is_steady(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent("ada")
    chat(ada, "long", 60)
    llm_server.respond = answers(lambda claim: 7)

    (found,) = by_turn(ada).dimensions

    assert found.within.decision.verdict == "steady"
    assert found.within.delta.value == pytest.approx(0)


def test_cues_find_fading_offline(settings: Settings, propositions: PropositionFolder) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.write(
        "adherence/_default.yaml",
        """
        dimension: adherence
        propositions:
          - id: assistant
            claim: "{{agent_name}} sounds like an assistant"
            inverted: true
            cues: {supports: ["happy to help"], contradicts: ["my drawer"]}
        """,
    )
    ada, channel = make_agent("ada"), make_channel()
    talk(ada, ["No. Not my drawer." if n < 20 else "Happy to help with that!" for n in range(40)], channel=channel)

    profile = by_turn(ada)

    (found,) = profile.dimensions
    assert (profile.judge, found.within.decision.verdict) == ("offline:lexical-1", "drifted")
    assert found.within.delta.value == pytest.approx(-7)


def test_long_conversations_that_were_worse_from_the_start_are_no_fading(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    """The confound: later turns come from long conversations only."""
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent("ada")
    for n in range(7):
        talk(ada, [f"weary {turn}" for turn in range(35)], channel=make_channel(f"long-{n}"))
    for n in range(9):
        talk(ada, [f"fresh {turn}" for turn in range(5)], channel=make_channel(f"short-{n}"))
    said = {"weary": 3, "fresh": 8}
    llm_server.respond = lambda body: answers(lambda claim: said[tail_of(body).split("Ada acts: ")[1].split()[0]])(body)

    (found,) = by_turn(ada, samples=240).dimensions

    assert found.overall.delta.value is not None
    assert found.overall.delta.value < -2
    assert (found.overall.decision.verdict, found.within.decision.verdict) == ("drifted", "steady")
    assert (found.within.conversations, found.within.resampled) == (7, "conversations")
    assert found.bins[0].same.value == 3


def test_a_channel_with_one_message_says_that_nothing_can_be_compared(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent("ada")
    chat(ada, "short", 1)
    llm_server.respond = answers(lambda claim: 7)

    (found,) = by_turn(ada).dimensions

    assert [(row.messages, row.score.value) for row in found.bins] == [(1, 7), (0, None), (0, None), (0, None)]
    assert found.within.delta.reason == "fewer than two stretches have scores"
    assert found.within.decision.verdict == "cannot tell yet"


def test_stretches_that_no_conversation_joins_are_not_compared_within(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent("ada")
    chat(ada, "short", 3)
    old = chat(ada, "old", 12)
    old.messages.update(tags={"when": "before"})
    Message.objects.filter(channel=old, agent=ada, text__in=["line 11", "line 12"]).update(tags={"when": "now"})
    Message.objects.filter(channel__slug="short").update(tags={"when": "now"})
    llm_server.respond = answers(lambda claim: 7)

    (found,) = by_turn(ada, where={"when": "now"}).dimensions

    assert [row.messages for row in found.bins] == [3, 2, 0, 0]
    assert found.within.delta.reason == "no conversation has scores in both stretches"
    assert found.overall.delta.value == 0


def test_an_agent_that_said_nothing_has_an_empty_profile(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent("ada")

    profile = by_turn(ada)

    assert [row.messages for row in profile.dimensions[0].bins] == [0, 0, 0, 0]
    assert llm_server.calls == 0


def test_judgements_that_could_not_be_made_are_counted_not_guessed(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent("ada")
    chat(ada, "long", 8)
    run = measured(ada, position_bins=BINS).summary.run
    EvaluationScore.objects.filter(evaluation_run=run).update(status="unscored", score=None)

    (found,) = position_profile(run).dimensions

    assert [(row.scored, row.unscored, row.score.value) for row in found.bins[:2]] == [(0, 5, None), (0, 3, None)]


def test_deleted_messages_and_turns_outside_are_said(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    ada = make_agent("ada")
    channel = chat(ada, "long", 9)
    run = measured(ada, position_bins=((1, 3), (6, None))).summary.run
    channel.messages.filter(text="line 9").delete()

    profile = position_profile(run, parse_bins("1-2,6+"))

    assert profile.left_out == 2
    assert [row.messages for row in profile.dimensions[0].bins] == [2, 3]


def test_a_run_that_was_not_sampled_by_turn_asks_for_bins(llm_server: LLMServer, ada: Agent) -> None:
    run = measured(ada).summary.run

    with pytest.raises(ValueError, match="was not sampled by turn; name the bins"):
        position_profile(run)
    assert [row.messages for row in position_profile(run, parse_bins("1,2+")).dimensions[0].bins] == [1, 2]


def test_runs_by_turn_are_runs_of_their_own(ada: Agent, llm_server: LLMServer) -> None:
    plain, _ = prepare_run(RunSpec(agent=ada, dimensions=("adherence",)))
    by, _ = prepare_run(RunSpec(agent=ada, dimensions=("adherence",), position_bins=BINS))
    again, resumed = prepare_run(RunSpec(agent=ada, dimensions=("adherence",), position_bins=BINS))

    assert plain.pk != by.pk
    assert (again.pk, resumed) == (by.pk, True)
    assert EvaluationRun.objects.get(pk=by.pk).position_bins == [[1, 5], [6, 15], [16, 30], [31, None]]


# -- how it is shown
@pytest.fixture
def shown(llm_server: LLMServer, propositions: PropositionFolder) -> PositionProfile:
    propositions.claims("adherence/_default.yaml", "voice")
    propositions.claims("fluency/_default.yaml", "varied")
    ada = make_agent("ada")
    chat(ada, "long", 50)
    llm_server.respond = lambda body: fading(body) if "Ada acts: " in tail_of(body) else None
    return by_turn(ada, dimensions=("adherence", "fluency"))


def test_the_table_fits_eighty_columns_and_names_judge_and_verdict(shown: PositionProfile) -> None:
    out = io.StringIO()

    position_table(shown, out)

    table = out.getvalue()
    assert "Adherence of ada by turn, by test-model" in table
    assert "turns 31+ against 1-5: −5" in table
    assert "drifted" in table
    assert "Not by turn, because judged as a whole: fluency." in table
    assert max(len(line) for line in table.splitlines() if "conversation" not in line) <= 80


def test_the_json_object_has_what_the_table_has(shown: PositionProfile) -> None:
    document = json.loads(json.dumps(position_json(shown)))

    found = document["dimensions"]["adherence"]
    assert [row["turns"] for row in found["bins"]] == ["1-5", "6-15", "16-30", "31+"]
    assert found["bins"][0].keys() >= {"score", "interval", "messages", "scored", "unscored", "same_conversations"}
    assert found["within"]["verdict"] == "drifted"
    assert found["within"]["delta"] == pytest.approx(-5, abs=0.7)
    assert (document["judge"], document["not_by_position"]) == ("test-model", ["fluency"])

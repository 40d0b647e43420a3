"""Ideas quantity (S-6.6, AC-6.6.6): distinct ideas are listed part by part and collapsed; a count, never a score."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from typing import Any

import pytest
from pytest_django import Settings

from evaluation.models import EvaluationRun, EvaluationScore, Idea, IdeaPart
from evaluation.runs.execute import run_json
from evaluation.runs.ideas import distinct_ideas
from evaluation.scorers import ideas_quantity
from evaluation.scorers.subjects import ChannelSubject
from evaluation.windows import MessageWindow
from tests.evaluation.brainstorming import BRAINSTORM, KINDS, brainstorm, lister
from tests.evaluation.conversing import converse, ideas
from tests.evaluation.judging import entry, prompt_of
from tests.evaluation.measuring import evaluate_channel
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def judge(llm_server: LLMServer) -> LLMServer:
    llm_server.respond = lister
    return llm_server


def test_the_result_is_a_count_and_a_list_ac_6_6_3(judge: LLMServer) -> None:
    found = ideas(brainstorm())

    dimension = found.dimensions["ideas_quantity"]
    assert (dimension.count, dimension.score, found.overall_score) == (4, None, None)
    row = EvaluationScore.objects.get()
    assert (row.status, row.count, row.score, row.judge) == ("scored", 4, None, "test-model")
    assert re.findall(r"\d+", row.reasoning) == ["8", "4"]
    listed = run_json(found)["dimensions"]["ideas_quantity"]["ideas"]
    assert listed[0] == {
        "idea": "A vending machine for pencils.",
        "description": "as it was said",
        "same": ("Or pencils from a machine in the hall, a vending machine.", "A pencil vending machine, but green."),
        "positions": (1, 3, 10),
        "by": ("Ada", "Cyd"),
    }
    assert [idea["by"] for idea in listed] == [("Ada", "Cyd"), ("Bea",), ("Lou", "Cyd"), ("Ada",)]


def test_an_idea_at_the_end_of_a_long_message_counts_ac_6_6_2(llm_server: LLMServer) -> None:
    llm_server.respond = lambda body: {
        "json": {"ideas": [{"idea": "A roof garden."}] if "A roof garden." in prompt_of(body) else []}
    }
    said = [("ada", "Well, let me think. " * 500 + "A roof garden."), ("bea", "Hm.")]

    assert ideas(converse(make_channel("long"), said)).dimensions["ideas_quantity"].count == 1


def test_ideas_of_the_whole_conversation_are_listed_and_collapsed_ac_6_6_1_ac_6_6_2_ac_6_6_4(judge: LLMServer) -> None:
    found = ideas(brainstorm())

    listing, collapse = map(prompt_of, judge.bodies)
    assert all(text in listing for _, text in BRAINSTORM)
    assert "4. --> everybody: Lou says: A quiet room, with a door." in listing
    assert "product idea, service idea, proposal or suggestion made by any participant" in listing
    assert "minor variations of one concept are one item" in listing
    assert "7. A newsletter.: as it was said" in collapse
    assert "What time is it?" not in collapse
    assert "Minor variations, other words, more or less detail do not make a new idea" in collapse
    kept = [(idea.idea, len(idea.same)) for idea in distinct_ideas(found.run)]
    assert kept == [
        ("A vending machine for pencils.", 2),
        ("A roof garden!", 1),
        ("A quiet room, with a door.", 1),
        ("A newsletter.", 0),
    ]


def test_personas_are_not_sent_ac_6_6_5(judge: LLMServer) -> None:
    make_agent("ada", system_prompt="You are Ada, keeper of the stamp drawer.")

    ideas(brainstorm())

    assert "stamp drawer" not in json.dumps(judge.bodies)


# -- long conversations
@pytest.mark.parametrize("characters", [1, 100])
def test_the_count_does_not_depend_on_where_the_conversation_is_cut(
    judge: LLMServer, settings: Settings, characters: int
) -> None:
    settings.IDEAS_PART_CHARACTERS = characters

    found = ideas(brainstorm())

    assert found.dimensions["ideas_quantity"].count == 4
    assert [idea.positions for idea in distinct_ideas(found.run)] == [(1, 3, 10), (2, 6), (4, 7), (8,)]
    assert characters > 1 or IdeaPart.objects.count() == 10


def test_many_ideas_are_collapsed_in_batches(judge: LLMServer, settings: Settings) -> None:
    settings.IDEAS_PART_CHARACTERS = 2_000
    rng = random.Random(3)
    words = [*KINDS]
    lines = [("ada", f"Number {n}: {rng.choice(words)}") for n in range(130)]

    found = ideas(converse(make_channel(), lines))

    assert found.dimensions["ideas_quantity"].count == 4
    assert Idea.objects.count() == 130
    collapses = [body for body in judge.bodies if "<<<IDEAS" in prompt_of(body)]
    assert len(collapses) == 3, "sixty at a time"
    assert "Look at entries 5 to 64" in prompt_of(collapses[1])


def test_parts_hold_every_message_once(settings: Settings) -> None:
    settings.IDEAS_PART_CHARACTERS = 70
    channel = brainstorm()

    found = list(ideas_quantity.stretches(ChannelSubject(channel, MessageWindow(), {}, 0)))

    covered = [position for first, last in found for position in range(first, last + 1)]
    assert covered == list(range(1, 11))
    assert len(found) > 3


def test_literal_repetitions_need_no_judge(llm_server: LLMServer) -> None:
    listed: list[dict[str, Any]] = [
        {"idea": text, "description": "", "entries": []} for text in ("A pond.", "a pond", "A pond!")
    ]
    llm_server.always(json={"ideas": listed})

    found = ideas(brainstorm())

    assert (found.dimensions["ideas_quantity"].count, llm_server.calls) == (1, 1)


def test_no_idea_is_a_count_of_zero(llm_server: LLMServer) -> None:
    llm_server.always(json={"ideas": []})

    found = ideas(brainstorm())

    assert (found.dimensions["ideas_quantity"].count, found.run.status, found.run.error) == (0, "completed", "")


# -- never averaged
def test_a_count_is_in_no_mean_ac_6_6_3(judge: LLMServer) -> None:
    judge.respond = lambda body: (
        lister(body)
        if "list what was proposed" in prompt_of(body) or "<<<IDEAS" in prompt_of(body)
        else {"json": {f"p{n}": entry(5) for n in range(1, 6)}}
    )

    found = evaluate_channel(channel=brainstorm())

    assert found.overall_score == pytest.approx((5 * 4 + 4) / 5)
    assert found.dimensions["ideas_quantity"].count == 4
    assert EvaluationRun.objects.get().overall_score == found.overall_score


def test_repeated_counts_give_the_median(llm_server: LLMServer) -> None:
    counts = iter([2, 9, 3])

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        if "<<<IDEAS" in prompt_of(body):
            return {"json": {"same": []}}
        return {
            "json": {"ideas": [{"idea": f"idea {n}", "description": "", "entries": []} for n in range(next(counts))]}
        }

    llm_server.respond = respond

    found = ideas(brainstorm(), repeats=3)

    assert found.dimensions["ideas_quantity"].count == 3
    assert Counter(EvaluationScore.objects.values_list("count", flat=True)) == Counter([2, 3, 9])


# -- offline: only what is marked as an idea
MARKED = [
    ("ada", "Idea: a vending machine for pencils."),
    ("bea", "Some thoughts:\n- a roof garden\n- quiet rooms on every floor"),
    ("cyd", "My idea: pencils from a vending machine. Proposal: newsletters!"),
    ("ada", "1. A roof garden with bees\n2) lunch"),
]


def test_offline_marked_ideas_are_counted_and_repetitions_collapsed(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"

    found = ideas(converse(make_channel(), MARKED))

    assert [(i.idea, len(i.same)) for i in distinct_ideas(found.run)] == [
        ("a vending machine for pencils", 1),
        ("a roof garden", 1),
        ("quiet rooms on every floor", 0),
        ("newsletters", 0),
        ("lunch", 0),
    ]
    assert found.run.is_heuristic


def test_offline_ideas_among_many_line_breaks_are_found_in_time_proportional_to_them(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    line_breaks = "\n" * 20_000
    channel = converse(make_channel(), [("ada", f"Idea: a roof garden.{line_breaks}That is all."), ("bea", "Hm.")])
    started = time.process_time()
    found = ideas(channel)

    assert [idea.idea for idea in distinct_ideas(found.run)] == ["a roof garden"]
    assert time.process_time() - started < 10  # a twentieth of it; in quadratic time most of a minute


def test_offline_conversation_without_marked_ideas_needs_a_judge(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"

    found = ideas(brainstorm())

    row = EvaluationScore.objects.get()
    assert (row.status, row.count) == ("unscored", None)
    assert "needs an LLM judge" in row.reason
    assert found.overall_score is None

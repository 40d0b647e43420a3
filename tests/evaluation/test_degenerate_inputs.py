"""Too little, nothing, nobody, other scripts: each dimension has a defined result, as docs/explanation/scores.md lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents.models import Agent, Channel, Run, RunMessage
from evaluation.change.models import Baseline
from evaluation.models import EvaluationScore
from evaluation.runs.numbers import RunSummary
from tests.correction.judged_drafts import add_attempt
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.conversing import DRY, converse
from tests.evaluation.judging import answers, prompt_of
from tests.evaluation.measuring import evaluate_agent, evaluate_channel
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

OF_AGENTS = ("adherence", "consistency", "fluency")
OF_CHANNELS = ("convergence", "ideas_quantity")
SCORED, COUNTED = "scored", "counted"
ARABIC = {
    "ada": ["عددتها. ناقصة.", "ضعها في الملف.", "لم يخبرني أحد.", "سجلت ذلك.", "لا يتحرك أحد."],
    "bea": [
        "يا سلام! هذا رائع جداً!",
        "هيا بنا نحتفل الآن!",
        "أحبكم كلكم كثيراً!",
        "مرحى! لنذهب بسرعة!",
        "يا إلهي، كم هذا جميل!",
    ],
}


def judge(body: dict[str, Any]) -> dict[str, Any]:
    """Every claim scores 7; every conversation holds one idea."""
    prompt = prompt_of(body)
    if "<<<IDEAS" in prompt:
        return {"json": {"same": []}}
    if "What to list" in prompt:
        return {"json": {"ideas": [{"idea": "a pond", "description": "", "entries": [1]}]}}
    return answers(lambda claim: 7)(body)


@pytest.fixture(autouse=True)
def _judged(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    llm_server.respond = judge
    for dimension in OF_AGENTS:
        propositions.claims(f"{dimension}/_default.yaml", "voice", extra="include_personas: false")
    for dimension in OF_CHANNELS:
        text = f"dimension: {dimension}\ntarget_type: environment\ninclude_personas: false\npropositions:\n"
        propositions.write(f"{dimension}/_default.yaml", text + "  - {id: all, claim: 'of {{channel_name}}'}\n")


# -- what there is to measure: always Ada in #room
def nothing(room: Channel) -> None:
    """Nobody said anything."""


def rejected_drafts(room: Channel) -> None:
    """Somebody asked her; what she wanted to answer was never sent."""
    converse(room, [("Eve", "Well, Ada?"), ("Eve", "Say something.")])
    ada = Agent.objects.get(slug="ada")
    run = Run.objects.create(agent=ada, channel=room)
    for number in range(1, 4):
        draft = f"A draft that was turned down, number {number}."
        use = [{"type": "tool_use", "id": f"t{number}", "name": "send_message", "input": {"text": draft}}]
        RunMessage.objects.create(run=run, number=number, role="assistant", content={"blocks": use})
        add_attempt(
            agent=ada, channel=room, attempt=number, outcome="corrected", judge="m",
            original_text=draft, judged_text=draft, score_sum=1,
        )  # fmt: skip


def one_message(room: Channel) -> None:
    converse(room, [("Eve", "Well, Ada?"), ("ada", DRY[0])])


def one_speaker(room: Channel) -> None:
    converse(room, [("ada", text) for text in DRY * 2])


def outsiders_only(room: Channel) -> None:
    converse(room, [(name, f"{text} Indeed.") for text in DRY for name in ("Eve", "Mallory")])


def in_arabic(room: Channel) -> None:
    converse(
        room,
        [(slug, text) for _ in range(2) for n in range(5) for slug, texts in ARABIC.items() for text in [texts[n]]],
    )


Situation = Callable[[Channel], None]
NO_MESSAGE = "no message of the agent in the window"
NO_CHANNEL = "no channel in which the agent spoke"
NOBODY = "no message of the channel in the window"
PEOPLE = "no agent speaks in the window, only people"
# What a run of Ada says of: adherence, consistency, fluency, convergence, ideas. What the channel's says of its two.
EXPECTED: dict[Situation, tuple[tuple[str, ...], tuple[str, ...]]] = {
    nothing: ((*[NO_MESSAGE] * 3, NO_CHANNEL, NO_CHANNEL), (NOBODY, NOBODY)),
    rejected_drafts: ((*[NO_MESSAGE] * 3, NO_CHANNEL, NO_CHANNEL), (PEOPLE, PEOPLE)),
    outsiders_only: ((*[NO_MESSAGE] * 3, NO_CHANNEL, NO_CHANNEL), (PEOPLE, PEOPLE)),
    one_message: (
        (SCORED, "the agent said nothing before this window", "one message only", "one agent alone", COUNTED),
        ("one agent alone", COUNTED),
    ),
    one_speaker: (
        (SCORED, SCORED, SCORED, "one agent alone", COUNTED),
        ("one agent alone", COUNTED),
    ),
    in_arabic: ((SCORED, SCORED, SCORED, SCORED, COUNTED), (SCORED, COUNTED)),
}


def outcome(found: RunSummary, dimension: str) -> str:
    """``scored``, ``counted``, or why there is no number."""
    numbers = found.dimensions.get(dimension)
    if numbers is not None and numbers.count is not None:
        return COUNTED
    if numbers is not None and numbers.score is not None:
        return SCORED
    runs = [found.run.pk, *found.run.channel_runs.values_list("pk", flat=True)]
    reasons = EvaluationScore.objects.filter(evaluation_run__in=runs, dimension=dimension, status="unscored")
    return reasons.values_list("reason", flat=True).first() or found.run.error


SITUATIONS = pytest.mark.parametrize("situation", EXPECTED, ids=lambda situation: situation.__name__)


@SITUATIONS
def test_each_dimension_of_an_agent_has_a_number_or_says_why_not(llm_server: LLMServer, situation: Situation) -> None:
    ada, room = make_agent("ada"), make_channel("room")
    situation(room)
    for dimension, expected in zip((*OF_AGENTS, *OF_CHANNELS), EXPECTED[situation][0], strict=True):
        calls = llm_server.calls

        found = evaluate_agent(agent=ada, dimensions=(dimension,), is_baseline=True)

        assert found.run.status == "completed"
        assert expected in outcome(found, dimension)
        measured = expected in (SCORED, COUNTED)
        assert found.measured is measured
        assert Baseline.objects.filter(dimension=dimension).exists() is measured
        assert (found.overall_score is not None) is (expected == SCORED), "a count is in no mean, and nothing is no 9"
        assert (llm_server.calls > calls) is measured, "nothing is asked about nothing"


@SITUATIONS
def test_each_dimension_of_a_channel_has_a_number_or_says_why_not(situation: Situation) -> None:
    make_agent("ada")
    room = make_channel("room")
    situation(room)
    room.refresh_from_db()
    for dimension, expected in zip(OF_CHANNELS, EXPECTED[situation][1], strict=True):
        found = evaluate_channel(channel=room, dimensions=(dimension,))

        assert found.run.status == "completed"
        assert expected in outcome(found, dimension)


def test_a_tag_that_no_message_has_measures_nothing(llm_server: LLMServer) -> None:
    make_agent("ada")
    in_arabic(make_channel("room"))
    for dimension in (*OF_AGENTS, *OF_CHANNELS):
        found = evaluate_agent(agent=Agent.objects.get(slug="ada"), dimensions=(dimension,), where={"bild": "41"})

        assert (found.run.status, found.overall_score, found.measured) == ("completed", None, False)
        assert outcome(found, dimension).removeprefix("nothing scored: ") in (NO_MESSAGE, NO_CHANNEL)
    assert llm_server.calls == 0

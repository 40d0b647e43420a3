"""Convergence (S-6.4): a whole conversation, personas withheld, vocabulary figures as evidence; the score is voice divergence."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.text.wording import number
from agents.models import Agent, Channel
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.shares import with_share
from evaluation.windows import parse_window
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.conversing import DRY, LEARNED, LOUD, converged, convergence, converse, diverse, in_turn
from tests.evaluation.judging import claims_of, entry, prompt_of
from tests.factories import make_agent, make_channel, say, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def one_claim(propositions: PropositionFolder) -> PropositionFolder:
    propositions.claims("convergence/_default.yaml", "apart")
    path = propositions.path / "convergence" / "_default.yaml"
    path.write_text("target_type: environment\ninclude_personas: false\n" + path.read_text())
    return propositions


def statistics_of(body: dict[str, Any]) -> dict[str, Any]:
    """The statistics a prompt shows."""
    found = re.search(r"<<<STATISTICS \w+>>>\n(.*?)\n<<<END STATISTICS", prompt_of(body), re.DOTALL)
    assert found is not None
    shown: dict[str, Any] = json.loads(found[1])
    return shown


def test_a_conversation_is_shown_with_its_figures_ac_6_4_1_ac_6_4_2_ac_6_4_3_ac_6_4_4_ac_6_4_5_ac_6_4_7(
    llm_server: LLMServer,
) -> None:
    channel = diverse()
    talk(Agent.objects.get(slug="ada"), ["Elsewhere."], channel=make_channel("elsewhere"))

    run = convergence(channel).run

    assert (run.channel, run.agent, run.dimensions, run.status) == (channel, None, ["convergence"], "completed")
    figures = run.figures["convergence"]["agents"]
    assert {name: shown["messages"] for name, shown in figures.items()} == {"ada": 5, "bea": 5, "cyd": 5}
    (body,) = llm_server.bodies
    prompt = prompt_of(body)
    assert "Elsewhere" not in prompt
    lines = [f"{n}. {name.capitalize()} acts: {text}" for n, (name, text) in enumerate(in_turn(DRY, LOUD, LEARNED), 1)]
    assert [prompt.count(line) for line in lines] == [1] * 15
    places = [prompt.index(line) for line in lines]
    assert places == sorted(places)
    assert len(claims_of(body)) == 5
    assert all("#diverse" in claim for claim in claims_of(body).values())
    vocabulary = statistics_of(body)["vocabulary_by_agent"]
    assert list(vocabulary) == ["Ada", "Bea", "Cyd"]
    assert vocabulary["Cyd"]["average_sentence_length"] > 10 > vocabulary["Ada"]["average_sentence_length"]
    for shown in vocabulary.values():
        assert set(shown) == {
            *("messages", "words", "unique_word_ratio", "average_sentence_length", "punctuation_density"),
        }
    pairs = statistics_of(body)["vocabulary_similarity_of_pairs"]
    assert set(pairs) == {"Ada / Bea", "Ada / Cyd", "Bea / Cyd"}
    assert all(0 <= value <= 1 for value in pairs.values())


def test_personas_are_not_sent_ac_6_4_6(llm_server: LLMServer) -> None:
    make_agent("ada", system_prompt="You are Ada, keeper of the stamp drawer.")

    convergence(diverse())

    assert "stamp drawer" not in json.dumps(llm_server.bodies)
    assert len(llm_server.bodies[0]["system"]) == 1


def test_all_personas_are_sent_where_a_proposition_asks_for_them_ac_6_0_9_ac_6_0_10(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.write(
        "convergence/_default.yaml",
        "target_type: environment\npropositions:\n"
        "  - {id: apart, claim: apart, include_personas: true}\n  - {id: alike, claim: alike}\n",
    )
    for name in ("ada", "bea", "cyd"):
        make_agent(name, system_prompt=f"You are {name}, and nobody else.")

    convergence(diverse())

    asks, does_not = sorted(llm_server.bodies, key=lambda body: claims_of(body)["p1"] != "apart")
    persona = asks["system"][1]["text"]
    assert all(
        f"# {name.capitalize()}\n\nYou are {name}, and nobody else." in persona for name in ("ada", "bea", "cyd")
    )
    assert "and nobody else" not in prompt_of(does_not)


def test_the_score_is_stored_with_reasons_and_each_pair_with_the_run_ac_6_4_8(
    llm_server: LLMServer, one_claim: object
) -> None:
    llm_server.always(json=entry(7, reasoning="three voices"))

    found = convergence(diverse())

    (row,) = EvaluationScore.objects.all()
    assert (found.overall_score, row.score, row.reasoning, row.message) == (7.0, 7, "three voices", None)
    pairs = EvaluationRun.objects.get().figures["convergence"]["pairs"]
    assert [sorted(pair[:2]) for pair in sorted(pairs)] == [["ada", "bea"], ["ada", "cyd"], ["bea", "cyd"]]
    assert [pair[2] for pair in pairs] == sorted((pair[2] for pair in pairs), reverse=True)


def test_more_alike_voices_share_more_words_ac_6_4_9(llm_server: LLMServer) -> None:
    apart, alike = (convergence(c).run.figures["convergence"]["pairs"] for c in (diverse(), converged()))

    assert max(pair[2] for pair in apart) < min(pair[2] for pair in alike)


# -- what is shown of whom
def test_people_are_shown_and_are_in_no_figure(llm_server: LLMServer) -> None:
    converse(channel := make_channel(), [*in_turn(DRY, LOUD, LEARNED), ("Lou", "Mind the wet paint.")])

    found = convergence(channel)

    prompt = prompt_of(llm_server.bodies[0])
    assert "16. --> everybody: Lou says: Mind the wet paint." in prompt
    assert "Lou" not in json.dumps(found.run.figures)


def test_window_and_tags_choose_the_stretch(llm_server: LLMServer, one_claim: object) -> None:
    channel = make_channel()
    converse(channel, in_turn(DRY, LOUD), tags={"build": "40"})
    converse(channel, in_turn(LOUD, LEARNED), tags={"build": "41"})

    convergence(channel, where={"build": "41"})
    convergence(channel, window=parse_window("last:3"))

    tagged, last = map(prompt_of, llm_server.bodies)
    assert DRY[0] not in tagged
    assert LEARNED[0] in tagged
    assert [text in last for text in (LOUD[-1], LEARNED[-1], LEARNED[-2], LOUD[-2])] == [True, True, True, False]


def test_played_speech_is_measured_in_a_played_channel_not_a_real_one(llm_server: LLMServer, one_claim: object) -> None:
    real, simulated = diverse("real"), Channel.objects.create(slug="simulated", name="simulated", synthetic=True)
    say(real, "Lou", "simulated", synthetic=True)
    converse(simulated, in_turn(DRY, LOUD), synthetic=True)

    convergence(real)
    found = convergence(simulated)

    assert "simulated" not in json.dumps(llm_server.bodies[0])
    assert found.dimensions["convergence"].scored == 1


def test_a_channels_own_propositions_join_the_defaults(llm_server: LLMServer, one_claim: PropositionFolder) -> None:
    one_claim.write(
        "convergence/diverse.yaml",
        "target_type: environment\ninclude_personas: false\npropositions: [{id: own, claim: 'one rule for {{channel_name}}'}]\n",
    )

    convergence(diverse())

    assert set(claims_of(llm_server.bodies[0]).values()) == {"claim apart of #diverse", "one rule for #diverse"}


def test_offline_one_claim_of_five_is_shown_as_one_of_five(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"

    summary = convergence(converse(make_channel(), in_turn(DRY, LOUD)))

    found = summary.dimensions["convergence"]
    assert with_share(number(found.score), found.share) == "9.0 · 1 of 5"
    assert summary.overall_score is None

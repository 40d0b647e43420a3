"""Persona adherence (S-6.1): each sampled message against each proposition, the judge seeing the persona."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from agents.personas.persona import TraitValue
from evaluation.models import EvaluationScore
from evaluation.runs.execute import Captured
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, claims_of, entry, tail_of
from tests.evaluation.measuring import measured
from tests.factories import make_agent, speaking, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def test_each_message_is_judged_by_each_proposition_once_ac_6_1_4(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    propositions.claims("adherence/ada.yaml", "terse")
    ada = make_agent("ada")
    said = talk(ada, ["No.", "Never.", "Why?"])

    measured(ada)

    rows = EvaluationScore.objects.values_list("message_id", "proposition_id")
    assert Counter(rows) == Counter((m.pk, name) for m in said for name in ("voice", "mood", "terse"))
    assert [list(claims_of(body).values()) for body in llm_server.bodies] == [
        ["claim voice of Ada", "claim mood of Ada", "claim terse of Ada"]
    ] * 3
    assert sorted(tail_of(body).split("Ada acts: ")[1].split("\n")[0] for body in llm_server.bodies) == [
        *("Never.", "No.", "Why?"),
    ]


def test_the_judge_sees_the_persona_with_its_traits_ac_6_1_3(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    traits = [TraitValue("dry wit", "jokes without smiling", strength=0.9), TraitValue("small talk", strength=0.0)]
    ada = make_agent("ada", system_prompt="You are Ada, keeper of the stamp drawer.", traits=traits)
    talk(ada, ["No."])

    measured(ada)

    persona = llm_server.bodies[0]["system"][1]["text"]
    assert "You are Ada, keeper of the stamp drawer." in persona
    assert "### Always\n- dry wit: jokes without smiling" in persona
    assert "### Never (stop doing this)\n- small talk" in persona


def test_up_to_twenty_messages_are_sampled_ac_6_1_2(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = speaking("ada", map(str, range(31)))

    first, again = measured(ada), measured(ada)
    other = measured(ada, seed=7, samples=5)

    def drawn(found: Captured) -> set[int | None]:
        return set(
            EvaluationScore.objects.filter(evaluation_run=found.summary.run).values_list("message_id", flat=True)
        )

    assert (first.summary.run.sample_size, len(drawn(first))) == (20, 20)
    assert drawn(again) == drawn(first)
    assert (other.summary.run.sample_size, other.summary.run.seed) == (5, 7)
    assert len(llm_server.bodies) == 20 + 20 + 5


# -- the score (AC-6.1.6)
def test_the_score_is_the_weighted_mean_and_each_part_is_stored_ac_6_1_6(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.write(
        "adherence/_default.yaml",
        """
        propositions:
          - {id: heavy, claim: heavy, weight: 3.0, recommendations_for_improvement: "Be heavier."}
          - {id: light, claim: light, weight: 1.0}
          - {id: flipped, claim: flipped, weight: 1.0, inverted: true}
        """,
    )
    llm_server.respond = answers({"heavy": 9, "light": 1, "flipped": 7}.__getitem__)
    ada = speaking("ada", ["No.", "Yes."])

    found = measured(ada).summary

    assert found.dimensions["adherence"].score == pytest.approx((3 * 9 + 1 * 1 + 1 * 2) / 5)
    assert found.overall_score == found.run.overall_score == found.dimensions["adherence"].score
    assert {p.id: p.score for p in found.dimensions["adherence"].propositions} == {"heavy": 9, "light": 1, "flipped": 2}
    row = EvaluationScore.objects.filter(proposition_id="flipped").first()
    assert row is not None
    assert (row.score, row.raw_score, row.inverted, row.status, row.judge) == (2, 7, True, "scored", "test-model")
    assert row.reasoning
    assert row.context_snippet == "No."
    heavy = EvaluationScore.objects.filter(proposition_id="heavy").first()
    assert heavy is not None
    assert heavy.recommendations == "Be heavier."


@pytest.mark.parametrize("hard", [True, False])
def test_the_same_answer_scores_lower_in_hard_mode_than_in_normal_mode_ac_6_1_8(
    llm_server: LLMServer, propositions: PropositionFolder, hard: bool
) -> None:
    propositions.claims("adherence/_default.yaml", "strict", extra=f"hard: {str(hard).lower()}")
    llm_server.always(json=entry(8, flaws=["one"]))
    ada = speaking("ada", ["No."])

    assert measured(ada).summary.overall_score == (6 if hard else 8)


# -- what needs no judge
def test_rules_are_exact_and_ask_nobody(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "brief", extra="rule: {max_words: 2}")
    ada = speaking("ada", ["Two words", "three words here", "one"])

    found = measured(ada).summary

    assert found.dimensions["adherence"].score == pytest.approx((9 + 0 + 9) / 3)
    assert (llm_server.calls, found.calls, found.cost_usd) == (0, 0, Decimal(0))
    broken = EvaluationScore.objects.get(score=0)
    assert (broken.judge, broken.reasoning) == ("rule", "3 words, at most 2 allowed")
    assert broken.context_snippet == "three words here"
    assert broken.call is None


def test_where_a_precondition_does_not_hold_the_claim_is_trivial_ac_6_0_15(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    """Trivial is stored as 9, is not inverted and is in no mean."""
    propositions.claims("adherence/_default.yaml", "asks", extra="precondition: asks_something, inverted: true")
    llm_server.always(json=entry(8))
    ada = speaking("ada", ["Why?", "No."])

    found = measured(ada).summary.dimensions["adherence"]

    assert (found.score, found.scored, found.trivial) == (1, 1, 1)
    trivial = EvaluationScore.objects.get(status="trivial")
    assert (trivial.score, trivial.raw_score) == (9, None)
    assert "asks_something" in trivial.reason
    assert llm_server.calls == 1

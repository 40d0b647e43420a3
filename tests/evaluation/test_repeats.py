"""Judging each item several times: its mean counts once, and the spread tells the judge's noise."""

from __future__ import annotations

import pytest

from agents.models import Agent
from evaluation.models import EvaluationScore
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, claims_of
from tests.evaluation.measuring import evaluate_agent, three_kinds
from tests.factories import speaking
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(propositions: PropositionFolder) -> Agent:
    return three_kinds(propositions)


# -- repeats
def test_each_item_is_judged_k_times_and_its_mean_counts_once(llm_server: LLMServer, ada: Agent) -> None:
    values = {"voice": iter([9, 5, 7]), "flat": iter([1, 1, 1])}
    llm_server.respond = answers(lambda claim: next(values[claim]))

    found = evaluate_agent(agent=ada, dimensions=("adherence",), repeats=3)

    dimension = found.dimensions["adherence"]
    assert {p.id: p.score for p in dimension.propositions} == {"voice": 7.0, "flat": 8.0, "brief": 9.0}
    assert dimension.score == pytest.approx((7 + 8 + 9) / 3), "a rule is judged once and weighs like the others"
    assert dimension.scored == 3 + 3 + 1
    voice = EvaluationScore.objects.filter(proposition_id="voice").values_list("repeat", "score")
    repeats, scores = zip(*voice, strict=True)
    assert (sorted(repeats), sorted(scores)) == ([1, 2, 3], [5, 7, 9]), "calls are in flight together, in any order"
    assert [len(claims_of(body)) for body in llm_server.bodies] == [2, 2, 2], "a claim stands once in a call"


def test_the_noise_is_the_spread_of_repeats_around_their_items_means(llm_server: LLMServer, ada: Agent) -> None:
    values = {"voice": iter([9, 5, 7]), "flat": iter([1, 1, 4])}
    llm_server.respond = answers(lambda claim: next(values[claim]))

    dimension = evaluate_agent(agent=ada, dimensions=("adherence",), repeats=3).dimensions["adherence"]

    assert dimension.noise == pytest.approx(((4 + 4 + 0 + 1 + 1 + 4) / 4) ** 0.5, abs=1e-4)


def test_an_item_with_failed_repeats_has_the_mean_of_the_others(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = speaking("ada", ["No.", "Yes."])
    values = iter([9, 7, "none", 2, 2, 2])
    llm_server.respond = answers(lambda claim: next(values, "none"))

    dimension = evaluate_agent(agent=ada, dimensions=("adherence",), repeats=3).dimensions["adherence"]

    assert (dimension.scored, dimension.unscored) == (5, 1)
    means: dict[int | None, list[int]] = {}
    for row in EvaluationScore.objects.filter(status="scored"):
        means.setdefault(row.message_id, []).append(row.score or 0)
    assert dimension.score == pytest.approx(sum(sum(v) / len(v) for v in means.values()) / 2, abs=1e-4)

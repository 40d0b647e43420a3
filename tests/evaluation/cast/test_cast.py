"""Who stands where in the cast, and which two measurements are compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.models import Agent
from evaluation.change.evidence import judged_ways
from evaluation.change.overview import cast
from evaluation.change.overview_text import sentence_of
from evaluation.models import EvaluationRun
from tests.evaluation.cast.measured import capture, card_of, flattened, measure
from tests.evaluation.judged import LLM, OFFLINE, make_run
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

STEADY = [7, 8, 7, 8, 7, 8, 7, 8]


def test_the_flattest_stand_first_and_those_of_whom_nothing_is_known_last() -> None:
    bob, cleo, ada, dan, eve = map(make_agent, ("bob", "cleo", "ada", "dan", "eve"))
    flattened(ada)
    capture(bob, {"dry": STEADY})
    measure(bob, {"dry": STEADY})
    capture(cleo, {"dry": [9] * 8})
    measure(cleo, {"dry": [1] * 8})
    capture(dan, {"dry": STEADY})
    found = cast([bob, cleo, ada, dan, eve], judged_ways()[0])

    assert [card.agent.slug for card in found.cards] == ["cleo", "ada", "bob", "dan", "eve"]
    assert found.states == {"fell": 2, "held": 1, "not measured since": 1, "never measured": 1}


def test_heuristics_and_models_never_share_a_ranking() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    flattened(ada, judge=OFFLINE)
    flattened(bob)
    by_model, by_heuristic = judged_ways()

    assert (by_model.judge, by_heuristic.judge) == (LLM, OFFLINE)
    assert [card.state for card in cast([ada, bob], by_model).cards] == ["fell", "never measured"]
    assert [card.agent for card in cast([ada, bob], by_heuristic).cards] == [ada, bob]


def test_other_procedures_failed_runs_and_samples_by_turn_are_no_measurement_since() -> None:
    ada = make_agent()
    capture(ada, {"dry": STEADY})
    measure(ada, {"dry": [1] * 8}, hard=True)
    measure(ada, {"dry": [1] * 8}, status="failed", overall_score=None)
    measure(ada, {"dry": [1] * 8}, position_bins=[[1, 5], [6, None]])

    assert card_of(ada).state == "not measured since"


def test_an_evaluation_from_before_the_baseline_is_no_measurement_since() -> None:
    ada = make_agent()
    measure(ada, {"dry": [1] * 8})
    capture(ada, {"dry": STEADY})

    assert card_of(ada).state == "not measured since"


def test_two_builds_are_compared_by_the_evaluations_of_their_messages() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    capture(ada, {"dry": STEADY})
    measure(ada, {"dry": [9, 8, 9, 8, 9, 9]}, build="40", where={"build": "40"})
    measure(ada, {"dry": [2, 3, 2, 3, 2, 2]}, build="41", where={"build": "41"})
    measure(ada, {"dry": STEADY}, build="42")
    both = {"then": ("build", "40"), "now": ("build", "41")}
    found = cast([ada, bob], judged_ways()[0], **both)  # type: ignore[arg-type]

    assert [sentence_of(card) for card in found.cards] == [
        "Stopped “dry”: 8.7 → 2.3 since build 41.",
        "There is no evaluation of build 40 and none of build 41.",
    ]
    assert sentence_of(card_of(ada, now=("build", "43"))).endswith(": there is no evaluation of build 43.")
    assert sentence_of(card_of(ada, then=("build", "7"))).endswith(
        "there is no evaluation of build 7 to compare it with."
    )


def test_chance_is_corrected_for_all_claims_that_are_looked_at() -> None:
    """A difference that would count alone does not among many agents that did not change."""
    ada = make_agent()
    capture(ada, {"dry": [8, 7, 8, 7, 8, 7]})
    measure(ada, {"dry": [7, 6, 7, 7, 6, 7]})
    assert card_of(ada).state == "fell"
    others = [make_agent(f"other-{n}") for n in range(12)]
    for other in others:
        capture(other, {"dry": STEADY[:6]})
        measure(other, {"dry": STEADY[:6]})
    (card,) = (card for card in cast([ada, *others], judged_ways()[0]).cards if card.agent == ada)

    assert card.state == "maybe"


def test_played_speech_is_not_tested_as_if_its_turns_were_independent() -> None:
    ada = make_agent()
    capture(ada, {"dry": [9] * 8}, simulated=True)
    ada.baselines.update(procedure="plumbline+simulated")
    measure(ada, {"dry": [1] * 8}, simulated=True)

    assert card_of(ada).state == "maybe"


def test_the_line_of_scores_is_of_evaluations_of_the_same_dimensions() -> None:
    ada = make_agent()
    flattened(ada)
    make_run(ada, dimensions=["fluency"], overall_score=1.0)
    for score in (4.0, 3.0):
        make_run(ada, overall_score=score)

    assert card_of(ada).course == [5.0, 5.0, 4.0, 3.0]


def test_the_number_of_queries_does_not_grow_with_the_agents() -> None:
    def asked(agents: list[Agent]) -> int:
        with CaptureQueriesContext(connection) as captured:
            found = cast(agents, judged_ways()[0])
        assert len(found.cards) == len(agents)
        return len(captured.captured_queries)

    agents = [make_agent(f"agent-{n}") for n in range(6)]
    grow: Callable[[Agent], EvaluationRun] = flattened
    grow(agents[0])
    few = asked(agents[:1])
    for agent in agents[1:]:
        grow(agent)

    assert asked(agents) == few
    assert few <= 13

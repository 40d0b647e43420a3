"""The drift overview: who drifted, how surely, and what to do next."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents.models import Agent
from evaluation.change.choosing import compare_to_baseline
from evaluation.change.evidence import judged_ways
from evaluation.change.models import Baseline
from evaluation.change.overview import drift_overview
from evaluation.change.sentences import sentence_of, why_drifted
from tests.evaluation.change.measured import capture, drift_of, flattened, measure
from tests.evaluation.judged import LLM, OFFLINE
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

STEADY = [7, 8] * 8


def test_agents_are_ranked_by_what_they_lost() -> None:
    bob, cleo, ada, dan, eve = map(make_agent, ("bob", "cleo", "ada", "dan", "eve"))
    flattened(ada)
    capture(bob, {"dry": STEADY})
    measure(bob, {"dry": STEADY})
    capture(cleo, {"dry": [9] * 8})
    measure(cleo, {"dry": [1] * 8})
    capture(dan, {"dry": STEADY})
    found = drift_overview([bob, cleo, ada, dan, eve], judged_ways()[0])

    assert [drift.agent.slug for drift in found.drifts] == ["cleo", "ada", "bob", "dan", "eve"]
    assert found.states == {"drifted": 2, "steady": 1, "not measured since": 1, "never measured": 1}


def test_heuristics_and_models_never_share_a_ranking() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    flattened(ada, judge=OFFLINE)
    flattened(bob)
    by_model, by_heuristic = judged_ways()

    assert (by_model.judge, by_heuristic.judge) == (LLM, OFFLINE)
    assert [drift.state for drift in drift_overview([ada, bob], by_model).drifts] == ["drifted", "never measured"]
    assert [drift.agent for drift in drift_overview([ada, bob], by_heuristic).drifts] == [ada, bob]


def test_two_builds_are_compared_by_the_evaluations_of_their_messages() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    capture(ada, {"dry": STEADY})
    measure(ada, {"dry": [9, 8, 9, 8, 9, 9]}, build="40", where={"build": "40"})
    measure(ada, {"dry": [2, 3, 2, 3, 2, 2]}, build="41", where={"build": "41"})
    measure(ada, {"dry": STEADY}, build="42")
    both = {"baseline": ("build", "40"), "candidate": ("build", "41")}
    found = drift_overview([ada, bob], judged_ways()[0], **both)  # type: ignore[arg-type]

    assert [sentence_of(drift) for drift in found.drifts] == [
        "No longer “dry”: 8.7 → 2.3 since build 41.",
        "There is no evaluation of build 40 and none of build 41.",
    ]
    measure(ada, {"dry": [9, 8, 9, 8, 9, 9]}, build="41", where={"build": "41"})
    again = drift_overview([ada], judged_ways()[0], **both).drifts[0]  # type: ignore[arg-type]
    assert again.state == "not enough data", "build 41 was measured again"
    assert sentence_of(drift_of(ada, candidate=("build", "43"))).endswith(": there is no evaluation of build 43.")
    assert sentence_of(drift_of(ada, baseline=("build", "7"))).endswith(
        "there is no evaluation of build 7 to compare it with."
    )


def test_chance_is_corrected_for_all_claims_that_are_looked_at() -> None:
    """A difference that would count alone does not among many agents that did not change."""
    ada = make_agent()
    capture(ada, {"dry": [8, 7, 8, 7, 8, 7]})
    measure(ada, {"dry": [7, 6, 7, 7, 6, 7]})
    assert drift_of(ada).state == "drifted"
    others = [make_agent(f"other-{n}") for n in range(12)]
    for other in others:
        capture(other, {"dry": STEADY[:6]})
        measure(other, {"dry": STEADY[:6]})
    (drift,) = (drift for drift in drift_overview([ada, *others], judged_ways()[0]).drifts if drift.agent == ada)

    assert drift.state == "possibly drifted"
    assert drift_of(ada).state == drift.state, "also where a page looks at her alone"
    Agent.objects.exclude(pk=ada.pk).update(is_active=False)
    assert drift_of(ada).state == "drifted", "agents that are switched off are looked at nowhere"


def test_simulated_speech_is_not_tested_as_if_its_turns_were_independent() -> None:
    ada = make_agent()
    capture(ada, {"dry": [9] * 8}, simulated=True)
    ada.baselines.update(procedure="plumbline+simulated")
    measure(ada, {"dry": [1] * 8}, simulated=True)

    assert drift_of(ada).state == "possibly drifted"


@pytest.fixture
def ada() -> Agent:
    return make_agent()


@pytest.mark.parametrize(
    ("before", "now", "state", "sentence"),
    [
        *(
            (
                {name: [was] * 6},
                {name: [score] * 6},
                "drifted" if score < was else "improved",
                f"{words} since build 41.",
            )
            for name, was, score, words in (
                ("default-generic-assistant", 9, 2, "Now matches “generic assistant”: 9.0 → 2.0"),  # inverted
                ("ada-no-slang", 9, 2, "Broke “no slang”: 9.0 → 2.0"),
                ("dry", 9, 2, "No longer “dry”: 9.0 → 2.0"),
                ("dry", 9, 6, "Less “dry”: 9.0 → 6.0"),
                ("dry", 3, 8, "More “dry”: 3.0 → 8.0"),
            )
        ),
        ({"dry": [9, 5, 8]}, {"dry": [8, 4, 6]}, "possibly drifted", "Possibly less “dry”: 7.3 → 6.0 since build 41."),
        (
            {"dry": STEADY, "voice": STEADY},
            {"dry": [*STEADY[:-2], 7, 7], "voice": STEADY},
            *("steady", "Steady: the largest fall is “dry”: 7.5 → 7.4 since the baseline of "),
        ),
        (
            {"dry": STEADY[:6]},
            {"dry": STEADY[:6]},
            *("not enough data", "Not enough data to call it steady: adherence 7.5 → 7.5 (−0.7 to +0.7) since the"),
        ),
        ({"dry": STEADY}, {"witty": STEADY}, "not comparable", "Measured, but nothing was scored both in the baseline"),
    ],
)
def test_a_change_is_called_by_what_it_is(
    ada: Agent, before: dict[str, list[int]], now: dict[str, list[int]], state: str, sentence: str
) -> None:
    inverted = ["default-generic-assistant"]
    capture(ada, before, inverted=inverted)
    measure(ada, now, inverted=inverted)
    drift = drift_of(ada)

    assert drift.state == state
    assert sentence_of(drift).startswith(sentence)
    if state == "possibly drifted":
        assert drift.main is not None
        assert why_drifted(drift) == "3 judgements in the baseline, 3 now; too few to tell from chance"


@pytest.mark.databases_differ
@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"dry": STEADY, "voice": STEADY}, {"dry": [3, 4, 9] * 4, "voice": [2, 9] * 6}),
        ({"dry": [8] * 12, "only-before": [1] * 12}, {"dry": [8] * 12, "only-now": [9] * 12}),
    ],
)
def test_a_dimension_has_the_verdict_that_compare_gives(
    ada: Agent, before: dict[str, list[int]], now: dict[str, list[int]]
) -> None:
    capture(ada, before)
    compared = compare_to_baseline(measure(ada, now))

    assert compared is not None
    drift = drift_of(ada)
    assert list(drift.dimensions) == list(compared.dimensions)
    assert all(change.interval is not None for change in drift.dimensions)
    propositions = {
        change.proposition: change for change in compared.changes_of("adherence") if change.points is not None
    }
    assert {row.proposition: row.result for row in drift.propositions} == propositions


def test_a_fall_that_shows_only_in_the_dimension_is_drift_too(ada: Agent) -> None:
    """Four propositions of three messages each: none decides, all together do."""
    names = [f"p{n}" for n in range(4)]
    capture(ada, {name: [9, 8, 8] for name in names})
    measure(ada, {name: [4, 2, 3] for name in names})
    others = [make_agent(f"other-{n}") for n in range(6)]
    for other in others:
        capture(other, {name: [8, 7, 8] for name in names})
        measure(other, {name: [8, 7, 8] for name in names})
    (drift,) = (drift for drift in drift_overview([ada, *others], judged_ways()[0]).drifts if drift.agent == ada)

    assert not any(row.result.is_sure for row in drift.propositions)
    assert (drift.state, [change.dimension for change in drift.fallen]) == ("drifted", ["adherence"])
    assert "as a whole adherence 8.3 → 3.0" in why_drifted(drift)


def test_its_quotes_are_the_best_message_then_and_the_worst_now(ada: Agent) -> None:
    flattened(ada)
    drift = drift_of(ada)

    assert drift.baseline_quote is not None
    assert drift.candidate_quote is not None
    assert (drift.baseline_quote.score, drift.baseline_quote.message.tags, drift.baseline_quote.message.text) == (
        9,
        {"build": "40"},
        "Noted. 2",
    )
    assert (drift.candidate_quote.score, drift.candidate_quote.message.tags, drift.candidate_quote.message.text) == (
        2,
        {"build": "41"},
        "Noted. 5",
    )


def test_one_judgement_of_a_whole_window_is_never_sure(ada: Agent) -> None:
    for run, score in ((capture(ada, {}), 9), (measure(ada, {}), 0)):
        run.scores.create(dimension="adherence", proposition_id="varied", claim="varied", status="scored", score=score)
    drift = drift_of(ada)

    assert drift.state == "possibly drifted"
    assert sentence_of(drift).startswith("Possibly no longer “varied”: 9.0 → 0.0 since the baseline of")
    assert (drift.baseline_quote, drift.candidate_quote) == (None, None)


def test_nothing_is_said_of_what_was_not_measured(ada: Agent) -> None:
    assert sentence_of(drift_of(ada)) == "Not measured yet: there is no baseline."
    capture(ada, {"dry": STEADY})
    Baseline.objects.update(captured_at=datetime(2026, 11, 3, 12, tzinfo=UTC))

    assert sentence_of(drift_of(ada)).startswith(
        "Not measured since the baseline of 3 Nov 2026: no evaluation scored a"
    )
    assert drift_of(ada).dimensions == []


def test_unscored_and_trivial_judgements_are_in_no_mean(ada: Agent) -> None:
    capture(ada, {"dry": [8] * 4})
    run = measure(ada, {"dry": [8] * 4})
    for status, score in (("unscored", None), ("trivial", 9)):
        for _ in range(5):
            run.scores.create(dimension="adherence", proposition_id="dry", claim="dry", status=status, score=score)
    (row,) = drift_of(ada).propositions

    assert (row.candidate, row.scored, row.unscored) == (8.0, 4, 5)


def test_a_claim_that_was_reworded_is_named_and_not_compared(ada: Agent) -> None:
    capture(ada, {"dry": [9] * 4, "voice": STEADY}, proposition_digests={"adherence": {"dry": "old", "voice": "same"}})
    measure(ada, {"dry": [1] * 4, "voice": STEADY}, proposition_digests={"adherence": {"dry": "new", "voice": "same"}})
    drift = drift_of(ada)

    assert drift.changed == ["adherence/dry"]
    assert [row.proposition for row in drift.propositions] == ["voice"]
    assert drift.state == "steady"

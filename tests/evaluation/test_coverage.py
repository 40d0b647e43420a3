"""How much of what a judge can score it scored: what a score needs, and when too little is no pass."""

from __future__ import annotations

import pytest
from pytest_django import Settings
from scipy.stats import fisher_exact

from evaluation.change.lost import ScoredShare, lost_dimensions, lost_propositions
from evaluation.change.models import Baseline
from evaluation.runs.shares import Share, percent, why_too_little
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.measuring import evaluate_agent
from tests.factories import speaking

pytestmark = pytest.mark.usual_minimum
SILENT = "Nothing in particular."


# -- what a score needs
@pytest.mark.parametrize(
    ("scored", "asked", "enough"),
    [
        (8, 8, True),
        (7, 7, False),
        (8, 53, True),
        (8, 54, False),
        (15, 100, True),
        (14, 100, False),
        (0, 100, False),
    ],
)
def test_a_score_needs_eight_judgements_and_fifteen_percent(scored: int, asked: int, enough: bool) -> None:
    assert bool(why_too_little(Share(scored, asked))) is not enough


def test_both_can_be_set(settings: Settings) -> None:
    settings.SCORE_MIN_JUDGEMENTS, settings.SCORE_MIN_COVERAGE = 20, 0.5

    assert "needs 20" in why_too_little(Share(19, 20))
    assert "needs 50 %" in why_too_little(Share(20, 60))
    assert why_too_little(Share(20, 40)) == ""


@pytest.mark.parametrize(
    ("share", "shown"),
    [(Share(0, 9), "0 %"), (Share(1, 5), "1 of 5"), (Share(1, 900), "1 %"), (Share(899, 900), "99 %"), (Share(), "")],
)
def test_a_percentage_says_neither_nothing_nor_all_where_it_is_not(share: Share, shown: str) -> None:
    assert percent(share) == shown


@pytest.fixture
def offline(settings: Settings, propositions: PropositionFolder) -> PropositionFolder:
    """A rule, a claim with cues, and one that only a model could judge."""
    settings.JUDGE_MODEL, settings.TRAIT_PROPOSITIONS = "offline:lexical-1", False
    propositions.write(
        "adherence/_default.yaml",
        """
        dimension: adherence
        propositions:
          - {id: short, claim: "{{agent_name}} is brief", rule: {max_words: 9}}
          - {id: greets, claim: "{{agent_name}} greets", cues: {supports: ["good morning"], contradicts: ["go away"]}}
          - {id: kind, claim: "{{agent_name}} is kind"}
        """,
    )
    propositions.write(
        "fluency/_default.yaml",
        """
        dimension: fluency
        propositions:
          - {id: varied, claim: "{{agent_name}} varies", measure: repetition}
          - {id: natural, claim: "{{agent_name}} sounds natural"}
        """,
    )
    return propositions


@pytest.mark.django_db
def test_coverage_counts_only_what_this_judge_can_score(offline: PropositionFolder) -> None:
    ada = speaking("ada", ["Good morning, all of you.", *[f"{SILENT} {n}" for n in range(9)]])

    found = evaluate_agent(agent=ada, dimensions=("adherence", "fluency"))

    adherence = found.dimensions["adherence"]
    assert adherence.share == Share(11, 20), "ten times the rule, once the cues; the third claim needs a model"
    assert {p.id: p.share for p in adherence.propositions}["kind"].value is None
    assert adherence.score is not None
    assert found.dimensions["fluency"].share == Share(1, 2), "judged once over the window: one of two claims"
    assert found.dimensions["fluency"].score is not None


@pytest.mark.django_db
def test_too_few_judgements_are_no_score_and_no_baseline_and_say_so(offline: PropositionFolder) -> None:
    ada = speaking("ada", [f"{SILENT} {n}" for n in range(7)])

    found = evaluate_agent(agent=ada, dimensions=("adherence", "fluency"), is_baseline=True)

    assert (found.dimensions["adherence"].score, found.overall_score) == (None, None)
    assert "7 of 14 judgements scored, a score needs 8" in found.dimensions["adherence"].reason
    assert [b.dimension for b in Baseline.objects.all()] == ["fluency"]


# -- what was lost
def test_only_a_share_that_surely_fell_by_half_is_lost() -> None:
    before = {("adherence", "sure"): Share(24, 25), ("adherence", "not"): Share(2, 16)}
    now = {("adherence", "sure"): Share(0, 15), ("adherence", "not"): Share(0, 11)}

    (lost,) = lost_propositions(before, now)

    assert (lost.proposition, lost.before, lost.now) == ("sure", Share(24, 25), Share(0, 15))
    assert lost.p == pytest.approx(2 * fisher_exact([[24, 1], [0, 15]], alternative="greater").pvalue)


def test_among_many_propositions_chance_alone_loses_none() -> None:
    before = {("adherence", f"p{n}"): Share(5, 14) for n in range(20)}
    now = {**before, ("adherence", "p0"): Share(0, 14)}

    assert lost_propositions({("adherence", "p0"): Share(5, 14)}, {("adherence", "p0"): Share(0, 14)})
    assert not lost_propositions(before, now)


def shared(scored: list[int], asked: int = 4) -> ScoredShare:
    """So many of the judgements asked of each message."""
    counts: dict[object, int] = {n: count for n, count in enumerate(scored) if count}
    share = Share(sum(scored), asked * len(scored))
    return ScoredShare(share=share, messages=len(scored), scored=counts)


@pytest.mark.parametrize(
    ("before", "now", "is_lost"),
    [
        ([3, 2, 3, 4] * 5, [1] * 20, True),
        ([3, 2, 3, 4] * 5, [2] * 20, False),  # by less than half
        ([4, 0, 4, 0, 4], [0, 0, 4, 0, 0], False),  # by more than half, but of five messages
        ([1] * 20, [3] * 20, False),
    ],
)
def test_a_dimension_whose_share_surely_fell_by_half_loses_its_score(
    before: list[int], now: list[int], is_lost: bool
) -> None:
    lost = lost_dimensions({"adherence": (shared(before), shared(now))})

    assert [(one.dimension, one.proposition) for one in lost] == ([("adherence", "")] if is_lost else [])


def test_judgements_of_one_message_are_not_counted_as_independent() -> None:
    """Of 14 messages of which four say everything and later one: 4 x as many judgements are no more evidence."""
    before, now = [10] * 4 + [0] * 10, [10] + [0] * 13

    assert fisher_exact([[40, 100], [10, 130]], alternative="greater").pvalue < 0.001
    assert not lost_dimensions({"adherence": (shared(before, 10), shared(now, 10))})

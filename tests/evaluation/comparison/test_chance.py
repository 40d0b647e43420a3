"""Many comparisons at once: tests that agree with scipy, Holm's correction, and how often a steady agent is accused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation.change.choosing import detections
from evaluation.change.comparison import adjusted, compare
from evaluation.change.measurements import Measurement, mean_of
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.difference import difference_p, from_fixed_p, holm, n_to_detect
from tests.evaluation.comparison.sides import adherence, of, only, side

BEFORE, NOW = [8.0, 9, 6, 7, 9, 8, 5, 9, 7, 8], [6.0, 7, 5, 9, 4, 8]
P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


# -- one test
def test_one_score_per_message_gives_welchs_test() -> None:
    expected = stats.ttest_ind(NOW, BEFORE, equal_var=False).pvalue

    assert difference_p(of(BEFORE), of(NOW)) == pytest.approx(expected, rel=1e-9)


def test_pairs_give_students_paired_test() -> None:
    now = [s - d for s, d in zip(BEFORE, [1, 2, 0, 3, 1, 2, 1, 0, 2, 1], strict=True)]

    expected = stats.ttest_rel(now, BEFORE).pvalue
    assert difference_p(of(BEFORE), of(now), paired=True) == pytest.approx(expected, rel=1e-9)


def test_a_fixed_baseline_gives_the_one_sample_test() -> None:
    assert from_fixed_p(8.0, of(NOW)) == pytest.approx(stats.ttest_1samp(NOW, 8.0).pvalue, rel=1e-9)


def test_ten_scores_of_one_message_are_not_ten_messages() -> None:
    ten_times = [Observation(o.value, 1.0, o.cluster) for o in of(NOW) for _ in range(10)]

    assert difference_p(of(BEFORE), ten_times) == pytest.approx(difference_p(of(BEFORE), of(NOW)) or 0, rel=1e-9)


def test_scores_that_are_all_equal_do_not_prove_that_all_are() -> None:
    p = difference_p(of([8, 8]), of([7, 7]))

    assert p is not None
    assert p > 0.01
    assert difference_p(of([8]), of([7, 7])) is None


# -- many
def test_holm_gives_what_r_gives() -> None:
    """p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")"""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(P_VALUES)
def test_holm_only_raises_keeps_the_order_and_is_no_more_than_bonferroni(p_values: list[float]) -> None:
    found = holm(p_values)

    assert all(p <= q <= min(1, len(p_values) * p) + 1e-12 for p, q in zip(p_values, found, strict=True))
    in_order = [q for _, q in sorted(zip(p_values, found, strict=True))]
    assert all(a <= b for a, b in pairwise(in_order))


@given(P_VALUES, P_VALUES)
def test_more_comparisons_never_make_one_surer(some: list[float], others: list[float]) -> None:
    assert all(a <= b + 1e-12 for a, b in zip(holm(some), holm([*some, *others]), strict=False))


def test_a_difference_that_chance_explains_among_many_is_taken_back_and_says_so() -> None:
    alone = compare(adherence(BEFORE), adherence([6, 7, 5, 7, 5, 7, 7, 6], first=1000))
    assert only(alone).verdict == "drifted"
    calm = [
        compare(adherence(BEFORE, target=f"agent-{n}"), adherence(BEFORE, first=1000, target=f"agent-{n}"))
        for n in range(60)
    ]

    found = adjusted([alone, *calm])[0]

    assert (only(found).verdict, only(found).n_more) == ("cannot tell yet", None)
    assert "among 61 dimensions chance gives such a difference" in only(found).reason
    assert only(found).interval == only(alone).interval
    assert adjusted(adjusted([alone, *calm])) == adjusted([alone, *calm])


def test_a_large_drift_is_found_among_many() -> None:
    calm = [
        compare(adherence(BEFORE, target=f"agent-{n}"), adherence(BEFORE, first=1000, target=f"agent-{n}"))
        for n in range(60)
    ]
    drifted = compare(adherence(BEFORE), adherence([2, 1, 3, 2, 1, 2, 2, 1], first=1000))

    assert only(adjusted([*calm, drifted])[-1]).worse


def test_planning_allows_for_everything_that_is_tested_also_where_messages_do_not_help() -> None:
    repeats = {"varied": of([8, 7, 8], unit="repeat")}
    before, now = (
        side({"adherence": {"voice": of(scores, first=first)}, "fluency": repeats})
        for scores, first in ((BEFORE, 1), (NOW, 1000))
    )

    (row,) = detections([compare(before, now)], 1.0)

    assert (row.dimension, row.needed) == ("adherence", n_to_detect(1.0, row.sd, alpha=0.05 / 2))


# -- how often a steady cast is accused
AGENTS, MESSAGES, CASTS = 16, 15, 40
NAMES = [f"p{n}" for n in range(10)]


def steady_side(rng: random.Random, target: str, first: int) -> Measurement:
    """An agent that never changes: messages differ, propositions differ, the judge is noisy; scores are whole and end at 9."""
    rows: dict[str, list[Observation]] = {name: [] for name in NAMES}
    for message in range(first, first + MESSAGES):
        mood = rng.gauss(0, 1)
        for number, name in enumerate(rows):
            value = min(9, max(0, round(7.5 - 0.3 * number + mood + rng.gauss(0, 1.2))))
            rows[name].append(Observation(value, 1.0, f"message:{message}"))
    return side({"adherence": rows}, target=target)


def test_a_steady_cast_of_sixteen_with_ten_propositions_each_is_rarely_accused() -> None:
    """Holm's corrected p alone: the verdict asks for more than that. The figures stand in docs/measuring.md."""
    rng = random.Random(6)
    alone, together, dimensions = 0, 0, 0
    for _ in range(CASTS):
        pairs = [(steady_side(rng, f"a{n}", 0), steady_side(rng, f"a{n}", 1000)) for n in range(AGENTS)]
        by_proposition = [falls(before, now, [name]) for before, now in pairs for name in NAMES]
        alone += any(p <= 0.05 for p, fell in by_proposition if fell)
        together += accused(by_proposition)
        dimensions += accused([falls(before, now, NAMES) for before, now in pairs])

    assert alone / CASTS > 0.9, "uncorrected, nearly every build would be accused of something"
    assert together / CASTS <= 0.05
    assert dimensions / CASTS <= 0.05


def falls(before: Measurement, now: Measurement, names: Sequence[str]) -> tuple[float, bool]:
    """p of the difference in these propositions, and whether it is a fall."""
    rows = [[o for name in names for o in s.observations["adherence"][name]] for s in (before, now)]
    return difference_p(*rows) or 0.0, (mean_of(rows[1]) or 0) < (mean_of(rows[0]) or 0)


def accused(tests: Sequence[tuple[float, bool]]) -> bool:
    return any(p <= 0.05 and fell for p, (_, fell) in zip(holm([p for p, _ in tests]), tests, strict=True))

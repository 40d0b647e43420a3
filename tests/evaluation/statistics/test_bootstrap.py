"""Means and differences: their intervals against scipy and theory, and that scores of one message count as one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics.bootstrap import Estimate, Interval, Observation, bootstrap_difference, bootstrap_mean
from evaluation.statistics.difference import decide, difference_p

OBSERVATIONS = st.lists(
    st.builds(
        Observation,
        value=st.integers(0, 9),
        weight=st.sampled_from([0.5, 1.0, 2.0]),
        cluster=st.one_of(st.none(), st.integers(0, 6)),
        stratum=st.none(),
    ),
    min_size=1,
    max_size=30,
)


def plain(*values: float) -> list[Observation]:
    return [Observation(value) for value in values]


def width(estimate: Estimate) -> float:
    assert estimate.interval is not None
    return estimate.interval.high - estimate.interval.low


def ends(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


# -- one mean
def test_the_mean_is_weighted() -> None:
    estimate = bootstrap_mean([Observation(9, weight=3), Observation(1, weight=1), Observation(0, weight=0)])

    assert estimate.value == pytest.approx(7)
    assert estimate.n == 2


def test_many_messages_have_the_interval_of_scipys_percentile_bootstrap() -> None:
    values = np.random.default_rng(0).gamma(2, 2, 300)

    interval = bootstrap_mean(plain(*values)).interval
    reference = stats.bootstrap((values,), np.mean, method="percentile", rng=0).confidence_interval

    assert ends(interval) == pytest.approx((reference.low, reference.high), abs=0.03)


@pytest.mark.parametrize("messages", [2, 10])
def test_the_interval_of_few_messages_keeps_its_coverage(messages: int) -> None:
    rng = np.random.default_rng(7)
    intervals = [bootstrap_mean(plain(*rng.normal(50, 20, messages)), resamples=400).interval for _ in range(300)]
    covered = sum(i is not None and i.low <= 50 <= i.high for i in intervals)

    assert 0.92 <= covered / 300 <= 0.98  # plain percentiles: 0.90 of ten messages, half of two


def test_scores_of_one_message_count_as_one() -> None:
    values = [2, 9, 5, 7, 4, 8, 6, 3]
    once = bootstrap_mean([Observation(v, cluster=i) for i, v in enumerate(values)])
    four_times = [Observation(v, cluster=i) for i, v in enumerate(values) for _ in range(4)]

    assert bootstrap_mean(four_times) == once
    assert width(bootstrap_mean([o._replace(cluster=None) for o in four_times])) < 0.6 * width(once)


def test_what_lies_between_strata_is_no_uncertainty() -> None:
    rng = np.random.default_rng(1)
    observations = [Observation(s * 4 + int(rng.integers(0, 3)), stratum=s) for s in (0, 1) for _ in range(20)]

    assert width(bootstrap_mean(observations)) < 0.5 * width(
        bootstrap_mean([o._replace(stratum=None) for o in observations])
    )


def test_the_interval_of_small_strata_keeps_its_coverage() -> None:
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(200):
        observations = [Observation(rng.normal(2 * s, 1), stratum=s) for s in range(5) for _ in range(2)]
        low, high = ends(bootstrap_mean(observations, resamples=400).interval)
        covered += low <= 4 <= high

    assert 0.92 <= covered / 200 <= 0.99


def test_strata_of_a_single_message_vary_together() -> None:
    alone = [Observation(value, stratum=value) for value in (1, 4, 9, 6)]

    assert bootstrap_mean(alone) == bootstrap_mean([o._replace(stratum=None) for o in alone])


def test_a_lone_single_message_joins_the_smallest_stratum() -> None:
    strata = [Observation(v, stratum="a") for v in (1, 9)] + [Observation(v, stratum="b") for v in (5, 5, 6)]

    joined = bootstrap_mean([*strata, Observation(3, stratum="c")])

    assert joined == bootstrap_mean([*strata, Observation(3, stratum="a")])


def test_equal_scores_do_not_prove_that_all_are_equal() -> None:
    three, thirty = bootstrap_mean(plain(*[9] * 3)), bootstrap_mean(plain(*[9] * 30))

    expected = float(stats.t.ppf(0.975, 2)) * 9 * math.sqrt(1 / 5 * 4 / 5 / 3)  # one more of each of the two outcomes
    assert ends(three.interval) == pytest.approx((9 - expected, 9 + expected))
    assert width(thirty) < 1.2 < 9 < width(three)


@pytest.mark.parametrize(("n", "share", "paired"), [(4, 0.2, False), (10, 0.1, True), (20, 0.05, False)])
def test_a_rule_that_no_message_broke_yet_may_be_broken_by_others(n: int, share: float, paired: bool) -> None:
    """Before, the interval of 10 with 10 messages held the truth in two of three cases and was called steady in the third."""
    rng, held, steady = np.random.default_rng(n), 0, 0
    for _ in range(100):
        now = [Observation(9.0 * (rng.random() >= share), cluster=i if paired else ("now", i)) for i in range(n)]
        before = [Observation(9.0, cluster=i) for i in range(n)]
        interval = bootstrap_difference(before, now, paired=paired, resamples=300).interval
        low, high = ends(interval)
        held += low <= -9 * share <= high
        steady += low >= -0.5 and high <= 0.5
        assert difference_p(before, now, paired=paired) == pytest.approx(1) or any(o.value == 0 for o in now)

    assert held >= 95
    assert steady == 0


def test_fifty_equal_scores_each_are_steady_and_a_broken_rule_is_seen() -> None:
    same, gone = (bootstrap_difference(plain(*[9] * 50), plain(*[v] * 50)) for v in (9, 0))

    assert decide(same.value, same.interval).verdict == "steady"
    assert decide(gone.value, gone.interval).verdict == "drifted"
    few = bootstrap_difference(plain(*[9] * 5), plain(*[0] * 5))
    assert decide(few.value, few.interval).verdict == "drifted"


def test_an_unseen_score_lies_no_farther_than_what_the_other_sample_shows() -> None:
    judged = bootstrap_difference(plain(*[8] * 12), plain(*[8, 7, 8, 8, 8, 7, 8, 8, 8, 8, 8, 8]))

    assert width(judged) < 1.0


@given(OBSERVATIONS, st.randoms(use_true_random=False))
def test_the_order_of_scores_changes_nothing(observations: list[Observation], random: Any) -> None:
    shuffled = random.sample(observations, len(observations))
    first, second = (bootstrap_mean(o, resamples=100) for o in (observations, shuffled))

    assert first.value == pytest.approx(second.value)
    assert (first.interval is None) == (second.interval is None)
    if first.interval:
        assert ends(first.interval) == pytest.approx(ends(second.interval))


def test_no_scores_and_one_message_are_defined() -> None:
    nothing, one = bootstrap_mean([]), bootstrap_mean([Observation(4, cluster="m"), Observation(6, cluster="m")])

    assert (nothing.value, nothing.interval, nothing.n, nothing.reason) == (None, None, 0, "no scores")
    assert (one.value, one.interval, one.n) == (5, None, 1)
    assert "at least 2" in one.reason


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        ([Observation(math.nan)], "scores: number 1 is nan"),
        ([Observation(1), Observation(1, weight=-1)], r"weight -1.0 of observation 2"),
        (
            [Observation(1, cluster=1, stratum="a"), Observation(1, cluster=1, stratum="b")],
            "cluster 1 lies in two strata",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(observations: list[Observation], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bootstrap_mean(observations)


# -- differences


@pytest.mark.parametrize(("before", "now"), [(12, 12), (8, 60)])
def test_an_unpaired_difference_has_about_the_interval_of_welch(before: int, now: int) -> None:
    rng = np.random.default_rng(before)
    baseline, current = rng.normal(6, 1, before), rng.normal(5, 2, now)

    interval = bootstrap_difference(plain(*baseline), plain(*current)).interval
    welch = stats.ttest_ind(current, baseline, equal_var=False).confidence_interval()

    assert ends(interval) == pytest.approx((welch.low, welch.high), abs=0.15 * (welch.high - welch.low))


def test_paired_differences_do_not_see_how_hard_an_item_is() -> None:
    rng = np.random.default_rng(2)
    hardness = rng.integers(0, 8, 15)
    baseline = [Observation(int(h), cluster=i) for i, h in enumerate(hardness)]
    current = [Observation(int(h) + int(rng.integers(0, 2)), cluster=i) for i, h in enumerate(hardness)]

    paired, unpaired = (bootstrap_difference(baseline, current, paired=p) for p in (True, False))

    assert paired.value == pytest.approx(unpaired.value)
    assert paired.n == 15
    assert width(paired) < 0.3 * width(unpaired)


def test_items_on_one_side_only_are_left_out_of_pairs() -> None:
    baseline = [Observation(v, cluster=c) for c, v in (("a", 8), ("b", 6), ("gone", 0))]
    current = [Observation(v, cluster=c) for c, v in (("new", 9), ("b", 5), ("a", 5))]

    estimate = bootstrap_difference(baseline, current, paired=True)

    assert (estimate.value, estimate.n) == (-2, 2)


@pytest.mark.parametrize(
    ("baseline", "current", "paired", "reason"),
    [
        ([], plain(1), False, "no scores in the baseline"),
        (plain(1), [], False, "no scores now"),
        ([Observation(1, cluster="a")], [Observation(1, cluster="b")], True, "no item has scores in both"),
    ],
)
def test_an_empty_side_has_no_difference(
    baseline: list[Observation], current: list[Observation], paired: bool, reason: str
) -> None:
    assert bootstrap_difference(baseline, current, paired=paired) == Estimate(None, None, 0, reason)

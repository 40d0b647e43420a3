"""From a difference to a decision; how many messages a decision takes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics.bootstrap import Interval
from evaluation.statistics.difference import (
    decide,
    n_to_detect,
    shares_interval,
    shares_p,
    smallest_detectable_change,
)

OPEN = ("possibly drifted", "not enough data")
CHANGES = st.floats(-3, 3)
WIDTHS = st.floats(0.01, 3)


def around(delta: float, width: float) -> Interval:
    return Interval(delta - width, delta + width)


# -- the verdict
@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.5, 0.5, "steady"),
        (-0.1, 0.2, "steady"),
        (0.1, 0.4, "steady"),  # surely not zero, and surely too small to matter
        (-0.51, 0.3, "not enough data"),
        (-2.0, 0.0, "possibly drifted"),
        (-2.0, -0.1, "drifted"),
        (0.2, 0.9, "improved"),
        (-9.0, -5.0, "drifted"),
    ],
)
def test_what_an_interval_says(low: float, high: float, expected: str) -> None:
    assert decide((low + high) / 2, Interval(low, high)).verdict == expected


def test_without_an_interval_nothing_is_claimed() -> None:
    decision = decide(-3, None, n=1)

    assert (decision.verdict, decision.n_more) == ("possibly drifted", None)
    assert "too few messages" in decision.reason


@given(CHANGES, WIDTHS, st.integers(2, 500))
def test_so_many_more_messages_would_decide_and_one_less_would_not(delta: float, width: float, n: int) -> None:
    decision = decide(delta, around(delta, width), n=n)
    if decision.verdict not in OPEN:
        assert decision.n_more is None
        return
    assert decision.n_more is not None

    def later(more: int) -> str:
        return decide(delta, around(delta, width * math.sqrt(n / (n + more)) * (1 - 1e-9))).verdict

    assert later(decision.n_more) not in OPEN
    assert later(decision.n_more - 1) in OPEN or decision.n_more == 1


@given(st.floats(-0.6, 0.6), st.floats(0.3, 1), st.integers(5, 300), st.integers(5, 300))
def test_a_baseline_that_stays_takes_more_messages_or_can_not_decide(
    delta: float, width: float, n: int, baseline: int
) -> None:
    both, fixed = (decide(delta, around(delta, width), n=n, baseline_n=b) for b in (None, baseline))

    assert fixed.verdict == both.verdict
    if fixed.n_more is None:
        assert fixed.verdict not in OPEN or "baseline" in fixed.reason
        return
    assert both.n_more is not None
    assert fixed.n_more >= both.n_more or n > baseline
    ratio = math.sqrt((1 / (n + fixed.n_more) + 1 / baseline) / (1 / n + 1 / baseline))
    assert decide(delta, around(delta, width * ratio * (1 - 1e-9))).verdict not in OPEN


@pytest.mark.parametrize(("options"), [{"margin": 0}, {"margin": math.nan}])
def test_an_impossible_question_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        decide(0, Interval(-1, 1), **options)  # type: ignore[arg-type]


# -- how much it takes
# Cohen, "Statistical Power Analysis" (1988), table 2.4.1, two-sided 0.05, power 0.80: medium and large effects
@pytest.mark.parametrize(("effect", "published"), [(0.5, 64), (0.8, 26)])
def test_sample_sizes_of_cohens_tables(effect: float, published: int) -> None:
    assert n_to_detect(effect, sd=1) == published


@pytest.mark.parametrize("n", [4, 20, 1000])
@pytest.mark.parametrize("paired", [False, True])
def test_the_smallest_change_is_found_with_the_power_promised(n: int, paired: bool) -> None:
    change = smallest_detectable_change(n, 1.7, paired=paired)

    assert change is not None
    freedom = n - 1 if paired else 2 * n - 2
    noncentrality = change / 1.7 / math.sqrt(1 / n if paired else 2 / n)
    limit = stats.t.ppf(0.975, freedom)
    exact = stats.nct.sf(limit, freedom, noncentrality) + stats.nct.cdf(-limit, freedom, noncentrality)
    assert exact == pytest.approx(0.8, abs=0.02)


@given(st.floats(0.1, 3), st.floats(0.1, 4), st.one_of(st.none(), st.integers(10, 200)))
def test_the_number_of_messages_is_the_least_that_finds_the_change(
    change: float, sd: float, baseline_n: int | None
) -> None:
    n = n_to_detect(change, sd, baseline_n=baseline_n)
    if n is None:
        assert baseline_n is not None
        unlimited = smallest_detectable_change(10_000_000, sd, baseline_n=baseline_n)
        assert unlimited is not None
        assert unlimited > change
        return
    enough = smallest_detectable_change(n, sd, baseline_n=baseline_n)
    assert enough is not None
    assert enough <= change
    assert n == 2 or (smallest_detectable_change(n - 1, sd, baseline_n=baseline_n) or math.inf) > change


# -- two shares
def test_the_interval_of_two_shares_is_newcombes_in_his_own_example() -> None:
    interval = shares_interval((48, 80), (56, 70))

    assert [interval.low, interval.high] == pytest.approx([0.0524, 0.3339], abs=1e-4)


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 60), st.integers(0, 60))
def test_two_shares_are_tested_by_fishers_exact_test(n: int, hits: int, later: int, more: int) -> None:
    before, now = (min(hits, n), n), (min(more, later), later)

    table = [[before[0], n - before[0]], [now[0], later - now[0]]]
    assert shares_p(before, now) == pytest.approx(stats.fisher_exact(table).pvalue)
    interval, swapped = shares_interval(before, now), shares_interval(now, before)
    assert [interval.low, interval.high] == pytest.approx([-swapped.high, -swapped.low])
    assert interval.low <= now[0] / later - before[0] / n <= interval.high

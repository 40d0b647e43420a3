"""What may be said of arms that are compared in several measures at once."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.experiments.compare import Comparison, Measure, Row, Values, compare_family, describe
from evaluation.experiments.printed import row_cells
from evaluation.statistics.arms import detectable_d
from evaluation.statistics.difference import holm
from evaluation.wording import p_text
from tests.machinery import THOROUGH

ROWS = 5
RUNS, APART = (400, 0.05) if THOROUGH else (60, 0.15)


def compared(seed: int, pairs: int, *, higher: float, rows: int = ROWS) -> list[Row]:
    """Rows of which only the first differs, by so many standard deviations of the differences of its pairs."""
    rng = np.random.default_rng([seed, pairs, rows])
    family = []
    for number in range(rows):
        control = rng.normal(5, 2, pairs)
        treatment = control + rng.normal(higher if number == 0 else 0, 1, pairs)
        arms = (
            Values(name, dict(enumerate([[one] for one in values])))
            for name, values in (("a", treatment), ("b", control))
        )
        family.append(Comparison(Measure(id=f"measure-{number}", label="Measure", unit="agents"), *arms))
    return compare_family(family, seed=seed)


def said(row: Row) -> str:
    cell = row_cells(row)[-1]
    return str(cell[0] if isinstance(cell, tuple) else cell)


def test_a_difference_is_that_of_the_scores_beside_it() -> None:
    control = Values("b", {1: [1.336]})
    treatment = Values("a", {1: [2.344]})

    row = describe(Measure(id="fluency", label="Fluency", unit="agents"), treatment, control)

    assert row_cells(row)[1:4] == ["2.34 (–)", "1.34 (–)", "+1.00"]


@pytest.mark.parametrize("pairs", [2, 6, 7])
def test_too_few_conversations_for_the_family_are_said_however_large_the_difference(pairs: int) -> None:
    for seed in range(5):
        first, *_ = compared(seed, pairs, higher=9.5)

        assert (first.verdict, first.detectable) == ("not enough data", None)
        assert f"too few conversations ({pairs})" in said(first)
        assert pairs == 2 or "for 5 comparisons; a significant result takes 8" in said(first)
        assert first.environments_needed == (8 if pairs > 2 else 6)


def test_as_many_conversations_as_asked_for_find_it() -> None:
    assert compared(1, 8, higher=9.5)[0].verdict == "gain"


def test_no_row_states_power_for_a_difference_it_did_not_find() -> None:
    for seed in range(20):
        for row in compared(seed, 8 + seed % 8, higher=1.3):
            if row.verdict == "no difference seen" and row.detectable is not None:
                assert abs(row.delta or 0) < row.detectable


@pytest.mark.parametrize(("pairs", "rows"), [(6, 1), (9, 5), (24, 5)])
def test_a_difference_of_the_stated_size_is_found_four_times_in_five(pairs: int, rows: int) -> None:
    size = detectable_d(pairs, rows)
    assert size is not None

    found = sum(compared(seed, pairs, higher=size, rows=rows)[0].verdict == "gain" for seed in range(RUNS))

    assert found / RUNS == pytest.approx(0.8, abs=APART)


def test_a_p_in_json_has_three_digits_that_count() -> None:
    measure = Measure(id="rules", label="Rules", unit="x")
    many = {number: [float(number % 7)] for number in range(900)}
    higher = {number: [1.5 + number % 7] for number in range(900)}

    [row] = compare_family([Comparison(measure, Values("a", higher), Values("b", many))])

    shown = row.model_dump()
    assert row.naive_p is not None
    assert 0 < row.naive_p < 1e-6
    assert shown["naive_p"] == float(f"{row.naive_p:.3g}") != row.naive_p
    assert shown["p"] == float(f"{row.p:.3g}")


def test_a_p_too_small_for_a_number_is_given_as_the_least_one_never_as_0() -> None:
    ones = {number: [1.0 + number % 2 / 1e6] for number in range(900)}
    nines = {number: [9.0 - number % 2 / 1e6] for number in range(900)}

    row = describe(Measure(id="rules", label="Rules", unit="x"), Values("a", nines), Values("b", ones))

    assert row.model_dump()["naive_p"] == 1e-300
    assert p_text(row.naive_p or 0.0) == "< 1e-300"
    assert holm([0.0, 0.5]) == [1e-300, 0.5]


def test_values_that_are_missing_or_an_offline_judges_are_outside_the_family() -> None:
    arm = {number: [5.0 + number] for number in range(8)}
    more = {number: [6.0 + 1.5 * number] for number in range(8)}
    measures = [
        Measure(id="rules", label="Rules", unit="x"),
        Measure(id="voice", label="Voice", unit="x", heuristic=True),
    ]
    family = [
        Comparison(measure, Values("a", more), Values("b", arm)) for measure in (measures[0], measures[1], measures[1])
    ]
    family += [Comparison(measures[0], Values("a", more, 3), Values("b", arm))]

    rows = compare_family(family)

    assert [row.verdict for row in rows] == ["gain", "heuristic", "heuristic", "not enough data"]
    assert rows[0].p_adjusted == rows[0].p == 2 / 2**8
    assert rows[3].why == "3 of 11 values missing in a; allowed: 10 %"

"""Numbers for people: one minus sign, and none for nothing."""

from __future__ import annotations

import pytest

from agents.kit.text.wording import counted, decimal, signed


@pytest.mark.parametrize(
    ("value", "digits", "plain", "difference"),
    [(-0.5, 1, "−0.5", "−0.5"), (0.04, 1, "0.0", "0.0"), (-0.04, 1, "0.0", "0.0"), (2.25, 2, "2.25", "+2.25")],
)
def test_a_number_and_a_difference(value: float, digits: int, plain: str, difference: str) -> None:
    assert (decimal(value, digits), signed(value, digits)) == (plain, difference)


def test_no_difference_is_a_dash_and_a_noun_follows_its_number() -> None:
    assert signed(None) == "–"
    assert [counted(n, "evaluation") for n in (0, 1, 1_200)] == ["0 evaluations", "1 evaluation", "1,200 evaluations"]
    assert counted(2, "claim needs", "claims need") == "2 claims need"

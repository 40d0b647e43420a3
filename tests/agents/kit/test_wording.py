"""Numbers and times for people: one minus sign, none for nothing, one form of dates."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from pytest_django import Settings

from agents.kit.text.wording import counted, day_text, decimal, difference, percentage, signed, time_text


@pytest.mark.parametrize(
    ("value", "digits", "plain", "with_sign"),
    [(-0.5, 1, "−0.5", "−0.5"), (0.04, 1, "0.0", "0.0"), (-0.04, 1, "0.0", "0.0"), (2.25, 2, "2.25", "+2.25")],
)
def test_a_number_and_a_difference(value: float, digits: int, plain: str, with_sign: str) -> None:
    assert (decimal(value, digits), signed(value, digits)) == (plain, with_sign)


def test_a_share_has_a_space_before_its_sign() -> None:
    assert [percentage(share) for share in (0, 0.664, 1)] == ["0 %", "66 %", "100 %"]


def test_a_difference_is_that_of_the_numbers_as_they_are_shown() -> None:
    assert difference(2.04, 3.86) == 1.9
    assert difference(2.04, 3.86, 2) == 1.82
    assert difference(None, 3.86) is None


def test_no_difference_is_a_dash_and_a_noun_follows_its_number() -> None:
    assert signed(None) == "–"
    assert [counted(n, "evaluation") for n in (0, 1, 1_200)] == ["0 evaluations", "1 evaluation", "1,200 evaluations"]
    assert counted(2, "claim needs", "claims need") == "2 claims need"


def test_times_are_those_of_the_installation(settings: Settings) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    late = datetime(2026, 11, 7, 23, 5, tzinfo=UTC)

    assert (day_text(late), time_text(late)) == ("8 Nov 2026", "8 Nov 2026, 00:05")
    assert time_text(late, zone=True) == "8 Nov 2026, 00:05 CET"
    assert day_text(date(2026, 11, 7)) == "7 Nov 2026"
    assert time_text(datetime(2026, 11, 7, 9, 5)) == "7 Nov 2026, 09:05"

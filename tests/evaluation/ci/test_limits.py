"""What a build is held to: how it is written, and what makes no sense."""

from __future__ import annotations

import pytest

from evaluation.ci.options import EVERY, Limits, parse_share, parse_thresholds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("5", {EVERY: 5.0}),
        ("adherence=6,fluency=4", {"adherence": 6.0, "fluency": 4.0}),
        (" 5 , fluency = 0 ", {EVERY: 5.0, "fluency": 0.0}),
        ("overall=6.5", {"overall": 6.5}),
        ("ideas_quantity=12", {"ideas_quantity": 12.0}),
    ],
)
def test_thresholds_are_read(text: str, expected: dict[str, float]) -> None:
    assert parse_thresholds(text) == expected


@pytest.mark.parametrize(
    "text", ["ten", "10", "-1", "nan", "adherence=", "=5", "charm=5", "5,6", "fluency=4,fluency=4"]
)
def test_a_threshold_that_makes_no_sense_names_itself_and_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"--threshold .*(allowed|twice)"):
        parse_thresholds(text)


def test_a_number_for_all_holds_for_scores_and_not_for_counts() -> None:
    limits = Limits(thresholds=parse_thresholds("5,fluency=4"))

    assert [limits.threshold(d) for d in ("adherence", "fluency", "ideas_quantity", "overall")] == [
        5.0,
        4.0,
        None,
        None,
    ]


def test_a_threshold_for_what_is_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="fluency: not among the dimensions measured: adherence"):
        Limits(thresholds={"fluency": 4}).check_dimensions(["adherence"])


@pytest.mark.parametrize(("text", "share"), [("0.2", 0.2), ("20%", 0.2), ("0", 0.0), ("100 %", 1.0)])
def test_a_share_is_a_number_or_a_percentage(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(
    "field", [{"regression_delta": 0}, {"margin": -1}, {"max_unscored": 1.5}, {"margin": float("nan")}]
)
def test_limits_out_of_range_are_refused(field: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        Limits(**field)  # type: ignore[arg-type]

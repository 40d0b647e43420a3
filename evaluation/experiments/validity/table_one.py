"""The experiments of Table 1 in arXiv:2507.09788, compared again as ours are: from the figures printed, and from raw scores where given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evaluation.experiments.compare import Measure, Row, Values, as_arm, describe
from evaluation.experiments.published import Figure, figures, read_published
from evaluation.experiments.validity.rows import Group, ValidityRow, outcome_of

RAW_SCORES = "table1_raw_scores.json"
SOURCE = "TinyTroupe, arXiv:2507.09788, Table 1"
GROUP: Group = "Experiments"

HALF_A_HUNDREDTH = 0.005 + 1e-9  # what rounding to two decimals changes at most
P_ROUNDING = 0.00005 + 1e-9  # of p, which is printed to four


def experiment_rows(folder: Path | None) -> list[ValidityRow]:
    """Return the rows of the published experiments.

    Args:
        folder: Where the user has the raw scores, which do not ship; None: the row says that they were not compared.

    Raises:
        ValueError: The file of raw scores cannot be used; says why.
        OSError: It cannot be read.
    """
    return [_row_of_printed_figures(), _row_of_raw_scores(_file_in(folder)), _row_of_october()]


def _file_in(folder: Path | None) -> Path | None:
    """Return the first file of raw scores below a folder; None where there is none."""
    if folder is None:
        return None
    return next(iter(sorted(folder.rglob(RAW_SCORES))), None)


def _row_of_printed_figures() -> ValidityRow:
    equal = 0
    total = 0
    for rows in figures().values():
        for figure in rows.values():
            total += 1
            equal += agrees_as_printed(figure)
    return ValidityRow(
        group=GROUP,
        claim="difference and p of Welch's test follow from the printed means and standard deviations, with the numbers of the raw scores",
        source=SOURCE,
        licence="facts",
        published=f"{total} rows",
        ours=f"{equal} of {total} within rounding",
        outcome=outcome_of(equal == total),
    )


def agrees_as_printed(figure: Figure) -> bool:
    """Return whether our test gives the printed difference and p, as far as the rounding of the other printed figures leaves it open.

    Welch's test knows scores only by their mean, standard deviation and number. So it is made of scores that have exactly these: once
    with the means as close and the deviations as large as rounding allows, which gives the largest p, and once the other way round.
    """
    sign = 1.0 if figure.treatment >= figure.control else -1.0
    largest = _p_of(figure, shift=-sign * HALF_A_HUNDREDTH, wider=HALF_A_HUNDREDTH)
    smallest = _p_of(figure, shift=sign * HALF_A_HUNDREDTH, wider=-HALF_A_HUNDREDTH)
    is_delta_equal = abs(figure.treatment - figure.control - figure.delta) <= 3 * HALF_A_HUNDREDTH
    return is_delta_equal and smallest - P_ROUNDING <= figure.p <= largest + P_ROUNDING


def _p_of(figure: Figure, *, shift: float, wider: float) -> float:
    """Return our p with the treatment's mean moved up and the control's down by `shift`, and both deviations widened."""
    treatment = scores_with(figure.treatment + shift, figure.treatment_sd + wider, figure.treatment_n)
    control = scores_with(figure.control - shift, figure.control_sd + wider, figure.control_n)
    row = describe(Measure(id="", label="", unit=""), Values("", as_arm(treatment)), Values("", as_arm(control)))
    return 1.0 if row.naive_p is None else row.naive_p


def scores_with(mean: float, sd: float, n: int) -> list[float]:
    """Return so many scores, at least 2, of exactly this mean and standard deviation: spaced evenly."""
    middle = (n - 1) / 2
    deviation = (n * (n + 1) / 12) ** 0.5  # of 0, 1, … n − 1
    return [mean + sd * (number - middle) / deviation for number in range(n)]


def _row_of_raw_scores(path: Path | None) -> ValidityRow:
    claim = "means, standard deviations, difference and p from the raw scores are those printed"
    if path is None:
        ours = f"not compared: the raw scores do not ship; --data FOLDER names a folder with {RAW_SCORES}"
        return ValidityRow(group=GROUP, claim=claim, source=SOURCE, licence="MIT", published="19 rows", ours=ours)
    equal = 0
    total = 0
    for published in read_published(path).rows:
        figure = _figure_of(published.set, published.experiment, published.row.measure)
        if figure is not None:
            total += 1
            equal += is_as_printed(published.row, figure)
    return ValidityRow(
        group=GROUP,
        claim=claim,
        source=SOURCE,
        licence="MIT",
        published="19 rows",
        ours=f"{equal} of {total} within rounding",
        outcome=outcome_of(equal == total == 19),
    )


def _figure_of(set_name: str, experiment: str, measure: str) -> Figure | None:
    """Return the printed figure of a row of raw scores, whose experiments are called ``exp1``; None where the paper has none."""
    if set_name != "june":
        return None
    return figures().get(experiment.replace("exp", "exp-"), {}).get(measure)


def is_as_printed(row: Row, figure: Figure) -> bool:
    """Return whether a row compared from raw scores has the printed figures, to their last digit."""
    pairs: Sequence[tuple[float | None, float]] = [
        (row.treatment.mean, figure.treatment),
        (row.treatment.sd, figure.treatment_sd),
        (row.control.mean, figure.control),
        (row.control.sd, figure.control_sd),
        (row.delta, figure.delta),
    ]
    if row.naive_p is None or abs(row.naive_p - figure.p) > P_ROUNDING:
        return False
    return all(ours is not None and abs(ours - printed) <= HALF_A_HUNDREDTH for ours, printed in pairs)


def _row_of_october() -> ValidityRow:
    return ValidityRow(
        group=GROUP,
        claim="the same authors' run of October 2025",
        source="TinyTroupe, paper_artifacts_october-2025",
        licence="MIT",
        published="34 rows",
        ours="not compared: neither scores nor printed figures ship; `manage.py experiment --published FILE` compares raw scores",
    )

"""How calibration looks in a terminal. Only presents; nothing is computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evaluation.calibration.as_json import calibration_details
from evaluation.calibration.values import LEAST_ITEMS, Calibration, PoweredMean, labels_text
from evaluation.runs.terminal import judge_label
from evaluation.statistics.estimates import Estimate
from evaluation.wording import counted, decimal

SOURCE = (
    "Prediction-powered mean: Angelopoulos, Bates, Fannjiang, Jordan & Zrnic, Science 382 (2023), 669–674; λ as in PPI++\n"
    "(Angelopoulos, Duchi & Zrnic, arXiv:2311.01453, 2023). It holds for the judgements its label set was drawn from."
)


def calibration_tables(found: Sequence[Calibration], console: Console) -> None:
    """A table per judge and dimension: each figure with its interval, then what is too little."""
    for row in found:
        console.print(_table(row))
        for sentence in notes(row):
            console.print(escape(sentence))
        if row.needed:
            console.print("To say more:")
            for needed in row.needed:
                console.print(f"  • {escape(needed)}")
        console.print()
    if any(mean.result.estimate.value is not None for row in found for mean in row.powered):
        console.print(SOURCE)


def figures(found: Calibration) -> list[tuple[str, Estimate]]:
    """The figures in the order they are shown, each with its name."""
    return [
        ("Quadratic-weighted kappa", found.kappa),
        ("Spearman's rank correlation", found.spearman),
        ("Krippendorff's alpha, judge and people", found.alpha),
        ("Krippendorff's alpha, among people", found.people_alpha),
        ("Bias: judge minus people, in points", found.bias),
    ]


def notes(found: Calibration) -> list[str]:
    """What a reader must know of these figures, in sentences."""
    return notes_of_figures(calibration_details(found))


def notes_of_figures(figures: Mapping[str, Any]) -> list[str]:
    """The same of figures as they are stored."""
    said = []
    if figures["items"] < LEAST_ITEMS:
        said.append(f"Too few: an interval of fewer than {LEAST_ITEMS} labelled judgements is not to be trusted.")
    said += _by_chance(figures)
    if figures["cannot_tell"]:
        said.append(f"{labels_text(figures['cannot_tell'])} “cannot tell”: in no figure.")
    if figures["not_blind"]:
        said.append(f"{labels_text(figures['not_blind'])} changed after the judge's score was shown: in no figure.")
    for mean in figures["prediction_powered"]:
        if 0 < mean["labelled"] < mean["drawn"]:
            said.append(
                f"{mean['label_set']}: {mean['drawn'] - mean['labelled']} of {mean['drawn']} drawn are in no figure yet. Its mean takes "
                "those that are for a random part of the draw, as they are when labelled in the order given."
            )
        if mean["tuning"] == 0 and mean["mean"]["value"] is not None:
            said.append(f"{mean['label_set']}: λ 0, the judge's scores added nothing to what the labels say alone.")
    return said


def _by_chance(figures: Mapping[str, Any]) -> list[str]:
    """A sentence on the figures of agreement that may be 0 or less."""
    names = {"kappa": "kappa", "spearman": "Spearman", "alpha": "alpha of judge and people"}
    known = {name: interval for key, name in names.items() if (interval := figures[key]["interval"])}
    holds = [name for name, (low, _) in known.items() if low <= 0]
    if not holds:
        return []
    which = "every figure" if len(holds) == len(known) > 1 else " and ".join(holds)
    return [f"No better than chance, as far as these labels show: the interval of {which} is not wholly above 0."]


def value_text(found: Estimate) -> str:
    return "–" if found.value is None else decimal(found.value, 2)


def interval_text(found: Estimate) -> str:
    """E.g. ``0.48 to 0.74``, or why there is none."""
    return f"{decimal(found.interval.low, 2)} to {decimal(found.interval.high, 2)}" if found.interval else found.reason


def _table(found: Calibration) -> Table:
    people = "1 annotator" if found.annotators == 1 else f"{found.annotators} annotators"
    title = f"{judge_label(found.judge)} · {found.procedure} · {found.dimension}"
    caption = f"{labels_text(found.labels)} of {counted(found.items, 'judgement')} by {people}"
    table = Table(title=escape(f"{title}: {caption}"), box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("Agreement of judge and people")
    table.add_column("Value", justify="right", no_wrap=True)
    table.add_column("95 % interval")
    table.add_column("n", justify="right")
    for name, estimate in figures(found):
        table.add_row(name, value_text(estimate), escape(interval_text(estimate)), str(estimate.n))
    for mean in found.powered:
        for name, estimate in means(mean):
            table.add_row(escape(name), value_text(estimate), escape(interval_text(estimate)), str(estimate.n))
    return table


def means(mean: PoweredMean) -> list[tuple[str, Estimate]]:
    """The means over a label set's population, higher is better: the judge's own, by labels alone, prediction-powered."""
    result = mean.result
    judge = Estimate(result.judge_mean, None, mean.population, "not corrected")
    tuned = "" if result.tuning is None else f" (λ {result.tuning:.2f})"
    return [
        (f"{mean.label_set}: mean by the judge", judge),
        (f"{mean.label_set}: mean by the labels alone", result.labels_only),
        (f"{mean.label_set}: prediction-powered mean{tuned}", result.estimate),
    ]

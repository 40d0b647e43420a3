"""How a bench looks in a terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from agents.commands import console_on, snippet
from correction.behavior.bench import Bench, Estimate
from correction.behavior.bench_figures import Figures, Range, Share, calibration, groups
from evaluation.models import is_heuristic
from evaluation.runs.terminal import cost_line, judge_label, money
from evaluation.wording import counted


def show_bench(found: Bench, out: Any, *, errors: bool) -> None:
    """Write the figures, per kind and language too, calibration, cost, and where asked what was judged wrongly."""
    scored, console = found.scored, console_on(out)
    figures = Figures.of(scored)
    unscored = len(found.judged) - len(scored)
    out.write(f"{counted(len(found.judged), 'message')} judged by {judge_label(found.judge)}")
    if unscored:
        why = next(one.why for one in found.judged if one.found is None)
        out.write(f"{unscored:,} of them could not be judged and are in no figure; the first: {snippet(why)}")
    table = Table("", "Value", "95 % interval", "From", box=box.SIMPLE)
    for name, share in (("Precision", figures.precision), ("Recall", figures.recall)):
        table.add_row(name, _value(share.value), _ends(share.interval), f"{share.hits} of {share.of}")
    table.add_row("F1", _value(figures.f1), _ends(figures.f1_interval()), f"{figures.n} messages")
    rate = figures.false_positive_rate
    table.add_row("False-positive rate", _value(rate.value), _ends(rate.interval), f"{rate.hits} of {rate.of}")
    console.print(table)
    levels = Table("Confidence", "Requests found", "rightly", "Messages passed over", "rightly", box=box.SIMPLE)
    for level, sides in calibration(scored).items():
        levels.add_row(level, *(cell for share in sides.values() for cell in (f"{share.of:,}", _percent(share))))
    console.print(levels)
    for title, parts in (
        ("Kind", groups(scored, lambda one: one.case.kind)),
        ("Language", groups(scored, lambda one: one.case.language)),
    ):
        if parts:
            console.print(_groups(title, parts))
    if errors:
        wrong = Table("Line", "Is", "Confidence", "Message", box=box.SIMPLE, title="Judged wrongly")
        for one in scored:
            if one.found is not one.case.request:
                wrong.add_row(
                    str(one.case.line),
                    "missed" if one.case.request else "false",
                    one.confidence,
                    snippet(one.case.text),
                )
        console.print(wrong)
    if not is_heuristic(found.judge):
        out.write(cost_line(found.spent))
    if found.stopped:
        out.write(f"Stopped: {snippet(found.stopped)}")


def show_estimate(needed: Estimate, out: Any) -> None:
    """Say before anything is asked what it will take."""
    cost = money(needed.cost_usd, 0 if needed.cost_usd is not None else needed.calls)
    out.write(f"About {needed.calls:,} calls, {needed.input_tokens:,} tokens in, {needed.output_tokens:,} out, {cost}")


def _groups(title: str, parts: dict[str, Figures]) -> Table:
    table = Table(title, "n", "Recall", "False-positive rate", box=box.SIMPLE)
    for name, figures in parts.items():
        table.add_row(
            snippet(name, 40), str(figures.n), _percent(figures.recall), _percent(figures.false_positive_rate)
        )
    return table


def _percent(share: Share) -> str:
    return "" if share.value is None else f"{share.value:.1%} ({share.hits} of {share.of})"


def _value(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _ends(interval: Range | None) -> str:
    return "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"

"""How comparisons look in a terminal. Only presents; nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on
from evaluation.comparison.detection import Detection
from evaluation.comparison.values import Change, Comparison
from evaluation.comparison.words import interval_text
from evaluation.models import is_heuristic
from evaluation.runs.coverage import percent, with_share
from evaluation.runs.terminal import heading_of, judge_label, number
from evaluation.wording import signed

MOST_NAMED = 10
NARROW = 100
STYLES = {"drifted": "bold", "steady": "green", "cannot tell yet": "dim", "not enough data": "yellow"}


def comparison_table(comparison: Comparison, out: Any) -> None:
    """One comparison: its dimensions, and every proposition."""
    comparisons_table([comparison], out)


def comparisons_table(comparisons: Sequence[Comparison], out: Any) -> None:
    """Several comparisons by one judge: a row per target and dimension, the propositions that surely changed, and what to know.

    Of a single comparison every proposition is shown.
    """
    if not comparisons:
        return
    console = console_on(out)
    first, narrow = comparisons[0], console.width < NARROW
    names = {(c.baseline.name, c.current.name) for c in comparisons}
    before, now = ({c.baseline.scope for c in comparisons}, {c.current.scope for c in comparisons})
    several = f"Baseline{_of_messages(before)} → now{_of_messages(now)}"
    what = f"{first.baseline.name} → {first.current.name}" if len(names) == 1 else several
    title = f"{what}, judged by {judge_label(first.current.judge)}"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    _columns(table, "Agent" if not first.current.target.startswith("#") else "Channel", "Dim.")
    for comparison in comparisons:
        for n, change in enumerate(comparison.dimensions):
            notes = _of_messages({comparison.current.scope}) if len(now) > 1 else ""
            notes += " (stale)" if comparison.stale else ""
            table.add_row(
                escape(comparison.current.target + notes) if not n else "",
                heading_of(change.dimension, narrow=True),
                *_cells(change, narrow=narrow),
            )
    console.print(table)
    _propositions(comparisons, console)
    _explain(comparisons, console)
    if is_heuristic(first.current.judge):
        console.print("heuristic: exact rules and word cues, no LLM. What it cannot see is unscored, never guessed.")


def _of_messages(scopes: set[str | None]) -> str:
    """Which messages, where all are of the same."""
    (scope, *others) = scopes
    return f" ({scope})" if scope and not others else ""


def _columns(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, overflow="fold")
    for name in ("Before", "Now", "Change", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Verdict", no_wrap=True)
    table.add_column("More", justify="right", no_wrap=True)


def _cells(change: Change, *, narrow: bool) -> list[str]:
    """Scores with the shares scored, on a line of their own where there is little room; difference, interval, verdict."""
    digits = 0 if change.counted else 1
    shown = [
        with_share(
            "–" if score is None else f"{score:.{digits}f}" if change.counted else number(score),
            share,
            between="\n" if narrow else " · ",
        )
        for score, share in ((change.baseline, change.baseline_share), (change.current, change.share))
    ]
    verdict = change.verdict
    if verdict == "drifted" and not change.counted:
        verdict = "worse" if change.worse else "better"  # type: ignore[assignment]
    if change.interval is None and verdict == "cannot tell yet":
        verdict = "no interval"  # type: ignore[assignment]
    style = "bold red" if change.worse else STYLES[change.verdict]
    return [
        *shown,
        signed(change.delta, digits),
        interval_text(change),
        f"[{style}]{verdict}[/]",
        f"{change.n_more:,}" if change.n_more else "",
    ]


def _propositions(comparisons: Sequence[Comparison], console: Any) -> None:
    """Every proposition of a single comparison; of several, those that surely changed."""
    alone = len(comparisons) == 1
    rows = [
        (c.current.target, row)
        for c in comparisons
        for changes in c.propositions.values()
        for row in changes
        if row.verdict == "drifted" or (alone and (row.baseline, row.current) != (None, None))
    ]
    if not rows:
        return
    title = "Propositions, worst first" if alone else "Propositions that surely changed"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    _columns(table, "Proposition")
    for target, row in rows:
        name = row.proposition if alone or row.proposition.startswith(target) else f"{target}: {row.proposition}"
        table.add_row(escape(name), *_cells(row, narrow=console.width < NARROW))
    console.print(table)


def _explain(comparisons: Sequence[Comparison], console: Any) -> None:
    margin = comparisons[0].margin
    rows = [change for c in comparisons for change in c.dimensions]
    scale = "Scores of 0 to 9, higher is better; in % the share of judgements scored, of the propositions this judge can score at all."
    lines = [scale, *_unsure_but_large(comparisons)]
    if any(row.verdict == "steady" for row in rows):
        lines.append(f"steady: the whole interval lies within ±{margin:g} points.")
    if any(row.n_more for row in rows):
        lines.append(
            "More: how many more (messages, situations, channels) would decide, if difference and spread stay as they are."
        )
    tested = sum(row.p_value is not None for row in rows)
    if tested > 1:
        lines.append(f"worse, better: surely so among the {tested} dimensions compared at once (Holm, 5 %).")
    found: dict[str, list[str]] = {}
    for comparison in comparisons:
        target = comparison.current.target
        for lost in comparison.lost:
            found.setdefault(
                f"{lost.dimension}: not enough data: {lost} ({percent(lost.before)} → {percent(lost.now)})", []
            ).append(target)
        for change in comparison.dimensions:
            for note in dict.fromkeys(filter(None, (change.interval_note, _why_undecided(change)))):
                found.setdefault(f"{change.dimension}: {note}", []).append(target)
        for note in comparison.notes:
            found.setdefault(note, []).append(target)
        if comparison.one_sided:
            which = "some propositions (--json names them)" if len(comparisons) > 1 else ", ".join(comparison.one_sided)
            found.setdefault(f"scored on one side only, so left out of the dimension: {which}", []).append(target)
        if comparison.over_window:
            found.setdefault(
                f"judged once over the window, so beside the dimension: {', '.join(comparison.over_window)}", []
            ).append(target)
        if comparison.only_baseline:
            found.setdefault(f"only before: {', '.join(comparison.only_baseline)}", []).append(target)
        if comparison.only_current:
            found.setdefault(f"only now: {', '.join(comparison.only_current)}", []).append(target)
    for note, targets in found.items():
        who = f"{len(targets)} of {len(comparisons)}" if len(targets) > 3 else ", ".join(targets)
        lines.append(f"{who}: {note}.")
    if any("takes a larger one" in row.reason for row in rows):
        lines.append("--detect 0.5 says how many messages a baseline takes.")
    for line in lines:
        console.print(escape(line))
    console.print()


def _unsure_but_large(comparisons: Sequence[Comparison]) -> list[str]:
    """Large changes that nothing sure can be said of: they would be lost among the rows, and no exit code tells of them."""
    found = sorted(
        (change.delta, f"{c.current.target} {change.dimension} {_fall(change)}")
        for c in comparisons
        for change in c.dimensions
        if change.interval is None and not change.counted and change.delta is not None and abs(change.delta) > c.margin
    )
    if not found:
        return []
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    which = ", ".join(text for _, text in found[:MOST_NAMED])
    return [f"large, but with no interval neither sure nor in the exit code, so read what was said: {which}{more}."]


def _fall(change: Change) -> str:
    before = with_share(number(change.baseline), change.baseline_share)
    return f"{before} → {with_share(number(change.current), change.share)}"


def _why_undecided(change: Change) -> str:
    """Why there is an interval, but neither a verdict nor a number of messages that would bring one."""
    return change.reason if change.verdict == "cannot tell yet" and change.interval and not change.n_more else ""


def detection_table(rows: Sequence[Detection], out: Any) -> None:
    """What the sample at hand can find, and what a change of the size asked for takes."""
    console = console_on(out)
    if not rows:
        console.print("Nothing to plan by: no dimension has an interval over messages.\n")
        return
    change = rows[0].change
    table = Table(
        title=f"Messages to find a change of {change:g} points in 4 of 5 cases",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    table.add_column("Target")
    table.add_column("Dim.")
    for heading in ("Spread", "Before", "Now", "Finds", "Needs each", "Needs now"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = (
            f"{row.sd:.1f}",
            f"{row.baseline_n:,}" if row.baseline_n else "exact",
            f"{row.n:,}",
            "–" if row.smallest is None else f"{row.smallest:.1f}",
            "–" if row.needed is None else f"{row.needed:,}",
            "–" if row.needed_now is None else f"{row.needed_now:,}",
        )
        table.add_row(escape(row.target), heading_of(row.dimension, narrow=True), *cells)
    console.print(table)
    console.print(
        "Spread: standard deviation between messages. Before, Now: how many were judged. Finds: the smallest change these\n"
        "find. Needs each: messages on both sides. Needs now: with the baseline as it is; – no number suffices.\n"
    )

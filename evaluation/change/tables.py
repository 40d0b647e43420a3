"""Changes in a terminal: comparisons, the drift overview, series over time, scores by position. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from django.utils import timezone
from rich.console import Console
from rich.markup import escape

from agents.commands import Cell, Emphasis, console_on, print_table
from evaluation.change.change import Change
from evaluation.change.comparison import Comparison, Detection
from evaluation.change.over_time import Drop, Series
from evaluation.change.overview import Card, Overview
from evaluation.change.overview_text import sentence_of, tag_words
from evaluation.change.position import PositionChange, PositionProfile
from evaluation.models import is_heuristic
from evaluation.runs.summary import percent, with_share
from evaluation.wording import counted, decimal, heading_of, interval_text, judge_label, number, signed

MOST_NAMED = 10
NARROW = 100
EMPHASIS: dict[str, Emphasis] = {
    "drifted": "bad",
    "possibly drifted": "warning",
    "steady": "good",
    "improved": "better",
    "not enough data": "faint",
}
CHANGE = (">Baseline", ">Now", ">Change", ">95 % interval", "Verdict", ">More")
BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 30
MOST_NOTED = 4  # series with the same note


# -- comparisons
def comparisons_table(comparisons: Sequence[Comparison], out: Any) -> None:
    """Comparisons by one judge: a row per target and dimension, the propositions that surely changed, and what to know.

    Of a single comparison every proposition is shown.
    """
    if not comparisons:
        return
    console = console_on(out)
    first, narrow = comparisons[0], console.width < NARROW
    names = {(c.baseline.name, c.candidate.name) for c in comparisons}
    scopes = [{getattr(c, which).scope for c in comparisons} for which in ("baseline", "candidate")]
    several = " → ".join(
        f"{what}{_of_messages(of)}" for what, of in zip(("Baseline", "candidate"), scopes, strict=True)
    )
    what = f"{first.baseline.name} → {first.candidate.name}" if len(names) == 1 else several
    rows: list[list[Cell]] = []
    for comparison in comparisons:
        for n, change in enumerate(comparison.dimensions):
            notes = _of_messages({comparison.candidate.scope}) if len(scopes[1]) > 1 else ""
            notes += " (stale)" if comparison.stale else ""
            name = comparison.target + notes if not n else ""
            rows.append([name, heading_of(change.dimension, narrow=True), *_cells(change, narrow=narrow)])
    print_table(
        console,
        ["Channel" if first.target.startswith("#") else "Agent", "Dim.", *CHANGE],
        rows,
        title=f"{what}, judged by {judge_label(first.judge)}",
        tight=True,
        unwrapped=["Verdict"],
    )
    _propositions(comparisons, console)
    for line in _explanations(comparisons):
        console.print(escape(line))
    console.print()
    if is_heuristic(first.judge):
        console.print("heuristic: exact rules and word cues, no LLM. What it cannot see is unscored, never guessed.")


def _of_messages(scopes: set[str | None]) -> str:
    """Which messages, where all are of the same."""
    (scope, *others) = scopes
    return f" ({scope})" if scope and not others else ""


def _cells(change: Change, *, narrow: bool) -> list[Cell]:
    """Scores with the shares scored, on a line of their own where there is little room; difference, interval, verdict."""
    shown: list[Cell] = [
        with_share(
            "–" if score is None else f"{score:.0f}" if change.counted else number(score),
            share,
            between="\n" if narrow else " · ",
        )
        for score, share in ((change.baseline, change.baseline_share), (change.candidate, change.share))
    ]
    emphasis: Emphasis = "strong" if change.counted and change.verdict == "drifted" else EMPHASIS[change.verdict]
    delta = signed(change.delta, 0 if change.counted else 1)
    return [*shown, delta, interval_text(change.interval), (change.verdict, emphasis), change.n_more or ""]


def _propositions(comparisons: Sequence[Comparison], console: Console) -> None:
    """Every proposition of a single comparison; of several, those that surely changed."""
    alone = len(comparisons) == 1
    rows: list[list[Cell]] = []
    for comparison in comparisons:
        for row in (row for changes in comparison.propositions.values() for row in changes):
            if row.verdict in ("drifted", "improved") or (alone and (row.baseline, row.candidate) != (None, None)):
                of = "" if alone or row.proposition.startswith(comparison.target) else f"{comparison.target}: "
                rows.append([f"{of}{row.proposition}", *_cells(row, narrow=console.width < NARROW)])
    if rows:
        title = "Propositions, worst first" if alone else "Propositions that surely changed"
        print_table(console, ["Proposition", *CHANGE], rows, title=title, tight=True, unwrapped=["Verdict"])


def _explanations(comparisons: Sequence[Comparison]) -> list[str]:
    """What a reader must know of the tables, in sentences."""
    margin = comparisons[0].margin
    rows = [(c, change) for c in comparisons for change in c.dimensions]
    lines = [
        "Scores of 0 to 9, higher is better; in % the share of judgements scored, of the propositions this judge can score at all."
    ]
    large = sorted(
        (change.delta, f"{c.target} {change.dimension} {_fall(change)}")
        for c, change in rows
        if change.interval is None and not change.counted and change.delta is not None and abs(change.delta) > c.margin
    )
    if large:  # these would be lost among the rows, and no exit code says anything of them
        more = f" and {len(large) - MOST_NAMED} more" if len(large) > MOST_NAMED else ""
        which = ", ".join(text for _, text in large[:MOST_NAMED])
        lines.append(
            f"large, but with no interval neither sure nor in the exit code, so read what was said: {which}{more}."
        )
    if any(change.verdict == "steady" for _, change in rows):
        lines.append(f"steady: the whole interval lies within ±{margin:g} points.")
    if any(change.n_more for _, change in rows):
        lines.append(
            "More: how many more (messages, situations, channels) would decide, if difference and spread stay as they are."
        )
    tested = sum(change.p_value is not None for _, change in rows)
    if tested > 1:
        lines.append(f"drifted, improved: surely so among the {tested} dimensions compared at once (Holm, 5 %).")
    notes: dict[str, list[str]] = {}
    for comparison in comparisons:
        for note in _notes(comparison, alone=len(comparisons) == 1):
            notes.setdefault(note, []).append(comparison.target)
    for note, targets in notes.items():
        who = f"{len(targets)} of {len(comparisons)}" if len(targets) > 3 else ", ".join(targets)
        lines.append(f"{who}: {note}.")
    if any("takes a larger one" in change.reason for _, change in rows):
        lines.append("--detect 0.5 says how many messages a baseline takes.")
    return lines


def _notes(comparison: Comparison, *, alone: bool) -> list[str]:
    notes = [
        f"{lost.dimension}: not enough data: {lost} ({percent(lost.before)} → {percent(lost.now)})"
        for lost in comparison.lost
    ]
    for change in comparison.dimensions:
        # Why there is an interval, but neither a sure verdict nor a number of messages that would bring one.
        why = change.reason if change.undecided and change.interval and not change.n_more else ""
        notes += [f"{change.dimension}: {note}" for note in (change.interval_note, why) if note]
    notes += comparison.notes
    for what, names in (
        ("scored in one of the two only, so left out of the dimension", comparison.scored_in_one),
        ("judged once over the window, so not in the dimension", comparison.over_window),
        ("only in the baseline", comparison.only_baseline),
        ("only now", comparison.only_candidate),
    ):
        if names:
            few = alone or names is not comparison.scored_in_one
            notes.append(f"{what}: {', '.join(names) if few else 'some propositions (--json names them)'}")
    return list(dict.fromkeys(notes))


def _fall(change: Change) -> str:
    before = with_share(number(change.baseline), change.baseline_share)
    return f"{before} → {with_share(number(change.candidate), change.share)}"


def detection_table(rows: Sequence[Detection], out: Any) -> None:
    """What the sample at hand can detect, and what a change of the size asked for takes."""
    console = console_on(out)
    if not rows:
        console.print("Nothing to plan by: no dimension has an interval over messages.\n")
        return
    cells: list[list[Cell]] = [
        [
            *(row.target, heading_of(row.dimension, narrow=True), f"{row.sd:.1f}", row.baseline_n or "exact"),
            *(row.n, None if row.smallest is None else f"{row.smallest:.1f}", row.needed, row.needed_now),
        ]
        for row in rows
    ]
    heads = ["Target", "Dim.", ">Spread", ">Baseline", ">Now", ">Finds", ">Needs each", ">Needs now"]
    title = f"Messages to find a change of {rows[0].change:g} points in 4 of 5 cases"
    print_table(console, heads, cells, title=title)
    console.print(
        "Spread: standard deviation between messages. Baseline, Now: how many were judged. Finds: the smallest change these\n"
        "find. Needs each: messages in both. Needs now: with the baseline as it is; – no number suffices.\n"
    )


# -- the drift overview
def overview_table(overview: Overview, out: Any) -> None:
    """One row per agent: its dimensions in the baseline and now, and the sentence of its card."""
    cards, console = overview.cards, console_on(out)
    judged = next((card.judged for card in cards if card.judged is not None), None)
    tags = {_tags(card) for card in cards if card.compared.candidate}
    of = f" ({tags.pop()})" if len(tags) == 1 and "" not in tags else ""
    dimensions = sorted({move.dimension for card in cards for move in card.dimensions})
    rows: list[list[Cell]] = []
    for card in cards:
        by_name = {move.dimension: move for move in card.dimensions}
        name = f"{card.agent.slug} ({_tags(card)})" if len(tags) > 1 and _tags(card) else card.agent.slug
        emphasis: Emphasis = "warning" if card.state == "not enough data" else EMPHASIS.get(card.state, "")
        sentence = (sentence_of(card), "" if card.state == "steady" else emphasis)
        rows.append([name, *(_scores(by_name.get(dimension)) for dimension in dimensions), sentence])
    heads = [f">{dimension.capitalize().replace('_', ' ')}" for dimension in dimensions]
    title = f"Drift overview{of}, judged by {judge_label(judged.judge)}" if judged else "Drift overview"
    print_table(console, ["Agent", *heads, "What changed"], rows, title=title, unwrapped=["Agent"])
    console.print(
        "Scores in the baseline → now. In %: the share of judgements scored, of the propositions this judge can score at all."
    )


def _tags(card: Card) -> str:
    """What the messages of the candidate are tagged with."""
    return "; ".join(sorted({tag_words(run) for run in card.compared.candidate.values()} - {""}))


def _scores(move: Change | None) -> str | None:
    if move is None:
        return None
    scores = " → ".join("–" if score is None else decimal(score) for score in (move.baseline, move.candidate))
    shares = " → ".join(percent(share) or "–" for share in (move.baseline_share, move.share))
    return f"{scores}\n{shares.replace(' %', '', 1) if shares.count('%') > 1 else shares}"


# -- over time
def drift_table(drawn: Sequence[Series], out: Any) -> None:
    """A table per judge and procedure, whose numbers are never mixed; then every fall in a sentence."""
    console = console_on(out)

    def judged(series: Series) -> tuple[str, str]:
        return series.judge, series.procedure

    for (judge, procedure), group in groupby(sorted(drawn, key=judged), key=judged):
        of_judge = sorted(group, key=lambda s: (s.agent.slug, s.schedule.name, s.dimension))
        rows: list[list[Cell]] = [
            [
                *(series.agent.slug, series.dimension, series.schedule.name, sparkline(series)),
                *(number(series.readings[-1].score), len(series.drops)),
            ]
            for series in of_judge
        ]
        title = f"Scores by {judge_label(judge)}{'' if procedure == 'plumbline' else f', {procedure}'}, 0 to 9"
        heads = ["Agent", "Dimension", "Schedule", f"Last {SPARKS}", ">Now", ">Falls"]
        print_table(console, heads, rows, title=title, unwrapped=["Dimension", f"Last {SPARKS}"])
        notes: dict[str, list[str]] = {}
        for series in of_judge:
            if series.note:
                notes.setdefault(series.note, []).append(f"{series.agent.slug} {series.dimension}")
        sentences = [_drop_text(series, drop) for series in of_judge for drop in series.drops]
        sentences += dict.fromkeys(filter(None, (series.newest_restart for series in of_judge)))
        for note, noted in notes.items():
            which = f"all {len(rows)} series" if len(noted) == len(rows) > MOST_NOTED else ", ".join(noted)
            sentences.append(f"{which}: {note}")
        for sentence in sentences:
            console.print(escape(sentence))
        console.print()


def sparkline(series: Series, most: int = SPARKS) -> str:
    """The newest scores as bars on the fixed scale of 0 to 9; a stroke where the series starts again."""
    return "".join(
        ("|" if point.restarts else "") + BLOCKS[min(len(BLOCKS) - 1, int(point.score / 9 * len(BLOCKS)))]
        for point in series.readings[-most:]
    )


def _drop_text(series: Series, drop: Drop) -> str:
    since, noticed = (f"{timezone.localtime(time):%Y-%m-%d}" for time in (drop.since, drop.noticed))
    return (
        f"{series.agent.slug} {series.dimension}: fell from {drop.before:.1f} to {drop.after:.1f} since {since} "
        f"(noticed {noticed}, evaluation {drop.run})"
    )


# -- by position
def position_table(profile: PositionProfile, out: Any) -> None:
    """One table per dimension that is judged message by message, with what its ends say; at most 80 columns wide."""
    console = console_on(out)
    for name, dimension in profile.dimensions.items():
        of = f"{name.capitalize()} of {profile.agent} by position"
        if not any(row.messages for row in dimension.bins):
            console.print(escape(f"{of}: no message was judged.\n"))
            continue
        rows: list[list[Cell]] = [
            [
                *(row.positions, with_share(number(row.score), row.share), interval_text(row.interval, sign=False)),
                *(number(row.same.score), row.messages, row.conversations, row.scored, row.unscored),
            ]
            for row in dimension.bins
        ]
        heads = ["Pos.", ">Score", ">95 %", ">Same c.", ">Mess.", ">Conv.", ">Scored", ">Unsc."]
        title = f"{of}, by {judge_label(profile.judge)}"
        print_table(console, heads, rows, title=title, unwrapped=["Pos."])
        console.print(_change_sentence("In the same conversations", dimension.within))
        console.print(_change_sentence("Over all messages", dimension.overall))
        trend = dimension.trend
        if trend.spearman is not None:
            value, interval = decimal(trend.spearman, 2), trend.interval
            reach = f"no interval: {trend.note}"
            if interval is not None:
                reach = f"95 %: {decimal(interval.low, 2)} to {decimal(interval.high, 2)}"
            console.print(f"Correlation of position and score (Spearman): {value} ({reach})")
        console.print()
    if profile.not_by_position:
        console.print(f"Not by position, because judged as a whole: {', '.join(profile.not_by_position)}.")
    if profile.left_out:
        lie = counted(profile.left_out, "judged message lies", "judged messages lie")
        console.print(f"{lie} in no stretch of these, or deleted since.")


def _change_sentence(where: str, change: PositionChange) -> str:
    if change.delta is None:
        return f"{where}: {change.interval_note}."
    basis = f"{counted(change.conversations, 'conversation')}; interval over {change.resampled}"
    reach = f"95 %: {interval_text(change.interval)}" if change.interval else f"no interval: {change.interval_note}"
    return (
        f"{where}: positions {change.last} against {change.first}: {signed(change.delta)} ({reach}) "
        f"({basis}): {change.verdict}, {change.reason}."
    )

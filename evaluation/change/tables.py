"""Changes in a terminal: comparisons, the drift overview, series over time, scores by position. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from django.utils import timezone
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on
from agents.models import Agent
from evaluation.change.choosing import Detection
from evaluation.change.comparison import Change, Comparison
from evaluation.change.over_time import Drop, Series
from evaluation.change.overview import Card, DimensionMove, Overview
from evaluation.change.overview_text import sentence_of, tag_words
from evaluation.change.position import PositionChange, PositionDimension, PositionProfile
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.runs.summary import percent, with_share
from evaluation.statistics.estimates import Estimate
from evaluation.wording import counted, decimal, heading_of, interval_text, judge_label, number, signed

MOST_NAMED = 10
NARROW = 100
STYLES = {
    "drifted": "bold red",
    "possibly drifted": "yellow",
    "steady": "green",
    "improved": "bold green",
    "not enough data": "dim",
}
BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 30
MOST_NOTED = 4  # series with the same note


def _table(title: str, padding: tuple[int, ...] = (0, 1)) -> Table:
    return Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=padding)  # type: ignore[arg-type]


def _columns(table: Table, *headings: str) -> None:
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)


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
    title = f"{what}, judged by {judge_label(first.candidate.judge)}"
    table = _changes_table(title, "Agent" if not first.candidate.target.startswith("#") else "Channel", "Dim.")
    for comparison in comparisons:
        for n, change in enumerate(comparison.dimensions):
            notes = _of_messages({comparison.candidate.scope}) if len(scopes[1]) > 1 else ""
            notes += " (stale)" if comparison.stale else ""
            table.add_row(
                escape(comparison.candidate.target + notes) if not n else "",
                heading_of(change.dimension, narrow=True),
                *_cells(change, narrow=narrow),
            )
    console.print(table)
    _propositions(comparisons, console)
    for line in _explanations(comparisons):
        console.print(escape(line))
    console.print()
    if is_heuristic(first.candidate.judge):
        console.print("heuristic: exact rules and word cues, no LLM. What it cannot see is unscored, never guessed.")


def _of_messages(scopes: set[str | None]) -> str:
    """Which messages, where all are of the same."""
    (scope, *others) = scopes
    return f" ({scope})" if scope and not others else ""


def _changes_table(title: str, *names: str) -> Table:
    table = _table(title, (0, 1, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold")
    _columns(table, "Baseline", "Now", "Change", "95 % interval")
    table.add_column("Verdict", no_wrap=True)
    _columns(table, "More")
    return table


def _cells(change: Change, *, narrow: bool) -> list[str]:
    """Scores with the shares scored, on a line of their own where there is little room; difference, interval, verdict."""
    digits = 0 if change.counted else 1
    shown = [
        with_share(
            "–" if score is None else f"{score:.0f}" if change.counted else number(score),
            share,
            between="\n" if narrow else " · ",
        )
        for score, share in ((change.baseline, change.baseline_share), (change.candidate, change.share))
    ]
    style = "bold" if change.counted and change.verdict == "drifted" else STYLES[change.verdict]
    return [
        *shown,
        signed(change.delta, digits),
        interval_text(change.interval),
        f"[{style}]{change.verdict}[/]",
        f"{change.n_more:,}" if change.n_more else "",
    ]


def _propositions(comparisons: Sequence[Comparison], console: Console) -> None:
    """Every proposition of a single comparison; of several, those that surely changed."""
    alone = len(comparisons) == 1
    rows = [
        (c.candidate.target, row)
        for c in comparisons
        for changes in c.propositions.values()
        for row in changes
        if row.verdict in ("drifted", "improved") or (alone and (row.baseline, row.candidate) != (None, None))
    ]
    if not rows:
        return
    title = "Propositions, worst first" if alone else "Propositions that surely changed"
    table = _changes_table(title, "Proposition")
    for target, row in rows:
        name = row.proposition if alone or row.proposition.startswith(target) else f"{target}: {row.proposition}"
        table.add_row(escape(name), *_cells(row, narrow=console.width < NARROW))
    console.print(table)


def _explanations(comparisons: Sequence[Comparison]) -> list[str]:
    """What a reader must know of the tables, in sentences."""
    margin = comparisons[0].margin
    rows = [(c, change) for c in comparisons for change in c.dimensions]
    lines = [
        "Scores of 0 to 9, higher is better; in % the share of judgements scored, of the propositions this judge can score at all."
    ]
    large = sorted(
        (change.delta, f"{c.candidate.target} {change.dimension} {_fall(change)}")
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
            notes.setdefault(note, []).append(comparison.candidate.target)
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
    table = _table(f"Messages to find a change of {rows[0].change:g} points in 4 of 5 cases")
    table.add_column("Target")
    table.add_column("Dim.")
    _columns(table, "Spread", "Baseline", "Now", "Finds", "Needs each", "Needs now")
    for row in rows:
        table.add_row(
            escape(row.target),
            heading_of(row.dimension, narrow=True),
            f"{row.sd:.1f}",
            f"{row.baseline_n:,}" if row.baseline_n else "exact",
            f"{row.n:,}",
            "–" if row.smallest is None else f"{row.smallest:.1f}",
            "–" if row.needed is None else f"{row.needed:,}",
            "–" if row.needed_now is None else f"{row.needed_now:,}",
        )
    console.print(table)
    console.print(
        "Spread: standard deviation between messages. Baseline, Now: how many were judged. Finds: the smallest change these\n"
        "find. Needs each: messages in both. Needs now: with the baseline as it is; – no number suffices.\n"
    )


# -- the drift overview
def overview_table(overview: Overview, out: Any) -> None:
    """One row per agent: its dimensions in the baseline and now, and the sentence of its card."""
    cards = overview.cards
    judged = next((card.judged for card in cards if card.judged is not None), None)
    tags = {_tags(card) for card in cards if card.compared.candidate}
    of = f" ({tags.pop()})" if len(tags) == 1 and "" not in tags else ""
    table = _table(f"Drift overview{of}, judged by {judge_label(judged.judge)}" if judged else "Drift overview")
    dimensions = sorted({move.dimension for card in cards for move in card.dimensions})
    table.add_column("Agent", no_wrap=True)
    _columns(table, *(dimension.capitalize().replace("_", " ") for dimension in dimensions))
    table.add_column("What changed")
    for card in cards:
        by_name = {move.dimension: move for move in card.dimensions}
        named = f"{card.agent.slug} ({_tags(card)})" if len(tags) > 1 and _tags(card) else card.agent.slug
        sentence, style = escape(sentence_of(card)), STYLES.get(card.state, "")
        colour = style.split()[-1] if card.state not in ("steady", "not enough data") else ""
        colour = "yellow" if card.state == "not enough data" else colour
        scores = [_scores(by_name.get(dimension)) for dimension in dimensions]
        table.add_row(escape(named), *scores, f"[{colour}]{sentence}[/{colour}]" if colour else sentence)
    console = console_on(out)
    console.print(table)
    console.print(
        "Scores in the baseline → now. In %: the share of judgements scored, of the propositions this judge can score at all."
    )


def _tags(card: Card) -> str:
    """What the messages of the candidate are tagged with."""
    return "; ".join(sorted({tag_words(run) for run in card.compared.candidate.values()} - {""}))


def _scores(move: DimensionMove | None) -> str:
    if move is None:
        return "–"
    scores = " → ".join("–" if score is None else decimal(score) for score in (move.baseline, move.candidate))
    shares = " → ".join(percent(share) or "–" for share in (move.baseline_share, move.candidate_share))
    return f"{scores}\n[dim]{shares.replace(' %', '', 1) if shares.count('%') > 1 else shares}[/dim]"


# -- over time
def drift_table(drawn: Sequence[Series], out: Any) -> None:
    """A table per judge and procedure, whose numbers are never mixed; then every fall in a sentence."""
    console = console_on(out)

    def judged(series: Series) -> tuple[str, str]:
        return series.judge, series.procedure

    for (judge, procedure), group in groupby(sorted(drawn, key=judged), key=judged):
        rows = sorted(group, key=lambda s: (s.agent.slug, s.schedule.name, s.dimension))
        table = _table(f"Scores by {judge_label(judge)}{'' if procedure == 'plumbline' else f', {procedure}'}, 0 to 9")
        table.add_column("Agent", overflow="fold")
        table.add_column("Dimension", no_wrap=True)
        table.add_column("Schedule", overflow="fold")
        table.add_column(f"Last {SPARKS}", no_wrap=True)
        _columns(table, "Now", "Falls")
        notes: dict[str, list[str]] = {}
        for series in rows:
            score = number(series.evaluations[-1].score)
            cells = [series.agent.slug, series.dimension, series.schedule.name, sparkline(series), score]
            table.add_row(*map(escape, cells), str(len(series.drops)))
            if series.note:
                notes.setdefault(series.note, []).append(f"{series.agent.slug} {series.dimension}")
        console.print(table)
        sentences = [_drop_text(series, drop) for series in rows for drop in series.drops]
        sentences += dict.fromkeys(filter(None, (series.newest_restart() for series in rows)))
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
        for point in series.evaluations[-most:]
    )


def _drop_text(series: Series, drop: Drop) -> str:
    since, noticed = (f"{timezone.localtime(time):%Y-%m-%d}" for time in (drop.since, drop.noticed))
    return (
        f"{series.agent.slug} {series.dimension}: fell from {drop.before:.1f} to {drop.after:.1f} since {since} "
        f"(noticed {noticed}, evaluation {drop.run})"
    )


def without_series(agents: Sequence[Agent], series_there_are: Sequence[Series]) -> dict[str, str]:
    """Slugs of the agents that have no series, each with how its newest scheduled evaluation ended."""
    shown = {series.agent.pk for series in series_there_are}
    reasons: dict[str, str] = {}
    for agent in agents:
        if agent.pk in shown:
            continue
        scheduled = EvaluationRun.objects.filter(agent=agent, schedule__isnull=False)
        last = scheduled.order_by("-created_at", "-pk").first()
        if last is None:
            reasons[agent.slug] = "measured by no schedule yet"
        elif last.overall_score is not None:
            reasons[agent.slug] = f"evaluation {last.pk}: scored, but not in what is asked for here"
        else:
            reasons[agent.slug] = last.error or f"evaluation {last.pk}: no score"
    return reasons


def drift_json(drawn: Sequence[Series], agents: Sequence[Agent] = ()) -> dict[str, Any]:
    """The object ``--json`` prints: per series its points, oldest first, and its falls; and which of `agents` have none, and why."""
    silent = without_series(agents, drawn)
    return {
        "series": [_series_json(series) for series in drawn],
        "no_series": [{"agent": slug, "reason": why} for slug, why in silent.items()],
    }


def _series_json(series: Series) -> dict[str, Any]:
    return {
        "agent": series.agent.slug,
        "schedule": series.schedule.name,
        "dimension": series.dimension,
        "judge": series.judge,
        "procedure": series.procedure,
        "points": [
            {
                "evaluation_run": point.run,
                "time": point.time.isoformat(),
                "score": point.score,
                "error": None if point.error is None else round(point.error, 4),
                "tested": point.tested,
                "restarts": point.restarts,
            }
            for point in series.evaluations
        ],
        "drops": [
            {
                "evaluation_run": drop.run,
                "noticed": drop.noticed.isoformat(),
                "since": drop.since.isoformat(),
                "before": round(drop.before, 4),
                "after": round(drop.after, 4),
            }
            for drop in series.drops
        ],
        "restarts": [
            {"evaluation_run": restart.run, "time": restart.time.isoformat(), "because": restart.because}
            for restart in series.restarts()
        ],
        **({"note": series.note} if series.note else {}),
    }


# -- by position
def position_table(profile: PositionProfile, out: Any) -> None:
    """One table per dimension that is judged message by message, with what its ends say; at most 80 columns wide."""
    console = console_on(out)
    for dimension in profile.dimensions:
        of = f"{dimension.dimension.capitalize()} of {profile.agent} by position"
        if not any(row.messages for row in dimension.bins):
            console.print(escape(f"{of}: no message was judged.\n"))
            continue
        console.print(_bins_table(f"{of}, by {judge_label(profile.judge)}", dimension))
        console.print(_change_sentence("In the same conversations", dimension.within))
        console.print(_change_sentence("Over all messages", dimension.overall))
        if dimension.trend.value is not None:
            console.print(f"Correlation of position and score (Spearman): {_value(dimension.trend, digits=2)}")
        console.print()
    if profile.not_by_position:
        console.print(f"Not by position, because judged as a whole: {', '.join(profile.not_by_position)}.")
    if profile.left_out:
        lie = counted(profile.left_out, "judged message lies", "judged messages lie")
        console.print(f"{lie} in no stretch of these, or deleted since.")


def _bins_table(title: str, dimension: PositionDimension) -> Table:
    table = _table(title)
    table.add_column("Pos.", no_wrap=True)
    _columns(table, "Score", "95 %", "Same c.", "Mess.", "Conv.", "Scored", "Unsc.")
    for row in dimension.bins:
        interval = row.score.interval
        table.add_row(
            row.name,
            with_share(number(row.score.value), row.share),
            f"{interval.low:.1f} to {interval.high:.1f}" if interval else "–",
            number(row.same.value),
            *(str(n) for n in (row.messages, row.conversations, row.counts["scored"], row.counts["unscored"])),
        )
    return table


def _change_sentence(where: str, change: PositionChange) -> str:
    if change.delta.value is None:
        return f"{where}: {change.delta.reason}."
    basis = f"{counted(change.conversations, 'conversation')}; interval over {change.resampled}"
    return (
        f"{where}: positions {change.last} against {change.first}: {_value(change.delta, sign=True)} "
        f"({basis}): {change.decision.verdict}, {change.decision.reason}."
    )


def _value(estimate: Estimate, *, sign: bool = False, digits: int = 1) -> str:
    write = signed if sign else decimal
    text = write(estimate.value or 0.0, digits)
    if estimate.interval is None:
        return f"{text} (no interval: {estimate.reason})"
    return f"{text} (95 %: {write(estimate.interval.low, digits)} to {write(estimate.interval.high, digits)})"

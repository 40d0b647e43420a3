"""The report of a build for a terminal, at most 80 columns wide. Words of agents, users and judges are never markup or control codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from agents.kit.commands import Cell, console_on, print_table
from agents.kit.text.markdown import plain
from agents.kit.text.wording import interval_text, number, signed
from evaluation.change.change import ChangeResult
from evaluation.change.examples import print_example
from evaluation.change.position import PositionProfile
from evaluation.ci.findings import Finding, Kind
from evaluation.ci.report import Report
from evaluation.ci.results import AgentResult
from evaluation.ci.verdict import CROSS, TICK
from evaluation.commands import simulations_table
from evaluation.models import COUNTED
from evaluation.runs.shares import with_share
from evaluation.wording import heading_of, judge_label

WIDTH = 80
MOST_LINES = 20
MOST_WIDE_COLUMNS = 3  # dimensions; with more of them a change is written below its score
CHANGE_SIGNS = {"drifted": "▼", "improved": "▲", "steady": "="}
# The order in which findings are printed, with the style of their verdicts.
PRINTED: tuple[tuple[tuple[Kind, ...], str], ...] = (
    (("could_not_judge", "without_passport"), "bold"),
    (("regressions", "fading", "below_threshold"), "bold red"),
    (("one_sided",), "bold yellow"),
    (("not_enough_data",), "bold yellow"),
    (("cannot_tell_yet",), "bold yellow"),
    (("hits",), "bold"),
)
SIGN_STYLES = {TICK: "bold green", CROSS: "bold red"}


def print_report(report: Report, out: Any) -> None:
    """Print that the judge is not usable where that is so, all agents, what is wrong, what is not decided, and the verdict."""
    console = _console(out)
    if report.not_usable:
        console.print(f"[bold red]{escape(report.not_usable)}[/]")
    simulations_table(report.simulations, out)
    if report.results:
        _print_scores(report, console)
    if any(result.comparison for result in report.results):
        console.print(
            "In brackets the change since the baseline: ▼ drifted, ▲ improved, = steady, ? possibly drifted or not enough "
            "data.\n"
        )
    for kinds, style in PRINTED:
        _print_findings(console, report.findings.of_kind(*kinds), style)
    for profile in report.profiles.values():
        position_table(profile, out)
    _print_notes(report, console)
    console.print(report.counts_line)
    for note in report.passport_notes:
        console.print(escape(note))
    if report.spent_line:
        console.print(report.spent_line)
    if report.unusable:
        console.print(escape(report.unusable))
    style = SIGN_STYLES.get(report.sign, "bold yellow")
    headline = report.findings.headline
    console.print(f"[{style}]{report.sign} {report.outcome}[/]: {headline} (exit code {report.exit_code})")


def _console(out: Any) -> Console:
    console = console_on(out)
    console.width = min(console.width, WIDTH)
    return console


def _print_scores(report: Report, console: Console) -> None:
    """Print a row per agent and a column per dimension; with many columns the change stands below the score."""
    console.print(f"Judged by {escape(judge_label(report.judge))}, 0 to 9, higher is better")
    dimensions = report.dimensions
    narrow = len(dimensions) > MOST_WIDE_COLUMNS
    between = "\n" if narrow else " "
    rows: list[list[Cell]] = []
    for result in report.results:
        scores = [score_and_change(result, name, between=between) for name in dimensions]
        rows.append([result.agent, *scores])
    headings = [f">{heading_of(name, narrow=narrow)}" for name in dimensions]  # ">": aligned to the right
    print_table(console, ["Agent", *headings], rows, tight=True, unwrapped=("Agent",))
    console.print("In %: the share of judgements scored, of the propositions this judge can score at all.")


def score_and_change(result: AgentResult, dimension: str, *, between: str = " ") -> str:
    """Return the score with the share scored, and the change with its sign, e.g. ``2.9 · 100 % (−5.1▼)``.

    The sign is one of `CHANGE_SIGNS`, ``?`` where nothing is decided; a count has none. Without a score it is a dash, without change.

    Args:
        between: What stands between the score and the change.
    """
    score = result.score(dimension)
    change = result.change(dimension)
    if score is None:
        text = "–"
    elif dimension in COUNTED:
        text = f"{score:.0f}"
    else:
        text = number(score)
    text = with_share(text, result.share(dimension))
    if score is None or change is None or change.delta is None:
        return text
    sign = "" if change.counted else CHANGE_SIGNS.get(change.verdict, "?")
    return f"{text}{between}({signed(change.shown_points)}{sign})"


def _print_findings(console: Console, findings: Sequence[Finding], style: str) -> None:
    """Print a line per finding, 20 at most, and the messages that show it; what was asked and said is printed in full only once."""
    already_shown: set[str] = set()
    for finding in findings[:MOST_LINES]:
        figures = escape(plain(finding.figures, 1_000))
        console.print(f"[{style}]{finding.verdict}:[/] {escape(finding.name)}: {figures}")
        if finding.worst is None:
            continue
        for message in (finding.worst, *finding.messages):
            print_example(message, console, skip=already_shown)
            already_shown |= {message.asked, message.text}
    if len(findings) > MOST_LINES:
        console.print(f"… and {len(findings) - MOST_LINES} more; --json holds all")
    if findings:
        console.print()


def _print_notes(report: Report, console: Console) -> None:
    """Print what a reader must know of the comparisons, then who was not compared and who has no score."""
    without_score = report.without_score()
    groups = (
        ("note", report.notes()),
        ("not compared", report.without_baseline()),
        ("no score", without_score),
    )
    for title, agents_by_sentence in groups:
        for sentence, agents in agents_by_sentence.items():
            console.print(f"{title}: {escape(', '.join(agents))}: {escape(plain(sentence, 1_000))}")
    if report.findings.without_baseline or without_score:
        console.print()


def position_table(profile: PositionProfile, out: Any) -> None:
    """Print a table per dimension that is judged message by message, with the change from its first to its last stretch."""
    console = _console(out)
    for name, dimension in profile.dimensions.items():
        title = f"{name.capitalize()} of {profile.agent} by position"
        if not any(row.messages for row in dimension.bins):
            console.print(escape(f"{title}: no message was judged.\n"))
            continue
        rows: list[list[Cell]] = []
        for row in dimension.bins:
            score = with_share(number(row.score), row.share)
            interval = interval_text(row.interval, sign=False)
            rows.append([row.positions, score, interval, row.messages, row.conversations, row.unscored])
        headings = ["Positions", ">Score", ">95 %", ">Messages", ">Conversations", ">Unscored"]
        print_table(console, headings, rows, title=f"{title}, by {judge_label(profile.judge)}")
        change = dimension.within
        positions = f"positions {change.last} against {change.first}"
        console.print(f"In the same conversations, {positions}: {_change_text(change)}.\n")
    if profile.not_by_position:
        console.print(f"Not by position, because judged as a whole: {', '.join(profile.not_by_position)}.")


def _change_text(change: ChangeResult) -> str:
    """Return a change with its interval and verdict, or why there is none."""
    if change.delta is None:
        return change.interval_note
    interval = f" (95 %: {interval_text(change.interval)})" if change.interval else ""
    return f"{signed(change.delta)}{interval}: {change.verdict}"

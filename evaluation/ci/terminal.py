"""The verdict in a terminal, at most 80 columns wide. Only presents."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.terminal import console_on
from evaluation.change.comparison import Change
from evaluation.change.tables import position_table
from evaluation.ci.findings import Findings, Lack, Open, WorstMessage
from evaluation.ci.gather import AgentResult
from evaluation.ci.headline import headline, outcome, sign
from evaluation.ci.limits import Limits
from evaluation.ci.notes import notes_of, without_score
from evaluation.ci.report import Report
from evaluation.ci.report_json import coverage
from evaluation.ci.spending import spent_line
from evaluation.ci.texts import plain
from evaluation.coverage import TOO_LITTLE, percent, with_share
from evaluation.models import COUNTED
from evaluation.presentation import heading_of, judge_label, number
from evaluation.simulation.output import simulations_table
from evaluation.wording import counted, interval_text, signed

WIDTH = 80
NEW_LINE = "\n"
MOST_LINES = 20


def verdict_table(report: Report, out: Any) -> None:
    """All agents, then what is wrong, then what cannot be told, then the verdict."""
    judge, results, findings, limits = report.judge, report.results, report.findings, report.limits
    console = _console(out)
    simulations_table(report.simulations, out)
    if results:
        console.print(f"Judged by {escape(judge_label(judge))}, 0 to 9, higher is better")
        console.print(_scores(results))
    if results:
        console.print("In %: the share of judgements scored, of the propositions this judge can score at all.")
    if any(result.comparison for result in results):
        console.print(
            "In brackets the change since the baseline: ▼ drifted, ▲ improved, = steady, ? not decided or not enough "
            "data.\n"
        )
    _regressions(console, findings)
    _below(console, findings)
    _lacking(console, findings.lacking)
    _undecided(console, findings.undecided, limits)
    for profile in report.by_position.values():
        position_table(profile, out)
    for note, agents in notes_of(results).items():
        console.print(f"note: {escape(', '.join(agents))}: {escape(note)}")
    for why, group in groupby(sorted(findings.without_baseline, key=itemgetter(1)), key=itemgetter(1)):
        console.print(f"not compared: {escape(', '.join(agent for agent, _ in group))}: {escape(why)}")
    silent = without_score(results, findings)
    for why, agents in silent.items():
        console.print(f"no score: {escape(', '.join(agents))}: {escape(plain(why))}")
    for found in findings.unjudged[:MOST_LINES]:
        who = " ".join(filter(None, (found.agent or "all agents", found.dimension)))
        console.print(f"[bold]not judged:[/] {escape(who)}: {escape(plain(found.why))}")
    if findings.without_baseline or findings.unjudged or silent:
        console.print()
    _counts(console, report)
    style = {"✅": "bold green", "❌": "bold red"}.get(sign(findings), "bold yellow")
    console.print(
        f"[{style}]{sign(findings)} {outcome(findings)}[/]: {headline(findings)} (exit code {findings.exit_code})"
    )


def tell(line: str, out: Any) -> None:
    """A line before the verdict, wrapped as the verdict is."""
    _console(out).print(escape(line))


def _console(out: Any) -> Console:
    console = console_on(out)
    console.width = min(console.width, WIDTH)
    return console


def _scores(results: Sequence[AgentResult]) -> Table:
    dimensions = list(dict.fromkeys(d for result in results for d in result.run.dimensions))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("Agent", max_width=16, overflow="ellipsis", no_wrap=True)
    for name in dimensions:
        table.add_column(escape(heading_of(name, narrow=len(dimensions) > 3)), justify="right", no_wrap=True)
    for result in results:
        table.add_row(escape(result.agent), *(_cell(result, name, narrow=len(dimensions) > 3) for name in dimensions))
    return table


def _cell(result: AgentResult, dimension: str, *, narrow: bool) -> str:
    """The score, the share scored and the change; of many dimensions the change on a line of its own."""
    score, change = result.score(dimension), result.change(dimension)
    text = "–" if score is None else f"{score:.0f}" if dimension in COUNTED else number(score)
    text = with_share(text, result.share(dimension))
    if score is None or change is None or change.delta is None:
        return text
    return f"{text}{NEW_LINE if narrow else ' '}({signed(change.delta)}{_sign(change)})"


def _sign(change: Change) -> str:
    if change.counted:
        return ""
    return {"drifted": "▼", "improved": "▲", "steady": "="}.get(change.verdict, "?")


def _regressions(console: Console, findings: Findings) -> None:
    shown: WorstMessage | None = None
    wholes = set()
    for found in findings.regressions[:MOST_LINES]:
        where = f"{escape(found.agent)} {found.whole.dimension}"
        if found.scope == "dimension" and where not in wholes:
            console.print(f"[bold red]worse:[/] {where}: {_fall(found.whole)}")
        wholes.add(where)
        if found.change.proposition:
            console.print(f"[bold red]worse:[/] {where}, {escape(found.change.proposition)}: {_fall(found.change)}")
        for each in found.fell_most:
            console.print(f"  fell most, none of them surely: {escape(each.proposition)}: {_fall(each)}")
        if shown is None or found.worst is None or found.worst.text != shown.text:
            _message(console, found.worst)
        shown = found.worst
    if len(findings.regressions) > MOST_LINES:
        console.print(f"… and {len(findings.regressions) - MOST_LINES} more that got worse; --json holds all")
    for f in findings.fading[:MOST_LINES]:
        console.print(
            f"[bold red]fades:[/] {escape(f.agent)} {f.dimension}: turns {f.last} against {f.first}: {signed(f.delta)} "
            f"(95 %: {signed(f.interval[0])} to {signed(f.interval[1])})"
        )
    if findings.regressions or findings.fading:
        console.print()


def _below(console: Console, findings: Findings) -> None:
    for found in findings.below[:MOST_LINES]:
        lowest = f"; lowest: {escape(found.proposition)}" if found.proposition else ""
        score = with_share(f"{found.score:.1f}", found.share)
        console.print(
            f"[bold red]below {found.threshold:g}:[/] {escape(found.agent)} {found.dimension}: {score}{lowest}"
        )
        _message(console, found.worst)
    if findings.below:
        console.print()


def _message(console: Console, worst: WorstMessage | None) -> None:
    if worst is not None:
        place = f"{escape(worst.place)} " if worst.place else ""
        console.print(f"  {place}scored {worst.score}: “{escape(plain(worst.text, 150))}”")


def _reach(change: Change) -> str:
    if change.delta is None:
        return ""
    return f" ({signed(change.delta)}{f'; 95 %: {interval_text(change.interval)}' if change.interval else ''})"


def _fall(change: Change) -> str:
    before = with_share(number(change.baseline), change.baseline_share)
    return f"{before} → {with_share(number(change.candidate), change.share)}{_reach(change)}"


def _lacking(console: Console, found: Sequence[Lack]) -> None:
    for each in found[:MOST_LINES]:
        what = f", {escape(each.proposition)}" if each.proposition else ""
        before = percent(each.before) or "–"
        shares = f" ({before} → {percent(each.now)})" if each.before else ""
        why = escape(plain(each.why).removeprefix(f"{TOO_LITTLE}: "))
        console.print(f"[bold yellow]{TOO_LITTLE}:[/] {escape(each.agent)} {each.dimension}{what}: {why}{shares}")
    if len(found) > MOST_LINES:
        console.print(f"… and {len(found) - MOST_LINES} more; --json holds all")
    if found:
        console.print()


def _undecided(console: Console, found: Sequence[Open], limits: Limits) -> None:
    """Those that fell by enough one by one; the others together, by reason."""
    serious = [
        o for o in found if o.suspected or (o.change.delta is not None and o.change.delta <= -limits.regression_delta)
    ]
    for each in serious[:MOST_LINES]:
        change = each.change
        word = "suspected regression" if each.suspected else change.verdict
        console.print(
            f"[bold yellow]{word}:[/] {escape(each.agent)} {change.dimension}: {_fall(change)}: {escape(each.why)}"
        )
    rest = sorted((o for o in found if o not in serious), key=_ground)
    for (verdict, dimension, reason), group in groupby(rest, key=_ground):
        names = ", ".join(
            o.agent + (f" ({o.change.n_more:,} more {o.change.unit})" if o.change.n_more else "") for o in group
        )
        why = f": {escape(reason)}" if reason else ""
        console.print(f"[bold yellow]{verdict}:[/] {dimension} of {escape(names)}{why}")
    if found:
        console.print()


def _ground(found: Open) -> tuple[str, str, str]:
    change = found.change
    return change.verdict, change.dimension, change.reason if change.n_more is None else ""


def complaint(report: Report, *, everything: bool) -> str:
    """The verdict for standard error; empty for a pass of which everything is known.

    Args:
        everything: All of it in plain lines, for who gets no table: also undecided comparisons.
    """
    findings = report.findings
    if not everything:
        return f"{findings.verdict}: {headline(findings)}" if findings.exit_code else ""
    lines = []
    for u in findings.unjudged:
        lines.append(f"{' '.join(filter(None, (u.agent or 'all agents', u.dimension)))}: {plain(u.why)}")
    for r in findings.regressions:
        change = r.change
        name = f"{r.whole.dimension}/{change.proposition}" if change.proposition else r.whole.dimension
        worst = f"; {r.worst.place} “{plain(r.worst.text, 100)}”" if r.worst else ""
        lines.append(f"{r.agent} {name}: {number(change.baseline)} → {number(change.candidate)}{worst}")
    for f in findings.fading:
        lines.append(f"{f.agent} {f.dimension}: fades by {signed(f.delta)} from turns {f.first} to {f.last}")
    for b in findings.below:
        lines.append(f"{b.agent} {b.dimension}: {number(b.score)} is below {b.threshold:g}")
    for lack in findings.lacking:
        name = f"{lack.dimension}/{lack.proposition}" if lack.proposition else lack.dimension
        lines.append(f"{lack.agent} {name}: {plain(lack.why)}")
    for o in findings.undecided:
        lines.append(f"{o.agent} {o.change.dimension}: {o.change.verdict}: {plain(o.why)}")
    lines += [f"{agent}: not compared: {why}" for agent, why in findings.without_baseline]
    if not lines:
        return ""
    shown = lines[:MOST_LINES] + ([f"… and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else [])
    return "\n  ".join((f"{findings.verdict}: {headline(findings)}", *shown))


def _counts(console: Console, report: Report) -> None:
    found = coverage(report.results)
    console.print(
        f"{counted(found.scored, 'judgement')} scored, {found.trivial:,} trivial, {found.failed:,} failed "
        f"({found.failed_share:.0%}), {counted(found.beyond_judge, 'needs', 'need')} an LLM judge, "
        f"{found.not_evaluable:,} not evaluable."
    )
    if line := spent_line(report):
        console.print(line)

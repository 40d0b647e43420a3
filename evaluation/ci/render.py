"""One evaluation with its verdict, for a terminal (at most 80 columns), a pull request (Markdown), a build server (JUnit XML) and as JSON.

Words of agents, users and judges are data in all of them: never markup, mentions or control codes.
"""

from __future__ import annotations

import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.markup import escape

from agents.commands import Cell, console_on, markdown_table, print_table
from agents.llm.endpoints import provider_of
from evaluation.change.comparison import Comparison
from evaluation.change.position import PositionProfile, position_profile
from evaluation.change.tables import position_table
from evaluation.ci.measure import AgentResult, Coverage
from evaluation.ci.verdict import OVERALL, Findings, Limits, Row, decide, why_no_score
from evaluation.commands import simulations_table
from evaluation.models import COUNTED, Dimension, EvaluationRun, is_heuristic
from evaluation.runs.estimate import SimulationEstimate, spending_json, spent_on
from evaluation.runs.execute import as_json
from evaluation.runs.summary import Spending, Used, with_share
from evaluation.scorers.windows import Bin
from evaluation.simulation.conversations import Simulation, simulations_json
from evaluation.wording import counted, heading_of, judge_label, money, number, signed

MOST_NAMED = 5  # propositions in one note
VISIBLE = 0.05  # points: less does not show in a score with one decimal
SCRIPTED_FLUENCY = (
    "fluency: the offline actor says the persona's few sample lines again and again; "
    "the score shows that, and not how a model would speak"
)
Grouped = dict[str, list[str]]  # by sentence the agents it holds for


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was measured, what it was held to, and the verdict.

    Attributes:
        profiles: Per agent its scores by position; empty unless asked for.
        simulations: What was simulated to be measured; empty for real speech.
        estimate: What judging was estimated to need; None where the judge costs nothing.
    """

    judge: str
    results: tuple[AgentResult, ...]
    findings: Findings
    limits: Limits
    profiles: Mapping[str, PositionProfile]
    simulations: tuple[Simulation, ...] = ()
    estimate: Spending | None = None

    @cached_property
    def coverage(self) -> Coverage:
        """Of all agents; a channel that several of them spoke in counts for each."""
        return sum((part for result in self.results for part in result.coverage.values()), Coverage())

    @cached_property
    def actual(self) -> Used:
        """What judging really used, over all agents and channels, each once."""
        return spent_on(result.captured.summary for result in self.results)

    @property
    def counts_line(self) -> str:
        judged = self.coverage
        return (
            f"{counted(judged.scored, 'judgement')} scored, {judged.trivial:,} trivial, {judged.failed:,} failed "
            f"({judged.failed_share:.0%} of what this judge could judge), {counted(judged.needs_llm_judge, 'needs', 'need')} an LLM judge, "
            f"{judged.not_evaluable:,} not evaluable."
        )

    @property
    def spent_line(self) -> str:
        """What judging used, beside the estimate where there was one; empty when nothing was asked over a network."""
        if self.estimate is None and not self.actual.input_tokens:
            return ""
        share = self.actual.cache_read_share
        cached = f", {share:.0%} of the tokens in from the prompt cache" if share else ""
        before = f"estimated {_amounts(self.estimate)}; " if self.estimate else ""
        return f"Judging: {before}used {_amounts(self.actual)}{cached}."

    @property
    def json(self) -> str:
        """The object as text, ending with a line break."""
        return json.dumps(_document(self), ensure_ascii=False, indent=2) + "\n"

    def notes(self) -> Grouped:
        """What a reader of the comparisons must know beside the numbers."""
        notes: Grouped = {}
        for result in self.results:
            run, comparison = result.run, result.comparison
            if run.simulated and is_heuristic(run.actor_model) and result.score(Dimension.FLUENCY) is not None:
                notes.setdefault(SCRIPTED_FLUENCY, []).append(result.agent)
            for note in (*comparison.notes, *_left_out(result, comparison)) if comparison else ():
                notes.setdefault(note, []).append(result.agent)
        return notes

    def without_baseline(self) -> Grouped:
        """By reason the agents that were not compared."""
        grouped: Grouped = {}
        for agent, why in self.findings.without_baseline:
            grouped.setdefault(why, []).append(agent)
        return grouped

    def without_score(self) -> Grouped:
        """By reason the agents, or agents' dimensions, that have no score and are in no finding."""
        named = {(u.agent, u.dimension) for u in self.findings.could_not_judge}
        named |= {(lack.agent, lack.dimension) for lack in self.findings.not_enough_data if not lack.proposition}
        grouped: Grouped = {}
        for result in self.results:
            agent, dimensions = result.agent, result.run.dimensions
            if (agent, "") in named:
                continue
            reasons = {d: why_no_score(result, d) for d in dimensions if result.score(d) is None}
            if result.summary.measured:
                whys = [f"{d}: {why}" for d, why in reasons.items() if (agent, d) not in named]
            else:
                whys = [result.run.error or "; ".join(dict.fromkeys(reasons.values())) or "nothing to judge"]
            for why in whys:
                grouped.setdefault(why, []).append(agent)
        return grouped


def make_report(
    judge: str,
    results: Sequence[AgentResult],
    limits: Limits,
    *,
    bins: Sequence[Bin] = (),
    simulations: Sequence[Simulation] = (),
    estimate: Spending | None = None,
) -> Report:
    """Decide, and put everything together; with `bins` also by turn, for agents whose run is complete."""
    profiles = {
        result.agent: position_profile(result.run, bins, margin=limits.margin)
        for result in results
        if bins and result.run.status == EvaluationRun.Status.COMPLETED
    }
    return Report(
        judge=judge,
        results=tuple(results),
        findings=decide(results, limits, profiles=list(profiles.values()), simulations=simulations),
        limits=limits,
        profiles=profiles,
        simulations=tuple(simulations),
        estimate=estimate,
    )


def estimate_line(estimate: Spending) -> str:
    """Before any call, e.g. ``Estimate: 524 calls, 2,032,851 tokens in, 606,160 out, $0.5064``."""
    return f"Estimate: {_amounts(estimate)} (if nothing was judged before)"


def simulations_line(simulations: Sequence[SimulationEstimate]) -> str:
    """Before a simulation begins; empty where no actor is paid."""
    paid = [one for one in simulations if provider_of(one.actor_model) == "anthropic"]
    if not paid:
        return ""
    costs = [one.cost_usd for one in paid]
    cost = money(None if None in costs else sum((c for c in costs if c is not None), Decimal(0)))
    lines, calls = sum(one.lines for one in paid), sum(one.calls for one in paid)
    return f"Estimate of the simulation: {counted(lines, 'line')} said to agents, {counted(calls, 'call')}, {cost}"


def _amounts(spending: Spending) -> str:
    cost = money(spending.cost_usd, spending.unpriced_calls if isinstance(spending, Used) else 0)
    return f"{counted(spending.calls, 'call')}, {spending.input_tokens:,} tokens in, {spending.output_tokens:,} out, {cost}"


def _left_out(result: AgentResult, comparison: Comparison) -> Iterator[str]:
    """Where a score and its change are not over the same propositions: the comparable scores, and what is in one only."""
    for change in comparison.dimensions:
        name = change.dimension
        pairs = (change.candidate, result.score(name)), (change.baseline, comparison.baseline.scores.get(name))
        if change.counted or change.delta is None or change.baseline is None or change.candidate is None:
            continue
        if all(here is None or there is None or abs(here - there) < VISIBLE for here, there in pairs):
            continue
        asked = comparison.candidate.proposition_scores.get(name, {})
        scored = [proposition for proposition, score in asked.items() if score is not None]
        common = [c for c in comparison.propositions.get(name, ()) if c.delta is not None]
        scores = f"{change.baseline:.1f} → {change.candidate:.1f}"
        parts = [f"{name}: the change is over {len(common)} of {len(scored)} propositions, {scores}"]
        for what, names in (
            ("only now", comparison.only_candidate),
            ("only before", comparison.only_baseline),
            ("scored in one only", comparison.scored_in_one),
            ("reworded", comparison.changed),
        ):
            of = [one.partition("/")[2] for one in names if one.startswith(f"{name}/")]
            if of:
                more = f" and {len(of) - MOST_NAMED} more" if len(of) > MOST_NAMED else ""
                parts.append(f"{what}: {', '.join(of[:MOST_NAMED])}{more}")
        yield "; ".join(parts)


# -- as JSON
def _document(report: Report) -> dict[str, Any]:
    """The shape of `capture_baseline --json` with what was compared beside every dimension; a later `--baseline` reads it."""
    document = as_json(report.judge, [result.captured for result in report.results])
    for entry, result in zip(document["runs"], report.results, strict=True):
        for name, dimension in entry["dimensions"].items():
            dimension |= _compared(result, name)
        comparison = result.comparison
        entry |= {
            "procedure": result.run.procedure,
            "repeats": result.run.repeats,
            "baseline": comparison.baseline.name if comparison else None,
            "baseline_notes": list(comparison.notes) if comparison else list(filter(None, [result.no_baseline])),
            "persona_changed": bool(comparison and comparison.stale),
            "persona_changes": list(comparison.persona_changes) if comparison else [],
        }
        if result.agent in report.profiles:
            entry["by_position"] = report.profiles[result.agent].model_dump()
    return {
        **document,
        **simulations_json(report.simulations),
        "spending": spending_json(report.estimate, report.actual),
        **report.findings.model_dump(mode="json"),
        "summary": _summary(report, [*document["runs"], *document.get("channels", [])]),
    }


def _compared(result: AgentResult, dimension: str) -> dict[str, Any]:
    """What is known of one dimension beyond its score."""
    change = result.change(dimension)
    propositions = result.comparison.propositions.get(dimension, ()) if result.comparison else ()
    compared: dict[str, Any] = dict.fromkeys(("baseline", "delta", "interval", "verdict"))
    if change is not None:
        compared = change.model_dump()
        del compared["coverage"]  # the dimension has it
        compared["comparable_score"] = compared.pop("candidate")  # not the score where propositions differ
    why = result.coverage.get(dimension, Coverage()).model_dump(exclude={"scored", "trivial"})
    changes = {"changes": {c.proposition: c.model_dump() for c in propositions}} if propositions else {}
    return {**compared, "unscored_because": why, **changes}


def _summary(report: Report, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts, shares, what was held to, and the verdict."""
    results, findings, limits, judged = report.results, report.findings, report.limits, report.coverage
    changes = [c for result in results if result.comparison for c in result.comparison.dimensions if not c.counted]
    verdicts: Counter[str] = Counter(c.verdict for c in changes)
    costs = [Decimal(str(part["cost_usd"])) for part in parts if part["cost_usd"] is not None]
    procedures = sorted({result.run.procedure for result in results})
    counted_verdicts = ("steady", "improved", "drifted", "possibly drifted", "not enough data")
    return {
        "verdict": findings.verdict,
        "exit_code": findings.exit_code,
        "judge": report.judge,
        "heuristic": is_heuristic(report.judge),
        "procedure": procedures[0] if len(procedures) == 1 else procedures,
        "agents": len(results),
        "judgements": {**judged.model_dump(), "unscored": judged.unscored},
        "failed_share": round(judged.failed_share, 4),
        "compared": {
            "dimensions": len(changes),
            **{name.replace(" ", "_"): verdicts[name] for name in counted_verdicts},
        },
        "without_baseline": [agent for agent, _ in findings.without_baseline],
        "limits": {
            **{name: getattr(limits, name) for name in ("regression_delta", "margin", "max_unscored", "strict")},
            "thresholds": {name or "all": value for name, value in limits.thresholds.items()},
        },
        **{name: sum(part[name] for part in parts) for name in ("calls", "tokens", "unpriced_calls")},
        "cost_usd": float(sum(costs)) if costs or not parts else None,
    }


WIDTH = 80
MOST_LINES = 20
MARKER = "<!-- plumbline -->"  # what the workflow finds its own comment by
MOST_CHARACTERS = 60_000  # a comment on GitHub holds 65,536
MOST_ROWS = 30
STYLES = {"unjudged": "bold", "fails": "bold red", "lacks": "bold yellow", "open": "bold yellow"}

_WORD_JOINER = "\u2060"
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAKS = re.compile(r"\s+")


# -- other people's words
def plain(text: str, limit: int = 240) -> str:
    """One line without control, direction-changing and invisible characters, cut at `limit`."""
    line = _BREAKS.sub(" ", text).strip()
    line = "".join(c for c in line if c == "\u200d" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def as_code(text: str, limit: int = 240) -> str:
    """For a comment on GitHub or GitLab, also in a table cell: code, which mentions and links nothing.

    Everything but letters, digits and spaces is written as a character reference, which Markdown never reads as structure; a mark
    that could mention or refer is also parted from what follows it.
    """

    def reference(c: str) -> str:
        return c if c.isalnum() or c == " " else f"&#{ord(c)};{_WORD_JOINER if c in '@#' else ''}"

    shown = "".join(map(reference, plain(text, limit)))
    return f"<code>{shown}</code>" if shown else ""


def as_xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold; escaping is the writer's."""
    return _NOT_IN_XML.sub("\ufffd", text)


def _line(row: Row, limit: int = 240) -> str:
    """A finding in a line, with its lowest message, e.g. ``8.0 → 2.9, −5.1; lowest #office 7 “Fine.”``."""
    worst = f"; lowest {row.worst.place} “{plain(row.worst.text, 100)}”" if row.worst else ""
    return plain(f"{row.figures}{worst}", limit)


# -- terminal
def print_report(report: Report, out: Any) -> None:
    """All agents, then what is wrong, then what is not decided, then the verdict."""
    results, findings = report.results, report.findings
    console = _console(out)
    simulations_table(report.simulations, out)
    if results:
        console.print(f"Judged by {escape(judge_label(report.judge))}, 0 to 9, higher is better")
        _print_scores(console, results)
        console.print("In %: the share of judgements scored, of the propositions this judge can score at all.")
    if any(result.comparison for result in results):
        console.print(
            "In brackets the change since the baseline: ▼ drifted, ▲ improved, = steady, ? possibly drifted or not enough "
            "data.\n"
        )
    rows = findings.rows()
    for level in ("unjudged", "fails", "lacks"):
        _print_rows(console, [row for row in rows if row.level == level])
    _print_open(console, report)
    for profile in report.profiles.values():
        position_table(profile, out)
    silent = report.without_score()
    for title, grouped in (("note", report.notes()), ("not compared", report.without_baseline()), ("no score", silent)):
        for why, agents in grouped.items():
            console.print(f"{title}: {escape(', '.join(agents))}: {escape(plain(why, 1_000))}")
    if findings.without_baseline or silent:
        console.print()
    console.print(report.counts_line)
    if report.spent_line:
        console.print(report.spent_line)
    style = {"✅": "bold green", "❌": "bold red"}.get(findings.sign, "bold yellow")
    console.print(
        f"[{style}]{findings.sign} {findings.outcome}[/]: {findings.headline} (exit code {findings.exit_code})"
    )


def print_line(line: str, out: Any) -> None:
    """A line before the report, wrapped as the report is."""
    _console(out).print(escape(line))


def complaint(report: Report, *, everything: bool) -> str:
    """The verdict for standard error; empty for a pass of which everything is known."""
    findings = report.findings
    head = f"{findings.verdict}: {findings.headline}"
    if not everything:
        return head if findings.exit_code else ""
    lines = [f"{row.verdict}: {row.name}: {_line(row)}" for row in (*findings.rows(), *findings.open_rows())]
    lines += [f"not compared: {agent}: {why}" for agent, why in findings.without_baseline]
    more = [f"… and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return "\n  ".join((head, *lines[:MOST_LINES], *more)) if lines else ""


def _console(out: Any) -> Console:
    console = console_on(out)
    console.width = min(console.width, WIDTH)
    return console


def _print_scores(console: Console, results: Sequence[AgentResult]) -> None:
    dimensions = _dimensions(results)
    narrow = len(dimensions) > 3
    rows = [
        [plain(result.agent, 16), *(_cell(result, name, between="\n" if narrow else " ") for name in dimensions)]
        for result in results
    ]
    heads = ["Agent", *(f">{heading_of(name, narrow=narrow)}" for name in dimensions)]
    print_table(console, heads, rows, tight=True, unwrapped=("Agent",))


def _dimensions(results: Sequence[AgentResult]) -> list[str]:
    return list(dict.fromkeys(d for result in results for d in result.run.dimensions))


def _cell(result: AgentResult, dimension: str, *, between: str) -> str:
    """The score, the share scored, and the change with its sign."""
    score, change = result.score(dimension), result.change(dimension)
    text = "–" if score is None else f"{score:.0f}" if dimension in COUNTED else number(score)
    text = with_share(text, result.share(dimension))
    if score is None or change is None or change.delta is None:
        return text
    sign = "" if change.counted else {"drifted": "▼", "improved": "▲", "steady": "="}.get(change.verdict, "?")
    return f"{text}{between}({signed(change.delta)}{sign})"


def _print_rows(console: Console, rows: Sequence[Row]) -> None:
    shown = ""
    for row in rows[:MOST_LINES]:
        figures = escape(plain(row.figures, 1_000))
        console.print(f"[{STYLES[row.level]}]{row.verdict}:[/] {escape(row.name)}: {figures}")
        if row.worst and row.worst.text != shown:
            place = f"{escape(row.worst.place)} " if row.worst.place else ""
            console.print(f"  {place}scored {row.worst.score}: “{escape(plain(row.worst.text, 150))}”")
        shown = row.worst.text if row.worst else shown
    if len(rows) > MOST_LINES:
        console.print(f"… and {len(rows) - MOST_LINES} more; --json holds all")
    if rows:
        console.print()


def _print_open(console: Console, report: Report) -> None:
    """The undecided comparisons that fell by enough, one by one; the others together, by dimension and reason."""
    serious: list[Row] = []
    others: dict[tuple[str, str, str], list[str]] = {}
    for finding in report.findings.cannot_tell_yet:
        change = finding.change
        if finding.suspected or (change.delta is not None and change.delta <= -report.limits.regression_delta):
            serious += finding.rows
            continue
        more = f" ({change.n_more:,} more {change.unit})" if change.n_more else ""
        why = f": {change.reason}" if change.n_more is None and change.reason else ""
        others.setdefault((change.verdict, change.dimension, why), []).append(f"{finding.agent}{more}")
    _print_rows(console, serious)
    for (verdict, dimension, why), agents in others.items():
        console.print(f"[bold yellow]{verdict}:[/] {dimension} of {escape(', '.join(agents))}{escape(why)}")
    if others:
        console.print()


# -- Markdown
def markdown(report: Report) -> str:
    """One comment on a pull request."""
    results, findings, limits = report.results, report.findings, report.limits
    heuristic = " (*heuristic*: exact rules and word cues, no LLM)" if is_heuristic(report.judge) else ""
    rows, undecided = findings.rows(), findings.open_rows()
    worst = {
        (r.agent, r.worst.text): f"* {as_code(r.agent)} {as_code(r.proposition or r.dimension)} scored {r.worst.score}"
        f"{f' at {as_code(r.worst.place)}' if r.worst.place else ''}: {as_code(r.worst.text)}"
        f"{f'<br>{as_code(r.worst.reasoning, 300)}' if r.worst.reasoning else ''}"
        for r in reversed(rows)
        if r.worst is not None
    }
    how = [
        "Scores are 0 to 9, higher is better; ideas are counted. The percentage is the share of the judgements that were scored, "
        "of the propositions this judge can score at all.",
        report.counts_line,
        f"A regression is a fall of {limits.regression_delta:g} points or more that is sure among all that was compared (95 %, Holm). "
        f"A change within ±{limits.margin:g} is none.",
        *([f"Least scores: {limits}."] if limits.thresholds else []),
    ]
    parts = [
        MARKER,
        f"### {findings.sign} Persona check: {findings.outcome}",
        f"{counted(len(results), 'agent')}, judged by {as_code(report.judge)}{heuristic}. {findings.headline}",
        _finding_grid(rows),
        _details("Lowest-scored messages", reversed(worst.values())),
        _details(f"Cannot tell yet: {len(undecided)}", [_finding_grid(undecided)]),
        _details(f"Without a baseline: {len(findings.without_baseline)}", _bullets(report.without_baseline())),
        _details("All scores", _all_scores(results)),
        _details("By position", _by_position(list(report.profiles.values()))),
        _details("Notes on the comparison", _bullets(report.notes())),
        _details("Without a score", _bullets(report.without_score())),
        report.spent_line,
        _details("How it was measured", [f"* {line}" for line in how]),
    ]
    return shortened("\n\n".join(part for part in parts if part) + "\n")


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """The comment, cut between two lines with a note where it is longer than `most` and the note; what is folded is closed again."""
    if len(text) <= most:
        return text
    start = text[:most].rpartition("\n")[0]
    closed = "\n\n</details>" * (start.count("<details>") - start.count("</details>"))
    cut = f"*Cut: {len(text) - len(start):,} of {len(text):,} characters; the JSON report holds all.*"
    return f"{start}{closed}\n\n{cut}\n"


def _finding_grid(rows: Sequence[Row]) -> str:
    head = ["Agent", "Dimension", "Proposition", "Baseline", "Now", "Change (95 %)", "Verdict"]
    cells: list[list[Cell]] = [
        [
            as_code(row.agent) or "all agents",
            row.dimension or "all",
            as_code(row.proposition) or "all",
            row.before,
            row.now,
            row.change.replace("95 %: ", ""),
            f"**{row.verdict}**{f': {as_code(row.why)}' if row.why else ''}",
        ]
        for row in rows
    ]
    return "\n".join(_grid(head, cells))


def _all_scores(results: Sequence[AgentResult]) -> list[str]:
    dimensions = _dimensions(results)
    rows: list[list[Cell]] = [
        [
            as_code(result.agent),
            with_share(number(result.summary.overall_score), result.summary.share),
            *(_cell(result, dimension, between=" ") for dimension in dimensions),
            sum(coverage.unscored for coverage in result.coverage.values()),
        ]
        for result in results
    ]
    return _grid(["Agent", "Overall", *dimensions, "Unscored"], rows, most=len(rows))


def _by_position(profiles: Sequence[PositionProfile]) -> list[str]:
    dimensions = [(profile.agent, dimension) for profile in profiles for dimension in profile.dimensions.values()]
    bins = [f"Positions {row.positions}" for row in dimensions[0][1].bins] if dimensions else []
    rows: list[list[Cell]] = [
        [
            as_code(agent),
            dimension.dimension,
            *(with_share(number(row.score), row.share) for row in dimension.bins),
            dimension.within.verdict,
        ]
        for agent, dimension in dimensions
    ]
    return _grid(["Agent", "Dimension", *bins, "In the same conversations"], rows)


def _bullets(grouped: Mapping[str, Sequence[str]]) -> list[str]:
    lines = [f"* {as_code(', '.join(agents))}: {as_code(why, 400)}" for why, agents in grouped.items()]
    return [*lines[:MOST_ROWS], *_more(len(lines))]


def _grid(head: Sequence[str], rows: Sequence[Sequence[Cell]], most: int = MOST_ROWS) -> list[str]:
    """A table of clean cells, cut at `most` rows; nothing without any."""
    return [*markdown_table(head, rows[:most]), *(_more(len(rows)) if len(rows) > most else [])] if rows else []


def _more(n: int) -> list[str]:
    return ["", f"… and {n - MOST_ROWS} more"] if n > MOST_ROWS else []


def _details(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


# -- JUnit
def junit(report: Report) -> str:
    """Return an XML document with a case per agent and dimension: ``failure`` for a regression or a score below its threshold, ``error``
    for what could not be judged enough, ``skipped`` for what is not evaluable."""
    suites = ET.Element("testsuites", {"name": "plumbline"})
    rows = report.findings.rows()
    for result in report.results:
        suite = ET.SubElement(suites, "testsuite", {"name": as_xml(result.agent)})
        properties = ET.SubElement(suite, "properties")
        for name, value in (("judge", judge_label(report.judge)), ("procedure", result.run.procedure)):
            ET.SubElement(properties, "property", {"name": name, "value": as_xml(value)})
        own = [row for row in rows if row.agent == result.agent]
        overall = [OVERALL] if any(row.dimension == OVERALL for row in own) else []
        for name in (*result.run.dimensions, *overall):
            case = ET.SubElement(suite, "testcase", {"name": name, "classname": f"plumbline.{as_xml(result.agent)}"})
            _outcome(case, [row for row in own if row.dimension in ("", name)], strict=report.limits.strict)
            if not len(case) and name != OVERALL and result.score(name) is None:
                _fail(case, "skipped", why_no_score(result, name))
            if note := _note(result, name):
                ET.SubElement(case, "system-out").text = as_xml(note)
    nothing = next((finding.why for finding in report.findings.could_not_judge if not finding.agent), "")
    if nothing or not report.results:
        suite = ET.SubElement(suites, "testsuite", {"name": "plumbline"})
        case = ET.SubElement(suite, "testcase", {"name": "anything measured", "classname": "plumbline"})
        _fail(case, "error", nothing or "no agents")
    for element in (suites, *suites):
        cases = list(element.iter("testcase"))
        element.set("tests", str(len(cases)))
        for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            element.set(plural, str(sum(case.find(kind) is not None for case in cases)))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _outcome(case: ET.Element, rows: Sequence[Row], *, strict: bool) -> None:
    """Add what is wrong with a dimension, what weighs most first; nothing when it passes."""
    for level, kind in (("unjudged", "error"), ("fails", "failure"), ("lacks", "error" if strict else "skipped")):
        lines = [
            f"{f'{row.proposition}: ' if row.proposition else ''}{row.verdict}: {_line(row, 1_000)}"
            for row in sorted(rows, key=lambda row: row.worst is None)
            if row.level == level
        ]
        if lines:
            return _fail(case, kind, *lines)
    return None


def _fail(case: ET.Element, kind: str, *lines: str) -> None:
    element = ET.SubElement(case, kind, {"message": as_xml(plain(lines[0], 500))})
    if kind != "skipped":
        element.set("type", "regression" if kind == "failure" else "unjudged")
        element.text = as_xml("\n".join(lines))


def _note(result: AgentResult, dimension: str) -> str:
    score, change = result.score(dimension), result.change(dimension)
    if score is None:
        return ""
    shown = with_share(f"{score:.2f}", result.share(dimension))
    if change is None:
        return f"{shown}; not compared: {result.no_baseline or 'no baseline in this dimension'}"
    delta = "" if change.delta is None else f" ({signed(change.delta, 2)})"
    return f"{shown}{delta}: {change.verdict}, {change.reason}"

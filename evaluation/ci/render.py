"""One evaluation with its verdict, for a terminal (at most 80 columns), a pull request (Markdown), a build server (JUnit XML) and as JSON.

Words of agents, users and judges are data in all of them: never markup, mentions or control codes.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.markup import escape

from agents.kit.commands import REGRESSION, UNUSABLE, Cell, console_on, markdown_table, print_table
from agents.kit.text.markdown import as_code, as_text, plain
from agents.kit.text.wording import counted, interval_text, number, signed
from evaluation.calibration.agreement import trust_notes_of
from evaluation.change.comparison import Comparison
from evaluation.change.examples import print_example
from evaluation.change.measurement_files import as_json
from evaluation.change.position import PositionProfile, position_profile
from evaluation.ci.verdict import (
    FAILS,
    OVERALL,
    AgentResult,
    Coverage,
    Finding,
    Findings,
    Kind,
    Limits,
    decide,
)
from evaluation.commands import simulations_table, spent_line
from evaluation.models import COUNTED, EvaluationRun, is_heuristic
from evaluation.runs.summary import Spending, Used, spending_json, spent_on, with_share
from evaluation.scorers.subjects import Bin
from evaluation.simulation.conversations import Simulation, simulations_json
from evaluation.wording import heading_of, judge_label

VISIBLE = 0.05  # points: less does not show in a score with one decimal
WIDTH = 80
MOST_LINES = 20
MARKER = "<!-- plumbline -->"  # what the workflow finds its own comment by
MOST_CHARACTERS = 60_000  # a comment on GitHub holds 65,536
MOST_ROWS = 30
MOST_NAMED = 3  # agents whose propositions are named in a note
STYLES: dict[Kind, str] = {
    "could_not_judge": "bold",
    **dict.fromkeys(FAILS, "bold red"),
    **dict.fromkeys(("not_enough_data", "one_sided", "cannot_tell_yet"), "bold yellow"),
    "hits": "bold",
}
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Grouped = dict[str, list[str]]  # by sentence the agents it holds for


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was measured, what it is held to, and the verdict.

    Attributes:
        bins: Stretches to tell apart by position; empty unless asked for.
        simulations: What was simulated to be measured; empty for real speech.
        estimate: What judging was estimated to need; None where the judge costs nothing.
        unusable: Whose proposition files cannot be used, with file, line and field: these agents are not in the results.
    """

    judge: str
    results: Sequence[AgentResult]
    limits: Limits
    bins: Sequence[Bin] = ()
    simulations: Sequence[Simulation] = ()
    estimate: Spending | None = None
    unusable: str = ""

    @cached_property
    def profiles(self) -> dict[str, PositionProfile]:
        """The scores by position of each agent whose run is complete, where that was asked for."""
        return {
            result.agent: position_profile(result.run, self.bins, margin=self.limits.margin)
            for result in self.results
            if self.bins and result.run.status == EvaluationRun.Status.COMPLETED
        }

    @cached_property
    def findings(self) -> Findings:
        profiles = list(self.profiles.values())
        return decide(self.results, self.limits, profiles=profiles, simulations=self.simulations)

    @property
    def exit_code(self) -> int:
        """The code of the verdict; 3 where files of some agents cannot be used, unless something is worse among the others."""
        if self.unusable and self.findings.exit_code != REGRESSION:
            return UNUSABLE
        return self.findings.exit_code

    @property
    def sign(self) -> str:
        """What is seen first: no tick where agents are left out."""
        if self.unusable and self.findings.sign == "✅":
            return "⚠️"
        return self.findings.sign

    @property
    def outcome(self) -> str:
        """What was found, and whether agents are left out."""
        if self.unusable:
            return f"{self.findings.outcome}, but not of all agents"
        return self.findings.outcome

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
        return spent_line(self.estimate, self.actual)

    @property
    def json(self) -> str:
        """The object as text, ending with a line break."""
        return json.dumps(_document(self), ensure_ascii=False, indent=2) + "\n"

    def notes(self) -> Grouped:
        """What a reader of the comparisons must know beside the numbers."""
        notes: Grouped = {}
        for result in self.results:
            comparison = result.comparison
            for note in (*comparison.notes, *_left_out(result, comparison)) if comparison else ():
                notes.setdefault(note, []).append(result.agent)
            if comparison and comparison.unjudged:
                few = len(self.results) <= MOST_NAMED
                names = ", ".join(comparison.unjudged) if few else "some propositions (--json names them)"
                notes.setdefault(f"nothing could be judged by: {names}", []).append(result.agent)
        return notes

    def without_baseline(self) -> Grouped:
        """By reason the agents that were not compared."""
        grouped: Grouped = {}
        for agent, why in self.findings.without_baseline:
            grouped.setdefault(why, []).append(agent)
        return grouped

    def without_score(self) -> Grouped:
        """By reason the agents, or agents' dimensions, that have no score and are in no finding."""
        lines = self.findings.of("could_not_judge", "not_enough_data", "one_sided")
        named = {(one.agent, one.dimension) for one in lines if not one.proposition}
        grouped: Grouped = {}
        for result in self.results:
            reasons = {d: result.why_no_score(d) for d in result.run.dimensions if result.score(d) is None}
            whys = [f"{d}: {why}" for d, why in reasons.items() if (result.agent, d) not in named]
            if not result.summary.measured:
                whys = [result.run.error or "; ".join(dict.fromkeys(reasons.values())) or "nothing to judge"]
            for why in whys if (result.agent, "") not in named else ():
                grouped.setdefault(why, []).append(result.agent)
        return grouped


def _left_out(result: AgentResult, comparison: Comparison) -> Iterator[str]:
    """Where a score and its change are not over the same propositions: the scores that were compared."""
    for change in comparison.dimensions:
        name = change.dimension
        before, now = comparison.baseline.dimensions[name], comparison.candidate.dimensions[name]
        pairs = (change.candidate, result.score(name)), (change.baseline, before.score)
        if change.counted or change.delta is None or change.baseline is None or change.candidate is None:
            continue
        if any(here is not None and there is not None and abs(here - there) >= VISIBLE for here, there in pairs):
            scored = [p for p in now.propositions.values() if p.score is not None]
            common = [c for c in comparison.of(name) if c.delta is not None]
            scores = f"{change.baseline:.1f} → {change.candidate:.1f}"
            yield f"{name}: the change is over {len(common)} of {len(scored)} propositions, {scores}"


# -- as JSON
def _document(report: Report) -> dict[str, Any]:
    """The shape of `capture_baseline --json` with what was compared beside every dimension; a later `--baseline` reads it."""
    document = as_json(report.judge, [result.captured for result in report.results])
    for entry, result in zip(document["runs"], report.results, strict=True):
        comparison = result.comparison
        for name, dimension in entry["dimensions"].items():
            compared: dict[str, Any] = dict.fromkeys(("baseline", "delta", "interval", "verdict"))
            if (change := result.change(name)) is not None:
                compared = change.model_dump(exclude={"share"})  # the dimension has it
                compared["comparable_score"] = compared.pop("candidate")  # not the score where propositions differ
            because = result.coverage.get(name, Coverage()).model_dump(exclude={"scored", "trivial"})
            dimension |= {**compared, "unscored_because": because}
            if name in result.lost_dimensions:
                dimension |= {"score": None, "reason": result.why_no_score(name)}
            if comparison is not None and comparison.of(name):
                dimension["changes"] = {c.proposition: c.model_dump() for c in comparison.of(name)}
        entry |= {
            "overall_score": result.overall_score,
            "procedure": result.run.procedure,
            "repeats": result.run.repeats,
            "baseline": comparison.baseline.name if comparison else None,
            "baseline_notes": list(comparison.notes) if comparison else list(filter(None, [result.no_baseline])),
            "persona_changed": bool(comparison and comparison.stale),
            "persona_changes": list(comparison.persona_changes) if comparison else [],
            "shown": [one.model_dump() for one in comparison.shown] if comparison else [],
            "missing": comparison.missing if comparison else {},
            "unjudged": list(comparison.unjudged) if comparison else [],
        }
        if result.agent in report.profiles:
            entry["by_position"] = report.profiles[result.agent].model_dump()
    findings, limits, judged = report.findings, report.limits, report.coverage
    parts = [*document["runs"], *document.get("channels", [])]
    costs = [Decimal(str(part["cost_usd"])) for part in parts if part["cost_usd"] is not None]
    changes = [change.verdict for result in report.results for change in result.changes if not change.counted]
    verdicts: Counter[str] = Counter(changes)
    procedures = sorted({result.run.procedure for result in report.results})
    summary = {
        "verdict": findings.verdict,
        "exit_code": report.exit_code,
        "unusable": report.unusable,
        "judge": report.judge,
        "heuristic": is_heuristic(report.judge),
        "procedure": procedures[0] if len(procedures) == 1 else procedures,
        "agents": len(report.results),
        "judgements": {**judged.model_dump(), "unscored": judged.unscored},
        "failed_share": round(judged.failed_share, 4),
        "compared": {
            "dimensions": len(changes),
            **{
                name.replace(" ", "_"): verdicts[name]
                for name in ("steady", "improved", "drifted", "possibly drifted", "not enough data")
            },
        },
        "without_baseline": [agent for agent, _ in findings.without_baseline],
        "limits": {
            **{name: getattr(limits, name) for name in ("regression_delta", "margin", "max_unscored", "strict")},
            "thresholds": {name or "all": value for name, value in limits.thresholds.items()},
        },
        **{name: sum(part[name] for part in parts) for name in ("calls", "tokens", "unpriced_calls")},
        "cost_usd": float(sum(costs)) if costs or not parts else None,
    }
    spending = spending_json(report.estimate, report.actual)
    simulated = simulations_json(report.simulations)
    return {**document, **simulated, "spending": spending, **findings.model_dump(mode="json"), "summary": summary}


# -- other people's words
def as_xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold; escaping is the writer's."""
    return _NOT_IN_XML.sub("\ufffd", text)


def _line(row: Finding, limit: int = 240) -> str:
    """A finding in a line, with its lowest message, e.g. ``8.0 → 2.9, −5.1; lowest #office 7 “Fine.”``."""
    worst = ""
    if row.worst:
        heard = f", after “{plain(row.worst.heard, 100)}”" if row.worst.heard else ""
        worst = f"; lowest {row.worst.place} “{plain(row.worst.text, 100)}”{heard}"
    further = "".join(f"; {one.place} “{plain(one.text, 100)}”" for one in row.messages)
    return plain(f"{row.figures}{worst}{further}", limit)


def _cell(result: AgentResult, dimension: str, *, between: str) -> str:
    """The score, the share scored, and the change with its sign."""
    score, change = result.score(dimension), result.change(dimension)
    text = "–" if score is None else f"{score:.0f}" if dimension in COUNTED else number(score)
    text = with_share(text, result.share(dimension))
    if score is None or change is None or change.delta is None:
        return text
    sign = "" if change.counted else {"drifted": "▼", "improved": "▲", "steady": "="}.get(change.verdict, "?")
    return f"{text}{between}({signed(change.delta)}{sign})"


def _dimensions(results: Sequence[AgentResult]) -> list[str]:
    return list(dict.fromkeys(d for result in results for d in result.run.dimensions))


# -- terminal
def print_report(report: Report, out: Any) -> None:
    """All agents, then what is wrong, then what is not decided, then the verdict."""
    results, findings, console = report.results, report.findings, _console(out)
    simulations_table(report.simulations, out)
    if results:
        console.print(f"Judged by {escape(judge_label(report.judge))}, 0 to 9, higher is better")
        dimensions = _dimensions(results)
        narrow = len(dimensions) > 3
        between = "\n" if narrow else " "
        rows = [
            [plain(result.agent, 16), *(_cell(result, name, between=between) for name in dimensions)]
            for result in results
        ]
        heads = ["Agent", *(f">{heading_of(name, narrow=narrow)}" for name in dimensions)]
        print_table(console, heads, rows, tight=True, unwrapped=("Agent",))
        console.print("In %: the share of judgements scored, of the propositions this judge can score at all.")
    if any(result.comparison for result in results):
        console.print(
            "In brackets the change since the baseline: ▼ drifted, ▲ improved, = steady, ? possibly drifted or not enough "
            "data.\n"
        )
    for kinds in (("could_not_judge",), FAILS, ("one_sided",), ("not_enough_data",), ("cannot_tell_yet",), ("hits",)):
        _print_findings(console, findings.of(*kinds))
    for profile in report.profiles.values():
        position_table(profile, out)
    silent = report.without_score()
    for title, grouped in (("note", report.notes()), ("not compared", report.without_baseline()), ("no score", silent)):
        for why, agents in grouped.items():
            console.print(f"{title}: {escape(', '.join(agents))}: {escape(plain(why, 1_000))}")
    if findings.without_baseline or silent:
        console.print()
    console.print(report.counts_line)
    for note in trust_notes_of([result.run for result in results]):
        console.print(escape(note))
    if report.spent_line:
        console.print(report.spent_line)
    style = {"✅": "bold green", "❌": "bold red"}.get(report.sign, "bold yellow")
    console.print(f"[{style}]{report.sign} {report.outcome}[/]: {findings.headline} (exit code {report.exit_code})")


def _console(out: Any) -> Console:
    console = console_on(out)
    console.width = min(console.width, WIDTH)
    return console


def _print_findings(console: Console, rows: Sequence[Finding]) -> None:
    shown: set[str] = set()
    for row in rows[:MOST_LINES]:
        figures = escape(plain(row.figures, 1_000))
        console.print(f"[{STYLES[row.kind]}]{row.verdict}:[/] {escape(row.name)}: {figures}")
        if row.worst:
            for message in (row.worst, *row.messages):
                print_example(message, console, skip=shown)
                shown |= {message.asked, message.text}
    if len(rows) > MOST_LINES:
        console.print(f"… and {len(rows) - MOST_LINES} more; --json holds all")
    if rows:
        console.print()


def position_table(profile: PositionProfile, out: Any) -> None:
    """One table per dimension that is judged message by message, with what its ends say; at most 80 columns wide."""
    console = _console(out)
    for name, dimension in profile.dimensions.items():
        of = f"{name.capitalize()} of {profile.agent} by position"
        if not any(row.messages for row in dimension.bins):
            console.print(escape(f"{of}: no message was judged.\n"))
            continue
        rows: list[list[Cell]] = [
            [
                *(row.positions, with_share(number(row.score), row.share), interval_text(row.interval, sign=False)),
                *(row.messages, row.conversations, row.unscored),
            ]
            for row in dimension.bins
        ]
        heads = ["Positions", ">Score", ">95 %", ">Messages", ">Conversations", ">Unscored"]
        print_table(console, heads, rows, title=f"{of}, by {judge_label(profile.judge)}")
        change = dimension.within
        reach = f" (95 %: {interval_text(change.interval)})" if change.interval else ""
        fell = f"{signed(change.delta)}{reach}: {change.verdict}" if change.delta is not None else change.interval_note
        console.print(f"In the same conversations, positions {change.last} against {change.first}: {fell}.\n")
    if profile.not_by_position:
        console.print(f"Not by position, because judged as a whole: {', '.join(profile.not_by_position)}.")


# -- Markdown
def markdown(report: Report) -> str:
    """One comment on a pull request."""
    results, findings, limits = report.results, report.findings, report.limits
    heuristic = " (*heuristic*: exact rules and word cues, no LLM)" if is_heuristic(report.judge) else ""
    rows = findings.of("could_not_judge", *FAILS, "one_sided", "not_enough_data")
    undecided = findings.of("cannot_tell_yet")
    hits = findings.of("hits")
    worst = {
        (r.agent, message.text): f"* {as_code(r.agent)}: {as_code(message.asked)} scored {message.score}"
        f"{f' at {as_code(message.place)}' if message.place else ''}: {as_code(message.text)}"
        f"{f'<br>after {as_code(message.heard)}' if message.heard else ''}"
        f"{f'<br>{as_code(message.reasoning, 300)}' if message.reasoning else ''}"
        for r in reversed(rows)
        for message in reversed([one for one in (r.worst, *r.messages) if one is not None])
    }
    dimensions = _dimensions(results)
    scores: list[list[Cell]] = [
        [
            as_code(result.agent),
            with_share(number(result.overall_score), result.summary.share),
            *(_cell(result, dimension, between=" ") for dimension in dimensions),
            sum(coverage.unscored for coverage in result.coverage.values()),
        ]
        for result in results
    ]
    how = [
        "Scores are 0 to 9, higher is better; ideas are counted. The percentage is the share of the judgements that were scored, "
        "of the propositions this judge can score at all.",
        report.counts_line,
        *(as_text(note, 1_000) for note in trust_notes_of([result.run for result in results])),
        f"A regression is a fall of {limits.regression_delta:g} points or more that is sure among all that was compared (95 %, Holm). "
        f"A change within ±{limits.margin:g} is none.",
        *([f"Least scores: {limits}."] if limits.thresholds else []),
    ]
    parts = [
        MARKER,
        f"### {report.sign} Persona check: {report.outcome}",
        f"{counted(len(results), 'agent')}, judged by {as_code(report.judge)}{heuristic}. {findings.headline}",
        "\n".join(f"* {as_code(line, 1_000)}" for line in report.unusable.splitlines()),
        "\n".join(_finding_grid(rows)),
        _details("Lowest-scored messages", reversed(worst.values())),
        _details(f"Cannot tell yet: {len(undecided)}", _finding_grid(undecided)),
        _details(f"Compared by hits, no regression: {len(hits)}", _finding_grid(hits)),
        _details(f"Without a baseline: {len(findings.without_baseline)}", _bullets(report.without_baseline())),
        _details("All scores", _grid(["Agent", "Overall", *dimensions, "Unscored"], scores, most=len(scores))),
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


def _finding_grid(rows: Sequence[Finding]) -> list[str]:
    cells: list[list[Cell]] = [
        [
            *(as_code(row.agent) or "all agents", row.dimension or "all", _asked(row)),
            *(row.before, row.now, row.change.replace("95 %: ", "")),
            f"**{row.verdict}**{f': {as_code(row.why)}' if row.why else ''}",
        ]
        for row in rows
    ]
    return _grid(["Agent", "Dimension", "Proposition", "Baseline", "Now", "Change (95 %)", "Verdict"], cells)


def _asked(row: Finding) -> str:
    """The proposition, and its sentence where it has a message."""
    if not row.proposition:
        return "all"
    return f"{as_code(row.proposition)}{f'<br>{as_code(row.worst.asked, 200)}' if row.worst else ''}"


def _by_position(profiles: Sequence[PositionProfile]) -> list[str]:
    dimensions = [(profile.agent, dimension) for profile in profiles for dimension in profile.dimensions.values()]
    bins = [f"Positions {row.positions}" for row in dimensions[0][1].bins] if dimensions else []
    rows: list[list[Cell]] = [
        [
            *(as_code(agent), dimension.dimension),
            *(with_share(number(row.score), row.share) for row in dimension.bins),
            dimension.within.verdict,
        ]
        for agent, dimension in dimensions
    ]
    return _grid(["Agent", "Dimension", *bins, "In the same conversations"], rows)


def _bullets(grouped: Grouped) -> list[str]:
    lines = [f"* {as_code(', '.join(agents))}: {as_code(why, 400)}" for why, agents in grouped.items()]
    return [*lines[:MOST_ROWS], *_more(len(lines), MOST_ROWS)]


def _grid(head: Sequence[str], rows: Sequence[Sequence[Cell]], most: int = MOST_ROWS) -> list[str]:
    """A table of clean cells, cut at `most` rows; nothing without any."""
    return [*markdown_table(head, rows[:most]), *_more(len(rows), most)] if rows else []


def _more(n: int, most: int) -> list[str]:
    return ["", f"… and {n - most} more"] if n > most else []


def _details(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


# -- JUnit
def junit(report: Report) -> str:
    """Return an XML document with a case per agent and dimension: ``failure`` for a regression or a score below its threshold, ``error``
    for what could not be judged enough, ``skipped`` for what is not evaluable; hits that are no regression are its output."""
    suites = ET.Element("testsuites", {"name": "plumbline"})
    lacking = "error" if report.limits.strict else "skipped"
    for result in report.results:
        suite = ET.SubElement(suites, "testsuite", {"name": as_xml(result.agent)})
        own = [row for row in report.findings.findings if row.agent == result.agent]
        overall = [OVERALL] if any(row.dimension == OVERALL for row in own) else []
        for name in (*result.run.dimensions, *overall):
            case = ET.SubElement(suite, "testcase", {"name": name, "classname": f"plumbline.{as_xml(result.agent)}"})
            rows = sorted((row for row in own if row.dimension in ("", name)), key=lambda row: row.worst is None)
            lost = "error" if name in result.lost_dimensions else lacking
            elements: list[tuple[str, tuple[Kind, ...]]] = [
                ("error", ("could_not_judge",)),
                ("failure", FAILS),
                (lost, ("one_sided", "not_enough_data")),
            ]
            for element, kinds in elements:  # what weighs most first
                lines = [
                    f"{f'{row.proposition}: ' if row.proposition else ''}{row.verdict}: "
                    f"{f'“{row.worst.asked}” ' if row.worst else ''}{_line(row, 1_000)}"
                    for row in rows
                    if row.kind in kinds
                ]
                if lines:
                    also = ("one_sided", "not_enough_data")
                    missing = [f"{row.verdict}: {row.figures}" for row in rows if row.kind in also]
                    _fail(case, element, *dict.fromkeys((*lines, *missing) if element == "failure" else lines))
                    break
            else:
                if name != OVERALL and result.score(name) is None:
                    _fail(case, "skipped", result.why_no_score(name))
            hits = [f"{row.proposition}: {row.verdict}: {row.figures}" for row in rows if row.kind == "hits"]
            if hits:
                ET.SubElement(case, "system-out").text = as_xml("\n".join(hits))
    nothing = next((one.why for one in report.findings.of("could_not_judge") if not one.agent), "")
    if nothing or not report.results:
        suite = ET.SubElement(suites, "testsuite", {"name": "plumbline"})
        case = ET.SubElement(suite, "testcase", {"name": "anything measured", "classname": "plumbline"})
        _fail(case, "error", nothing or "no agents")
    if report.unusable:
        suite = ET.SubElement(suites, "testsuite", {"name": "plumbline"})
        case = ET.SubElement(suite, "testcase", {"name": "proposition files", "classname": "plumbline"})
        _fail(case, "error", *report.unusable.splitlines())
    for parent in (suites, *suites):
        cases = list(parent.iter("testcase"))
        parent.set("tests", str(len(cases)))
        for kind, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            parent.set(plural, str(sum(case.find(kind) is not None for case in cases)))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _fail(case: ET.Element, kind: str, *lines: str) -> None:
    element = ET.SubElement(case, kind, {"message": as_xml(plain(lines[0], 500))})
    if kind != "skipped":
        element.set("type", "regression" if kind == "failure" else "unjudged")
        element.text = as_xml("\n".join(lines))

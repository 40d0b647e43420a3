"""The verdict as JUnit XML: one test case per agent and dimension."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from evaluation.ci.findings import Findings
from evaluation.ci.gather import AgentResult
from evaluation.ci.limits import OVERALL
from evaluation.ci.report import Report
from evaluation.ci.texts import as_xml, plain
from evaluation.ci.verdict import why_no_score
from evaluation.coverage import TOO_LITTLE, with_share
from evaluation.presentation import judge_label
from evaluation.wording import signed

KINDS = {"failure": "failures", "error": "errors", "skipped": "skipped"}
Case = tuple[str, str, str]  # kind, message, text


def junit(report: Report) -> str:
    """An XML document: ``failure`` for a regression or a score below its threshold, ``error`` for what could not be judged enough,
    ``skipped`` for what is not evaluable."""
    judge, results, findings = report.judge, report.results, report.findings
    suites = ET.Element("testsuites", {"name": "plumbline"})
    for result in results:
        _suite(suites, judge, result, report)
    if not results or any(not found.agent for found in findings.unjudged):
        suite = ET.SubElement(suites, "testsuite", {"name": "plumbline"})
        case = ET.SubElement(suite, "testcase", {"name": "anything measured", "classname": "plumbline"})
        why = next((found.why for found in findings.unjudged if not found.agent), "no agents")
        _outcome(case, ("error", why, why))
        _count(suite)
    _count(suites)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _suite(suites: ET.Element, judge: str, result: AgentResult, report: Report) -> None:
    findings = report.findings
    agent = as_xml(result.agent)
    suite = ET.SubElement(suites, "testsuite", {"name": agent})
    properties = ET.SubElement(suite, "properties")
    for name, value in (("judge", judge_label(judge)), ("procedure", result.run.procedure)):
        ET.SubElement(properties, "property", {"name": name, "value": as_xml(value)})
    names = [*result.run.dimensions]
    if any(found.agent == result.agent and found.dimension == OVERALL for found in findings.below):
        names.append(OVERALL)
    for name in names:
        case = ET.SubElement(suite, "testcase", {"name": name, "classname": f"plumbline.{agent}"})
        cases = _cases(result, name, findings, strict=report.limits.strict)
        for found in cases[:1]:
            _outcome(case, found)
        note = _note(result, name)
        if note:
            ET.SubElement(case, "system-out").text = as_xml(note)
    _count(suite)


def _cases(result: AgentResult, dimension: str, findings: Findings, *, strict: bool) -> list[Case]:
    """What is wrong with a dimension, what weighs most first; empty when it passes."""
    agent = result.agent
    unjudged = [u for u in findings.unjudged if u.agent == agent and u.dimension in ("", dimension)]
    if unjudged:
        return [("error", found.why, found.why) for found in unjudged]
    lines = []
    for r in findings.regressions:
        if (r.agent, r.whole.dimension) == (agent, dimension):
            change = r.change
            before = with_share(f"{change.baseline:.1f}", change.baseline_share)
            now = with_share(f"{change.candidate:.1f}", change.share)
            line = f"{change.proposition or dimension} fell from {before} to {now} ({signed(change.delta)})"
            worst = f": {r.worst.place} “{plain(r.worst.text)}”" if r.worst else ""
            lines.append(line + worst)
            lines += [f"fell most, not surely: {c.proposition} ({signed(c.delta)})" for c in r.fell_most]
    for b in findings.below:
        if (b.agent, b.dimension) == (agent, dimension):
            worst = f": {b.worst.place} “{plain(b.worst.text)}”" if b.worst else ""
            lines.append(
                f"{with_share(f'{b.score:.1f}', b.share)} is below {b.threshold:g}; lowest {b.proposition}{worst}"
            )
    for f in findings.fading:
        if (f.agent, f.dimension) == (agent, dimension):
            lines.append(f"fades within conversations: positions {f.last} against {f.first}: {signed(f.delta)}")
    if lines:
        return [("failure", lines[0], "\n".join(lines))]
    lacking = [lack for lack in findings.lacking if (lack.agent, lack.dimension) == (agent, dimension)]
    if lacking:
        told = [": ".join(filter(None, (lack.proposition, lack.why))) for lack in lacking]
        return [
            (
                "error" if strict else "skipped",
                f"{TOO_LITTLE}: {told[0].removeprefix(f'{TOO_LITTLE}: ')}",
                "\n".join(told),
            )
        ]
    if dimension != OVERALL and result.score(dimension) is None:
        return [("skipped", why_no_score(result, dimension), "")]
    return []


def _note(result: AgentResult, dimension: str) -> str:
    score, change = result.score(dimension), result.change(dimension)
    if score is None:
        return ""
    shown = with_share(f"{score:.2f}", result.share(dimension))
    if change is None:
        return f"{shown}; not compared: {result.no_baseline or 'no baseline in this dimension'}"
    delta = "" if change.delta is None else f" ({signed(change.delta, 2)})"
    return f"{shown}{delta}: {change.verdict}, {change.reason}"


def _outcome(case: ET.Element, found: Case) -> None:
    kind, message, text = found
    element = ET.SubElement(case, kind, {"message": as_xml(plain(message, 500))})
    if kind != "skipped":
        element.set("type", "regression" if kind == "failure" else "unjudged")
        element.text = as_xml(text)


def _count(element: ET.Element) -> None:
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    for kind, name in KINDS.items():
        element.set(name, str(sum(case.find(kind) is not None for case in cases)))

"""The report of a build as JUnit XML, for a build server."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from agents.kit.text.markdown import plain
from evaluation.ci.findings import Finding
from evaluation.ci.limits import OVERALL
from evaluation.ci.report import Report
from evaluation.ci.results import AgentResult

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FAILURES = ("regressions", "fading", "below_threshold")
LACKING = ("one_sided", "not_enough_data")
PLURALS = {"failure": "failures", "error": "errors", "skipped": "skipped"}  # element: attribute of a suite


def junit(report: Report) -> str:
    """Return an XML document with a test case per agent and dimension.

    A case is a ``failure`` for a regression or a score below its threshold, an ``error`` for what could not be judged enough, ``skipped``
    for what is not evaluable. Too little data, or a score on one side only, is ``skipped``, too; with ``--strict``, or where the score
    was lost, an ``error``. Hits that are no regression are its output. Where nothing could be measured, proposition files cannot be
    used, or the judge has no passport that is required, there is a case for that. Each suite's output says where the judge is not usable.
    """
    suites = ET.Element("testsuites", {"name": "plumbline"})
    for result in report.results:
        _add_agent(suites, result, report)
    nothing_measured = "" if report.results else "no agents"
    # A finding without an agent is of the build itself; the first one is reported.
    for finding in report.findings.of_kind("could_not_judge"):
        if not finding.agent:
            nothing_measured = finding.why
            break
    without_passport = [finding_line(finding) for finding in report.findings.of_kind("without_passport")]
    if without_passport:
        _add_error(suites, "passport of the judge", without_passport)
    if nothing_measured:
        _add_error(suites, "anything measured", [nothing_measured])
    if report.unusable:
        _add_error(suites, "proposition files", report.unusable.splitlines())
    if report.not_usable:
        for suite in suites:
            ET.SubElement(suite, "system-out").text = as_xml(report.not_usable)
    for parent in (suites, *suites):
        _count_cases(parent)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _add_agent(suites: ET.Element, result: AgentResult, report: Report) -> None:
    """Add a suite for an agent, with a case per dimension, and one for the overall score where something was found of it."""
    findings = [finding for finding in report.findings.findings if finding.agent == result.agent]
    dimensions = list(result.run.dimensions)
    if any(finding.dimension == OVERALL for finding in findings):
        dimensions.append(OVERALL)
    suite = ET.SubElement(suites, "testsuite", {"name": as_xml(result.agent)})
    for dimension in dimensions:
        attributes = {"name": dimension, "classname": f"plumbline.{as_xml(result.agent)}"}
        case = ET.SubElement(suite, "testcase", attributes)
        # What was found of the agent itself ("") counts in the case of each of its dimensions.
        of_case = [finding for finding in findings if finding.dimension in ("", dimension)]
        of_case.sort(key=lambda finding: finding.worst is None)  # those with a message first
        lacking_is_error = report.limits.strict or dimension in result.lost_dimensions
        _add_outcome(case, of_case, lacking_is_error=lacking_is_error)
        if len(case) == 0 and dimension != OVERALL and result.score(dimension) is None:
            _add_problem(case, "skipped", [result.why_no_score(dimension)])
        hits = [_proposition_line(finding, finding.figures) for finding in of_case if finding.kind == "hits"]
        if hits:
            ET.SubElement(case, "system-out").text = as_xml("\n".join(hits))


def _add_outcome(case: ET.Element, findings: Sequence[Finding], *, lacking_is_error: bool) -> None:
    """Add what weighs most of the findings of a case: an error, else a failure, else what it lacks; nothing where it passed.

    Args:
        lacking_is_error: Whether what it lacks (data, or a score on one side) is an error, and not just skipped.
    """
    unjudged = [finding_line(finding) for finding in findings if finding.kind == "could_not_judge"]
    failures = [finding_line(finding) for finding in findings if finding.kind in FAILURES]
    lacking = [finding for finding in findings if finding.kind in LACKING]
    if unjudged:
        _add_problem(case, "error", unjudged)
    elif failures:
        also = [f"{finding.verdict}: {finding.figures}" for finding in lacking]
        _add_problem(case, "failure", list(dict.fromkeys([*failures, *also])))
    elif lacking:
        element = "error" if lacking_is_error else "skipped"
        _add_problem(case, element, [finding_line(finding) for finding in lacking])


def finding_line(finding: Finding) -> str:
    """Return a finding in a line, with its messages, e.g. ``mood: worse: “…” 8.0 → 2.9, −5.1; lowest #office 7 “Fine.”``.

    Each message is cut at 100 characters, the line at 1,000 (without proposition and verdict).
    """
    line = finding.figures
    sentence = ""
    if finding.worst is not None:
        sentence = f"“{finding.worst.asked}” "
        line += f"; lowest {finding.worst.place} “{plain(finding.worst.text, 100)}”"
        if finding.worst.heard:
            line += f", after “{plain(finding.worst.heard, 100)}”"
    for message in finding.messages:
        line += f"; {message.place} “{plain(message.text, 100)}”"
    return _proposition_line(finding, sentence + plain(line, 1_000))


def _proposition_line(finding: Finding, text: str) -> str:
    proposition = f"{finding.proposition}: " if finding.proposition else ""
    return f"{proposition}{finding.verdict}: {text}"


def _add_error(suites: ET.Element, name: str, lines: Sequence[str]) -> None:
    """Add a suite with one case, which is an error of the build itself."""
    suite = ET.SubElement(suites, "testsuite", {"name": "plumbline"})
    case = ET.SubElement(suite, "testcase", {"name": name, "classname": "plumbline"})
    _add_problem(case, "error", lines)


def _add_problem(case: ET.Element, element: str, lines: Sequence[str]) -> None:
    """Add a ``failure``, ``error`` or ``skipped`` to a case, with the first line as its message."""
    problem = ET.SubElement(case, element, {"message": as_xml(plain(lines[0], 500))})
    if element != "skipped":
        problem.set("type", "regression" if element == "failure" else "unjudged")
        problem.text = as_xml("\n".join(dict.fromkeys(lines)))


def _count_cases(parent: ET.Element) -> None:
    """Set the counts that build servers read, of a suite or of all."""
    cases = list(parent.iter("testcase"))
    parent.set("tests", str(len(cases)))
    for element, plural in PLURALS.items():
        parent.set(plural, str(sum(case.find(element) is not None for case in cases)))


def as_xml(text: str) -> str:
    """Return the text without the characters that XML 1.0 cannot hold; the writer escapes the rest."""
    return _NOT_IN_XML.sub("\ufffd", text)

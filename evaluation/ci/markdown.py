"""The report of a build as a comment on a pull request. Words of agents, users and judges are code in it, never markup or mentions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agents.kit.commands import Cell, markdown_table
from agents.kit.text.markdown import as_code, as_text
from agents.kit.text.wording import counted, number
from evaluation.change.examples import WorstMessage
from evaluation.change.position import PositionProfile
from evaluation.ci.findings import Finding
from evaluation.ci.report import AgentsBySentence, Report
from evaluation.ci.terminal import score_and_change
from evaluation.models import is_heuristic
from evaluation.runs.shares import with_share

MARKER = "<!-- plumbline -->"  # by which the workflow finds its own comment
MOST_CHARACTERS = 60_000  # a comment on GitHub holds 65,536
MOST_ROWS = 30
FINDING_HEADINGS = ("Agent", "Dimension", "Proposition", "Baseline", "Now", "Change (95 %)", "Verdict")


def markdown(report: Report) -> str:
    """Return one comment on a pull request: what is wrong, then, folded, everything else; parts without content are left out."""
    findings = report.findings
    wrong = findings.of_kind(
        "could_not_judge",
        "without_passport",
        "regressions",
        "fading",
        "below_threshold",
        "one_sided",
        "not_enough_data",
    )
    undecided = findings.of_kind("cannot_tell_yet")
    hits = findings.of_kind("hits")
    without_baseline = report.without_baseline()
    heuristic = " (*heuristic*: exact rules and word cues, no LLM)" if is_heuristic(report.judge) else ""
    judged_by = f"{counted(len(report.results), 'agent')}, judged by {as_code(report.judge)}{heuristic}."
    blocks = [
        MARKER,
        f"### {report.sign} Persona check: {report.outcome}",
        as_text(report.not_usable, 1_000),
        f"{judged_by} {findings.headline}",
        "\n".join(f"* {as_code(line, 1_000)}" for line in report.unusable.splitlines()),
        "\n".join(_finding_table(wrong)),
        _details("Lowest-scored messages", _lowest_messages(wrong)),
        _details(f"Cannot tell yet: {len(undecided)}", _finding_table(undecided)),
        _details(f"Compared by hits, no regression: {len(hits)}", _finding_table(hits)),
        _details(f"Without a baseline: {len(findings.without_baseline)}", _bullets(without_baseline)),
        _details("All scores", _score_table(report)),
        _details("By position", _position_table(list(report.profiles.values()))),
        _details("Notes on the comparison", _bullets(report.notes())),
        _details("Without a score", _bullets(report.without_score())),
        report.spent_line,
        _details("How it was measured", [f"* {line}" for line in _method_notes(report)]),
    ]
    return shortened("\n\n".join(block for block in blocks if block) + "\n")


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the comment; where it is longer than `most`, its first lines of so many characters, with a note after them.

    What is folded there is closed again.
    """
    if len(text) <= most:
        return text
    start = text[:most].rpartition("\n")[0]
    still_open = start.count("<details>") - start.count("</details>")
    closed = "\n\n</details>" * still_open
    note = f"*Cut: {len(text) - len(start):,} of {len(text):,} characters; the JSON report holds all.*"
    return f"{start}{closed}\n\n{note}\n"


def _finding_table(findings: Sequence[Finding]) -> list[str]:
    """Return the lines of a table with a row per finding."""
    rows: list[list[Cell]] = []
    for finding in findings:
        verdict = f"**{finding.verdict}**"
        if finding.why:
            verdict += f": {as_code(finding.why)}"
        rows.append(
            [
                as_code(finding.agent) or "all agents",
                finding.dimension or "all",
                _proposition(finding),
                finding.before,
                finding.now,
                finding.change.replace("95 %: ", ""),  # the heading says it
                verdict,
            ]
        )
    return _table(FINDING_HEADINGS, rows, most=MOST_ROWS)


def _proposition(finding: Finding) -> str:
    """Return the proposition, with its sentence where there is a message that shows it."""
    if not finding.proposition:
        return "all"
    text = as_code(finding.proposition)
    if finding.worst is not None:
        text += f"<br>{as_code(finding.worst.asked, 200)}"
    return text


def _lowest_messages(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each message of the findings; of a message that shows several things, for the first of them."""
    lines: dict[tuple[str, str], str] = {}
    for finding in findings:
        if finding.worst is None:
            continue
        for message in (finding.worst, *finding.messages):
            lines.setdefault((finding.agent, message.text), _message_line(finding.agent, message))
    return list(lines.values())


def _message_line(agent: str, message: WorstMessage) -> str:
    """Return a list item: what was asked, the score, the message, what was said before it, and the reasoning."""
    line = f"* {as_code(agent)}: {as_code(message.asked)} scored {message.score}"
    if message.place:
        line += f" at {as_code(message.place)}"
    line += f": {as_code(message.text)}"
    if message.heard:
        line += f"<br>after {as_code(message.heard)}"
    if message.reasoning:
        line += f"<br>{as_code(message.reasoning, 300)}"
    return line


def _score_table(report: Report) -> list[str]:
    """Return the lines of a table with every score of every agent."""
    rows: list[list[Cell]] = []
    for result in report.results:
        overall = with_share(number(result.overall_score), result.summary.share)
        scores = [score_and_change(result, dimension) for dimension in report.dimensions]
        unscored = sum(coverage.unscored for coverage in result.coverage.values())
        rows.append([as_code(result.agent), overall, *scores, unscored])
    return _table(["Agent", "Overall", *report.dimensions, "Unscored"], rows, most=len(rows))


def _position_table(profiles: Sequence[PositionProfile]) -> list[str]:
    """Return the lines of a table with the scores of each agent and dimension by position."""
    headings: list[str] = []
    rows: list[list[Cell]] = []
    for profile in profiles:
        for dimension in profile.dimensions.values():
            if not headings:  # all were asked for the same stretches
                bins = [f"Positions {row.positions}" for row in dimension.bins]
                headings = ["Agent", "Dimension", *bins, "In the same conversations"]
            scores = [with_share(number(row.score), row.share) for row in dimension.bins]
            rows.append([as_code(profile.agent), dimension.dimension, *scores, dimension.within.verdict])
    return _table(headings, rows, most=MOST_ROWS)


def _method_notes(report: Report) -> list[str]:
    """Return how to read the scores, and what makes a build fail."""
    limits = report.limits
    notes = [
        "Scores are 0 to 9, higher is better; ideas are counted. The percentage is the share of the judgements that were scored, "
        "of the propositions this judge can score at all.",
        report.counts_line,
    ]
    for note in report.passport_notes:
        notes.append(as_text(note, 1_000))
    notes.append(
        f"A regression is a fall of {limits.regression_delta:g} points or more that is significant among all that was compared "
        f"(95 %, Holm). A change within ±{limits.margin:g} is none."
    )
    if limits.thresholds:
        notes.append(f"Least scores: {limits}.")
    return notes


def _bullets(agents_by_sentence: AgentsBySentence) -> list[str]:
    """Return a list item per sentence, with the agents it is about."""
    lines = []
    for sentence, agents in agents_by_sentence.items():
        lines.append(f"* {as_code(', '.join(agents))}: {as_code(sentence, 400)}")
    return [*lines[:MOST_ROWS], *_and_more(len(lines), MOST_ROWS)]


def _table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], *, most: int) -> list[str]:
    """Return the lines of a table of clean cells, cut at `most` rows; none without rows."""
    if not rows:
        return []
    return [*markdown_table(headings, rows[:most]), *_and_more(len(rows), most)]


def _and_more(count: int, most: int) -> list[str]:
    return ["", f"… and {count - most} more"] if count > most else []


def _details(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""

"""The report of an experiment as tables: for a terminal, Markdown and CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from agents.kit.commands import Cell, Emphasis, Value, in_line, markdown_table, print_table, snippet
from agents.kit.text.markdown import as_text
from agents.kit.text.tables import csv_lines
from evaluation.calibration.passport import not_usable_line, passport_lines
from evaluation.experiments.compare import Cell as ArmCell
from evaluation.experiments.compare import Row
from evaluation.experiments.lab_printed import lab_csv_fields, lab_lines, lab_tables
from evaluation.experiments.published import NO_CONVERSATIONS, Figure, PublishedRow
from evaluation.experiments.report import (
    COUNTED,
    Conversation,
    ExperimentReport,
    groups,
    p_text,
    rounded,
    shown_difference,
)

HEADS = ["Measure", ">Treatment", ">Control", ">Δ", ">d", ">p naive", ">p clustered", ">n", "What may be said"]
LEGEND = "Of each arm the mean (standard deviation). Δ: treatment less control; d: Cohen's d; n: values of treatment/control."
PUBLISHED_HEADS = ["Experiment", "Measure", ">Treatment", ">Control", ">n", ">Δ", ">t", ">df", ">p naive", ">d", ">g"]
ARM_HEADS = ["Arm", ">Conversations", ">Turns", ">Failed", ">Messages", ">US dollars", "What its stages did"]
CONVERSATION_HEADS = ["Measure", "Arm", ">Conversation", ">Δ", "Channels", "Control's"]
_EMPHASIS_OF_VERDICT: dict[str, Emphasis] = {"gain": "good", "harm": "bad"}
_OUTCOME_WORDS: dict[str, str] = {
    "gain": "gain in {}",
    "harm": "harm in {}",
    "differs": "other {}",
    "no difference seen": "no difference seen in {}",
    "heuristic": "no test of {} by a heuristic",
    "not enough data": "no verdict on {}",
}
_FIGURES = re.compile(r"[-+−–$<.]*[0-9][-+−–$≥.,/%\[\] 0-9]*")
_DECIMALS = {"rules": 3, "silence": 3, "repetition": 3, "usd": 5}  # by measure; 2 for others


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of the report; a head that begins with ``>`` is of a column of numbers."""

    title: str
    heads: Sequence[str]
    rows: list[list[Cell]]


def headline(report: ExperimentReport) -> Iterator[str]:
    """Yield what must be read first: that the judge is not usable, that the report is void, unfinished, or an offline judge's."""
    not_usable = not_usable_line(report.passports)
    if not_usable:
        yield not_usable
    for why in report.void:
        yield f"VOID: {why}. No claim is made about its effect."
    if report.unfinished:
        yield f"Not finished: {report.unfinished}."
    if report.heuristic and report.lab is not None:
        yield f"The judge is {report.judge}, an offline heuristic: claims rest on exact rules alone."
    elif report.heuristic:
        yield f"Scores are of {report.judge}, an offline heuristic: no claim rests on them. What is counted is exact."


def outcome_lines(report: ExperimentReport) -> Iterator[str]:
    """Yield the outcome of each treatment in a sentence: what it gained, what it harmed, and what is open; nothing of a void report.

    E.g. "gate against plain: gain in adherence (+0.64); harm in repetition (+0.20); no verdict on silence, length."
    """
    if report.lab is not None:
        yield from lab_lines(report.lab)
        return
    if report.void or not report.arms:
        return
    control = report.arms[0].name
    for arm in dict.fromkeys(row.treatment.arm for row in report.rows):
        rows = [row for row in report.rows if row.treatment.arm == arm]
        yield f"{arm} against {control}: {_outcome(rows)}."


def _outcome(rows: Sequence[Row]) -> str:
    """Return the measures of a treatment by their verdicts, and why there is none on some of them."""
    parts = []
    for verdict, words in _OUTCOME_WORDS.items():
        measures = [_named_outcome(row) for row in rows if row.verdict == verdict]
        if measures:
            parts.append(words.format(", ".join(measures)))
    reasons = dict.fromkeys(row.why for row in rows if row.why and row.verdict == "not enough data")
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{'; '.join(parts)}{why}"


def _named_outcome(row: Row) -> str:
    """Return a measure with its difference, where there is one to name."""
    label = row.label.lower()
    if row.verdict in ("no difference seen", "heuristic", "not enough data"):
        return label
    decimals = _DECIMALS.get(row.measure, 2)
    return f"{label} ({_with_sign(shown_difference(row.control.mean, row.treatment.mean, decimals), decimals)})"


def tables(report: ExperimentReport) -> Iterator[ReportTable]:
    """Yield the tables of the report: each group of rows that is not empty, the arms, and the conversations most for and against.

    A laboratory has its own.
    """
    if report.lab is not None:
        for title, heads, rows in lab_tables(report.lab):
            yield ReportTable(title, heads, rows)
        return
    control = report.arms[0].name if report.arms else ""
    for group in groups(report):
        if group.rows:
            cells = [row_cells(row, report.published.get(row.measure)) for row in group.rows]
            yield ReportTable(f"{group.heading}: {group.arm} against {control}", HEADS, cells)
    yield ReportTable("Arms", ARM_HEADS, _arm_rows(report))
    if report.most_for:
        yield ReportTable("Most for", CONVERSATION_HEADS, _conversation_rows(report.most_for))
    if report.most_against:
        yield ReportTable("Most against", CONVERSATION_HEADS, _conversation_rows(report.most_against))


def row_cells(row: Row, paper: Figure | None = None) -> list[Cell]:
    """Return the cells of a row of the report under `HEADS`; a gain or harm has its colour.

    Args:
        paper: What the paper found, which is named beside the verdict; None: nothing.
    """
    decimals = _DECIMALS.get(row.measure, 2)
    return [
        _with_unit(row),
        _mean_and_deviation(row.treatment, decimals),
        _mean_and_deviation(row.control, decimals),
        _with_sign(shown_difference(row.control.mean, row.treatment.mean, decimals), decimals),
        rounded(row.d),
        p_text(row.naive_p),
        p_text(row.p_adjusted),
        f"{row.treatment.n}/{row.control.n}",
        (_verdict_text(row, paper, decimals), _EMPHASIS_OF_VERDICT.get(row.verdict, "")),
    ]


def _with_unit(row: Row) -> str:
    """Return the label of a measure; of one that is counted, with the unit of its values."""
    is_counted = any(row.measure == measure.id for measure in COUNTED)
    return f"{row.label} ({row.unit})" if is_counted else row.label


def _verdict_text(row: Row, paper: Figure | None, decimals: int) -> str:
    """Return the verdict and what goes with it, e.g. "no difference seen; 80 % power to find one of 0.45 (paper: +0.31, p .012)"."""
    text: str = row.verdict
    if row.why and row.verdict != "heuristic":  # that the judge is a heuristic is said once, in the headline
        text += f": {row.why}"
    if row.verdict == "no difference seen" and row.detectable is not None:
        text += f"; 80 % power to find one of {rounded(row.detectable, decimals)}"
    if paper is not None:
        text += f" (paper: {_with_sign(paper.delta)}, p {p_text(paper.p)})"
    return text


def _mean_and_deviation(cell: ArmCell, decimals: int = 2) -> str:
    """Return both as Table 1 of the paper has them: ``5.81 (1.66)``; a dash where there is nothing."""
    text = "–" if cell.mean is None else f"{rounded(cell.mean, decimals)} ({rounded(cell.sd, decimals)})"
    if cell.missing:
        text += f", {cell.missing} missing"
    return text


def _with_sign(value: float | None, decimals: int = 2) -> str:
    sign = "+" if value is not None and value > 0 else ""
    return sign + rounded(value, decimals)


def _arm_rows(report: ExperimentReport) -> list[list[Cell]]:
    """Return a row for each arm under `ARM_HEADS`; the first arm is the control."""
    rows: list[list[Cell]] = []
    for number, arm in enumerate(report.arms):
        stages = [f"{name} {count}" for name, count in arm.counters.items() if count]
        rows.append(
            [
                arm.name if number else f"{arm.name} (control)",
                f"{arm.environments}/{arm.planned}",
                arm.turns,
                arm.missing,
                arm.messages,
                "unpriced" if arm.usd is None else rounded(arm.usd, 4),
                ", ".join(stages) or None,
            ]
        )
    return rows


def _conversation_rows(conversations: Sequence[Conversation]) -> list[list[Cell]]:
    """Return a row for each conversation under `CONVERSATION_HEADS`."""
    rows: list[list[Cell]] = []
    for conversation in conversations:
        channels = ", ".join(conversation.treatment)
        control_channels = ", ".join(conversation.control)
        difference = _with_sign(conversation.difference)
        rows.append(
            [
                conversation.measure,
                conversation.arm,
                conversation.environment,
                difference,
                channels,
                control_channels,
            ]
        )
    return rows


def show(report: ExperimentReport, console: Console) -> None:
    """Print the report for a person: what must be read first, the title, the tables, trust in the judge, cost of one point more."""
    first_lines, further_lines = _lines_in_order(report)
    for line in first_lines:
        console.print(f"[bold yellow]{snippet(line, 1_000)}[/]")
    title = f": {snippet(report.title)}" if report.title else ""
    console.print(f"[bold]Experiment {report.id}, {snippet(report.name)}[/bold]{title}")
    for line in further_lines:
        console.print(snippet(line, 1_000))
    for table in tables(report):
        if table.heads == HEADS:
            _show_measures(table, console)
        else:
            print_table(console, table.heads, table.rows, title=table.title, tight=True)
    if report.rows and report.lab is None:
        console.print(LEGEND)
    for line in passport_lines(report.passports):
        console.print(snippet(line, 1_000))
    for name, usd in report.cost_per_point.items():
        console.print(f"{snippet(name)}: {rounded(usd, 5)} US dollars a message for one point more.")


def _show_measures(table: ReportTable, console: Console) -> None:
    """Print a table without the naive p, on which no verdict rests. What may be said stands below, once for rows of which the same may."""
    columns = [number for number, head in enumerate(HEADS[:-1]) if head != ">p naive"]
    rows = [[row[number] for number in columns] for row in table.rows]
    print_table(console, [HEADS[number] for number in columns], rows, title=table.title, tight=True)
    names_by_text: dict[str, list[str]] = {}
    for row in table.rows:
        verdict = row[-1][0] if isinstance(row[-1], tuple) else row[-1]
        names_by_text.setdefault(str(verdict), []).append(str(row[0]))
    for text, names in names_by_text.items():
        console.print(snippet(f"{', '.join(names)}: {text}", 1_000))
    console.print()


def _lines_in_order(report: ExperimentReport) -> tuple[list[str], list[str]]:
    """Return what must be read before the title, and what comes after it. What came of a finished laboratory is the very first line."""
    first = list(headline(report))
    further = list(outcome_lines(report))
    if report.lab is not None and not report.unfinished:
        first.insert(0, further.pop(0))
    return first, further


def as_markdown(report: ExperimentReport) -> str:
    """Return the report as a page of Markdown: what must be read first, the title, trust in the judge, the tables."""
    first_lines, further_lines = _lines_in_order(report)
    lines = [f"**{as_text(line, 1_000)}**\n" for line in first_lines]
    lines += [f"# Experiment {report.id}: {_markdown_value(report.title or report.name)}", ""]
    lines += [f"{as_text(line, 1_000)}\n" for line in further_lines]
    unit = "fork" if report.lab is not None else "conversation"
    lines += [f"Judge {as_text(report.judge)}. Verdicts rest on p clustered by {unit} and adjusted by Holm.", ""]
    if report.rows and report.lab is None:
        lines += [LEGEND, ""]
    lines += [f"{in_line(line, 1_000)}\n" for line in passport_lines(report.passports)]
    for table in tables(report):
        rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
        heads = [f">{as_text(head[1:])}" if head.startswith(">") else as_text(head) for head in table.heads]
        lines += [f"## {_markdown_value(table.title)}", "", *markdown_table(heads, rows), ""]
    return "\n".join(lines)


def _markdown_cell(cell: Cell) -> Cell:
    if isinstance(cell, tuple):
        value, emphasis = cell
        return _markdown_value(value), emphasis
    return _markdown_value(cell)


def _markdown_value(value: Value) -> Value:
    """Return a value whose text is without effect in Markdown; figures stay readable as they are."""
    if value is None or isinstance(value, int) or _FIGURES.fullmatch(str(value)):
        return value
    return as_text(str(value), 300)


def as_csv(*reports: ExperimentReport) -> str:
    """Return a line for each row of each report with all its figures; arms as ``treatment_…`` and ``control_…``.

    Of a laboratory a line for each repair and dimension.
    """
    lines = [_csv_fields(report.judge, row) for report in reports for row in report.rows]
    for report in reports:
        if report.lab is not None:
            lines += [{"judge": report.judge} | fields for fields in lab_csv_fields(report.lab)]
    return "".join(csv_lines(lines, list(lines[0]) if lines else ["measure"]))


def _csv_fields(judge: str, row: Row) -> dict[str, Any]:
    """Return a row as columns: an arm's fields with its prefix, an interval as two columns, ``…_low`` and ``…_high``."""
    fields = {"judge": judge} | row.model_dump(exclude={"treatment", "control"})
    for prefix, arm in (("treatment", row.treatment), ("control", row.control)):
        for name, value in arm.model_dump().items():
            fields[f"{prefix}_{name}"] = value
    for name in ("d_interval", "g_interval"):
        low, high = fields.pop(name) or (None, None)
        fields[f"{name}_low"] = low
        fields[f"{name}_high"] = high
    return fields


def published_cells(published: PublishedRow) -> list[Cell]:
    """Return the cells of a row of raw scores that others published, under `PUBLISHED_HEADS`; "n" is marked where too many are missing."""
    row = published.row
    n = f"{row.treatment.n}/{row.control.n}"
    if row.treatment.missing or row.control.missing:
        n += f", missing {row.treatment.missing}/{row.control.missing}"
    return [
        f"{published.set} {published.experiment}",
        row.label,
        f"{rounded(row.treatment.mean)} ({rounded(row.treatment.sd)})",
        f"{rounded(row.control.mean)} ({rounded(row.control.sd)})",
        (n, "" if row.why == NO_CONVERSATIONS else "bad"),  # the other reason that a row can have: too many are missing
        _with_sign(row.delta),
        rounded(row.t),
        rounded(row.df, 1),
        p_text(row.naive_p),
        rounded(row.d),
        rounded(row.g),
    ]

"""The report of an experiment as tables: for a terminal, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from rich.console import Console

from agents.kit.commands import Cell, Emphasis, in_line, markdown_table, print_table, snippet
from evaluation.experiments.compare import Cell as ArmCell
from evaluation.experiments.compare import Row
from evaluation.experiments.published import NO_CONVERSATIONS, Figure, PublishedRow
from evaluation.experiments.report import ExperimentReport, groups, p_text, rounded

HEADS = ["Measure", ">Treatment", ">Control", ">Δ", ">d", ">p naive", ">p clustered", ">n", "What may be said"]
PUBLISHED_HEADS = ["Experiment", "Measure", ">Treatment", ">Control", ">n", ">Δ", ">t", ">df", ">p naive", ">d", ">g"]
ARM_HEADS = ["Arm", ">Conversations", ">Turns", ">Failed", ">Messages", ">US dollars", "What its stages did"]
_EMPHASIS: dict[str, Emphasis] = {"gain": "good", "harm": "bad"}
_FINE = {"rules": 3, "silence": 3, "repetition": 3, "usd": 5}  # decimals; others 2


def headline(shown: ExperimentReport) -> Iterator[str]:
    """What must be read first: that it is void, unfinished, or an offline judge's."""
    for why in shown.void:
        yield f"VOID: {why}. Nothing is said of its effect."
    if shown.unfinished:
        yield f"Not finished: {shown.unfinished}."
    if shown.heuristic:
        yield f"Scores are of {shown.judge}, an offline heuristic: no claim rests on them. What is counted is exact."


def row_cells(row: Row, paper: Figure | None = None) -> list[Cell]:
    """A row of the report; with the paper's figure where there is one."""
    places = _FINE.get(row.measure, 2)
    said = row.verdict if not row.why or row.verdict == "heuristic" else f"{row.verdict}: {row.why}"
    if row.verdict == "no difference seen" and row.detectable is not None:
        said += f"; 80 % power to find one of {rounded(row.detectable, places)}"
    if paper is not None:
        said += f" (paper: {signed(paper.delta)}, p {p_text(paper.p)})"
    return [
        row.label,
        mean_sd(row.treatment, places),
        mean_sd(row.control, places),
        signed(row.delta, places),
        rounded(row.d),
        p_text(row.naive_p),
        p_text(row.p_adjusted),
        f"{row.treatment.n}/{row.control.n}",
        (said, _EMPHASIS.get(row.verdict, "")),
    ]


def mean_sd(cell: ArmCell, places: int = 2) -> str:
    """As Table 1 has it: ``5.81 (1.66)``; a dash where there is nothing."""
    missing = f", {cell.missing} missing" if cell.missing else ""
    return "–" + missing if cell.mean is None else f"{rounded(cell.mean, places)} ({rounded(cell.sd, places)}){missing}"


def signed(value: float | None, places: int = 2) -> str:
    return rounded(value, places) if value is None or value <= 0 else f"+{rounded(value, places)}"


def arm_cells(shown: ExperimentReport) -> list[list[Cell]]:
    return [
        [
            arm.name + (" (control)" if not number else ""),
            f"{arm.environments}/{arm.planned}",
            arm.turns,
            arm.missing,
            arm.messages,
            "unpriced" if arm.usd is None else rounded(arm.usd, 4),
            ", ".join(f"{name} {n}" for name, n in arm.counters.items() if n) or None,
        ]
        for number, arm in enumerate(shown.arms)
    ]


def tables(shown: ExperimentReport) -> Iterator[tuple[str, Sequence[str], list[list[Cell]]]]:
    """Title, heads and rows of each table."""
    control = shown.arms[0].name if shown.arms else ""
    for arm, heading, rows in groups(shown):
        if rows:
            yield (
                f"{heading}: {arm} against {control}",
                HEADS,
                [row_cells(row, shown.published.get(row.measure)) for row in rows],
            )
    yield "Arms", ARM_HEADS, arm_cells(shown)
    for title, conversations in (("Most for", shown.most_for), ("Most against", shown.most_against)):
        if conversations:
            cells: list[list[Cell]] = [
                [
                    one.measure,
                    one.arm,
                    one.environment,
                    signed(one.difference),
                    ", ".join(one.treatment),
                    ", ".join(one.control),
                ]
                for one in conversations
            ]
            yield title, ["Measure", "Arm", ">Conversation", ">Δ", "Channels", "Control's"], cells


def show(shown: ExperimentReport, console: Console) -> None:
    """Print the report for a person."""
    for line in headline(shown):
        console.print(f"[bold yellow]{snippet(line, 1_000)}[/]")
    console.print(f"[bold]Experiment {shown.id}, {snippet(shown.name)}[/bold] {snippet(shown.title)}".rstrip())
    for title, heads, rows in tables(shown):
        print_table(console, heads, rows, title=title, tight=True)
    for line in shown.trust:
        console.print(snippet(line, 1_000))
    for name, usd in shown.cost_per_point.items():
        console.print(f"{snippet(name)}: {rounded(usd, 5)} US dollars a message for one point more.")


def as_markdown(shown: ExperimentReport) -> str:
    """The report as a page."""
    lines = [f"**{in_line(line, 1_000)}**\n" for line in headline(shown)]
    lines += [f"# Experiment {shown.id}: {_clean(shown.title or shown.name)}", ""]
    lines += [f"Judge {shown.judge}. Verdicts rest on p clustered by conversation and adjusted by Holm.", ""]
    lines += [f"{in_line(line, 1_000)}\n" for line in shown.trust]
    for title, heads, rows in tables(shown):
        clean = [[(_clean(c[0]), c[1]) if isinstance(c, tuple) else _clean(c) for c in row] for row in rows]
        lines += [f"## {_clean(title)}", "", *markdown_table(heads, clean), ""]
    return "\n".join(lines)


def _clean(value: object) -> str | int | None:
    return value if value is None or isinstance(value, int) else in_line(str(value), 300).replace("|", "\\|")


def as_csv(shown: ExperimentReport, *further: ExperimentReport) -> str:
    """A line for each row of each report, all its figures; arms as ``treatment_…`` and ``control_…``."""
    out = io.StringIO()
    flat = []
    for judge, row in ((one.judge, row) for one in (shown, *further) for row in one.rows):
        fields = {"judge": judge} | row.model_dump(exclude={"treatment", "control"})
        for name in ("treatment", "control"):
            fields |= {f"{name}_{key}": value for key, value in getattr(row, name).model_dump().items()}
        for name in ("d_interval", "g_interval"):
            low, high = fields.pop(name) or (None, None)
            fields |= {f"{name}_low": low, f"{name}_high": high}
        flat.append(fields)
    writer = csv.DictWriter(out, fieldnames=list(flat[0]) if flat else ["measure"])
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def published_cells(one: PublishedRow) -> list[Cell]:
    row, n = one.row, f"{one.row.treatment.n}/{one.row.control.n}"
    if row.treatment.missing or row.control.missing:
        n += f", missing {row.treatment.missing}/{row.control.missing}"
    return [
        f"{one.set} {one.experiment}",
        row.label,
        f"{rounded(row.treatment.mean)} ({rounded(row.treatment.sd)})",
        f"{rounded(row.control.mean)} ({rounded(row.control.sd)})",
        (n, "" if row.why == NO_CONVERSATIONS else "bad"),
        signed(row.delta),
        rounded(row.t),
        rounded(row.df, 1),
        p_text(row.naive_p),
        rounded(row.d),
        rounded(row.g),
    ]

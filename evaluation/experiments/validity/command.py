"""``manage.py dev validity``: one table of what Plumbline finds on data of others and in simulations, beside what was published."""

from __future__ import annotations

import time
import uuid
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.kit.commands import FAILED, CodedCommand, console_on, markdown_table, print_table, unusable, wrong
from agents.kit.llm import ledger
from agents.kit.llm.endpoints import problem_of
from agents.kit.text.wording import counted
from evaluation.commands import as_text, check_writable, write_text
from evaluation.experiments.validity.drift import drift_rows
from evaluation.experiments.validity.judges import judge_rows
from evaluation.experiments.validity.rows import HEADS, ValidityReport
from evaluation.experiments.validity.simulations import TRIALS, simulation_rows
from evaluation.experiments.validity.table_one import experiment_rows
from evaluation.experiments.validity.voices import voice_rows
from evaluation.models import is_heuristic
from evaluation.wording import cost_line

BEGIN = "<!-- made by `make validity` -->"
END = "<!-- until here -->"


class Command(CodedCommand):
    help = (
        "Print one table: what Plumbline finds on published validations, experiments and plays and in simulations, beside what was "
        "published or is promised. Takes no key and no database, and a few minutes. With --judge and --data a model is asked about "
        "published drifts, too; its calls are in the ledger, nothing else is stored. "
        "Exit code: 1 a promise fails, else 0."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--judge", default="", metavar="MODEL", help="ask this model about published drifts")
        parser.add_argument(
            "--data",
            type=Path,
            metavar="FOLDER",
            help="a folder with public data that does not ship: raw scores of TinyTroupe, conversations of the Assistant Axis",
        )
        parser.add_argument("--trials", type=int, default=TRIALS, help=f"of each simulation; default {TRIALS:,}")
        parser.add_argument("--write", type=Path, metavar="FILE", help="also put the table into this Markdown page")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        folder: Path | None = options["data"]
        page: Path | None = options["write"]
        judge = _callable_judge(options["judge"])
        if options["trials"] < 1:
            raise wrong(f"--trials {options['trials']}; allowed: 1 or more")
        if folder is not None and not folder.is_dir():
            raise unusable(f"--data {folder}: no such folder")
        if page is not None:
            check_page(page)
        began = time.perf_counter()
        work_id = f"validity:{uuid.uuid4().hex[:12]}"
        try:
            report = measure(folder=folder, judge=judge, trials=options["trials"], work_id=work_id)
        except (OSError, ValueError) as error:
            if folder is None:
                raise
            raise unusable(f"--data {folder}: {error}") from None
        if page is not None:
            write_text("--write", page, with_table(page.read_text(encoding="utf-8"), report))
        if options["json"]:
            self.stdout.write(as_text(report.model_dump(mode="json")))
        else:
            print_report(report, self.stdout)
            self.stdout.write(f"{counted(len(report.rows), 'row')} in {time.perf_counter() - began:.0f} s")
            if judge:
                self.stdout.write(cost_line(ledger.totals(work_id=work_id)))
        failures = report.failures()
        if failures:
            raise CommandError(f"{counted(len(failures), 'promise')} broken: {failures[0].claim}", returncode=FAILED)


def _callable_judge(name: str) -> str:
    """Return the model to ask; empty for none, and for an offline judge, which cannot judge what is asked here.

    Raises:
        CommandError: The model cannot be called; says what to set.
    """
    if not name or is_heuristic(name):
        return ""
    problem = problem_of("judge", name)
    if problem:
        raise unusable(f"--judge: {problem}")
    return name


def measure(*, folder: Path | None, judge: str, trials: int, work_id: str) -> ValidityReport:
    """Return all rows.

    Args:
        folder: With public data that does not ship; None: what needs it is not compared.
        judge: The model asked about drifts; empty: none.
        trials: Of each simulation.
        work_id: Under which the model's calls are in the ledger.

    Raises:
        ValueError: A file in the folder is not of the form; says why.
        OSError: It cannot be read.
    """
    rows = [
        *judge_rows(),
        *experiment_rows(folder),
        *simulation_rows(trials),
        *voice_rows(),
        *drift_rows(folder, judge, work_id=work_id),
    ]
    return ValidityReport(rows=rows)


def print_report(report: ValidityReport, out: Any) -> None:
    """Print a table for each group of rows."""
    console = console_on(out)
    for group in _groups(report):
        rows = [row.cells() for row in report.rows if row.group == group]
        print_table(console, HEADS, rows, title=group)


def with_table(page: str, report: ValidityReport) -> str:
    """Return a Markdown page with the table in place of what stood between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [BEGIN, ""]
    for group in _groups(report):
        rows = [row.cells() for row in report.rows if row.group == group]
        lines += [f"### {group}", "", *markdown_table([*HEADS[:-1], "Outcome"], rows), ""]
    table = "\n".join(lines)
    return f"{before}{table}\n{END}{after}"


def check_page(page: Path) -> None:
    """Refuse a page that has no place for the table, before anything is measured.

    Raises:
        CommandError: It is not there, cannot be written, or lacks one of the marks.
    """
    if not page.is_file():
        raise unusable(f"--write {page}: no such file")
    check_writable("--write", page)
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise unusable(f"--write {page}: the marks {BEGIN} and {END} are missing; the table goes between them")


def _groups(report: ValidityReport) -> list[str]:
    """Return the groups in the order of their first rows."""
    return list(dict.fromkeys(row.group for row in report.rows))

"""``manage.py prune_logs``: delete old logs in small batches."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from datetime import datetime
from typing import Any

from django.utils import timezone
from rich.filesize import decimal
from rich.progress import Progress

from agents.kit.commands import BaseCommand, console_for_bars, empty_tables, wrong
from agents.kit.ops import retention
from agents.kit.registry import prunings
from agents.kit.text.wording import time_text


class Command(BaseCommand):
    help = (
        "Delete logs older than so many days: model calls with their payloads, attempts of the gate with their verdicts, interventions "
        "looked at, finished observations, steps and exchanges of ended runs, and stored answers of API requests. Never messages, "
        "evaluations, scores, baselines, labels, or verdicts that people marked. Sums by hour stay, and hours that are not summed up yet "
        "are not touched."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--older-than", required=True, metavar="AGE", help=retention.ALLOWED)
        parser.add_argument("--dry-run", action="store_true", help="only count what would go")
        parser.add_argument(
            "--batch",
            type=int,
            default=retention.BATCH,
            metavar="ROWS",
            help=f"most rows deleted in one transaction, 1 to {retention.LONGEST_BATCH} (default {retention.BATCH})",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            cutoff = timezone.now() - retention.parse_age(options["older_than"])
        except ValueError as error:
            raise wrong(f"--older-than {error}") from None
        if not 1 <= options["batch"] <= retention.LONGEST_BATCH:
            raise wrong(f"--batch {options['batch']}: allowed: 1 to {retention.LONGEST_BATCH}")
        if options["dry_run"]:
            self._show(cutoff, as_json=options["json"])
        else:
            self._prune(cutoff, options)

    def _show(self, cutoff: datetime, *, as_json: bool) -> None:
        """Print what would go of each table: as JSON all of them, for people those with rows, and in a sentence how many have none."""
        prunable: list[retention.Prunable] = []
        for rule in prunings():
            prunable += retention.prunable(rule, cutoff)
        if as_json:
            tables = [{"table": table.table, "rows": table.rows, "bytes": table.size} for table in prunable]
            self._json(cutoff, tables, dry_run=True)
            return
        for table in prunable:
            if table.rows:
                self.stdout.write(f"{table.table:<30} {table.rows:>12,} rows, about {decimal(table.size)}")
        rows = {table.table: table.rows for table in prunable}
        if nothing := empty_tables(rows, what="found that old"):
            self.stdout.write(nothing)
        self.stdout.write(f"Older than {time_text(cutoff, zone=True)}. Nothing was deleted (--dry-run).")

    def _prune(self, cutoff: datetime, options: dict[str, Any]) -> None:
        """Delete what is old, with a bar per rule on stderr, then print how much went of each table.

        As JSON all tables are listed, for people those of which something went, and a sentence says how many others there are.
        """
        gone: Counter[str] = Counter()
        console = console_for_bars(sys.stderr, quiet=options["json"])
        with Progress(console=console, transient=True) as progress:
            for rule in prunings():
                gone.update(dict.fromkeys(rule.tables, 0))  # so that tables of which nothing goes are in the report
                bar = progress.add_task(rule.tables[0], total=1.0)
                for batch in retention.prune(rule, cutoff, batch=options["batch"], rest=time.sleep):
                    gone.update(batch.rows)
                    progress.update(bar, completed=batch.done)
                progress.update(bar, completed=1.0)
        if options["json"]:
            self._json(cutoff, [{"table": table, "rows": rows} for table, rows in gone.items()], dry_run=False)
        else:
            for table, rows in gone.items():
                if rows:
                    self.stdout.write(f"{table:<30} {rows:>12,} rows deleted")
            if nothing := empty_tables(gone, what="deleted"):
                self.stdout.write(nothing)
            self.stdout.write(f"Older than {time_text(cutoff, zone=True)}. Figures by hour stay.")

    def _json(self, cutoff: datetime, tables: list[dict[str, Any]], *, dry_run: bool) -> None:
        report = {"older_than": cutoff.isoformat(), "dry_run": dry_run, "tables": tables}
        self.stdout.write(json.dumps(report, indent=2))

"""``manage.py bench_behavior FILE``: how well the judge tells behaviour requests from other messages."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from rich.progress import Progress

from agents.commands import NOT_ENOUGH, WRONG_USAGE, CodedCommand, console_for_bars
from correction.behavior.bench import (
    Bench,
    CaseFileError,
    bench,
    bench_json,
    estimate,
    read_cases,
    show_bench,
)


class Command(CodedCommand):
    help = (
        "Judge labelled messages (JSONL: text or message, request or has_request, and optionally kind, language, behavior and strength) "
        "with the configured judge. Print precision, recall, F1 and false-positive rate with 95 % intervals, and for each request with a "
        "labelled behavior whether the proposed trait and its direction are right. Calls are in the ledger, nothing else is stored. "
        "Exit code: 0 all could be judged, 2 some or all could not, 3 wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="labelled messages, one JSON object a line")
        parser.add_argument("--judge", default="", metavar="MODEL", help="model to ask (default: JUDGE_MODEL)")
        parser.add_argument("--errors", action="store_true", help="also list what was judged wrongly")
        parser.add_argument("--dry-run", action="store_true", help="print calls, tokens and cost, ask nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            cases = read_cases(options["file"])
        except CaseFileError as error:
            raise CommandError(str(error), returncode=WRONG_USAGE) from None
        needed = estimate(cases, model=options["judge"])
        if options["dry_run"]:
            self._dry_run(len(cases), needed, options)
            return
        if needed is not None and not options["json"]:
            self.stdout.write(str(needed))
        with Progress(console=console_for_bars(sys.stderr), transient=True) as bar:
            task = bar.add_task("Judging", total=len(cases))
            result = bench(cases, model=options["judge"], done=lambda count: bar.advance(task, count))
        if options["json"]:
            self.stdout.write(json.dumps(bench_json(result, errors=options["errors"]), ensure_ascii=False, indent=2))
        else:
            show_bench(result, self.stdout, errors=options["errors"])
        self._check(result)

    def _dry_run(self, cases: int, needed: Any, options: dict[str, Any]) -> None:
        calls = needed.calls if needed else 0
        if options["json"]:
            cost = None if needed is None or needed.cost_usd is None else float(needed.cost_usd)
            self.stdout.write(json.dumps({"messages": cases, "calls": calls, "cost_usd": cost if needed else 0.0}))
        elif needed:
            self.stdout.write(str(needed))
        else:
            self.stdout.write(f"{cases:,} messages; the judge needs no network, it costs nothing.")

    def _check(self, result: Bench) -> None:
        left = len(result.judged) - len(result.scored)
        if left:
            why = next(one.why for one in result.judged if one.detected is None)
            raise CommandError(
                f"{left} of {len(result.judged)} messages could not be judged: {why}", returncode=NOT_ENOUGH
            )

"""``manage.py bench_behavior FILE``: how well the judge tells behaviour requests from other messages."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from rich.progress import Progress

from agents.commands import NOT_ENOUGH, WRONG_USAGE, CodedCommand, console_for_bars
from correction.behavior.bench import CaseFileError, bench, estimate, read_cases, show_bench
from correction.behavior.turning import TURNING, read_turning, show_turning, try_policy
from correction.config.settings import resolve_defaults
from evaluation.wording import counted, money


class Command(CodedCommand):
    help = (
        "Judge labelled messages (JSONL: text or message, request or has_request, and optionally context, kind, language, behavior and "
        "strength) with the configured judge. Print precision, recall, F1 and false-positive rate with 95 % intervals, and for each "
        "request with a labelled behavior whether the proposed trait and its direction are right. Calls are in the ledger, nothing else "
        "is stored. "
        "Exit code: 0 all could be judged, 2 some or all could not, 3 wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, nargs="?", help="labelled messages, one JSON object a line")
        parser.add_argument(
            "--turning",
            action="store_true",
            help="instead: try conversations that turn a persona in several messages on the policy as the defaults configure it, with a "
            "judge that is sure of everything; asks no model. FILE may have others, in the form of behavior_data/turning.yaml",
        )
        parser.add_argument("--judge", default="", metavar="MODEL", help="model to ask (default: JUDGE_MODEL)")
        parser.add_argument("--errors", action="store_true", help="also list what was judged wrongly")
        parser.add_argument("--dry-run", action="store_true", help="print calls, tokens and cost, ask nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["turning"]:
            return self.try_turning(options["file"] or TURNING, as_json=options["json"])
        if options["file"] is None:
            raise CommandError("no file; allowed: a file of labelled messages, or --turning", returncode=WRONG_USAGE)
        try:
            cases = read_cases(options["file"])
        except CaseFileError as error:
            raise CommandError(str(error), returncode=WRONG_USAGE) from None
        calls, cost = estimate(cases, model=options["judge"]) or (0, Decimal(0))
        if options["dry_run"] and options["json"]:
            usd = None if cost is None else float(cost)
            self.stdout.write(json.dumps({"messages": len(cases), "calls": calls, "cost_usd": usd}))
        elif options["dry_run"] or (calls and not options["json"]):
            asks = (
                f"About {counted(calls, 'call')}, {money(cost)}"
                if calls
                else "the judge needs no network, it costs nothing"
            )
            self.stdout.write(f"{counted(len(cases), 'message')}. {asks}")
        if options["dry_run"]:
            return
        with Progress(console=console_for_bars(sys.stderr), transient=True) as bar:
            task = bar.add_task("Judging", total=len(cases))
            result = bench(cases, model=options["judge"], done=lambda count: bar.advance(task, count))
        if options["json"]:
            self.stdout.write(json.dumps(result.data(errors=options["errors"]), ensure_ascii=False, indent=2))
        else:
            show_bench(result, self.stdout, errors=options["errors"])
        if result.unscored:
            why = next(one.why for one in result.cases if one.found is None)
            raise CommandError(
                f"{result.unscored} of {len(result.cases)} messages could not be judged: {why}", returncode=NOT_ENOUGH
            )

    def try_turning(self, path: Path, *, as_json: bool) -> None:
        try:
            turning, config = read_turning(path), resolve_defaults()
        except CaseFileError as error:
            raise CommandError(str(error), returncode=WRONG_USAGE) from None
        taken_in, attentive = (try_policy(turning, config=config, attentive=one) for one in (False, True))
        if as_json:
            both = {"taken_in": taken_in.model_dump(mode="json"), "attentive": attentive.model_dump(mode="json")}
            self.stdout.write(json.dumps(both, ensure_ascii=False, indent=2))
        else:
            show_turning(taken_in, attentive, self.stdout)

"""``manage.py bench_behavior FILE``: how well the judge tells behaviour requests from other messages."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from agents.kit.commands import CodedCommand
from correction.behavior.bench import main


class Command(CodedCommand):
    help = (
        "Judge labelled messages (JSONL: text or message, request or has_request, and optionally context, behavior and strength) with the "
        "configured judge. Print precision, recall, F1 and false-positive rate with 95 % intervals, what was judged wrongly, and for each "
        "request with a labelled behavior whether the proposed trait and its direction are right. Calls are in the ledger, nothing else "
        "is stored. "
        "Exit code: 0 all could be judged, 2 some or all could not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="labelled messages, one JSON object a line")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        main(options["file"], self.stdout, as_json=options["json"])

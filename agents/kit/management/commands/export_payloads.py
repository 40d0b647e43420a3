"""``manage.py export_payloads``: stored answers as a file from which ``JUDGE_MODEL=replay:FILE`` answers again."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.kit.commands import BaseCommand, unusable
from agents.kit.llm.providers.replay import export_answers
from agents.kit.text.moments import read_moment


class Command(BaseCommand):
    help = "Write stored model answers (LLM_STORE_PAYLOADS) as JSONL, one per request, for JUDGE_MODEL=replay:FILE."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", required=True, type=Path, help="file to write")
        parser.add_argument(
            "--since", type=read_moment, metavar="TIME", help="only calls from this UTC date or time on"
        )
        parser.add_argument("--work-id", default="", help="only calls that served this work, e.g. evaluation_run:12")

    def handle(self, *args: Any, out: Path, since: datetime | None, work_id: str, **options: Any) -> None:
        """Write the file and print how many answers it has; none at all is an error, and no file is written."""
        try:
            written = export_answers(out, since=since, work_ids=[work_id] if work_id else [])
        except OSError as problem:
            raise unusable(f"--out {out} cannot be written: {problem.strerror}") from problem
        if not written:
            raise CommandError(
                "no stored answers match; LLM_STORE_PAYLOADS must be 'judge' or 'all' while the calls are made"
            )
        self.stdout.write(f"{written} answers written to {out}. Use them with JUDGE_MODEL=replay:{out}")

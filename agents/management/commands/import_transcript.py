"""Import a conversation from a file: ``manage.py import_transcript FILE``. Formats: docs/reference/transcripts.md."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agents.kit.commands import CodedCommand, console_for_bars, console_on, print_table, unusable, wrong
from agents.kit.files.source import FileError
from agents.kit.text.wording import time_text
from agents.transcripts.importer import (
    DAY_FIRST,
    MONTH_FIRST,
    ImportReport,
    ReadOptions,
    count_notes,
    import_transcript,
    pair,
    read_columns,
    read_speakers,
)
from agents.transcripts.readers import FORMATS
from agents.transcripts.records import NotThere, OptionError


class Command(CodedCommand):
    help = "Import a conversation from a file; importing it again adds nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--format", default="auto", choices=["auto", *FORMATS], help="default: recognise it")
        parser.add_argument(
            "--channel", default="", metavar="NAME", help="made when missing; default: as the file says"
        )
        parser.add_argument(
            "--map",
            action="append",
            default=[],
            metavar="SPEAKER=SLUG",
            help="a speaker or role is this agent; empty slug: is none",
        )
        parser.add_argument(
            "--tag", action="append", default=[], metavar="KEY=VALUE", help="put on every message; also a,b lists"
        )
        parser.add_argument(
            "--columns",
            action="append",
            default=[],
            metavar="FIELD=COLUMN,…",
            help="CSV, JSON Lines: which column or key holds which field; repeatable; FIELD= alone: none does",
        )
        parser.add_argument(
            "--timezone", default="", metavar="ZONE", help="for times without an offset; default: TIME_ZONE"
        )
        parser.add_argument(
            "--dates",
            default="",
            choices=[DAY_FIRST, MONTH_FIRST],
            help="chat logs: how 01/02/2026 is read; default: as the file suggests",
        )
        parser.add_argument("--dry-run", action="store_true", help="check and count, store nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Import the file and print what was in it; say so where no speaker is an agent and none was named with --map.

        A file or option that cannot be used is an error of the command, and nothing is imported. Warnings go to standard error.
        """
        try:
            report = self._import(options)
        except (FileError, NotThere) as error:
            raise unusable(f"{error}\nNothing was imported.") from None
        except OptionError as error:
            raise wrong(f"{error}\nNothing was imported.") from None
        for warning in report.warnings:
            self.stderr.write(f"Warning: {warning}")
        if options["json"]:
            self.stdout.write(json.dumps(report.model_dump(), ensure_ascii=False))
        else:
            self._show(report)
            has_agent = any(speaker.agent for speaker in report.speakers.values())
            if report.speakers and not has_agent and not options["map"]:
                advice = ""
                if not report.dry_run:
                    advice = ", and another --channel: in this one the messages keep their authors"
                self.stdout.write(
                    f"No speaker is an agent, so nothing in it can be measured. Say who is one with --map SPEAKER=SLUG{advice}."
                )

    def _import(self, options: dict[str, Any]) -> ImportReport:
        """Import the file, with bars of progress where standard error is a terminal."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console_for_bars(sys.stderr), transient=True) as bar:
            tasks: dict[str, Any] = {}

            def progress(what: str, done: int, total: int) -> None:  # a bar for each thing that is done
                if what not in tasks:
                    tasks[what] = bar.add_task(what, total=total)
                bar.update(tasks[what], completed=done)

            return import_transcript(
                options["file"], _read_options(options), dry_run=options["dry_run"], progress=progress
            )

    def _show(self, report: ImportReport) -> None:
        """Print the speakers, how much was read, imported and skipped, and a line for each thing worth a note that did happen."""
        rows = [(name, speaker.agent or "outsider", speaker.messages) for name, speaker in report.speakers.items()]
        print_table(console_on(self.stdout), ["Speaker", "Agent", ">Messages"], rows)
        console = console_on(self.stdout, markup=False)
        names = ", ".join(report.channels[:5]) + (" …" if len(report.channels) > 5 else "")
        verb = "would import" if report.dry_run else "imported"
        console.print(f"{report.format}: read {report.read}, {verb} {report.imported} into {names or 'no channel'}; "
                      f"{report.duplicates} were there already.")  # fmt: skip
        if report.first_sent_at:
            first = datetime.fromisoformat(report.first_sent_at)
            last = datetime.fromisoformat(report.last_sent_at)
            console.print(f"sent: {time_text(first)} to {time_text(last, zone=True)}")
        for reason, count in report.skipped_by_reason.items():
            console.print(f"skipped: {count} × {reason}")
        for note in count_notes(report.model_dump()):
            console.print(note)
        if report.duplicates:
            console.print(
                "Messages that were there keep their tags. For another build's conversation use another --channel."
            )


def _read_options(options: dict[str, Any]) -> ReadOptions:
    """Return how the file is to be read, from the options of the command line.

    --map, --tag and --columns may be given several times; --tag and --columns also hold lists: ``a=1,b=2``.

    Raises:
        OptionError: One of them is not of this form.
    """
    tags = [text for part in options["tag"] for text in part.split(",")]
    return ReadOptions(
        format=options["format"],
        channel=options["channel"],
        speaker_map=read_speakers(options["map"]),
        tags=dict(pair(text, "--tag", "KEY=VALUE") for text in tags),
        columns=read_columns(options["columns"]),
        time_zone=options["timezone"],
        dates=options["dates"],
    )

"""Export a channel: ``manage.py export_transcript --channel X``. Formats: docs/reference/transcripts.md."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents.bodies import no_channel
from agents.kit.commands import BaseCommand, unusable, wrong
from agents.models import Channel
from agents.transcripts.exporter import EXPORTS, export_transcript
from agents.transcripts.records import NotThere, OptionError


class Command(BaseCommand):
    help = "Export the messages of a channel; JSON Lines can be imported again exactly."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--channel", required=True, metavar="SLUG")
        parser.add_argument("--format", default="jsonl", choices=list(EXPORTS))
        parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
        parser.add_argument("--agent", default="", metavar="SLUG", help="openai: whose messages are 'assistant'")
        parser.add_argument(
            "--where", action="append", default=[], metavar="TAG=VALUE", help="only messages with this tag"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the messages of the channel that have all tags of --where, to --out or standard output."""
        channel = Channel.objects.filter(slug=options["channel"]).first()
        if channel is None:
            raise unusable(no_channel(options["channel"]))
        where = {}
        for text in options["where"]:
            key, equals, value = text.partition("=")
            if not equals or not key:
                raise wrong(f"--where {text!r}: write it as TAG=VALUE, e.g. build=41")
            where[key] = value
        try:
            pieces = export_transcript(channel=channel, format=options["format"], agent=options["agent"], where=where)
            self._write(pieces, options["out"])
        except NotThere as error:
            raise unusable(error) from None
        except OptionError as error:
            raise wrong(error) from None

    def _write(self, pieces: Iterator[str], out: Path | None) -> None:
        """Write to standard output, or to a file that appears only when it is complete."""
        if out is None:
            try:
                for piece in pieces:
                    self.stdout.write(piece, ending="")
                self.stdout.flush()
            except BrokenPipeError:  # the reader, e.g. `head`, has enough
                # Python writes out what is left when it ends, which would fail once more.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return
        part = out.with_name(out.name + ".part")
        try:
            with part.open("w", encoding="utf-8", newline="") as file:
                file.writelines(pieces)
            os.replace(part, out)
        except OSError as error:
            raise unusable(f"--out {out} cannot be written: {error.strerror}") from None
        finally:
            part.unlink(missing_ok=True)

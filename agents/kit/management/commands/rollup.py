"""``manage.py rollup``: sum hours now, or again."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from datetime import datetime
from typing import Any

from django.utils import timezone

from agents.kit.commands import BaseCommand
from agents.kit.ops.sums import roll_up, rollups
from agents.kit.text.moments import read_moment


class Command(BaseCommand):
    help = (
        "Sum the whole hours of the ledger and of the gate's logs that are over. Workers do it every hour; this is for the first "
        "time, and for summing again (--since). Hours whose raw rows were pruned keep their sums."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since", metavar="TIME", type=_moment, help="sum the hours from this UTC date or time on again"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        for summed_rows in rollups():
            done = roll_up(summed_rows, since=options["since"])
            self.stdout.write(f"{summed_rows.name}: {done} hour{'s' * (done != 1)} summed")


def _moment(text: str) -> datetime:
    """Return a point in time that is past; anything else is a wrong option."""
    try:
        moment = read_moment(text)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment > timezone.now():
        raise ArgumentTypeError(
            f"{text!r}: allowed: a UTC date or time in the past, e.g. 2026-11-22 or 2026-11-22T08:00"
        )
    return moment

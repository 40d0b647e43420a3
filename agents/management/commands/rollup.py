"""``manage.py rollup``: sum up hours now, or compare the sums with the raw rows."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.dateparse import parse_date, parse_datetime

from agents.models import owner_name
from agents.rollup import rollups
from agents.rollups import mark_hours_stale, roll_up, verify

SHOWN = 20


class Command(BaseCommand):
    help = (
        "Sum up the whole hours of the ledger and of the gate's logs that are over. Workers do it by themselves; this is for the first "
        "time, for looking after it (--verify) and for making sums anew (--since). Hours whose raw rows were pruned keep their sums."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since", metavar="TIME", type=_moment, help="also make the hours from this UTC date or time on anew"
        )
        parser.add_argument(
            "--verify",
            action="store_true",
            help="compare sums with raw rows, and days and months with hours, and end with 1 on a difference; nothing is changed",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verify"]:
            self._verify(options["since"])
            return
        for rolled in rollups():
            if options["since"] is not None:
                mark_hours_stale(rolled, since=options["since"])
            done = roll_up(rolled, owner=owner_name(), seconds=None)
            self.stdout.write(f"{rolled.name}: {done} hour{'s' * (done != 1)} summed up")

    def _verify(self, since: datetime | None) -> None:
        wrong: list[str] = []
        for rolled in rollups():
            found = verify(rolled, since=since)
            pruned = f", {found.pruned} pruned, not comparable" if found.pruned else ""
            if not found.spans and not found.pruned:
                self.stdout.write(f"{rolled.name}: nothing is summed up yet, so nothing was compared")
                continue
            told = f"{len(found.differences)} differences" if found.differences else "no difference"
            self.stdout.write(f"{rolled.name}: {found.spans} hours, days and months compared{pruned}: {told}")
            wrong += map(str, found.differences)
        if wrong:
            more = f"\nand {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
            raise CommandError("\n".join(wrong[:SHOWN]) + more, returncode=1)


def _moment(text: str) -> datetime:
    try:
        day = parse_date(text)
        moment = parse_datetime(text) if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
    except ValueError:
        moment = None
    if moment is None or moment - datetime.now(moment.tzinfo) > timedelta(0):
        raise CommandError(
            f"--since {text!r}: allowed: a UTC date or time in the past, e.g. 2026-11-22 or 2026-11-22T08:00"
        )
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

"""``manage.py forget``: erase a person's words and name; numbers stay."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from agents import erasure
from agents.kit.commands import BaseCommand, empty_tables, unusable, wrong
from agents.kit.erasing import Person

OUT_OF_REACH = (
    "Not reached from here: what other people and programs typed (messages that answer none of theirs, names of channels, notes, "
    "configuration; --search shows where their name stands); backups and exports; log files, and Sentry where texts are sent to it; "
    "what the model provider keeps; proposition, nudge and transcript files; ids that other systems gave (external ids, idempotency "
    "keys, slugs), so that nothing is imported again."
)


class Command(BaseCommand):
    help = (
        "Erase a person: their messages are blanked, and what derives from them, found by keys: what agents answered, and all that was "
        "written after their first message in a channel: prompts, drafts, feedback, judges' reasoning, labels' notes, ideas, summaries, "
        "memory, traces and stored answers; stored payloads are deleted. Scores, counts, costs and tokens stay. Work under way is left: "
        f"run it again when that has ended. May be stopped and begun again. {OUT_OF_REACH}"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        who = parser.add_mutually_exclusive_group(required=True)
        who.add_argument("--outsider", metavar="NAME", help="a speaker without an account, by name to the letter")
        who.add_argument("--user", metavar="ID|USERNAME", help="a user; the name goes from the account, too")
        parser.add_argument("--dry-run", action="store_true", help="only count the rows of each table")
        parser.add_argument(
            "--channel",
            action="append",
            default=[],
            metavar="SLUG",
            help="with --outsider: only in this channel, where another person elsewhere has the same name; may be repeated",
        )
        parser.add_argument(
            "--deactivate",
            action="store_true",
            help="with --user: close the account: username, e-mail address, password and tokens go, too",
        )
        parser.add_argument(
            "--search",
            action="store_true",
            help="change nothing: list the texts that have their name, for you to look at",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Erase the person, or count what would be (--dry-run), or only list the texts with their name (--search)."""
        person = self._person(options)
        if options["search"]:
            self._show_places(list(erasure.places_with_name(person)), as_json=options["json"])
            return
        results = list(erasure.forget(person, dry_run=options["dry_run"]))
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(results, options["dry_run"]), indent=2))
        else:
            self._show(results, dry_run=options["dry_run"])

    def _person(self, options: dict[str, Any]) -> Person:
        """Return whom --outsider or --user names; an error of the command where there is nobody, or other options do not fit."""
        for option, needed in (("channel", "outsider"), ("deactivate", "user")):
            if options[option] and options[needed] is None:
                raise wrong(f"--{option}: allowed with --{needed} only")
        try:
            if options["user"] is not None:
                return erasure.find_user(options["user"], deactivate=options["deactivate"])
            return erasure.find_outsider(options["outsider"], channels=options["channel"])
        except erasure.Unknown as error:
            raise unusable(error) from None

    def _show_places(self, places: list[erasure.NameInColumn], *, as_json: bool) -> None:
        """Print a line such as ``messages.text: 12 (981, 977, 970, 964, 951 …)`` for each column, or all as JSON."""
        if as_json:
            self.stdout.write(json.dumps([place._asdict() for place in places], indent=2))
            return
        if places:
            self.stdout.write(
                "Rows of each column that have their name, also within other words, and the ids of the newest:"
            )
        for place in places:
            more = " …" if place.rows > len(place.keys) else ""
            self.stdout.write(f"{place.table}.{place.column}: {place.rows:,} ({', '.join(map(str, place.keys))}{more})")
        if not places:
            self.stdout.write("Their name stands in no text.")

    def _show(self, results: list[erasure.Erased], *, dry_run: bool) -> None:
        """Print the rows of each table, those without any in one sentence, then what people have to look at themselves."""
        what = "would be erased" if dry_run else "erased"
        tables = _per_table(results)
        for table, rows in tables.items():
            if rows:
                noun = "row" if rows == 1 else "rows"
                self.stdout.write(f"{table:<32} {rows:>8,} {noun} {what}")
        nothing_found = empty_tables(tables, what="found")
        if nothing_found:
            self.stdout.write(nothing_found)
        for table, rows in _configuration_made_of_it(results).items():
            self.stdout.write(
                f"{table}: {rows} row{'s' * (rows != 1)} of configuration were made of what they said: look there yourself"
            )
        self.stdout.write(OUT_OF_REACH)
        if dry_run:
            self.stdout.write("Nothing was changed (--dry-run).")


def _per_table(results: Iterable[erasure.Erased], *, report_only: bool = False) -> dict[str, int]:
    """Return rows per table, of the rules that erase or of those that only report; a row that several rules name counts once.

    A table in which nothing was found has 0.
    """
    keys: dict[str, set[Any]] = {}
    for erased in results:
        if erased.rule.report_only == report_only:
            keys.setdefault(erased.rule.table, set()).update(erased.keys)
    return {table: len(rows) for table, rows in keys.items()}


def _configuration_made_of_it(results: Iterable[erasure.Erased]) -> dict[str, int]:
    """Return the rows of configuration, by table, that were made of what the person said."""
    return {table: rows for table, rows in _per_table(results, report_only=True).items() if rows}


def _as_json(results: list[erasure.Erased], dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "tables": _per_table(results),
        "configuration": _configuration_made_of_it(results),
        "out_of_reach": OUT_OF_REACH,
    }

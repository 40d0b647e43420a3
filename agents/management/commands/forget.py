"""``manage.py forget``: erase a person's words and name; numbers stay."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from agents import erasure
from agents.kit.commands import BaseCommand, empty_tables, unusable, wrong
from agents.kit.registry import Person

OUT_OF_REACH = (
    "Not reached from here: backups and exports; log files, and Sentry where texts are sent to it; what the model provider keeps; "
    "proposition, nudge and transcript files; ids that other systems gave (external ids, idempotency keys, slugs), so that nothing "
    "is imported again."
)


class Command(BaseCommand):
    help = (
        "Erase a person: their messages are blanked, and quotes of them (and their name, where they spoke) go from drafts, feedback, "
        "judges' reasoning, labels' notes, ideas, prompts, traces, memory and stored answers; stored payloads with their words are "
        f"deleted. Scores, counts, costs and tokens stay. May be stopped and begun again. {OUT_OF_REACH}"
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
            "--name-everywhere",
            action="store_true",
            help="take the name out of every text, also of channels and agents they never spoke with; not for names others have",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        person = self._person(options)
        results = list(erasure.forget(person, dry_run=options["dry_run"], name_everywhere=options["name_everywhere"]))
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(results, options["dry_run"]), indent=2))
        else:
            self._show(results, dry_run=options["dry_run"])

    def _person(self, options: dict[str, Any]) -> Person:
        for option, needed in (("channel", "outsider"), ("deactivate", "user")):
            if options[option] and options[needed] is None:
                raise wrong(f"--{option}: allowed with --{needed} only")
        try:
            if options["user"] is not None:
                return erasure.find_user(options["user"], deactivate=options["deactivate"])
            return erasure.find_outsider(options["outsider"], channels=options["channel"])
        except erasure.Unknown as error:
            raise unusable(error) from None

    def _show(self, results: list[erasure.Erased], *, dry_run: bool) -> None:
        what = "would be erased" if dry_run else "erased"
        tables = _per_table(results)
        for table, rows in tables.items():
            if rows:
                self.stdout.write(f"{table:<32} {rows:>8,} row{'s' * (rows != 1)} {what}")
        if nothing := empty_tables(tables, what="found"):
            self.stdout.write(nothing)
        for table, rows in _quoting(results).items():
            self.stdout.write(
                f"{table}: {rows} row{'s' * (rows != 1)} of configuration quote them: look there yourself"
            )
        if elsewhere := sum(one.named_elsewhere for one in results):
            self.stdout.write(
                f"{elsewhere} row{'s' * (elsewhere != 1)} where they never spoke have the name and were left: it may be another person's "
                "(--name-everywhere takes it out)"
            )
        self.stdout.write(OUT_OF_REACH)
        if dry_run:
            self.stdout.write("Nothing was changed (--dry-run).")


def _per_table(results: Iterable[erasure.Erased], *, report_only: bool = False) -> dict[str, int]:
    """Rows per table; one that several rules name is one row."""
    keys: dict[str, set[int]] = {}
    for one in results:
        if one.rule.report_only == report_only:
            keys.setdefault(one.rule.table, set()).update(one.keys)
    return {table: len(rows) for table, rows in keys.items()}


def _quoting(results: Iterable[erasure.Erased]) -> dict[str, int]:
    return {table: rows for table, rows in _per_table(results, report_only=True).items() if rows}


def _as_json(results: list[erasure.Erased], dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "tables": _per_table(results),
        "quoted_in_configuration": _quoting(results),
        "named_elsewhere": sum(one.named_elsewhere for one in results),
        "out_of_reach": OUT_OF_REACH,
    }

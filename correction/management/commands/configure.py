"""``manage.py configure``: show and set what is corrected, per agent or by default."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from getpass import getuser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich import box
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on
from agents.finding import UnknownAgent, find_agent
from agents.models import Agent
from correction.config.configure import (
    ConfigChange,
    config_history,
    configure,
    gate_from_now_on,
    in_effect,
    notes_on,
    plain_values,
    revert,
)
from correction.config.settings import BUILT_IN, CONFIG_FIELDS, ConfigError, ResolvedConfig

EXAMPLES = """
examples:
  manage.py configure michael                                  show what is in effect, and where it comes from
  manage.py configure michael gate_adherence_enabled=on        check michael's drafts (gate_mode unset means enforce)
  manage.py configure michael gate_mode=observe                judge after sending, hold nothing back
  manage.py configure michael gate_adherence_threshold=inherit go back to the defaults
  manage.py configure defaults max_correction_attempts=1       for every agent that says nothing of its own
  manage.py configure michael --history                        who changed what, when and why
  manage.py configure michael --revert 12                      back to the state after entry 12
  manage.py configure --fields                                 every field with its allowed values

Exit code: 0 done, 2 the input was refused and nothing was changed.
"""


class Command(BaseCommand):
    help = "Show or set the correction settings of an agent, or the defaults for all agents."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = EXAMPLES
        parser.add_argument("who", nargs="?", metavar="AGENT|defaults", help="an agent's slug or name, or defaults")
        parser.add_argument("changes", nargs="*", metavar="field=value", help="what to set; inherit resets a field")
        parser.add_argument(
            "--reason", default="", help="why, kept in the history: at most 100 characters (default: your login name)"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        parser.add_argument("--history", action="store_true", help="show the latest changes")
        parser.add_argument(
            "--revert", type=int, metavar="ENTRY", help="go back to the state after this entry of the history"
        )
        parser.add_argument(
            "--fields", action="store_true", help="list every field: allowed values, meaning, built-in value"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._answer(options)
        except (ConfigError, UnknownAgent) as error:
            raise CommandError(str(error), returncode=2) from None

    def _answer(self, options: dict[str, Any]) -> None:
        if options["fields"]:
            return field_table(self.stdout)
        if not options["who"]:
            raise CommandError("name an agent, or defaults; --fields lists what can be set", returncode=2)
        agent = None if options["who"].lower() == "defaults" else find_agent(options["who"])
        changes = pairs(options["changes"])
        asked = [name for name in ("history", "revert") if options[name] not in (None, False)]
        if len(asked) + bool(changes) > 1:
            raise CommandError("set fields, show --history or --revert: one at a time", returncode=2)
        if options["history"]:
            return self._history(agent, as_one_object=options["json"])
        before = in_effect(agent)
        if options["revert"] is not None:
            after = revert(agent=agent, history_id=options["revert"])
        elif changes:
            after = configure(
                agent=agent, changes=changes, reason=options["reason"] or f"by {getuser()} in a terminal"[:100]
            )
        else:
            after = before
        if options["json"]:
            shown = {
                "agent": agent.slug if agent else None,
                "config": plain_values(after),
                "provenance": dict(after.provenance),
                "notes": notes_on(after),
            }
            return self.stdout.write(json.dumps(shown, indent=2))
        if changes or options["revert"] is not None:
            self._echo(before, after, named=list(changes))
            if sentence := gate_from_now_on(before, after):
                self.stdout.write(sentence)
        else:
            config_table(agent, after, self.stdout)
        for note in notes_on(after):
            self.stdout.write(self.style.WARNING(f"Note: {note}."))

    def _echo(self, before: ResolvedConfig, after: ResolvedConfig, *, named: Sequence[str]) -> None:
        """Each field that was named, and each that changed with it, as before → after."""
        for name, field in CONFIG_FIELDS.items():
            old, new = (f"{field.show_effective(c[name])} ({c.provenance[name]})" for c in (before, after))
            if old != new:
                self.stdout.write(f"{name}: {old} → {new}")
            elif name in named:
                self.stdout.write(f"{name}: {new}, unchanged")

    def _history(self, agent: Agent | None, *, as_one_object: bool) -> None:
        changes = config_history(agent)
        if not as_one_object:
            return history_table(agent, changes, self.stdout)
        entries = [
            {
                "entry": change.history_id,
                "at": change.at.isoformat(),
                "user": change.user,
                "reason": change.reason,
                "kind": change.kind,
                "changes": {
                    name: [CONFIG_FIELDS[name].show(value) for value in pair] for name, pair in change.changes.items()
                },
            }
            for change in changes
        ]
        return self.stdout.write(json.dumps({"agent": agent.slug if agent else None, "history": entries}, indent=2))


def pairs(arguments: Sequence[str]) -> dict[str, str]:
    """``field=value`` arguments as a mapping.

    Raises:
        CommandError: One has no ``=``, or names a field a second time.
    """
    changes: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise CommandError(f"{argument!r}: write field=value, e.g. gate_adherence_enabled=on", returncode=2)
        if name.strip() in changes:
            raise CommandError(f"{name.strip()} is given twice", returncode=2)
        changes[name.strip()] = value
    return changes


def config_table(agent: Agent | None, config: ResolvedConfig, out: Any) -> None:
    """Every field: the value in effect, where it comes from, what is allowed, what it means."""
    table = _table(f"Correction of {agent.display_name} ({agent.slug})" if agent else "Correction: the defaults")
    for heading in ("Field", "In effect", "From"):
        table.add_column(heading, no_wrap=True)
    table.add_column("Allowed")
    table.add_column("Meaning")
    for name, field in CONFIG_FIELDS.items():
        meaning = field.description
        table.add_row(
            name, field.show_effective(config[name]), config.provenance[name], field.allowed, escape(meaning),
            style="" if config.provenance[name] == "built-in" else "bold",
        )  # fmt: skip
    console_on(out).print(table)


def field_table(out: Any) -> None:
    """Every field, whatever anybody set."""
    table = _table("Fields. Each may also be `inherit`: the defaults, else the built-in value, then hold.")
    table.add_column("Field", no_wrap=True)
    for heading in ("Allowed", "Built-in", "Meaning"):
        table.add_column(heading)
    for name, field in CONFIG_FIELDS.items():
        table.add_row(name, field.allowed, field.show_effective(BUILT_IN[name]), escape(field.description))
    console_on(out).print(table)


def history_table(agent: Agent | None, changes: Sequence[ConfigChange], out: Any) -> None:
    """The changes, newest first."""
    whose = agent.slug if agent else "the defaults"
    if not changes:
        out.write(f"The configuration of {whose} was never changed.")
        return
    table = _table(f"History of {whose}. `--revert ENTRY` goes back to the state after an entry.")
    for heading in ("Entry", "When", "Who", "What", "Why"):
        table.add_column(heading, no_wrap=heading in ("Entry", "When"))
    for change in changes:
        what = [
            f"{name}: {CONFIG_FIELDS[name].show(before)} → {CONFIG_FIELDS[name].show(after)}"
            for name, (before, after) in change.changes.items()
        ]
        when = f"{change.at:%Y-%m-%d %H:%M:%S} UTC"
        table.add_row(
            str(change.history_id), when, escape(change.user or "–"), escape("\n".join(what) or change.kind), escape(change.reason)
        )  # fmt: skip
    console_on(out).print(table)


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")

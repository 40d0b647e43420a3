"""``manage.py configure``: show and set what is corrected, per agent or by default."""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from getpass import getuser
from typing import Any

from agents.kit.commands import BaseCommand, Cell, console_on, print_table, unusable, wrong
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agent
from correction.config.configure import (
    config_json,
    configure,
    gate_from_now_on,
    in_effect,
    notes_on,
)
from correction.config.settings import SETTINGS, ConfigError, ResolvedConfig

EXAMPLES = """
examples:
  manage.py configure michael                                  show every field, what is in effect, and what is allowed
  manage.py configure michael gate_adherence_enabled=on        check michael's drafts (gate_mode unset means enforce)
  manage.py configure michael gate_mode=observe                judge after sending, hold nothing back
  manage.py configure michael gate_adherence_threshold=inherit go back to the defaults
  manage.py configure defaults max_correction_attempts=1       for every agent that says nothing of its own
"""


class Command(BaseCommand):
    help = "Show or set the correction settings of an agent, or the defaults for all agents."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = EXAMPLES
        parser.add_argument("who", metavar="AGENT|defaults", help="an agent's slug or name, or defaults")
        parser.add_argument("changes", nargs="*", metavar="field=value", help="what to set; inherit resets a field")
        parser.add_argument(
            "--reason", default="", help="why, for the history: at most 100 characters (default: your login name)"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._answer(options)
        except UnknownAgent as error:
            raise unusable(error) from None
        except ConfigError as error:
            raise wrong(error) from None

    def _answer(self, options: dict[str, Any]) -> None:
        """Change the settings that are named, and print what changed, or else every setting in effect; then what has no effect.

        With ``--json`` the configuration in effect alone.

        Raises:
            UnknownAgent: There is no such agent.
            ConfigError: A field or value is not allowed.
            CommandError: An argument is not of the form ``field=value``.
        """
        agent = None if options["who"].lower() == "defaults" else find_agent(options["who"])
        changes = pairs(options["changes"])
        before = after = in_effect(agent)
        if changes:
            reason = options["reason"] or f"by {getuser()} in a terminal"[:100]
            after = configure(agent=agent, changes=changes, reason=reason)
        if options["json"]:
            answer = {"agent": agent.slug if agent else None, **config_json(after)}
            self.stdout.write(json.dumps(answer, indent=2))
            return
        if changes:
            self._show_changes(before, after, named=list(changes))
        else:
            self._show_settings(agent, after)
        for note in notes_on(after, agent):
            self.stdout.write(self.style.WARNING(f"Note: {note}."))

    def _show_changes(self, before: ResolvedConfig, after: ResolvedConfig, *, named: Sequence[str]) -> None:
        """Print each field that was named, and each that changed with it, and what the gate does from now on, where that changed.

        As in ``gate_mode: off (built-in) → observe (agent)``: the value in effect, and where it comes from.
        """
        for name in SETTINGS:
            old = f"{before.show(name)} ({before.provenance[name]})"
            new = f"{after.show(name)} ({after.provenance[name]})"
            if old != new:
                self.stdout.write(f"{name}: {old} → {new}")
            elif name in named:
                self.stdout.write(f"{name}: {new}, unchanged")
        sentence = gate_from_now_on(before, after)
        if sentence:
            self.stdout.write(sentence)

    def _show_settings(self, agent: Agent | None, config: ResolvedConfig) -> None:
        """Print every setting: the value in effect, where it comes from, what is allowed, what it means."""
        title = "Correction: the defaults"
        if agent is not None:
            title = f"Correction of {agent.display_name} ({agent.slug})"
        self._settings_table(title, config, [name for name, setting in SETTINGS.items() if not setting.advanced])
        self._settings_table("Advanced", config, [name for name, setting in SETTINGS.items() if setting.advanced])

    def _settings_table(self, title: str, config: ResolvedConfig, names: Sequence[str]) -> None:
        """Print a table of these settings; those that do not have their built-in value stand out. The first three columns never wrap."""
        rows: list[list[Cell]] = []
        for name in names:
            setting = SETTINGS[name]
            came_from = config.provenance[name]
            cells = (name, setting.show(config[name]), came_from, setting.allowed, setting.help)
            if came_from == "built-in":
                rows.append([*cells])
            else:
                rows.append([(cell, "strong") for cell in cells])
        heads = ("Field", "In effect", "From", "Allowed", "Meaning")
        print_table(console_on(self.stdout), heads, rows, title=title, unwrapped=heads[:3])


def pairs(arguments: Sequence[str]) -> dict[str, str]:
    """Return ``field=value`` arguments as a mapping.

    Raises:
        CommandError: One has no ``=``, or names a field a second time.
    """
    changes: dict[str, str] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise wrong(f"{argument!r}: write field=value, e.g. gate_adherence_enabled=on")
        if name.strip() in changes:
            raise wrong(f"{name.strip()} is given twice")
        changes[name.strip()] = value
    return changes

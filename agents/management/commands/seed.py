"""``manage.py seed``: the sixteen example agents and their conversations; ``--remove`` takes them out again."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.utils.module_loading import import_string

from agents.kit.capability import declared
from agents.kit.commands import CodedCommand, unusable, wrong
from agents.seed import loader
from agents.seed.removing import remove_examples

# What apps store without example agents, by the name of its option.
DEFAULTS: dict[str, str] = declared("seed_defaults")


class Command(CodedCommand):
    help = (
        "Load the 16 example agents with their personas, and their conversations. Safe to run again: only what is missing is added. "
        f"{''.join(f'With --{name}: only store the default {name}. ' for name in DEFAULTS)}"
        "With --remove: take them, and what the demonstration and evaluations made of them, out again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--reset", action="store_true", help="also overwrite personas that were edited since they were seeded"
        )
        parser.add_argument(
            "--remove",
            action="store_true",
            help="remove the example agents, their channels and messages, and what was measured of them; nothing of your own",
        )
        for name in DEFAULTS:
            what = f"store only the default {name}, without example agents or conversations"
            parser.add_argument(f"--{name}", action="store_true", help=what)
        parser.add_argument(
            "--yes", action="store_true", help="with --remove: remove it; without it, say what would go"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Load the examples; or store the defaults of one app (e.g. --swarm) and nothing else, or remove the examples."""
        default = next((name for name in DEFAULTS if options[name]), "")
        if options["remove"] and default:
            raise wrong(f"--remove or --{default}, one of the two")
        if options["remove"]:
            self._remove(options)
            return
        if options["yes"]:
            raise wrong("--yes goes with --remove")
        if default and options["reset"]:
            raise wrong(f"--{default} or --reset, one of the two")
        if default:
            store_defaults = import_string(DEFAULTS[default])
            self.stdout.write(store_defaults([]))  # says what it did; of example agents it is given none
            return
        self._load(options)

    def _load(self, options: dict[str, Any]) -> None:
        """Load the examples, and say what was added and what stays as it is."""
        report = loader.seed(reset=options["reset"])
        done = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(report.agents.items()))
        self.stdout.write(f"Agents: {done}.")
        self.stdout.write(
            f"Messages: {report.messages_created} added, {report.messages_present} there already, in {report.channels} channels."
        )
        for note in report.notes:
            self.stdout.write(note)
        if report.kept:
            self.stdout.write(
                self.style.WARNING(
                    f"Edited personas stay as they are: {', '.join(report.kept)}. --reset overwrites them."
                )
            )

    def _remove(self, options: dict[str, Any]) -> None:
        """Remove the examples with --yes, else say what would go; an error of the command where something speaks against it."""
        if options["reset"]:
            raise wrong("--remove or --reset, one of the two")
        is_confirmed = options["yes"]
        removal = remove_examples(dry_run=not is_confirmed)
        if removal.objections:
            raise unusable("Nothing was removed:\n  " + "\n  ".join(removal.objections))
        rows = ", ".join(f"{number:,} {name}" for name, number in removal.removed.items() if number)
        self.stdout.write(f"{'Removed' if is_confirmed else 'Would be removed'}: {rows or 'nothing'}.")
        for sentence in removal.kept:
            self.stdout.write(f"{sentence[:1].upper()}{sentence[1:]}.")
        if not is_confirmed:
            self.stdout.write("Nothing was removed. To remove it: manage.py seed --remove --yes")

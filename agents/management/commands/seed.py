"""``manage.py seed``: the sixteen example agents and their conversations."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from agents.seed import loader


class Command(BaseCommand):
    help = "Load the 16 example agents with their personas, and their conversations. Safe to run again: only what is missing is added."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--reset", action="store_true", help="also overwrite personas that were edited since they were seeded"
        )

    def handle(self, *args: Any, **options: Any) -> None:
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
                self.style.WARNING(f"Edited personas were kept: {', '.join(report.kept)}. --reset overwrites them.")
            )

"""Import personas as agents: ``manage.py import_agents PATH``. Formats: docs/reference/personas.md."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from agents.kit.commands import Cell, CodedCommand, console_on, print_table, unusable
from agents.models import Agent
from agents.personas.persona import Outcome, UpsertResult
from agents.personas.reader import import_agents
from agents.personas.shape import PersonaError

_HOW_TO_REPLACE_EXAMPLES = (
    "Remove the examples first (manage.py seed --remove), name yours otherwise, or take their place with --reset."
)


class Command(CodedCommand):
    help = "Create or update agents from persona files; importing them again changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, metavar="PATH", help="a file or a folder")
        parser.add_argument(
            "--reset", action="store_true", help="overwrite personas that were edited since their last import"
        )
        parser.add_argument("--dry-run", action="store_true", help="say what would happen, change nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Import the personas, and print what became of each; warnings about those that were kept go to standard error.

        One that cannot be read is an error of the command, and nothing is imported.
        """
        examples = set(Agent.objects.filter(origin=Agent.Origin.SEED).values_list("slug", flat=True))
        try:
            results = import_agents(path=options["path"], reset=options["reset"], dry_run=options["dry_run"])
        except PersonaError as error:
            raise unusable(f"{error}\nNothing was imported.") from None
        self._warn(results, examples)
        if options["json"]:
            self.stdout.write(json.dumps(as_json(results, dry_run=options["dry_run"]), ensure_ascii=False))
            return
        rows: list[list[Cell]] = []
        for result in results:
            agent = result.agent
            outcome = result.outcome.replace("_", " ")
            rows.append([agent.slug, agent.display_name, outcome, ", ".join(result.changed)])
        print_table(console_on(self.stdout), ["Agent", "Name", "Outcome", "Changed"], rows)
        if options["dry_run"]:
            self.stdout.write("Dry run: nothing was changed.")

    def _warn(self, results: Sequence[UpsertResult], examples: Collection[str]) -> None:
        """Say which agents were kept, and which were examples until now; `examples` are the slugs of those before the import."""
        kept = [result.agent.slug for result in results if result.outcome == Outcome.KEPT_EDITED]
        kept_edited = [slug for slug in kept if slug not in examples]
        kept_examples = [slug for slug in kept if slug in examples]
        # Imported over an example (--reset): it is the user's own from now on.
        former_examples = [
            result.agent.slug for result in results if result.agent.slug in examples and not result.agent.seeded
        ]
        if kept_edited:
            names = ", ".join(kept_edited)
            self.stderr.write(
                f"Kept, because their persona was edited here or does not come from an import: {names}. --reset overwrites them."
            )
        if kept_examples:
            self.stderr.write(
                f"Kept, because example agents have these names: {', '.join(kept_examples)}. {_HOW_TO_REPLACE_EXAMPLES}"
            )
        if former_examples:
            names = ", ".join(former_examples)
            self.stderr.write(f"Example agents until now: {names}. What the examples said stays, and is measured, too.")


def as_json(results: list[UpsertResult], *, dry_run: bool) -> dict[str, Any]:
    """Return the object that ``--json`` prints: the agents, and how many had each outcome, also 0."""
    agents = []
    for result in results:
        agents.append(
            {
                "slug": result.agent.slug,
                "display_name": result.agent.display_name,
                "outcome": result.outcome,
                "changed": list(result.changed),
            }
        )
    outcomes = Counter(result.outcome for result in results)
    return {
        "agents": agents,
        **{outcome: outcomes[outcome] for outcome in Outcome},
        "dry_run": dry_run,
    }

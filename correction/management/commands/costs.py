"""``manage.py costs``: what model calls cost, told apart as asked."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents.finding import UnknownAgent, find_agent
from correction.costs import (
    ALLOWED_WINDOWS,
    GROUPINGS,
    costs_as_json,
    get_cost_summary,
    get_total_cost_summary,
    groupings,
)
from correction.presentation import cost_tables


class Command(BaseCommand):
    help = (
        "What model calls used and cost: gate and interventions first, then measuring and turns. Calls of a model without a price "
        "are counted apart, never as 0."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("agent", nargs="?", metavar="AGENT", help="an agent's slug or name (default: all agents)")
        parser.add_argument("--window", default="7d", help=f"{ALLOWED_WINDOWS} (default: 7d)")
        parser.add_argument(
            "--by",
            default="mechanism,dimension",
            help=f"separated by commas: {', '.join(GROUPINGS)} (default: %(default)s)",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            by = groupings(options["by"])
            if options["agent"]:
                summary = get_cost_summary(agent=find_agent(options["agent"]), window=options["window"], by=by)
            else:
                summary = get_total_cost_summary(window=options["window"], by=by)
        except (ValueError, UnknownAgent) as error:
            raise CommandError(str(error), returncode=2) from None
        if options["json"]:
            self.stdout.write(json.dumps(costs_as_json(summary), indent=2))
        else:
            cost_tables(summary, self.stdout)

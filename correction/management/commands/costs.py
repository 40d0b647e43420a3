"""``manage.py costs``: what model calls cost, told apart as asked."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich import box
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on
from agents.finding import UnknownAgent, find_agent
from agents.llm.ledger import Totals
from correction.costs import (
    ALLOWED_WINDOWS,
    GROUPINGS,
    CostSummary,
    Grouping,
    costs_as_json,
    get_cost_summary,
    groupings,
)


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
            agent = find_agent(options["agent"]) if options["agent"] else None
            summary = get_cost_summary(agent=agent, window=options["window"], by=by)
        except (ValueError, UnknownAgent) as error:
            raise CommandError(str(error), returncode=2) from None
        if options["json"]:
            self.stdout.write(json.dumps(costs_as_json(summary), indent=2))
        else:
            cost_tables(summary, self.stdout)


def cost_tables(summary: CostSummary, out: Any) -> None:
    """The sums, then a table per grouping."""
    console = console_on(out)
    whose = summary.agent.slug if summary.agent else "all agents"
    since = f"since {summary.window.start:%Y-%m-%d %H:%M} UTC" if summary.window.start else "of all time"
    total, correction = summary.total, summary.correction
    console.print(f"Model calls for {escape(whose)} {since}: {_sums(total)}; correction alone: {_sums(correction)}.\n")
    for grouping, rows in summary.by.items():
        if not rows:
            continue
        table = _table(f"By {grouping}")
        if told_apart := any(row.purpose for row in rows):
            table.add_column("Purpose")
        table.add_column(_HEADINGS[grouping], no_wrap=True)
        for heading in ("Calls", "Input", "Output", "Cache read", "Cache write", "US$", "Unpriced calls"):
            table.add_column(heading, justify="right")
        for row in rows:
            t = row.totals
            counts = (t.calls, t.input_tokens, t.output_tokens, t.cache_read_tokens, t.cache_write_tokens)
            table.add_row(
                *([escape(row.purpose)] if told_apart else []),
                escape(row.key or _NOBODY.get(grouping, "–")),
                *(f"{count:,}" for count in counts),
                f"{t.cost_usd:.4f}",
                f"{t.unpriced:,}" if t.unpriced else "–",
            )
        console.print(table)
    if total.unpriced:
        console.print(
            "Unpriced calls are not in the dollars: give their model a price in the console (0 if it costs nothing)."
        )


_HEADINGS: dict[Grouping, str] = {
    "mechanism": "Mechanism",
    "dimension": "Dimension",
    "model": "Model",
    "day": "Day (UTC)",
    "agent": "Agent",
}


_NOBODY: dict[Grouping, str] = {"agent": "no agent (channels)"}  # a conversation is measured for all who are in it


def _sums(totals: Totals) -> str:
    unpriced = f" + {totals.unpriced:,} unpriced" if totals.unpriced else ""
    return f"{totals.calls:,} calls, ${totals.cost_usd:.4f}{unpriced}"


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")

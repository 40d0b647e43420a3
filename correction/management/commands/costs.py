"""``manage.py costs``: what model calls cost, grouped as asked."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from agents.kit.commands import BaseCommand, Cell, console_on, print_table, unusable, wrong
from agents.models.conversations import UnknownAgent, find_agent
from correction.costs import ALLOWED_WINDOWS, GROUPINGS, CostSummary, CostSums, get_cost_summary, groupings


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
        except UnknownAgent as error:
            raise unusable(error) from None
        except ValueError as error:
            raise wrong(error) from None
        if options["json"]:
            self.stdout.write(json.dumps(summary.data(), indent=2))
        else:
            cost_tables(summary, self.stdout)


def cost_tables(summary: CostSummary, out: Any) -> None:
    """The sums, then a table per grouping."""
    console, total = console_on(out), summary.total
    whose = summary.agent or "all agents"
    since = f"since {summary.since:%Y-%m-%d %H:%M} UTC" if summary.since else "of all time"
    out.write(f"Model calls for {whose} {since}: {_sums(total)}; correction alone: {_sums(summary.correction)}.\n")
    for grouping, groups in summary.by.items():
        apart = any(row.purpose for row in groups)
        rows: list[list[Cell]] = []
        for t in groups:
            key = t.key or ("no agent (channels)" if grouping == "agent" else None)  # channels: for all who are in them
            counts = (t.calls, t.input_tokens, t.output_tokens, t.cache_read_tokens, t.cache_write_tokens)
            rows.append([*([t.purpose] * apart), key, *counts, f"{t.cost_usd:.4f}", t.unpriced or None])
        name = "Day (UTC)" if grouping == "day" else grouping.capitalize()
        numbers = (">Calls", ">Input", ">Output", ">Cache read", ">Cache write", ">US$", ">Unpriced calls")
        if rows:
            heads = (*(["Purpose"] * apart), name, *numbers)
            print_table(console, heads, rows, title=f"By {grouping}", unwrapped=[name])
    if total.unpriced:
        out.write(
            "Unpriced calls are not in the dollars: give their model a price in the console (More › Logs › Prices; 0 if it costs nothing)."
        )


def _sums(totals: CostSums) -> str:
    unpriced = f" + {totals.unpriced:,} unpriced" if totals.unpriced else ""
    return f"{totals.calls:,} calls, ${totals.cost_usd:.4f}{unpriced}"

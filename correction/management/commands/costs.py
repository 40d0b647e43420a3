"""``manage.py costs``: what model calls cost, grouped as asked."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from agents.kit.commands import BaseCommand, Cell, console_on, print_table, unusable, wrong
from agents.kit.text.wording import time_text
from agents.models.conversations import UnknownAgent, find_agent
from correction.costs import ALLOWED_WINDOWS, GROUPINGS, CostRow, CostSummary, CostSums, get_cost_summary, groupings


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
            raise wrong(f"--{error}") from None
        if options["json"]:
            self.stdout.write(json.dumps(summary.data(), indent=2))
        else:
            cost_tables(summary, self.stdout)


def cost_tables(summary: CostSummary, out: Any) -> None:
    """Print the sums, a table per grouping that has rows, and a note where calls have no price."""
    whose = summary.agent or "all agents"
    since = f"since {time_text(summary.since, zone=True)}" if summary.since else "of all time"
    total = _sums(summary.total)
    out.write(f"Model calls for {whose} {since}: {total}; correction alone: {_sums(summary.correction)}.\n")
    for grouping, costs in summary.by.items():
        if costs:
            _cost_table(grouping, costs, out)
    if summary.total.unpriced:
        out.write(
            "Unpriced calls are not in the dollars: give their model a price in the console (More › Logs › Prices; 0 if it costs nothing)."
        )


def _cost_table(grouping: str, costs: Sequence[CostRow], out: Any) -> None:
    """Print the rows of one grouping; with a column for the purpose where any row has one. `>` in a heading aligns to the right."""
    name = "Day (UTC)" if grouping == "day" else grouping.capitalize()
    heads = [name, ">Calls", ">Input", ">Output", ">Cache read", ">Cache write", ">US$", ">Unpriced calls"]
    has_purpose = any(row.purpose for row in costs)
    if has_purpose:
        heads.insert(0, "Purpose")
    table_rows: list[list[Cell]] = []
    for row in costs:
        key = row.key or None
        if key is None and grouping == "agent":
            key = "no agent (channels)"  # what is measured of a channel is for all who are in it
        cells: list[Cell] = [
            key,
            row.calls,
            row.input_tokens,
            row.output_tokens,
            row.cache_read_tokens,
            row.cache_write_tokens,
            f"{row.cost_usd:.4f}",
            row.unpriced or None,
        ]
        if has_purpose:
            cells.insert(0, row.purpose)
        table_rows.append(cells)
    print_table(console_on(out), heads, table_rows, title=f"By {grouping}", tight=True, unwrapped=[name])


def _sums(totals: CostSums) -> str:
    """Return calls and dollars in words."""
    unpriced = f" + {totals.unpriced:,} unpriced" if totals.unpriced else ""
    return f"{totals.calls:,} calls, ${totals.cost_usd:.4f}{unpriced}"

"""How configurations and costs look in a terminal. Only presents; nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from agents.llm.ledger import Totals
from agents.models import Agent
from agents.terminal import console_on
from correction.config.configure import ConfigChange
from correction.config.fields import CONFIG_FIELDS
from correction.config.resolve import BUILT_IN, ResolvedConfig
from correction.costs import CostSummary, Grouping


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
        out.write(f"Nobody has changed the configuration of {whose} yet.")
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
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.title_justify = "left"
    return table

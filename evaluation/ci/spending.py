"""What judging was estimated to need and what it used, in one line each."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from agents.llm.endpoints import provider_of
from evaluation.ci.report import Report
from evaluation.presentation import money
from evaluation.simulation import SimulationEstimate
from evaluation.spending import Spending
from evaluation.wording import counted


def estimate_line(estimate: Spending) -> str:
    """Before anything is asked, e.g. ``Estimate: 524 calls, 2,032,851 tokens in, 606,160 out, $0.5064``."""
    return f"Estimate: {_amounts(estimate)} (if everything is asked anew)"


def simulations_line(simulations: Sequence[SimulationEstimate]) -> str:
    """Before agents are simulated; empty where no actor is paid."""
    paid = [simulation for simulation in simulations if provider_of(simulation.actor_model) == "anthropic"]
    if not paid:
        return ""
    costs = [simulation.cost_usd for simulation in paid]
    cost = money(None if None in costs else sum((c for c in costs if c is not None), Decimal(0)))
    lines, calls = sum(simulation.lines for simulation in paid), sum(simulation.calls for simulation in paid)
    return f"Estimate of simulating: {counted(lines, 'line')} said to agents, {counted(calls, 'call')}, {cost}"


def spent_line(report: Report) -> str:
    """Afterwards, beside the estimate where there was one; empty when nothing was asked over a network."""
    actual = report.actual
    if report.estimate is None and not actual.input_tokens:
        return ""
    share = actual.cache_read_share
    cached = f", {share:.0%} of the tokens in from the prompt cache" if share else ""
    before = f"estimated {_amounts(report.estimate)}; " if report.estimate else ""
    return f"Judging: {before}used {_amounts(actual)}{cached}."


def _amounts(found: Spending) -> str:
    cost = money(found.cost_usd, found.unpriced_calls or 0)
    return f"{counted(found.calls, 'call')}, {found.input_tokens:,} tokens in, {found.output_tokens:,} out, {cost}"

"""How a dry run looks: as data, and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from agents.terminal import console_on
from evaluation.estimate import AnswerLength, Estimate
from evaluation.presentation import judge_label, money
from evaluation.simulation.estimate import CALLS_PER_LINE, REPLY_TOKENS, SimulationEstimate
from evaluation.spending import Spending
from evaluation.wording import counted


def estimate_json(estimates: Sequence[Estimate], simulations: Sequence[SimulationEstimate] = ()) -> dict[str, Any]:
    """A dry run as data; `simulations` is what simulating the agents would need besides."""
    channels = [{"channel": e.channel, **_estimated(e)} for e in estimates if e.channel]
    return {
        "dry_run": True,
        "judge": estimates[0].judge if estimates else None,
        "agents": [{"agent": e.agent, **_estimated(e)} for e in estimates if not e.channel],
        **({"channels": channels} if channels else {}),
        **({"simulations": [_simulation_json(simulation) for simulation in simulations]} if simulations else {}),
    }


def _simulation_json(simulation: SimulationEstimate) -> dict[str, Any]:
    return {**asdict(simulation), "cost_usd": None if simulation.cost_usd is None else float(simulation.cost_usd)}


def _estimated(e: Estimate) -> dict[str, Any]:
    return {
        "judgements": e.judgements,
        "without_a_call": e.free,
        "calls": e.calls,
        "input_tokens": e.input_tokens,
        "output_tokens": e.output_tokens,
        "cost_usd": None if e.cost_usd is None else float(e.cost_usd),
        "output_tokens_per_claim": {
            dimension: {"tokens": length.tokens, "measured_calls": length.calls}
            for dimension, length in e.answers.items()
        },
    }


def answer_words(estimates: Sequence[Estimate]) -> str:
    """How long answers are taken to be, and where that is known from: a sentence without its full stop."""
    lengths: dict[AnswerLength, list[str]] = {}
    for dimension, length in {d: length for e in estimates for d, length in e.answers.items()}.items():
        lengths.setdefault(length, []).append(dimension)
    said = [
        f"{length.tokens} for an answered claim of {', '.join(sorted(names))} "
        + (f"(the mean of this judge's last {length.calls:,} calls)" if length.calls else "(assumed)")
        for length, names in sorted(lengths.items(), key=lambda one: one[1])
    ]
    return "; ".join(said)


def spending_table(estimate: Spending | None, actual: Spending, out: Any) -> None:
    """What was estimated before and what was really used, one under the other; nothing when the judge was not asked."""
    if not actual.calls or (estimate is None and not actual.input_tokens):
        return
    table = Table(title="Estimate before, actual after", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("", "Calls", "Tokens in", "of them cached", "Tokens out", "Cost"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, found in (("estimate", estimate), ("actual", actual)):
        if found is not None:
            share = found.cache_read_share
            table.add_row(
                name,
                *(f"{found.calls:,}", f"{found.input_tokens:,}", "–" if share is None else f"{share:.0%}"),
                *(f"{found.output_tokens:,}", money(found.cost_usd, found.unpriced_calls or 0)),
            )
    console = console_on(out)
    console.print(table)
    if actual.unpriced_calls:
        calls = counted(actual.unpriced_calls, "call has", "calls have")
        console.print(f"{calls} no price and {'is' if actual.unpriced_calls == 1 else 'are'} not in the cost.")


def estimate_table(estimates: Sequence[Estimate], out: Any, simulations: Sequence[SimulationEstimate] = ()) -> None:
    """A dry run for people; first what simulating the agents would need, where they would be simulated."""
    if simulations:
        _simulations_table(simulations, out)
    judge = estimates[0].judge
    table = Table(
        title=f"Dry run, judge {escape(judge_label(judge))}: nothing was asked",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    for heading in ("Agent", "Judgements", "free (rules)", "Calls", "Input tokens", "Output tokens", "Cost"):
        table.add_column(heading, justify="left" if heading == "Agent" else "right")
    for e in estimates:
        cells = [f"{n:,}" for n in (e.judgements, e.free, e.calls, e.input_tokens, e.output_tokens)]
        table.add_row(escape(e.agent or f"#{e.channel}"), *cells, money(e.cost_usd))
    total = [
        sum(getattr(e, name) for e in estimates)
        for name in ("judgements", "free", "calls", "input_tokens", "output_tokens")
    ]
    costs = [e.cost_usd for e in estimates]
    table.add_section()
    table.add_row(
        "total", *(f"{n:,}" for n in total), money(None if None in costs else sum(c for c in costs if c is not None))
    )
    console = console_on(out)
    console.print(table)
    words = answer_words(estimates)
    console.print(
        f"Tokens are estimated: prompt characters / 4{', and ' if words else ''}{words}. Prompt caching is not assumed.\n"
        "Ideas: 12 of 40 tokens in each part of a conversation, and a call for every 60 of them to find repetitions."
    )


def _simulations_table(simulations: Sequence[SimulationEstimate], out: Any) -> None:
    table = Table(title="Dry run: simulating the agents first", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("Agent", "Actor model", "Lines", "Calls", "Input tokens", "Output tokens", "Cost"):
        table.add_column(heading, justify="left" if heading in ("Agent", "Actor model") else "right", overflow="fold")
    for simulation in simulations:
        cells = [
            f"{n:,}" for n in (simulation.lines, simulation.calls, simulation.input_tokens, simulation.output_tokens)
        ]
        table.add_row(escape(simulation.agent), escape(simulation.actor_model), *cells, money(simulation.cost_usd))
    console = console_on(out)
    console.print(table)
    console.print(
        f"Simulating: {CALLS_PER_LINE} calls for each line said to an agent (it answers, and ends its turn), {REPLY_TOKENS} tokens an "
        "answer: assumptions.\n"
    )

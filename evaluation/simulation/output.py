"""Simulations in a terminal: the progress bar and the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from agents.commands import console_for_bars, console_on, print_table
from evaluation.models import is_heuristic
from evaluation.simulation.conversations import ENOUGH, Simulation

SCRIPTED = (
    "The offline actor only says a persona's sample lines: a try-out, no measure of a model.\n"
    "It says them again and again: where its fluency is low, that is why."
)
TOO_FEW = f"They have fewer than {ENOUGH} messages of their own (--no-simulate: measure these)."


class SimulationBar(Progress):
    """A bar per agent over the lines said to it, on a terminal; silent elsewhere."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console_for_bars(stream, quiet=quiet), transient=True)
        self._bars: dict[str, TaskID] = {}

    def progress(self, agent: str, done: int, total: int) -> None:
        if agent not in self._bars:
            self._bars[agent] = self.add_task(f"Simulating {escape(agent)}", total=total)
        self.update(self._bars[agent], completed=done)


def simulations_table(simulations: Sequence[Simulation], out: Any, *, why: str = "") -> None:
    """Print which agents were simulated, by which model, and what is missing."""
    if not simulations:
        return
    console = console_on(out)
    rows = [
        (
            one.agent.slug,
            one.actor_model,
            f"{len(one.conversations) - len(one.unfinished)} of {len(one.conversations)}",
            one.messages,
            one.id,
        )
        for one in simulations
    ]
    heads = ("Agent", "Actor model", ">Situations", ">Messages", "Simulation")
    print_table(console, heads, rows, title="Simulated conversations", tight=True, unwrapped=("Agent", "Simulation"))
    for one in simulations:
        if one.problem:
            console.print(f"{escape(one.agent.slug)}: {escape(one.problem)}")
    if any(is_heuristic(one.actor_model) for one in simulations):
        console.print(SCRIPTED)
    if why:
        console.print(why)
    console.print("Simulated speech is marked synthetic and measured apart: it is never mixed with real speech.\n")

"""How plays look in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, TextIO

from rich import box
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from agents.terminal import console_for_bars, console_on
from evaluation.models import is_heuristic
from evaluation.rehearsal.little_speech import ENOUGH, play_where_little
from evaluation.rehearsal.values import Play
from evaluation.run_spec import RunSpec

SCRIPTED = (
    "The offline actor only says a persona's sample lines: a try-out, no measure of a model.\n"
    "It says them again and again: where its fluency is low, that is why."
)
TOO_FEW = f"They have fewer than {ENOUGH} messages of their own (--no-play: measure these)."


class PlayBar:
    """A bar per agent over the lines said to it, on a terminal; silent elsewhere."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        console = console_for_bars(stream, quiet=quiet)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> PlayBar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def progress(self, agent: str, done: int, total: int) -> None:
        if agent not in self._tasks:
            self._tasks[agent] = self._bar.add_task(f"Playing {escape(agent)}", total=total)
        self._bar.update(self._tasks[agent], completed=done)


def play_with_bar(specs: Sequence[RunSpec], stream: TextIO, *, quiet: bool) -> tuple[list[RunSpec], list[Play]]:
    """`play_where_little` with a bar per agent."""
    with PlayBar(stream, quiet=quiet) as bar:
        return play_where_little(specs, progress=bar.progress)


def plays_table(plays: Sequence[Play], out: Any, *, why: str = "") -> None:
    """Which agents were played, by which model, and what could not be played."""
    if not plays:
        return
    console = console_on(out)
    table = Table(title="Played conversations", box=box.SIMPLE_HEAD, title_justify="left", padding=0)
    table.add_column("Agent", no_wrap=True)
    table.add_column("Actor model", overflow="fold")
    table.add_column("Situations", justify="right")
    table.add_column("Messages", justify="right")
    table.add_column("Play", no_wrap=True)
    for play in plays:
        complete = len(play.conversations) - len(play.not_played)
        counts = (f"{complete} of {len(play.conversations)}", str(play.messages))
        table.add_row(escape(play.agent.slug), escape(play.actor_model), *counts, play.id)
    console.print(table)
    for play in plays:
        if play.problem:
            console.print(f"{escape(play.agent.slug)}: {escape(play.problem)}")
    if any(is_heuristic(play.actor_model) for play in plays):
        console.print(SCRIPTED)
    if why:
        console.print(why)
    console.print("Played speech is marked synthetic and measured apart: it is never mixed with real speech.\n")

"""``manage.py drift``: what the measurements of schedules say over time."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from agents.kit.commands import Cell, CodedCommand, console_on, print_table, unusable, wrong
from agents.kit.text.wording import day_text, number
from agents.models.conversations import find_agents
from evaluation.calibration.passport import not_usable_line, passports
from evaluation.change.series import Drop, Series, series_of, without_series
from evaluation.commands import as_text
from evaluation.models import Method
from evaluation.runs.schedules import find_schedule
from evaluation.scorers import SCORERS
from evaluation.wording import judge_label

SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
SPARKLINE_POINTS = 30
HIGHEST_SCORE = 9
MOST_NAMED = 4  # series with the same note; where all have it and they are more, they are counted


class Command(CodedCommand):
    help = (
        "Show the score series that schedules measured, with the lasting falls in them (Page's CUSUM, self-started: "
        "docs/explanation/drift-over-time.md). Exit code: 0 shown, also when there are falls."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agents", default="all", help="slugs separated by commas, or all (default: all)")
        parser.add_argument("--dimension", default="", help=f"only this one of {', '.join(SCORERS)}")
        parser.add_argument("--schedule", metavar="NAME", help="only what this schedule measured")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        dimension = options["dimension"]
        if dimension and dimension not in SCORERS:
            raise wrong(f"--dimension {dimension!r}: allowed: {', '.join(SCORERS)}")
        try:
            schedule = find_schedule(options["schedule"]) if options["schedule"] else None
            agents = find_agents(options["agents"])
        except ValueError as error:
            raise unusable(error) from None
        all_series: list[Series] = []
        for agent in agents:
            all_series += series_of(agent, schedule=schedule, dimension=dimension)
        reasons = without_series(agents, all_series)
        if options["json"]:
            document = {
                "series": [series.model_dump(by_alias=True) for series in all_series],
                "no_series": [{"agent": slug, "reason": why} for slug, why in reasons.items()],
            }
            self.stdout.write(as_text(document))
        elif all_series:
            drift_table(all_series, self.stdout)
            for why in dict.fromkeys(reasons.values()):
                slugs = [slug for slug, reason in reasons.items() if reason == why]
                self.stdout.write(f"no series: {', '.join(slugs)}: {why}")
        else:
            self.stdout.write(
                "Nothing measured over time yet. `manage.py schedule add nightly --every 1d --at 03:00` has it measured "
                "by `manage.py work`."
            )


def drift_table(all_series: Sequence[Series], out: Any) -> None:
    """Print a table per judge and procedure, whose numbers are never mixed; below it every fall in a sentence."""
    console = console_on(out)
    by_judge: dict[tuple[str, str], list[Series]] = {}
    for series in all_series:
        by_judge.setdefault((series.judge, series.procedure), []).append(series)
    for judge, procedure in sorted(by_judge):
        of_judge = by_judge[judge, procedure]
        of_judge.sort(key=lambda series: (series.agent.slug, series.schedule.name, series.dimension))
        how = judge_label(judge)
        if procedure != Method.PLUMBLINE:
            how += f", {procedure}"
        not_usable = not_usable_line(passports(judge, procedure, [series.dimension for series in of_judge]))
        if not_usable:
            console.print(f"[bold red]{escape(not_usable)}[/]")
        _print_series(of_judge, f"Scores by {how}, 0 to 9", console)
        for sentence in _sentences(of_judge):
            console.print(escape(sentence))
        console.print()


def _print_series(of_judge: Sequence[Series], title: str, console: Console) -> None:
    """Print a row per series of one judge."""
    rows: list[list[Cell]] = []
    for series in of_judge:
        newest_score = number(series.points[-1].score)
        falls = len(series.drops)
        row: list[Cell] = [series.agent.slug, series.dimension, series.schedule.name, sparkline(series)]
        rows.append([*row, newest_score, falls])
    sparkline_heading = f"Last {SPARKLINE_POINTS}"
    headings = ["Agent", "Dimension", "Schedule", sparkline_heading, ">Now", ">Falls"]
    print_table(console, headings, rows, title=title, unwrapped=["Dimension", sparkline_heading])


def _sentences(of_judge: Sequence[Series]) -> list[str]:
    """Return the falls, then the newest restart of each series, then why series were not tested, with those it is true of."""
    sentences = [_drop_text(series, drop) for series in of_judge for drop in series.drops]
    restarts = [series.newest_restart for series in of_judge if series.newest_restart]
    sentences += dict.fromkeys(restarts)
    series_with: dict[str, list[str]] = {}
    for series in of_judge:
        if series.note:
            series_with.setdefault(series.note, []).append(f"{series.agent} {series.dimension}")
    for note, names in series_with.items():
        which = ", ".join(names)
        if len(names) == len(of_judge) and len(names) > MOST_NAMED:
            which = f"all {len(of_judge)} series"
        sentences.append(f"{which}: {note}")
    return sentences


def sparkline(series: Series) -> str:
    """Return the newest 30 scores as bars on the fixed scale of 0 to 9, with a stroke before one where the series starts again."""
    bars = ""
    for point in series.points[-SPARKLINE_POINTS:]:
        height = int(point.score / HIGHEST_SCORE * len(SPARKLINE_BLOCKS))
        if point.restarts:
            bars += "|"
        bars += SPARKLINE_BLOCKS[min(height, len(SPARKLINE_BLOCKS) - 1)]
    return bars


def _drop_text(series: Series, drop: Drop) -> str:
    """Return a fall in a sentence."""
    return (
        f"{series.agent} {series.dimension}: fell from {drop.before:.1f} to {drop.after:.1f} since {day_text(drop.since)} "
        f"(noticed {day_text(drop.noticed)}, evaluation {drop.run})"
    )

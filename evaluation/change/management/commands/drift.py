"""``manage.py drift``: what the measurements of schedules say over time."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from django.utils import timezone
from rich.markup import escape

from agents.kit.commands import Cell, CodedCommand, console_on, print_table, unusable, wrong
from agents.kit.text.wording import number
from agents.models.conversations import find_agents
from evaluation.change.over_time import Drop, Series, series_of, without_series
from evaluation.commands import as_text
from evaluation.runs.schedules import find_schedule
from evaluation.scorers import SCORERS
from evaluation.wording import judge_label

BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 30
MOST_NOTED = 4  # series with the same note


class Command(CodedCommand):
    help = (
        "Show the score series that schedules measured, with the lasting falls in them (Page's CUSUM, self-started: "
        "docs/explanation/scores.md). Exit code: 0 shown, also when there are falls."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--agent", "--agents", dest="agents", default="all", help="slugs separated by commas, or all (default: all)"
        )
        parser.add_argument("--dimension", default="", help=f"only this one of {', '.join(SCORERS)}")
        parser.add_argument("--schedule", metavar="NAME", help="only what this schedule measured")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dimension"] and options["dimension"] not in SCORERS:
            raise wrong(f"--dimension {options['dimension']!r}: allowed: {', '.join(SCORERS)}")
        try:
            schedule = find_schedule(options["schedule"]) if options["schedule"] else None
            agents = find_agents(options["agents"])
        except ValueError as error:
            raise unusable(error) from None
        drawn = [
            series for agent in agents for series in series_of(agent, schedule=schedule, dimension=options["dimension"])
        ]
        reasons = without_series(agents, drawn)
        if options["json"]:
            document = {
                "series": [series.model_dump(by_alias=True) for series in drawn],
                "no_series": [{"agent": slug, "reason": why} for slug, why in reasons.items()],
            }
            self.stdout.write(as_text(document))
        elif drawn:
            drift_table(drawn, self.stdout)
            for why in dict.fromkeys(reasons.values()):
                slugs = [slug for slug, reason in reasons.items() if reason == why]
                self.stdout.write(f"no series: {', '.join(slugs)}: {why}")
        else:
            self.stdout.write(
                "Nothing measured over time yet. `manage.py schedule add nightly --every 1d --at 03:00` has it measured "
                "by `manage.py work`."
            )


def drift_table(drawn: Sequence[Series], out: Any) -> None:
    """A table per judge and procedure, whose numbers are never mixed; then every fall in a sentence."""
    console = console_on(out)

    def judged(series: Series) -> tuple[str, str]:
        return series.judge, series.procedure

    for (judge, procedure), group in groupby(sorted(drawn, key=judged), key=judged):
        of_judge = sorted(group, key=lambda s: (s.agent.slug, s.schedule.name, s.dimension))
        rows: list[list[Cell]] = [
            [
                *(series.agent.slug, series.dimension, series.schedule.name, sparkline(series)),
                *(number(series.points[-1].score), len(series.drops)),
            ]
            for series in of_judge
        ]
        title = f"Scores by {judge_label(judge)}{'' if procedure == 'plumbline' else f', {procedure}'}, 0 to 9"
        heads = ["Agent", "Dimension", "Schedule", f"Last {SPARKS}", ">Now", ">Falls"]
        print_table(console, heads, rows, title=title, unwrapped=["Dimension", f"Last {SPARKS}"])
        notes: dict[str, list[str]] = {}
        for series in of_judge:
            if series.note:
                notes.setdefault(series.note, []).append(f"{series.agent.slug} {series.dimension}")
        sentences = [_drop_text(series, drop) for series in of_judge for drop in series.drops]
        sentences += dict.fromkeys(filter(None, (series.newest_restart for series in of_judge)))
        for note, noted in notes.items():
            which = f"all {len(rows)} series" if len(noted) == len(rows) > MOST_NOTED else ", ".join(noted)
            sentences.append(f"{which}: {note}")
        for sentence in sentences:
            console.print(escape(sentence))
        console.print()


def sparkline(series: Series, most: int = SPARKS) -> str:
    """The newest scores as bars on the fixed scale of 0 to 9; a stroke where the series starts again."""
    return "".join(
        ("|" if point.restarts else "") + BLOCKS[min(len(BLOCKS) - 1, int(point.score / 9 * len(BLOCKS)))]
        for point in series.points[-most:]
    )


def _drop_text(series: Series, drop: Drop) -> str:
    since, noticed = (f"{timezone.localtime(time):%Y-%m-%d}" for time in (drop.since, drop.noticed))
    return (
        f"{series.agent.slug} {series.dimension}: fell from {drop.before:.1f} to {drop.after:.1f} since {since} "
        f"(noticed {noticed}, evaluation {drop.run})"
    )

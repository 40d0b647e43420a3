"""``manage.py drift``: what the measurements of schedules say over time."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from agents.commands import CodedCommand
from agents.models.conversations import find_agents
from evaluation.change.over_time import series_of, without_series
from evaluation.change.tables import drift_table
from evaluation.commands import as_text, wrong
from evaluation.schedules import find_schedule
from evaluation.scorers import SCORERS


class Command(CodedCommand):
    help = (
        "Show the score series that schedules measured, with the lasting falls in them (Page's CUSUM, self-started: "
        "docs/measuring.md). Exit code: 0 shown, also when there are falls; 3 wrong usage."
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
            raise wrong(error) from None
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

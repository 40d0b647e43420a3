"""``manage.py drift_alarm_rate``: how often drift alerts are false, and how late true ones are, on simulated days."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict, fields
from typing import Any

from django.core.management.base import CommandError

from agents.usage import WRONG_USAGE, CodedCommand
from evaluation.drift.simulation import DROP_ON_DAY, Assumed, Delay, FalseAlarms, delay, false_alarms

HELP = {
    "days": "days of a history, measured once a day",
    "agents": "agents that share the rate",
    "dimensions": "series per agent",
    "messages": "messages judged a day, three propositions each; every third day has half as many",
    "day_effect": "points by which days differ beyond their messages (standard deviation)",
    "carry_over": "correlation of a day with the day before, 0 to below 1",
    "limit": "least fall that alarms, in points",
    "histories": "how often the whole is repeated",
    "seed": "equal seeds give equal numbers",
}


class Command(CodedCommand):
    help = (
        "Simulate scores in which nothing changes and count the alarms of the test that schedules use; then let them fall and "
        "count the days until it is noticed. Touches no data. Exit code: 0 at most one false alarm a month, 1 more, 3 wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        for field in fields(Assumed):
            parser.add_argument(
                f"--{field.name.replace('_', '-')}",
                type=float if isinstance(field.default, float) else int,
                default=field.default,
                help=f"{HELP[field.name]} (default: {field.default})",
            )
        parser.add_argument(
            "--drop", type=float, action="append", metavar="POINTS", help="falls to time; repeatable (default: 1 and 2)"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            assumed = Assumed(**{field.name: options[field.name] for field in fields(Assumed)})
            rate = false_alarms(assumed)
            delays = [delay(assumed, drop) for drop in options["drop"] or (1.0, 2.0)]
        except ValueError as error:
            raise CommandError(str(error), returncode=WRONG_USAGE) from None
        if options["json"]:
            document = {"assumed": asdict(assumed), "false_alarms": asdict(rate), "delays": [asdict(d) for d in delays]}
            self.stdout.write(json.dumps(document, indent=2))
        else:
            self._show(assumed, rate, delays)
        if rate.per_month > rate.allowed:
            raise CommandError(f"{rate.per_month:.2f} false alarms a month; promised: {rate.allowed:g}", returncode=1)

    def _show(self, assumed: Assumed, rate: FalseAlarms, delays: list[Delay]) -> None:
        histories = f"{assumed.histories} {'history' if assumed.histories == 1 else 'histories'}"
        alarms = f"{rate.alarms} alarm{'s' if rate.alarms != 1 else ''}"
        self.stdout.write(
            f"{histories} of {assumed.days} days in which nothing changed, {assumed.agents} agents × "
            f"{assumed.dimensions} dimensions, {assumed.messages} messages a day, days differing by {assumed.day_effect:g} points "
            f"(correlation {assumed.carry_over:g}), limit {assumed.limit:g}, seed {assumed.seed}:\n"
            f"  {alarms}, {rate.per_month:.2f} a month for all agents together (promised: at most {rate.allowed:g}); "
            f"most in one history: {rate.worst_history}"
        )
        left = f"{assumed.days - DROP_ON_DAY} days"
        for found in delays:
            half, most = (_within(days, left) for days in (found.half, found.most))
            self.stdout.write(
                f"  a fall of {found.drop:g} point{'s' if found.drop != 1 else ''}: half noticed {half}, nine of ten {most}; "
                f"{found.found:.0%} in {left} ({found.series} series)"
            )


def _within(days: float | None, left: str) -> str:
    return f"not within {left}" if days is None else f"within {days:g} days"

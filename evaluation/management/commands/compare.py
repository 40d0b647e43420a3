"""``manage.py compare``: what changed between two measurements, and how sure that is."""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from agents.commands import NOT_ENOUGH, REGRESSION, STOPPED, CodedCommand
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agents
from agents.work.running import stopping_on_sigterm
from evaluation.change import choosing
from evaluation.change.choosing import Compared
from evaluation.change.comparison import detections
from evaluation.change.measurements import NotComparable, UnreadableFile
from evaluation.change.tables import comparisons_table, detection_table
from evaluation.commands import ProgressBar, as_text, channel_named, tag_pairs, wrong
from evaluation.models import CHANNEL_DIMENSIONS, EvaluationRun
from evaluation.propositions.files import PropositionError
from evaluation.runs.planning import RunSpec
from evaluation.scorers import SCORERS
from evaluation.scorers.subjects import ALLOWED, parse_window

WAYS = "--a with --b, --runs, --against baseline, or --baseline FILE"


class Command(CodedCommand):
    help = (
        "Compare two measurements: of two tags (--a build=40 --b build=41; measured now unless they were before), the newest against the "
        "baseline (the default) or a file, or two runs. Per dimension and proposition: the change, its 95 % interval and a verdict. "
        "Exit code: 0 nothing surely got worse, 1 something did, 2 something could not be compared, 3 wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agents", help="slugs separated by commas, or all (default: all active agents)")
        parser.add_argument("--channel", metavar="SLUG", help="compare a channel instead: convergence, ideas quantity")
        parser.add_argument("--a", metavar="TAG=VALUE", help="baseline: messages with these tags, separated by commas")
        parser.add_argument("--b", metavar="TAG=VALUE", help="candidate: messages with these tags")
        parser.add_argument(
            "--against", choices=["baseline"], help="the newest evaluation against the current baseline"
        )
        parser.add_argument("--runs", nargs=2, type=int, metavar="ID", help="two evaluations, the older first")
        parser.add_argument("--baseline", type=Path, metavar="FILE", help="what capture_baseline --out FILE wrote")
        parser.add_argument(
            "--dimensions",
            help=f"separated by commas; allowed: {','.join(SCORERS)} (default with --a and --b: adherence,fluency; of a channel both)",
        )
        parser.add_argument("--window", default="all", help=f"with --a and --b: {ALLOWED} (default: all)")
        parser.add_argument(
            "--samples", type=int, default=20, help="most messages per agent, of each of the two (default: 20)"
        )
        parser.add_argument("--repeats", type=int, default=1, help="judgements per item, 1 to 20 (default: 1)")
        parser.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
        parser.add_argument(
            "--margin", type=float, default=0.5, help="changes within ± this many points do not matter (default: 0.5)"
        )
        parser.add_argument(
            "--detect",
            type=float,
            metavar="POINTS",
            help="also say how many messages finding such a change takes",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        self._check(options)
        try:
            with stopping_on_sigterm():
                compared = self._compare(options)
        except (UnreadableFile, UnknownAgent, PropositionError) as error:
            raise wrong(error) from None
        except NotComparable as error:
            raise CommandError(str(error), returncode=NOT_ENOUGH) from None
        except KeyboardInterrupt:
            message = "Stopped. What was judged is stored; run the same command again to go on with the rest."
            raise CommandError(message, returncode=STOPPED) from None
        self._show(compared, options)
        self._end(compared)

    def _check(self, options: dict[str, Any]) -> None:
        """Refuse options that exclude each other, or are out of range.

        Raises:
            CommandError: Names the option, its value and what is allowed; exit code 3.
        """
        ways = [bool(options["a"] or options["b"]), *(bool(options[name]) for name in ("runs", "against", "baseline"))]
        if sum(ways) > 1:
            raise wrong(f"one way of comparing at a time; allowed: {WAYS}")
        if bool(options["a"]) != bool(options["b"]):
            raise wrong("--a and --b go together, e.g. --a build=40 --b build=41")
        if options["channel"] and options["agents"]:
            raise wrong("--channel or --agents, one of the two")
        if options["channel"] and not (options["a"] or options["runs"]):
            raise wrong("--channel goes with --a and --b: baselines are of agents")
        for name in ("margin", "detect"):
            value = options[name]
            if value is not None and not (math.isfinite(value) and 0 < value <= 9):
                raise wrong(f"--{name} {value}: allowed: more than 0, at most 9")
        for name in _named(options["dimensions"]):
            if name not in SCORERS:
                raise wrong(f"--dimensions {name!r}: allowed: {', '.join(SCORERS)}")

    def _compare(self, options: dict[str, Any]) -> Compared:
        margin, dimensions = options["margin"], _named(options["dimensions"])
        if options["a"]:
            return self._compare_tags(options)
        if options["runs"]:
            first, second = (_run(pk) for pk in options["runs"])
            return choosing.of_runs(first, second, margin=margin, dimensions=dimensions)
        if options["baseline"]:
            chosen = find_agents(options["agents"]) if options["agents"] else None
            return choosing.with_file(options["baseline"], chosen, margin=margin, dimensions=dimensions)
        agents = _agents(options["agents"])
        return choosing.with_baselines(agents, judge=settings.JUDGE_MODEL, margin=margin, dimensions=dimensions)

    def _compare_tags(self, options: dict[str, Any]) -> Compared:
        a, b = (tag_pairs([options[name]], option=f"--{name}") for name in ("a", "b"))
        if a == b:
            raise wrong(f"--a and --b are both {options['a']}: nothing to compare")
        asked: dict[str, Any] = {name: options[name] for name in ("samples", "repeats", "seed")}
        if dimensions := _named(options["dimensions"]):
            asked["dimensions"] = dimensions
        try:
            asked["window"] = parse_window(options["window"])
            if options["channel"]:
                channel = channel_named(options["channel"])
                specs = [RunSpec(channel=channel, **{"dimensions": CHANNEL_DIMENSIONS, **asked})]
            else:
                specs = [RunSpec(agent=agent, **asked) for agent in _agents(options["agents"])]
        except ValueError as error:
            raise wrong(error) from None
        with ProgressBar("Judging", sys.stderr, quiet=options["json"] and not sys.stderr.isatty()) as bar:
            return choosing.of_tags(specs, a, b, margin=options["margin"], prepared=bar.prepared, progress=bar.progress)

    def _show(self, compared: Compared, options: dict[str, Any]) -> None:
        change, detect = options["detect"], []
        if change is not None:
            detect = detections(compared.comparisons, change)
        if options["json"]:
            document = {
                "comparisons": [c.model_dump() for c in compared.comparisons],
                "not_compared": compared.undecidable,
                **({} if change is None else {"detect": [row.model_dump() for row in detect]}),
            }
            self.stdout.write(as_text(document))
            return
        comparisons_table(compared.comparisons, self.stdout)
        if change is not None:
            detection_table(detect, self.stdout)

    def _end(self, compared: Compared) -> None:
        refused = compared.undecidable
        if refused:
            rows = "\n  ".join(f"{target}: {reason}" for target, reason in refused.items())
            self.stderr.write(f"could not be compared:\n  {rows}")
        if any(comparison.worse for comparison in compared.comparisons):
            sys.exit(REGRESSION)
        if refused or not compared.comparisons:
            sys.exit(NOT_ENOUGH)


def _named(dimensions: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (dimensions or "").split(",") if name.strip())


def _agents(named: str | None) -> Sequence[Agent]:
    agents = find_agents(named or "all")
    if not agents:
        raise wrong("there are no agents yet: `manage.py seed` loads examples")
    return agents


def _run(pk: int) -> EvaluationRun:
    run: EvaluationRun | None = EvaluationRun.objects.select_related("agent", "channel").filter(pk=pk).first()
    if run is None:
        raise wrong(f"--runs {pk}: no such evaluation; the console lists them")
    return run

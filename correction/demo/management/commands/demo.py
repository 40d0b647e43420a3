"""``manage.py demo``: from an empty database to measured persona drift and a message that the gate corrects, on one screen."""

from __future__ import annotations

import io
import logging
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from agents.kit.commands import NOT_ENOUGH, BaseCommand, console_for_bars
from agents.kit.groups import make_admin
from agents.kit.text.wording import money
from agents.models import Agent
from agents.seed import loader
from correction.demo.demo_data import fill_console
from correction.demo.demonstration import show_correction, show_debate, show_experiment, show_swarm
from correction.demo.story import BUILD, EARLIER, LATER, check_two_drafts, print_story
from evaluation.commands import ProgressBar
from evaluation.models import is_heuristic
from evaluation.runs.estimate import estimate
from evaluation.runs.execute import Captured, capture, existing
from evaluation.runs.spec import RunSpec
from evaluation.wording import judge_label

SCENES: dict[str, tuple[str, Callable[..., None]]] = {  # the app that it shows, and the function
    "correction": ("correction", show_correction),
    "debate": ("agents.debates", show_debate),
    "swarm": ("agents.swarm", show_swarm),
    "experiment": ("evaluation.experiments", show_experiment),
}
ALL = "all"


def installed_scenes() -> list[str]:
    """Return the names of the scenes whose app is installed."""
    return [name for name, (app, _) in SCENES.items() if apps.is_installed(app)]


class Command(BaseCommand):
    help = (
        "Set up the database, load the 16 example agents, measure two builds of them with the configured judge (offline heuristics "
        "without a key), and print on one screen what was measured, who drifted since when, what the gate did to a message, and what "
        "to type next. With --scene: show that scene instead. Safe to run again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--scene",
            choices=[*installed_scenes(), ALL],
            help="correction: the gate, a nudge, repetition; debate: four agents decide; swarm: an agent with memory and tools; "
            "experiment: what the gate changes and harms; all: each of them",
        )
        parser.add_argument(
            "--again", action="store_true", help="judge, or show the scene, again, even if nothing changed"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        drift_log = logging.getLogger("evaluation.drift")
        was_disabled = drift_log.disabled
        drift_log.disabled = True  # the story says who drifted
        try:
            with _step("Setting up the database"):
                _set_up_database()
            with _step("Loading 16 example agents and their conversations"):
                loader.seed()
            if options["scene"]:
                self._show_scenes(options["scene"], again=options["again"])
            else:
                self._print_story(again=options["again"])
        finally:
            drift_log.disabled = was_disabled

    def _show_scenes(self, scene: str, *, again: bool) -> None:
        """Show a scene, or each that is installed, under its name."""
        names = installed_scenes() if scene == ALL else [scene]
        for name in names:
            if scene == ALL:
                self.stdout.write(self.style.MIGRATE_HEADING(f"\n{name.capitalize()}"))
            _, show = SCENES[name]
            show(self.stdout, again=again)

    def _print_story(self, *, again: bool) -> None:
        """Measure both builds, have two drafts checked, and print the story.

        Raises:
            CommandError: Some agents have no score; after all is shown.
        """
        with _step("Filling the console with four weeks of use"):
            fill_console()  # before the builds are measured: that is what counts as newest then
        agents = list(Agent.objects.in_use().filter(origin=Agent.Origin.SEED).order_by("slug"))
        baseline = [RunSpec(agent=agent, is_baseline=True, where={BUILD: EARLIER}) for agent in agents]
        results = self._measure(baseline, EARLIER, again=again)
        candidate = [RunSpec(agent=agent, where={BUILD: LATER}) for agent in agents]
        results += self._measure(candidate, LATER, again=again)
        with _step("Sending two drafts through the gate"):
            check_two_drafts(again=again)
        print_story(self.stdout, agents=agents, results=results)
        if any(result.summary.overall_score is None for result in results):
            problems = sorted({result.summary.run.error for result in results if result.summary.run.error})
            raise CommandError("some agents have no score: " + "; ".join(problems)[:500], returncode=NOT_ENOUGH)

    def _measure(self, specs: Sequence[RunSpec], build: str, *, again: bool) -> list[Captured]:
        """Evaluate the agents; where nothing changed since they were evaluated, return those evaluations.

        The expected cost is printed before a model is asked.

        Args:
            again: Evaluate them also where nothing changed.
        """
        with _step(f"Looking for evaluations of build {build}"):
            earlier = None if again else existing(specs)
        if earlier is not None:
            return earlier
        judge = str(settings.JUDGE_MODEL)
        if not is_heuristic(judge):
            self.stdout.write(f"Build {build}, judge {judge_label(judge)}: {_estimate_line(specs)}.")
        with ProgressBar(f"Measuring build {build}:", sys.stderr) as bar:
            return capture(specs, prepared=bar.prepared, progress=bar.progress)


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Say on a terminal what is happening, until it is done."""
    with console_for_bars(sys.stderr).status(f"{what} …"):
        yield


def _set_up_database() -> None:
    """Bring the tables up to date, which takes a second also where they are, so it is done only where they are not."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", verbosity=0, stdout=io.StringIO())
    if not settings.PRODUCTION:
        make_admin()


def _estimate_line(specs: Sequence[RunSpec]) -> str:
    """Return in words how many calls evaluations would take, and their cost; without the cost where one of them has no price."""
    calls = 0
    cost: Decimal | None = Decimal(0)
    for spec in specs:
        expected = estimate(spec)
        calls += expected.calls
        if cost is not None and expected.cost_usd is not None:
            cost += expected.cost_usd
        else:
            cost = None  # one has no price
    return f"about {calls} calls, at most about {money(cost)}"

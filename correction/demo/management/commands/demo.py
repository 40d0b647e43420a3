"""``manage.py demo``: from an empty database to measured persona drift, messages corrected before they are said, a debate, and a swarm."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError

from agents.kit.commands import NOT_ENOUGH, BaseCommand, Cell, Emphasis, console_on, print_table
from agents.kit.groups import make_admin
from agents.kit.text.wording import money
from agents.models import Agent
from correction.demo.demo_data import fill_console
from correction.demo.demonstration import show_correction, show_debate, show_experiment, show_swarm
from evaluation.calibration.passport import not_usable_line, passport_lines, passports_of
from evaluation.change.evidence import judged_ways
from evaluation.change.overview import Overview, drift_overview
from evaluation.change.sentences import sentence_of
from evaluation.commands import ProgressBar, outcome_table
from evaluation.models import is_heuristic
from evaluation.runs.estimate import estimate
from evaluation.runs.execute import Captured, capture, existing
from evaluation.runs.planning import RunSpec
from evaluation.wording import judge_label

TAG, BASE, LATER = "build", "40", "41"
EMPHASIS: dict[str, Emphasis] = {
    "drifted": "bad",
    "not enough data": "warning",
    "possibly drifted": "warning",
    "improved": "better",
}
SCENES = (  # title, the app that it shows, and the function
    ("Before it is said", "correction", show_correction),
    ("A debate", "agents.debates", show_debate),
    ("A swarm", "agents.swarm", show_swarm),
    ("An experiment: does the gate help, and what does it harm?", "evaluation.experiments", show_experiment),
)
DRIFT = "Planted drift: michael, dwight, angela, stanley and kevin lose their voice in build 41; jim repeats himself (fluency)."


class Command(BaseCommand):
    help = (
        "Set up the database, load the 16 example agents, capture their baseline with the configured judge (offline heuristics "
        "without a key), compare a later build with it, show messages being checked, corrected and nudged before they are "
        "said, let four agents debate, and let one answer with a swarm. Safe to run again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--again", action="store_true", help="judge and show the scenes again, even if nothing changed"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        drift_log = logging.getLogger("evaluation.drift")
        was_disabled = drift_log.disabled
        drift_log.disabled = True  # the tables say who drifted
        try:
            self._show(options)
        finally:
            drift_log.disabled = was_disabled

    def _show(self, options: dict[str, Any]) -> None:
        """Set the database up, measure both builds, and show the scenes of the apps that are installed.

        Raises:
            CommandError: Some agents have no score; after all is shown.
        """
        self._heading("1. Database")
        call_command("migrate", verbosity=0, stdout=self.stdout)
        if not settings.PRODUCTION:
            make_admin()
        database = settings.DATABASES["default"]
        self.stdout.write(f"Ready: {database['ENGINE'].rpartition('.')[2]}, {database['NAME']}")
        self._heading("2. Example agents")
        call_command("seed", stdout=self.stdout)
        fill_console(self.stdout)  # before the builds are measured: that is what counts as newest then
        agents = list(Agent.objects.in_use().filter(origin=Agent.Origin.SEED).order_by("slug"))
        self._heading(f"3. Baseline: {TAG} {BASE}")
        baseline = [RunSpec(agent=agent, is_baseline=True, where={TAG: BASE}) for agent in agents]
        results = self._measure(baseline, again=options["again"])
        judge_passports = passports_of([result.summary.run for result in results])
        not_usable = not_usable_line(judge_passports)
        if not_usable:
            self.stdout.write(not_usable)
        outcome_table(str(settings.JUDGE_MODEL), results, self.stdout, notes=passport_lines(judge_passports))
        self._heading(f"4. {TAG.capitalize()} {LATER}, compared with it")
        later = [RunSpec(agent=agent, where={TAG: LATER}) for agent in agents]
        results += self._measure(later, again=options["again"])
        if not_usable:
            self.stdout.write(not_usable)
        overview_table(drift_overview(agents, next(iter(judged_ways()), None), quotes=False), self.stdout)
        self.stdout.write(
            f"{DRIFT}\nWhere it was planted: docs/reference/seed-data.md. With messages and reasons: Quality › Overview in the console."
        )
        scenes = [(title, show) for title, app, show in SCENES if apps.is_installed(app)]
        for number, (title, show) in enumerate(scenes, 5):
            self._heading(f"{number}. {title}")
            show(self.stdout, again=options["again"])
        self._print_next_steps()
        if any(result.summary.overall_score is None for result in results):
            problems = sorted({result.summary.run.error for result in results if result.summary.run.error})
            raise CommandError("some agents have no score: " + "; ".join(problems)[:500], returncode=NOT_ENOUGH)

    def _print_next_steps(self) -> None:
        """Print commands to go on with."""
        self._heading("Next")
        self.stdout.write("  make run                          the console, with its address and login")
        self.stdout.write("  manage.py capture_baseline --help  measure again, other windows, --json")
        self.stdout.write("  manage.py configure michael        what is corrected; everything is off until you say so")
        self.stdout.write("  manage.py say --help               pass a draft of your own through the gate")
        self.stdout.write("  manage.py turn --help              let an agent take a turn")
        if apps.is_installed("agents.debates"):
            self.stdout.write("  manage.py debate --help            let several debate a question of yours")
        self.stdout.write("  manage.py chat michael             talk to an agent")
        self.stdout.write("  docs/tutorial.md          your own personas and conversations")

    def _measure(self, specs: Sequence[RunSpec], *, again: bool) -> list[Captured]:
        """Evaluate the agents, and print the expected cost before; where nothing changed since they were, return those evaluations.

        Args:
            again: Evaluate them also where nothing changed.
        """
        judge = judge_label(str(settings.JUDGE_MODEL))
        earlier = None if again else existing(specs)
        if earlier is not None:
            self.stdout.write(f"Measured before by {judge}, nothing changed since; --again judges again.")
            return earlier
        if is_heuristic(str(settings.JUDGE_MODEL)):
            self.stdout.write(f"Judge {judge}: no key, no network.")
        else:
            self.stdout.write(f"Judge {judge}: {_estimate_line(specs)}.")
        with ProgressBar("Judging", sys.stderr) as bar:
            return capture(specs, prepared=bar.prepared, progress=bar.progress)

    def _heading(self, text: str) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(f"\n{text}"))


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


def overview_table(overview: Overview, out: Any) -> None:
    """Print a row per agent: how it changed against the baseline, with the scores behind that; the judge is in the title, if any judged."""
    rows: list[list[Cell]] = []
    for drift in overview.drifts:
        rows.append([drift.agent.display_name, (sentence_of(drift), EMPHASIS.get(drift.state, ""))])
    title = "Drift overview"
    judged = [drift.judged for drift in overview.drifts if drift.judged is not None]
    if judged:
        title = f"Drift overview, judged by {judge_label(judged[0].judge)}"
    print_table(console_on(out), ("Agent", "What changed"), rows, title=title, unwrapped=["Agent"])

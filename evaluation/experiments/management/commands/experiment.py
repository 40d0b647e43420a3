"""``manage.py experiment``: play the same conversations with and without a treatment, and say what it gained and what it harmed."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from agents.kit.commands import (
    FAILED,
    NOT_ENOUGH,
    STOPPED,
    BaseCommand,
    Cell,
    console_on,
    in_line,
    markdown_table,
    print_table,
    snippet,
    unusable,
    wrong,
)
from agents.kit.running import stopping_on_sigterm
from agents.kit.use_cases import add_options, read_options
from evaluation.commands import ProgressBar, check_writable, write_text
from evaluation.experiments.commands import estimate_line, play_and_judge
from evaluation.experiments.estimate import ExperimentEstimate, estimate_experiment
from evaluation.experiments.measuring import evaluations
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.play import cancel
from evaluation.experiments.printed import PUBLISHED_HEADS, as_csv, as_markdown, published_cells, show
from evaluation.experiments.problems import ExperimentRefused, problems_here
from evaluation.experiments.published import NO_CONVERSATIONS, read_published
from evaluation.experiments.report import ExperimentReport, report
from evaluation.experiments.request import ExperimentRequest, PlayingRequest, request_experiment, why_not_callable
from evaluation.experiments.rescore import AGREEMENT_HEADS, Rescored, agreement_cells, queue_judges, rescore
from evaluation.experiments.scenario import read_scenario, shipped
from evaluation.propositions.files import YamlProblems

MOST_LISTED = 50  # experiments
EMPTY_JUDGE_NAME = "the name is empty; allowed: names of models, with commas between them"
REPORT_FORMATS = ("terminal", "markdown", "csv", "json")


class Command(BaseCommand):
    help = """Does correction help your agents, and what does it harm? Play the same conversations in two or more arms and compare them.

  manage.py experiment run office.yaml --dry-run       what it would play and cost
  manage.py experiment run office.yaml --scale 0.1     play a tenth of it, judge it, and report
  manage.py experiment run 12                          resume experiment 12
  manage.py experiment report 12 --format markdown     its report again (also csv, json)
  manage.py experiment report 12 --judges A,B          the same messages scored by further judges, and how far they agree
  manage.py experiment list                            the latest, and the scenarios that come with Plumbline
  manage.py experiment --published scores.json         raw scores that others published, compared as ours are

Exit code: 0 done, 1 not finished (failed, paused by its budget), 2 void (a treatment left no trace)."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.add_argument("--published", metavar="FILE", type=Path, help="compare the raw scores of this JSON file")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        actions = parser.add_subparsers(dest="action", metavar="ACTION", parser_class=ArgumentParser)

        run_parser = actions.add_parser("run", help="play and judge a scenario, or resume an experiment")
        run_parser.add_argument(
            "what", help="a YAML file, the name of a shipped scenario, or the number of an experiment"
        )
        add_options(run_parser, PlayingRequest)
        run_parser.add_argument(
            "--dry-run", action="store_true", help="say what it would play, cost and could show, and write nothing"
        )
        _add_json_option(run_parser)

        report_parser = actions.add_parser("report", help="what an experiment came to")
        report_parser.add_argument("number", type=int)
        report_parser.add_argument(
            "--judges",
            default="",
            metavar="MODEL,MODEL",
            help="have these judge what was said, too, and say how far they agree; asked and paid once",
        )
        report_parser.add_argument("--format", choices=REPORT_FORMATS, default="terminal")
        report_parser.add_argument("--output", type=Path, help="write it to this file")
        _add_json_option(report_parser)

        cancel_parser = actions.add_parser("cancel", help="end an experiment; what was said stays")
        cancel_parser.add_argument("number", type=int)

        actions.add_parser("list", help="the latest experiments, and the shipped scenarios")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what the action says; ``--published`` takes no action and goes before one.

        Raises:
            CommandError: No action was named, or it failed.
        """
        action = options["action"]
        if options["json"] and action in ("cancel", "list"):
            raise wrong(f"--json: {action} has none; allowed with run, report and --published")
        if options["published"]:
            self._show_published_scores(options["published"], as_json=options["json"])
        elif action == "run":
            self._run(options)
        elif action == "report":
            self._report(options)
        elif action == "cancel":
            self._cancel(options["number"])
        elif action == "list":
            self._list()
        else:
            raise wrong("say what to do: run, report, cancel or list; manage.py experiment --help shows how")

    # -- run
    def _run(self, options: dict[str, Any]) -> None:
        """Start a scenario, or resume the experiment of that number; play and judge it here, and show the report.

        With ``--dry-run`` only the estimate is shown.

        Raises:
            CommandError: It cannot be played, was stopped, is void or did not finish; see `_raise_exit_code`.
        """
        what = options["what"]
        if what.isdecimal():
            read_options(PlayingRequest, options)  # refuses options that are not allowed
            experiment = _find_experiment(int(what[:18]))  # more digits are beyond what the database can compare
        else:
            request = read_options(ExperimentRequest, options, **_scenario_fields(what))
            try:
                estimate = estimate_experiment(request.scaled_scenario(), **request.models)
                self._show_estimate(estimate, options)
                if options["dry_run"]:
                    return
                experiment = request_experiment(request)
            except ExperimentRefused as error:
                raise unusable(f"{what} cannot be played:\n{error}") from None
        self._print_line(
            f"Experiment {experiment.pk}, {experiment.name}: Ctrl-C stops it; the same number resumes it.", options
        )
        self._show_report(play_and_judge(experiment, quiet=options["json"]), options)

    def _show_estimate(self, estimate: ExperimentEstimate, options: dict[str, Any]) -> None:
        """Print an estimate; with ``--json`` only in a dry run, for else the report is the one object that is printed."""
        if options["json"]:
            if options["dry_run"]:
                self.stdout.write(estimate.model_dump_json(indent=2))
            return
        self._print_line(estimate_line(estimate), options)
        for finding in estimate.findings():
            self._print_line(finding, options)

    def _print_line(self, line: str, options: dict[str, Any]) -> None:
        if not options["json"]:
            console_on(self.stdout).print(snippet(line, 1_000))

    # -- report
    def _report(self, options: dict[str, Any]) -> None:
        """Show the report; with ``--judges`` have these judge what they have not judged yet, and show a report for each.

        Raises:
            CommandError: It cannot be shown or judged, was stopped, is void or not finished; see `_raise_exit_code`.
        """
        if options["output"]:
            check_writable("--output", options["output"])
        experiment = _find_experiment(options["number"])
        if not options["judges"]:
            self._show_report(report(experiment), options)
            return
        judges = _read_judges(options["judges"])
        try:
            with stopping_on_sigterm(), ProgressBar("Judging", sys.stderr, quiet=options["json"]) as bar:
                queue_judges(experiment, judges)
                bar.prepared(list(evaluations(experiment).filter(judge__in=judges)))
                rescored = rescore(experiment, judges, progress=bar.progress)
        except ExperimentRefused as error:
            raise unusable(error) from None
        except KeyboardInterrupt:
            raise CommandError(
                "Stopped. What was judged is stored; the same command resumes it.", returncode=STOPPED
            ) from None
        self._show_rescored(rescored, options)

    def _show_report(self, experiment_report: ExperimentReport, options: dict[str, Any]) -> None:
        """Print the report or write it to ``--output`` (where the terminal's form becomes Markdown), then raise its exit code.

        Raises:
            CommandError: It is void or not finished.
        """
        report_format = _report_format(options)
        if report_format == "json":
            self._write(experiment_report.model_dump_json(indent=2), options)
        elif report_format == "csv":
            self._write(as_csv(experiment_report), options)
        elif report_format == "markdown" or options.get("output"):
            self._write(as_markdown(experiment_report), options)
        else:
            show(experiment_report, console_on(self.stdout))
        _raise_exit_code([experiment_report])

    def _show_rescored(self, rescored: Rescored, options: dict[str, Any]) -> None:
        """Print each judge's report and how far the judges agree, or write them to ``--output`` (the terminal's form as Markdown).

        CSV has the reports only.

        Raises:
            CommandError: A report is void or not finished.
        """
        report_format = _report_format(options)
        if report_format == "json":
            self._write(rescored.model_dump_json(indent=2), options)
        elif report_format == "csv":
            self._write(as_csv(*rescored.reports), options)
        elif report_format == "markdown" or options["output"]:
            self._write(_rescored_markdown(rescored), options)
        else:
            console = console_on(self.stdout)
            for judge_report in rescored.reports:
                console.print(f"[bold]Judge {snippet(judge_report.judge)}[/bold]")
                show(judge_report, console)
            cells = agreement_cells(rescored)
            print_table(console, AGREEMENT_HEADS, cells, title="Agreement of the judges", tight=True)
        _raise_exit_code(rescored.reports)

    def _write(self, text: str, options: dict[str, Any]) -> None:
        if options.get("output"):
            write_text("--output", options["output"], text)
        else:
            self.stdout.write(text, ending="" if text.endswith("\n") else "\n")

    # -- the others
    def _cancel(self, number: int) -> None:
        experiment = cancel(_find_experiment(number))
        ended = "is cancelled" if experiment.cancelled_at else "was played to its end, and stays"
        self.stdout.write(f"Experiment {experiment.pk} {ended}.")

    def _list(self) -> None:
        """Print the latest experiments with how many environments were played, and the shipped scenarios."""
        console = console_on(self.stdout)
        experiment_rows: list[list[Cell]] = []
        for experiment in Experiment.objects.order_by("-pk")[:MOST_LISTED]:
            played = experiment.environments.filter(status=ExperimentEnvironment.Status.COMPLETED).count()
            progress = f"{played}/{experiment.environments.count()}"
            experiment_rows.append([experiment.pk, experiment.name, experiment.state, progress, experiment.judge])
        if experiment_rows:
            heads = [">Number", "Scenario", "State", ">Played", "Judge"]
            print_table(console, heads, experiment_rows, title="Experiments")
        else:
            console.print("No experiment yet: manage.py experiment run SCENARIO plays one of these.\n")
        scenario_rows: list[list[Cell]] = []
        for name, path in shipped().items():
            scenario = read_scenario(path)
            arms = ", ".join(arm.name for arm in scenario.arms)
            scenario_rows.append([name, scenario.conversations, arms, in_line(scenario.title)])
        print_table(
            console, ["Scenario", ">Conversations", "Arms", "What it plays"], scenario_rows, title="Shipped scenarios"
        )

    def _show_published_scores(self, path: Path, *, as_json: bool) -> None:
        """Print a row for each metric of a file of raw scores, and below why a metric's values cannot be compared.

        Raises:
            CommandError: The file cannot be used.
        """
        try:
            published = read_published(path)
        except (OSError, ValueError) as error:
            raise unusable(f"--published: {error}") from None
        if as_json:
            self.stdout.write(published.model_dump_json(indent=2))
            return
        console = console_on(self.stdout)
        cells = [published_cells(published_row) for published_row in published.rows]
        print_table(console, PUBLISHED_HEADS, cells, tight=True)
        for published_row in published.rows:
            row = published_row.row
            if row.why != NO_CONVERSATIONS:  # that holds for all rows, and is said once below
                name = snippet(f"{published_row.set} {published_row.experiment}, {row.label}")
                console.print(f"{name}: {row.verdict}: {snippet(row.why, 1_000)}")
        console.print(f"No verdict rests on p naive, which takes each score for itself: {NO_CONVERSATIONS}.")


def _add_json_option(parser: ArgumentParser) -> None:
    """Allow ``--json`` after the action, too; without a default, so that it does not undo one before the action."""
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object and nothing else"
    )


def _scenario_fields(what: str) -> dict[str, Any]:
    """Return the fields of a request that name a scenario: a shipped one, or a file.

    Raises:
        CommandError: The file cannot be used.
    """
    if what in shipped():
        return {"shipped": what}
    if not Path(what).exists():
        raise unusable(f"there is no file and no shipped scenario {what!r}; shipped scenarios: {', '.join(shipped())}")
    try:
        return {"scenario": read_scenario(Path(what), check=problems_here)}
    except YamlProblems as error:
        raise unusable(f"{what} cannot be used:\n{error}") from None


def _report_format(options: dict[str, Any]) -> str:
    if options["json"]:
        return "json"
    return str(options.get("format", "terminal"))


def _rescored_markdown(rescored: Rescored) -> str:
    pages = [as_markdown(judge_report) for judge_report in rescored.reports]
    table = markdown_table(AGREEMENT_HEADS, agreement_cells(rescored))
    return "\n".join([*pages, "## Agreement of the judges\n", *table])


def _read_judges(names: str) -> list[str]:
    """Return the judges that were named with commas between them.

    Raises:
        CommandError: One of them cannot be asked.
    """
    judges = [name.strip() for name in names.split(",")]
    for judge in judges:
        problem = why_not_callable("judge", judge, may_be_file=True) if judge else EMPTY_JUDGE_NAME
        if problem:
            raise unusable(f"--judges {judge!r}: {problem}")
    return judges


def _raise_exit_code(reports: Sequence[ExperimentReport]) -> None:
    """End the command with an error where a report is void (exit code 2) or, if none is, not finished (1).

    Raises:
        CommandError: A report is void or not finished.
    """
    if any(experiment_report.void for experiment_report in reports):
        raise CommandError("void: a treatment left no trace", returncode=NOT_ENOUGH)
    for experiment_report in reports:
        if experiment_report.unfinished:
            raise CommandError(f"not finished: {experiment_report.unfinished}", returncode=FAILED)


def _find_experiment(number: int) -> Experiment:
    experiment: Experiment | None = Experiment.objects.filter(pk=number).first()
    if experiment is None:
        raise unusable(f"there is no experiment {number}; manage.py experiment list shows those there are")
    return experiment

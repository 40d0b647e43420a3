"""``manage.py experiment``: play the same conversations with and without a treatment, and say what it gained and what it harmed."""

from __future__ import annotations

import json
import sys
import zipfile
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
from evaluation.experiments.bundle import read_bundle, write_bundle
from evaluation.experiments.estimate import ExperimentEstimate, estimate_experiment
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.play import (
    ExperimentRefused,
    cancel,
    evaluations,
    judge_here,
    play,
    problems_here,
)
from evaluation.experiments.printed import PUBLISHED_HEADS, as_csv, as_markdown, published_cells, row_cells, show
from evaluation.experiments.published import NO_CONVERSATIONS, read_published
from evaluation.experiments.report import ExperimentReport, report, rounded
from evaluation.experiments.request import ExperimentRequest, PlayingRequest, request_experiment, why_not_callable
from evaluation.experiments.rescore import AGREEMENT_HEADS, Rescored, agreement_cells, queue_judges, rescore
from evaluation.experiments.scenario import read_scenario, shipped
from evaluation.propositions.files import YamlProblems

MOST_LISTED = 50
NO_NAME = "the name is empty; allowed: names of models, with commas between them"
FORMS = ("terminal", "markdown", "csv", "json")


class Command(BaseCommand):
    help = """Does correction help your agents, and what does it harm? Play the same conversations in two or more arms and compare them.

  manage.py experiment run office.yaml --dry-run       what it would play and cost
  manage.py experiment run office.yaml --scale 0.1     play a tenth of it, judge it, and report
  manage.py experiment run 12                          go on with experiment 12
  manage.py experiment report 12 --format markdown     its report again (also csv, json)
  manage.py experiment report 12 --judges A,B          the same speech scored by further judges, and how far they agree
  manage.py experiment compare 12 15                   the same measures of two experiments side by side
  manage.py experiment bundle 12 out.zip               all of it in one file; JUDGE_MODEL=replay:out.zip judges it again
  manage.py experiment run out.zip                     its report again, without a key
  manage.py experiment list                            the latest, and the scenarios that come with Plumbline
  manage.py experiment --published scores.json         raw scores that others published, compared as ours are

Exit code: 0 done, 1 not finished (failed, paused by its budget), 2 void (a treatment left no trace)."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.add_argument("--published", metavar="FILE", type=Path, help="compare the raw scores of this JSON file")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        actions = parser.add_subparsers(dest="action", metavar="ACTION", parser_class=ArgumentParser)
        json_too: dict[str, Any] = {
            "action": "store_true",
            "default": None,
            "help": "print one JSON object and nothing else",
        }
        run = actions.add_parser("run", help="play and judge a scenario, or go on with an experiment")
        run.add_argument("what", help="a YAML file, the name of a shipped scenario, or the number of an experiment")
        add_options(run, PlayingRequest)
        run.add_argument(
            "--dry-run", action="store_true", help="say what it would play, cost and could show, and write nothing"
        )
        run.add_argument("--json", dest="as_json", **json_too)
        again = actions.add_parser("report", help="what an experiment came to")
        again.add_argument("number", nargs="?", type=int)
        again.add_argument(
            "--judges",
            default="",
            metavar="MODEL,MODEL",
            help="have these judge what was said, too, and say how far they agree; asked and paid once",
        )
        again.add_argument("--format", choices=FORMS, default="terminal")
        again.add_argument("--output", type=Path, help="write it to this file")
        again.add_argument(
            "--published", dest="published_too", metavar="FILE", type=Path, help="compare raw scores of a JSON file"
        )
        again.add_argument("--json", dest="as_json", **json_too)
        two = actions.add_parser("compare", help="two experiments side by side")
        two.add_argument("first", type=int)
        two.add_argument("second", type=int)
        two.add_argument("--json", dest="as_json", **json_too)
        pack = actions.add_parser("bundle", help="write an experiment with its judge's answers to a zip")
        pack.add_argument("number", type=int)
        pack.add_argument("out", type=Path)
        stop = actions.add_parser("cancel", help="end an experiment; what was said stays")
        stop.add_argument("number", type=int)
        actions.add_parser("list", help="the latest experiments, and the shipped scenarios")

    def handle(self, *args: Any, **options: Any) -> None:
        options["json"] = bool(options["json"] or options.get("as_json"))
        published = options["published"] or options.get("published_too")
        if published:
            self._published(published, as_json=options["json"])
            return
        action = options["action"]
        if action is None:
            raise wrong(
                "say what to do: run, report, compare, bundle, cancel or list; manage.py experiment --help shows how"
            )
        getattr(self, f"_{action}")(options)

    # -- run
    def _run(self, options: dict[str, Any]) -> None:
        what = options["what"]
        if what.isdecimal():
            read_options(PlayingRequest, options)
            experiment = _experiment(int(what[:18]))
        elif zipfile.is_zipfile(what):
            judge = read_options(PlayingRequest, options).judge
            try:
                experiment = read_bundle(Path(what), judge=judge)
            except ExperimentRefused as error:
                raise unusable(error) from None
        else:
            asked = read_options(ExperimentRequest, options, **_named(what))
            try:
                estimate = estimate_experiment(asked.scaled_scenario(), **asked.models)
                for line in (_estimate_line(estimate), *estimate.findings()):
                    self._say(line, options)
                if options["dry_run"]:
                    if options["json"]:
                        self.stdout.write(estimate.model_dump_json(indent=2))
                    return
                experiment = request_experiment(asked)
            except ExperimentRefused as error:
                raise unusable(f"{what} cannot be played:\n{error}") from None
        self._say(
            f"Experiment {experiment.pk}, {experiment.name}: Ctrl-C stops it; the same number goes on with it.", options
        )
        quiet = options["json"]
        try:
            with stopping_on_sigterm():
                with ProgressBar("", sys.stderr, quiet=quiet) as bar:
                    ended = experiment.environments.filter(status__in=ExperimentEnvironment.FINAL).count()
                    task = bar.add_task("Playing", total=experiment.environments.count(), completed=ended)
                    experiment = play(experiment, progress=lambda _: bar.update(task, advance=1))
                with ProgressBar("Judging", sys.stderr, quiet=quiet) as bar:
                    bar.prepared(list(evaluations(experiment).filter(judge=experiment.judge)))
                    judge_here(experiment, progress=bar.progress)
        except KeyboardInterrupt:
            raise CommandError(
                f"Stopped. What was played is stored: manage.py experiment run {experiment.pk} goes on.",
                returncode=STOPPED,
            ) from None
        experiment.refresh_from_db()
        self._end(report(experiment), options)

    def _say(self, line: str, options: dict[str, Any]) -> None:
        if not options["json"]:
            console_on(self.stdout).print(snippet(line, 1_000))

    def _end(self, shown: ExperimentReport, options: dict[str, Any]) -> None:
        form = "json" if options["json"] else options.get("format", "terminal")
        if form == "terminal" and options.get("output") is None:
            show(shown, console_on(self.stdout))
        else:
            text = as_csv(shown) if form == "csv" else _json(shown) if form == "json" else as_markdown(shown)
            self._write(text, options)
        self._raise([shown])

    def _write(self, text: str, options: dict[str, Any]) -> None:
        if options.get("output"):
            write_text("--output", options["output"], text)
        else:
            self.stdout.write(text, ending="" if text.endswith("\n") else "\n")

    def _raise(self, reports: Sequence[ExperimentReport]) -> None:
        """Say in the exit code what the first lines say."""
        if any(one.void for one in reports):
            raise CommandError("void: a treatment left no trace", returncode=NOT_ENOUGH)
        if why := next((one.unfinished for one in reports if one.unfinished), ""):
            raise CommandError(f"not finished: {why}", returncode=FAILED)

    # -- the others
    def _report(self, options: dict[str, Any]) -> None:
        if options["number"] is None:
            raise wrong("report: say the number of an experiment, or --published FILE")
        if options["output"]:
            check_writable("--output", options["output"])
        experiment, judges = _experiment(options["number"]), [one.strip() for one in options["judges"].split(",")]
        if not options["judges"]:
            self._end(report(experiment), options)
            return
        for judge in judges:
            problem = why_not_callable("judge", judge, may_be_file=True) if judge else NO_NAME
            if problem:
                raise unusable(f"--judges {judge!r}: {problem}")
        try:
            with stopping_on_sigterm(), ProgressBar("Judging", sys.stderr, quiet=options["json"]) as bar:
                queue_judges(experiment, judges)
                bar.prepared(list(evaluations(experiment).filter(judge__in=judges)))
                shown = rescore(experiment, judges, progress=bar.progress)
        except ExperimentRefused as error:
            raise unusable(error) from None
        except KeyboardInterrupt:
            raise CommandError(
                "Stopped. What was judged is stored; the same command goes on.", returncode=STOPPED
            ) from None
        self._end_rescored(shown, options)

    def _end_rescored(self, shown: Rescored, options: dict[str, Any]) -> None:
        form, cells = "json" if options["json"] else options["format"], agreement_cells(shown)
        if form == "terminal" and options["output"] is None:
            console = console_on(self.stdout)
            for one in shown.reports:
                console.print(f"[bold]Judge {snippet(one.judge)}[/bold]")
                show(one, console)
            print_table(console, AGREEMENT_HEADS, cells, title="Agreement of the judges", tight=True)
        else:
            page = "\n".join(
                [
                    *map(as_markdown, shown.reports),
                    "## Agreement of the judges\n",
                    *markdown_table(AGREEMENT_HEADS, cells),
                ]
            )
            text = {"json": shown.model_dump_json(indent=2), "csv": as_csv(*shown.reports)}.get(form, page)
            self._write(text, options)
        self._raise(shown.reports)

    def _compare(self, options: dict[str, Any]) -> None:
        first, second = (report(_experiment(options[name])) for name in ("first", "second"))
        both = {(row.treatment.arm, row.measure): row for row in second.rows}
        if options["json"]:
            self.stdout.write(json.dumps([one.model_dump(mode="json") for one in (first, second)], indent=2))
            return
        rows: list[list[Cell]] = [
            [
                row.treatment.arm,
                row.label,
                *row_cells(row)[3:5],
                row_cells(row)[8],
                *_beside(both.get((row.treatment.arm, row.measure))),
            ]
            for row in first.rows
        ]
        heads = [
            "Arm",
            "Measure",
            f">Δ in {first.id}",
            ">d",
            "What may be said",
            f">Δ in {second.id}",
            ">d",
            "What may be said ",
        ]
        print_table(console_on(self.stdout), heads, rows, tight=True)

    def _bundle(self, options: dict[str, Any]) -> None:
        try:
            answers = write_bundle(_experiment(options["number"]), options["out"])
        except ExperimentRefused as error:
            raise unusable(error) from None
        except OSError as error:
            raise unusable(f"{options['out']} cannot be written: {error}") from None
        self.stdout.write(f"{options['out']}: the experiment and {answers:,} answers of its judge.")

    def _cancel(self, options: dict[str, Any]) -> None:
        experiment = cancel(_experiment(options["number"]))
        ended = "is cancelled" if experiment.cancelled_at else "was played to its end, and stays"
        self.stdout.write(f"Experiment {experiment.pk} {ended}.")

    def _list(self, options: dict[str, Any]) -> None:
        console = console_on(self.stdout)
        rows: list[list[Cell]] = []
        for one in Experiment.objects.order_by("-pk")[:MOST_LISTED]:
            played = one.environments.filter(status=ExperimentEnvironment.Status.COMPLETED).count()
            rows.append([one.pk, one.name, one.state, f"{played}/{one.environments.count()}", one.judge])
        print_table(console, [">Number", "Scenario", "State", ">Played", "Judge"], rows, title="Experiments")
        scenarios = [(name, read_scenario(path)) for name, path in shipped().items()]
        print_table(
            console,
            ["Scenario", ">Conversations", "Arms", "What it plays"],
            [[name, s.conversations, ", ".join(arm.name for arm in s.arms), in_line(s.title)] for name, s in scenarios],
            title="Shipped scenarios",
        )

    def _published(self, path: Path, *, as_json: bool) -> None:
        try:
            published = read_published(path)
        except (OSError, ValueError) as error:
            raise unusable(f"--published: {error}") from None
        if as_json:
            self.stdout.write(published.model_dump_json(indent=2))
            return
        console = console_on(self.stdout)
        print_table(console, PUBLISHED_HEADS, [published_cells(one) for one in published.rows], tight=True)
        for one in published.rows:
            if one.row.why != NO_CONVERSATIONS:
                name = snippet(f"{one.set} {one.experiment}, {one.row.label}")
                console.print(f"{name}: {one.row.verdict}: {snippet(one.row.why, 1_000)}")
        console.print(f"No verdict rests on p naive, which takes each score for itself: {NO_CONVERSATIONS}.")


def _beside(row: Any) -> list[Any]:
    cells = row_cells(row) if row is not None else [None] * 9
    return [*cells[3:5], cells[8]]


def _json(shown: ExperimentReport) -> str:
    return shown.model_dump_json(indent=2)


def _named(what: str) -> dict[str, Any]:
    """Return the fields of a request that name a scenario: a shipped one, or a file.

    Raises:
        CommandError: The file cannot be used.
    """
    if what in shipped():
        return {"shipped": what}
    try:
        return {"scenario": read_scenario(Path(what), check=problems_here)}
    except YamlProblems as error:
        raise unusable(f"{what} cannot be used:\n{error}\nshipped scenarios: {', '.join(shipped())}") from None


def _estimate_line(one: ExperimentEstimate) -> str:
    cost = "unpriced" if one.usd is None else f"some {rounded(one.usd)} US dollars" if one.usd else "free of cost"
    return (
        f"{one.conversations:,} conversations, {one.turns:,} turns: about {one.actor_calls:,} calls of {one.actor_model} "
        f"({one.actor_tokens:,} tokens) and {one.judge_calls:,} of {one.judge} ({one.judge_tokens:,} tokens), {cost}; "
        "what the gate and other stages ask comes on top."
    )


def _experiment(number: int) -> Experiment:
    experiment: Experiment | None = Experiment.objects.filter(pk=number).first()
    if experiment is None:
        raise unusable(f"there is no experiment {number}; manage.py experiment list shows those there are")
    return experiment

"""``manage.py evaluate``: measure, compare with the baseline, and end with a verdict a build can trust."""

from __future__ import annotations

import logging
import os
import stat
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sentry_sdk
from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError

from agents.kit.commands import NOT_ENOUGH, CodedCommand, unusable, wrong
from agents.kit.use_cases import add_options, read_options
from agents.transcripts.importer import DAY_FIRST, MONTH_FIRST, read_columns, read_speakers
from agents.transcripts.readers import FORMATS
from agents.transcripts.records import OptionError
from evaluation.change.measurement_files import UnreadableFile
from evaluation.change.measurements import NotComparable
from evaluation.ci.files import UnusableFiles, load_files, private_database, with_propositions
from evaluation.ci.junit import junit
from evaluation.ci.limits import MAX_UNSCORED, REGRESSION_DELTA, Limits, parse_thresholds
from evaluation.ci.markdown import markdown
from evaluation.ci.measure import Baselines, BaselinesOfFile, CurrentBaselines, NoBaselines, measure
from evaluation.ci.report import Report
from evaluation.ci.terminal import print_report
from evaluation.commands import (
    HOW,
    WHAT,
    ProgressBar,
    check_writable,
    estimate_line,
    examples_line,
    measuring,
    show_estimates,
    specs_of,
    split_unusable,
    unknown_tag_line,
    write_text,
)
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.runs.estimate import (
    Estimate,
    SimulationEstimate,
    estimate_all,
    estimate_before,
    estimate_simulation,
    estimated,
)
from evaluation.runs.failures import refusal
from evaluation.runs.request import AgentsRequest
from evaluation.runs.simulating import simulate_specs
from evaluation.runs.spec import RunSpec
from evaluation.simulation.conversations import Simulation
from evaluation.statistics.difference import MARGIN

logger = logging.getLogger(__name__)


REPORT_OF_OPTION: dict[str, Callable[[Report], str]] = {
    "out": lambda report: report.json,
    "markdown": markdown,
    "junit": junit,
}


# -- what was asked for
@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What is asked for of a build, read as far as it can be without a database.

    Attributes:
        measured: Who is measured, and how.
        limits: What they are held to.
        baseline: A file to compare with; None for the current baselines.
        personas: Files to measure instead of the database; None for the database.
        transcripts: What the personas said, in a format of `FORMATS` or ``auto``.
        speakers: Of transcripts, the slug of the agent by the speaker's name or role.
        columns: Of transcripts, the column or key that holds a field.
        dates: Of chat logs, how 01/02/2026 is read; empty = as the file suggests.
    """

    measured: AgentsRequest
    limits: Limits
    baseline: Path | None
    personas: Path | None
    transcripts: Sequence[Path]
    transcript_format: str
    speakers: Mapping[str, str]
    columns: Mapping[str, str]
    dates: str
    dry_run: bool
    json: bool

    @property
    def hides_progress(self) -> bool:
        """Return whether nothing but JSON is wanted, and nobody watches the terminal."""
        return self.json and not sys.stderr.isatty()

    @property
    def simulation(self) -> dict[str, Any]:
        """Return what is simulated and by which model, as the functions that simulate take it."""
        return {"situations": self.measured.situations, "actor_model": self.measured.actor_model}

    def specs(self) -> list[RunSpec]:
        """Return a spec per agent.

        Raises:
            CommandError: What is asked for makes no sense.
            PropositionError: Proposition files cannot be used.
        """
        specs = specs_of(self.measured, empty="; or measure files with --personas and --transcript")
        dimensions = specs[0].dimensions
        if self.measured.bins and not set(BY_ONE_MESSAGE) & set(dimensions):
            needed = ", ".join(BY_ONE_MESSAGE)
            raise wrong(f"--by position needs one of {needed} among --dimensions: only they are judged by message")
        try:
            self.limits.check_dimensions(dimensions)
        except ValueError as error:
            raise wrong(error) from None
        return specs

    def baselines(self, specs: Sequence[RunSpec]) -> Baselines:
        """Return what the agents are compared with.

        Raises:
            NotComparable: The file holds none of the agents, or is of another judge or procedure.
            UnreadableFile: It is no file of measurements.
        """
        if self.baseline is not None:
            return BaselinesOfFile(self.baseline, specs)
        if self.measured.bins:
            return NoBaselines(why="")  # late messages are compared with early ones: no baseline is missing
        if self.personas is not None:
            return NoBaselines(why="no --baseline FILE was given")
        return CurrentBaselines()


def read_request(options: Mapping[str, Any]) -> BuildRequest:
    """Read options, and check those that need no database.

    Raises:
        CommandError, OptionError: They make no sense.
    """
    _check_combinations(options)
    return BuildRequest(
        measured=read_options(AgentsRequest, options),
        limits=_read_limits(options),
        baseline=options["baseline"],
        personas=options["personas"],
        transcripts=options["transcript"],
        transcript_format=options["format"],
        speakers=read_speakers(options["map"]),
        columns=read_columns(options["columns"]),
        dates=options["dates"],
        dry_run=options["dry_run"],
        json=options["json"],
    )


def _check_combinations(options: Mapping[str, Any]) -> None:
    """Refuse options that exclude each other, or that need another one.

    Raises:
        CommandError: Names the options.
    """
    if options["transcript"] and not options["personas"]:
        raise wrong("--transcript needs --personas PATH: they say which speakers are agents")
    if options["personas"] and not options["transcript"] and not options["situations"]:
        raise wrong("--personas needs --transcript FILE (what they said) or --simulate FILE (situations to simulate)")
    if options["transcript"] and options["situations"]:
        raise wrong("--transcript and --simulate: measure what was said, or simulate situations; not both at once")
    for name in ("map", "columns", "dates"):
        if options[name] and not options["transcript"]:
            raise wrong(f"--{name} is for --transcript")
    if options["by"] and options["baseline"]:
        raise wrong("--by position compares late positions with early ones, not with a --baseline")
    if options["require_passport"] and options["personas"]:
        raise wrong("--require-passport needs the database with the judge's labels; with --personas none is read")
    if options["dry_run"] and (options["markdown"] or options["junit"]):
        raise wrong("--dry-run asks nothing, so there is nothing to write to --markdown or --junit")


def _read_limits(options: Mapping[str, Any]) -> Limits:
    """Return what a build is held to.

    Raises:
        CommandError: A limit makes no sense.
    """
    try:
        return Limits(
            thresholds=parse_thresholds(options["threshold"]),
            regression_delta=options["regression_delta"],
            margin=options["margin"],
            max_unscored=options["max_unscored"],
            strict=options["strict"],
            require_passport=options["require_passport"],
        )
    except ValueError as error:
        raise wrong(error) from None


def _is_redirected() -> bool:
    """Return whether standard output goes into a file, and standard error does not go into the same."""
    output, errors = 1, 2  # file descriptors
    return stat.S_ISREG(os.fstat(output).st_mode) and not os.path.sameopenfile(output, errors)


class Verdict(CommandError):
    """How a build was judged; Django prints the name of the class before the text."""


class Command(CodedCommand):
    help = (
        "Measure agents, compare them with their baseline and thresholds, and end with a verdict for a build. Exit code: 0 pass, "
        "1 a significant regression or a score below its threshold, 2 not enough could be judged to say, "
        "or --require-passport and the judge has none. When both hold it is 2 where something could not be judged enough, or the judge "
        "has no passport, and 1 where a dimension only lost its score. 3 something that was named or "
        "set cannot be used; where it is proposition files of some agents, the others are evaluated, and something worse among them is 1. "
        "The same command resumes an evaluation that was interrupted, or whose calls failed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        file: dict[str, Any] = {"type": Path, "metavar": "FILE"}
        points: dict[str, Any] = {"type": float, "metavar": "POINTS"}

        measured = parser.add_argument_group("what is measured")
        add_options(measured, AgentsRequest, *WHAT, "situations", "actor_model", "by", "position_bins")

        add = parser.add_argument_group("what it is held to").add_argument
        least = "5 for every dimension that is scored, or adherence=6,fluency=4, or overall=6"
        add("--threshold", default="", metavar="LEAST", help=least)
        add(
            "--baseline",
            **file,
            help="what an earlier evaluate --json or capture_baseline --json printed (default: the current baselines)",
        )
        fall = f"a significant fall of this much is a regression (default: {REGRESSION_DELTA:g})"
        add("--regression-delta", **points, default=REGRESSION_DELTA, help=fall)
        add("--margin", **points, default=MARGIN, help=f"a change within ± this is none (default: {MARGIN:g})")
        add(
            "--max-unscored",
            type=float,
            default=MAX_UNSCORED,
            metavar="SHARE",
            help="most of what the judge could have judged that may fail, per agent and dimension "
            f"(default: {MAX_UNSCORED:g}); what only an LLM could judge does not count against an offline judge",
        )
        add(
            "--strict",
            action="store_true",
            help="exit code 2 also for “cannot tell yet”, a score on one side only and a missing baseline",
        )
        add(
            "--require-passport",
            action="store_true",
            help="exit code 2 unless the judge's passport is usable in each dimension that it scores (console: Quality › Labels › Judges)",
        )

        add_options(parser.add_argument_group("how it is judged"), AgentsRequest, *HOW, "additional_context")

        add = parser.add_argument_group("what comes out").add_argument
        add("--json", action="store_true", help="print one JSON object on standard output and nothing else")
        add("--out", **file, help="also write the JSON object to this file")
        add("--markdown", **file, help="write a comment for a pull request")
        add("--junit", **file, help="write JUnit XML: a test case per agent and dimension")
        add("--dry-run", action="store_true", help="print calls, tokens and cost, ask nothing")

        add = parser.add_argument_group("files instead of the database, which is then not touched").add_argument
        add("--transcript", **file, action="append", default=[], help="a conversation; repeatable")
        add("--personas", type=Path, metavar="PATH", help="the agents: a file or a folder")
        who = "which agent a speaker of the transcripts is; repeatable"
        add("--map", action="append", default=[], metavar="SPEAKER=SLUG", help=who)
        fields = "which column of CSV or key of JSON Lines holds which field; repeatable"
        add("--columns", action="append", default=[], metavar="FIELD=COLUMN,…", help=fields)
        add("--format", default="auto", choices=["auto", *FORMATS], help="of the transcripts")
        order = "chat logs: how 01/02/2026 is read; default: as the file suggests"
        add("--dates", default="", choices=[DAY_FIRST, MONTH_FIRST], help=order)
        beside = "propositions, beside those of the settings (also with a database)"
        add("--propositions", type=Path, metavar="DIR", help=beside)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Evaluate; where a shell was shown the report, which ends with the verdict, only the exit code follows."""
        try:
            return super().execute(*args, **options)
        except Verdict as verdict:
            from_shell = self._called_from_command_line  # type: ignore[attr-defined]
            if from_shell and not options["json"] and not _is_redirected():
                sys.exit(verdict.returncode)
            raise

    def handle(self, *args: Any, **options: Any) -> None:
        """Evaluate, and end with the verdict's exit code.

        What breaks off ends with 2, what cannot be used with 3: neither must look like a regression, 1.
        """
        try:
            request = read_request(options)
            files = {name: options[name] for name in REPORT_OF_OPTION if options[name]}
            for name, path in files.items():
                check_writable(f"--{name}", path)
            self._run(request, files, options["propositions"])
        except OptionError as error:
            raise wrong(error) from None
        except (UnusableFiles, NotComparable, UnreadableFile) as error:
            raise unusable(error) from None
        except CommandError:
            raise
        except DatabaseError as error:
            line = str(error).splitlines()[0]
            hint = "is it migrated, and DATABASE_URL right? Files are measured without one: --personas, --transcript"
            raise unusable(f"the database cannot be used: {line} ({hint})") from None
        except Exception as error:
            sentry_sdk.capture_exception(error)
            logger.exception("evaluate broke off")
            raise CommandError(f"broke off: {type(error).__name__}: {error}", returncode=NOT_ENOUGH) from error

    def _run(self, request: BuildRequest, files: Mapping[str, Path], propositions: Path | None) -> None:
        """Evaluate, write everything that was asked for, and end with the verdict's exit code."""
        measures_files = request.personas is not None
        # What `measuring` says when the command is stopped; its default says that the same command goes on.
        stored = {"stored": "Files are measured in memory, so nothing was stored."} if measures_files else {}
        with measuring(**stored), ExitStack() as stack:
            stack.enter_context(with_propositions(propositions))
            if request.personas is not None:
                stack.enter_context(private_database())
                warnings = load_files(
                    personas=request.personas,
                    transcripts=request.transcripts,
                    speakers=request.speakers,
                    format=request.transcript_format,
                    columns=request.columns,
                    dates=request.dates,
                )
                for warning in warnings:
                    self.stderr.write(f"Warning: {warning}")
            specs, broken = split_unusable(request.specs())
            about_examples = examples_line(specs)
            if about_examples:
                self.stderr.write(about_examples)
            if request.dry_run:
                self._dry_run(request, specs)
                if broken:  # proposition files of the agents that are not in `specs`
                    raise unusable(broken)
                return
            report = self._evaluate(request, specs, broken)
            if all(result.overall_score is None for result in report.results) and (
                line := unknown_tag_line(request.measured.where)
            ):
                self.stderr.write(line)
            self._write(report, files, as_json=request.json)

    def _dry_run(self, request: BuildRequest, specs: Sequence[RunSpec]) -> None:
        """Print calls, tokens and cost of judging, and of simulating where that is asked for; ask and store nothing."""
        estimates: list[Estimate] = []
        simulations: list[SimulationEstimate] = []
        if request.measured.is_simulated:
            for spec in specs:
                # Each situation is simulated as often as it is judged, and each simulation is judged once.
                simulation, judging = estimate_simulation(
                    replace(spec, repeats=1), **request.simulation, repeats=spec.repeats
                )
                simulations.append(simulation)
                estimates.append(judging)
        else:
            estimates = estimate_all(specs)
        show_estimates(estimates, self.stdout, simulations, as_json=request.json)

    def _evaluate(self, request: BuildRequest, specs: Sequence[RunSpec], broken: str) -> Report:
        """Simulate where that is asked for, judge and compare.

        Args:
            broken: Which proposition files cannot be used, for the report; empty where all can.

        Raises:
            CommandError: The judge refuses to be asked: key, model or address are wrong.
            NotComparable, UnreadableFile: The baseline's file does not fit, or is none.
        """
        baselines = request.baselines(specs)  # before any call: the file may not fit
        named = [] if request.measured.are_all else [spec.target.slug for spec in specs]  # they must have a score
        simulations: list[Simulation] = []
        if request.measured.is_simulated:
            with ProgressBar("Simulating", sys.stderr, quiet=request.hides_progress) as bar:
                specs, simulations = simulate_specs(specs, **request.simulation, progress=bar.simulated)
        estimates = estimate_before(specs)  # None where the judge costs nothing
        estimate = None if estimates is None else estimated(estimates)
        if estimate is not None and not request.json:
            self.stdout.write(estimate_line(estimate))
        with ProgressBar("Judging", sys.stderr, quiet=request.hides_progress) as bar:
            results = measure(
                specs,
                baselines=baselines,
                margin=request.limits.margin,
                named=named,
                prepared=bar.prepared,
                progress=bar.progress,
            )
        why_refused = refusal(result.run for result in results)
        if why_refused:
            raise unusable(why_refused)
        return Report(
            judge=str(settings.JUDGE_MODEL),
            results=results,
            limits=request.limits,
            bins=request.measured.bins,
            simulations=simulations,
            estimate=estimate,
            unusable=broken,
        )

    def _write(self, report: Report, files: Mapping[str, Path], *, as_json: bool) -> None:
        """Write the files that were asked for, print the report, and end with the verdict's exit code."""
        for name, path in files.items():
            write_text(f"--{name}", path, REPORT_OF_OPTION[name](report))
        if as_json:
            self.stdout.write(report.json, ending="")
        else:
            print_report(report, self.stdout)
        if report.exit_code:
            verdict = f"{report.outcome}: {report.findings.headline}"
            lines = [verdict, report.unusable] if report.unusable else [verdict]
            raise Verdict("\n".join(lines), returncode=report.exit_code)

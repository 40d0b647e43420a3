"""``manage.py evaluate``: measure, compare with the baseline, and end with a verdict a build can trust."""

from __future__ import annotations

import logging
import math
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
from agents.transcripts.readers import FORMATS
from evaluation.change.measurement_files import UnreadableFile
from evaluation.change.measurements import NotComparable
from evaluation.ci.files import UnusableFiles, load_files, private_database, with_propositions
from evaluation.ci.measure import BaselineSource, measure
from evaluation.ci.render import Report, junit, markdown, print_report
from evaluation.ci.verdict import HIGHEST, MAX_UNSCORED, OVERALL, REGRESSION_DELTA, Limits
from evaluation.commands import (
    HOW,
    WHAT,
    ProgressBar,
    check_writable,
    estimate_line,
    measuring,
    show_estimates,
    specs_of,
    split_unusable,
    write_text,
)
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.models import COUNTED
from evaluation.runs.estimate import (
    Estimate,
    SimulationEstimate,
    estimate_all,
    estimate_before,
    estimate_simulation,
    estimated,
)
from evaluation.runs.planning import RunSpec
from evaluation.runs.request import AgentsRequest
from evaluation.runs.simulating import simulate_specs
from evaluation.runs.summary import refusal
from evaluation.scorers import SCORERS
from evaluation.simulation.conversations import Simulation
from evaluation.statistics.difference import MARGIN

logger = logging.getLogger(__name__)


TEXTS: dict[str, Callable[[Report], str]] = {"out": lambda report: report.json, "markdown": markdown, "junit": junit}


def parse_thresholds(text: str) -> dict[str, float]:
    """Read ``5`` (each dimension that is scored), or ``adherence=6,fluency=4``, or both; ``overall=6`` is for the overall score.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    thresholds: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, number = (piece.strip() for piece in part.rpartition("="))
        if equals and name not in (*SCORERS, OVERALL):
            raise ValueError(f"--threshold {part!r}: no dimension {name!r}; allowed: {', '.join((*SCORERS, OVERALL))}")
        if name in thresholds:
            raise ValueError(f"--threshold {text!r}: {name or 'a number for all'} is given twice")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        counted = name in COUNTED
        if not (value >= 0 and (math.isfinite(value) if counted else value <= HIGHEST)):
            allowed = "a number from 0" if counted else "a number from 0 to 9"
            raise ValueError(f"--threshold {part!r}: allowed: {allowed}, e.g. 5 or adherence=6,fluency=4")
        thresholds[name] = value
    return thresholds


# -- what was asked for
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, read as far as it can be without a database.

    Attributes:
        asked: What is measured, and how. `limits`: what it is held to.
        speakers: Of transcripts, the slugs of those who are agents.
    """

    options: Mapping[str, Any]
    asked: AgentsRequest
    limits: Limits
    speakers: Mapping[str, str]

    def specs(self) -> list[RunSpec]:
        """Return a spec per agent.

        Raises:
            CommandError: What is asked for makes no sense.
            PropositionError: Proposition files cannot be used.
        """
        specs = specs_of(self.asked, empty="; or measure files with --personas and --transcript")
        dimensions = specs[0].dimensions
        if self.asked.bins and not set(BY_ONE_MESSAGE) & set(dimensions):
            needed = ", ".join(BY_ONE_MESSAGE)
            raise wrong(f"--by position needs one of {needed} among --dimensions: only they are judged by message")
        try:
            self.limits.check_dimensions(dimensions)
        except ValueError as error:
            raise wrong(error) from None
        return specs


def read_request(options: Mapping[str, Any]) -> Request:
    """Check options that need no database.

    Raises:
        CommandError: They make no sense.
    """
    _check_combinations(options)
    speakers = {}
    for text in options["map"]:
        speaker, _, slug = text.rpartition("=")
        if not speaker.strip():
            raise wrong(f"--map {text!r}: write SPEAKER=SLUG, e.g. --map assistant=ada")
        speakers[speaker.strip()] = slug.strip()
    try:
        limits = Limits(
            thresholds=parse_thresholds(options["threshold"]),
            **{name: options[name] for name in ("regression_delta", "margin", "max_unscored", "strict")},
        )
    except ValueError as error:
        raise wrong(error) from None
    return Request(options=options, asked=read_options(AgentsRequest, options), limits=limits, speakers=speakers)


def _check_combinations(options: Mapping[str, Any]) -> None:
    given = {name for name, value in options.items() if value}
    simulate, transcripts, personas = ({name} & given for name in ("situations", "transcript", "personas"))
    rules = [
        (transcripts and not personas, "--transcript needs --personas PATH: they say which speakers are agents"),
        (
            personas and not transcripts and not simulate,
            "--personas needs --transcript FILE (what they said) or --simulate FILE (situations to simulate)",
        ),
        (
            transcripts and simulate,
            "--transcript and --simulate: measure what was said, or simulate situations; not both at once",
        ),
        ("map" in given and not transcripts, "--map is for --transcript"),
        ({"by", "baseline"} <= given, "--by position compares late positions with early ones, not with a --baseline"),
        (
            "dry_run" in given and {"markdown", "junit"} & given,
            "--dry-run asks nothing, so there is nothing to write to --markdown or --junit",
        ),
    ]
    for holds, why in rules:
        if holds:
            raise wrong(why)


class Verdict(CommandError):
    """How a build was judged; Django prints the name of the class before the text."""


class Command(CodedCommand):
    help = (
        "Measure agents, compare them with their baseline and thresholds, and end with a verdict for a build. Exit code: 0 pass, "
        "1 a sure regression or a score below its threshold, 2 not enough could be judged to say. When both hold it is 2 where something "
        "could not be judged enough, and 1 where a dimension only lost its score. 3 something that was named or "
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
        fall = f"a sure fall of this much is a regression (default: {REGRESSION_DELTA:g})"
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

        add_options(parser.add_argument_group("how it is judged"), AgentsRequest, *HOW)

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
        add("--format", default="auto", choices=["auto", *FORMATS], help="of the transcripts")
        beside = "propositions, beside those of the settings (also with a database)"
        add("--propositions", type=Path, metavar="DIR", help=beside)

    def handle(self, *args: Any, **options: Any) -> None:
        private = options["personas"] is not None
        try:
            request = read_request(options)
            files = {name: options[name] for name in TEXTS if options[name]}
            for name, path in files.items():
                check_writable(f"--{name}", path)
            stored = {"stored": "Files are measured in memory, so nothing was stored."} if private else {}
            with measuring(**stored), ExitStack() as stack:
                stack.enter_context(with_propositions(options["propositions"]))
                if private:
                    stack.enter_context(private_database())
                report = self._evaluate(request)
                if report is not None:
                    self._write(report, files, as_json=options["json"])
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

    def _evaluate(self, request: Request) -> Report | None:
        options = request.options
        if options["personas"] is not None:
            paths: dict[str, Any] = {"personas": options["personas"], "transcripts": options["transcript"]}
            load_files(**paths, speakers=request.speakers, format=options["format"])
        specs, broken = split_unusable(request.specs())
        chosen: dict[str, Any] = {name: getattr(request.asked, name) for name in ("situations", "actor_model")}
        pairs: list[tuple[SimulationEstimate, Estimate]] = []
        if request.asked.is_simulated:
            once = [(replace(spec, repeats=1), spec.repeats) for spec in specs]
            pairs = [estimate_simulation(spec, **chosen, repeats=repeats) for spec, repeats in once]
        if options["dry_run"]:
            self._dry_run(specs, pairs, as_json=options["json"])
            if broken:
                raise unusable(broken)
            return None
        baseline = self._baseline(request, specs)
        named = [] if request.asked.are_all else [spec.target.slug for spec in specs]
        quiet = options["json"] and not sys.stderr.isatty()
        simulations: list[Simulation] = []
        if request.asked.is_simulated:
            with ProgressBar("Simulating", sys.stderr, quiet=quiet) as bar:
                specs, simulations = simulate_specs(specs, **chosen, progress=bar.simulated)
        estimates = estimate_before(specs)  # None where the judge costs nothing
        spending = estimated(estimates) if estimates is not None else None
        if spending is not None and not options["json"]:
            self.stdout.write(estimate_line(spending))
        with ProgressBar("Judging", sys.stderr, quiet=quiet) as bar:
            results = measure(
                specs,
                baseline=baseline,
                margin=request.limits.margin,
                named=named,
                prepared=bar.prepared,
                progress=bar.progress,
            )
        if why := refusal(result.run for result in results):
            raise unusable(why)
        return Report(
            judge=str(settings.JUDGE_MODEL),
            results=results,
            limits=request.limits,
            bins=request.asked.bins,
            simulations=simulations,
            estimate=spending,
            unusable=broken,
        )

    def _baseline(self, request: Request, specs: Sequence[RunSpec]) -> BaselineSource:
        if request.options["baseline"]:
            return BaselineSource(request.options["baseline"], specs=specs)
        if request.asked.bins:
            return BaselineSource(nothing="")  # late turns are compared with early ones
        if request.options["personas"] is not None:
            return BaselineSource(nothing="no --baseline FILE was given")
        return BaselineSource()

    def _dry_run(
        self, specs: Sequence[RunSpec], pairs: Sequence[tuple[SimulationEstimate, Estimate]], *, as_json: bool
    ) -> None:
        simulations, estimates = [acting for acting, _ in pairs], [judging for _, judging in pairs]
        if not pairs:
            estimates = estimate_all(specs)
        show_estimates(estimates, self.stdout, simulations, as_json=as_json)

    def _write(self, report: Report, files: Mapping[str, Path], *, as_json: bool) -> None:
        """Write everything that was asked for; then end with the verdict's exit code."""
        for name, path in files.items():
            write_text(f"--{name}", path, TEXTS[name](report))
        if as_json:
            self.stdout.write(report.json, ending="")
        else:
            print_report(report, self.stdout)
        if report.exit_code:
            verdict = f"{report.outcome}: {report.findings.headline}"
            raise Verdict("\n".join(filter(None, [verdict, report.unusable])), returncode=report.exit_code)

"""``manage.py evaluate``: measure, compare with the baseline, and end with a verdict a build can trust."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import sentry_sdk
from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError

from agents.commands import NOT_ENOUGH, CodedCommand
from evaluation.change.measurements import NotComparable, UnreadableFile
from evaluation.ci.files import UnusableFiles, load_files, private_database, with_propositions
from evaluation.ci.measure import BaselineSource, measure
from evaluation.ci.options import Request, add_arguments, read_request
from evaluation.ci.render import (
    Report,
    junit,
    markdown,
    print_report,
)
from evaluation.commands import (
    ProgressBar,
    check_writable,
    estimate_line,
    measuring,
    show_estimates,
    write_text,
    wrong,
)
from evaluation.propositions.files import YamlProblems
from evaluation.runs.estimate import (
    Estimate,
    SimulationEstimate,
    estimate_all,
    estimate_before,
    estimate_simulation,
    estimated,
)
from evaluation.runs.planning import RunSpec
from evaluation.runs.summary import refusal
from evaluation.simulation.conversations import Simulation, simulate_specs
from evaluation.simulation.situations import load_situations

logger = logging.getLogger(__name__)


TEXTS: dict[str, Callable[[Report], str]] = {"out": lambda report: report.json, "markdown": markdown, "junit": junit}


class Verdict(CommandError):
    """How a build was judged; Django prints the name of the class before the text."""


class Command(CodedCommand):
    help = (
        "Measure agents, compare them with their baseline and thresholds, and end with a verdict for a build. Exit code: 0 pass, "
        "1 a sure regression or a score below its threshold, 2 not enough could be judged to say, 3 wrong usage. When both 1 and 2 "
        "hold it is 2. The same command resumes an evaluation that was interrupted, or whose calls failed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_arguments(parser)

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
        except YamlProblems as error:
            raise wrong(f"--simulate: {error}") from None
        except (UnusableFiles, NotComparable, UnreadableFile) as error:
            raise wrong(error) from None
        except CommandError:
            raise
        except DatabaseError as error:
            line = str(error).splitlines()[0]
            hint = "is it migrated, and DATABASE_URL right? Files are measured without one: --personas, --transcript"
            raise CommandError(f"the database cannot be used: {line} ({hint})", returncode=NOT_ENOUGH) from None
        except Exception as error:
            sentry_sdk.capture_exception(error)
            logger.exception("evaluate broke off")
            raise CommandError(f"broke off: {type(error).__name__}: {error}", returncode=NOT_ENOUGH) from error

    def _evaluate(self, request: Request) -> Report | None:
        options = request.options
        if options["personas"] is not None:
            paths: dict[str, Any] = {"personas": options["personas"], "transcripts": options["transcript"]}
            load_files(**paths, speakers=request.speakers, format=options["format"])
        specs = request.specs()
        chosen: dict[str, Any] = {"situations": (), "actor_model": options["actor_model"]}
        pairs: list[tuple[SimulationEstimate, Estimate]] = []
        if options["simulate"]:
            chosen["situations"] = load_situations(options["simulate"])
            once = [(replace(spec, repeats=1), spec.repeats) for spec in specs]
            pairs = [estimate_simulation(spec, **chosen, repeats=repeats) for spec, repeats in once]
        if options["dry_run"]:
            self._dry_run(specs, pairs, as_json=options["json"])
            return None
        baseline = self._baseline(request, specs)
        named = [] if options["agents"].strip().lower() == "all" else [spec.target.slug for spec in specs]
        quiet = options["json"] and not sys.stderr.isatty()
        simulations: list[Simulation] = []
        if options["simulate"]:
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
            raise wrong(why)
        return Report(
            judge=str(settings.JUDGE_MODEL),
            results=results,
            limits=request.limits,
            bins=request.bins,
            simulations=simulations,
            estimate=spending,
        )

    def _baseline(self, request: Request, specs: Sequence[RunSpec]) -> BaselineSource:
        if request.options["baseline"]:
            return BaselineSource(request.options["baseline"], specs=specs)
        if request.bins:
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
        if report.findings.exit_code:
            raise Verdict(
                f"{report.findings.verdict}: {report.findings.headline}", returncode=report.findings.exit_code
            )

"""``manage.py evaluate``: measure, compare with the baseline, and end with a verdict a build can trust."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import sentry_sdk
from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError

from agents.commands import NOT_ENOUGH, STOPPED, CodedCommand
from agents.work.running import stopping_on_sigterm
from evaluation.change.measurements import NotComparable, UnreadableFile
from evaluation.ci.files import UnusableFiles, load_files, private_database, with_propositions
from evaluation.ci.measure import BaselineSource, measure
from evaluation.ci.options import Request, add_arguments, read_request
from evaluation.ci.render import (
    Report,
    complaint,
    estimate_line,
    junit,
    markdown,
    print_line,
    print_report,
    simulations_line,
)
from evaluation.commands import (
    ProgressBar,
    SimulationBar,
    as_text,
    check_writable,
    estimate_json,
    estimate_table,
    write_text,
    wrong,
)
from evaluation.propositions.files import PropositionError, YamlProblems
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
            for option, path in request.files_to_write.items():
                check_writable(option, path)
            with ExitStack() as stack:
                stack.enter_context(stopping_on_sigterm())
                stack.enter_context(with_propositions(options["propositions"]))
                if private:
                    stack.enter_context(private_database())
                report = self._evaluate(request)
                if report is not None:
                    self._write(report, request)
        except KeyboardInterrupt:
            message = (
                "Stopped. Files are measured in memory, so nothing was stored."
                if private
                else "Stopped. What was judged is stored; run the same command again to go on with the rest."
            )
            raise CommandError(message, returncode=STOPPED) from None
        except PropositionError as error:
            raise wrong(f"proposition files cannot be used:\n{error}") from None
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
        baseline, named = self._baseline(request, specs), request.named(specs)
        quiet = options["json"] and not sys.stderr.isatty()
        simulations: list[Simulation] = []
        if options["simulate"]:
            self._print(simulations_line([acting for acting, _ in pairs]), options)
            with SimulationBar(sys.stderr, quiet=quiet) as simulating:
                specs, simulations = simulate_specs(specs, **chosen, progress=simulating.progress)
        estimates = estimate_before(specs)  # None where the judge costs nothing
        spending = estimated(estimates) if estimates is not None else None
        if spending is not None:
            self._print(estimate_line(spending), options)
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

    def _print(self, line: str, options: Mapping[str, Any]) -> None:
        if line and not options["json"]:
            print_line(line, self.stdout)

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
        if as_json:
            self.stdout.write(as_text(estimate_json(estimates, simulations)))
        else:
            estimate_table(estimates, self.stdout, simulations)

    def _write(self, report: Report, request: Request) -> None:
        """Write everything that was asked for; then end with the verdict's exit code."""
        as_json, code = request.options["json"], report.findings.exit_code
        for option, path in request.files_to_write.items():
            text = report.json if option == "--out" else (markdown if option == "--markdown" else junit)(report)
            write_text(option, path, text)
        if as_json:
            self.stdout.write(report.json, ending="")
        else:
            print_report(report, self.stdout)
        said = complaint(report, everything=as_json)
        if code:
            raise Verdict(said, returncode=code)
        if said and as_json:
            self.stderr.write(said)

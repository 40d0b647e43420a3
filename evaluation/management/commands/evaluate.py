"""``manage.py evaluate``: measure, compare with the baseline, and end with a verdict a build can trust."""

from __future__ import annotations

import json
import logging
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import sentry_sdk
from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError

from agents.commands import NOT_ENOUGH, STOPPED, WRONG_USAGE, CodedCommand
from agents.work.stopping import stopping_on_sigterm
from evaluation.change.measurement_files import UnreadableFile
from evaluation.change.measurements import NotComparable
from evaluation.ci.files import UnusableFiles, load_files, private_database, with_propositions
from evaluation.ci.measure import (
    BaselineSource,
    CurrentBaselines,
    FileBaseline,
    NoBaseline,
    estimate_simulations,
    measure,
    simulate_agents,
)
from evaluation.ci.options import Request, WrongUsage, add_arguments, read_request
from evaluation.ci.render import (
    Report,
    complaint,
    estimate_line,
    junit,
    make_report,
    markdown,
    print_line,
    print_report,
    simulations_line,
)
from evaluation.management.commands.capture_baseline import tag_pairs
from evaluation.propositions.files import PropositionError, YamlProblems
from evaluation.runs.capture import estimated
from evaluation.runs.estimate import estimate, estimate_before, estimate_channels
from evaluation.runs.planning import RunSpec
from evaluation.runs.store import refusal
from evaluation.runs.terminal import ProgressBar, estimate_json, estimate_table
from evaluation.simulation.conversations import Simulation
from evaluation.simulation.output import SimulationBar

logger = logging.getLogger(__name__)

USAGE = (WrongUsage, UnusableFiles, NotComparable, UnreadableFile)


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
            self._check_writable(request)
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
            raise CommandError(f"proposition files cannot be used:\n{error}", returncode=WRONG_USAGE) from None
        except YamlProblems as error:
            raise CommandError(f"--simulate: {error}", returncode=WRONG_USAGE) from None
        except USAGE as error:
            raise CommandError(str(error), returncode=WRONG_USAGE) from None
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

    def _check_writable(self, request: Request) -> None:
        """Refuse files that cannot be written before anything is judged."""
        for option, path in request.files_to_write.items():
            try:
                path.open("a", encoding="utf-8").close()
            except OSError as error:
                raise WrongUsage(f"{option} {path}: {error.strerror}") from None

    def _evaluate(self, request: Request) -> Report | None:
        options = request.options
        if request.from_files:
            load_files(
                personas=options["personas"],
                transcripts=options["transcript"],
                speakers=request.speakers,
                format=options["format"],
            )
        specs = request.specs(where=tag_pairs(options["where"]), history_where=tag_pairs(options["history_where"]))
        if options["dry_run"]:
            self._dry_run(specs, options)
            return None
        baseline, named = self._baseline(request, specs), request.named(specs)
        quiet = options["json"] and not sys.stderr.isatty()
        simulations: list[Simulation] = []
        if options["simulate"]:
            chosen = {"situations": options["simulate"], "actor_model": options["actor_model"]}
            self._print(simulations_line(estimate_simulations(specs, **chosen)[0]), options)
            with SimulationBar(sys.stderr, quiet=quiet) as simulating:
                specs, simulations = simulate_agents(specs, **chosen, progress=simulating.progress)
        estimates = estimate_before(specs)  # None where the judge costs nothing
        estimate = estimated(estimates) if estimates is not None else None
        if estimate is not None:
            self._print(estimate_line(estimate), options)
        with ProgressBar("Judging", sys.stderr, quiet=quiet) as bar:
            results = measure(
                specs,
                baseline=baseline,
                margin=request.limits.margin,
                named=named,
                prepared=bar.prepared,
                progress=bar.progress,
            )
        if wrong := refusal(result.run for result in results):
            raise WrongUsage(wrong)
        judge = str(settings.JUDGE_MODEL)
        return make_report(
            judge, results, request.limits, bins=request.bins, simulations=simulations, estimate=estimate
        )

    def _print(self, line: str, options: Mapping[str, Any]) -> None:
        if line and not options["json"]:
            print_line(line, self.stdout)

    def _baseline(self, request: Request, specs: Sequence[RunSpec]) -> BaselineSource:
        if request.options["baseline"]:
            return FileBaseline(request.options["baseline"], specs)
        if request.bins:
            return NoBaseline("")  # late turns are compared with early ones
        if request.from_files:
            return NoBaseline("no --baseline FILE was given")
        return CurrentBaselines()

    def _dry_run(self, specs: Sequence[RunSpec], options: Mapping[str, Any]) -> None:
        if options["simulate"]:
            simulations, estimates = estimate_simulations(
                specs, situations=options["simulate"], actor_model=options["actor_model"]
            )
        else:
            simulations, estimates = [], [*(estimate(spec) for spec in specs), *estimate_channels(specs)]
        if options["json"]:
            self.stdout.write(json.dumps(estimate_json(estimates, simulations), ensure_ascii=False, indent=2))
        else:
            estimate_table(estimates, self.stdout, simulations)

    def _write(self, report: Report, request: Request) -> None:
        """Write everything that was asked for; then end with the verdict's exit code."""
        as_json, code = request.options["json"], report.findings.exit_code
        for option, path in request.files_to_write.items():
            text = report.json if option == "--out" else (markdown if option == "--markdown" else junit)(report)
            try:
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise WrongUsage(f"{option} {path}: {error}") from None
        if as_json:
            self.stdout.write(report.json, ending="")
        else:
            print_report(report, self.stdout)
        said = complaint(report, everything=as_json)
        if code:
            raise Verdict(said, returncode=code)
        if said and as_json:
            self.stderr.write(said)

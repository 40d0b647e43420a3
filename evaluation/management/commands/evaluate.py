"""``manage.py evaluate``: measure, compare with the baseline, and end with a verdict a build can trust."""

from __future__ import annotations

import json
import logging
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import sentry_sdk
from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError

from agents.stopping import stopping_on_sigterm
from agents.usage import NOT_ENOUGH, STOPPED, WRONG_USAGE, CodedCommand
from evaluation.change.measurement_files import UnreadableFile
from evaluation.change.measurements import NotComparable
from evaluation.ci.arguments import add_arguments
from evaluation.ci.baseline import BaselineSource, CurrentBaselines, FileBaseline, NoBaseline
from evaluation.ci.gather import gather
from evaluation.ci.private import UnusableFiles, load_files, private_database, with_propositions
from evaluation.ci.report import Report, make_report
from evaluation.ci.request import Request, WrongUsage, named_agents, read_request, specs_of
from evaluation.ci.simulating import estimate_simulations, simulate_agents
from evaluation.ci.spending import estimate_line, simulations_line
from evaluation.ci.terminal import complaint, tell, verdict_table
from evaluation.estimate import estimate, estimate_before, estimate_channels
from evaluation.estimate_tables import estimate_json, estimate_table
from evaluation.failures import refusal
from evaluation.management.commands.capture_baseline import tag_pairs
from evaluation.presentation import ProgressBar
from evaluation.propositions.files import PropositionError
from evaluation.propositions.yaml_files import YamlProblems
from evaluation.run_spec import RunSpec
from evaluation.simulation import Simulation
from evaluation.simulation.output import SimulationBar
from evaluation.spending import Spending, estimated

logger = logging.getLogger(__name__)

USAGE = (WrongUsage, UnusableFiles, NotComparable, UnreadableFile)


class Verdict(CommandError):
    """How a build was judged; Django prints the name of the class before the text."""


class Command(CodedCommand):
    help = (
        "Measure agents, hold them against their baseline and thresholds, and end with a verdict for a build. Exit code: 0 pass, "
        "1 a sure regression or a score below its threshold, 2 not enough could be judged to say, 3 wrong usage. When both 1 and 2 "
        "hold it is 2. An evaluation that was interrupted, or whose calls failed, is taken up where it stopped."
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
                    self._emit(report, request)
        except KeyboardInterrupt:
            message = (
                "Stopped. Files are measured in memory, so nothing was kept."
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
        """Find out before the judging that a result cannot be kept."""
        for option, path in request.files_to_write.items():
            try:
                path.open("a", encoding="utf-8").close()
            except OSError as error:
                raise WrongUsage(f"{option} {path}: {error.strerror}") from None

    def _evaluate(self, request: Request) -> Report | None:
        options = request.options
        if request.from_files:
            speakers = dict(_pair(text) for text in options["map"])
            load_files(
                personas=options["personas"],
                transcripts=options["transcript"],
                speakers=speakers,
                format=options["format"],
            )
        where, history_where = tag_pairs(options["where"]), tag_pairs(options["history_where"])
        specs = specs_of(request, where=where, history_where=history_where)
        if options["dry_run"]:
            self._dry_run(specs, request)
            return None
        baseline, named = self._baseline(request, specs), named_agents(request, specs)
        quiet = options["json"] and not sys.stderr.isatty()
        simulations: list[Simulation] = []
        if options["simulate"]:
            self._tell_plays(specs, request)
            with SimulationBar(sys.stderr, quiet=quiet) as simulating:
                specs, simulations = simulate_agents(
                    specs,
                    situations=options["simulate"],
                    actor_model=options["actor_model"],
                    progress=simulating.progress,
                )
        before = self._estimate(specs, request)
        with ProgressBar("Judging", sys.stderr, quiet=quiet) as bar:
            results = gather(
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
        return make_report(judge, results, request.limits, bins=request.bins, simulations=simulations, estimate=before)

    def _estimate(self, specs: Sequence[RunSpec], request: Request) -> Spending | None:
        """What judging will need, told before anything is asked; None where the judge costs nothing."""
        estimates = estimate_before(specs)
        if estimates is None:
            return None
        found = estimated(estimates)
        if not request.options["json"]:
            tell(estimate_line(found), self.stdout)
        return found

    def _tell_plays(self, specs: Sequence[RunSpec], request: Request) -> None:
        """What simulating will need, before anybody is simulated; nothing where the actors cost nothing."""
        options = request.options
        if options["json"]:
            return
        simulations, _ = estimate_simulations(specs, situations=options["simulate"], actor_model=options["actor_model"])
        if line := simulations_line(simulations):
            tell(line, self.stdout)

    def _baseline(self, request: Request, specs: Sequence[RunSpec]) -> BaselineSource:
        if request.options["baseline"]:
            return FileBaseline(request.options["baseline"], specs)
        if request.bins:
            return NoBaseline("")  # late turns are compared with early ones
        if request.from_files:
            return NoBaseline("no --baseline FILE was given")
        return CurrentBaselines()

    def _dry_run(self, specs: Sequence[RunSpec], request: Request) -> None:
        options = request.options
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

    def _emit(self, report: Report, request: Request) -> None:
        """Write everything that was asked for; then end with the verdict's exit code."""
        texts = {"--out": report.json, "--markdown": report.markdown, "--junit": report.junit}
        for option, path in request.files_to_write.items():
            try:
                path.write_text(texts[option](), encoding="utf-8")
            except OSError as error:
                raise WrongUsage(f"{option} {path}: {error}") from None
        if request.options["json"]:
            self.stdout.write(report.json(), ending="")
        else:
            verdict_table(report, self.stdout)
        said = complaint(report, everything=request.options["json"])
        if report.findings.exit_code:
            raise Verdict(said, returncode=report.findings.exit_code)
        if said and request.options["json"]:
            self.stderr.write(said)


def _pair(text: str) -> tuple[str, str]:
    speaker, equals, slug = text.rpartition("=")
    if not equals or not speaker.strip():
        raise WrongUsage(f"--map {text!r}: write SPEAKER=SLUG, e.g. --map assistant=ada")
    return speaker.strip(), slug.strip()

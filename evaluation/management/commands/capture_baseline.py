"""``manage.py capture_baseline``: measure agents and keep the result as their baseline."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from agents.commands import NOT_ENOUGH, STOPPED, WRONG_USAGE, CodedCommand
from agents.llm.endpoints import provider_of
from agents.work.stopping import stopping_on_sigterm
from evaluation.models import Method
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.as_json import as_json
from evaluation.runs.capture import Captured, UnknownAgents, capture, choose_agents, estimated, spending_json, spent_on
from evaluation.runs.estimate import estimate, estimate_before, estimate_channels
from evaluation.runs.planning import RunSpec
from evaluation.runs.store import refusal
from evaluation.runs.summary import by_tag
from evaluation.runs.terminal import ProgressBar, estimate_json, estimate_table, outcome_table, spending_table
from evaluation.scorers import SCORERS
from evaluation.scorers.windows import ALLOWED, BEFORE, NO_MESSAGE, parse_history, parse_window
from evaluation.simulation.conversations import (
    ENOUGH,
    Simulation,
    estimate_simulation,
    has_little_speech,
    simulate_where_little,
    simulations_json,
)
from evaluation.simulation.output import TOO_FEW, SimulationBar, simulations_table
from evaluation.simulation.situations import load_situations


def tag_pairs(values: Sequence[str]) -> dict[str, str]:
    """``key=value`` options as a mapping.

    Raises:
        CommandError: A value has no ``=``.
    """
    pairs = {}
    for value in values:
        for part in value.split(","):
            key, equals, text = part.partition("=")
            if not equals or not key.strip():
                raise CommandError(f"--where {part!r}: write tag=value, e.g. --where build=41", returncode=WRONG_USAGE)
            pairs[key.strip()] = text.strip()
    return pairs


class Command(CodedCommand):
    help = (
        "Measure agents with the configured judge and keep the scores as their baseline. A capture that was interrupted is taken up "
        "where it stopped; a new one replaces the old baseline only where it scored. Exit code: 0 every agent has a score, "
        "2 for some nothing could be scored, 3 wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--agents", default="all", help="slugs separated by commas, or all (default: all active agents)"
        )
        parser.add_argument(
            "--dimensions",
            help=f"separated by commas; allowed: {','.join(SCORERS)} (default: all there are propositions for)",
        )
        parser.add_argument("--window", default="all", help=f"which messages: {ALLOWED} (default: all)")
        parser.add_argument(
            "--samples", type=int, default=20, help="most messages sampled per agent for adherence (default: 20)"
        )
        parser.add_argument(
            "--seed", type=int, default=0, help="seed of the sampling, stored with the run (default: 0)"
        )
        parser.add_argument(
            "--where", action="append", default=[], metavar="TAG=VALUE", help="only messages with this tag; repeatable"
        )
        parser.add_argument(
            "--per-call", type=int, default=10, help="most propositions asked in one call, 1 to 10 (default: 10)"
        )
        parser.add_argument(
            "--history",
            default=BEFORE,
            help=f"what self-consistency compares the window with: {BEFORE} (all that was said before it), or a window (default: {BEFORE})",
        )
        parser.add_argument(
            "--history-where",
            action="append",
            default=[],
            metavar="TAG=VALUE",
            help="only compare with messages with this tag; repeatable",
        )
        parser.add_argument("--repeats", type=int, default=1, help="judgements per item, 1 to 20 (default: 1)")
        parser.add_argument(
            "--hard",
            action="store_true",
            help="20 %% off for every flaw the judge finds, in every claim that can be hard",
        )
        parser.add_argument(
            "--double-check", action="store_true", help="ask the judge a second time whether it is sure"
        )
        parser.add_argument(
            "--method",
            choices=Method.values,
            default=Method.PLUMBLINE.value,
            help="tinytroupe: one claim per call, penalties taken off by the judge, a trivial 9 counts; compares with nothing else",
        )
        parser.add_argument(
            "--batch",
            action="store_true",
            help="hand the questions in as Message Batches: half the price, an answer within a day; stays until it is there, and after "
            "Ctrl-C the same command, or a worker, goes on with it",
        )
        parser.add_argument(
            "--by-tag", metavar="TAG", help="also show adherence per value of this tag, from the same judgements"
        )
        parser.add_argument(
            "--no-simulate",
            action="store_true",
            help=f"measure agents with fewer than {ENOUGH} messages by these alone, instead of simulating ten conversations with them",
        )
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object on standard output and nothing else"
        )
        parser.add_argument("--dry-run", action="store_true", help="print calls, tokens and cost, ask nothing")
        parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON object to this file")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["out"]:
            self._check_writable(options["out"])
        try:
            specs = self._specs(options)
            if options["dry_run"]:
                self._dry_run(specs, options)
            else:
                with stopping_on_sigterm():
                    self._capture(specs, options)
        except KeyboardInterrupt:
            message = "Stopped. What was judged is stored; run the same command again to go on with the rest."
            raise CommandError(message, returncode=STOPPED) from None
        except PropositionError as error:
            raise CommandError(f"proposition files cannot be used:\n{error}", returncode=WRONG_USAGE) from None

    def _check_writable(self, path: Path) -> None:
        """Find out before the judging that the result cannot be kept."""
        try:
            path.open("a", encoding="utf-8").close()
        except OSError as error:
            raise CommandError(f"--out {path}: {error.strerror}", returncode=WRONG_USAGE) from None

    def _specs(self, options: dict[str, Any]) -> list[RunSpec]:
        where, history_where = tag_pairs(options["where"]), tag_pairs(options["history_where"])
        try:
            dimensions = self._dimensions(options["dimensions"])
            history = parse_history(options["history"])
            window = parse_window(options["window"])
            agents = choose_agents(options["agents"])
            specs = [
                RunSpec(
                    agent=agent,
                    dimensions=dimensions,
                    window=window,
                    where=where,
                    samples=options["samples"],
                    seed=options["seed"],
                    per_call=options["per_call"],
                    history=history,
                    history_where=history_where,
                    repeats=options["repeats"],
                    hard=options["hard"],
                    double_check=options["double_check"],
                    method=options["method"],
                    is_baseline=True,
                    batch=options["batch"],
                )
                for agent in agents
            ]
        except (ValueError, UnknownAgents) as error:
            raise CommandError(str(error), returncode=WRONG_USAGE) from None
        if not specs:
            raise CommandError(
                "there are no agents yet: `manage.py seed` loads examples, `manage.py import_agents` your own",
                returncode=WRONG_USAGE,
            )
        return specs

    def _dimensions(self, named: str | None) -> tuple[str, ...]:
        """Those named, or all that can be measured."""
        if named is None:
            return default_dimensions()
        return tuple(name.strip() for name in named.split(",") if name.strip())

    def _dry_run(self, specs: Sequence[RunSpec], options: dict[str, Any]) -> None:
        simulated = [] if options["no_simulate"] else [spec for spec in specs if has_little_speech(spec)]
        real = [spec for spec in specs if spec not in simulated]
        pairs = [estimate_simulation(spec, situations=load_situations()) for spec in simulated]
        estimates = [
            *(judging for _, judging in pairs),
            *(estimate(spec) for spec in real),
            *estimate_channels(real),
        ]
        simulations = [acting for acting, _ in pairs]
        if options["json"]:
            self._emit(estimate_json(estimates, simulations), options)
        else:
            estimate_table(estimates, self.stdout, simulations)
        if simulations:
            who = ", ".join(simulation.agent for simulation in simulations)
            self.stderr.write(
                f"Fewer than {ENOUGH} messages: conversations with {who} would be simulated first, unless that was done before."
            )

    def _capture(self, specs: Sequence[RunSpec], options: dict[str, Any]) -> None:
        quiet = options["json"] and not sys.stderr.isatty()
        simulations: list[Simulation] = []
        if not options["no_simulate"]:
            with SimulationBar(sys.stderr, quiet=quiet) as simulating:
                specs, simulations = simulate_where_little(specs, progress=simulating.progress)
        before = estimate_before(specs) if provider_of(settings.JUDGE_MODEL) == "anthropic" else None
        with ProgressBar("Judging", sys.stderr, quiet=quiet) as bar:
            results = capture(specs, prepared=bar.prepared, progress=bar.progress, notice=self._notice) if specs else []
        if wrong := refusal(result.summary.run for result in results):
            raise CommandError(wrong, returncode=WRONG_USAGE)
        judge = str(settings.JUDGE_MODEL)
        estimate, actual = estimated(before) if before else None, spent_on(results)
        if options["json"] or options["out"]:
            document = {**as_json(judge, results), **spending_json(estimate, actual), **simulations_json(simulations)}
            if tag := options["by_tag"]:
                for entry, result in zip(document["runs"], results, strict=True):
                    entry["by_tag"] = {tag: by_tag(result.summary.run, tag)}
        if not options["json"]:
            if results:
                outcome_table(judge, results, self.stdout, by_tag=options["by_tag"] or "")
                spending_table(estimate, actual, self.stdout)
            if simulations:
                simulations_table(simulations, self.stdout, why=TOO_FEW)
        if options["json"]:
            self._emit(document, options)
        elif options["out"]:
            self._write(document, options["out"])
        self._complain(results, simulations, named=options["agents"].strip().lower() != "all")

    def _notice(self, words: str) -> None:
        for line in filter(None, words.splitlines()):
            self.stderr.write(line[:1].upper() + line[1:])

    def _emit(self, document: dict[str, Any], options: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(document, ensure_ascii=False, indent=2))
        if options["out"]:
            self._write(document, options["out"])

    def _write(self, document: dict[str, Any], path: Path) -> None:
        try:
            path.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise CommandError(f"--out {path}: {error}", returncode=WRONG_USAGE) from None

    def _complain(self, results: Sequence[Captured], simulations: Sequence[Simulation], *, named: bool) -> None:
        """Exit 2 when some agent has no score, saying why on standard error.

        One that nobody named and that said nothing is a note, unless nothing at all was measured.
        """
        silent = [] if named else [result for result in results if result.summary.run.error.endswith(NO_MESSAGE)]
        if len(silent) < len(results) and silent:
            names = ", ".join(str(result.summary.run.agent.slug) for result in silent if result.summary.run.agent)
            self.stderr.write(f"Not measured, for they said nothing there: {names}.")
            results = [result for result in results if result not in silent]
        problems = [
            f"{simulation.agent.slug}: failed: {simulation.problem}" for simulation in simulations if simulation.failed
        ]
        for result in results:
            run = result.summary.run
            name = run.agent.slug if run.agent else str(run.pk)
            if result.held_elsewhere and run.status == "running":
                problems.append(
                    f"{name}: run {run.pk} is being judged by another process ({run.lease_owner}); run this again when it ended"
                )
            elif run.status != "completed" or not result.summary.measured:
                status = "" if run.status == "completed" else f"{run.status}: "
                problems.append(f"{name}: {status}{run.error or 'nothing scored'}")
        if problems:
            again = (
                "\nRun the same command again to take up what is left."
                if any(status in problem for problem in problems for status in ("failed", "errored", "paused"))
                else ""
            )
            raise CommandError("no score for:\n  " + "\n  ".join(problems) + again, returncode=NOT_ENOUGH)

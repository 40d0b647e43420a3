"""``manage.py capture_baseline``: measure agents and store the result as their baseline."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from agents.kit.commands import NOT_ENOUGH, CodedCommand, unusable, wrong
from agents.kit.use_cases import add_options, read_options
from evaluation.calibration.passport import not_usable_line, passport_lines, passports_of
from evaluation.change.evidence import dropped_tags
from evaluation.change.measurement_files import as_json
from evaluation.commands import (
    HOW,
    TOO_FEW,
    WHAT,
    ProgressBar,
    as_text,
    check_batches,
    check_writable,
    estimate_json,
    estimate_table,
    examples_line,
    measuring,
    outcome_table,
    simulations_table,
    specs_of,
    spent_line,
    split_unusable,
    unknown_tag_line,
    write_text,
)
from evaluation.models import EvaluationRun
from evaluation.runs.estimate import (
    Estimate,
    SimulationEstimate,
    estimate_all,
    estimate_before,
    estimate_simulation,
    estimated,
)
from evaluation.runs.execute import Captured, capture, capture_trace
from evaluation.runs.failures import refusal
from evaluation.runs.planning import ENOUGH_MESSAGES, has_little_speech
from evaluation.runs.request import AgentsRequest
from evaluation.runs.simulating import simulate_specs
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import spending_json, spent_on
from evaluation.scorers.selection import NO_MESSAGE
from evaluation.simulation.conversations import Simulation, simulations_json, why_not_simulated
from evaluation.simulation.situations import load_situations


class Command(CodedCommand):
    help = (
        "Measure agents with the configured judge and store the scores as their baseline. The same command resumes a capture that was "
        "interrupted; a new one replaces the old baseline only where it scored. It asks before a baseline of messages with a tag is "
        "replaced by one of all. Exit code: 0 every agent has a score, 2 for some nothing could be scored, 3 proposition files of "
        "some cannot be used (the others are measured)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        measured = parser.add_argument_group("what is measured")
        add_options(measured, AgentsRequest, *WHAT)
        measured.add_argument(
            "--no-simulate",
            action="store_true",
            help=f"measure agents with fewer than {ENOUGH_MESSAGES} messages by these alone, instead of simulating ten "
            "conversations with them",
        )
        add_options(parser.add_argument_group("how it is judged"), AgentsRequest, *HOW, "additional_context", "batch")
        parser.add_argument(
            "--yes",
            action="store_true",
            help="replace a baseline of messages with a tag (build=40) by one without it; without --yes a terminal asks, anything else "
            "ends with exit code 2",
        )
        add = parser.add_argument_group("what comes out").add_argument
        add("--json", action="store_true", help="print one JSON object on standard output and nothing else")
        add("--dry-run", action="store_true", help="print calls, tokens and cost, ask nothing")
        add("--out", type=Path, metavar="FILE", help="also write the JSON object to this file")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["out"]:
            check_writable("--out", options["out"])
        request = read_options(AgentsRequest, options)
        with measuring():
            specs, broken = split_unusable(specs_of(request, is_baseline=True))
            about_examples = examples_line(specs)
            if about_examples:
                self.stderr.write(about_examples)
            if request.batch:
                check_batches(str(settings.JUDGE_MODEL))
            if options["dry_run"]:
                self._dry_run(specs, options)
                problems = []
            else:
                if not options["yes"]:
                    dropped = dropped_tags(specs)
                    if dropped and (line := unknown_tag_line(request.where)):
                        self.stderr.write(line)
                    self._confirm(dropped, may_ask=not options["json"])
                with capture_trace(specs):
                    problems = self._capture(specs, options, are_named=not request.are_all)
        if problems and (line := unknown_tag_line(request.where)):
            self.stderr.write(line)
        self._end(problems, broken)

    def _confirm(self, dropped: Mapping[str, str], *, may_ask: bool) -> None:
        """Ask whether baselines of some messages shall be replaced by baselines of all.

        Args:
            dropped: By agent the tags of the old baseline that the new one would not ask for; empty: nothing to ask.
            may_ask: Whether a question may be printed; with ``--json`` it may not.

        Raises:
            CommandError: The answer is no, or there is no terminal to ask at; exit code 2.
        """
        if not dropped:
            return
        agents = "; ".join(f"{slug}: {tags}" for slug, tags in dropped.items())
        question = f"These baselines are of messages with a tag that the new ones would not ask for: {agents}."
        if may_ask and sys.stdin.isatty():
            self.stderr.write(question)
            answer = input("Replace them? [y/N] ").strip().lower()
            if answer in ("y", "yes"):
                return
        raise wrong(f"{question} Add --where TAG=VALUE, or --yes to replace them")

    def _dry_run(self, specs: Sequence[RunSpec], options: dict[str, Any]) -> None:
        """Print what capturing would take; of agents with few messages also what simulating them would take."""
        estimates: list[Estimate] = []
        simulations: list[SimulationEstimate] = []
        real: list[RunSpec] = []
        not_simulated: dict[str, str] = {}
        for spec in specs:
            if options["no_simulate"] or spec.agent is None or not has_little_speech(spec):
                real.append(spec)
                continue
            why = why_not_simulated(spec.agent)
            if why:
                not_simulated[spec.agent.slug] = why
                real.append(spec)
                continue
            simulation, judging = estimate_simulation(spec, situations=load_situations())
            simulations.append(simulation)
            estimates.append(judging)
        estimates += estimate_all(real)
        if options["json"]:
            self._write_json(estimate_json(estimates, simulations), options)
        else:
            estimate_table(estimates, self.stdout, simulations)
        if simulations:
            names = ", ".join(simulation.agent for simulation in simulations)
            self.stderr.write(
                f"Fewer than {ENOUGH_MESSAGES} messages: conversations with {names} would be simulated first, unless that was done before."
            )
        for slug, why in not_simulated.items():
            self.stderr.write(f"{slug}: {why}; what it said is measured, however little.")

    def _capture(self, specs: Sequence[RunSpec], options: dict[str, Any], *, are_named: bool) -> list[str]:
        """Measure, print, and return a line for each agent without a score; agents with little speech are simulated first.

        Args:
            are_named: Whether agents were named; then one that said nothing is a problem, too.

        Raises:
            CommandError: The judge refuses to be asked: key, model or address are wrong.
        """
        hides_progress = options["json"] and not sys.stderr.isatty()
        simulations: list[Simulation] = []
        if not options["no_simulate"]:
            with ProgressBar("Simulating", sys.stderr, quiet=hides_progress) as bar:
                specs, simulations = simulate_specs(specs, progress=bar.simulated)
        estimates = estimate_before(specs)  # None where the judge costs nothing
        estimate = None if estimates is None else estimated(estimates)
        results: Sequence[Captured] = []
        if specs:
            with ProgressBar("Judging", sys.stderr, quiet=hides_progress) as bar:
                results = capture(specs, prepared=bar.prepared, progress=bar.progress, notice=self._notice)
        why_refused = refusal(result.summary.run for result in results)
        if why_refused:
            raise unusable(why_refused)
        actual = spent_on(result.summary for result in results)
        judge = str(settings.JUDGE_MODEL)
        if not options["json"]:
            if results:
                judge_passports = passports_of([result.summary.run for result in results])
                not_usable = not_usable_line(judge_passports)
                if not_usable:
                    self.stdout.write(not_usable)
                outcome_table(judge, results, self.stdout, notes=passport_lines(judge_passports))
                spent = spent_line(estimate, actual)
                if spent:
                    self.stdout.write(spent)
            simulations_table(simulations, self.stdout, why=TOO_FEW)
        if options["json"] or options["out"]:
            document = {**as_json(judge, results), **spending_json(estimate, actual), **simulations_json(simulations)}
            self._write_json(document, options)
        return self._without_score(results, simulations, are_named=are_named)

    def _notice(self, words: str) -> None:
        for line in words.splitlines():
            if line:
                self.stderr.write(line[:1].upper() + line[1:])

    def _write_json(self, document: dict[str, Any], options: dict[str, Any]) -> None:
        """Print the JSON object, or write it to a file, as was asked for."""
        if options["json"]:
            self.stdout.write(as_text(document))
        if options["out"]:
            write_text("--out", options["out"], as_text(document) + "\n")

    def _without_score(
        self, results: Sequence[Captured], simulations: Sequence[Simulation], *, are_named: bool
    ) -> list[str]:
        """Return a line for each agent that has no score, or whose simulation failed; where another run could help, that comes last.

        One that was not named and said nothing is only a printed note, unless all said nothing.
        """
        silent = [] if are_named else _silent_agents(results)
        if len(silent) == len(results):
            silent = []
        if silent:
            self.stderr.write(f"Not measured, for they said nothing there: {', '.join(silent)}.")
        problems = []
        is_unfinished = False
        for simulation in simulations:
            if simulation.failed:
                problems.append(f"{simulation.agent.slug}: failed: {simulation.problem}")
                is_unfinished = True
        for result in results:
            run = result.summary.run
            name = run.agent.slug if run.agent else str(run.pk)
            problem = _why_no_score(result)
            if problem and name not in silent:
                problems.append(f"{name}: {problem}")
                is_unfinished = is_unfinished or run.status != EvaluationRun.Status.COMPLETED
        if is_unfinished:
            problems.append("Run the same command again to judge what is left.")
        return problems

    def _end(self, problems: Sequence[str], broken: str) -> None:
        """End with the exit code for files that cannot be used, or for agents without a score."""
        unscored = ""
        if problems:
            unscored = "\n  ".join(["no score for:", *problems])
        if broken:
            raise unusable(f"{unscored}\n{broken}" if unscored else broken)
        if unscored:
            raise CommandError(unscored, returncode=NOT_ENOUGH)


def _silent_agents(results: Sequence[Captured]) -> list[str]:
    """Return the slugs of agents that said nothing among the messages that were asked for."""
    runs = [result.summary.run for result in results]
    return [run.agent.slug for run in runs if run.agent is not None and NO_MESSAGE in run.error]


def _why_no_score(result: Captured) -> str:
    """Return why an agent has no score that compares; empty where it has one."""
    run = result.summary.run
    if result.held_elsewhere and run.status == EvaluationRun.Status.RUNNING:
        return f"run {run.pk} is being judged by another process ({run.lease_owner})"
    if run.status != EvaluationRun.Status.COMPLETED:
        return f"{run.status}: {run.error or 'nothing scored'}"
    if not result.summary.comparable:
        return run.error or "nothing scored"
    return ""

"""``manage.py check_judge``: can a judge tell agents' own words from those of others? The swap test; it needs no labels."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError

from agents.kit.commands import NOT_ENOUGH, Cell, CodedCommand, console_on, print_table, unusable
from agents.kit.llm.endpoints import provider_of
from agents.kit.text.wording import counted, number
from agents.kit.use_cases import add_options, read_options
from evaluation.calibration.agreement import BETTER
from evaluation.calibration.jobs import JudgeCheckRequest
from evaluation.calibration.swap_test import (
    HIGH,
    SwapTest,
    said_something,
    store_swap_tests,
    swap_specs,
    swap_tests,
)
from evaluation.commands import (
    HOW,
    WHAT,
    ProgressBar,
    as_text,
    estimate_line,
    measuring,
    show_estimates,
    specs_of,
    spent_line,
    split_unusable,
)
from evaluation.models import EvaluationRun
from evaluation.runs.estimate import estimate_all, estimated
from evaluation.runs.execute import capture
from evaluation.runs.planning import RunSpec
from evaluation.runs.reuse import reusable
from evaluation.runs.summary import refusal, spending_json, spent_on
from evaluation.scorers.subjects import NO_MESSAGE
from evaluation.wording import judge_label

NOT_SEEN = ": from one text this judge's score does not show a lost persona; write sharper propositions or choose another judge"


class Command(CodedCommand):
    help = """Can a judge tell agents' own words from those of others? The swap test; it needs no labels.

Each agent is judged on a sample of its own messages, and on texts of other agents put in their place, amid the same conversations.
Where there are no other agents, four voices that come with Plumbline take their part (an assistant, a pirate, a butler, a gamer).
For each dimension that is judged message by message it prints how often the own text scores higher (AUC: 0.5 is chance, 1 never
wrong) and how many of the swapped texts score 7 or more. The result is shown beside the judge's scores from then on.

The same command resumes a check that was interrupted. Exit code: 0 done, 2 something could not be judged, 3 proposition files
of some cannot be used (the judge is checked on the others)."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        add_options(parser.add_argument_group("what is measured"), JudgeCheckRequest, *WHAT)
        add_options(parser.add_argument_group("how it is judged"), JudgeCheckRequest, *HOW, "judge")
        add = parser.add_argument_group("what comes out").add_argument
        add("--json", action="store_true", help="print one JSON object on standard output and nothing else")
        add("--dry-run", action="store_true", help="print calls, tokens and cost, ask nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        asked = read_options(JudgeCheckRequest, options)
        with measuring():
            specs, silent, broken = self._specs(asked)
            if options["dry_run"]:
                self._dry_run(specs, options)
                problem = ""
            else:
                problem = self._check(specs, silent, options, of_all=asked.are_all and not broken)
        if broken:
            raise unusable("\n".join(filter(None, [problem, broken])))
        if problem:
            raise CommandError(problem, returncode=NOT_ENOUGH)

    def _specs(self, asked: JudgeCheckRequest) -> tuple[list[tuple[RunSpec, RunSpec]], list[str], str]:
        """The two measurements of each agent that said something, the slugs of the others, and whose files cannot be used."""
        specs, broken = split_unusable(specs_of(asked))
        pairs = [swap_specs(spec) for spec in specs if said_something(spec)]
        if not pairs:
            nothing = f"nothing to check the judge on: {NO_MESSAGE}"
            raise unusable(f"{nothing}\n{broken}") if broken else CommandError(nothing, returncode=NOT_ENOUGH)
        speaking = {own.target.slug for own, _ in pairs}
        return pairs, [spec.target.slug for spec in specs if spec.target.slug not in speaking], broken

    def _dry_run(self, specs: Sequence[tuple[RunSpec, RunSpec]], options: dict[str, Any]) -> None:
        estimates = estimate_all([spec for pair in specs for spec in pair])
        show_estimates(estimates, self.stdout, as_json=options["json"])

    def _check(
        self, specs: Sequence[tuple[RunSpec, RunSpec]], silent: Sequence[str], options: dict[str, Any], *, of_all: bool
    ) -> str:
        """Judge, store, print, and return what is not judged, and why; empty where all is."""
        judge, procedure = specs[0][0].judge_model, replace(specs[0][0], swap_test="").procedure
        paid = provider_of(judge) == "anthropic"
        both = [spec for pair in specs for spec in pair]
        judged = [run for spec in both if paid and (run := reusable(spec)) is not None]
        done = {(run.agent_id, run.swap_test) for run in judged}
        asked = [spec for spec in both if (spec.target.pk, spec.swap_test) not in done]
        estimate = estimated(estimate_all(asked)) if paid and asked else None
        if estimate is not None and not options["json"]:
            self.stdout.write(estimate_line(estimate))
        with ProgressBar("Judging", sys.stderr, quiet=options["json"] and not sys.stderr.isatty()) as bar:
            results = capture(asked, prepared=bar.prepared, progress=bar.progress) if asked else []
        actual = spent_on(result.summary for result in results)
        judged += [result.summary.run for result in results]
        if why := refusal(judged):
            raise unusable(why)
        by_spec = {(run.agent_id, run.swap_test): run for run in judged}
        pairs = [(by_spec[a.target.pk, a.swap_test], by_spec[b.target.pk, b.swap_test]) for a, b in specs]
        tests, left = swap_tests(pairs), [run for run in judged if run.status != EvaluationRun.Status.COMPLETED]
        stays = {}
        if not left:
            stays = store_swap_tests(judge=judge, procedure=procedure, tests=tests, of_all=of_all)
        if options["json"]:
            document = {
                "judge": judge,
                "procedure": procedure,
                "dimensions": {name: test.model_dump() for name, test in tests.items()},
                "evaluations": [{"own": own.pk, "swapped": swapped.pk} for own, swapped in pairs],
                "said_nothing": list(silent),
                **spending_json(estimate, actual),
            }
            self.stdout.write(as_text(document))
        else:
            _print(f"{judge_label(judge)} · {procedure}", tests, self.stdout)
            if used := spent_line(estimate, actual):
                self.stdout.write(used)
        for name, earlier in stays.items():
            self.stderr.write(
                f"{name}: the check of {counted(earlier.agents, 'agent')} ({earlier.checked_at[:10]}) stays beside the judge's scores; "
                "one of all agents replaces it."
            )
        if silent:
            self.stderr.write(f"Not checked on those who said nothing: {', '.join(silent)}.")
        return _problem(tests, left)


def _print(judge: str, tests: Mapping[str, SwapTest], out: Any) -> None:
    """Print a row per dimension, then one per agent and dimension, and what the figures mean."""
    console = console_on(out)
    rows: list[list[Cell]] = [
        [
            *(name, test.auc.text, test.auc.interval_text if test.auc.interval else "–"),
            *(number(test.own_mean), number(test.swapped_mean)),
            "–" if test.high_share is None else f"{test.high_share:.0%}",
            f"{test.own_higher} of {sum(1 for one in test.agents if one.own is not None and one.swapped is not None)}",
            *(f"{test.own_scored} of {test.own_texts}", f"{test.swapped_scored} of {test.swapped_texts}"),
        ]
        for name, test in tests.items()
    ]
    heads = ("Dimension", ">AUC", "95 %", ">Own", ">Swapped", f">≥ {HIGH}", ">Own higher", ">Own scored", ">Sw. scored")
    print_table(console, heads, rows, title=f"Swap test of {judge}", unwrapped=("Dimension",))
    console.print(
        "AUC: how often an agent's own text scores higher than one of somebody else put in its place: 0.5 is chance, 1 never wrong.\n"
        "Two texts are compared by the propositions that are scored for both; so are the means.\n"
        f"≥ {HIGH}: share of the swapped texts that pass for the agent's own. Own higher: of how many agents the mean is."
    )
    for name, test in tests.items():
        if test.auc.value is None:
            console.print(f"No figure for {name}: {test.auc.reason}", markup=False)
        elif test.verdict:
            console.print(f"{name}: {test.verdict}{'' if test.verdict == BETTER else NOT_SEEN}.", markup=False)
    if foils := [test.against for test in tests.values() if test.against != "agents"]:
        console.print(f"Swapped in were texts of {foils[0]}: voices that come with Plumbline, easier to tell.")


def _problem(tests: Mapping[str, SwapTest], left: Sequence[EvaluationRun]) -> str:
    """Return what is not judged, and why; empty where all is."""
    if left:
        lines = [f"{run}: {run.status}: {run.error}" for run in left]
        hint = "Nothing is stored yet; run the same command again to judge what is left."
        return "\n  ".join(["not all was judged:", *lines, hint])
    if all(test.auc.value is None for test in tests.values()):
        reasons = "; ".join(f"{name}: {test.auc.reason}" for name, test in tests.items())
        return f"no figure: {reasons}"
    return ""

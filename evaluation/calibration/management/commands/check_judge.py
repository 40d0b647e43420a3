"""``manage.py check_judge``: the swap test of a judge, or its order test; neither needs labels."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from agents.kit.commands import NOT_ENOUGH, Cell, CodedCommand, console_on, print_table, unusable
from agents.kit.llm.providers import is_priced
from agents.kit.text.wording import counted, day_text, number, percentage, signed
from agents.kit.use_cases import add_options, read_options
from evaluation.calibration.agreement import BETTER, OrderShown, SwapShown
from evaluation.calibration.jobs import JudgeCheckRequest, parts_of
from evaluation.calibration.order_test import order_tests, store_order_tests
from evaluation.calibration.swap_test import (
    HIGH,
    Pair,
    SwapTest,
    said_something,
    store_swap_tests,
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
from evaluation.runs.failures import refusal
from evaluation.runs.numbers import Spending, Used
from evaluation.runs.reuse import reusable
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import spending_json, spent_on
from evaluation.scorers.selection import NO_MESSAGE
from evaluation.statistics.difference import MARGIN
from evaluation.wording import judge_label

NOT_SEEN = ": from one text this judge's score does not show a lost persona; write sharper propositions or choose another judge"

ROWS_OF_SWAP_TEST = "An agent has two rows: its own messages, and texts of others in their place."
ROWS_OF_ORDER_TEST = "An agent has three rows: as usual, with the propositions shuffled, and each proposition alone."


class Command(CodedCommand):
    help = """Can a judge tell agents' own words from those of others? The swap test; it needs no labels.

Each agent is judged on a sample of its own messages, and on texts of other agents put in their place, amid the same conversations.
Where there are no other agents, four voices that come with Plumbline take their part (an assistant, a pirate, a butler, a gamer).
For each dimension that is judged message by message it prints how often the own text scores higher (AUC: 0.5 is chance, 1 never
wrong) and how many of the swapped texts score 7 or more. The result is part of the judge's passport from then on.

With --order it is the order test instead: does it matter what else is asked in the same call? The same messages are judged as
usual, with the propositions of each message shuffled, and each proposition alone; it prints the mean differences.

The same command resumes a check that was interrupted. Exit code: 0 done, 2 something could not be judged, 3 proposition files
of some cannot be used (the judge is checked on the others)."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        add_options(parser.add_argument_group("what is measured"), JudgeCheckRequest, *WHAT, "order")
        add_options(parser.add_argument_group("how it is judged"), JudgeCheckRequest, *HOW, "judge")
        add = parser.add_argument_group("what comes out").add_argument
        add("--json", action="store_true", help="print one JSON object on standard output and nothing else")
        add("--dry-run", action="store_true", help="print calls, tokens and cost, ask nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check the judge on the agents asked for, or with ``--dry-run`` say what that would cost.

        Raises:
            CommandError: Something was not judged (exit code 2), or proposition files of some agents cannot be used (3); the others were
                checked all the same, but their result then does not count as one of all agents.
        """
        request = read_options(JudgeCheckRequest, options)
        problem = ""
        with measuring():
            planned = _plan(request)
            if options["dry_run"]:
                show_estimates(estimate_all(planned.specs), self.stdout, as_json=options["json"])
                if not options["json"]:
                    self.stdout.write(ROWS_OF_ORDER_TEST if request.order else ROWS_OF_SWAP_TEST)
            else:
                of_all = request.are_all and not planned.broken
                problem = self._check(planned, of_all=of_all, as_json=options["json"])
        if planned.broken:
            raise unusable("\n".join(filter(None, [problem, planned.broken])))
        if problem:
            raise CommandError(problem, returncode=NOT_ENOUGH)

    def _check(self, planned: _Planned, *, of_all: bool, as_json: bool) -> str:
        """Judge and print; store the result once all is judged.

        Returns:
            What is not judged, and why; empty where all is.

        Raises:
            CommandError: The judge refused every question.
        """
        check_runs = self._judge(planned, as_json=as_json)
        why_refused = refusal(check_runs.runs)
        if why_refused:
            raise unusable(why_refused)
        unfinished = [run for run in check_runs.runs if run.status != EvaluationRun.Status.COMPLETED]
        if planned.order:
            return self._conclude_order(planned, check_runs, unfinished, as_json=as_json)
        pairs = check_runs.pairs(planned)
        tests = swap_tests(pairs)
        stays: dict[str, SwapShown] = {}
        if not unfinished:
            stays = store_swap_tests(judge=planned.judge, procedure=planned.procedure, tests=tests, of_all=of_all)
        if as_json:
            document = {
                "judge": planned.judge,
                "procedure": planned.procedure,
                "dimensions": {name: test.model_dump() for name, test in tests.items()},
                "evaluations": [{"own": own.pk, "swapped": swapped.pk} for own, swapped in pairs],
                "said_nothing": planned.silent,
                **spending_json(check_runs.estimate, check_runs.spent),
            }
            self.stdout.write(as_text(document))
        else:
            _print(f"{judge_label(planned.judge)} · {planned.procedure}", tests, self.stdout)
            spent = spent_line(check_runs.estimate, check_runs.spent)
            if spent:
                self.stdout.write(spent)
        self._print_exceptions(planned, stays)
        return _problem(tests, unfinished)

    def _conclude_order(
        self, planned: _Planned, check_runs: _CheckRuns, unfinished: Sequence[EvaluationRun], *, as_json: bool
    ) -> str:
        """Print the order test, and store it where all is judged; return what is not judged, and why, or empty."""
        tests = order_tests(check_runs.of_agents(planned))
        if not unfinished:
            store_order_tests(judge=planned.judge, procedure=planned.procedure, tests=tests)
        if as_json:
            document = {
                "judge": planned.judge,
                "procedure": planned.procedure,
                "order": {name: test.model_dump(mode="json") for name, test in tests.items()},
                "said_nothing": planned.silent,
                **spending_json(check_runs.estimate, check_runs.spent),
            }
            self.stdout.write(as_text(document))
        else:
            _print_order(f"{judge_label(planned.judge)} · {planned.procedure}", tests, self.stdout)
            spent = spent_line(check_runs.estimate, check_runs.spent)
            if spent:
                self.stdout.write(spent)
        self._print_exceptions(planned, {})
        if unfinished:
            return _not_judged(unfinished)
        if all(test.alone.value is None for test in tests.values()):
            return "no figure: " + "; ".join(f"{name}: {test.alone.reason}" for name, test in tests.items())
        return ""

    def _judge(self, planned: _Planned, *, as_json: bool) -> _CheckRuns:
        """Make the evaluations; those by a paid judge that are there already are not paid again.

        What a paid judge will cost is printed first, unless `as_json`; for others `estimate` is None.
        """
        is_paid = is_priced(planned.judge)
        reused: list[EvaluationRun] = []
        to_ask: list[RunSpec] = []
        for spec in planned.specs:
            run = reusable(spec) if is_paid else None  # offline and local judges cost nothing
            if run is None:
                to_ask.append(spec)
            else:
                reused.append(run)
        estimate = estimated(estimate_all(to_ask)) if is_paid and to_ask else None
        if estimate is not None and not as_json:
            self.stdout.write(estimate_line(estimate))
        with ProgressBar("Judging", sys.stderr, quiet=as_json and not sys.stderr.isatty()) as bar:
            results = capture(to_ask, prepared=bar.prepared, progress=bar.progress) if to_ask else []
        return _CheckRuns(
            runs=[*reused, *(result.summary.run for result in results)],
            estimate=estimate,
            spent=spent_on(result.summary for result in results),
        )

    def _print_exceptions(self, planned: _Planned, stays: Mapping[str, SwapShown]) -> None:
        """Say on stderr which earlier checks stay (`stays`, by dimension), and which agents said nothing."""
        for name, earlier in stays.items():
            checked_on = day_text(datetime.fromisoformat(earlier.checked_at))
            self.stderr.write(
                f"{name}: the check of {counted(earlier.agents, 'agent')} ({checked_on}) stays with the judge's scores; "
                "one of all agents replaces it."
            )
        if planned.silent:
            self.stderr.write(f"Not checked on those who said nothing: {', '.join(planned.silent)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """The measurements of a check: of each agent that said something its own words, and swapped texts or other orders.

    Attributes:
        parts: Of each agent what is measured; the first is what it said, asked as usual.
        order: Whether it is the order test; else it is the swap test.
        silent: Slugs of agents that said nothing.
        broken: Whose proposition files cannot be used, in a sentence; empty where all can.
    """

    parts: list[tuple[RunSpec, ...]]
    order: bool
    silent: list[str]
    broken: str

    @property
    def specs(self) -> list[RunSpec]:
        return [spec for of_agent in self.parts for spec in of_agent]

    @property
    def judge(self) -> str:
        return self.parts[0][0].judge_model

    @property
    def procedure(self) -> str:
        return replace(self.parts[0][0], swap_test="").procedure


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckRuns:
    """The evaluations of a check, and what they cost."""

    runs: list[EvaluationRun]
    estimate: Spending | None
    spent: Used

    def pairs(self, planned: _Planned) -> list[Pair]:
        """Return the two evaluations of each agent in a swap test."""
        return [(own, swapped) for own, swapped in self.of_agents(planned)]

    def of_agents(self, planned: _Planned) -> list[list[EvaluationRun]]:
        """Return the evaluations of each agent, in the order of the plan."""
        by_spec = {(run.agent_id, run.swap_test): run for run in self.runs}
        return [[by_spec[spec.target.pk, spec.swap_test] for spec in of_agent] for of_agent in planned.parts]


def _plan(request: JudgeCheckRequest) -> _Planned:
    """Return what is measured of each agent that said something; agents whose proposition files cannot be used are left out.

    Raises:
        CommandError: No agent said anything, or no agent's proposition files can be used.
        PropositionError: A folder of proposition files does not exist.
    """
    specs, broken = split_unusable(specs_of(request))
    parts: list[tuple[RunSpec, ...]] = []
    silent: list[str] = []
    for spec in specs:
        if said_something(spec):
            parts.append(parts_of(spec, order=request.order))
        else:
            silent.append(spec.target.slug)
    if parts:
        return _Planned(parts=parts, order=request.order, silent=silent, broken=broken)
    nothing = f"nothing to check the judge on: {NO_MESSAGE}"
    if broken:
        raise unusable(f"{nothing}\n{broken}")
    raise CommandError(nothing, returncode=NOT_ENOUGH)


def _print(judge: str, tests: Mapping[str, SwapTest], out: Any) -> None:
    """Print a row per dimension, what the figures mean, the verdict of each, and whether texts of foils were swapped in."""
    console = console_on(out)
    rows = [_row(name, test) for name, test in tests.items()]
    heads = ("Dimension", ">AUC", "95 %", ">Own", ">Swapped", f">≥ {HIGH}", ">Own higher", ">Own scored", ">Sw. scored")
    print_table(console, heads, rows, title=f"Swap test of {judge}", tight=True, unwrapped=("Dimension",))
    console.print(
        "AUC: how often an agent's own text scores higher than another speaker's put in its place: 0.5 is chance, 1 never wrong.\n"
        "Two texts are compared by the propositions that are scored for both; so are the means.\n"
        f"≥ {HIGH}: share of the swapped texts that pass for the agent's own. Own higher: of how many agents the mean is."
    )
    for name, test in tests.items():
        if test.auc.value is None:
            console.print(f"No figure for {name}: {test.auc.reason}", markup=False)
        elif test.verdict:
            hint = "" if test.verdict == BETTER else NOT_SEEN
            console.print(f"{name}: {test.verdict}{hint}.", markup=False)
    foils = [test.against for test in tests.values() if test.against != "agents"]
    if foils:
        console.print(f"Swapped in were texts of {foils[0]}: voices that come with Plumbline, easier to tell.")


def _print_order(judge: str, tests: Mapping[str, OrderShown], out: Any) -> None:
    """Print a row per dimension and way of asking, and what the figures mean."""
    console = console_on(out)
    rows: list[list[Cell]] = []
    for dimension, test in tests.items():
        for name, figure in (("shuffled", test.shuffled), ("alone", test.alone)):
            rows.append([dimension, name, signed(figure.value, 2), figure.interval_text, test.pairs])
    heads = ("Dimension", "Asked", ">Points more", "95 %", ">Judgements")
    print_table(console, heads, rows, title=f"Order test of {judge}", tight=True, unwrapped=("Dimension",))
    console.print(
        "Points more: what the same judgement scores on average when the propositions of a message are shuffled, or each is asked\n"
        f"alone, less what it scores as usual. An interval within ±{MARGIN:g} says that the order does not matter."
    )


def _row(dimension: str, test: SwapTest) -> list[Cell]:
    """Return the cells of a dimension under the heads of `_print`; a dash where there is no figure."""
    return [
        dimension,
        test.auc.text,
        test.auc.interval_text if test.auc.interval else "–",
        number(test.own_mean),
        number(test.swapped_mean),
        "–" if test.high_share is None else percentage(test.high_share),
        f"{test.own_higher} of {test.agents_compared}",
        f"{test.own_scored} of {test.own_texts}",
        f"{test.swapped_scored} of {test.swapped_texts}",
    ]


def _problem(tests: Mapping[str, SwapTest], unfinished: Sequence[EvaluationRun]) -> str:
    """Return what is not judged, and why; that there is no figure in any dimension, where all is judged; else empty."""
    if unfinished:
        return _not_judged(unfinished)
    if all(test.auc.value is None for test in tests.values()):
        reasons = "; ".join(f"{name}: {test.auc.reason}" for name, test in tests.items())
        return f"no figure: {reasons}"
    return ""


def _not_judged(unfinished: Sequence[EvaluationRun]) -> str:
    """Return which evaluations are not completed, and why."""
    lines = [f"{run}: {run.status}: {run.error}" for run in unfinished]
    hint = "Nothing is stored yet; run the same command again to judge what is left."
    return "\n  ".join(["not all was judged:", *lines, hint])

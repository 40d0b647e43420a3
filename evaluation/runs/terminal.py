"""Evaluations in a terminal: the bar while judgements are made, scores with what they cost, and estimates. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from agents.commands import Cell, console_for_bars, console_on, print_table
from evaluation.calibration.agreement import agreements_text, calibration_of
from evaluation.models import CHANNEL_DIMENSIONS, COUNTED, EvaluationRun, is_heuristic
from evaluation.runs.summary import (
    DimensionSummary,
    RunSummary,
    channels_of,
    pending_count,
    tag_scores,
    with_share,
    worst_judgement,
)
from evaluation.simulation.situations import CALLS_PER_LINE, REPLY_TOKENS
from evaluation.wording import counted, heading_of, judge_label, money, number

if TYPE_CHECKING:
    from evaluation.runs.budget import AnswerLength
    from evaluation.runs.estimate import Estimate
    from evaluation.runs.execute import Captured, Spending
    from evaluation.simulation.estimate import SimulationEstimate

IN_A_CELL = 90  # characters of a text


class ProgressBar(Progress):
    """A bar over all judgements of all runs, on a terminal; silent elsewhere."""

    def __init__(self, title: str, stream: TextIO, *, quiet: bool = False) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console_for_bars(stream, quiet=quiet), transient=True)
        self._title, self._total = title, 0
        self._bar: TaskID | None = None

    def prepared(self, runs: Sequence[EvaluationRun]) -> None:
        """Count in what is to be judged of these runs."""
        if self._bar is None:
            self._bar = self.add_task(self._title, total=0)
        self._total += sum(pending_count(run) for run in runs)
        self.update(self._bar, total=self._total)

    def progress(self, run: EvaluationRun, done: int) -> None:
        if self._bar is not None:
            target = run.agent.slug if run.agent else run.channel
            self.update(self._bar, advance=done, description=f"{self._title} {target}")


# -- scores
def outcome_table(judge: str, results: Sequence[Captured], out: Any, *, by_tag: str = "") -> None:
    """The table at the end of a capture: per agent the scores, what could not be scored, cost; then each agent's weakest proposition."""
    console = console_on(out)
    summaries = [result.summary for result in results]
    dimensions = list(dict.fromkeys(d for summary in summaries for d in summary.run.dimensions))
    tagged = [tag_scores(summary.run, by_tag) if by_tag else {} for summary in summaries]
    columns = sorted({value for scores in tagged for value in scores})
    narrow, before = console.width < 110, any(result.before is not None for result in results)
    heads = [
        *("Agent", ">Overall", *([">Before"] if before else [])),
        *(f">{heading_of(name, narrow=narrow or len(dimensions) > 3)}" for name in dimensions),
        *(f">{by_tag} {value}" for value in columns),
        *([">Scored", ">Unsc."] if narrow else [">Scored", ">Trivial", ">Unscored", ">Calls"]),
        ">Cost",
    ]
    rows: list[list[Cell]] = []
    for result, scores in zip(results, tagged, strict=True):
        summary = result.summary
        counts = [
            sum(getattr(d, kind) for d in summary.dimensions.values()) for kind in ("scored", "trivial", "unscored")
        ]
        cells: list[Cell] = [
            *(_target(summary.run), _overall(summary)),
            *([with_share(number(result.before), result.before_share)] if before else []),
            *(_score(summary.dimensions.get(name)) for name in dimensions),
            *(
                with_share(*(number(scores[value][0]), scores[value][1]) if value in scores else ("–", None))
                for value in columns
            ),
            *([counts[0], counts[2]] if narrow else [*counts, summary.calls]),
            money(summary.cost_usd, summary.unpriced_calls),
        ]
        rows.append([cell.replace(" · ", "\n") if narrow and isinstance(cell, str) else cell for cell in cells])
    title = f"Baseline by {judge_label(judge)}, 0 to 9, higher is better"
    print_table(console, heads, rows, title=title, tight=narrow, unwrapped=["Agent"], wrapped=True)
    console.print("In %: the share of judgements scored, of the propositions this judge can score at all.")
    short: dict[str, list[str]] = {}
    for summary in summaries:
        for name, dimension in summary.dimensions.items():
            if dimension.reason and summary.run.agent:
                short.setdefault(f"{name}: {dimension.reason}", []).append(summary.run.agent.slug)
    for why, agents in short.items():
        console.print(f"no score: {escape(', '.join(agents))}: {escape(why)}")
    console.print()
    if note := _procedure_note(results):
        console.print(f"Judged by {note}: compare only with what was judged the same way.\n")
    if before:
        console.print("Before: the overall score of the baseline that this one replaces.\n")
    if columns:
        console.print(
            f"Columns “{escape(by_tag)} …”: the same adherence judgements, told apart by the message's tag {escape(by_tag)}.\n"
        )
    elif by_tag:
        console.print(f"No judged message has the tag {escape(by_tag)}.\n")
    print_table(
        console,
        ["Agent", "Proposition", ">Score", "For example"],
        map(_weakest, summaries),
        title="Weakest proposition of each agent",
        unwrapped=["Agent", "Proposition"],
    )
    if channels := channels_of(summaries):
        names = [name for name in CHANNEL_DIMENSIONS if any(name in summary.run.dimensions for summary in channels)]
        print_table(
            console,
            ["Channel", *(f">{heading_of(name, narrow=False)}" for name in names), ">Calls", ">Cost", ""],
            [
                [
                    *(_target(summary.run), *(_score(summary.dimensions.get(name)) for name in names)),
                    *(summary.calls, money(summary.cost_usd, summary.unpriced_calls), _short(summary.run.error)),
                ]
                for summary in channels
            ],
            title="Channels these agents spoke in",
        )
    for sentence in _agreement_notes(results):
        console.print(escape(sentence))
    if is_heuristic(judge):
        console.print(
            "heuristic: exact rules and word cues, no LLM. What it cannot see is unscored, never guessed.\n"
            "Set ANTHROPIC_API_KEY (or JUDGE_BASE_URL) to have an LLM judge everything."
        )


def _target(run: EvaluationRun) -> str:
    name = run.agent.slug if run.agent else str(run.channel)
    return f"{name} (simulated)" if run.simulated else name


def _overall(summary: RunSummary) -> str:
    """The overall score; without one the status, where that says why."""
    if summary.overall_score is None and summary.run.status != EvaluationRun.Status.COMPLETED:
        return summary.run.status
    return with_share(number(summary.overall_score), summary.share)


def _score(dimension: DimensionSummary | None) -> str | None:
    """A dimension's score, or its count where it is counted, with the share scored."""
    if dimension is None:
        return None
    score = number(dimension.score) if dimension.count is None else str(dimension.count)
    return with_share(score, dimension.share)


def _weakest(summary: RunSummary) -> list[Cell]:
    """The proposition with the lowest mean, and the start of the message that scored lowest."""
    run = summary.run
    name = run.agent.slug if run.agent else str(run.channel)
    weakest = [(d.weakest, d.dimension) for d in summary.dimensions.values() if d.weakest is not None]
    own = [pair for pair in weakest if pair[1] in run.own_dimensions] or weakest  # a channel is not the agent's alone
    if not own:
        return [name, None, None, run.error]
    proposition, dimension = min(own, key=lambda pair: (pair[0].score or 0.0, pair[0].id))
    row = worst_judgement(run, dimension, proposition.id)
    score = with_share(number(proposition.score), proposition.share)
    return [name, proposition.id, score, _short(row.context_snippet) if row else ""]


def _agreement_notes(results: Sequence[Captured]) -> list[str]:
    """How well the judge agrees with people where these were measured, a sentence per procedure."""
    measured: dict[tuple[str, str], dict[str, None]] = {}
    for run in (result.summary.run for result in results):
        of_judge = measured.setdefault((run.judge, run.procedure), {})
        of_judge.update(dict.fromkeys(name for name in run.dimensions if name not in COUNTED))
    notes = []
    for (judge, procedure), names in measured.items():
        agreements = calibration_of(judge, procedure)
        how = "" if procedure == "plumbline" else f", {procedure}"
        if any(row.labels for row in agreements.values()):
            notes.append(
                f"Agreement of {judge}{how} with people: {agreements_text([(n, agreements.get(n)) for n in names])}."
            )
        elif names:
            notes.append(f"{judge}{how} is not calibrated: no person labelled its scores (manage.py calibrate_judge).")
    return notes


def _procedure_note(results: Sequence[Captured]) -> str:
    """How it was judged, where that is not the usual way: such numbers compare with none judged otherwise."""
    runs = [result.summary.run for result in results]
    asked = dict.fromkeys(run.procedure.removesuffix("+simulated") for run in runs)  # simulated rows say so themselves
    notes = [procedure for procedure in asked if procedure != "plumbline"]
    repeats = max((run.repeats for run in runs), default=1)
    return ", ".join((*notes, *([f"mean of {repeats} judgements"] if repeats > 1 else [])))


def _short(text: str) -> str:
    return text if len(text) <= IN_A_CELL else text[: IN_A_CELL - 1].rstrip() + "…"


# -- estimates
def estimate_json(estimates: Sequence[Estimate], simulations: Sequence[SimulationEstimate] = ()) -> dict[str, Any]:
    """A dry run as data; `simulations` is what simulating the agents would need besides."""
    channels = [{"channel": e.channel, **_estimated(e)} for e in estimates if e.channel]
    return {
        "dry_run": True,
        "judge": estimates[0].judge if estimates else None,
        "agents": [{"agent": e.agent, **_estimated(e)} for e in estimates if not e.channel],
        **({"channels": channels} if channels else {}),
        **({"simulations": [simulation.model_dump() for simulation in simulations]} if simulations else {}),
    }


def _estimated(e: Estimate) -> dict[str, Any]:
    return {
        "judgements": e.judgements,
        "without_a_call": e.free,
        "calls": e.calls,
        "input_tokens": e.input_tokens,
        "output_tokens": e.output_tokens,
        "cost_usd": None if e.cost_usd is None else float(e.cost_usd),
        "output_tokens_per_claim": {
            dimension: {"tokens": length.tokens, "measured_calls": length.calls}
            for dimension, length in e.answers.items()
        },
    }


def answer_words(estimates: Sequence[Estimate]) -> str:
    """How long answers are taken to be, and where that is known from: a sentence without its full stop."""
    lengths: dict[AnswerLength, list[str]] = {}
    for dimension, length in {d: length for e in estimates for d, length in e.answers.items()}.items():
        lengths.setdefault(length, []).append(dimension)
    said = [
        f"{length.tokens} for an answered claim of {', '.join(sorted(names))} "
        + (f"(the mean of this judge's last {length.calls:,} calls)" if length.calls else "(assumed)")
        for length, names in sorted(lengths.items(), key=lambda one: one[1])
    ]
    return "; ".join(said)


def spending_table(estimate: Spending | None, actual: Spending, out: Any) -> None:
    """What was estimated before and what was really used, one under the other; nothing when the judge was not asked."""
    if not actual.calls or (estimate is None and not actual.input_tokens):
        return
    rows: list[list[Cell]] = [
        [
            *(name, spent.calls, spent.input_tokens),
            *(None if spent.cache_read_share is None else f"{spent.cache_read_share:.0%}", spent.output_tokens),
            money(spent.cost_usd, spent.unpriced_calls or 0),
        ]
        for name, spent in (("estimate", estimate), ("actual", actual))
        if spent is not None
    ]
    console = console_on(out)
    heads = ["", ">Calls", ">Tokens in", ">of them cached", ">Tokens out", ">Cost"]
    print_table(console, heads, rows, title="Estimate before, actual after")
    if actual.unpriced_calls:
        calls = counted(actual.unpriced_calls, "call has", "calls have")
        console.print(f"{calls} no price and {'is' if actual.unpriced_calls == 1 else 'are'} not in the cost.")


def estimate_table(estimates: Sequence[Estimate], out: Any, simulations: Sequence[SimulationEstimate] = ()) -> None:
    """A dry run for people; first what simulating the agents would need, where they would be simulated."""
    console = console_on(out)
    if simulations:
        cells: list[list[Cell]] = [
            [
                *(one.agent, one.actor_model, one.lines, one.calls, one.input_tokens, one.output_tokens),
                money(one.cost_usd),
            ]
            for one in simulations
        ]
        heads = ["Agent", "Actor model", ">Lines", ">Calls", ">Input tokens", ">Output tokens", ">Cost"]
        print_table(console, heads, cells, title="Dry run: simulating the agents first")
        console.print(
            f"Simulating: {CALLS_PER_LINE} calls for each line said to an agent (it answers, and ends its turn), {REPLY_TOKENS} tokens "
            "an answer: assumptions.\n"
        )
    amounts = [[e.judgements, e.free, e.calls, e.input_tokens, e.output_tokens] for e in estimates]
    totals, costs = [sum(column) for column in zip(*amounts, strict=True)], [e.cost_usd for e in estimates]
    print_table(
        console,
        ["Agent", ">Judgements", ">free (rules)", ">Calls", ">Input tokens", ">Output tokens", ">Cost"],
        [[e.agent or f"#{e.channel}", *n, money(e.cost_usd)] for e, n in zip(estimates, amounts, strict=True)],
        title=f"Dry run, judge {judge_label(estimates[0].judge)}: nothing was asked",
        total=["total", *totals, money(None if None in costs else sum(cost for cost in costs if cost is not None))],
    )
    words = answer_words(estimates)
    console.print(
        f"Tokens are estimated: prompt characters / 4{', and ' if words else ''}{words}. Prompt caching is not assumed.\n"
        "Ideas: 12 of 40 tokens in each part of a conversation, and a call for every 60 of them to find repetitions."
    )

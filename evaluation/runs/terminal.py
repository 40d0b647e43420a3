"""Print evaluations on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from rich import box
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from agents.commands import console_for_bars, console_on
from evaluation.calibration.agreement import agreements_text, calibration_of
from evaluation.models import CHANNEL_DIMENSIONS, COUNTED, EvaluationRun, is_heuristic
from evaluation.runs.summary import (
    DimensionSummary,
    RunSummary,
    Share,
    channels_of,
    pending_count,
    with_share,
    worst_judgement,
)
from evaluation.runs.summary import by_tag as tag_means
from evaluation.runs.summary import shares_by_tag as tag_shares
from evaluation.simulation.situations import CALLS_PER_LINE, REPLY_TOKENS
from evaluation.wording import counted, heading_of, judge_label, money, number


def number_of(found: DimensionSummary | None) -> str:
    """A dimension's score, or its count where it is counted, with the share scored."""
    if found is None:
        return number(None)
    return with_share(number(found.score) if found.count is None else str(found.count), found.share)


if TYPE_CHECKING:
    from evaluation.runs.budget import AnswerLength
    from evaluation.runs.capture import Captured, Spending
    from evaluation.runs.estimate import Estimate
    from evaluation.simulation.conversations import SimulationEstimate


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


def outcome_table(judge: str, results: Sequence[Captured], out: Any, *, by_tag: str = "") -> None:
    """The table at the end of a capture: per agent the scores, what could not be scored, cost; then each agent's weakest proposition."""
    dimensions = list(dict.fromkeys(d for r in results for d in r.summary.run.dimensions))
    values = [tag_means(result.summary.run, by_tag) if by_tag else {} for result in results]
    shares = [tag_shares(result.summary.run, by_tag) if by_tag else {} for result in results]
    columns = sorted({value for means in values for value in means})
    console = console_on(out)
    narrow = console.width < 110
    before = any(result.before is not None for result in results)
    table = Table(title=f"Baseline by {escape(judge_label(judge))}, 0 to 9, higher is better", box=box.SIMPLE_HEAD)
    table.title_justify, table.padding = "left", (0, 0 if narrow else 1)
    table.add_column("Agent", no_wrap=True)
    headings = [
        "Overall",
        *(["Before"] if before else []),
        *(heading_of(name, narrow=narrow or len(dimensions) > 3) for name in dimensions),
    ]
    counted = ["Scored", "Unsc."] if narrow else ["Scored", "Trivial", "Unscored", "Calls"]
    for heading in (*headings, *(f"{by_tag} {value}" for value in columns), *counted, "Cost"):
        table.add_column(escape(heading), justify="right", overflow="fold")
    for result, means, of_tags in zip(results, values, shares, strict=True):
        table.add_row(*_outcome_row(result, dimensions, means, of_tags, columns, before=before, narrow=narrow))
    console.print(table)
    console.print("In %: the share of judgements scored, of the propositions this judge can score at all.")
    short: dict[str, list[str]] = {}
    for summary in (result.summary for result in results):
        for name, found in summary.dimensions.items():
            if found.reason and summary.run.agent:
                short.setdefault(f"{name}: {found.reason}", []).append(summary.run.agent.slug)
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
    console.print(_weakest_table(results))
    if channels := channels_of(result.summary for result in results):
        console.print(_channel_table(channels))
    for sentence in _agreement_notes(results):
        console.print(escape(sentence))
    if is_heuristic(judge):
        console.print(
            "heuristic: exact rules and word cues, no LLM. What it cannot see is unscored, never guessed.\n"
            "Set ANTHROPIC_API_KEY (or JUDGE_BASE_URL) to have an LLM judge everything."
        )


def _agreement_notes(results: Sequence[Captured]) -> list[str]:
    """How well the judge agrees with people where these were measured, a sentence per procedure."""
    measured: dict[tuple[str, str], dict[str, None]] = {}
    for run in (result.summary.run for result in results):
        of_judge = measured.setdefault((run.judge, run.procedure), {})
        of_judge.update(dict.fromkeys(name for name in run.dimensions if name not in COUNTED))
    notes = []
    for (judge, procedure), names in measured.items():
        found = calibration_of(judge, procedure)
        how = "" if procedure == "plumbline" else f", {procedure}"
        if any(row.labels for row in found.values()):
            notes.append(
                f"Agreement of {judge}{how} with people: {agreements_text([(n, found.get(n)) for n in names])}."
            )
        elif names:
            notes.append(f"{judge}{how} is not calibrated: nobody labelled its scores (manage.py calibrate_judge).")
    return notes


def _procedure_note(results: Sequence[Captured]) -> str:
    """How it was judged, where that is not the usual way: such numbers compare with none judged otherwise."""
    runs = [result.summary.run for result in results]
    asked = dict.fromkeys(run.procedure.removesuffix("+simulated") for run in runs)  # simulated rows say so themselves
    notes = [procedure for procedure in asked if procedure != "plumbline"]
    repeats = max((run.repeats for run in runs), default=1)
    return ", ".join((*notes, *([f"mean of {repeats} judgements"] if repeats > 1 else [])))


def _channel_table(channels: Sequence[RunSummary]) -> Table:
    """Per channel what was measured of the conversation, once for all the agents in it."""
    table = Table(title="Channels these agents spoke in", box=box.SIMPLE_HEAD, title_justify="left")
    names = [name for name in CHANNEL_DIMENSIONS if any(name in summary.run.dimensions for summary in channels)]
    for heading in ("Channel", *(heading_of(name, narrow=False) for name in names), "Calls", "Cost", ""):
        table.add_column(heading, justify="left" if heading in ("Channel", "") else "right")
    for summary in channels:
        cells = [number_of(summary.dimensions.get(name)) for name in names]
        cost = money(summary.cost_usd, summary.unpriced_calls)
        table.add_row(
            escape(str(summary.run.channel)), *cells, str(summary.calls), cost, escape(_short(summary.run.error))
        )
    return table


def _outcome_row(
    result: Captured,
    dimensions: Sequence[str],
    means: dict[str, float],
    shares: dict[str, Share],
    columns: Sequence[str],
    *,
    before: bool,
    narrow: bool,
) -> list[str]:
    summary = result.summary
    found = summary.dimensions
    counts = {name: str(sum(getattr(d, name) for d in found.values())) for name in ("scored", "trivial", "unscored")}
    counted = [counts["scored"], counts["unscored"]] if narrow else [*counts.values(), str(summary.calls)]
    row = [
        escape(summary.run.agent.slug if summary.run.agent else str(summary.run.channel))
        + (" (simulated)" if summary.run.simulated else ""),
        _overall(summary),
        *([with_share(number(result.before), result.before_share)] if before else []),
        *(number_of(found.get(name)) for name in dimensions),
        *(with_share(number(means.get(value)), shares.get(value)) for value in columns),
        *counted,
        money(summary.cost_usd, summary.unpriced_calls),
    ]
    return [cell.replace(" · ", "\n") for cell in row] if narrow else row


def _overall(summary: RunSummary) -> str:
    """The overall score; without one the status, where that says why."""
    completed = summary.run.status == EvaluationRun.Status.COMPLETED
    if summary.overall_score is None and not completed:
        return summary.run.status
    return with_share(number(summary.overall_score), summary.share)


def _weakest_table(results: Sequence[Captured]) -> Table:
    """Per agent the proposition with the lowest mean, and the start of the message that scored lowest."""
    table = Table(title="Weakest proposition of each agent", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("Agent", no_wrap=True)
    table.add_column("Proposition", no_wrap=True)
    table.add_column("Score", justify="right")
    table.add_column("For example", ratio=1)
    for result in results:
        run = result.summary.run
        name = escape(run.agent.slug if run.agent else str(run.channel))
        found = [d for d in result.summary.dimensions.values() if d.weakest is not None]
        own = [d for d in found if d.dimension in run.own_dimensions] or found  # a channel is not the agent's alone
        pairs = [(d.weakest, d.dimension) for d in own if d.weakest is not None]
        if not pairs:
            table.add_row(name, "–", "–", escape(run.error))
            continue
        weakest, dimension = min(pairs, key=lambda pair: (pair[0].score or 0.0, pair[0].id))
        row = worst_judgement(run, dimension, weakest.id)
        table.add_row(
            name,
            escape(weakest.id),
            with_share(number(weakest.score), weakest.share),
            escape(_short(row.context_snippet)) if row else "",
        )
    return table


def _short(text: str, limit: int = 90) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def estimate_json(estimates: Sequence[Estimate], simulations: Sequence[SimulationEstimate] = ()) -> dict[str, Any]:
    """A dry run as data; `simulations` is what simulating the agents would need besides."""
    channels = [{"channel": e.channel, **_estimated(e)} for e in estimates if e.channel]
    return {
        "dry_run": True,
        "judge": estimates[0].judge if estimates else None,
        "agents": [{"agent": e.agent, **_estimated(e)} for e in estimates if not e.channel],
        **({"channels": channels} if channels else {}),
        **({"simulations": [_simulation_json(simulation) for simulation in simulations]} if simulations else {}),
    }


def _simulation_json(simulation: SimulationEstimate) -> dict[str, Any]:
    return {**asdict(simulation), "cost_usd": None if simulation.cost_usd is None else float(simulation.cost_usd)}


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
    table = Table(title="Estimate before, actual after", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("", "Calls", "Tokens in", "of them cached", "Tokens out", "Cost"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, found in (("estimate", estimate), ("actual", actual)):
        if found is not None:
            share = found.cache_read_share
            table.add_row(
                name,
                *(f"{found.calls:,}", f"{found.input_tokens:,}", "–" if share is None else f"{share:.0%}"),
                *(f"{found.output_tokens:,}", money(found.cost_usd, found.unpriced_calls or 0)),
            )
    console = console_on(out)
    console.print(table)
    if actual.unpriced_calls:
        calls = counted(actual.unpriced_calls, "call has", "calls have")
        console.print(f"{calls} no price and {'is' if actual.unpriced_calls == 1 else 'are'} not in the cost.")


def estimate_table(estimates: Sequence[Estimate], out: Any, simulations: Sequence[SimulationEstimate] = ()) -> None:
    """A dry run for people; first what simulating the agents would need, where they would be simulated."""
    if simulations:
        _simulations_table(simulations, out)
    judge = estimates[0].judge
    table = Table(
        title=f"Dry run, judge {escape(judge_label(judge))}: nothing was asked",
        box=box.SIMPLE_HEAD,
        title_justify="left",
    )
    for heading in ("Agent", "Judgements", "free (rules)", "Calls", "Input tokens", "Output tokens", "Cost"):
        table.add_column(heading, justify="left" if heading == "Agent" else "right")
    for e in estimates:
        cells = [f"{n:,}" for n in (e.judgements, e.free, e.calls, e.input_tokens, e.output_tokens)]
        table.add_row(escape(e.agent or f"#{e.channel}"), *cells, money(e.cost_usd))
    total = [
        sum(getattr(e, name) for e in estimates)
        for name in ("judgements", "free", "calls", "input_tokens", "output_tokens")
    ]
    costs = [e.cost_usd for e in estimates]
    table.add_section()
    table.add_row(
        "total", *(f"{n:,}" for n in total), money(None if None in costs else sum(c for c in costs if c is not None))
    )
    console = console_on(out)
    console.print(table)
    words = answer_words(estimates)
    console.print(
        f"Tokens are estimated: prompt characters / 4{', and ' if words else ''}{words}. Prompt caching is not assumed.\n"
        "Ideas: 12 of 40 tokens in each part of a conversation, and a call for every 60 of them to find repetitions."
    )


def _simulations_table(simulations: Sequence[SimulationEstimate], out: Any) -> None:
    table = Table(title="Dry run: simulating the agents first", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("Agent", "Actor model", "Lines", "Calls", "Input tokens", "Output tokens", "Cost"):
        table.add_column(heading, justify="left" if heading in ("Agent", "Actor model") else "right", overflow="fold")
    for simulation in simulations:
        cells = [
            f"{n:,}" for n in (simulation.lines, simulation.calls, simulation.input_tokens, simulation.output_tokens)
        ]
        table.add_row(escape(simulation.agent), escape(simulation.actor_model), *cells, money(simulation.cost_usd))
    console = console_on(out)
    console.print(table)
    console.print(
        f"Simulating: {CALLS_PER_LINE} calls for each line said to an agent (it answers, and ends its turn), {REPLY_TOKENS} tokens an "
        "answer: assumptions.\n"
    )

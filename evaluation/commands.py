"""What the commands that measure share: which options of a request they have, its specs, and the JSON they write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from django.core.management.base import CommandError
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from agents.kit.bodies import Refused
from agents.kit.commands import STOPPED, Cell, console_for_bars, console_on, print_table, unusable, wrong
from agents.kit.llm.endpoints import problem_of, route_of
from agents.kit.running import stopping_on_sigterm
from agents.kit.text.wording import counted, money, number
from agents.kit.use_cases import tags_in
from agents.models import Channel
from agents.models.conversations import UnknownAgent
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.propositions.files import PropositionError
from evaluation.runs.planning import ENOUGH_MESSAGES, RunSpec, with_usable_files
from evaluation.runs.request import AgentsRequest
from evaluation.runs.summary import (
    DimensionSummary,
    RunSummary,
    Spending,
    Used,
    pending_count,
    with_share,
    worst_judgement,
)
from evaluation.simulation.conversations import Simulation
from evaluation.simulation.situations import CALLS_PER_LINE, REPLY_TOKENS
from evaluation.wording import heading_of, judge_label

if TYPE_CHECKING:
    from evaluation.runs.estimate import Estimate, SimulationEstimate
    from evaluation.runs.execute import Captured


WHAT = ("agents", "dimensions", "window", "where", "history", "history_where")
HOW = ("repeats", "samples", "seed", "per_call", "hard", "double_check", "method")


def tag_pairs(values: Sequence[str], *, option: str = "--where") -> dict[str, str]:
    """Return ``key=value`` options as a mapping.

    Raises:
        CommandError: A value has no ``=``.
    """
    try:
        return tags_in([part for value in values for part in value.split(",")])
    except ValueError as error:
        raise wrong(f"{option} {error}") from None


def split_unusable(specs: Sequence[RunSpec]) -> tuple[list[RunSpec], str]:
    """Return the specs whose proposition files can be used, and file, line and field of what is wrong with those of the others.

    Raises:
        CommandError: None of them can be measured.
        PropositionError: A folder does not exist.
    """
    usable, broken = with_usable_files(specs)
    if not broken:
        return usable, ""
    rows = "\n".join(dict.fromkeys(str(error) for error in broken.values()))
    why = f"proposition files of {', '.join(broken)} cannot be used:\n{rows}"
    if not usable:
        raise unusable(why)
    return usable, why


def specs_of(asked: AgentsRequest, *, is_baseline: bool = False, empty: str = "") -> list[RunSpec]:
    """Return a spec per agent.

    Args:
        empty: What else can be done where there are no agents.

    Raises:
        CommandError: An agent that is named is not there, or there are none.
        PropositionError: A proposition file cannot be used.
    """
    try:
        specs = asked.specs(is_baseline=is_baseline)
    except UnknownAgent as error:
        raise unusable(f"--agents: {error}") from None
    except Refused as error:
        raise wrong(error) from None
    if not specs:
        none = "there are no agents yet: `manage.py seed` loads examples, `manage.py import_agents` your own"
        raise unusable(none + empty)
    return specs


def channel_named(slug: str) -> Channel:
    """Return the channel of that slug.

    Raises:
        CommandError: There is none; names those there are.
    """
    channel = Channel.objects.filter(slug=slug).first()
    if channel is None:
        known = ", ".join(Channel.objects.order_by("slug").values_list("slug", flat=True)[:20])
        raise unusable(f"no channel {slug!r}; channels: {known or 'none yet'}")
    return channel


def check_batches(judge: str) -> None:
    """Refuse ``--batch`` where the judge takes none.

    Raises:
        CommandError: It is not asked over a network, or no key is set; names what is allowed.
    """
    if not route_of("judge", judge).is_distant:
        why = problem_of("judge", judge) or "it is not asked over a network"
        raise unusable(
            f"--batch: the judge {judge} takes no batches ({why}); allowed: a model with a key, or no --batch"
        )


def check_writable(option: str, path: Path) -> None:
    """Refuse a file that cannot be written before anything is judged.

    Raises:
        CommandError: It cannot be written; says why.
    """
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise unusable(f"{option} {path}: {error.strerror}") from None


def write_text(option: str, path: Path, text: str) -> None:
    """Write a file.

    Raises:
        CommandError: It cannot be written; says why.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unusable(f"{option} {path}: {error}") from None


def as_text(document: Any) -> str:
    """Return a JSON document as commands print it."""
    return json.dumps(document, ensure_ascii=False, indent=2)


IN_A_CELL = 90  # characters of a text


class ProgressBar(Progress):
    """Bars on a terminal, silent elsewhere: one over the judgements of all runs, and one per agent over the lines said to it."""

    def __init__(self, title: str, stream: TextIO, *, quiet: bool = False) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console_for_bars(stream, quiet=quiet), transient=True)
        self._title, self._total = title, 0
        self._bars: dict[str, TaskID] = {}

    def prepared(self, runs: Sequence[EvaluationRun]) -> None:
        """Count in what is to be judged of these runs."""
        self._total += sum(pending_count(run) for run in runs)
        self.update(self._bar(self._title), total=self._total)

    def progress(self, run: EvaluationRun, done: int) -> None:
        target = run.agent.slug if run.agent else run.channel
        self.update(self._bar(self._title), advance=done, description=f"{self._title} {target}")

    def simulated(self, agent: str, done: int, total: int) -> None:
        self.update(self._bar(f"{self._title} {escape(agent)}"), completed=done, total=total)

    def _bar(self, name: str) -> TaskID:
        if name not in self._bars:
            self._bars[name] = self.add_task(name, total=0)
        return self._bars[name]


@contextmanager
def measuring(
    stored: str = "What was judged is stored; run the same command again to go on with the rest.",
) -> Iterator[None]:
    """Inside, a signal to stop and proposition files that cannot be used end the command with a sentence.

    Args:
        stored: What of its work stays when it is stopped.

    Raises:
        CommandError: With its exit code.
    """
    try:
        with stopping_on_sigterm():
            yield
    except KeyboardInterrupt:
        raise CommandError(f"Stopped. {stored}", returncode=STOPPED) from None
    except PropositionError as error:
        raise unusable(f"proposition files cannot be used:\n{error}") from None


# -- scores
def outcome_table(judge: str, results: Sequence[Captured], out: Any, *, notes: Iterable[str] = ()) -> None:
    """The table at the end of a capture: per agent the scores, what could not be scored, cost; then each agent's weakest proposition.

    Args:
        notes: What is to be known of the judge, in sentences.
    """
    console = console_on(out)
    summaries = [result.summary for result in results]
    dimensions = list(dict.fromkeys(d for summary in summaries for d in summary.run.dimensions))
    narrow = len(dimensions) > 3
    heads = [
        "Agent",
        ">Overall",
        *(f">{heading_of(name, narrow=narrow)}" for name in dimensions),
        ">Scored",
        ">Unsc.",
        ">Cost",
    ]
    rows: list[list[Cell]] = [
        [
            *(_target(summary.run), _overall(summary).replace(" · ", "\n")),
            *((_score(summary.dimensions.get(name)) or "–").replace(" · ", "\n") for name in dimensions),
            *(sum(getattr(d, kind) for d in summary.dimensions.values()) for kind in ("scored", "unscored")),
            money(summary.cost_usd, summary.unpriced_calls),
        ]
        for summary in summaries
    ]
    title = f"Baseline by {judge_label(judge)}, 0 to 9, higher is better"
    print_table(console, heads, rows, title=title, tight=True, unwrapped=["Agent"], wrapped=True)
    console.print(
        "In % (of few: 1 of 5): the share of judgements scored; of messages, among the propositions this judge can score at all."
    )
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
    print_table(
        console,
        ["Agent", "Proposition", ">Score", "For example"],
        map(_weakest, summaries),
        title="Weakest proposition of each agent, and the message that scored lowest on it",
        unwrapped=["Agent"],
    )
    for sentence in notes:
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
    return with_share(score, dimension.share, between="\n")


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
    if row is None:
        return [name, proposition.id, score, ""]
    asked = f"{row.claim} (should not hold)" if row.inverted else row.claim
    return [name, f"{proposition.id}\n{asked}", score, _short(row.context_snippet)]


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
    agents = [e.model_dump(exclude={"judge", "channel"}) for e in estimates if not e.channel]
    channels = [e.model_dump(exclude={"judge", "agent"}) for e in estimates if e.channel]
    return {
        "dry_run": True,
        "judge": estimates[0].judge if estimates else None,
        "agents": agents,
        **({"channels": channels} if channels else {}),
        **({"simulations": [simulation.model_dump() for simulation in simulations]} if simulations else {}),
    }


def answer_words(estimates: Sequence[Estimate]) -> str:
    """How long answers are taken to be, and where that is known from: a sentence without its full stop."""
    length = next((estimate.output_tokens_per_claim for estimate in estimates if estimate.calls), None)
    if length is None:
        return ""
    known = f"the mean of this judge's last {length.measured_calls:,} calls" if length.measured_calls else "assumed"
    return f"{length.tokens} for an answered claim ({known})"


def estimate_line(estimate: Spending) -> str:
    """Before any call, e.g. ``Estimate: 524 calls, 2,032,851 tokens in, 606,160 out, $0.5064``."""
    return f"Estimate: {_amounts(estimate)} (if nothing was judged before)"


def spent_line(estimate: Spending | None, actual: Used) -> str:
    """What judging used, with the estimate where there was one; empty when nothing was asked over a network."""
    if not actual.calls or (estimate is None and not actual.input_tokens):
        return ""
    share = actual.cache_read_share
    cached = f", {share:.0%} of the tokens in from the prompt cache" if share else ""
    before = f"estimated {_amounts(estimate)}; " if estimate else ""
    return f"Judging: {before}used {_amounts(actual)}{cached}."


def _amounts(spending: Spending) -> str:
    cost = money(spending.cost_usd, spending.unpriced_calls if isinstance(spending, Used) else 0)
    return f"{counted(spending.calls, 'call')}, {spending.input_tokens:,} tokens in, {spending.output_tokens:,} out, {cost}"


def show_estimates(
    estimates: Sequence[Estimate], out: Any, simulations: Sequence[SimulationEstimate] = (), *, as_json: bool
) -> None:
    """A dry run, for people or as JSON."""
    if as_json:
        out.write(as_text(estimate_json(estimates, simulations)))
    else:
        estimate_table(estimates, out, simulations)


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
    amounts = [[e.judgements, e.without_a_call, e.calls, e.input_tokens, e.output_tokens] for e in estimates]
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


SCRIPTED = (
    "The offline actor only says a persona's sample lines: a try-out, no measure of a model.\n"
    "It says them again and again: where its fluency is low, that is why."
)
TOO_FEW = f"They have fewer than {ENOUGH_MESSAGES} messages of their own (--no-simulate: measure these)."


def simulations_table(simulations: Sequence[Simulation], out: Any, *, why: str = "") -> None:
    """Print which agents were simulated, by which model, and what is missing."""
    if not simulations:
        return
    console = console_on(out)
    rows = [
        (
            one.agent.slug,
            one.actor_model,
            f"{len(one.conversations) - len(one.unfinished)} of {len(one.conversations)}",
            one.messages,
            one.id,
        )
        for one in simulations
    ]
    heads = ("Agent", "Actor model", ">Situations", ">Messages", "Simulation")
    print_table(console, heads, rows, title="Simulated conversations", tight=True, unwrapped=("Agent", "Simulation"))
    for one in simulations:
        if one.problem:
            console.print(f"{escape(one.agent.slug)}: {escape(one.problem)}")
    if any(is_heuristic(one.actor_model) for one in simulations):
        console.print(SCRIPTED)
    if why:
        console.print(why)
    console.print("Simulated speech is marked synthetic and measured apart: it is never mixed with real speech.\n")

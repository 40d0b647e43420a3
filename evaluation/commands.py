"""Share between the commands that measure: options, specs, progress bars, tables, estimates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from django.core.management.base import CommandError
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from agents.bodies import no_channel
from agents.kit.bodies import Refused
from agents.kit.commands import STOPPED, Cell, console_for_bars, console_on, print_table, unusable, wrong
from agents.kit.llm import ledger
from agents.kit.llm.endpoints import problem_of
from agents.kit.llm.providers import batch_problem, providers_with_batches
from agents.kit.running import stopping_on_sigterm
from agents.kit.text.wording import counted, money, number, percentage
from agents.kit.use_cases import tags_in
from agents.models import Channel, Message
from agents.models.conversations import NO_AGENTS, UnknownAgent
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.propositions.files import PropositionError
from evaluation.runs.numbers import MOSTLY_TRUE, DimensionSummary, RunSummary, Spending, Used
from evaluation.runs.planning import ENOUGH_MESSAGES, with_usable_files
from evaluation.runs.request import AgentsRequest, trial_sentence
from evaluation.runs.shares import with_share
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import pending_count, worst_judgement
from evaluation.scorers.selection import tag_values, with_tags
from evaluation.simulation.conversations import Simulation
from evaluation.simulation.situations import CALLS_PER_LINE, REPLY_TOKENS
from evaluation.wording import heading_of, judge_label, rate

if TYPE_CHECKING:
    from evaluation.runs.estimate import Estimate, SimulationEstimate
    from evaluation.runs.execute import Captured


# Fields of `AgentsRequest` that these commands have as options.
WHAT = ("agents", "dimensions", "window", "where", "history", "history_where")
HOW = ("repeats", "samples", "seed", "per_call", "hard", "double_check", "method", "few_shot")


def tag_pairs(values: Sequence[str], *, option: str = "--where") -> dict[str, str]:
    """Return ``key=value`` options as a mapping; each may hold several, separated by commas.

    Args:
        option: Its name, for the error.

    Raises:
        CommandError: A value has no ``=``.
    """
    parts: list[str] = []
    for value in values:
        parts += value.split(",")
    try:
        return tags_in(parts)
    except ValueError as error:
        raise wrong(f"{option} {error}") from None


def split_unusable(specs: Sequence[RunSpec]) -> tuple[list[RunSpec], str]:
    """Return the specs whose proposition files can be used, and file, line and field of what is wrong with those of the others.

    That is empty where nothing is wrong.

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


def specs_of(request: AgentsRequest, *, is_baseline: bool = False, empty: str = "") -> list[RunSpec]:
    """Return a spec per agent.

    Args:
        empty: What else can be done where there are no agents.

    Raises:
        CommandError: An agent that is named is not there, there are no agents, or no dimension has propositions.
        PropositionError: A proposition file cannot be used.
    """
    try:
        specs = request.specs(is_baseline=is_baseline)
    except UnknownAgent as error:
        raise unusable(f"--agents: {error}") from None
    except Refused as error:
        raise wrong(error) from None
    if not specs:
        raise unusable(NO_AGENTS + empty)
    return specs


def examples_line(specs: Sequence[RunSpec]) -> str:
    """Return what the trial of the examples showed that the judge will be shown; empty where it is shown none."""
    sentence = trial_sentence(specs[0])  # the judge and the procedure are those of all
    return f"Labelled examples: {sentence}" if sentence else ""


def unknown_tag_line(where: Mapping[str, str]) -> str:
    """Return the sentence that no message has one of these tags, with the values there are of it; empty where each is on some message."""
    for key, value in where.items():
        if not with_tags(Message.objects.all(), {key: value}).exists():
            values = tag_values(key, 21)
            tag_list = ", ".join(values[:20]) + (", …" if len(values) > 20 else "")
            return f"No message is tagged {key}={value}; " + (
                f"{key} is one of: {tag_list}." if tag_list else f"none has a tag {key}."
            )
    return ""


def channel_named(slug: str) -> Channel:
    """Return the channel of that slug.

    Raises:
        CommandError: There is none; names those there are.
    """
    channel = Channel.objects.filter(slug=slug).first()
    if channel is None:
        raise unusable(no_channel(slug))
    return channel


def check_batches(judge: str) -> None:
    """Refuse ``--batch`` where the judge takes none.

    Raises:
        CommandError: Its provider has none, or no key is set; names what is allowed.
    """
    problem = batch_problem(judge)
    if not problem and (reason := problem_of("judge", judge)):
        problem = f"{judge} cannot be asked: {reason}"
    if problem:
        allowed = " or ".join(providers_with_batches())
        raise unusable(f"--batch: the judge {problem}; allowed: a model of {allowed} with a key, or no --batch")


def check_writable(option: str, path: Path) -> None:
    """Refuse a file that cannot be written before anything is judged; one that is not there is made, empty.

    Raises:
        CommandError: It cannot be written; says why.
    """
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise unusable(f"{option} {path}: {error.strerror}") from None


def write_text(option: str, path: Path, text: str) -> None:
    """Write a file; one of that name is replaced.

    Args:
        option: That named the file, for the error.

    Raises:
        CommandError: It cannot be written; says why.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unusable(f"{option} {path}: {error.strerror}") from None


def as_text(document: Any) -> str:
    """Return a JSON document as commands print it."""
    return json.dumps(document, ensure_ascii=False, indent=2)


TEXT_IN_A_CELL = 90  # characters


class ProgressBar(Progress):
    """Bars on a terminal, silent elsewhere: one over the judgements of all runs, and one per agent over the lines said to it."""

    def __init__(self, title: str, stream: TextIO, *, quiet: bool = False) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console_for_bars(stream, quiet=quiet), transient=True)
        self._title = title
        self._total = 0
        self._bars: dict[str, TaskID] = {}

    def prepared(self, runs: Sequence[EvaluationRun]) -> None:
        """Add what is to be judged of these runs to the bar over all judgements."""
        self._total += sum(pending_count(run) for run in runs)
        self.update(self._bar(self._title), total=self._total)

    def progress(self, run: EvaluationRun, done: int) -> None:
        """Advance the bar over all judgements."""
        target = run.agent.slug if run.agent else run.channel
        self.update(self._bar(self._title), advance=done, description=f"{self._title} {target}")

    def simulated(self, agent: str, done: int, total: int) -> None:
        """Show how many lines were said to an agent."""
        self.update(self._bar(f"{self._title} {escape(agent)}"), completed=done, total=total)

    def _bar(self, name: str) -> TaskID:
        if name not in self._bars:
            self._bars[name] = self.add_task(name, total=0)
        return self._bars[name]


@contextmanager
def measuring(
    stored: str = "What was judged is stored; run the same command again to go on with the rest.",
) -> Iterator[None]:
    """End the command with a sentence on a signal to stop, and where proposition files cannot be used.

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
    """Print the end of a capture: a table with each agent's scores, what was not scored and cost; then each agent's weakest proposition,
    where one is weak.

    Between them why scores are missing, and how it was judged if not in the usual way; at the end the notes, and what a heuristic judge is.

    Args:
        notes: What is to be known of the judge, in sentences.
    """
    console = console_on(out)
    summaries = [result.summary for result in results]
    _print_scores(console, judge, summaries)
    _print_why_no_score(console, summaries)
    console.print()
    procedure = _unusual_procedure([summary.run for summary in summaries])
    if procedure:
        console.print(f"Judged by {procedure}: compare only with what was judged the same way.\n")
    _print_weakest(console, summaries)
    for sentence in notes:
        console.print(escape(sentence))
    if is_heuristic(judge):
        console.print(
            "heuristic: exact rules and word cues, no LLM. What it cannot see is unscored, never guessed.\n"
            "Set ANTHROPIC_API_KEY (or JUDGE_MODEL) to have an LLM judge everything."
        )


def _print_scores(console: Console, judge: str, summaries: Sequence[RunSummary]) -> None:
    """Print a row per agent: overall score, score per dimension, how many judgements were scored, cost."""
    dimensions: list[str] = []
    for summary in summaries:
        dimensions += [name for name in summary.run.dimensions if name not in dimensions]
    narrow = len(dimensions) > 3  # for whole headings there is no room then
    headings = [f">{heading_of(name, narrow=narrow)}" for name in dimensions]
    heads = ["Agent", ">Overall", *headings, ">Scored", ">Cost"]
    rows = [_score_row(summary, dimensions) for summary in summaries]
    title = f"Baseline by {judge_label(judge)}, 0 to 9, higher is better"
    print_table(console, heads, rows, title=title, tight=True, unwrapped=["Agent"], wrapped=True)
    console.print(
        "In % (of few: 1 of 5): the share of judgements scored; of messages, among the propositions this judge can score at all."
    )


def _score_row(summary: RunSummary, dimensions: Sequence[str]) -> list[Cell]:
    """Return an agent's row of `_print_scores`; the share scored stands under its score. A dash where a dimension has none."""
    row: list[Cell] = [_target(summary.run), _overall(summary).replace(" · ", "\n")]
    for name in dimensions:
        score = _score(summary.dimensions.get(name)) or "–"
        row.append(score.replace(" · ", "\n"))
    scored = sum(dimension.scored for dimension in summary.dimensions.values())
    unscored = sum(dimension.unscored for dimension in summary.dimensions.values())
    row.append(f"{scored:,} of {scored + unscored:,}")
    row.append(money(summary.cost_usd, summary.unpriced_calls))
    return row


def _print_why_no_score(console: Console, summaries: Sequence[RunSummary]) -> None:
    """Print why dimensions of agents have no score, a line per reason with its agents, e.g. ``no score: jim, pam: fluency: not …``."""
    agents_by_reason: dict[str, list[str]] = {}
    for summary in summaries:
        if not summary.run.agent:
            continue
        for name, dimension in summary.dimensions.items():
            why = dimension.reason or dimension.not_evaluable
            if why:
                agents_by_reason.setdefault(f"{name}: {why}", []).append(summary.run.agent.slug)
    for reason, agents in agents_by_reason.items():
        console.print(f"no score: {escape(', '.join(agents))}: {escape(reason)}")


def _target(run: EvaluationRun) -> str:
    """Name the agent or channel; simulated speech is marked."""
    name = _target_name(run)
    return f"{name} (simulated)" if run.simulated else name


def _target_name(run: EvaluationRun) -> str:
    return run.agent.slug if run.agent else str(run.channel)


def _overall(summary: RunSummary) -> str:
    """Write the overall score; without one the status, where that says why."""
    if summary.overall_score is None and summary.run.status != EvaluationRun.Status.COMPLETED:
        return summary.run.status
    return with_share(number(summary.overall_score), summary.share)


def _score(dimension: DimensionSummary | None) -> str | None:
    """Write a dimension's score, or its count where it is counted, with the share scored."""
    if dimension is None:
        return None
    score = number(dimension.score) if dimension.count is None else str(dimension.count)
    return with_share(score, dimension.share, between="\n")


def _print_weakest(console: Console, summaries: Sequence[RunSummary]) -> None:
    """Print the weakest proposition of each agent; of agents that have no weak one only the names."""
    rows: list[list[Cell]] = []
    without_weak: list[str] = []
    for summary in summaries:
        dimension = _weakest_dimension(summary)
        if dimension is None or dimension.weakest is None or dimension.weakest.is_weak:
            rows.append(_weakest_row(summary))
        else:
            without_weak.append(_target_name(summary.run))
    if rows:
        print_table(
            console,
            ["Agent", "Proposition", ">Score", "For example"],
            rows,
            title="Weakest proposition of each agent, and the message that scored lowest on it",
            unwrapped=["Agent"],
        )
    if without_weak:
        console.print(escape(f"No proposition scored below {MOSTLY_TRUE} (mostly true): {', '.join(without_weak)}"))


def _weakest_row(summary: RunSummary) -> list[Cell]:
    """Return the row of the proposition with the lowest mean, with the start of what scored lowest on it.

    Where nothing was scored the row says why; where its score comes from channels' evaluations there is neither claim nor text.
    """
    run = summary.run
    name = _target_name(run)
    dimension = _weakest_dimension(summary)
    if dimension is None or dimension.weakest is None:
        return [name, None, None, run.error]
    proposition = dimension.weakest
    score = with_share(number(proposition.score), proposition.share)
    if proposition.of_ten is not None and proposition.score is not None:
        score = f"{score}\n{rate(proposition.score, proposition.of_ten)}"
    judgement = worst_judgement(run, dimension.dimension, proposition.id)
    if judgement is None:
        return [name, proposition.id, score, ""]
    claim = judgement.claim
    if judgement.inverted:
        claim += " (should not hold)"
    return [name, f"{proposition.id}\n{claim}", score, _cut(judgement.context_snippet)]


def _weakest_dimension(summary: RunSummary) -> DimensionSummary | None:
    """Return the dimension of the weakest proposition; None when no proposition has a score.

    Channel dimensions count only where no other was scored: a channel is not the agent's alone.
    """
    scored = [dimension for dimension in summary.dimensions.values() if dimension.weakest is not None]
    own = [dimension for dimension in scored if dimension.dimension in summary.run.own_dimensions]

    def lowest(dimension: DimensionSummary) -> tuple[float, str]:
        weakest = dimension.weakest
        return (weakest.share_of_wanted or 0.0, weakest.id) if weakest else (0.0, "")

    return min(own or scored, key=lowest, default=None)


def _unusual_procedure(runs: Sequence[EvaluationRun]) -> str:
    """Name how it was judged, e.g. ``plumbline+hard, mean of 3 judgements``; empty where all was judged in the usual way, once."""
    notes: list[str] = []
    for run in runs:
        procedure = run.procedure.removesuffix("+simulated")  # simulated rows say so themselves
        if procedure != "plumbline" and procedure not in notes:
            notes.append(procedure)
    repeats = max((run.repeats for run in runs), default=1)
    if repeats > 1:
        notes.append(f"mean of {repeats} judgements")
    return ", ".join(notes)


def _cut(text: str) -> str:
    """Return the start of a text that fits in a cell."""
    if len(text) <= TEXT_IN_A_CELL:
        return text
    return text[: TEXT_IN_A_CELL - 1].rstrip() + "…"


# -- estimates
def estimate_json(estimates: Sequence[Estimate], simulations: Sequence[SimulationEstimate] = ()) -> dict[str, Any]:
    """Dump a dry run; the judge is the same for all. ``channels`` and ``simulations`` are left out where there are none.

    Args:
        simulations: What simulating the agents would need besides.
    """
    document: dict[str, Any] = {
        "dry_run": True,
        "judge": estimates[0].judge if estimates else None,
        "agents": [estimate.model_dump(exclude={"judge", "channel"}) for estimate in estimates if not estimate.channel],
    }
    channels = [estimate.model_dump(exclude={"judge", "agent"}) for estimate in estimates if estimate.channel]
    if channels:
        document["channels"] = channels
    if simulations:
        document["simulations"] = [simulation.model_dump() for simulation in simulations]
    return document


def answer_words(estimates: Sequence[Estimate]) -> str:
    """Say how long answers are taken to be, and where that is known from: ``160 for an answered claim (assumed)``.

    By the first estimate with calls; empty where no call would be made.
    """
    for estimate in estimates:
        if estimate.calls:
            length = estimate.output_tokens_per_claim
            source = "assumed"
            if length.measured_calls:
                source = f"the mean of this judge's last {length.measured_calls:,} calls"
            return f"{length.tokens} for an answered claim ({source})"
    return ""


def estimate_line(estimate: Spending) -> str:
    """Write an estimate before any call, e.g. ``Estimate: 524 calls, 2,032,851 tokens in, 606,160 out, $0.5064``."""
    return f"Estimate: {_amounts(estimate)} (if nothing was judged before)"


def spent_line(estimate: Spending | None, actual: Used) -> str:
    """Write what judging used, with the estimate where there was one; empty when nothing was asked over a network.

    E.g. ``Judging: estimated 5 calls, …; used 4 calls, 9,000 tokens in, 800 out, $0.0400, 60 % of the tokens in from the prompt cache.``
    """
    if not actual.calls or (estimate is None and not actual.input_tokens):
        return ""
    words = f"used {_amounts(actual)}"
    if estimate:
        words = f"estimated {_amounts(estimate)}; {words}"
    if actual.cache_read_share:
        words += f", {percentage(actual.cache_read_share)} of the tokens in from the prompt cache"
    return f"Judging: {words}."


def _amounts(spending: Spending) -> str:
    """Write calls, tokens and cost."""
    unpriced = spending.unpriced_calls if isinstance(spending, Used) else 0
    cost = money(spending.cost_usd, unpriced)
    return f"{counted(spending.calls, 'call')}, {spending.input_tokens:,} tokens in, {spending.output_tokens:,} out, {cost}"


def show_estimates(
    estimates: Sequence[Estimate], out: Any, simulations: Sequence[SimulationEstimate] = (), *, as_json: bool
) -> None:
    """Print a dry run, for people or as JSON."""
    if as_json:
        out.write(as_text(estimate_json(estimates, simulations)))
    else:
        estimate_table(estimates, out, simulations)


def estimate_table(estimates: Sequence[Estimate], out: Any, simulations: Sequence[SimulationEstimate] = ()) -> None:
    """Print a dry run for people; first what simulating the agents would need, where they would be simulated.

    Args:
        estimates: At least one, all of the same judge.
    """
    console = console_on(out)
    if simulations:
        _print_simulations_estimate(console, simulations)
    rows: list[list[Cell]] = []
    for estimate in estimates:
        rows.append(
            [
                estimate.agent or f"#{estimate.channel}",
                estimate.judgements,
                estimate.without_a_call,
                estimate.calls,
                estimate.input_tokens,
                estimate.output_tokens,
                money(estimate.cost_usd),
            ]
        )
    total: list[Cell] = [
        "total",
        sum(estimate.judgements for estimate in estimates),
        sum(estimate.without_a_call for estimate in estimates),
        sum(estimate.calls for estimate in estimates),
        sum(estimate.input_tokens for estimate in estimates),
        sum(estimate.output_tokens for estimate in estimates),
        money(ledger.sum_if_all_priced(estimate.cost_usd for estimate in estimates)),
    ]
    print_table(
        console,
        ["Agent", ">Judgements", ">By rules", ">Calls", ">Input tokens", ">Output tokens", ">Cost"],
        rows,
        title=f"Dry run, judge {judge_label(estimates[0].judge)}: nothing was asked",
        total=total,
        tight=True,
    )
    answers = answer_words(estimates)
    and_answers = f", and {answers}" if answers else ""
    console.print(f"Tokens are estimated: prompt characters / 4{and_answers}. Prompt caching is not assumed.")
    if any(estimate.counts_ideas for estimate in estimates):
        console.print(
            "To count ideas the judge lists them: 12 ideas of 40 tokens are assumed in each part of a conversation, and a further "
            "call for every 60 of them, which finds those that repeat others."
        )


def _print_simulations_estimate(console: Console, simulations: Sequence[SimulationEstimate]) -> None:
    """Print what simulating the agents would need."""
    rows: list[list[Cell]] = []
    for simulation in simulations:
        rows.append(
            [
                simulation.agent,
                simulation.actor_model,
                simulation.lines,
                simulation.calls,
                simulation.input_tokens,
                simulation.output_tokens,
                money(simulation.cost_usd),
            ]
        )
    heads = ["Agent", "Actor model", ">Lines", ">Calls", ">Input tokens", ">Output tokens", ">Cost"]
    print_table(console, heads, rows, title="Dry run: simulating the agents first", tight=True)
    console.print(
        f"Simulating: {CALLS_PER_LINE} calls for each line said to an agent (it answers, and ends its turn), {REPLY_TOKENS} tokens "
        "an answer: assumptions.\n"
    )


SCRIPTED = (
    "The offline actor only says a persona's sample lines: a try-out, no measure of a model.\n"
    "It says them again and again: where its fluency is low, that is why."
)
TOO_FEW = f"They have fewer than {ENOUGH_MESSAGES} messages of their own (--no-simulate: measure these)."


def simulations_table(simulations: Sequence[Simulation], out: Any, *, why: str = "") -> None:
    """Print which agents were simulated, by which model, and what is missing; nothing where none was.

    Args:
        why: Why they were simulated, in a sentence.
    """
    if not simulations:
        return
    console = console_on(out)
    rows: list[list[Cell]] = []
    for simulation in simulations:
        finished = len(simulation.conversations) - len(simulation.unfinished)
        rows.append(
            [
                simulation.agent.slug,
                simulation.actor_model,
                f"{finished} of {len(simulation.conversations)}",
                simulation.messages,
                simulation.id,
            ]
        )
    heads = ("Agent", "Actor model", ">Situations", ">Messages", "Simulation")
    print_table(console, heads, rows, title="Simulated conversations", tight=True, unwrapped=("Agent", "Simulation"))
    for simulation in simulations:
        if simulation.problem:
            console.print(f"{escape(simulation.agent.slug)}: {escape(simulation.problem)}")
    if any(is_heuristic(simulation.actor_model) for simulation in simulations):
        console.print(SCRIPTED)
    if why:
        console.print(why)
    console.print("Simulated speech is marked synthetic and measured apart: it is never mixed with real speech.\n")

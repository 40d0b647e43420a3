"""Count what the turns of an environment came to, without a judge: traces of its stages, turns that failed, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import fmean
from typing import Any

from django.db.models import Count, Q, Sum

from agents.kit.models import LLMCall
from agents.kit.ops.sums import TOKENS
from agents.kit.text.ngrams import compute_corpus_repetition
from agents.kit.text.tokens import tokenize
from agents.models import Agent, Message, Run
from evaluation.experiments.models import ExperimentEnvironment
from evaluation.judge.offline import rules_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an environment's turns, as its columns hold it.

    Attributes:
        counters: How often which stage did what, by ``stage.counter``.
        missing: Turns that failed: key of the turn, agent, why.
        figures: What can be counted without a judge, by the id of the measure; a figure that has no value is left out.
    """

    counters: dict[str, int]
    missing: list[dict[str, Any]]
    figures: dict[str, float]

    def columns(self) -> dict[str, Any]:
        return asdict(self)


def turn_key(environment: ExperimentEnvironment, step: int, agent: int) -> str:
    """Return the key of a turn: the same after a crash, so that no turn is taken twice."""
    return f"{step_key(environment, step)}:{agent}"


def step_key(environment: ExperimentEnvironment, step: int) -> str:
    return f"experiment:{environment.pk}:{step}"


def outcome_of(environment: ExperimentEnvironment, *, steps: int) -> Outcome:
    """Return what the turns of an environment came to.

    Args:
        steps: In each of which every agent should have taken a turn; 0 for a debate, which has its own rounds.
    """
    runs = list(Run.objects.filter(channel=environment.channel_id).order_by("pk"))
    texts = _texts_by_agent(environment)
    return Outcome(
        counters=_stage_counters(runs),
        missing=[*_failed_turns(runs), *_turns_never_taken(environment, steps, runs)],
        figures=_turn_figures(environment, runs) | _text_figures(texts) | _spending(runs, _count(texts)),
    )


def _texts_by_agent(environment: ExperimentEnvironment) -> dict[int | None, list[str]]:
    texts: dict[int | None, list[str]] = {}
    messages = Message.objects.filter(channel=environment.channel_id, run__isnull=False).order_by("position")
    for agent, text in messages.values_list("agent", "text"):
        texts.setdefault(agent, []).append(text)
    return texts


def _count(texts: Mapping[int | None, Sequence[str]]) -> int:
    return sum(len(own_texts) for own_texts in texts.values())


def _stage_counters(runs: Sequence[Run]) -> dict[str, int]:
    """Return the sums of what the stages counted in their traces, by ``stage.counter``; of stages that ran, by name."""
    counters: Counter[str] = Counter()
    for run in runs:
        for entry in run.trace:
            if entry.get("status") != "ran":
                continue
            for name, count in (entry.get("counters") or {}).items():
                counters[f"{entry['stage']}.{name}"] += count
    return dict(sorted(counters.items()))


def _failed_turns(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    for run in runs:
        if run.status != Run.Status.COMPLETED:
            yield {"turn": run.idempotency_key, "agent": run.agent_id, "why": run.error or run.status}


def _turns_never_taken(environment: ExperimentEnvironment, steps: int, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield turns of steps 1 to `steps` that were not even queued: the agent was made inactive, or is gone."""
    taken = {run.idempotency_key for run in runs}
    for step, agent in product(range(1, steps + 1), environment.agents):
        key = turn_key(environment, step, agent)
        if key not in taken:
            yield {"turn": key, "agent": agent, "why": "the agent took no turn"}


def _turn_figures(environment: ExperimentEnvironment, runs: Sequence[Run]) -> dict[str, float]:
    """Return the number of turns and of messages, the share of silent turns, and the mean seconds of a turn.

    No `silence` where no turn was completed, no `seconds` without turns. A turn that never began or ended counts 0 seconds.
    """
    messages = Message.objects.filter(channel=environment.channel_id, run__isnull=False).order_by()
    run_ids = list(messages.values_list("run", flat=True))
    figures: dict[str, float] = {"turns": len(runs), "messages": len(run_ids)}
    spoke = set(run_ids)
    # A turn that failed is missing, and no silence.
    silent = [run.pk not in spoke for run in runs if run.status == Run.Status.COMPLETED]
    if silent:
        figures["silence"] = fmean(silent)
    if runs:
        figures["seconds"] = sum(_seconds(run) for run in runs) / len(runs)
    return figures


def _seconds(run: Run) -> float:
    if run.started_at is None or run.finished_at is None:
        return 0.0
    return float((run.finished_at - run.started_at).total_seconds())


def _text_figures(texts: Mapping[int | None, Sequence[str]]) -> dict[str, float]:
    """Return means of what agents said: repetition within an agent's texts, share of texts that keep its rules, words of a text.

    Each is left out where there is nothing to count: no agent with two texts, none with exact rules, no text.

    Args:
        texts: By agent; None: messages that are no agent's.
    """
    figures: dict[str, float] = {}
    repetitions = [compute_corpus_repetition(own_texts) for own_texts in texts.values() if len(own_texts) > 1]
    if repetitions:
        figures["repetition"] = sum(repetitions) / len(repetitions)
    rules_kept = list(_rules_kept(texts))
    if rules_kept:
        figures["rules"] = fmean(rules_kept)
    lengths = [len(tokenize(text)) for own_texts in texts.values() for text in own_texts]
    if lengths:
        figures["length"] = sum(lengths) / len(lengths)
    return figures


def _rules_kept(texts: Mapping[int | None, Sequence[str]]) -> Iterator[bool]:
    """Yield for each message of an agent that has exact rules (of its propositions, checked without a judge) whether it keeps them all."""
    speakers = [agent for agent in texts if agent is not None]
    for agent in Agent.objects.filter(pk__in=speakers):
        rules = rules_of(agent)
        if rules:
            for text in texts[agent.pk]:
                yield all(rule(text) for rule in rules)


def _spending(runs: Sequence[Run], messages: int) -> dict[str, float]:
    """Return what all calls of these turns used: `tokens` a message, `usd_in_all`, and `usd` (US dollars) a message.

    No `tokens` where a server did not count those of an answer; no dollars where a call is unpriced; nothing a message without messages.
    """
    calls = LLMCall.objects.filter(run__in=[run.pk for run in runs])
    uncounted = Q(input_tokens=None, status=LLMCall.Status.OK)  # what is answered in this process has 0
    token_sums = {name: Sum(name) for name in TOKENS}
    sums = calls.aggregate(
        uncounted=Count("pk", filter=uncounted),  # before the sums, which have the columns' names
        **token_sums,
        usd=Sum("cost_usd"),
        priced=Count("cost_usd"),
        calls=Count("pk"),
    )
    figures: dict[str, float] = {}
    if messages and not sums["uncounted"]:
        figures["tokens"] = sum(sums[name] or 0 for name in TOKENS) / messages
    if sums["priced"] == sums["calls"]:
        usd = float(sums["usd"] or 0)
        figures["usd_in_all"] = usd
        if messages:
            figures["usd"] = usd / messages
    return figures

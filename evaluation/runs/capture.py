"""Capture baselines: plan, judge and sum up what is asked for, now and in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import sentry_sdk

from agents.models import Agent, Channel
from evaluation.models import CHANNEL_DIMENSIONS, Baseline, EvaluationRun
from evaluation.propositions.files import load_all
from evaluation.runs.batches import see_through
from evaluation.runs.estimate import Estimate
from evaluation.runs.execute import execute, execute_as_made, with_channels
from evaluation.runs.planning import Prepared, RunSpec, make_plan, prepare_plan
from evaluation.runs.summary import RunSummary, Share, channels_of, shares_of, summarize, summarize_all, total


@dataclass(frozen=True, slots=True)
class Captured:
    """The outcome for one agent (or channel).

    Attributes:
        summary: Its run in numbers.
        resumed: Whether the run was resumed.
        held_elsewhere: Whether another process holds it.
        before: Overall score of the baseline that was current before, by the same judge; None when there was none.
        before_share: How much was scored of it.
    """

    summary: RunSummary
    resumed: bool
    held_elsewhere: bool
    before: float | None = None
    before_share: Share | None = None


def capture(
    specs: Sequence[RunSpec],
    *,
    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None,
    progress: Callable[[EvaluationRun, int], None] = lambda run, done: None,
    notice: Callable[[str], None] = lambda words: None,
) -> list[Captured]:
    """Capture a baseline per spec, going on with what an earlier attempt left unfinished (AC-6.5.7).

    Channel dimensions of agents are measured in their channels, each once for all of them. Everything is planned before anything is
    asked, so that what cannot be measured costs nothing; the rows of the later runs are made while the judge reads the first questions.

    Args:
        specs: One per agent (or channel).
        prepared: Called with runs as they are made, each once, before anything of them is asked.
        progress: Called as judgements are made.
        notice: Called with the batches that are waited for, where specs ask for batches: this returns when they are answered.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    with sentry_sdk.start_transaction(op="evaluation.baseline", name="capture baselines") as trace:
        trace.set_data("agents", [spec.target.slug for spec in specs])
        before = [overall_before(spec) for spec in specs]
        files = load_all()
        plans = [make_plan(spec, files=files) for spec in specs]
        made: list[tuple[EvaluationRun, bool]] = []

        def making() -> Iterator[list[EvaluationRun]]:
            channels: Prepared = []
            known: set[int] = set()
            for plan in plans:
                made.append(prepare_plan(plan, channels=channels))
                new = [run for run in with_channels([made[-1][0]]) if run.pk not in known]
                known.update(run.pk for run in new)
                prepared(new)
                yield new

        held = {run.pk for run in execute_as_made(making(), progress=progress, hand_back=False)}

        def go_on(ready: Sequence[EvaluationRun]) -> None:
            held.update(run.pk for run in execute(ready, progress=progress, hand_back=False))

        runs = with_channels([run for run, _ in made])
        if any(run.batch for run in runs):
            see_through(runs, go_on=go_on, notice=notice)
        stored = EvaluationRun.objects.select_related("agent", "channel").in_bulk([run.pk for run, _ in made])
        summaries = {summary.run.pk: summary for summary in summarize_all(list(stored.values()))}
        return [
            Captured(summaries[run.pk], resumed, run.pk not in held, *earlier)
            for (run, resumed), earlier in zip(made, before, strict=True)
            if run.pk in summaries  # else it was deleted meanwhile
        ]


def evaluate_agent(*, agent: Agent, **asked: Any) -> RunSummary:
    """Measure an agent now and wait for it; the run stays in the database.

    Args:
        agent: Who is measured.
        asked: Everything else a `RunSpec` says: `dimensions`, `window`, `history`, `repeats`, `hard` …

    Raises:
        ValueError: What is asked for makes no sense; says what is allowed.
        PropositionError: Proposition files cannot be used.
    """
    return capture([RunSpec(agent=agent, **asked)])[0].summary


def evaluate_channel(*, channel: Channel, **asked: Any) -> RunSummary:
    """Measure a conversation now and wait for it: voices that stay apart, and distinct ideas (S-6.4, S-6.6).

    Args:
        channel: What is measured.
        asked: Everything else a `RunSpec` says; `dimensions` default to both.

    Raises:
        ValueError: What is asked for makes no sense; says what is allowed.
        PropositionError: Proposition files cannot be used.
    """
    return capture([RunSpec(channel=channel, **{"dimensions": CHANNEL_DIMENSIONS, **asked})])[0].summary


def overall_before(spec: RunSpec) -> tuple[float | None, Share | None]:
    """Overall score and share of the newest run that is a current baseline of this agent by this judge and procedure."""
    current = Baseline.objects.filter(agent=spec.agent, judge=spec.judge_model, procedure=spec.procedure)
    newest = (
        current.order_by("-captured_at").select_related("evaluation_run").first() if spec.agent is not None else None
    )
    if newest is None:
        return None, None
    return newest.evaluation_run.overall_score, total(
        shares_of([newest.evaluation_run_id])[newest.evaluation_run_id].values()
    )


def existing(specs: Sequence[RunSpec]) -> list[Captured] | None:
    """What was measured before, when that holds for each of these specs and nothing they depend on changed since; else None.

    A baseline counts while it is the current one.
    """
    captured = []
    for spec in specs:
        run = EvaluationRun.objects.filter(
            spec_digest=make_plan(spec).spec_digest, status=EvaluationRun.Status.COMPLETED
        ).first()
        if run is None or (spec.is_baseline and not run.baselines.exists()):
            return None
        captured.append(Captured(summarize(run), resumed=False, held_elsewhere=False))
    return captured


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Sums over several evaluations.

    Attributes:
        calls: Calls of the judge, failed ones too.
        input_tokens: All that was sent, read from the prompt cache or not.
        cache_read_tokens: How many of these the prompt cache held; None in an estimate, which assumes nothing.
        cost_usd: US dollars over the priced calls; None when none has a price.
        unpriced_calls: Calls whose price is unknown; None in an estimate.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: Decimal | None
    unpriced_calls: int | None = None

    @property
    def cache_read_share(self) -> float | None:
        """Share of the input tokens that was read from the prompt cache, 0 to 1; None when nothing was sent or measured."""
        if self.cache_read_tokens is None or not self.input_tokens:
            return None
        return round(self.cache_read_tokens / self.input_tokens, 4)


def estimated(estimates: Sequence[Estimate]) -> Spending:
    """The sum of what was estimated; one unpriced part leaves no cost."""
    costs = [e.cost_usd for e in estimates]
    return Spending(
        calls=sum(e.calls for e in estimates),
        input_tokens=sum(e.input_tokens for e in estimates),
        output_tokens=sum(e.output_tokens for e in estimates),
        cost_usd=None if None in costs else sum((c for c in costs if c is not None), Decimal(0)),
    )


def spent_on(results: Sequence[Captured]) -> Spending:
    """What these evaluations used, with those of their channels, each once."""
    return summed([*(result.summary for result in results), *channels_of(result.summary for result in results)])


def summed(summaries: Iterable[RunSummary]) -> Spending:
    """What these runs used."""
    used = list({summary.run.pk: summary for summary in summaries}.values())
    costs = [summary.cost_usd for summary in used if summary.cost_usd is not None and summary.calls]
    return Spending(
        calls=sum(s.calls for s in used),
        input_tokens=sum(s.input_tokens for s in used),
        output_tokens=sum(s.output_tokens for s in used),
        cache_read_tokens=sum(s.cache_read_tokens for s in used),
        cache_write_tokens=sum(s.cache_write_tokens for s in used),
        cost_usd=sum(costs, Decimal(0)) if costs or not any(s.calls for s in used) else None,
        unpriced_calls=sum(s.unpriced_calls for s in used),
    )


def spending_json(estimate: Spending | None, actual: Spending) -> dict[str, Any]:
    """``estimate`` (null where nothing was estimated: an offline judge costs nothing) and ``actual``, each over all runs and channels."""
    return {"estimate": _as_json(estimate) if estimate else None, "actual": _as_json(actual)}


def _as_json(spent: Spending) -> dict[str, Any]:
    measured = {
        "cache_read_tokens": spent.cache_read_tokens,
        "cache_write_tokens": spent.cache_write_tokens,
        "cache_read_share": spent.cache_read_share,
        "unpriced_calls": spent.unpriced_calls,
    }
    return {
        "calls": spent.calls,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": None if spent.cost_usd is None else float(spent.cost_usd),
        **(measured if spent.cache_read_tokens is not None else {}),
    }

"""What evaluations really used, beside what was estimated before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluation.capture import Captured, channels_of
from evaluation.estimate import Estimate
from evaluation.summary import RunSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Sums over several evaluations.

    Attributes:
        calls: Calls of the judge, failed ones too.
        input_tokens: All that was sent, read from the prompt cache or not.
        cache_read_tokens: How many of these the prompt cache held; None in an estimate, which assumes nothing.
        cost_usd: US dollars over the priced calls; None when none has a price.
        unpriced_calls: Calls whose price nobody knows; None in an estimate.
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
    return summed([*(result.summary for result in results), *channels_of(results)])


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


def _as_json(found: Spending) -> dict[str, Any]:
    measured = {
        "cache_read_tokens": found.cache_read_tokens,
        "cache_write_tokens": found.cache_write_tokens,
        "cache_read_share": found.cache_read_share,
        "unpriced_calls": found.unpriced_calls,
    }
    return {
        "calls": found.calls,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "cost_usd": None if found.cost_usd is None else float(found.cost_usd),
        **(measured if found.cache_read_tokens is not None else {}),
    }

"""Figures about model calls: those of the last minutes, read from the newest rows of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db.models import Avg, Count, F, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from agents.models import LLMCall

WINDOW = timedelta(minutes=5)
KINDS = ("input", "output", "cache_read", "cache_write")


def collect() -> Iterator[Metric]:
    """Calls, tokens, cost and latency of the last five minutes. Gauges: each scrape sees the window before it."""
    calls = GaugeMetricFamily(
        "plumbline_llm_calls_5m", "Model calls of the last 5 minutes", labels=["purpose", "status", "model"]
    )
    latency = GaugeMetricFamily(
        "plumbline_llm_latency_seconds_5m", "Mean seconds of these calls", labels=["purpose", "status", "model"]
    )
    tokens = GaugeMetricFamily("plumbline_llm_tokens_5m", "Their tokens", labels=["purpose", "model", "kind"])
    cost = GaugeMetricFamily("plumbline_llm_cost_usd_5m", "What those with a price cost", labels=["purpose", "model"])
    unpriced = GaugeMetricFamily("plumbline_llm_unpriced_calls_5m", "Those without", labels=["purpose", "model"])
    recent = LLMCall.objects.filter(created_at__gte=timezone.now() - WINDOW).order_by()
    for row in recent.values("purpose", "status", "model").annotate(n=Count("pk"), mean=Avg("latency_ms")):
        labels = [row["purpose"], row["status"], row["model"]]
        calls.add_metric(labels, row["n"])
        latency.add_metric(labels, (row["mean"] or 0) / 1000)
    sums = {f"sum_{kind}": Sum(Coalesce(F(f"{kind}_tokens"), 0)) for kind in KINDS}
    of_models: Any = recent.values("purpose", "model").annotate(
        cost=Sum("cost_usd"), unpriced=Count("pk", filter=Q(cost_usd__isnull=True)), **sums
    )
    for used in of_models:
        labels = [used["purpose"], used["model"]]
        for kind in KINDS:
            tokens.add_metric([*labels, kind], used[f"sum_{kind}"])
        cost.add_metric(labels, float(used["cost"] or 0))
        unpriced.add_metric(labels, used["unpriced"])
    yield from (calls, latency, tokens, cost, unpriced)

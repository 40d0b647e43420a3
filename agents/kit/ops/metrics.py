"""Figures for Prometheus. All are looked up in the database when they are asked for, so every process gives the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from django.db.models import Count, Min, Q, Sum
from django.utils import timezone
from django.utils.module_loading import import_string
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.kit.capability import declared_list
from agents.kit.models import LLMCall, WorkerHeartbeat
from agents.kit.work.queues import work_models
from agents.kit.work.worker import alive

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WINDOW = timedelta(minutes=5)


def collect_work() -> Iterator[Metric]:
    """Yield what waits and for how long, with one query per kind of work, and how many workers there are."""
    waiting = GaugeMetricFamily("plumbline_work_waiting", "Pieces of work that wait", labels=["kind"])
    oldest = GaugeMetricFamily("plumbline_work_oldest_waiting_seconds", "Age of the oldest of them", labels=["kind"])
    workers = GaugeMetricFamily("plumbline_workers_alive", "Worker processes heard of lately", labels=["kind"])
    now = timezone.now()
    for model in work_models():
        # What waits for something else than a worker, such as the answers of a batch, is no sign that workers are missing.
        pending = model._default_manager.order_by().filter(model.leasable(), status=model.Status.PENDING)
        waits = pending.aggregate(number=Count("pk"), first=Min("created_at"))
        kind = model._meta.db_table
        age = (now - waits["first"]).total_seconds() if waits["first"] else 0.0
        waiting.add_metric([kind], waits["number"])
        oldest.add_metric([kind], max(0.0, age))  # another machine's clock may be ahead
    alive_by_kind = dict(alive().order_by().values_list("kind").annotate(n=Count("pk")))
    for (
        worker_kind
    ) in WorkerHeartbeat.Kind.values:  # also those of which none is alive: no rule fires on a series that is gone
        workers.add_metric([worker_kind], alive_by_kind.get(worker_kind, 0))
    yield from (waiting, oldest, workers)


def collect_calls() -> Iterator[Metric]:
    """Yield calls and cost of the last five minutes. They are gauges: each scrape sees the window before it."""
    calls = GaugeMetricFamily(
        "plumbline_llm_calls_5m", "Model calls of the last 5 minutes", labels=["purpose", "status", "model"]
    )
    cost = GaugeMetricFamily("plumbline_llm_cost_usd_5m", "What those with a price cost", labels=["purpose", "model"])
    unpriced = GaugeMetricFamily("plumbline_llm_unpriced_calls_5m", "Those without", labels=["purpose", "model"])
    recent = LLMCall.objects.filter(created_at__gte=timezone.now() - WINDOW).order_by()
    for row in recent.values("purpose", "status", "model").annotate(n=Count("pk")):
        calls.add_metric([row["purpose"], row["status"], row["model"]], row["n"])
    without_price = Count("pk", filter=Q(cost_usd__isnull=True))
    for used in recent.values("purpose", "model").annotate(cost=Sum("cost_usd"), unpriced=without_price):
        labels = [used["purpose"], used["model"]]
        cost.add_metric(labels, float(used["cost"] or 0))
        unpriced.add_metric(labels, used["unpriced"])
    yield from (calls, cost, unpriced)


class _Collected(Collector):
    """Looks figures up when they are asked for."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        yield from self._collect()


def exposition() -> bytes:
    """Return what the apps' `metrics_collectors` find in the database, in Prometheus' text format."""
    registry = CollectorRegistry()
    for path in declared_list("metrics_collectors"):
        registry.register(_Collected(import_string(path)))
    return generate_latest(registry)

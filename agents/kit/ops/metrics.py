"""Figures for Prometheus: requests as they are answered, work and model calls as they stand in the database."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Avg, Count, F, Min, Q, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.module_loading import import_string
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from agents.kit.capability import declared_list
from agents.kit.models import LLMCall
from agents.kit.ops.sums import TOKENS
from agents.kit.work.queues import work_models
from agents.kit.work.worker import alive


def collect_work() -> Iterator[Metric]:
    """What waits and for how long, what is being done, and by how many. One query per kind of work reads only what has not ended."""
    waiting = GaugeMetricFamily("plumbline_work_waiting", "Pieces of work that wait", labels=["kind"])
    oldest = GaugeMetricFamily("plumbline_work_oldest_waiting_seconds", "Age of the oldest of them", labels=["kind"])
    running = GaugeMetricFamily("plumbline_work_running", "Pieces of work that a worker holds", labels=["kind"])
    paused = GaugeMetricFamily("plumbline_work_paused", "Pieces of work that wait for a budget", labels=["kind"])
    lost = GaugeMetricFamily("plumbline_work_lost_leases", "Leases that ran out", labels=["kind"])
    now = timezone.now()
    for model in work_models():
        status, kind = model.Status, model._meta.db_table
        rows = model._default_manager.order_by()
        open_rows = rows.filter(status__in=(status.PENDING, status.RUNNING, status.PAUSED_BUDGET))
        per_status = open_rows.values("status").annotate(number=Count("pk"), first=Min("created_at"))
        numbers = {row["status"]: (row["number"], row["first"]) for row in per_status}
        count, first = numbers.get(status.PENDING, (0, None))
        waiting.add_metric([kind], count)
        oldest.add_metric([kind], max(0.0, (now - first).total_seconds()) if first else 0.0)
        running.add_metric([kind], numbers.get(status.RUNNING, (0, None))[0])
        paused.add_metric([kind], numbers.get(status.PAUSED_BUDGET, (0, None))[0])
        lost.add_metric([kind], rows.filter(status=status.RUNNING, lease_expires_at__lt=now).count())
    yield from (waiting, oldest, running, paused, lost)
    yield from _workers()


def _workers() -> Iterator[Metric]:
    workers = GaugeMetricFamily("plumbline_workers_alive", "Worker processes heard of lately", labels=["kind"])
    for row in alive().order_by().values("kind").annotate(n=Count("pk")):
        workers.add_metric([row["kind"]], row["n"])
    yield workers


WINDOW = timedelta(minutes=5)


def collect_calls() -> Iterator[Metric]:
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
    sums = {f"sum_{kind}": Sum(Coalesce(F(kind), 0)) for kind in TOKENS}
    of_models: Any = recent.values("purpose", "model").annotate(
        cost=Sum("cost_usd"), unpriced=Count("pk", filter=Q(cost_usd__isnull=True)), **sums
    )
    for used in of_models:
        labels = [used["purpose"], used["model"]]
        for kind in TOKENS:
            tokens.add_metric([*labels, kind.removesuffix("_tokens")], used[f"sum_{kind}"])
        cost.add_metric(labels, float(used["cost"] or 0))
        unpriced.add_metric(labels, used["unpriced"])
    yield from (calls, latency, tokens, cost, unpriced)


BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds
UNKNOWN = "(no route)"  # one label for all, so that guessed paths do not make a series each


class Instruments:
    """What is measured. Its values live in files of `METRICS_DIR`, which all processes share."""

    def __init__(self) -> None:
        Path(settings.METRICS_DIR).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "plumbline_http_request_seconds",
            "Seconds until the answer to a request began, by route",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )


@cache
def instruments() -> Instruments:
    """Those of this process, made on first use."""
    return Instruments()


class CountRequests:
    """Middleware that measures, where `METRICS_TOKEN` is set."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not settings.METRICS_TOKEN:
            return self._get_response(request)
        begun = time.perf_counter()
        response = self._get_response(request)
        mine = instruments()
        labels = (_method(request), _route(request), str(response.status_code))
        mine.seconds.labels(*labels).observe(time.perf_counter() - begun)
        return response


def _method(request: HttpRequest) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    return request.method if request.method in known else "other"


def _route(request: HttpRequest) -> str:
    match = request.resolver_match
    return f"/{match.route.lstrip('/')}" if match is not None else UNKNOWN


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Collected(Collector):
    """Figures that are looked up when they are asked for."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        yield from self._collect()


def exposition() -> bytes:
    """All figures: requests of all processes of this server, and what the apps' `metrics_collectors` find in the database."""
    registry = CollectorRegistry()
    mine = instruments().registry
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(_Collected(mine.collect))
    for path in declared_list("metrics_collectors"):
        registry.register(_Collected(import_string(path)))
    return generate_latest(registry)

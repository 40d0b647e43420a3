"""Figures about queued work and about the workers."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count, Min, Sum
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from agents.work.queues import work_models
from agents.work.worker import alive


def collect() -> Iterator[Metric]:
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
        found = {row["status"]: (row["number"], row["first"]) for row in per_status}
        count, first = found.get(status.PENDING, (0, None))
        waiting.add_metric([kind], count)
        oldest.add_metric([kind], max(0.0, (now - first).total_seconds()) if first else 0.0)
        running.add_metric([kind], found.get(status.RUNNING, (0, None))[0])
        paused.add_metric([kind], found.get(status.PAUSED_BUDGET, (0, None))[0])
        lost.add_metric([kind], rows.filter(status=status.RUNNING, lease_expires_at__lt=now).count())
    yield from (waiting, oldest, running, paused, lost)
    yield from _workers()


def _workers() -> Iterator[Metric]:
    workers = GaugeMetricFamily("plumbline_workers_alive", "Worker processes heard of lately", labels=["kind"])
    used = GaugeMetricFamily("plumbline_worker_llm_slots_in_use", "Model calls in flight in workers", labels=["kind"])
    slots = GaugeMetricFamily("plumbline_worker_llm_slots", "Model calls workers may have in flight", labels=["kind"])
    for row in alive().order_by().values("kind").annotate(n=Count("pk"), used=Sum("slots_in_use"), most=Sum("slots")):
        workers.add_metric([row["kind"]], row["n"])
        used.add_metric([row["kind"]], row["used"])
        slots.add_metric([row["kind"]], row["most"])
    yield from (workers, used, slots)

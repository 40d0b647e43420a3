"""Figures about the gate for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Count
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from correction.models import CorrectionLog

WINDOW = timedelta(minutes=5)


def collect() -> Iterator[Metric]:
    """Outcomes of the attempts of the last five minutes."""
    outcomes = GaugeMetricFamily(
        "plumbline_gate_attempts_5m",
        "Attempts at a message that the gate saw in the last 5 minutes",
        labels=["outcome"],
    )
    recent = CorrectionLog.objects.filter(created_at__gte=timezone.now() - WINDOW).order_by()
    for outcome, count in recent.values_list("outcome").annotate(n=Count("pk")):
        outcomes.add_metric([outcome], count)
    yield outcomes

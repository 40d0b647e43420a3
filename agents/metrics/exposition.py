"""The page that Prometheus reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from django.conf import settings
from django.utils.module_loading import import_string
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from agents.metrics.requests import instruments

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Collected(Collector):
    """Figures that are looked up when they are asked for."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        yield from self._collect()


def exposition() -> bytes:
    """All figures: requests of all processes of this server, and what `METRICS_COLLECTORS` find in the database."""
    registry = CollectorRegistry()
    mine = instruments().registry
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        _forget_the_dead()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(_Collected(mine.collect))
    for path in settings.METRICS_COLLECTORS:
        registry.register(_Collected(import_string(path)))
    return generate_latest(registry)


def _forget_the_dead() -> None:
    """What dead processes had in flight is in flight no more; what they had counted stays counted."""
    for file in Path(settings.METRICS_DIR).glob("gauge_live*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            file.unlink(missing_ok=True)

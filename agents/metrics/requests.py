"""Requests answered: a counter and a histogram by route and status, summed over all processes of a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from agents.llm.loop import slots_in_use

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Gauge, Histogram

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds
UNKNOWN = "(no route)"  # one label for all: whoever guesses paths must not make a series of each


class Instruments:
    """What is measured. Its values live in files of `METRICS_DIR`, which all processes share."""

    def __init__(self) -> None:
        Path(settings.METRICS_DIR).mkdir(mode=0o700, parents=True, exist_ok=True)
        from prometheus_client import CollectorRegistry, Gauge, Histogram

        self.registry: CollectorRegistry = CollectorRegistry()
        self.seconds: Histogram = Histogram(
            "plumbline_http_request_seconds",
            "Seconds until the answer to a request began, by route",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.slots: Gauge = Gauge(
            "plumbline_web_llm_slots_in_use",
            "Model calls in flight in web processes",
            multiprocess_mode="livesum",
            registry=self.registry,
        )


@cache
def instruments() -> Instruments:
    """Those of this process, made on first use: whoever has no Prometheus need not import its client."""
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
        mine.slots.set(slots_in_use()[0])
        return response


def _method(request: HttpRequest) -> str:
    known = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    return request.method if request.method in known else "other"


def _route(request: HttpRequest) -> str:
    match = request.resolver_match
    return f"/{match.route.lstrip('/')}" if match is not None else UNKNOWN

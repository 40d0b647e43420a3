"""How often one user may ask for what costs money, or the server's time."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from rest_framework.request import Request
from rest_framework.throttling import UserRateThrottle
from rest_framework.views import APIView


class Posts(UserRateThrottle):
    """At most so many POSTs a minute and user, over all routes of the same scope; reading is free.

    Counted by all web processes together where there is a Redis (`CACHE_URL`), else by each on its own.
    """

    setting: ClassVar[str]

    @property
    def cache(self) -> BaseCache:  # type: ignore[override]  # DRF's is the default cache
        return caches["throttles"]

    def get_rate(self) -> str:
        return f"{getattr(settings, self.setting)}/minute"

    def allow_request(self, request: Request, view: APIView) -> bool:
        return not self.applies_to(request.method) or super().allow_request(request, view)

    @staticmethod
    def applies_to(method: str | None) -> bool:
        return method == "POST"


class PaidRequests(Posts):
    """What may cost money and is asked for by people: evaluations, captures, turns."""

    scope = "paid"
    setting = "API_PAID_PER_MINUTE"


class Sends(Posts):
    """Drafts through the gate: agents at work ask often, and each may cost several judgements."""

    scope = "send"
    setting = "API_SENDS_PER_MINUTE"


class Ingests(Posts):
    """Batches of messages: free, but each may hold many rows."""

    scope = "ingest"
    setting = "API_INGESTS_PER_MINUTE"


class Transcripts(Posts):
    """Whole files: each is read, checked and stored while its sender waits."""

    scope = "transcript"
    setting = "API_TRANSCRIPTS_PER_MINUTE"

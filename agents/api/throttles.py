"""How often one user may ask for what costs money."""

from __future__ import annotations

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import UserRateThrottle
from rest_framework.views import APIView


class PaidRequests(UserRateThrottle):
    """At most `API_PAID_PER_MINUTE` POSTs a minute and user, over all routes that have this; reading is free.

    Counted in Django's default cache: by each web process on its own, unless the processes share one.
    """

    scope = "paid"

    def get_rate(self) -> str:
        return f"{settings.API_PAID_PER_MINUTE}/minute"

    def allow_request(self, request: Request, view: APIView) -> bool:
        return request.method != "POST" or super().allow_request(request, view)

"""The key under which a service does once what a request asks for, however often the request comes."""

from __future__ import annotations

import hashlib

from rest_framework.request import Request

from agents.api.idempotency import HEADER
from agents.turn.admission import KEY_CHARACTERS


def of(request: Request) -> str:
    """The request's ``Idempotency-Key`` as one of its user's own; empty without one.

    The stored answer is what a repeated request gets. This key is for the rest: an answer that was lost before it was stored.
    """
    sent = request.headers.get(HEADER, "")
    if not sent:
        return ""
    key = f"api:{request.user.pk}:{sent}"
    return key if len(key) <= KEY_CHARACTERS else f"api:{request.user.pk}:{hashlib.sha256(sent.encode()).hexdigest()}"

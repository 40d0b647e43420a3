"""The key under which a service does once what a request asks for, however often the request comes."""

from __future__ import annotations

import hashlib

from rest_framework.request import Request

from agents.api.idempotency import HEADER, digest
from agents.api.problems import Conflict
from agents.models import Message, Run


def of(request: Request, rows: type[Message] | type[Run]) -> str:
    """The request's ``Idempotency-Key`` as one of its user's own, with what was asked for; empty without one.

    The stored answer is what a repeated request gets, for a day. This key is for the rest: an answer that was lost before it was
    stored. What was done under it stays for ever, so that the same key with another request, even a year later, is not taken for a
    repetition, and what it brings is not lost unnoticed.

    Args:
        rows: What the request makes; they keep the key.

    Raises:
        Conflict: The key stands for another request of this user.
    """
    sent = request.headers.get(HEADER, "")
    if not sent:
        return ""
    mine = f"api:{request.user.pk}:{hashlib.sha256(sent.encode()).hexdigest()}:"
    key = mine + digest([request.get_full_path(), request.data])[:32]
    # What follows `mine` is hexadecimal. A range, not a prefix: every database has an index for it.
    near = rows.objects.filter(idempotency_key__gte=mine, idempotency_key__lt=f"{mine}g")
    used = [found for found in near.values_list("idempotency_key", "pk") if str(found[0]).startswith(mine)]
    if used and key not in dict(used):
        kind = rows._meta.verbose_name
        raise Conflict(
            f"this {HEADER} was used for another request, which made {kind} {used[0][1]}; allowed: a new key"
        )
    return key

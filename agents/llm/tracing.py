"""A Sentry span per model call: which model, how it ended, how many tokens. Never the text of a prompt or an answer."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from agents.llm.answers import Exchange
from agents.llm.requests import LLMRequest


def record(request: LLMRequest, exchange: Exchange) -> None:
    """Add a finished span to the calling thread's transaction, if there is one.

    The call ran in another thread, so its span is made afterwards, with the times at which it really ran.
    """
    sentry_sdk = sys.modules.get(
        "sentry_sdk"
    )  # imported by the settings when there is a DSN; 0.3 s that others need not pay
    if sentry_sdk is None or not sentry_sdk.get_client().is_active():
        return
    reply = exchange.reply
    start = datetime.fromtimestamp(exchange.started_at, UTC)
    under = sentry_sdk.start_span if request.span is None else request.span.start_child
    span = under(op="llm.call", name=f"llm.{request.role}", start_timestamp=start)
    for name, value in {
        "llm.model": reply.model,
        "llm.served_model": reply.served_model,
        "llm.provider": reply.provider,
        "llm.status": str(reply.status),
        "llm.purpose": request.label.purpose,
        "llm.dimension": request.label.dimension,
        "llm.attempts": reply.attempts,
        "llm.waited_ms": reply.waited_ms,
        "llm.input_tokens": reply.usage.input_tokens,
        "llm.output_tokens": reply.usage.output_tokens,
        "llm.cache_read_tokens": reply.usage.cache_read_tokens,
        "llm.cache_write_tokens": reply.usage.cache_write_tokens,
    }.items():
        if value not in (None, ""):
            span.set_data(name, value)
    span.set_status("ok" if reply.ok else "internal_error")
    span.finish(end_timestamp=start + timedelta(milliseconds=reply.latency_ms))

"""Rows of the ledger, as calls leave them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from agents.kit.models import LLMCall, ModelPrice
from agents.models import Agent


def call(
    agent: Agent | None = None,
    *,
    purpose: str = "gate",
    mechanism: str = "",
    cost: str | None = "0.01",
    at: datetime | None = None,
    **fields: Any,
) -> LLMCall:
    """A call that was made at that time (now), for so many dollars; None = unpriced."""
    row = LLMCall.objects.create(
        agent=agent,
        role="judge",
        purpose=purpose,
        mechanism=mechanism or purpose,
        provider="anthropic",
        status="ok",
        cost_usd=None if cost is None else Decimal(cost),
        **{"model": "small", "input_tokens": 100, "output_tokens": 10, **fields},
    )
    if at is not None:
        LLMCall.objects.filter(pk=row.pk).update(created_at=at)
    return row


def price(input_usd: int = 10) -> None:
    """Let a million input tokens of the tests' model cost so many dollars, and nothing else anything."""
    ModelPrice.objects.create(
        model="test-model",
        effective_from="2026-01-01",
        input_usd=input_usd,
        output_usd=0,
        cache_write_usd=0,
        cache_read_usd=0,
    )

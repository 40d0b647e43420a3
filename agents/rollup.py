"""The sums of the ledger: which columns tell them apart, what is added, and the queue that keeps them up to date."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from django.conf import settings
from django.db.models import Count, DecimalField, F, Model, Q, Sum
from django.db.models.functions import Coalesce
from django.utils.module_loading import import_string

from agents.models import LedgerAgentTotal, LedgerSum, LedgerTotal, LLMCall, Span, owner_name
from agents.rollups import Family, Rolled, Table, roll_up

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_APART = ("purpose", "mechanism", "dimension", "model", "role", "provider", "status")

CALLS = Family(
    raw=lambda: LLMCall.objects.all(),
    time="created_at",
    keys={name: F(name) for name in ("agent", *_APART)},
    sums={
        "calls": Count("pk"),
        "unpriced": Count("pk", filter=Q(cost_usd__isnull=True)),
        **{kind: Coalesce(Sum(kind), 0) for kind in TOKENS},
        "cost_usd": Coalesce(Sum("cost_usd"), Decimal(0), output_field=DecimalField(max_digits=20, decimal_places=8)),
        "latency_ms": Coalesce(Sum("latency_ms"), 0),
    },
    counted="calls",
    tables=(
        Table(LedgerSum, ("agent", *_APART), (Span.HOUR, Span.DAY)),
        Table(LedgerTotal, _APART, (Span.HOUR, Span.DAY)),
        Table(LedgerAgentTotal, ("agent",), (Span.DAY, Span.MONTH)),
    ),
)
LEDGER = Rolled(name="ledger", model=LLMCall, families=(CALLS,))

# Which tables answer what: of one agent, of everybody, and of everybody agent by agent.
OF_AN_AGENT: Mapping[int, type[Model]] = {Span.DAY: LedgerSum, Span.HOUR: LedgerSum}
OF_ALL: Mapping[int, type[Model]] = {Span.DAY: LedgerTotal, Span.HOUR: LedgerTotal}
BY_AGENT: Mapping[int, type[Model]] = {Span.MONTH: LedgerAgentTotal, Span.DAY: LedgerAgentTotal, Span.HOUR: LedgerSum}


def rollups() -> list[Rolled]:
    """Everything that is summed up (the setting ROLLUPS)."""
    return [import_string(path) for path in settings.ROLLUPS]


def sum_up() -> int:
    """Sum up what can be; how many hours were. A chore (the setting CHORES)."""
    return sum(roll_up(rolled, owner=owner_name()) for rolled in rollups())

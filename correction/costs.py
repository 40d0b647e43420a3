"""What holding personas in character costs, summed over the ledger, and the daily budgets (AC-7.3.5, AC-7.3.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, get_args

from django.db.models import Case, CharField, Count, F, Q, QuerySet, Sum, When
from django.db.models.functions import TruncDate
from django.utils import timezone

from agents.llm.endpoints import model_of, provider_of
from agents.llm.ledger import Totals
from agents.models import Agent, LLMCall
from correction.config import ResolvedConfig, resolve_config
from evaluation.windows import MessageWindow, parse_window

Grouping = Literal["mechanism", "dimension", "model", "day", "agent"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)

# Purposes in the ledger. Correction is what is spent on messages about to be said; a budget also covers measuring.
CORRECTION = ("gate", "intervention", "behavior")
BUDGETED = (*CORRECTION, "evaluation")

ALLOWED_WINDOWS = "all, or a duration such as 24h, 7d, 4w"
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_DOLLARS = Decimal("0.00000001")  # the ledger's eight decimals: SQLite sums in floating point
_KEYS: dict[Grouping, Any] = {
    "mechanism": Case(
        When(purpose__in=CORRECTION, then=Case(When(mechanism="", then=F("purpose")), default=F("mechanism"))),
        default=F("purpose"),
        output_field=CharField(),
    ),
    "dimension": F("dimension"),
    "model": F("model"),
    "day": TruncDate("created_at", tzinfo=UTC),
    "agent": F("agent__slug"),
}
TOLD_APART_BY_PURPOSE = ("mechanism", "dimension")


@dataclass(frozen=True, slots=True)
class CostRow:
    """The calls of one group.

    Attributes:
        key: What they have in common: a mechanism, dimension, model, ISO date (UTC) or agent's slug; empty = none.
        purpose: Why they were made, where rows are told apart by it (mechanism, dimension); else empty.
        name: For people, where it differs from the key.
    """

    key: str
    totals: Totals
    purpose: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class CostSummary:
    """Costs of a stretch of time.

    Attributes:
        total: Every call, whatever its purpose.
        correction: Calls of mechanisms that look at messages before they are said.
        by: Per grouping asked for, its rows: correction first, then the dearest.
    """

    window: MessageWindow
    total: Totals
    correction: Totals
    by: Mapping[Grouping, tuple[CostRow, ...]]
    agent: Agent | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What an agent's checks cost today (UTC). `unpriced` calls cost nobody knows how much, and are not in `cost_usd`."""

    cost_usd: Decimal
    unpriced: int


def get_cost_summary(
    *, agent: Agent, window: str | MessageWindow = "7d", by: Sequence[Grouping] = GROUPINGS
) -> CostSummary:
    """Sum the ledger for one agent; see `get_total_cost_summary`."""
    return _summary(LLMCall.objects.filter(agent=agent), window, by, agent)


def get_total_cost_summary(*, window: str | MessageWindow = "7d", by: Sequence[Grouping] = GROUPINGS) -> CostSummary:
    """Sum the ledger over all agents, and calls made for none; one query per grouping, and the one by mechanism in any case.

    Args:
        window: A duration back from now, ``all``, or a stretch of time.
        by: The groupings wanted.

    Raises:
        ValueError: The window or a grouping is not one; names what is allowed.
    """
    return _summary(LLMCall.objects.all(), window, by, None)


def window_of_time(spec: str, *, now: datetime | None = None) -> MessageWindow:
    """Read a window of time.

    Raises:
        ValueError: It is none; names the value and what is allowed.
    """
    try:
        window = parse_window(spec, now=now)
    except (ValueError, OverflowError):
        window = None
    if window is None or window.last is not None:
        raise ValueError(f"window {spec!r} is not understood; allowed: {ALLOWED_WINDOWS}")
    return window


def spent_today(agent: Agent, *, now: datetime | None = None) -> Spent:
    """What correcting and measuring `agent` cost since midnight UTC, in one query."""
    midnight = (now or timezone.now()).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    calls = LLMCall.objects.filter(agent=agent, created_at__gte=midnight, purpose__in=BUDGETED)
    sums = calls.order_by().aggregate(cost=Sum("cost_usd"), unpriced=Count("pk", filter=Q(cost_usd__isnull=True)))
    return Spent(_dollars(sums["cost"]), sums["unpriced"])


def over_budget(agent: Agent, config: ResolvedConfig) -> bool:
    """Whether paid checks of `agent` must stop for today: mechanisms then pass (`budget_passed`).

    False without a query unless a budget is set. A judge that is never billed (offline, replay) is not stopped: it spends nothing.
    """
    return bool(_overspent(agent, config, judge=model_of("judge")))


def evaluation_over_budget(agent: Agent, judge: str) -> str | None:
    """Why an evaluation of `agent` by `judge` must pause now; empty when there is room, None when nothing is capped.

    What `EVALUATION_BUDGET` names.
    """
    if provider_of(judge) != "anthropic":
        return None
    return _overspent(agent, resolve_config(agent), judge=judge)


def groupings(text: str) -> tuple[Grouping, ...]:
    """Groupings separated by commas.

    Raises:
        ValueError: One is none; says which there are.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in GROUPINGS:
            raise ValueError(f"by {name!r}: allowed: {', '.join(GROUPINGS)}")
    return tuple(name for name in GROUPINGS if name in names)


def _overspent(agent: Agent, config: ResolvedConfig, *, judge: str) -> str | None:
    if not config["budget_enabled"] or config["daily_budget_usd"] is None or provider_of(judge) != "anthropic":
        return None
    spent, cap = spent_today(agent), config["daily_budget_usd"]
    if spent.cost_usd < cap:
        return ""
    unpriced = f" ({spent.unpriced} unpriced calls not counted)" if spent.unpriced else ""
    return (
        f"the daily budget of {agent.slug} is used up: ${spent.cost_usd:.4f} of ${cap:.4f}{unpriced}; "
        "goes on after midnight UTC, or with a higher daily_budget_usd"
    )


def _summary(
    calls: QuerySet[LLMCall], window: str | MessageWindow, by: Sequence[Grouping], agent: Agent | None
) -> CostSummary:
    if isinstance(window, str):
        window = window_of_time(window)
    if window.start is not None:
        calls = calls.filter(created_at__gte=window.start)
    if window.end is not None:
        calls = calls.filter(created_at__lte=window.end)
    by_mechanism = _rows(calls, "mechanism")  # every call is in one of these rows: their sums are the totals
    rows = {name: by_mechanism if name == "mechanism" else _rows(calls, name) for name in by}
    return CostSummary(
        window=window,
        total=_added(row.totals for row in by_mechanism),
        correction=_added(row.totals for row in by_mechanism if row.purpose in CORRECTION),
        by=rows,
        agent=agent,
    )


def _rows(calls: QuerySet[LLMCall], grouping: Grouping) -> tuple[CostRow, ...]:
    names = {"name": F("agent__display_name")} if grouping == "agent" else {}
    told_apart = ["purpose"] if grouping in TOLD_APART_BY_PURPOSE else []
    groups = (
        calls.order_by()
        .values(*told_apart, key=_KEYS[grouping], **names)
        .annotate(
            calls=Count("pk"),
            cost=Sum("cost_usd"),
            unpriced=Count("pk", filter=Q(cost_usd__isnull=True)),
            **{f"sum_{kind}": Sum(kind) for kind in _TOKENS},
        )
    )
    rows = [
        CostRow(
            key="" if group["key"] is None else str(group["key"]),
            purpose=group.get("purpose", ""),
            name=group.get("name") or "",
            totals=Totals(
                calls=group["calls"],
                cost_usd=_dollars(group["cost"]),
                unpriced=group["unpriced"],
                **{kind: group[f"sum_{kind}"] or 0 for kind in _TOKENS},
            ),
        )
        for group in groups
    ]
    if grouping == "day":
        return tuple(sorted(rows, key=lambda row: row.key))
    return tuple(
        sorted(rows, key=lambda r: (r.purpose not in CORRECTION, -r.totals.cost_usd, -r.totals.calls, r.purpose, r.key))
    )


def _added(parts: Iterable[Totals]) -> Totals:
    chosen = list(parts)
    return Totals(
        calls=sum(p.calls for p in chosen),
        cost_usd=sum((p.cost_usd for p in chosen), Decimal(0)),
        unpriced=sum(p.unpriced for p in chosen),
        **{kind: sum(getattr(p, kind) for p in chosen) for kind in _TOKENS},
    )


def _dollars(amount: Decimal | None) -> Decimal:
    return (amount or Decimal(0)).quantize(_DOLLARS)

"""What was spent today against all daily budgets together, from sums of whole hours; `correction.costs` decides about one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from django.db.models import Count, F, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone

from agents.models import Agent
from agents.ops.sums import LEDGER, read
from correction.config import resolve_defaults
from correction.costs import BUDGETED
from correction.models import AgentEvaluationConfig

NEARLY = Decimal("0.8")  # of a budget
MOST_SPENDERS = 500  # looked at one by one: those who spent most


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDay:
    """A day (UTC) so far, in US dollars.

    Attributes:
        total: All calls; `checking` those that budgets are about: gate, interventions and measuring.
        capped: Of `checking`, what was spent by agents that have a budget, and on channels where the defaults have one.
        unpriced: Calls without a price; in none of the amounts.
        budget: All budgets added up; None where nobody has one. `budgets` is how many there are.
        used_up, nearly: How many of them are used up, and how many more are by 80 %.
    """

    total: Decimal
    checking: Decimal
    capped: Decimal
    unpriced: int
    budget: Decimal | None
    budgets: int
    used_up: int
    nearly: int


def budgets_today(*, now: datetime | None = None) -> BudgetDay:
    """What today cost and what of the budgets that is; four queries."""
    midnight = (now or timezone.now()).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    spent: dict[int | None, Decimal] = defaultdict(Decimal)
    total, unpriced = Decimal(0), 0
    keys = {"agent": F("agent"), "purpose": F("purpose")}
    for row in read(LEDGER, LEDGER.tables[0], start=midnight, raw_keys=keys, keys=keys):
        total += row["s_cost_usd"]
        unpriced += row["s_unpriced"]
        if row["k_purpose"] in BUDGETED:
            spent[row["k_agent"]] += row["s_cost_usd"]
    dearest = sorted(spent, key=lambda agent: -spent[agent])[:MOST_SPENDERS]
    caps = _caps([agent for agent in dearest if agent is not None])
    shares = [spent.get(agent, Decimal(0)) / cap if cap else Decimal(1) for agent, cap in caps.of.items()]
    return BudgetDay(
        total=total,
        checking=sum(spent.values(), Decimal(0)),
        capped=sum((spent.get(agent, Decimal(0)) for agent in caps.of), Decimal(0)),
        unpriced=unpriced,
        budget=caps.sum if caps.number else None,
        budgets=caps.number,
        used_up=sum(share >= 1 for share in shares),
        nearly=sum(NEARLY <= share < 1 for share in shares),
    )


@dataclass(frozen=True, slots=True)
class _Caps:
    """All daily budgets: how many, their sum, and those of some agents; None stands for what no agent spends, on channels."""

    number: int
    sum: Decimal
    of: dict[int | None, Decimal]


def _caps(agents: list[int]) -> _Caps:
    defaults = resolve_defaults()
    by_default = bool(defaults["budget_enabled"]) and defaults["daily_budget_usd"] is not None
    own: QuerySet[Any] = AgentEvaluationConfig.objects.filter(is_defaults=False)
    rows, path, whose = own, "", "agent"
    if by_default:  # every agent has one, unless it says otherwise
        rows, path, whose = Agent.objects.filter(is_active=True), "evaluation_config__", "pk"
    cap = Coalesce(f"{path}daily_budget_usd", Value(defaults["daily_budget_usd"]))
    on = Coalesce(f"{path}budget_enabled", Value(bool(defaults["budget_enabled"])))
    capped = rows.annotate(cap_on=on, cap=cap).filter(cap_on=True, cap__isnull=False).order_by()
    sums = capped.aggregate(number=Count("pk"), sum=Sum("cap"))
    of: dict[int | None, Decimal] = dict(capped.filter(**{f"{whose}__in": agents}).values_list(whose, "cap"))
    number, amount = sums["number"], sums["sum"] or Decimal(0)
    if by_default:
        of[None] = defaults["daily_budget_usd"]
        number, amount = number + 1, amount + defaults["daily_budget_usd"]
    return _Caps(number, amount, of)


def spent_by_day(*, since: datetime) -> dict[date, Decimal]:
    """What all calls cost, day by day (UTC), from a midnight UTC on; days without calls are left out. One query."""
    days: dict[date, Decimal] = defaultdict(Decimal)
    raw_keys, keys = ({"day": TruncDate(name, tzinfo=UTC)} for name in ("created_at", "hour"))
    for row in read(LEDGER, LEDGER.tables[0], start=since, raw_keys=raw_keys, keys=keys):
        days[row["k_day"]] += row["s_cost_usd"]
    return dict(days)

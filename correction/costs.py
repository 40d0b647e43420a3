"""What holding personas in character costs, summed over the ledger, and the daily budgets (AC-7.3.5, AC-7.3.6).

Summaries read sums of whole hours (`agents.kit.ops.sums`) and raw rows only at the edges; budgets read raw rows: they hold at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import add
from typing import Any, Literal, get_args

from django.db.models import Case, CharField, Count, Exists, F, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_serializer

from agents.kit.llm.endpoints import model_of, provider_of
from agents.kit.models import LLMBatch, LLMCall
from agents.kit.ops.sums import LEDGER, TOKENS, read
from agents.models import Agent
from correction.config.settings import ResolvedConfig, resolve_config, resolve_defaults
from correction.models import AgentEvaluationConfig
from evaluation.windows import MessageWindow, parse_window

Grouping = Literal["mechanism", "dimension", "model", "day", "agent"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)

# Purposes in the ledger. Correction is what is spent on messages about to be said; a budget also covers measuring.
CORRECTION = ("gate", "intervention", "behavior")
BUDGETED = (*CORRECTION, "evaluation", "before_after")

ALLOWED_WINDOWS = "all, or a duration such as 24h, 7d, 4w"
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
    "agent": F("agent"),
}
_SUMMED = ("s_calls", "s_unpriced", "s_cost_usd", *(f"s_{kind}" for kind in TOKENS))
BY_PURPOSE = ("mechanism", "dimension")
# Few values each: one question answers all of them.
_AT_ONCE: tuple[Grouping, ...] = ("mechanism", "dimension", "model")


class CostSums(BaseModel):
    """Calls, tokens and US dollars; `cost_usd` leaves out the `unpriced` calls."""

    model_config = ConfigDict(frozen=True)

    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Decimal
    unpriced: int = Field(description="calls whose price is not known")

    @field_serializer("cost_usd")
    def _number(self, dollars: Decimal) -> float:
        return float(dollars)


class CostRow(CostSums):
    """Sums for one key of a grouping, which stands under the grouping's name; null = none was noted."""

    by: Grouping = Field(exclude=True)
    name: str = Field("", exclude=True, description="for people, where it differs from the key")
    purpose: str = Field("", description="where a grouping tells purposes apart")
    mechanism: str | None = None
    dimension: str | None = None
    model: str | None = None
    day: date | None = None
    agent: str | None = None

    @property
    def key(self) -> str:
        """What its calls have in common: a mechanism, dimension, model, ISO date (UTC) or agent's slug; empty = none."""
        return str(getattr(self, self.by) or "")


class CostSummary(BaseModel):
    """Costs of a stretch of time; per grouping asked for its rows, correction first, then the dearest."""

    model_config = ConfigDict(frozen=True)

    agent: str | None = Field(description="null = all")
    since: AwareDatetime | None
    until: AwareDatetime | None
    total: CostSums
    correction: CostSums = Field(description="what was spent on messages about to be said")
    by: dict[str, list[CostRow]]

    def data(self) -> dict[str, Any]:
        """As API and command answer: a row has only the key of its own grouping."""
        return self.model_dump(mode="json", exclude_unset=True)


@dataclass(frozen=True, slots=True)
class Spent:
    """What an agent's checks cost today (UTC). What `unpriced` calls cost is not known, and not in `cost_usd`."""

    cost_usd: Decimal
    unpriced: int


def get_cost_summary(
    *, agent: Agent | None = None, window: str | MessageWindow = "7d", by: Sequence[Grouping] = GROUPINGS
) -> CostSummary:
    """Sum the ledger for one agent, or over all and calls made for none: one query for mechanism, dimension and model, one each for
    day and agent.

    Args:
        window: A duration back from now, ``all``, or a stretch of time.

    Raises:
        ValueError: The window or a grouping is not one; names what is allowed.
    """
    if isinstance(window, str):
        window = window_of_time(window)
    rows = _rows([name for name in _AT_ONCE if name == "mechanism" or name in by], window, agent)
    for name in by:
        if name not in rows:
            rows |= _rows([name], window, agent)
    by_mechanism = rows["mechanism"]  # every call is in one of these rows: their sums are the totals
    return CostSummary(
        agent=agent.slug if agent else None,
        since=window.start,
        until=window.end,
        total=_added(by_mechanism),
        correction=_added(row for row in by_mechanism if row.purpose in CORRECTION),
        by={name: rows[name] for name in by},
    )


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


def spent_today(agent: Agent | None, *, now: datetime | None = None) -> Spent:
    """What correcting and measuring `agent` cost since midnight UTC, in one query; None: what measuring channels did, for no agent."""
    midnight = (now or timezone.now()).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    calls = LLMCall.objects.filter(agent=agent, created_at__gte=midnight, purpose__in=BUDGETED)
    sums = calls.order_by().aggregate(cost=Sum("cost_usd"), unpriced=Count("pk", filter=Q(cost_usd__isnull=True)))
    return Spent(_dollars(sums["cost"]), sums["unpriced"])


def in_open_batches(agent: Agent | None) -> Decimal:
    """US dollars that what is out in batches will cost, by estimate: it is in the ledger on the day it is answered."""
    planned = LLMBatch.objects.filter(agent=agent, status__in=LLMBatch.OPEN).aggregate(usd=Sum("planned_usd"))
    return _dollars(planned["usd"])


def over_budget(agent: Agent | None, config: ResolvedConfig) -> bool:
    """Whether paid checks of `agent` must stop for today: mechanisms then pass (`budget_passed`).

    None: of personas that are no agents; with what measuring channels costs, all of a day have the cap of the defaults.

    False without a query unless a budget is set. A judge that is never billed (offline, replay) is not stopped: it spends nothing.
    """
    return bool(_overspent(agent, config, judge=model_of("judge")))


def evaluation_over_budget(agent: Agent | None, judge: str, *, planned: Decimal = Decimal(0)) -> str | None:
    """Why an evaluation of `agent` by `judge` must pause now; empty when there is room, None when nothing is capped.

    Evaluations of channels belong to no agent: all of a day together have the cap that the defaults give an agent.
    `planned` US dollars are about to be spent at once. What `evaluation_budget` names.
    """
    if provider_of(judge) != "anthropic":
        return None
    return _overspent(
        agent, resolve_config(agent) if agent is not None else resolve_defaults(), judge=judge, planned=planned
    )


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


def _overspent(agent: Agent | None, config: ResolvedConfig, *, judge: str, planned: Decimal = Decimal(0)) -> str | None:
    if not config.has_budget or provider_of(judge) != "anthropic":
        return None
    spent, cap = spent_today(agent), config["daily_budget_usd"]
    out = in_open_batches(agent) if spent.cost_usd < cap else Decimal(0)
    committed = spent.cost_usd + out
    if committed < cap and committed + planned <= cap:
        return ""
    unpriced = f" ({spent.unpriced} unpriced calls not counted)" if spent.unpriced else ""
    more = f", about ${out:.4f} more in open batches" if out else ""
    whose = agent.slug if agent is not None else "evaluations of channels (that of the defaults)"
    short = "is used up" if committed >= cap else f"has no room for a batch of about ${planned:.4f}"
    return (
        f"the daily budget of {whose} {short}: ${spent.cost_usd:.4f} of ${cap:.4f}{more}{unpriced}; "
        "goes on after midnight UTC, or with a higher daily_budget_usd"
    )


def _rows(groupings: Sequence[Grouping], window: MessageWindow, agent: Agent | None) -> dict[Grouping, list[CostRow]]:
    """The rows of some groupings, from one pass over the combinations of their keys."""
    whose = Q() if agent is None else Q(agent=agent)
    keys: dict[str, Any] = {name: _KEYS[name] for name in groupings}
    if any(name in BY_PURPOSE for name in groupings):
        keys |= {"purpose": F("purpose")}
    hour_keys = keys | {"day": TruncDate("hour", tzinfo=UTC)} if "day" in groupings else keys
    table, start, end = LEDGER.tables[0], window.start, window.end
    sums: dict[Grouping, dict[tuple[str, Any], list[Any]]] = {name: {} for name in groupings}
    for row in read(LEDGER, table, start=start, end=end, raw_keys=keys, keys=hour_keys, raw_where=whose, where=whose):
        part = [row[name] for name in _SUMMED]
        for name, groups in sums.items():
            group = (row["k_purpose"] if name in BY_PURPOSE else "", row[f"k_{name}"])
            groups[group] = list(map(add, groups[group], part)) if group in groups else part
    return {name: _ordered(name, groups) for name, groups in sums.items()}


def _ordered(grouping: Grouping, groups: Mapping[tuple[str, Any], list[Any]]) -> list[CostRow]:
    named: dict[Any, tuple[str, str]] = {}
    if grouping == "agent":  # looked up once each, not in every row that is added up
        agents = Agent.objects.filter(pk__in=[pk for _, pk in groups if pk is not None])
        named = {pk: (slug, name) for pk, slug, name in agents.values_list("pk", "slug", "display_name")}
    rows = []
    for (purpose, value), (calls, unpriced, cost, *tokens) in groups.items():
        key, name = named.get(value, ("", "")) if grouping == "agent" else (value, "")
        shown: dict[str, Any] = {grouping: key or None} | ({"purpose": purpose} if grouping in BY_PURPOSE else {})
        sums = dict(zip(TOKENS, tokens, strict=True), calls=calls, unpriced=unpriced, cost_usd=_dollars(cost))
        rows.append(CostRow(by=grouping, name=name, **shown, **sums))
    if grouping == "day":
        return sorted(rows, key=lambda row: row.key)
    return sorted(rows, key=lambda r: (r.purpose not in CORRECTION, -r.cost_usd, -r.calls, r.purpose, r.key))


def _added(parts: Iterable[CostSums]) -> CostSums:
    chosen, names = list(parts), CostSums.model_fields
    return CostSums(**{name: sum((getattr(p, name) for p in chosen), Decimal(0)) for name in names})


def _dollars(amount: Decimal | None) -> Decimal:
    return (amount or Decimal(0)).quantize(_DOLLARS)


NEARLY = Decimal("0.8")  # of a budget
MOST_SPENDERS = 500  # looked at one by one: those who spent most


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDay:
    """A day (UTC) so far, in US dollars.

    Attributes:
        total: All calls; `checking` those that budgets are about: gate, interventions and measuring.
        capped: Of `checking`, what was spent by agents that have a budget, and on channels where the defaults have one.
        unpriced: Calls without a price; in none of the amounts.
        budget: All budgets added up; None where there is none. `budgets` is how many there are.
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


def any_budget() -> Exists:
    """Return whether a configuration turns a budget on, as an expression."""
    return Exists(AgentEvaluationConfig.objects.filter(budget_enabled=True))


def budgets_today(*, now: datetime | None = None, end: datetime | None = None, has_budgets: bool = True) -> BudgetDay:
    """Return what today cost (up to `end`) and what of the budgets that is; four queries, or one.

    Args:
        has_budgets: False where `any_budget` is known to be false.
    """
    total, unpriced, spent, caps = _today(now, end, has_budgets=has_budgets)
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


def used_up_today() -> dict[int | None, tuple[Decimal, Decimal]]:
    """Spent and budget by key of the agents that used theirs up today (UTC); None = what measuring channels costs."""
    _, _, spent, caps = _today(None, None)
    return {agent: (spent[agent], cap) for agent, cap in caps.of.items() if spent[agent] and spent[agent] >= cap}


def _today(
    now: datetime | None, end: datetime | None, *, has_budgets: bool = True
) -> tuple[Decimal, int, dict[int | None, Decimal], _Caps]:
    """What all calls of today cost, how many were unpriced, what budgets are about by agent, and the budgets."""
    midnight = (now or timezone.now()).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    spent: dict[int | None, Decimal] = defaultdict(Decimal)
    total, unpriced = Decimal(0), 0
    keys = {"agent": F("agent"), "purpose": F("purpose")}
    columns = ("cost_usd", "unpriced")
    for row in read(LEDGER, LEDGER.tables[0], start=midnight, end=end, raw_keys=keys, keys=keys, columns=columns):
        total += row["s_cost_usd"]
        unpriced += row["s_unpriced"]
        if row["k_purpose"] in BUDGETED:
            spent[row["k_agent"]] += row["s_cost_usd"]
    if not has_budgets:
        return total, unpriced, spent, _Caps(0, Decimal(0), {})
    dearest = sorted(spent, key=lambda agent: -spent[agent])[:MOST_SPENDERS]
    return total, unpriced, spent, _caps([agent for agent in dearest if agent is not None])


@dataclass(frozen=True, slots=True)
class _Caps:
    """All daily budgets: how many, their sum, and those of some agents; None stands for what no agent spends, on channels."""

    number: int
    sum: Decimal
    of: dict[int | None, Decimal]


def _caps(agents: list[int]) -> _Caps:
    defaults = resolve_defaults()
    by_default = defaults.has_budget
    own: QuerySet[Any] = AgentEvaluationConfig.objects.filter(is_defaults=False)
    rows, path, whose = own, "", "agent"
    if by_default:  # every agent has one, unless it says otherwise
        rows, path, whose = Agent.objects.in_use(), "evaluation_config__", "pk"
    cap = Coalesce(f"{path}daily_budget_usd", Value(defaults["daily_budget_usd"]))
    on = Coalesce(f"{path}budget_enabled", Value(bool(defaults["budget_enabled"])))
    capped = rows.annotate(cap_on=on, cap=cap).filter(cap_on=True, cap__isnull=False).order_by()
    sums = capped.aggregate(number=Count("pk"), sum=Sum("cap"))
    of: dict[int | None, Decimal] = {}
    if agents:
        of = dict(capped.filter(**{f"{whose}__in": agents}).values_list(whose, "cap"))
    number, amount = sums["number"], sums["sum"] or Decimal(0)
    if by_default:
        of[None] = defaults["daily_budget_usd"]
        number, amount = number + 1, amount + defaults["daily_budget_usd"]
    return _Caps(number, amount, of)

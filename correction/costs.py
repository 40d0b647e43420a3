"""Sum what holding personas in character costs over the ledger, and compare it with the daily budgets (AC-7.3.5, AC-7.3.6).

Summaries read sums of whole hours (`agents.kit.ops.sums`) and raw rows only at the edges; budgets read raw rows: they hold at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, get_args

from django.db.models import Case, CharField, Count, Exists, F, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_serializer

from agents.kit.llm.endpoints import model_of
from agents.kit.llm.providers import is_priced
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
BUDGETED = (*CORRECTION, "evaluation", "before_after", "sentinel", "few-shot")

ALLOWED_WINDOWS = "all, or a duration such as 24h, 7d, 4w"
_SMALLEST_AMOUNT = Decimal("0.00000001")  # the ledger's eight decimals: SQLite sums in floating point
_GROUP_KEYS: dict[Grouping, Any] = {
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
_SUM_NAMES = ("calls", "unpriced", "cost_usd", *TOKENS)
BY_PURPOSE = ("mechanism", "dimension")  # groupings that tell purposes apart
# Few values each: one query answers all of them.
_IN_ONE_QUERY: tuple[Grouping, ...] = ("mechanism", "dimension", "model")


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
        """Return what its calls have in common: a mechanism, dimension, model, ISO date (UTC) or agent's slug; empty = none."""
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
        """Return what API and command answer: a row has only the key of its own grouping."""
        return self.model_dump(mode="json", exclude_unset=True)


@dataclass(frozen=True, slots=True)
class Spent:
    """What an agent's checks cost today (UTC). What `unpriced` calls cost is not known, and not in `cost_usd`."""

    cost_usd: Decimal
    unpriced: int


def get_cost_summary(
    *, agent: Agent | None = None, window: str | MessageWindow = "7d", by: Sequence[Grouping] = GROUPINGS
) -> CostSummary:
    """Sum the ledger for one agent, or over all agents and the calls made for none.

    One query for mechanism, dimension and model, one each for day and agent.

    Args:
        agent: None: all agents, and the calls made for none.
        window: A duration back from now, ``all``, or a stretch of time.
        by: By what rows are wanted.

    Raises:
        ValueError: The window or a grouping is not one; names what is allowed.
    """
    if isinstance(window, str):
        window = window_of_time(window)
    # Mechanism always: the totals are summed from its rows.
    together = [grouping for grouping in _IN_ONE_QUERY if grouping == "mechanism" or grouping in by]
    rows = _rows_by_grouping(together, window, agent)
    for grouping in by:
        if grouping not in rows:
            rows |= _rows_by_grouping([grouping], window, agent)
    by_mechanism = rows["mechanism"]  # every call is in one of these rows: their sums are the totals
    return CostSummary(
        agent=agent.slug if agent else None,
        since=window.start,
        until=window.end,
        total=_total_of(by_mechanism),
        correction=_total_of(row for row in by_mechanism if row.purpose in CORRECTION),
        by={grouping: rows[grouping] for grouping in by},
    )


def window_of_time(spec: str) -> MessageWindow:
    """Read a window of time: ``all``, or a duration back from now such as ``24h``.

    Raises:
        ValueError: It is none, or a number of messages (`last`), which is no time; names the value and what is allowed.
    """
    try:
        window = parse_window(spec)
    except (ValueError, OverflowError):
        window = None
    if window is None or window.last is not None:
        raise ValueError(f"window {spec!r} is not understood; allowed: {ALLOWED_WINDOWS}")
    return window


def spent_today(agent: Agent | None) -> Spent:
    """Return what correcting and measuring `agent` cost since midnight UTC, in one query; for None, what measuring channels cost."""
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    calls = LLMCall.objects.filter(agent=agent, created_at__gte=midnight, purpose__in=BUDGETED)
    sums = calls.order_by().aggregate(cost=Sum("cost_usd"), unpriced=Count("pk", filter=Q(cost_usd__isnull=True)))
    return Spent(_exact_dollars(sums["cost"]), sums["unpriced"])


def in_open_batches(agent: Agent | None) -> Decimal:
    """Return the estimated US dollars of open batches, which are in the ledger only when they are answered."""
    planned = LLMBatch.objects.filter(agent=agent, status__in=LLMBatch.OPEN).aggregate(usd=Sum("planned_usd"))
    return _exact_dollars(planned["usd"])


def over_budget(agent: Agent | None, config: ResolvedConfig) -> bool:
    """Return whether paid checks of `agent` must stop for today: mechanisms then let messages through (`budget_passed`).

    False without a query unless a budget is set. A judge that is never billed (offline, replay) is not stopped: it spends nothing.

    Args:
        agent: None for personas that are no agents; all of a day have, with what measuring channels costs, the cap of the defaults.
    """
    return bool(_reason_to_stop(agent, config, judge=model_of("judge")))


def evaluation_over_budget(agent: Agent | None, judge: str, *, planned: Decimal = Decimal(0)) -> str | None:
    """Return why an evaluation of `agent` by `judge` must pause now; empty when there is room, None when nothing is capped.

    Nothing is capped without a budget, or for a judge that costs nothing. `apps.py` names this function for evaluations, which
    import nothing of correction.

    Args:
        agent: None for evaluations of channels: all of a day together have the cap that the defaults give an agent.
        planned: US dollars that are about to be spent at once.
    """
    if not is_priced(judge):
        return None
    config = resolve_config(agent) if agent is not None else resolve_defaults()
    return _reason_to_stop(agent, config, judge=judge, planned=planned)


def groupings(text: str) -> tuple[Grouping, ...]:
    """Return the groupings in a text that separates them by commas, each once, in the order of `GROUPINGS`.

    Raises:
        ValueError: One is none; says which there are.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in GROUPINGS:
            raise ValueError(f"by {name!r}: allowed: {', '.join(GROUPINGS)}")
    return tuple(name for name in GROUPINGS if name in names)


def _reason_to_stop(
    agent: Agent | None, config: ResolvedConfig, *, judge: str, planned: Decimal = Decimal(0)
) -> str | None:
    """Return why no more may be spent today (UTC); empty when there is room, None when nothing is capped.

    Open batches count with their estimate. A judge that costs nothing is not capped.

    Args:
        agent: None: what measuring channels costs, against the cap of the defaults.
        planned: US dollars that are about to be spent at once.
    """
    if not config.has_budget or not is_priced(judge):
        return None
    cap = config["daily_budget_usd"]
    spent = spent_today(agent)
    in_batches = Decimal(0)
    if spent.cost_usd < cap:  # else they change nothing, and the query is spared
        in_batches = in_open_batches(agent)
    committed = spent.cost_usd + in_batches
    if committed >= cap:
        state = "is used up"
    elif committed + planned > cap:
        state = f"has no room for about ${planned:.4f} more"
    else:
        return ""
    whose = agent.display_name if agent is not None else "evaluations of channels (that of the defaults)"
    amounts = f"${spent.cost_usd:.4f} of ${cap:.4f}"
    if in_batches:
        amounts += f", about ${in_batches:.4f} more in open batches"
    if spent.unpriced:
        amounts += f" ({spent.unpriced} unpriced calls not counted)"
    return (
        f"the daily budget of {whose} {state}: {amounts}; goes on after midnight UTC, or with a higher daily_budget_usd"
    )


def _rows_by_grouping(
    groupings: Sequence[Grouping], window: MessageWindow, agent: Agent | None
) -> dict[Grouping, list[CostRow]]:
    """Return the rows of some groupings, from one query over the combinations of their keys.

    Args:
        agent: None: all agents, and the calls made for none.
    """
    raw_keys: dict[str, Any] = {grouping: _GROUP_KEYS[grouping] for grouping in groupings}
    if any(grouping in BY_PURPOSE for grouping in groupings):
        raw_keys["purpose"] = F("purpose")
    keys = dict(raw_keys)
    if "day" in groupings:  # a row of sums has its hour instead of the moment of a call
        keys["day"] = TruncDate("hour", tzinfo=UTC)
    where = Q() if agent is None else Q(agent=agent)
    combinations = read(
        LEDGER,
        LEDGER.tables[0],
        start=window.start,
        end=window.end,
        raw_keys=raw_keys,
        keys=keys,
        raw_where=where,
        where=where,
    )
    return {grouping: _rows_of(grouping, combinations) for grouping in groupings}


def _rows_of(grouping: Grouping, combinations: Iterable[Mapping[str, Any]]) -> list[CostRow]:
    """Return the rows of one grouping, correction first, then the dearest; days in their order. A deleted agent has no slug."""
    groups = _added_by_group(grouping, combinations)
    agents: dict[int, Agent] = {}
    if grouping == "agent":
        keys = {group.key for group in groups if group.key is not None}
        agents = Agent.objects.only("slug", "display_name").in_bulk(keys)
    rows = []
    for group, sums in groups.items():
        columns: dict[str, Any] = {**sums, "cost_usd": _exact_dollars(sums["cost_usd"]), grouping: group.key or None}
        if grouping in BY_PURPOSE:
            columns["purpose"] = group.purpose
        if grouping == "agent":
            agent = agents.get(group.key)
            columns["agent"] = agent.slug if agent is not None else None
            columns["name"] = agent.display_name if agent is not None else ""
        rows.append(CostRow(by=grouping, **columns))
    if grouping == "day":
        return sorted(rows, key=lambda row: row.key)
    return sorted(rows, key=_correction_first)


@dataclass(frozen=True, slots=True)
class _Group:
    """What the calls of a row have in common; the purpose is empty where the grouping does not tell purposes apart."""

    purpose: str
    key: Any


def _added_by_group(grouping: Grouping, combinations: Iterable[Mapping[str, Any]]) -> dict[_Group, dict[str, Any]]:
    """Add up the sums of the combinations that belong to the same row: of the same key, and of the same purpose where that is a key.

    Args:
        combinations: Rows with ``k_NAME`` for each key and ``s_NAME`` for each sum.
    """
    groups: dict[_Group, dict[str, Any]] = {}
    for combination in combinations:
        purpose = combination["k_purpose"] if grouping in BY_PURPOSE else ""
        group = _Group(purpose, combination[f"k_{grouping}"])
        sums = groups.setdefault(group, dict.fromkeys(_SUM_NAMES, 0))
        for name in _SUM_NAMES:
            sums[name] += combination[f"s_{name}"]
    return groups


def _correction_first(row: CostRow) -> tuple[bool, Decimal, int, str, str]:
    """Return the key that sorts correction first, then the dearest."""
    return row.purpose not in CORRECTION, -row.cost_usd, -row.calls, row.purpose, row.key


def _total_of(rows: Iterable[CostSums]) -> CostSums:
    """Return the sums of some rows."""
    total: dict[str, Any] = dict.fromkeys(CostSums.model_fields, 0)
    for row in rows:
        for name in total:
            total[name] += getattr(row, name)
    return CostSums(**total)


def _exact_dollars(amount: Decimal | None) -> Decimal:
    """Return an amount with the decimals of the ledger; nothing summed is 0."""
    return (amount or Decimal(0)).quantize(_SMALLEST_AMOUNT)


NEARLY_USED_UP = Decimal("0.8")  # of a budget
MOST_SPENDERS = 500  # agents whose budgets are compared with what they spent: those who spent most


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


def budgets_today(*, end: datetime | None = None, has_budgets: bool = True) -> BudgetDay:
    """Return what today (UTC) cost, and what of the budgets that is; four queries, or one.

    Which budgets are used up is looked at for the 500 agents that spent most; the budgets of the others are only counted and summed.

    Args:
        end: Up to when costs count; None: up to now.
        has_budgets: False where `any_budget` is known to be false.
    """
    spending = _spending_today(end)
    budgets = _Budgets()
    if has_budgets:
        budgets = _budgets_of(spending.largest_spenders)
    capped = Decimal(0)
    used_up = nearly = 0
    for agent, cap in budgets.of_agents.items():
        spent = spending.checking.get(agent, Decimal(0))
        capped += spent
        if spent >= cap:  # also where the cap is 0
            used_up += 1
        elif spent >= NEARLY_USED_UP * cap:
            nearly += 1
    return BudgetDay(
        total=spending.total,
        checking=sum(spending.checking.values(), Decimal(0)),
        capped=capped,
        unpriced=spending.unpriced,
        budget=budgets.sum if budgets.number else None,
        budgets=budgets.number,
        used_up=used_up,
        nearly=nearly,
    )


@dataclass(frozen=True, slots=True)
class UsedUpBudget:
    """What was spent today (UTC) of a daily budget that is used up, in US dollars."""

    spent: Decimal
    cap: Decimal


def used_up_today() -> dict[int | None, UsedUpBudget]:
    """Return the used up budgets by the key of their agent; None = what measuring channels costs."""
    spending = _spending_today(end=None)
    used_up: dict[int | None, UsedUpBudget] = {}
    for agent, cap in _budgets_of(spending.largest_spenders).of_agents.items():
        spent = spending.checking.get(agent, Decimal(0))
        if spent and spent >= cap:
            used_up[agent] = UsedUpBudget(spent, cap)
    return used_up


@dataclass(frozen=True, slots=True)
class _Spending:
    """What the calls of today cost.

    Attributes:
        total: All calls, in US dollars.
        unpriced: How many calls have no price; they are in no amount.
        checking: What budgets are about, by agent; None stands for what no agent spends, on channels.
    """

    total: Decimal
    unpriced: int
    checking: Mapping[int | None, Decimal]

    @property
    def largest_spenders(self) -> list[int]:
        """Return the agents that spent most."""
        dearest = sorted(self.checking, key=lambda agent: -self.checking[agent])[:MOST_SPENDERS]
        return [agent for agent in dearest if agent is not None]


def _spending_today(end: datetime | None) -> _Spending:
    """Return what the calls since midnight UTC cost: in all, unpriced ones, and by agent what counts against budgets.

    Args:
        end: Up to when; None: up to now.
    """
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    keys = {"agent": F("agent"), "purpose": F("purpose")}
    columns = ("cost_usd", "unpriced")
    total = Decimal(0)
    unpriced = 0
    checking: dict[int | None, Decimal] = defaultdict(Decimal)
    for row in read(LEDGER, LEDGER.tables[0], start=midnight, end=end, raw_keys=keys, keys=keys, columns=columns):
        total += row["s_cost_usd"]
        unpriced += row["s_unpriced"]
        if row["k_purpose"] in BUDGETED:
            checking[row["k_agent"]] += row["s_cost_usd"]
    return _Spending(total, unpriced, dict(checking))


@dataclass(frozen=True, slots=True)
class _Budgets:
    """All daily budgets, in US dollars: how many, their sum, and those of some agents; None stands for measuring channels."""

    number: int = 0
    sum: Decimal = Decimal(0)
    of_agents: Mapping[int | None, Decimal] = field(default_factory=dict)


def _budgets_of(agents: Collection[int]) -> _Budgets:
    """Count and sum all budgets, and read those of these agents.

    Where the defaults set a budget measuring channels has one, too: it is under None in `of_agents`.
    """
    defaults = resolve_defaults()
    rows: QuerySet[Any]
    if defaults.has_budget:  # then every agent has one, unless its own row says otherwise
        rows = Agent.objects.in_use()
        path_to_config = "evaluation_config__"
        agent_key = "pk"
    else:  # then only an agent whose own row sets one has one
        rows = AgentEvaluationConfig.objects.filter(is_defaults=False)
        path_to_config = ""
        agent_key = "agent"
    capped = rows.annotate(
        is_capped=Coalesce(f"{path_to_config}budget_enabled", Value(bool(defaults["budget_enabled"]))),
        cap=Coalesce(f"{path_to_config}daily_budget_usd", Value(defaults["daily_budget_usd"])),
    )
    capped = capped.filter(is_capped=True, cap__isnull=False).order_by()
    all_budgets = capped.aggregate(number=Count("pk"), sum=Sum("cap"))
    number = all_budgets["number"]
    total = all_budgets["sum"] or Decimal(0)
    of_agents: dict[int | None, Decimal] = {}
    if agents:
        of_agents = dict(capped.filter(**{f"{agent_key}__in": agents}).values_list(agent_key, "cap"))
    if defaults.has_budget:
        of_agents[None] = defaults["daily_budget_usd"]
        number += 1
        total += defaults["daily_budget_usd"]
    return _Budgets(number, total, of_agents)

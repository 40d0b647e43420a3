"""What the gate did, in numbers (AC-7.0.13, AC-7.0.14). The values are what the API answers.

Two aggregates in the database, over sums of whole hours (`agents.kit.ops.sums`) and over raw rows only at the edges of a window. Marks
of people are not summed: they come later than the rows, are few, and have an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import BooleanField, Count, Exists, ExpressionWrapper, F, FloatField, OuterRef, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, computed_field

from agents.kit.ops.sums import HourlySums, Rolled, read
from agents.models import Agent
from correction.costs import window_of_time
from correction.models import (
    AttemptHour,
    CorrectionLog,
    DimensionHour,
    GateDimensionResult,
    GateSession,
    Outcome,
    synthetic_logs,
)
from evaluation.models import is_heuristic
from evaluation.windows import MessageWindow

Status = GateDimensionResult.Status
UNJUDGED = (Status.TIMEOUT, Status.OVERLOAD, Status.ERROR, Status.UNSCORED, Status.BUDGET)
_FIRST = Q(attempt=1)
_JUDGED = Q(score_sum__isnull=False) | Q(outcome=Outcome.PASSED)
_SCORED = Q(status=Status.SCORED)
_SENT = Q(log__attempt=F("log__session__sent"))


def _scores(of: Q) -> Coalesce:
    return Coalesce(Sum("score", filter=_SCORED & of), 0.0, output_field=FloatField())


ATTEMPTS = HourlySums(
    table=AttemptHour,
    raw=lambda: CorrectionLog.objects.all(),
    time="created_at",
    keys={
        "agent": F("session__agent"),
        "source": F("session__source"),
        "synthetic": Coalesce("session__channel__synthetic", False),
        "outcome": F("outcome"),
    },
    sums={
        "attempts": Count("pk"),
        "firsts": Count("pk", filter=_FIRST),
        "firsts_judged": Count("pk", filter=_FIRST & _JUDGED),
        "failed": Count("pk", filter=Exists(GateDimensionResult.objects.filter(log=OuterRef("pk"), passed=False))),
    },
    counted="attempts",
)
VERDICTS = HourlySums(
    table=DimensionHour,
    raw=lambda: GateDimensionResult.objects.all(),
    time="log__created_at",
    keys={
        "agent": F("log__session__agent"),
        "source": F("log__session__source"),
        "synthetic": Coalesce("log__session__channel__synthetic", False),
        "dimension": F("dimension"),
        "judge": F("log__judge"),
    },
    sums={
        "checks": Count("pk"),
        "scored": Count("pk", filter=_SCORED),
        "failures": Count("pk", filter=Q(passed=False)),
        "first_failures": Count("pk", filter=Q(passed=False, log__attempt=1)),
        "score_sum": _scores(Q()),
        "first_scored": Count("pk", filter=_SCORED & Q(log__attempt=1)),
        "first_score_sum": _scores(Q(log__attempt=1)),
        "committed_scored": Count("pk", filter=_SCORED & _SENT),
        "committed_score_sum": _scores(_SENT),
        **{f"were_{status}": Count("pk", filter=Q(status=status)) for status in UNJUDGED},
    },
    counted="checks",
)
GATE = Rolled(name="gate", model=CorrectionLog, tables=(ATTEMPTS, VERDICTS))


WINDOW = timedelta(minutes=5)


def collect() -> Iterator[Metric]:
    """Outcomes of the attempts of the last five minutes."""
    outcomes = GaugeMetricFamily(
        "plumbline_gate_attempts_5m",
        "Attempts at a message that the gate saw in the last 5 minutes",
        labels=["outcome"],
    )
    recent = CorrectionLog.objects.filter(created_at__gte=timezone.now() - WINDOW).order_by()
    for outcome, count in recent.values_list("outcome").annotate(n=Count("pk")):
        outcomes.add_metric([outcome], count)
    yield outcomes


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class JudgeMeans(_Figures):
    """Mean scores (0 to 9) by one judge; null where nothing was scored. Scores of different judges never share a mean."""

    judge: str
    scored: int
    mean: float | None
    mean_first: float | None
    mean_committed: float | None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def heuristic(self) -> bool:
        return is_heuristic(self.judge)


class DimensionStatistics(_Figures):
    """One dimension over all checks of one kind."""

    checks: int = Field(0, description="attempts in which it was checked")
    scored: int = Field(0, description="of them, those with a score of their own")
    failures: int = 0
    first_failures: int = Field(0, description="first drafts that failed it")
    unjudged: dict[str, int] = Field({}, description="how many could not be judged, by why")
    by_judge: tuple[JudgeMeans, ...] = ()

    @property
    def mean_first(self) -> float | None:
        """Mean score of first drafts; None also where several judges scored."""
        return self.by_judge[0].mean_first if len(self.by_judge) == 1 else None

    @property
    def mean_committed(self) -> float | None:
        """Mean score of what was said; None also where several judges scored."""
        return self.by_judge[0].mean_committed if len(self.by_judge) == 1 else None


class Checks(_Figures):
    """Checks that held nothing back: of messages sent already, or of drafts of other programs, each attempt one check."""

    total: int = 0
    passed: int = 0
    dimensions: dict[str, DimensionStatistics] = {}


class GateStatistics(_Figures):
    """What the gate did in a window.

    A retry is no message of its own: five messages of which one took three drafts have a success rate of 4/5, not 4/7. What could not be
    judged is in neither number of a rate, but in `total_actions`. `timeouts` to `over_budget` are drafts that passed because not
    everything could be judged. `observed` and `external` checks are in no other number.
    """

    agent: str | None = Field(None, description="slug; null = all")
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    total_actions: int = Field(0, description="messages, each once however many drafts it took")
    judged_count: int = Field(0, description="of them, those whose first draft was judged on some dimension")
    original_pass_count: int = Field(0, description="messages whose first draft was judged and failed nothing")
    regeneration_count: int = Field(0, description="drafts after the first ones")
    passed_after_retry_count: int = 0
    forced_through_count: int = Field(0, description="messages sent with their best attempt because none passed")
    abandoned: int = Field(0, description="messages the agent gave up after a draft was sent back")
    timeouts: int = 0
    overloads: int = 0
    errors: int = 0
    unscored: int = 0
    over_budget: int = 0
    dimensions: dict[str, DimensionStatistics] = {}
    observed: Checks = Checks()
    external: Checks = Checks()

    @computed_field(description="original_pass_count ÷ judged_count, 0 to 1; null where nothing was judged")  # type: ignore[prop-decorator]
    @property
    def original_success_rate(self) -> float | None:
        return self.original_pass_count / self.judged_count if self.judged_count else None

    @computed_field(description="forced through ÷ (forced through + passed after a retry), 0 to 1")  # type: ignore[prop-decorator]
    @property
    def regeneration_failure_rate(self) -> float | None:
        ended = self.forced_through_count + self.passed_after_retry_count
        return self.forced_through_count / ended if ended else None


Source = GateSession.Source
PASSED_UNJUDGED = {
    "timeouts": Outcome.TIMEOUT_PASSED,
    "overloads": Outcome.OVERLOAD_PASSED,
    "errors": Outcome.ERROR_PASSED,
    "unscored": Outcome.UNSCORED_PASSED,
    "over_budget": Outcome.BUDGET_PASSED,
}
_PASSING = (Outcome.PASSED, *PASSED_UNJUDGED.values())
_ENDINGS = {
    Outcome.PASSED_AFTER_RETRY: "passed_after_retry_count",
    Outcome.FORCED_THROUGH: "forced_through_count",
    Outcome.ABANDONED: "abandoned",
    **{outcome: name for name, outcome in PASSED_UNJUDGED.items()},
}


def get_gate_statistics(
    agent: Agent | None = None,
    window: str | MessageWindow = "all",
    *,
    synthetic: bool = False,
    by_dimension: bool = True,
) -> GateStatistics:
    """Statistics of one agent's gate, or of all.

    Args:
        window: ``all`` or a duration such as ``24h``, ``7d``, ``4w``.
        synthetic: Of simulations in synthetic channels instead of real messages; the two are never mixed.
        by_dimension: Whether `dimensions` are wanted, which take a second query.

    Raises:
        ValueError: The window is not one; names what is allowed.
    """
    stretch = window_of_time(window) if isinstance(window, str) else window
    attempts = _sums(ATTEMPTS, ("source", "outcome"), agent, stretch, synthetic=synthetic)
    verdicts = (
        _sums(VERDICTS, ("source", "dimension", "judge"), agent, stretch, synthetic=synthetic) if by_dimension else []
    )
    return _statistics(agent, stretch, _counts(attempts), _dimensions(verdicts))


def _statistics(
    agent: Agent | None,
    window: MessageWindow,
    totals: Mapping[str, Mapping[str, int]],
    dimensions: Mapping[str, dict[str, DimensionStatistics]],
) -> GateStatistics:
    """Put together what was counted by source."""
    apart = {
        source: Checks(
            total=_checks(totals[source]),
            passed=_checks(totals[source]) - totals[source]["failed"],
            dimensions=dimensions.get(source, {}),
        )
        for source in (Source.OBSERVE, Source.EXTERNAL)
        if source in totals
    }
    return GateStatistics(
        agent=agent.slug if agent else None,
        since=window.start,
        until=window.end,
        dimensions=dimensions.get(Source.GATE, {}),
        observed=apart.get(Source.OBSERVE, Checks()),
        external=apart.get(Source.EXTERNAL, Checks()),
        # That a draft of the gate's failed something, its outcome says.
        **{name: count for name, count in totals.get(Source.GATE, {}).items() if name != "failed"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatelyAtTheGate:
    """Statistics of all agents without dimensions: of real messages in two windows, and of simulations in the shorter one."""

    day: GateStatistics
    week: GateStatistics
    synthetic_day: GateStatistics


def lately_at_the_gate(*, day: datetime, week: datetime, end: datetime | None) -> LatelyAtTheGate:
    """Return what the gate did lately, in one query.

    Args:
        day, week: When the windows begin: full hours, `week` before `day`.
        end: When both end; None for now.
    """
    attempts = read(
        GATE,
        ATTEMPTS,
        start=week,
        end=end,
        raw_keys={**{key: ATTEMPTS.keys[key] for key in _LATELY_KEYS}, "is_of_day": _is(created_at__gte=day)},
        keys={**{key: F(key) for key in _LATELY_KEYS}, "is_of_day": _is(hour__gte=day)},
    )

    def statistics(start: datetime, *, synthetic: bool) -> GateStatistics:
        rows = [row for row in attempts if bool(row["k_synthetic"]) == synthetic]
        if start == day:
            rows = [row for row in rows if row["k_is_of_day"]]
        return _statistics(None, MessageWindow(start=start, end=end), _counts(rows), {})

    return LatelyAtTheGate(
        day=statistics(day, synthetic=False),
        week=statistics(week, synthetic=False),
        synthetic_day=statistics(day, synthetic=True),
    )


_LATELY_KEYS = ("source", "outcome", "synthetic")


def _is(**condition: Any) -> ExpressionWrapper[Q]:
    return ExpressionWrapper(Q(**condition), output_field=BooleanField())


def _sums(
    table: HourlySums,
    keys: Sequence[str],
    agent: Agent | None,
    window: MessageWindow,
    *,
    synthetic: bool,
) -> list[dict[str, Any]]:
    """Sums of the gate's logs, or of their verdicts."""
    prefix = "log__" if table is VERDICTS else ""
    whose = Q() if agent is None else Q(agent=agent)
    raw_whose = Q() if agent is None else Q(**{f"{prefix}session__agent": agent})
    return read(
        GATE,
        table,
        start=window.start,
        end=window.end,
        raw_keys={key: table.keys[key] for key in keys},
        keys={key: F(key) for key in keys},
        raw_where=raw_whose & (synthetic_logs(prefix) if synthetic else ~synthetic_logs(prefix)),
        where=Q(synthetic=synthetic) & whose,
    )


def _checks(counts: Mapping[str, int]) -> int:
    """Every attempt: whether another program sent a draft that was sent back is not known here."""
    return counts["total_actions"] + counts["regeneration_count"]


def _counts(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts of logged attempts by source, from their sums by source and outcome."""
    by_source: dict[str, Counter[str]] = {}
    for row in rows:
        counts, outcome = by_source.setdefault(row["k_source"], Counter()), row["k_outcome"]
        counts["total_actions"] += row["s_firsts"]
        counts["judged_count"] += row["s_firsts_judged"]
        counts["failed"] += row["s_failed"]
        counts["regeneration_count"] += row["s_attempts"] - row["s_firsts"]
        if outcome in _PASSING:
            counts["original_pass_count"] += row["s_firsts_judged"]
        if outcome in _ENDINGS:
            counts[_ENDINGS[outcome]] += row["s_attempts"]
    return {source: dict(counts) for source, counts in by_source.items()}


def _dimensions(verdicts: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, DimensionStatistics]]:
    """Per source and dimension; judges stay apart."""
    by_source: dict[str, dict[str, dict[str, Counter[str]]]] = {}
    for row in verdicts:
        judges = by_source.setdefault(row["k_source"], {}).setdefault(row["k_dimension"], {})
        sums = {name.removeprefix("s_"): value for name, value in row.items() if name.startswith("s_")}
        judges.setdefault(row["k_judge"], Counter()).update(sums)
    return {
        source: {dimension: _dimension(by[dimension]) for dimension in sorted(by)} for source, by in by_source.items()
    }


def _dimension(judges: Mapping[str, Counter[str]]) -> DimensionStatistics:
    counts = {
        name: sum(sums[name] for sums in judges.values()) for name in ("checks", "scored", "failures", "first_failures")
    }
    unjudged = {str(status): sum(sums[f"were_{status}"] for sums in judges.values()) for status in UNJUDGED}
    return DimensionStatistics(
        unjudged={status: number for status, number in unjudged.items() if number},
        by_judge=tuple(_means(judge, judges[judge]) for judge in sorted(judges) if judges[judge]["scored"]),
        **counts,
    )


def _means(judge: str, sums: Counter[str]) -> JudgeMeans:
    def mean(which: str) -> float | None:
        number = sums[f"{which}scored"]
        return sums[f"{which}score_sum"] / number if number else None

    return JudgeMeans(
        judge=judge, scored=sums["scored"], mean=mean(""), mean_first=mean("first_"), mean_committed=mean("committed_")
    )

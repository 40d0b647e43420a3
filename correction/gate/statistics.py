"""What the gate did, in numbers (AC-7.0.13, AC-7.0.14). The values are what the API answers.

Two aggregates in the database, over sums of whole hours (`agents.kit.ops.sums`) and over raw rows only at the edges of a window. Marks
of people are not summed: they come later than the rows, are few, and have an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Count, Exists, F, FloatField, OuterRef, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, computed_field

from agents.kit.ops.sums import HourlySums, SummedRows, read
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
_IS_FIRST_DRAFT = Q(attempt=1)
_IS_JUDGED = Q(score_sum__isnull=False) | Q(outcome=Outcome.PASSED)
_IS_SCORED = Q(status=Status.SCORED)
_IS_OF_FIRST_DRAFT = Q(log__attempt=1)
_IS_OF_SENT_DRAFT = Q(log__attempt=F("log__session__sent"))


_WEIGHT = F("log__session__inclusion_weight")


def _score_sum(condition: Q) -> Coalesce:
    """Return an expression for the sum of the scores of these verdicts, each times its weight."""
    return Coalesce(Sum(F("score") * _WEIGHT, filter=_IS_SCORED & condition), 0.0, output_field=FloatField())


def _score_weight(condition: Q) -> Coalesce:
    """Return an expression for the sum of the weights of these verdicts' scores."""
    return Coalesce(Sum(_WEIGHT, filter=_IS_SCORED & condition), 0.0, output_field=FloatField())


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
        "firsts": Count("pk", filter=_IS_FIRST_DRAFT),
        "firsts_judged": Count("pk", filter=_IS_FIRST_DRAFT & _IS_JUDGED),
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
        "scored": Count("pk", filter=_IS_SCORED),
        "failures": Count("pk", filter=Q(passed=False)),
        "first_failures": Count("pk", filter=Q(passed=False) & _IS_OF_FIRST_DRAFT),
        "score_sum": _score_sum(Q()),
        "score_weight": _score_weight(Q()),
        "first_scored": Count("pk", filter=_IS_SCORED & _IS_OF_FIRST_DRAFT),
        "first_score_sum": _score_sum(_IS_OF_FIRST_DRAFT),
        "first_score_weight": _score_weight(_IS_OF_FIRST_DRAFT),
        "committed_scored": Count("pk", filter=_IS_SCORED & _IS_OF_SENT_DRAFT),
        "committed_score_sum": _score_sum(_IS_OF_SENT_DRAFT),
        "committed_score_weight": _score_weight(_IS_OF_SENT_DRAFT),
        **{f"were_{status}": Count("pk", filter=Q(status=status)) for status in UNJUDGED},
    },
    counted="checks",
)
GATE = SummedRows(name="gate", model=CorrectionLog, tables=(ATTEMPTS, VERDICTS))


METRICS_WINDOW = timedelta(minutes=5)


def collect() -> Iterator[Metric]:
    """Yield one metric for Prometheus: how many attempts of the last five minutes ended how; outcomes without any are left out."""
    outcomes = GaugeMetricFamily(
        "plumbline_gate_attempts_5m",
        "Attempts at a message that the gate saw in the last 5 minutes",
        labels=["outcome"],
    )
    recent = CorrectionLog.objects.filter(created_at__gte=timezone.now() - METRICS_WINDOW).order_by()
    for outcome, count in recent.values_list("outcome").annotate(n=Count("pk")):
        outcomes.add_metric([outcome], count)
    yield outcomes


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class JudgeMeans(_Figures):
    """Mean scores (0 to 9) by one judge; null where nothing was scored. Scores of different judges never share a mean.

    Of sampled conversations each score counts 1 ÷ the chance with which its conversation was kept and observed; numbers stay numbers.
    """

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

    @computed_field(description="failures ÷ scored, 0 to 1; null where nothing was scored")  # type: ignore[prop-decorator]
    @property
    def failure_rate(self) -> float | None:
        return self.failures / self.scored if self.scored else None

    @property
    def mean_first(self) -> float | None:
        """Return the mean score of first drafts; None also where several judges scored, whose scores share no mean."""
        return self.by_judge[0].mean_first if len(self.by_judge) == 1 else None

    @property
    def mean_committed(self) -> float | None:
        """Return the mean score of what was sent; None also where several judges scored, whose scores share no mean."""
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
    forced_after_retry: int = Field(0, exclude=True, description="of the forced through ones, those that had a retry")
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

    @computed_field(  # type: ignore[prop-decorator]
        description="of the messages that had a retry, those forced through ÷ (those + passed after a retry), 0 to 1"
    )
    @property
    def regeneration_failure_rate(self) -> float | None:
        ended = self.forced_after_retry + self.passed_after_retry_count
        return self.forced_after_retry / ended if ended else None


Source = GateSession.Source
PASSED_UNJUDGED = {
    "timeouts": Outcome.TIMEOUT_PASSED,
    "overloads": Outcome.OVERLOAD_PASSED,
    "errors": Outcome.ERROR_PASSED,
    "unscored": Outcome.UNSCORED_PASSED,
    "over_budget": Outcome.BUDGET_PASSED,
}
_FIRST_DRAFT_PASSED = (Outcome.PASSED, *PASSED_UNJUDGED.values())
_COUNT_OF_OUTCOME = {
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
) -> GateStatistics:
    """Return statistics of one agent's gate, or of all (AC-7.0.14).

    Args:
        agent: None: of all agents.
        window: ``all`` or a duration such as ``24h``, ``7d``, ``4w``.
        synthetic: Of simulations in synthetic channels instead of real messages; the two are never mixed.

    Raises:
        ValueError: The window is not one; names what is allowed.
    """
    if isinstance(window, str):
        window = window_of_time(window)
    attempts = _read_sums(ATTEMPTS, ("source", "outcome"), agent, window, synthetic=synthetic)
    verdicts = _read_sums(VERDICTS, ("source", "dimension", "judge"), agent, window, synthetic=synthetic)
    return _statistics_of_counts(agent, window, _counts_by_source(attempts), _dimensions_by_source(verdicts))


def _statistics_of_counts(
    agent: Agent | None,
    window: MessageWindow,
    counts_by_source: Mapping[str, Mapping[str, int]],
    dimensions_by_source: Mapping[str, Mapping[str, DimensionStatistics]],
) -> GateStatistics:
    """Return the statistics of the gate, and beside them the checks that blocked nothing: observed ones and external ones.

    Args:
        agent: Whose; None: of all agents.
    """
    counts = dict(counts_by_source.get(Source.GATE, {}))
    counts.pop("failed", None)  # that a draft of the gate's failed something, its outcome says
    return GateStatistics(
        agent=agent.slug if agent else None,
        since=window.start,
        until=window.end,
        dimensions=dict(dimensions_by_source.get(Source.GATE, {})),
        observed=_checks_of_source(Source.OBSERVE, counts_by_source, dimensions_by_source),
        external=_checks_of_source(Source.EXTERNAL, counts_by_source, dimensions_by_source),
        **counts,
    )


def _checks_of_source(
    source: str,
    counts_by_source: Mapping[str, Mapping[str, int]],
    dimensions_by_source: Mapping[str, Mapping[str, DimensionStatistics]],
) -> Checks:
    """Return the checks of a source that blocked nothing; each attempt is one, for no one knows here which draft was sent.

    Args:
        source: ``observe`` or ``external``.
    """
    counts = counts_by_source.get(source)
    if counts is None:
        return Checks()
    total = counts["total_actions"] + counts["regeneration_count"]
    return Checks(total=total, passed=total - counts["failed"], dimensions=dict(dimensions_by_source.get(source, {})))


def _read_sums(
    table: HourlySums,
    keys: Sequence[str],
    agent: Agent | None,
    window: MessageWindow,
    *,
    synthetic: bool,
) -> list[dict[str, Any]]:
    """Read sums of the gate's logs (`ATTEMPTS`), or of their verdicts (`VERDICTS`), of the window, grouped by these keys.

    Whole hours are read from the table of hourly sums, the edges of the window from the raw rows (`raw_…`).

    Args:
        agent: None: of all agents.
        synthetic: True: of simulations alone; False: without them.

    Returns:
        Rows with ``k_NAME`` for each key and ``s_NAME`` for each sum; a group may stand in several rows, to be added up.
    """
    path_to_log = "log__" if table is VERDICTS else ""
    is_synthetic_log = synthetic_logs(path_to_log)
    raw_where = is_synthetic_log if synthetic else ~is_synthetic_log
    where = Q(synthetic=synthetic)
    if agent is not None:
        raw_where &= Q(**{f"{path_to_log}session__agent": agent})
        where &= Q(agent=agent)
    return read(
        GATE,
        table,
        start=window.start,
        end=window.end,
        raw_keys={key: table.keys[key] for key in keys},
        keys={key: F(key) for key in keys},
        raw_where=raw_where,
        where=where,
    )


def _counts_by_source(rows: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Count logged attempts by source, from rows of their sums by source and outcome; the names are those of `GateStatistics`.

    Attempts of the outcome `CORRECTED` were sent back, and have no count of their own.
    """
    by_source: dict[str, Counter[str]] = {}
    for row in rows:
        counts = by_source.setdefault(row["k_source"], Counter())
        outcome = row["k_outcome"]
        counts["total_actions"] += row["s_firsts"]
        counts["judged_count"] += row["s_firsts_judged"]
        counts["failed"] += row["s_failed"]
        counts["regeneration_count"] += row["s_attempts"] - row["s_firsts"]
        if outcome in _FIRST_DRAFT_PASSED:
            counts["original_pass_count"] += row["s_firsts_judged"]  # without those of which no dimension was judged
        if outcome == Outcome.FORCED_THROUGH:
            counts["forced_after_retry"] += row["s_attempts"] - row["s_firsts"]
        if outcome in _COUNT_OF_OUTCOME:
            counts[_COUNT_OF_OUTCOME[outcome]] += row["s_attempts"]
    return by_source


def _dimensions_by_source(verdicts: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, DimensionStatistics]]:
    """Return statistics by source and dimension from rows of sums (``k_…`` the keys, ``s_…`` the sums); judges stay apart."""
    sums_by_judge: dict[tuple[str, str], dict[str, Counter[str]]] = {}  # by source and dimension
    for row in verdicts:
        by_judge = sums_by_judge.setdefault((row["k_source"], row["k_dimension"]), {})
        sums = {name.removeprefix("s_"): value for name, value in row.items() if name.startswith("s_")}
        by_judge.setdefault(row["k_judge"], Counter()).update(sums)
    statistics: dict[str, dict[str, DimensionStatistics]] = {}
    for source, dimension in sorted(sums_by_judge):
        by_judge = sums_by_judge[source, dimension]
        statistics.setdefault(source, {})[dimension] = _dimension_statistics(by_judge)
    return statistics


def _dimension_statistics(sums_by_judge: Mapping[str, Counter[str]]) -> DimensionStatistics:
    """Return the statistics of one dimension: counts over all judges, means by judge. A judge that scored nothing has no means."""
    total: Counter[str] = Counter()
    means = []
    for judge in sorted(sums_by_judge):
        sums = sums_by_judge[judge]
        total.update(sums)
        if sums["scored"]:
            means.append(_means_of_judge(judge, sums))
    unjudged = {str(status): total[f"were_{status}"] for status in UNJUDGED if total[f"were_{status}"]}
    return DimensionStatistics(
        checks=total["checks"],
        scored=total["scored"],
        failures=total["failures"],
        first_failures=total["first_failures"],
        unjudged=unjudged,
        by_judge=tuple(means),
    )


def _means_of_judge(judge: str, sums: Mapping[str, float]) -> JudgeMeans:
    """Return the mean scores by one judge."""
    return JudgeMeans(
        judge=judge,
        scored=int(sums["scored"]),
        mean=_mean(sums["score_sum"], sums["score_weight"]),
        mean_first=_mean(sums["first_score_sum"], sums["first_score_weight"]),
        mean_committed=_mean(sums["committed_score_sum"], sums["committed_score_weight"]),
    )


def _mean(total: float, weight: float) -> float | None:
    return total / weight if weight else None

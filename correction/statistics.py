"""What the gate did, in numbers (AC-7.0.13, AC-7.0.14). Three aggregates in the database, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Avg, Count, Q, QuerySet

from agents.models import Agent
from correction.costs import window_of_time
from correction.models import CorrectionLog, GateDimensionResult, Outcome, played
from correction.statistics_values import Checks, DimensionStatistics, GateStatistics, JudgeMeans
from evaluation.windows import MessageWindow

__all__ = ["Checks", "DimensionStatistics", "GateStatistics", "JudgeMeans", "get_gate_statistics"]

Source = CorrectionLog.Source
Status = GateDimensionResult.Status
PASSED_UNJUDGED = {
    "timeouts": Outcome.TIMEOUT_PASSED,
    "overloads": Outcome.OVERLOAD_PASSED,
    "errors": Outcome.ERROR_PASSED,
    "unscored": Outcome.UNSCORED_PASSED,
    "over_budget": Outcome.BUDGET_PASSED,
}
_PASSING = (Outcome.PASSED, *PASSED_UNJUDGED.values())


def get_gate_statistics(
    agent: Agent | None = None, window: str | MessageWindow = "all", *, synthetic: bool = False
) -> GateStatistics:
    """Statistics of one agent's gate, or of all.

    Args:
        agent: Whose; None for all.
        window: ``all`` or a duration such as ``24h``, ``7d``, ``4w``.
        synthetic: Of what was played in synthetic channels instead of what was really said; the two are never mixed.

    Raises:
        ValueError: The window is not one; names what is allowed.
    """
    stretch = window_of_time(window) if isinstance(window, str) else window
    logs = CorrectionLog.objects.filter(played() if synthetic else ~played())
    if agent is not None:
        logs = logs.filter(agent=agent)
    if stretch.start is not None:
        logs = logs.filter(created_at__gte=stretch.start)
    if stretch.end is not None:
        logs = logs.filter(created_at__lte=stretch.end)
    results = _results(agent, stretch, synthetic)
    totals = {str(row.pop("source")): row for row in _totals(logs)}
    dimensions, failed = _dimensions(results), _failed_logs(results)
    apart = {
        source: Checks(
            total=totals[source]["total_actions"],
            passed=totals[source]["total_actions"] - failed.get(source, 0),
            dimensions=dimensions.get(source, {}),
        )
        for source in (Source.OBSERVE, Source.EXTERNAL)
        if source in totals
    }
    return GateStatistics(
        agent=agent,
        window=stretch,
        dimensions=dimensions.get(Source.GATE, {}),
        observed=apart.get(Source.OBSERVE, Checks()),
        external=apart.get(Source.EXTERNAL, Checks()),
        **totals.get(Source.GATE, {}),
    )


def _totals(logs: QuerySet[CorrectionLog]) -> list[dict[str, Any]]:
    """Counts of logged attempts, one row per source."""
    first, judged = Q(attempt=1), Q(score_sum__isnull=False) | Q(outcome=Outcome.PASSED)
    rows = (
        logs.order_by()
        .values("source")
        .annotate(
            total_actions=Count("pk", filter=first),
            judged_count=Count("pk", filter=first & judged),
            original_pass_count=Count("pk", filter=first & judged & Q(outcome__in=_PASSING)),
            regeneration_count=Count("pk", filter=Q(attempt__gt=1)),
            passed_after_retry_count=Count("pk", filter=Q(outcome=Outcome.PASSED_AFTER_RETRY)),
            forced_through_count=Count("pk", filter=Q(outcome=Outcome.FORCED_THROUGH)),
            abandoned=Count("pk", filter=Q(outcome=Outcome.ABANDONED)),
            **{name: Count("pk", filter=Q(outcome=outcome)) for name, outcome in PASSED_UNJUDGED.items()},
        )
    )
    return [dict(row) for row in rows]


def _results(agent: Agent | None, stretch: MessageWindow, synthetic: bool) -> QuerySet[GateDimensionResult]:
    results = GateDimensionResult.objects.filter(played("log__") if synthetic else ~played("log__"))
    if agent is not None:
        results = results.filter(log__agent=agent)
    if stretch.start is not None:
        results = results.filter(log__created_at__gte=stretch.start)
    if stretch.end is not None:
        results = results.filter(log__created_at__lte=stretch.end)
    return results


def _dimensions(results: QuerySet[GateDimensionResult]) -> dict[str, dict[str, DimensionStatistics]]:
    """Per source and dimension; the database groups by judge as well."""
    scored, first = Q(status=Status.SCORED), Q(log__attempt=1)
    rows = (
        results.order_by()
        .values("log__source", "dimension", "log__judge")
        .annotate(
            checks=Count("pk"),
            scored=Count("pk", filter=scored),
            failures=Count("pk", filter=Q(passed=False)),
            first_failures=Count("pk", filter=Q(passed=False) & first),
            mean=Avg("score", filter=scored),
            mean_first=Avg("score", filter=scored & first),
            mean_committed=Avg("score", filter=scored & Q(log__committed=True)),
            **{f"were_{status}": Count("pk", filter=Q(status=status)) for status in _UNJUDGED},
        )
    )
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in sorted(rows, key=lambda r: (r["dimension"], r["log__judge"])):
        found.setdefault(row["log__source"], {}).setdefault(row["dimension"], []).append(dict(row))
    return {source: {d: _dimension(d, parts) for d, parts in by.items()} for source, by in found.items()}


_UNJUDGED = (Status.TIMEOUT, Status.OVERLOAD, Status.ERROR, Status.UNSCORED, Status.BUDGET)


def _dimension(dimension: str, rows: Sequence[Mapping[str, Any]]) -> DimensionStatistics:
    counts = {name: sum(row[name] for row in rows) for name in ("checks", "scored", "failures", "first_failures")}
    unjudged = {str(status): sum(row[f"were_{status}"] for row in rows) for status in _UNJUDGED}
    return DimensionStatistics(
        dimension=dimension,
        unjudged={status: number for status, number in unjudged.items() if number},
        by_judge=tuple(
            JudgeMeans(
                judge=row["log__judge"],
                **{name: row[name] for name in ("scored", "mean", "mean_first", "mean_committed")},
            )
            for row in rows
            if row["scored"]
        ),
        **counts,
    )


def _failed_logs(results: QuerySet[GateDimensionResult]) -> dict[str, int]:
    """How many observed and external checks failed something."""
    failed = results.filter(passed=False, log__source__in=(Source.OBSERVE, Source.EXTERNAL)).order_by()
    rows = failed.values("log__source").annotate(number=Count("log", distinct=True))
    return {row["log__source"]: row["number"] for row in rows}

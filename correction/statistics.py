"""What the gate did, in numbers (AC-7.0.13, AC-7.0.14).

Two aggregates in the database, over sums of whole hours (`correction.rollup`) and over raw rows only at the edges of a window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Case, F, Q, When

from agents.models import Agent
from agents.ops.sums import HourlySums, read
from correction import rollup
from correction.costs import window_of_time
from correction.models import CorrectionLog, Outcome, played
from correction.statistics_values import Checks, DimensionStatistics, GateStatistics, JudgeMeans
from evaluation.windows import MessageWindow

__all__ = [
    "Checks",
    "DimensionStatistics",
    "GateStatistics",
    "JudgeMeans",
    "get_gate_statistics",
    "get_recent_statistics",
]

Keys = Mapping[str, Any]
Source = CorrectionLog.Source
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


def get_recent_statistics(*, since: datetime, recent: datetime) -> tuple[GateStatistics, GateStatistics]:
    """Statistics of all gates in two windows up to now, in one query and without those of dimensions.

    Args:
        since: Where the longer window begins; a full hour.
        recent: Where the shorter one begins, within the longer; a full hour.

    Returns:
        Those of the shorter window, those of the longer.
    """
    apart: tuple[Keys, Keys] = (
        {"recent": Case(When(created_at__gte=recent, then=1), default=0)},
        {"recent": Case(When(hour__gte=recent, then=1), default=0)},
    )
    rows = _sums(rollup.ATTEMPTS, ("source", "outcome"), None, MessageWindow(start=since), synthetic=False, apart=apart)
    return (
        _statistics(None, MessageWindow(start=recent), _counts(row for row in rows if row["k_recent"]), {}),
        _statistics(None, MessageWindow(start=since), _counts(rows), {}),
    )


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
    attempts = _sums(rollup.ATTEMPTS, ("source", "outcome"), agent, stretch, synthetic=synthetic)
    verdicts = _sums(rollup.VERDICTS, ("source", "dimension", "judge"), agent, stretch, synthetic=synthetic)
    return _statistics(agent, stretch, _counts(attempts), _dimensions(verdicts))


def _statistics(
    agent: Agent | None,
    stretch: MessageWindow,
    totals: Mapping[str, Mapping[str, int]],
    dimensions: Mapping[str, Mapping[str, DimensionStatistics]],
) -> GateStatistics:
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
        agent=agent,
        window=stretch,
        dimensions=dimensions.get(Source.GATE, {}),
        observed=apart.get(Source.OBSERVE, Checks()),
        external=apart.get(Source.EXTERNAL, Checks()),
        # That a draft of the gate's failed something, its outcome says.
        **{name: count for name, count in totals.get(Source.GATE, {}).items() if name != "failed"},
    )


def _sums(
    table: HourlySums,
    keys: Sequence[str],
    agent: Agent | None,
    window: MessageWindow,
    *,
    synthetic: bool,
    apart: tuple[Keys, Keys] = ({}, {}),
) -> list[dict[str, Any]]:
    """Sums of the gate's logs, or of their verdicts; `apart` are further keys, on raw rows and on hours."""
    prefix = "log__" if table is rollup.VERDICTS else ""
    whose = Q() if agent is None else Q(agent=agent)
    raw_whose = Q() if agent is None else Q(**{f"{prefix}agent": agent})
    return read(
        rollup.GATE,
        table,
        start=window.start,
        end=window.end,
        raw_keys={**{key: table.keys[key] for key in keys}, **apart[0]},
        keys={**{key: F(key) for key in keys}, **apart[1]},
        raw_where=raw_whose & (played(prefix) if synthetic else ~played(prefix)),
        where=Q(synthetic=synthetic) & whose,
    )


def _checks(counts: Mapping[str, int]) -> int:
    """Every attempt: whether another program said a draft that was sent back, nobody here knows."""
    return counts["total_actions"] + counts["regeneration_count"]


def _counts(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts of logged attempts by source, from their sums by source and outcome."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        counts, outcome = found.setdefault(row["k_source"], Counter()), row["k_outcome"]
        counts["total_actions"] += row["s_firsts"]
        counts["judged_count"] += row["s_firsts_judged"]
        counts["failed"] += row["s_failed"]
        counts["regeneration_count"] += row["s_attempts"] - row["s_firsts"]
        if outcome in _PASSING:
            counts["original_pass_count"] += row["s_firsts_judged"]
        if outcome in _ENDINGS:
            counts[_ENDINGS[outcome]] += row["s_attempts"]
    return {source: dict(counts) for source, counts in found.items()}


def _dimensions(verdicts: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, DimensionStatistics]]:
    """Per source and dimension; judges stay apart."""
    found: dict[str, dict[str, dict[str, Counter[str]]]] = {}
    for row in verdicts:
        judges = found.setdefault(row["k_source"], {}).setdefault(row["k_dimension"], {})
        sums = {name.removeprefix("s_"): value for name, value in row.items() if name.startswith("s_")}
        judges.setdefault(row["k_judge"], Counter()).update(sums)
    return {
        source: {dimension: _dimension(dimension, by[dimension]) for dimension in sorted(by)}
        for source, by in found.items()
    }


def _dimension(dimension: str, judges: Mapping[str, Counter[str]]) -> DimensionStatistics:
    counts = {
        name: sum(sums[name] for sums in judges.values()) for name in ("checks", "scored", "failures", "first_failures")
    }
    unjudged = {str(status): sum(sums[f"were_{status}"] for sums in judges.values()) for status in rollup.UNJUDGED}
    return DimensionStatistics(
        dimension=dimension,
        unjudged={status: number for status, number in unjudged.items() if number},
        by_judge=tuple(_means(judge, judges[judge]) for judge in sorted(judges) if judges[judge]["scored"]),
        **counts,
    )


def _means(judge: str, sums: Counter[str]) -> JudgeMeans:
    def mean(which: str) -> float | None:
        number = sums[f"{which}scored"]
        return sums[f"{which}score_sum"] / number if number else None

    return JudgeMeans(
        judge=judge,
        scored=sums["scored"],
        mean=mean(""),
        mean_first=mean("first_"),
        mean_committed=mean("committed_"),
    )

"""One dimension's scores of agents over time, by one judge and procedure, from scheduled and other evaluations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.models import Agent
from evaluation.change.evidence import Judged, runs_judged
from evaluation.models import Baseline, EvaluationRun, procedure_name
from evaluation.runs.summary import scores_of

NEWEST_RUNS = 500  # looked through for who was measured lately, and by whom
MOST_AGENTS = 40  # whose scores are read
MOST_RUNS = 3_000
MOST_SUMMED = 150  # runs of no schedule: their scores are added up, row by row
READ = ("agent_id", "created_at", "window_end", "dimensions", "repeats", "series_points")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one evaluation measured; `score` (0 to 9) is None where nothing could be scored, `error` its standard error if known."""

    run: int
    at: datetime
    score: float | None
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Who was measured lately, and how: the way of most evaluations first, agents by their newest one."""

    ways: tuple[Judged, ...]
    agents: dict[Judged, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """An agent's readings, oldest first, and the score of its baseline; `left_out` counts evaluations that were not added up."""

    agent: Agent
    readings: tuple[Reading, ...]
    baseline: float | None
    left_out: int = 0

    @property
    def now(self) -> float | None:
        """The newest score there is."""
        return self.newest.score if self.newest is not None else None

    @property
    def newest(self) -> Reading | None:
        """The newest reading that has a score."""
        return next((reading for reading in reversed(self.readings) if reading.score is not None), None)

    @property
    def fall(self) -> float | None:
        """Points lost since the baseline; negative where the score rose, None where one of the two is missing."""
        return None if self.now is None or self.baseline is None else self.baseline - self.now


def measured_lately(*, since: datetime) -> Measured:
    """Judges, procedures and agents of the newest 500 evaluations of agents; one query."""
    fields = ("agent_id", "judge", "method", "hard", "double_check", "simulated")
    rows = EvaluationRun.objects.filter(
        status=EvaluationRun.Status.COMPLETED, created_at__gte=since, agent__isnull=False, position_bins=[]
    )
    ways: Counter[Judged] = Counter()
    agents: dict[Judged, dict[int, None]] = defaultdict(dict)
    for agent, judge, method, hard, double, simulated in rows.order_by("-created_at").values_list(*fields)[
        :NEWEST_RUNS
    ]:
        procedure = procedure_name(method=method, hard=hard, double_check=double, simulated=simulated)
        way = Judged(judge=judge, procedure=procedure)
        ways[way] += 1
        agents[way][agent] = None
    return Measured(
        ways=tuple(way for way, _ in ways.most_common()),
        agents={way: tuple(measured)[:MOST_AGENTS] for way, measured in agents.items()},
    )


def histories(*, agents: Collection[int], judged: Judged, dimension: str, since: datetime) -> list[History]:
    """The newest readings of these agents (at most 3,000 in all), those who lost most since their baseline first.

    What a schedule measured has its scores by dimension on the run; of other evaluations the newest 150 are added up.
    Four queries, however many there are (one more for each of these that was repeated).
    """
    runs = runs_judged(judged).filter(agent__in=agents, created_at__gte=since).order_by("-created_at", "-pk")
    rows = list(runs.only(*READ)[:MOST_RUNS])
    unsummed = [run for run in rows if run.series_points is None and dimension in run.dimensions]
    summed = scores_of(unsummed[:MOST_SUMMED], dimension)
    left_out = Counter(run.agent_id for run in unsummed[MOST_SUMMED:])
    readings: dict[int, list[Reading]] = defaultdict(list)
    for run in rows:
        point: dict[str, Any] | None = {"score": summed[run.pk]} if run.pk in summed else None
        if run.series_points is not None and dimension in (*run.series_points, *run.dimensions):
            point = run.series_points.get(dimension, {})
        if point is not None:
            at = run.window_end or run.created_at
            reading = Reading(run=run.pk, at=at, score=point.get("score"), error=point.get("error"))
            readings[run.agent_id or 0].append(reading)
    baselines = Baseline.objects.filter(
        agent__in=agents, judge=judged.judge, procedure=judged.procedure, dimension=dimension
    )
    levels = dict(baselines.values_list("agent_id", "score"))
    people = Agent.objects.filter(pk__in=readings).only("slug", "display_name", "avatar_color")
    drawn = [
        History(
            agent=agent,
            readings=tuple(sorted(readings[agent.pk], key=lambda reading: (reading.at, reading.run))),
            baseline=levels.get(agent.pk),
            left_out=left_out[agent.pk],
        )
        for agent in people
    ]
    return sorted(drawn, key=lambda history: (history.fall is None, -(history.fall or 0), history.agent.display_name))

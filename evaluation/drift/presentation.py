"""Series for people and as JSON: a sparkline per series, and the falls found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from django.utils import timezone
from rich import box
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on
from agents.models import Agent
from evaluation.drift.restarts import restarts_of
from evaluation.drift.series import Drop, Series
from evaluation.models import EvaluationRun
from evaluation.runs.terminal import judge_label, number

BLOCKS = "▁▂▃▄▅▆▇█"
SPARKS = 30
RESTART = "|"
MOST_NAMED = 4  # series with the same note


def drift_table(found: Sequence[Series], out: Any) -> None:
    """A table per judge and procedure, whose numbers are never mixed; then every fall in a sentence."""
    console = console_on(out)

    def judged(series: Series) -> tuple[str, str]:
        return series.judge, series.procedure

    for (judge, procedure), group in groupby(sorted(found, key=judged), key=judged):
        how = "" if procedure == "plumbline" else f", {procedure}"
        rows = sorted(group, key=lambda s: (s.agent.slug, s.schedule.name, s.dimension))
        console.print(_table(f"Scores by {judge_label(judge)}{how}, 0 to 9", rows))
        for series in rows:
            for drop in series.drops:
                console.print(escape(fall(series, drop)))
        for sentence in dict.fromkeys(newest_restart(series) for series in rows):
            if sentence:
                console.print(escape(sentence))
        for note, noted in _notes(rows).items():
            which = f"all {len(rows)} series" if len(noted) == len(rows) > MOST_NAMED else ", ".join(noted)
            console.print(escape(f"{which}: {note}"))
        console.print()


def _table(title: str, rows: Sequence[Series]) -> Table:
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1))
    table.add_column("Agent", overflow="fold")
    table.add_column("Dimension", no_wrap=True)
    table.add_column("Schedule", overflow="fold")
    table.add_column(f"Last {SPARKS}", no_wrap=True)
    table.add_column("Now", justify="right", no_wrap=True)
    table.add_column("Falls", justify="right", no_wrap=True)
    for series in rows:
        last = series.evaluations[-1]
        cells = [series.agent.slug, series.dimension, series.schedule.name, sparkline(series), number(last.score)]
        table.add_row(*map(escape, cells), str(len(series.drops)))
    return table


def sparkline(series: Series, most: int = SPARKS) -> str:
    """The newest scores as bars on the fixed scale of 0 to 9; a stroke where the series starts anew."""
    shown = series.evaluations[-most:]
    return "".join(
        (RESTART if point.restarts else "") + BLOCKS[min(len(BLOCKS) - 1, int(point.score / 9 * len(BLOCKS)))]
        for point in shown
    )


def fall(series: Series, drop: Drop) -> str:
    """A fall in a sentence."""
    since, noticed = (f"{timezone.localtime(time):%Y-%m-%d}" for time in (drop.since, drop.noticed))
    return (
        f"{series.agent.slug} {series.dimension}: fell from {drop.before:.1f} to {drop.after:.1f} since {since} "
        f"(noticed {noticed}, evaluation {drop.run})"
    )


def newest_restart(series: Series) -> str:
    """When and why a series started anew, the last time; empty when it never did."""
    found = restarts_of(series)
    if not found:
        return ""
    day = f"{timezone.localtime(found[-1].time):%Y-%m-%d}"
    return f"{series.agent.slug} {series.dimension}: starts anew on {day}: {found[-1].because}"


def silent_note(agents: Sequence[Agent], found: Sequence[Series]) -> str:
    """Which agents have no series, and why; empty when all have one."""
    reasons: dict[str, list[str]] = {}
    for slug, why in without_series(agents, found).items():
        reasons.setdefault(why, []).append(slug)
    return "\n".join(f"no series: {', '.join(slugs)}: {why}" for why, slugs in reasons.items())


def without_series(agents: Sequence[Agent], found: Sequence[Series]) -> dict[str, str]:
    """Slugs of the agents that have no series, each with what became of its newest scheduled evaluation."""
    shown = {series.agent.pk for series in found}
    reasons: dict[str, str] = {}
    for agent in agents:
        if agent.pk not in shown:
            last = (
                EvaluationRun.objects.filter(agent=agent, schedule__isnull=False).order_by("-created_at", "-pk").first()
            )
            reasons[agent.slug] = _why_silent(last)
    return reasons


def _why_silent(last: EvaluationRun | None) -> str:
    if last is None:
        return "measured by no schedule yet"
    if last.overall_score is not None:
        return f"evaluation {last.pk}: scored, but not in what is asked for here"
    return last.error or f"evaluation {last.pk}: no score"


def _notes(rows: Sequence[Series]) -> dict[str, list[str]]:
    """Why series are not tested, each reason once."""
    notes: dict[str, list[str]] = {}
    for series in rows:
        if series.note:
            notes.setdefault(series.note, []).append(f"{series.agent.slug} {series.dimension}")
    return notes


def drift_json(found: Sequence[Series], agents: Sequence[Agent] = ()) -> dict[str, Any]:
    """The object ``--json`` prints: per series its points, oldest first, and its falls; and which of `agents` have none, and why."""
    silent = without_series(agents, found)
    return {
        "series": [_series_json(series) for series in found],
        "no_series": [{"agent": slug, "reason": why} for slug, why in silent.items()],
    }


def _series_json(series: Series) -> dict[str, Any]:
    return {
        "agent": series.agent.slug,
        "schedule": series.schedule.name,
        "dimension": series.dimension,
        "judge": series.judge,
        "procedure": series.procedure,
        "points": [
            {
                "evaluation_run": point.run,
                "time": point.time.isoformat(),
                "score": point.score,
                "error": None if point.error is None else round(point.error, 4),
                "tested": point.tested,
                "restarts": point.restarts,
            }
            for point in series.evaluations
        ],
        "drops": [
            {
                "evaluation_run": drop.run,
                "noticed": drop.noticed.isoformat(),
                "since": drop.since.isoformat(),
                "before": round(drop.before, 4),
                "after": round(drop.after, 4),
            }
            for drop in series.drops
        ],
        "restarts": [
            {"evaluation_run": restart.run, "time": restart.time.isoformat(), "because": restart.because}
            for restart in restarts_of(series)
        ],
        **({"note": series.note} if series.note else {}),
    }

"""Evaluations and what comes of them."""

from __future__ import annotations

from datetime import timedelta

from agents.models import Message
from evaluation.models import (
    Baseline,
    DriftAlert,
    EvaluationRun,
    EvaluationSchedule,
    EvaluationScore,
    Evidence,
    LabelSet,
    LineUpRun,
)
from tests.listed_rows.cast import LLM, SENTENCE, Cast, store
from tests.listed_rows.of_agents import messages

DIMENSIONS = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")


def evaluations(cast: Cast, have: int, more: int) -> None:
    store(
        EvaluationRun,
        (
            EvaluationRun(
                agent=cast.agent(n),
                dimensions=["adherence"],
                status="completed",
                judge=LLM,
                overall_score=5.5,
                figures={},
                started_at=cast.at(n),
                finished_at=cast.at(n),
            )
            for n in range(have, have + more)
        ),
    )
    fresh = EvaluationRun.objects.order_by("-pk").values_list("pk", "agent_id")[:more]
    store(
        Evidence,
        (
            Evidence(
                evaluation_run_id=pk,
                agent_id=agent,
                dimension="adherence",
                judge=LLM,
                procedure="plumbline",
                newest_message_at=cast.now + timedelta(seconds=pk),
            )
            for pk, agent in fresh
        ),
    )


def _some_run(cast: Cast) -> EvaluationRun:
    if not EvaluationRun.objects.exists():
        evaluations(cast, 0, 1)
    run: EvaluationRun = EvaluationRun.objects.earliest("pk")
    return run


def scores(cast: Cast, have: int, more: int) -> None:
    if have == 0:
        evaluations(cast, 10_000_000, max(2, more // 100))
        messages(cast, 20_000_000, max(2, more // 100))
    of = list(EvaluationRun.objects.order_by("-pk").values_list("pk", flat=True)[:1000])
    about = list(Message.objects.order_by("-pk").values_list("pk", flat=True)[:1000])
    store(
        EvaluationScore,
        (
            EvaluationScore(
                evaluation_run_id=of[n % len(of)],
                dimension="adherence",
                proposition_id=f"p{n // len(of)}",
                message_id=about[n % len(about)],
                claim="The agent is dry",
                status="scored",
                score=n % 10,
                raw_score=n % 10,
                reasoning=SENTENCE,
                context_snippet=SENTENCE,
                judge=LLM,
            )
            for n in range(have, have + more)
        ),
    )


def baselines(cast: Cast, have: int, more: int) -> None:
    """Each agent in all dimensions by the usual judge, then by others: one is current of an agent, a judge and a dimension."""
    run, whole = _some_run(cast), len(cast.agents) * len(DIMENSIONS)
    store(
        Baseline,
        (
            Baseline(
                agent=cast.agent(n),
                procedure="plumbline",
                judge=f"model-{n // whole}" if n >= whole else LLM,
                dimension=DIMENSIONS[n // len(cast.agents) % len(DIMENSIONS)],
                evaluation_run=run,
                score=5,
                captured_at=cast.at(n),
                persona_digest="d",
            )
            for n in range(have, have + more)
        ),
    )


def schedules(cast: Cast, have: int, more: int) -> None:
    store(
        EvaluationSchedule,
        (
            EvaluationSchedule(
                name=f"nightly {n}", dimensions=["adherence"], every_minutes=60, is_active=False, next_at=cast.now
            )
            for n in range(have, have + more)
        ),
    )


def alerts(cast: Cast, have: int, more: int) -> None:
    if have == 0:
        schedules(cast, 10_000_000, 2)
    schedule = EvaluationSchedule.objects.earliest("pk")
    evaluations(cast, 30_000_000 + have, more)
    fresh = EvaluationRun.objects.order_by("-pk").values_list("pk", "agent_id")[:more]
    store(
        DriftAlert,
        (
            DriftAlert(
                schedule=schedule,
                agent_id=agent,
                dimension="adherence",
                procedure="plumbline",
                judge=LLM,
                evaluation_run_id=pk,
                since=cast.now,
                before=8.1,
                after=3.2,
            )
            for pk, agent in fresh
        ),
    )


def label_sets(cast: Cast, have: int, more: int) -> None:
    store(
        LabelSet,
        (
            LabelSet(
                name=f"labels {n}",
                procedure="plumbline",
                judge=LLM,
                dimension="adherence",
                population={"runs": [], "until": cast.now.isoformat()},
                population_size=50,
                seed=n,
            )
            for n in range(have, have + more)
        ),
    )


def line_ups(cast: Cast, have: int, more: int) -> None:
    store(
        LineUpRun,
        (
            LineUpRun(channel=cast.channel(n), status="failed", error="too few messages", result={}, where={})
            for n in range(have, have + more)
        ),
    )

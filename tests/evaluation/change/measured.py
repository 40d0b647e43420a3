"""Agents measured twice: a baseline of messages of one build, and an evaluation of messages of the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.models import Agent, Message
from agents.personas.persona import current_digest
from evaluation.change.evidence import judged_ways
from evaluation.change.overview import AgentDrift, drift_overview
from evaluation.change.stored import refresh_changes, store_ended
from evaluation.models import EvaluationRun, EvaluationScore
from tests.evaluation.judged import LLM, make_baseline, make_run
from tests.factories import make_channel, talk

Scores = Mapping[str, Sequence[int]]


def said(agent: Agent, number: int, build: str, *, text: str = "Noted.") -> list[Message]:
    """So many messages of a build, in a channel of its own."""
    channel = make_channel(f"{agent.slug}-{build}-{Message.objects.count()}")
    return talk(agent, [f"{text} {n}" for n in range(number)], channel=channel, tags={"build": build})


def measure(agent: Agent, scores: Scores, *, build: str = "41", **fields: Any) -> EvaluationRun:
    """An evaluation with the scores of each proposition, one per message."""
    inverted = fields.pop("inverted", ())
    run = make_run(agent, **{"persona_digest": current_digest(agent), "overall_score": 5.0, **fields})
    messages = said(agent, max(map(len, scores.values()), default=0), build)
    EvaluationScore.objects.bulk_create(
        EvaluationScore(
            evaluation_run=run, dimension="adherence", proposition_id=name, message=message, claim=f"the claim of {name}",
            status="scored", score=score, judge=run.judge, inverted=name in inverted,
        )
        for name, values in scores.items()
        for message, score in zip(messages, values, strict=False)
    )  # fmt: skip
    store_ended(run)
    return run


def capture(agent: Agent, scores: Scores, **fields: Any) -> EvaluationRun:
    """The same as the agent's baseline."""
    run = measure(agent, scores, **{"build": "40", "is_baseline": True, **fields})
    make_baseline(agent, run, persona_digest=run.persona_digest)
    return run


def flattened(agent: Agent, *, judge: str = LLM) -> EvaluationRun:
    """Measured twice: what it was known for is gone, the rest is as it was."""
    steady = [7, 8, 7, 8, 7, 8, 7, 8]
    capture(agent, {f"{agent.slug}-dry-wit": [8, 8, 9, 8, 8, 8, 8, 8], "default-voice": steady}, judge=judge)
    return measure(agent, {f"{agent.slug}-dry-wit": [3, 3, 4, 3, 3, 2, 4, 3], "default-voice": steady}, judge=judge)


def drift_of(agent: Agent, **choice: Any) -> AgentDrift:
    """How the agent changed, by the judge that comes first, after its evaluations ended."""
    store_all(agent)
    return drift_overview([agent], next(iter(judged_ways()), None), **choice).drifts[0]


def store_all(*agents: Agent) -> None:
    """Compute what the evaluations of these agents changed, as when the last of them ends."""
    for run in EvaluationRun.objects.filter(agent__in=agents, status="completed"):
        store_ended(run)
    refresh_changes()

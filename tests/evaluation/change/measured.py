"""Agents measured twice: a baseline of messages of one build, and an evaluation of messages of the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from agents.models import Agent, Message
from agents.personas.persona import current_digest
from evaluation.change.evidence import judged_ways
from evaluation.change.overview import AgentDrift, drift_overview
from evaluation.change.stored import refresh_changes, store_ended
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.execute import capture as captured
from evaluation.runs.spec import RunSpec
from tests.evaluation.judged import LLM, make_baseline, make_run, make_score
from tests.evaluation.judging import answers
from tests.factories import MONDAY, make_channel, talk
from tests.llm_server import LLMServer

DAY = timedelta(days=1)

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


# -- judged by the stand-in model, or as rows at a time
def run_of(agent: Agent, build: str, **fields: Any) -> EvaluationRun:
    return captured([RunSpec(agent=agent, where={"build": build}, **fields)])[0].summary.run


def judge(llm_server: LLMServer, *, voice: int, mood: int = 6, varied: int = 5) -> None:
    scores = {"voice": voice, "mood": mood, "varied": varied}
    llm_server.respond = answers(lambda claim: next(score for name, score in scores.items() if name in claim))


def scored(agent: Agent, score: int | None, *, days_ago: float = 0, build: str = "", **fields: Any) -> EvaluationRun:
    """An evaluation of one message, said so many days ago."""
    at = timezone.now() - timedelta(days=days_ago)
    tags = {"build": build} if build else {}
    (message,) = talk(agent, [f"Said {days_ago} days ago."], sent_at=at, tags=tags)
    run = make_run(agent, **fields)
    make_score(run, score, message=message)
    store_ended(run)
    return run


def imported(agent: Agent, scores: list[int | None], *, start: datetime = MONDAY, **fields: Any) -> EvaluationRun:
    """One evaluation of a log, a message a day."""
    run = make_run(agent, **fields)
    channel = make_channel(f"{agent.slug}-{run.pk}")
    for day, score in enumerate(scores):
        tags = {"build": "40" if day < len(scores) / 2 else "41"}
        (message,) = talk(agent, [f"Day {day}."], channel=channel, sent_at=start + day * DAY, tags=tags)
        make_score(run, score, message=message)
    return run

"""Evaluation runs, scores and baselines as rows, and the columns of the console's lists."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.utils import timezone

from agents.models import Agent, Message
from agents.personas.persona import current_digest
from evaluation.change.models import Baseline, Evidence
from evaluation.judge.verdicts import MALFORMED
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.failures import FAILURES
from tests.factories import make_channel

LLM, OFFLINE = "claude-haiku-5-5", "offline:lexical-1"


def make_run(agent: Agent | None = None, *, judge: str = LLM, **fields: Any) -> EvaluationRun:
    channel = None if agent else make_channel("room")
    defaults = {"dimensions": ["adherence"], "status": "completed"}
    run: EvaluationRun = EvaluationRun.objects.create(
        agent=agent, channel=channel, judge=judge, **{**defaults, **fields}
    )
    if agent and run.status == "completed" and not run.position_bins:
        for dimension in run.dimensions:
            make_evidence(run, dimension)
    return run


def make_evidence(run: EvaluationRun, dimension: str = "adherence", *, newest: datetime | None = None) -> Evidence:
    """As an evaluation stores it when it ends: of messages newer than those of all before, unless said otherwise."""
    found: Evidence = Evidence.objects.create(  # type: ignore[misc]
        evaluation_run=run,
        dimension=dimension,
        agent_id=run.agent_id,
        judge=run.judge,
        procedure=run.procedure,
        newest_message_at=newest or timezone.now(),
    )
    return found


def make_score(
    run: EvaluationRun, score: int | None, *, message: Message | None = None, **fields: Any
) -> EvaluationScore:
    defaults = {"dimension": "adherence", "proposition_id": "dry", "claim": "Ada is dry", "judge": run.judge}
    status = "scored" if score is not None else "unscored"
    cause = str(fields.get("reason", "")).partition(":")[0]
    if cause in {*FAILURES, MALFORMED} and status == "unscored":
        defaults["cause"] = cause
    return EvaluationScore.objects.create(
        evaluation_run=run, message=message, **{**defaults, "status": status, "score": score, **fields}
    )


def make_baseline(agent: Agent, run: EvaluationRun, **fields: Any) -> Baseline:
    defaults = {
        "dimension": "adherence",
        "score": 7.25,
        "persona_digest": current_digest(agent),
        "captured_at": timezone.now(),
    }
    return Baseline.objects.create(agent=agent, evaluation_run=run, judge=run.judge, **{**defaults, **fields})


def cells(html: str, name: str) -> list[str]:
    """The texts of a column of a list."""
    found = re.findall(rf'<t[dh] class="field-{name}[ "].*?</t[dh]>', html, flags=re.S)
    return [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in found]

"""Attempts at messages with their verdicts, as rows: for the pages and figures that read them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from agents.models import Agent, Message, Run
from correction.models import CorrectionLog, GateDimensionResult, GateSession
from tests.factories import make_channel, say

OF_SESSION = ("agent", "channel", "run", "message", "source", "speaker", "tags")
MODEL, OFFLINE = "claude-haiku-5-5", "offline:lexical-1"


def add_attempt(
    *,
    session: uuid.UUID | None = None,
    outcome: str = "passed",
    committed: bool = False,
    attempt: int = 1,
    **fields: Any,
) -> CorrectionLog:
    """An attempt of the session of this id (default: of a new one), which it ends unless it is sent back. No verdicts."""
    about = {name: fields.pop(name) for name in OF_SESSION if name in fields}
    key = session or uuid.uuid4()
    of_message, _ = GateSession.objects.get_or_create(uuid=key, defaults=about | {"message": None})
    if outcome != "corrected" or committed or about.get("message"):
        of_message.outcome, of_message.message = outcome, about.get("message")
    if committed:
        of_message.sent = attempt
    of_message.save()
    texts = {"original_text": "x", "judged_text": "x"}
    return CorrectionLog.objects.create(session=of_message, attempt=attempt, outcome=outcome, **{**texts, **fields})


def make_log(
    agent: Agent | None,
    scores: Mapping[str, float | None] | None = None,
    *,
    text: str = "A draft.",
    threshold: str = "5.0",
    result: dict[str, Any] | None = None,
    **fields: Any,
) -> CorrectionLog:
    """An attempt judged with these scores; None = too late. `result` are further columns of every verdict."""
    judged = {"judge": MODEL, "duration_ms": 900, "original_text": text, "judged_text": text}
    log = add_attempt(agent=agent, **{**judged, **fields})
    for dimension, score in (scores or {}).items():
        GateDimensionResult.objects.create(
            log=log,
            dimension=dimension,
            status="timeout" if score is None else "scored",
            score=score,
            threshold=Decimal(threshold),
            passed=score is None or score >= float(threshold),
            **{"judge": log.judge, **(result or {})},
        )
    return log


def verdict(log: CorrectionLog, dimension: str = "adherence") -> GateDimensionResult:
    return GateDimensionResult.objects.get(log=log, dimension=dimension)


def corrected(agent: Agent, *, text: str = "Hooray!", said: str = "Noted.", feedback: str = "Drier.") -> Message:
    """A message that was sent back once, failed again, and was forced through on its second attempt."""
    channel = make_channel(f"office-{uuid.uuid4().hex[:6]}")
    message = say(channel, agent, said)
    run = Run.objects.create(agent=agent, channel=channel, status="completed")
    session: dict[str, Any] = {"session": uuid.uuid4(), "channel": channel, "message": message, "run": run}
    parts = [{"id": "short", "judge": "rule", "status": "scored", "score": 0, "reasoning": text}]
    columns = {"reasoning": text, "recommendations": text, "parts": parts, "reason": text[:300]}
    make_log(agent, {"adherence": 2.0, "fluency": 7.0, "consistency": None}, text=text, outcome="corrected",
             feedback=feedback, result=columns, **session)  # fmt: skip
    make_log(agent, {"adherence": 4.0}, text=said, outcome="forced_through", committed=True, attempt=2, result=columns,
             **session)  # fmt: skip
    return message

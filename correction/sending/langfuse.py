"""Send scores to Langfuse by ``POST /api/public/scores``, many in one request, as its SDK 5 does (Langfuse 4 and its cloud).

A score that is sent again under the same id and time replaces the first: a repeat changes nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from correction.sending.answers import Answer, post_scores
from correction.sending.records import ScoreRecord

PATH = "/api/public/scores"


def is_configured() -> bool:
    """Return whether there is a project to send to: its address and both keys are set."""
    return bool(settings.LANGFUSE_BASE_URL and settings.LANGFUSE_PUBLIC_KEY and settings.LANGFUSE_SECRET_KEY)


def takes(record: ScoreRecord) -> bool:
    """Return whether a record is sent: one with a number, or a change, whose verdict is a category of Langfuse's."""
    return record.value is not None or record.is_change


def send(records: Sequence[ScoreRecord]) -> Answer:
    """Send records in one request. Those that Langfuse rejects are counted: it says not to send them again."""
    keys = f"{settings.LANGFUSE_PUBLIC_KEY}:{settings.LANGFUSE_SECRET_KEY}"
    headers = {
        "authorization": f"Basic {base64.b64encode(keys.encode()).decode()}",
        "content-type": "application/json",
        "user-agent": "Plumbline",
    }
    body = json.dumps([score_of(record) for record in records], ensure_ascii=False, separators=(",", ":")).encode()
    posted = post_scores(f"{settings.LANGFUSE_BASE_URL.rstrip('/')}{PATH}", body, headers)
    rejected = _rejected(posted.body) if posted.outcome.code == 207 else 0
    return Answer(posted.outcome, rejected)


def score_of(record: ScoreRecord) -> dict[str, Any]:
    """Return a score as Langfuse's API takes it: of an observation where its span is known, else of a session."""
    score: dict[str, Any] = {
        "id": record.id,
        "name": _name(record),
        "timestamp": record.at.isoformat(),
        "metadata": _metadata(record),
    }
    if record.is_change:
        score |= {"value": record.label, "dataType": "CATEGORICAL"}
    else:
        score |= {"value": record.value, "dataType": "NUMERIC"}
    if record.explanation:
        score["comment"] = record.explanation
    if record.place is not None:
        score |= {"traceId": record.place.trace, "observationId": record.place.span}
    elif record.conversation:
        score["sessionId"] = record.conversation
    else:  # about no single conversation, and Langfuse takes no score about nothing
        agent = record.agent.slug if record.agent is not None else "all"
        score["sessionId"] = f"plumbline-{agent}"
    return score


def _name(record: ScoreRecord) -> str:
    """Return a name of its own for what an offline judge gave: Langfuse averages all scores of a name."""
    if record.details.get("heuristic"):
        return f"{record.name} (heuristic)"
    return record.name


def _metadata(record: ScoreRecord) -> dict[str, Any]:
    metadata: dict[str, Any] = {"label": record.label, **record.details}
    if record.agent is not None:
        metadata["agent"] = record.agent.slug
    if record.message_id:
        metadata["message"] = record.message_id
    if record.is_change and record.value is not None:
        metadata["points"] = record.value
    return metadata


def _rejected(body: bytes) -> int:
    """Return how many scores a mixed answer (207) says were rejected; 0 where it does not say."""
    try:
        rejected = json.loads(body)["rejected"]
    except (ValueError, KeyError, TypeError):
        return 0
    return rejected if isinstance(rejected, int) and rejected > 0 else 0

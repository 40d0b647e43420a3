"""The provider that answers from stored payloads: the same run again, with no key."""

from __future__ import annotations

import json
import time
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from agents.llm.answers import Answer, Exchange, one_line, read_answer
from agents.llm.digest import request_digest
from agents.llm.endpoints import Route, replay_file
from agents.llm.requests import LLMRequest, Reply, Status, Usage
from agents.models import LLMPayload


def answer(request: LLMRequest, route: Route) -> Exchange:
    """Answer from the file that the model string names (``replay:FILE``), written by ``manage.py export_payloads``."""
    started_at = time.time()
    path, digest = replay_file(route.model), request_digest(request)
    stored: dict[str, Any] = {}
    try:
        stored = stored_answers(path).get(digest, {})
        found = _read(request, stored, path)
    except (OSError, ValueError) as problem:
        found = Answer(Status.REJECTED, error=one_line(f"cannot read {path}: {problem}"))
    return Exchange(
        Reply(
            status=found.status,
            value=found.value,
            error=found.error,
            text=str(stored.get("text", "")),
            tool_calls=found.tool_calls,
            stop_reason=str(stored.get("stop_reason", "")),
            provider="replay",
            model=route.model,
            served_model=str(stored.get("served_model", "")),
            usage=Usage(0, 0, 0, 0),
            request_digest=digest,
            latency_ms=round((time.time() - started_at) * 1000),
            attempts=0,
        ),
        started_at,
    )


def _read(request: LLMRequest, stored: dict[str, Any], path: Path) -> Answer:
    if not stored:
        return Answer(Status.REJECTED, error=f"no stored answer for this request in {path}")
    blocks = stored.get("tool_calls", [])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ValueError("the tool_calls of an answer are not a list of objects")
    text, stop_reason = str(stored.get("text", "")), str(stored.get("stop_reason", ""))
    return read_answer(request, text=text, stop_reason=stop_reason, tool_blocks=blocks)


def stored_answers(path: Path) -> dict[str, dict[str, Any]]:
    """The answers in a JSONL file by request digest; read once per version of the file.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is not a JSON object with a ``digest``.
    """
    return _load(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(path: Path, _version: int) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                answers[row["digest"]] = row
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"line {number} is not a JSON object with a digest") from None
    return answers


def export_answers(out: Path, *, since: datetime | None = None, work_id: str = "") -> int:
    """Write stored answers as JSONL for a replay and return how many.

    One per request digest: the newest that was ``ok``, else the newest that the model gave at all, so that a replay
    meets the same refusals and malformed answers.

    Args:
        out: The file; written beside its place first, so that a broken run leaves the old one.
        since: Only calls from then on.
        work_id: Only calls that served this work.

    Raises:
        OSError: The file cannot be written.
    """
    answered = [Status.OK, Status.REFUSED, Status.TRUNCATED, Status.MALFORMED]
    payloads = LLMPayload.objects.filter(call__status__in=answered).exclude(call__request_digest="")
    if since is not None:
        payloads = payloads.filter(call__created_at__gte=since)
    if work_id:
        payloads = payloads.filter(call__work_id=work_id)
    chosen: dict[str, int] = {}
    for status in (None, Status.OK):  # the ok ones last: they win
        some = payloads if status is None else payloads.filter(call__status=status)
        chosen.update(some.order_by("call_id").values_list("call__request_digest", "pk"))
    if not chosen:
        return 0
    draft = out.with_name(out.name + ".part")
    with draft.open("w", encoding="utf-8") as lines:
        keep = set(chosen.values())
        for payload in payloads.select_related("call").defer("request").order_by("pk").iterator(chunk_size=500):
            if payload.pk in keep:
                lines.write(json.dumps(_row(payload), ensure_ascii=False) + "\n")
    draft.replace(out)
    return len(chosen)


def _row(payload: LLMPayload) -> dict[str, Any]:
    call = payload.call
    row = {
        "digest": call.request_digest,
        "model": call.model,
        "served_model": call.served_model,
        "stop_reason": call.stop_reason,
        "text": payload.reply,
    }
    return row | {"tool_calls": payload.tool_calls} if payload.tool_calls else row

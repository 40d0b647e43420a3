"""Providers that need no network: the responders that settings name (``offline:…``), and stored answers (``replay:FILE``)."""

from __future__ import annotations

import json
import logging
import time
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from agents.llm.answers import Answer, Exchange, one_line, parsed, read_answer
from agents.llm.endpoints import Route, replay_file
from agents.llm.requests import InvalidAnswer, LLMRequest, Reply, Status, Usage, request_digest
from agents.models import LLMPayload

logger = logging.getLogger(__name__)


def answer_at_hand(request: LLMRequest, route: Route) -> Exchange:
    """Answer in the calling thread, at no cost."""
    started_at, begun, digest = time.time(), time.perf_counter(), request_digest(request)
    answer, stored = (
        _respond(request) if route.provider == "offline" else _replay(request, replay_file(route.model), digest)
    )
    reply = Reply(
        status=answer.status,
        value=answer.value,
        error=answer.error,
        text=str(stored.get("text", "")),
        tool_calls=answer.tool_calls,
        stop_reason=str(stored.get("stop_reason", "")),
        provider=route.provider,
        model=route.model,
        served_model=route.model if route.provider == "offline" else str(stored.get("served_model", "")),
        usage=Usage(0, 0, 0, 0),
        request_digest=digest,
        latency_ms=round((time.perf_counter() - begun) * 1000),
        attempts=0,
    )
    return Exchange(reply, started_at)


def _respond(request: LLMRequest) -> tuple[Answer, dict[str, Any]]:
    """Ask the responder of the request's task.

    A responder is named in `OFFLINE_RESPONDERS` by a dotted path. It takes the request and returns the object that a
    model would have written as JSON (or text, where the request has no schema). Where the request has tools it may
    return ``{"text": str, "tool_calls": [{"name": str, "input": {…}}, …]}``. It raises `LookupError` where it has no
    answer (`rejected`) and `InvalidAnswer` where the request makes no sense to it (`malformed`).
    """
    given: Any = ""
    blocks: list[dict[str, Any]] = []
    try:
        if request.task not in settings.OFFLINE_RESPONDERS:
            known = ", ".join(sorted(settings.OFFLINE_RESPONDERS)) or "none"
            raise LookupError(
                f"no offline responder for task {request.task!r} (OFFLINE_RESPONDERS has: {known}); this needs an LLM"
            )
        given = import_string(settings.OFFLINE_RESPONDERS[request.task])(request)
        if request.tools and isinstance(given, dict):
            given, blocks = given.get("text", ""), given.get("tool_calls", [])
            if not isinstance(given, str) or not _are_objects(blocks):
                raise InvalidAnswer("the responder's text must be a string and its tool_calls a list of objects")
    except LookupError as problem:
        answer = Answer(Status.REJECTED, error=one_line(str(problem.args[0] if problem.args else "no offline answer")))
    except InvalidAnswer as problem:
        answer = Answer(Status.MALFORMED, error=one_line(str(problem)))
    except Exception as problem:
        logger.exception("the offline responder of task %s failed", request.task)
        error = one_line(f"the offline responder failed: {type(problem).__name__}: {problem}")
        answer = Answer(Status.REJECTED, error=error)
    else:
        if not isinstance(given, str):
            return parsed(request, given), {"text": json.dumps(given, ensure_ascii=False, default=str)}
        answer = read_answer(request, text=given, stop_reason="", tool_blocks=blocks)
    return answer, {"text": given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)}


def _replay(request: LLMRequest, path: Path, digest: str) -> tuple[Answer, dict[str, Any]]:
    """Answer from a file that ``manage.py export_payloads`` wrote."""
    try:
        stored = _stored_answers(path).get(digest, {})
        if not stored:
            return Answer(Status.REJECTED, error=f"no stored answer for this request in {path}"), {}
        blocks = stored.get("tool_calls", [])
        if not _are_objects(blocks):
            raise ValueError("the tool_calls of an answer are not a list of objects")
        text, stop_reason = str(stored.get("text", "")), str(stored.get("stop_reason", ""))
        return read_answer(request, text=text, stop_reason=stop_reason, tool_blocks=blocks), stored
    except (OSError, ValueError) as problem:
        return Answer(Status.REJECTED, error=one_line(f"cannot read {path}: {problem}")), {}


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _stored_answers(path: Path) -> dict[str, dict[str, Any]]:
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
        wanted = set(chosen.values())
        for payload in payloads.select_related("call").defer("request").order_by("pk").iterator(chunk_size=500):
            if payload.pk in wanted:
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

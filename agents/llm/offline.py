"""The provider with no key and no network: it asks the responder that settings name for the request's task."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from agents.llm.answers import Answer, Exchange, one_line, parsed, read_answer
from agents.llm.digest import request_digest
from agents.llm.endpoints import Route
from agents.llm.requests import InvalidAnswer, LLMRequest, Reply, Status, Usage

logger = logging.getLogger(__name__)


def answer(request: LLMRequest, route: Route) -> Exchange:
    """Answer in the calling thread, at no cost.

    A responder is named in `OFFLINE_RESPONDERS` by a dotted path. It takes the request and returns the object that a
    model would have written as JSON (or text, where the request has no schema). Where the request has tools it may
    return ``{"text": str, "tool_calls": [{"name": str, "input": {…}}, …]}``. It raises `LookupError` where it has no
    answer (`rejected`) and `InvalidAnswer` where the request makes no sense to it (`malformed`).
    """
    started_at, begun = time.time(), time.perf_counter()
    given: Any = ""
    blocks: list[dict[str, Any]] = []
    try:
        given = _responder(request.task)(request)
        if request.tools and isinstance(given, dict):
            given, blocks = _said_and_done(given)
    except LookupError as problem:
        found = Answer(Status.REJECTED, error=one_line(str(problem.args[0] if problem.args else "no offline answer")))
    except InvalidAnswer as problem:
        found = Answer(Status.MALFORMED, error=one_line(str(problem)))
    except Exception as problem:
        logger.exception("the offline responder of task %s failed", request.task)
        found = Answer(
            Status.REJECTED, error=one_line(f"the offline responder failed: {type(problem).__name__}: {problem}")
        )
    else:
        found = (
            read_answer(request, text=given, stop_reason="", tool_blocks=blocks)
            if isinstance(given, str)
            else parsed(request, given)
        )
    return Exchange(
        Reply(
            status=found.status,
            value=found.value,
            error=found.error,
            text=given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str),
            tool_calls=found.tool_calls,
            provider="offline",
            model=route.model,
            served_model=route.model,
            usage=Usage(0, 0, 0, 0),
            request_digest=request_digest(request),
            latency_ms=round((time.perf_counter() - begun) * 1000),
            attempts=0,
        ),
        started_at,
    )


def _said_and_done(given: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    text, calls = given.get("text", ""), given.get("tool_calls", [])
    if not isinstance(text, str) or not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise InvalidAnswer("the responder's text must be a string and its tool_calls a list of objects")
    return text, calls


def _responder(task: str) -> Any:
    responders = settings.OFFLINE_RESPONDERS
    if task not in responders:
        known = ", ".join(sorted(responders)) or "none"
        raise LookupError(
            f"no offline responder for task {task!r} (OFFLINE_RESPONDERS has: {known}); this needs an LLM"
        )
    return import_string(responders[task])

"""Rules and scripts of ours that answer in place of a model: the default, without key and network. Each app declares its responders."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string

from agents.kit.capability import declared
from agents.kit.llm.providers.base import LocalAnswer, LocalProvider
from agents.kit.llm.requests import (
    Answer,
    InvalidAnswer,
    LLMRequest,
    Status,
    are_objects,
    parsed,
    read_answer,
    short_line,
)

logger = logging.getLogger(__name__)


class Offline(LocalProvider):
    """The responders that apps declare."""

    name = "offline"
    is_heuristic = True

    def answer(self, request: LLMRequest, model: str, digest: str) -> LocalAnswer:
        """Ask the responder of the request's task.

        An app declares its responders as `offline_responders`, by dotted paths. A responder takes the request and returns the object that a
        model would have written as JSON (or text, where the request has no schema). Where the request has tools it may
        return ``{"text": str, "tool_calls": [{"name": str, "input": {…}}, …]}``. It raises `LookupError` where it has no
        answer (`rejected`) and `InvalidAnswer` where the request makes no sense to it (`malformed`). Any other exception is logged and
        the answer `rejected`, too. A text is read as a model's answer is; an object needs no reading.
        """
        content: Any = ""
        blocks: list[dict[str, Any]] = []
        try:
            content = _responder_of(request)(request)
            if request.tools and isinstance(content, dict):
                blocks = content.get("tool_calls", [])
                content = content.get("text", "")
                if not isinstance(content, str) or not are_objects(blocks):
                    raise InvalidAnswer("the responder's text must be a string and its tool_calls a list of objects")
        except LookupError as problem:
            answer = Answer(
                Status.REJECTED, error=short_line(str(problem.args[0] if problem.args else "no offline answer"))
            )
        except InvalidAnswer as problem:
            answer = Answer(Status.MALFORMED, error=short_line(str(problem)))
        except Exception as problem:
            logger.exception("the offline responder of task %s failed", request.task)
            error = short_line(f"the offline responder failed: {type(problem).__name__}: {problem}")
            answer = Answer(Status.REJECTED, error=error)
        else:
            if not isinstance(content, str):
                text = json.dumps(content, ensure_ascii=False, default=str)
                return LocalAnswer(answer=parsed(request, content), text=text, served_model=model)
            answer = read_answer(request, text=content, stop_reason="", tool_blocks=blocks)
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
        return LocalAnswer(answer=answer, text=text, served_model=model)


def _responder_of(request: LLMRequest) -> Callable[[LLMRequest], Any]:
    """Return the responder of the request's task; LookupError where no app declares one."""
    responders = declared("offline_responders")
    if request.task not in responders:
        names = ", ".join(sorted(responders)) or "none"
        raise LookupError(f"no offline responder for task {request.task!r} (there are: {names}); this needs an LLM")
    responder: Callable[[LLMRequest], Any] = import_string(responders[request.task])
    return responder


PROVIDER = Offline()

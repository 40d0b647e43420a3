"""What of a result must stay the same from one change of the code to the next: all but names of rows, times and durations."""

from __future__ import annotations

import re
from typing import Any

VARIES = {
    "id", "pk", "ms", "at", "session", "etag", "call", "calls_by_id", "seed_digest", "version", "started", "finished",
    "evaluation", "evaluation_run", "run", "runs", "message", "message_id", "log", "channel_id", "agent_id", "user",
    "persona_version", "latency_ms", "waited_ms", "duration_ms", "seconds", "took", "elapsed", "label", "position",
}  # fmt: skip
PATTERNS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "<date>"),
    (re.compile(r"\b\d{1,2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* \d{4}\b"), "<date>"),
    (re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<server>"),
    (re.compile(r"(?<=/)\d+(?=/|$)"), "<id>"),
    (re.compile(r"\b(evaluation|run|message|turn|call|log|session) #?\d+\b"), r"\1 <id>"),
    (re.compile(r"\b(evaluation_run|run|gate_session):[0-9a-z]+\b"), r"\1:<id>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s)\b"), "<duration>"),
)


def stable(value: Any, key: str = "") -> Any:
    """The value with everything replaced that differs between two runs of the same code."""
    if isinstance(value, dict):
        return {name: stable(part, name) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [stable(part, key) for part in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return "<varies>" if key in VARIES or key.endswith(("_id", "_ms", "_seconds")) else value
    text = str(value)
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return text

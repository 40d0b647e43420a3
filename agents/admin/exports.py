"""What the logs of this floor hold as files; columns are named as in the API."""

from __future__ import annotations

from agents.admin.logs import Export, export_of, same
from agents.models import Message, Run


def _user(message: Message) -> str | None:
    return message.user.get_username() if message.user is not None else None


def _took(run: Run) -> float | None:
    if run.started_at is None or run.finished_at is None:
        return None
    return round((run.finished_at - run.started_at).total_seconds(), 3)


CALLS: Export = export_of(
    {
        **same("id", "created_at", "role", "purpose", "mechanism", "dimension"),
        "agent": "agent.slug",
        "run": "run_id",
        **same("work_id", "provider", "endpoint", "model", "served_model", "status", "error", "stop_reason"),
        **same("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd"),
        **same("latency_ms", "attempts", "batch", "request_id", "request_digest"),
    },
    select=("agent",),
)
RUNS: Export = export_of(
    {
        **same("id", "created_at", "started_at", "finished_at"),
        "seconds": _took,
        "agent": "agent.slug",
        "channel": "channel.slug",
        "trigger": "trigger_id",
        **same("prompt", "depth", "status", "stop_reason", "error", "attempt", "overrides", "trace"),
    },
    select=("agent", "channel"),
    texts=("trace",),
)
MESSAGES: Export = export_of(
    {
        "id": "pk",
        "channel": "channel.slug",
        **same("position", "external_id"),
        "author": "author_name",
        "agent": "agent.slug",
        "user": _user,
        "outsider": "outsider",
        "parent": "parent_id",
        **same("text", "payload", "sent_at"),
        "run": "run_id",
        "persona_version": "persona_version.number",
        **same("synthetic", "tags"),
    },
    select=("channel", "agent", "user", "persona_version"),
)
BATCHES: Export = export_of(
    same(
        *("id", "created_at", "batch_id", "status", "provider_status", "work_id", "round", "model", "requests"),
        *("answered", "expires_at", "finished_at", "error"),
    )
)

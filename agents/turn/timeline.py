"""What happened in a turn, in order, for people: as values, as JSON, and as lines in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.kit.llm.ledger import Totals, totals
from agents.kit.models import LLMCall
from agents.models import Message, Run, RunMessage


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        at: Seconds since the turn was first claimed, when it began.
        what: ``model call``, the name of a tool, or ``stage``.
        text: What was said, asked or answered, in one or more lines.
        ms: How long it took; None where that was not measured.
        stages: What the stages did with it, as in `Run.trace`.
    """

    at: float
    what: str
    text: str
    ms: int | None = None
    stages: tuple[Mapping[str, Any], ...] = ()


def events(run: Run) -> list[Event]:
    """The turn's events in order: what the stages prepared, each model call and tool, and what the stages did at the end."""
    begun = run.started_at or run.created_at
    trace: Sequence[Mapping[str, Any]] = run.trace
    happened = [Event(0.0, "stages", "", stages=before)] if (before := _phases(trace, "received", "prepare")) else []
    calls: dict[str, Mapping[str, Any]] = {}
    exchanged = {row.step_id: row for row in RunMessage.objects.filter(run=run).select_related("message")}
    at = 0.0
    for step in run.steps.order_by("number"):
        at = (step.created_at - begun).total_seconds() - (step.duration_ms or 0) / 1000
        row = exchanged.get(step.pk)
        if step.kind == "model_call":
            calls.update({call["id"]: call for call in (row.content.get("tool_calls", []) if row else [])})
            happened.append(Event(at, "model call", _reply(step.detail, row), step.duration_ms))
        else:
            stages = tuple(step.detail.get("stages", ()))
            happened.append(Event(at, step.detail["tool"], _result(row, calls), step.duration_ms, stages))
    if after := _phases(trace, "finish"):
        end = ((run.finished_at or begun) - begun).total_seconds()
        happened.append(Event(max(end, at), "stages", _late(run), stages=after))
    return happened


def as_json(run: Run) -> dict[str, Any]:
    """The turn as one JSON object."""
    own, all_calls = spent(run)
    return {
        "run": run.pk,
        "agent": run.agent.slug,
        "channel": run.channel.slug if run.channel else None,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "error": run.error,
        "said": [
            {"channel": message.channel.slug, "number": message.position, "text": message.text} for message in said(run)
        ],
        "events": [
            {"at": round(e.at, 3), "what": e.what, "text": e.text, "ms": e.ms, "stages": list(e.stages)}
            for e in events(run)
        ],
        "trace": run.trace,
        "usage": _usage(own),
        "usage_with_stages": _usage(all_calls),
    }


def lines(run: Run) -> Iterator[str]:
    """The turn as a readable timeline."""
    where = f"#{run.channel.slug}" if run.channel else "a deleted channel"
    yield f"Turn {run.pk}: {run.agent.display_name} in {where}"
    for event in events(run):
        took = f"  ({event.ms} ms)" if event.ms is not None else ""
        first, *rest = event.text.splitlines() or [""]
        yield f"{max(event.at, 0):7.2f} s  {event.what}{took}{': ' if first else ''}{first}"
        yield from (f"           {line}" for line in rest)
        yield from (f"           {stage_line(entry)}" for entry in event.stages)
    own, all_calls = spent(run)
    yield f"Ended: {run.get_status_display()}" + (f", {run.get_stop_reason_display()}" if run.stop_reason else "")
    if run.error:
        yield f"  {run.error}"
    yield f"The agent's calls: {_sums(own)}"
    if all_calls.calls > own.calls:
        yield f"With the stages' calls: {_sums(all_calls)}"


def stage_line(entry: Mapping[str, Any]) -> str:
    """One entry of a trace on one line."""
    counters = "".join(f", {name} {number}" for name, number in entry.get("counters", {}).items())
    why = f": {entry['why']}" if entry.get("why") else ""
    return f"· {entry['stage']} {entry['phase']} {entry['status']}, {entry['ms']:g} ms{counters}{why}"


def said(run: Run) -> list[Message]:
    """What was said in the turn, in order."""
    return list(Message.objects.filter(run=run).select_related("channel").order_by("pk"))


def spent(run: Run) -> tuple[Totals, Totals]:
    """Sums of the agent's own model calls, and of all that the turn caused."""
    return totals(work_id=f"run:{run.pk}"), totals(LLMCall.objects.filter(run=run))


def _phases(trace: Sequence[Mapping[str, Any]], *phases: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(entry for entry in trace if entry["phase"] in phases)


def _reply(detail: Mapping[str, Any], row: RunMessage | None) -> str:
    if row is None:
        return f"{detail['model']} gave no usable answer ({detail['status']}): {detail['error']}"
    text = str(row.content.get("text", "")).strip()
    asked = ", ".join(call["name"] for call in row.content["tool_calls"]) or "no tool"
    return f"{detail['model']} asks for {asked}" + (f"\n{text}" if text else "")


def _result(row: RunMessage | None, calls: Mapping[str, Mapping[str, Any]]) -> str:
    if row is None:
        return ""
    content, detail = row.content, row.content["detail"]
    given = calls.get(content["call_id"], {}).get("input", {})
    if row.message is not None:
        return (
            f"said in {detail['channel']} as message {row.message.position} ({detail['outcome']})\n{row.message.text}"
        )
    if detail.get("committed") is False:
        return f"sent back ({detail['outcome']})\n{given.get('text', '')}\nFeedback:\n{detail['feedback']}"
    asked = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"{asked}\n{'refused: ' if content['is_error'] else ''}{content['text']}".strip()


def _late(run: Run) -> str:
    """What was said without a tool: the best attempt that a stage committed at the end."""
    linked = RunMessage.objects.filter(run=run, message__isnull=False).values_list("message", flat=True)
    late = [message for message in said(run) if message.pk not in set(linked)]
    return "\n".join(
        f"said in {message.channel.slug} as message {message.position}\n{message.text}" for message in late
    )


def _usage(sums: Totals) -> dict[str, Any]:
    tokens = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    return {
        "calls": sums.calls,
        **{name: getattr(sums, name) for name in tokens},
        "cost_usd": str(sums.cost_usd),
        "unpriced_calls": sums.unpriced,
    }


def _sums(sums: Totals) -> str:
    tokens = sums.input_tokens + sums.cache_read_tokens + sums.cache_write_tokens
    cost = f"${sums.cost_usd:.4f}"
    if sums.unpriced:
        cost = f"{cost} + {sums.unpriced} unpriced" if sums.cost_usd else "unpriced"
    return f"{sums.calls}, {tokens:,} tokens in, {sums.output_tokens:,} out, {cost}"

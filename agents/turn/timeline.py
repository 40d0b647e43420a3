"""The timeline of a turn, for people: its events in order as values, as JSON, and as lines in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.kit.llm.ledger import Totals, totals
from agents.kit.models import LLMCall
from agents.models import Message, Run, RunMessage


@dataclass(frozen=True, slots=True)
class Event:
    """A model call, the use of a tool, or what stages did before or after these.

    Attributes:
        at: When it began, in seconds since the turn was first leased.
        what: ``model call``, the name of a tool, or ``stages``.
        text: What was said, asked or answered, in one or more lines.
        ms: How long it took; None where that was not measured.
        stages: Entries of what the stages did with it, as in `Run.trace`.
    """

    at: float
    what: str
    text: str
    ms: int | None = None
    stages: tuple[Mapping[str, Any], ...] = ()


def events(run: Run) -> list[Event]:
    """Return the turn's events in order: what the stages prepared, each model call and tool, and what the stages did at the end.

    The first and the last are there only where the trace has entries for them.
    """
    started = run.started_at or run.created_at
    happened = []
    before = _of_phases(run.trace, "received", "prepare")
    if before:
        happened.append(Event(0.0, "stages", "", stages=before))
    row_of_step = {row.step_id: row for row in RunMessage.objects.filter(run=run).select_related("message")}
    calls: dict[str, Mapping[str, Any]] = {}  # tool calls by their ids
    at = 0.0
    for step in run.steps.order_by("number"):
        # A step is stored when it ends.
        at = (step.created_at - started).total_seconds() - (step.duration_ms or 0) / 1000
        row = row_of_step.get(step.pk)  # None: a model call without a usable reply, or the exchange was deleted
        if step.kind == "model_call":
            for call in row.content.get("tool_calls", []) if row else []:
                calls[call["id"]] = call
            happened.append(Event(at, "model call", _reply_text(step.detail, row), step.duration_ms))
        else:
            stages = tuple(step.detail.get("stages", ()))
            happened.append(Event(at, step.detail["tool"], _result_text(row, calls), step.duration_ms, stages))
    after = _of_phases(run.trace, "finish")
    if after:
        end = ((run.finished_at or started) - started).total_seconds()
        happened.append(Event(max(end, at), "stages", _said_at_end(run), stages=after))  # not before the last step
    return happened


def as_json(run: Run) -> dict[str, Any]:
    """Return the turn as one JSON object, with its events, what was said, and what it used without and with the stages' model calls."""
    own, with_stages = spent(run)
    messages = []
    for message in messages_of(run):
        messages.append({"channel": message.channel.slug, "number": message.position, "text": message.text})
    shown_events = []
    for event in events(run):
        shown_events.append(
            {
                "at": round(event.at, 3),
                "what": event.what,
                "text": event.text,
                "ms": event.ms,
                "stages": list(event.stages),
            }
        )
    return {
        "run": run.pk,
        "agent": run.agent.slug,
        "channel": run.channel.slug if run.channel else None,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "error": run.error,
        "said": messages,
        "events": shown_events,
        "trace": run.trace,
        "usage": _usage(own),
        "usage_with_stages": _usage(with_stages),
    }


def lines(run: Run) -> Iterator[str]:
    """Yield the turn as a readable timeline; the last line has the sums with the stages' model calls, where there were any."""
    where = f"#{run.channel.slug}" if run.channel else "a deleted channel"
    yield f"Turn {run.pk}: {run.agent.display_name} in {where}"
    for event in events(run):
        yield from _event_lines(event)
    ended = f"Ended: {run.get_status_display()}"
    if run.stop_reason:
        ended += f", {run.get_stop_reason_display()}"
    yield ended
    if run.error:
        yield f"  {run.error}"
    own, with_stages = spent(run)
    yield f"The agent's calls: {_totals_text(own)}"
    if with_stages.calls > own.calls:
        yield f"With the stages' calls: {_totals_text(with_stages)}"


def _event_lines(event: Event) -> Iterator[str]:
    """Yield an event as ``   1.20 s  model call  (830 ms): …``, further lines of its text, and a line for each stage."""
    first, *others = event.text.splitlines() or [""]
    head = f"{max(event.at, 0):7.2f} s  {event.what}"
    if event.ms is not None:
        head += f"  ({event.ms} ms)"
    if first:
        head += f": {first}"
    yield head
    for line in others:
        yield f"           {line}"
    for entry in event.stages:
        yield f"           {stage_line(entry)}"


def stage_line(entry: Mapping[str, Any]) -> str:
    """Return one entry of a trace on one line, such as ``· gate review ran, 812.5 ms, judged 2``."""
    why = f": {entry['why']}" if entry.get("why") else ""
    counters = "".join(f", {name} {number}" for name, number in entry.get("counters", {}).items())
    return f"· {entry['stage']} {entry['phase']} {entry['status']}, {entry['ms']:g} ms{counters}{why}"


def messages_of(run: Run) -> list[Message]:
    """Return what was said in the turn, in order."""
    return list(Message.objects.filter(run=run).select_related("channel").order_by("pk"))


def spent(run: Run) -> tuple[Totals, Totals]:
    """Return the sums of the agent's own model calls, and of all that the turn caused."""
    return totals(work_id=f"run:{run.pk}"), totals(LLMCall.objects.filter(run=run))


def _of_phases(trace: Sequence[Mapping[str, Any]], *phases: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(entry for entry in trace if entry["phase"] in phases)


def _reply_text(detail: Mapping[str, Any], row: RunMessage | None) -> str:
    """Return what a model call was answered: which tools it asks for and its text, or why it cannot be used."""
    if row is None:
        return f"{detail['model']} gave no usable answer ({detail['status']}): {detail['error']}"
    tool_names = ", ".join(call["name"] for call in row.content["tool_calls"]) or "no tool"
    lines = [f"{detail['model']} asks for {tool_names}"]
    text = str(row.content.get("text", "")).strip()
    if text:
        lines.append(text)
    return "\n".join(lines)


def _result_text(row: RunMessage | None, calls: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what became of a tool call: what was said, the feedback with which it was sent back, or the tool's answer.

    Args:
        row: The recorded answer; None = it was deleted, and the result is empty.
        calls: What the model asked for, by id of the call; a stage's draft is none of them.
    """
    if row is None:
        return ""
    content = row.content
    detail = content["detail"]
    tool_input = calls.get(content["call_id"], {}).get("input", {})
    if row.message is not None:
        where = f"said in {detail['channel']} as message {row.message.position} ({detail['outcome']})"
        return f"{where}\n{row.message.text}"
    if detail.get("committed") is False:
        return f"sent back ({detail['outcome']})\n{tool_input.get('text', '')}\nFeedback:\n{detail['feedback']}"
    arguments = ", ".join(f"{name}={value!r}" for name, value in tool_input.items())
    refused = "refused: " if content["is_error"] else ""
    return f"{arguments}\n{refused}{content['text']}".strip()


def _said_at_end(run: Run) -> str:
    """Return what was said without a tool: the best attempt, which a stage committed at the end; empty where there is none."""
    said_by_tools = set(RunMessage.objects.filter(run=run, message__isnull=False).values_list("message", flat=True))
    texts = []
    for message in messages_of(run):
        if message.pk not in said_by_tools:
            texts.append(f"said in {message.channel.slug} as message {message.position}\n{message.text}")
    return "\n".join(texts)


def _usage(sums: Totals) -> dict[str, Any]:
    """Return sums of model calls for JSON; the cost is that of the priced calls alone, as a text, which loses no digit."""
    return {
        "calls": sums.calls,
        "input_tokens": sums.input_tokens,
        "output_tokens": sums.output_tokens,
        "cache_read_tokens": sums.cache_read_tokens,
        "cache_write_tokens": sums.cache_write_tokens,
        "cost_usd": str(sums.cost_usd),
        "unpriced_calls": sums.unpriced,
    }


def _totals_text(sums: Totals) -> str:
    """Return sums of model calls as ``3, 1,200 tokens in, 90 out, $0.0031``."""
    tokens_in = sums.input_tokens + sums.cache_read_tokens + sums.cache_write_tokens
    cost = f"${sums.cost_usd:.4f}"
    if sums.unpriced and sums.cost_usd:
        cost += f" + {sums.unpriced} unpriced"
    elif sums.unpriced:
        cost = "unpriced"
    return f"{sums.calls}, {tokens_in:,} tokens in, {sums.output_tokens:,} out, {cost}"

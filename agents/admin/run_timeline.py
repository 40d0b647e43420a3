"""A turn as a timeline: what the agent was shown, what it asked for, what became of it, and what the stages did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.run_waterfall import STAGE_TONES, run_waterfall
from agents.admin.transcript import transcript_url
from agents.models import LLMCall, Run, RunMessage, RunStep


def timeline_context(run: Run) -> dict[str, Any]:
    """What the template shows of a turn, in three queries."""
    steps = list(RunStep.objects.filter(run=run).order_by("number"))
    exchange = list(RunMessage.objects.filter(run=run).select_related("message").order_by("number"))
    asked = _tool_inputs(exchange)
    by_step: dict[int, list[RunMessage]] = {}
    for entry in exchange:
        if entry.step_id is not None:
            by_step.setdefault(entry.step_id, []).append(entry)
    return {
        "shown": [_shown(entry) for entry in exchange if entry.step_id is None],
        "steps": [_step(step, by_step.get(step.pk, []), asked) for step in steps],
        "waterfall": run_waterfall(run, steps),
        "stages": [_stage(entry) for entry in run.trace if isinstance(entry, dict)],
    }


def _tool_inputs(exchange: Iterable[RunMessage]) -> dict[str, Any]:
    """What the model gave to each tool call, by the call's id."""
    found: dict[str, Any] = {}
    for entry in exchange:
        for call in _list(entry.content, "tool_calls"):
            if isinstance(call, dict):
                found[str(call.get("id"))] = call.get("input")
    return found


def _shown(entry: RunMessage) -> dict[str, Any]:
    """A part of the prompt, or what a stage answered in place of the model."""
    texts = [str(block.get("text", "")) for block in _list(entry.content, "blocks") if isinstance(block, dict)]
    text = "\n\n".join(texts)
    titles = {"system": "System prompt", "user": "What it was asked", "assistant": "A stage answered in its place"}
    return {
        "title": titles.get(entry.role, entry.role),
        "size": f"{len(text):,} characters",
        "text": display.block(text) if texts else display.json_block(entry.content),
        "sections": [
            display.badge(section.get("heading", ""), "accent" if section.get("stage") else "plain", _added(section))
            for section in _list(entry.content, "sections")
            if isinstance(section, dict)
        ],
    }


def _added(section: dict[str, Any]) -> str:
    return f"added by {section['stage']}" if section.get("stage") else ""


def _step(step: RunStep, entries: list[RunMessage], asked: dict[str, Any]) -> dict[str, Any]:
    detail = step.detail if isinstance(step.detail, dict) else {}
    shown: dict[str, Any] = {
        "number": step.number,
        "kind": step.kind.replace("_", " "),
        "duration": "" if step.duration_ms is None else f"{step.duration_ms:,} ms",
        "raw": display.json_block(step.detail),
    }
    if step.kind == "model_call":
        return shown | _model_call(detail, entries)
    if step.kind == "tool_call":
        return shown | _tool_call(detail, entries, asked)
    return shown


def _model_call(detail: dict[str, Any], entries: list[RunMessage]) -> dict[str, Any]:
    status = str(detail.get("status", ""))
    said = [str(entry.content.get("text", "")) for entry in entries if isinstance(entry.content, dict)]
    call = detail.get("call")
    return {
        "status": display.badge(status, display.STATUS_TONES.get(status, "plain")) if status else "",
        "model": display.visible(detail.get("model", "")),
        "tools": [display.visible(tool) for tool in _list(detail, "tools")],
        "error": display.visible(detail.get("error") or ""),
        "said": display.block("\n\n".join(text for text in said if text.strip())),
        "has_said": any(text.strip() for text in said),
        "call": display.page_of(LLMCall(pk=call), "its call") if isinstance(call, int) else "",
        "raw": "",
    }


def _tool_call(detail: dict[str, Any], entries: list[RunMessage], asked: dict[str, Any]) -> dict[str, Any]:
    entry = entries[0] if entries else None
    content = entry.content if entry is not None and isinstance(entry.content, dict) else {}
    given = asked.get(str(content.get("call_id")))
    given = given if isinstance(given, dict) else {}
    message = entry.message if entry is not None else None
    committed = detail.get("committed")
    return {
        "tool": display.visible(detail.get("tool", "")),
        "status": _became(committed, bool(detail.get("is_error"))),
        "outcome": display.visible(str(detail.get("outcome") or "").replace("_", " ")),
        "text": display.block(str(given.get("text", ""))) if given.get("text") else "",
        "given": [(display.visible(name), display.visible(value)) for name, value in given.items() if name != "text"],
        "answer": display.folded(str(content.get("text", "")), 120) if content.get("text") else "",
        "message": display.link(transcript_url(message), "Read it in its conversation") if message else "",
        "feedback": display.block(str(detail.get("feedback") or "")) if detail.get("feedback") else "",
        "raw": "",
    }


def _became(committed: Any, is_error: bool) -> SafeString:
    if committed is True:
        return display.badge("said", "good")
    if committed is False:
        return display.badge("sent back", "warning", "a stage did not let it pass; the feedback went to the agent")
    return display.badge("not done", "bad") if is_error else display.badge("done", "good")


def _stage(entry: dict[str, Any]) -> dict[str, Any]:
    status, counters = str(entry.get("status", "")), entry.get("counters")
    return {
        "phase": display.visible(entry.get("phase", "")),
        "stage": display.visible(entry.get("stage", "")),
        "status": display.badge(status, STAGE_TONES.get(status, "plain")),
        "why": display.visible(entry.get("why") or ""),
        "ms": display.visible(entry.get("ms", "")),
        "counters": [
            display.visible(f"{name.replace('_', ' ')} {value}")
            for name, value in (counters.items() if isinstance(counters, dict) else ())
        ],
    }


def _list(content: Any, name: str) -> list[Any]:
    """A list in a JSON object; empty when there is none."""
    found = content.get(name) if isinstance(content, dict) else None
    return found if isinstance(found, list) else []

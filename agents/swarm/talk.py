"""Report what a swarm did with a message."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from agents.models import Agent, Channel, RunMessage
from agents.swarm.models import SwarmTurn

MOST_REFUSED = 5


class Trace(BaseModel):
    """What a swarm did with one message.

    Attributes:
        intent, swarm: What the message is about, and whose phases answered it.
        calibration: What the calibrators saw; without what they did not see.
        decision: What was decided about asking back: `kind` (clarify, assume, cannot, nothing), its `text`, what is `missing`.
        failed: Why the calibrators gave no answer; empty when they did.
        tools: Each further tool with its answer.
        draft, polished: Before and after polishing; `polished` is empty where nothing changed.
        refused: Polished texts that were not used: phase, text, why.
        replaced: Why safety or error recovery said something else.
        milliseconds: By phase.
        heuristic: Made by rules, without a model.
    """

    intent: str = ""
    swarm: str = ""
    calibration: dict[str, Any] = Field(default_factory=dict)
    decision: dict[str, Any] = Field(default_factory=dict)
    failed: str = ""
    tools: list[dict[str, Any]] = Field(default_factory=list)
    draft: str = ""
    polished: str = ""
    refused: list[dict[str, Any]] = Field(default_factory=list)
    replaced: str = ""
    milliseconds: dict[str, Any] = Field(default_factory=dict)
    heuristic: bool = False


class RefusedPolish(BaseModel):
    """A polished text that was not sent.

    Attributes:
        position: Of the message that was sent instead; null where none was.
        phase, why: Which polisher wrote it, and what it may not change.
    """

    position: int | None
    phase: str
    why: str


def refused_polishes(agent: Agent, channel: Channel) -> list[RefusedPolish]:
    """Return the refused polishes of the last `MOST_REFUSED` turns that had one, the newest turn first, each in the order of its calls."""
    rows = SwarmTurn.objects.filter(agent=agent, channel=channel).exclude(rejected=[]).select_related("message")
    refused: list[RefusedPolish] = []
    for row in rows.order_by("-pk")[:MOST_REFUSED]:
        position = row.message.position if row.message else None
        refused += [RefusedPolish(position=position, phase=step["phase"], why=step["why"]) for step in row.rejected]
    return refused


def trace_of(row: SwarmTurn) -> Trace:
    """Return what a swarm did in a turn, as its row and the answers of its tools have it. A deleted swarm has no name."""
    reading = row.calibration.get("reading", {})
    not_seen: tuple[Any, ...] = (None, "", [], 0, False)
    return Trace(
        intent=row.intent,
        swarm=row.swarm.name if row.swarm else "",
        calibration={name: value for name, value in reading.items() if value not in not_seen},
        decision=row.calibration.get("decision", {}),
        failed=row.calibration.get("failed", ""),
        tools=_tool_answers(row),
        draft=row.draft,
        polished=row.polished,
        refused=row.rejected,
        replaced=row.replaced,
        milliseconds=row.milliseconds,
        heuristic=row.heuristic,
    )


def _tool_answers(row: SwarmTurn) -> list[dict[str, Any]]:
    """Return what the tools of a turn answered, in order, without those that sent messages; nothing of a turn whose run is not stored."""
    if not row.run_id:
        return []
    answers = RunMessage.objects.filter(run=row.run_id, role=RunMessage.Role.TOOL).exclude(tool_name="send_message")
    tools: list[dict[str, Any]] = []
    for answer in answers.order_by("number"):
        is_ok = not answer.content.get("is_error")
        tools.append({"name": answer.tool_name, "ok": is_ok, "answer": answer.content.get("text", "")})
    return tools


def trace_lines(trace: Trace) -> list[str]:
    """Return a trace for a terminal, a line for each thing that happened, e.g. ``clarifier: clarify: How much do you weigh?``.

    What did not happen has no line; a replaced draft is not called polished.
    """
    note = " (by rules, without a model)" if trace.heuristic else ""
    lines = [f"intent: {trace.intent}, swarm: {trace.swarm or 'deleted'}{note}"]
    seen = _seen_values(trace)
    if seen:
        lines.append(f"calibration: {seen}")
    if trace.failed:
        lines.append(f"the calibrators gave no answer: {trace.failed}")
    kind = trace.decision.get("kind", "nothing")
    if kind != "nothing":
        lines.append(f"clarifier: {kind}: {trace.decision['text']}")
    for tool in trace.tools:
        outcome = "" if tool["ok"] else " refused"
        lines.append(f"tool {tool['name']}{outcome}: {tool['answer']}")
    if trace.replaced:
        lines.append(f"replaced: {trace.replaced}")
    elif trace.polished:
        lines.append(f"polished, from: {trace.draft}")
    for refused in trace.refused:
        lines.append(f"polish refused ({refused['phase']}): {refused['why']}")
        lines.append(f"   it was: {refused['text']}")
    if trace.milliseconds:
        lines.append("milliseconds: " + ", ".join(f"{name} {took}" for name, took in trace.milliseconds.items()))
    return lines


def _seen_values(trace: Trace) -> str:
    """Return what the calibrators saw besides entries and the texts that the decision shows: ``tone direct, risk 0.1``."""
    values: list[str] = []
    for name, value in trace.calibration.items():
        if not isinstance(value, list) and name not in ("question", "cannot", "heuristic"):
            values.append(f"{name} {value}")
    return ", ".join(values)

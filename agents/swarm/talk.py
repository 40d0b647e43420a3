"""What a swarm did with a message; and a trial of a swarm on a message that nobody sends."""

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
        failed: Why the calibrators, or in a trial the agent, gave no answer; empty when they did.
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
    """Return the refused polishes of the last `MOST_REFUSED` turns that had one, the newest first."""
    rows = SwarmTurn.objects.filter(agent=agent, channel=channel).exclude(rejected=[]).select_related("message")
    refused: list[RefusedPolish] = []
    for row in rows.order_by("-pk")[:MOST_REFUSED]:
        position = row.message.position if row.message else None
        refused += [RefusedPolish(position=position, phase=step["phase"], why=step["why"]) for step in row.rejected]
    return refused


def trace_of(row: SwarmTurn) -> Trace:
    """What a swarm did, as its row has it."""
    return Trace(**_values(row))


def _values(row: SwarmTurn) -> dict[str, Any]:
    done = RunMessage.objects.filter(run=row.run_id, role=RunMessage.Role.TOOL).exclude(tool_name="send_message")
    reading = row.calibration.get("reading", {})
    return {
        **{
            name: getattr(row, name)
            for name in ("intent", "draft", "polished", "replaced", "milliseconds", "heuristic")
        },
        "swarm": row.swarm.name if row.swarm else "",
        "calibration": {name: value for name, value in reading.items() if value not in (None, "", [], 0, False)},
        "decision": row.calibration.get("decision", {}),
        "failed": row.calibration.get("failed", ""),
        "tools": [
            {"name": one.tool_name, "ok": not one.content.get("is_error"), "answer": one.content.get("text", "")}
            for one in (done.order_by("number") if row.run_id else ())
        ],
        "refused": row.rejected,
    }


def trace_lines(trace: Trace) -> list[str]:
    """A trace for a terminal, a line for each thing that happened."""
    by = " (by rules, without a model)" if trace.heuristic else ""
    lines = [f"intent: {trace.intent}, swarm: {trace.swarm or 'deleted'}{by}"]
    seen = {name: value for name, value in trace.calibration.items() if not isinstance(value, list)}
    if seen := {name: value for name, value in seen.items() if name not in ("question", "cannot", "heuristic")}:
        lines.append("calibration: " + ", ".join(f"{name} {value}" for name, value in seen.items()))
    if trace.failed:
        lines.append(f"the calibrators gave no answer: {trace.failed}")
    if (kind := trace.decision.get("kind", "nothing")) != "nothing":
        lines.append(f"clarifier: {kind}: {trace.decision['text']}")
    lines += [f"tool {one['name']}{'' if one['ok'] else ' refused'}: {one['answer']}" for one in trace.tools]
    if trace.replaced:
        lines.append(f"replaced: {trace.replaced}")
    elif trace.polished:
        lines.append(f"polished, from: {trace.draft}")
    for one in trace.refused:
        lines += [f"polish refused ({one['phase']}): {one['why']}", f"   it was: {one['text']}"]
    if trace.milliseconds:
        lines.append("milliseconds: " + ", ".join(f"{name} {took}" for name, took in trace.milliseconds.items()))
    return lines

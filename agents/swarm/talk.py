"""Talk to an agent here and now, message by message, and say what its swarm did with each; for `manage.py chat` and the demonstration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from pydantic import BaseModel, Field

from agents.models import Agent, Channel, ChannelMember, Message, Run, RunMessage, SwarmTurn
from agents.swarm.state import StateRefused
from agents.text.fences import fault_of
from agents.turn.orchestrator import finish_turn
from agents.turn.send_message import append, start_turn

PERSON = "you"  # who writes, where nobody else is named


class Trace(BaseModel):
    """What a swarm did with one message.

    Attributes:
        intent, swarm: What the message is about, and whose phases answered it.
        calibration: What the calibrators saw; without what they did not see.
        decision: What was decided about asking back: kind, and its text.
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
    tools: list[dict[str, Any]] = Field(default_factory=list)
    draft: str = ""
    polished: str = ""
    refused: list[dict[str, Any]] = Field(default_factory=list)
    replaced: str = ""
    milliseconds: dict[str, Any] = Field(default_factory=dict)
    heuristic: bool = False


class Exchange(BaseModel):
    """A message and what became of it.

    Attributes:
        message: What the person wrote.
        replies: What the agent said.
        run, status, error: The turn, and how it ended.
        trace: What its swarm did; None where none took part.
    """

    message: str
    replies: list[str]
    run: int
    status: str
    error: str
    trace: Trace | None


def begin_talk(agent: Agent) -> Channel:
    """A new direct message with an agent, marked synthetic: what is said there enters no measurement."""
    with transaction.atomic():
        number = 1 + Channel.objects.filter(slug__startswith=f"chat-{agent.slug}-").count()
        while Channel.objects.filter(slug=f"chat-{agent.slug}-{number}").exists():
            number += 1
        slug = f"chat-{agent.slug}-{number}"
        channel: Channel = Channel.objects.create(slug=slug, name=slug, kind=Channel.Kind.DM, synthetic=True)
        ChannelMember.objects.create(channel=channel, agent=agent)
    return channel


def exchange(
    agent: Agent, channel: Channel, text: str, *, person: str = PERSON, overrides: Mapping[str, Any] | None = None
) -> Exchange:
    """Say something to an agent and have it answer in this process.

    Raises:
        StateRefused: The text cannot be said.
        TurnRefused: The agent may not speak there, or an earlier turn of its was left unfinished.
    """
    if fault := fault_of(text):
        raise StateRefused("message", fault)
    with transaction.atomic():
        message = append(channel=channel, outsider=person, text=text)
    run = finish_turn(start_turn(agent=agent, channel=channel, trigger=message, overrides=overrides))
    said = Message.objects.filter(run=run).order_by("pk").values_list("text", flat=True)
    return Exchange(
        message=text, replies=list(said), run=run.pk, status=run.status, error=run.error, trace=trace_of(run)
    )


def trace_of(run: Run) -> Trace | None:
    """What a swarm did in a turn; None where none took part."""
    row = SwarmTurn.objects.filter(run=run).select_related("swarm").first()
    if row is None:
        return None
    done = RunMessage.objects.filter(run=run, role=RunMessage.Role.TOOL).exclude(tool_name="send_message")
    reading = row.calibration.get("reading", {})
    return Trace(
        intent=row.intent,
        swarm=row.swarm.name if row.swarm else "",
        calibration={name: value for name, value in reading.items() if value not in (None, "", [], 0, False)},
        decision=row.calibration.get("decision", {}),
        tools=[
            {"name": one.tool_name, "ok": not one.content.get("is_error"), "answer": one.content.get("text", "")}
            for one in done.order_by("number")
        ],
        draft=row.draft,
        polished=row.polished,
        refused=row.rejected,
        replaced=row.replaced,
        milliseconds=row.milliseconds,
        heuristic=row.heuristic,
    )


def trace_lines(trace: Trace) -> list[str]:
    """A trace for a terminal, a line for each thing that happened."""
    by = " (by rules, without a model)" if trace.heuristic else ""
    lines = [f"intent: {trace.intent}, swarm: {trace.swarm or 'deleted'}{by}"]
    seen = {name: value for name, value in trace.calibration.items() if not isinstance(value, list)}
    if seen := {name: value for name, value in seen.items() if name not in ("question", "cannot", "heuristic")}:
        lines.append("calibration: " + ", ".join(f"{name} {value}" for name, value in seen.items()))
    if (kind := trace.decision.get("kind", "nothing")) != "nothing":
        said = next((trace.decision[name] for name in ("question", "text", "what") if trace.decision.get(name)), "")
        lines.append(f"clarifier: {kind}: {said}")
    lines += [f"tool {one['name']}{'' if one['ok'] else ' refused'}: {one['answer']}" for one in trace.tools]
    if trace.replaced:
        lines.append(f"replaced: {trace.replaced}")
    elif trace.polished:
        lines.append(f"polished, from: {trace.draft}")
    lines += [f"polish refused ({one.get('phase')}): {one.get('why')}: {one.get('text')}" for one in trace.refused]
    if trace.milliseconds:
        lines.append("milliseconds: " + ", ".join(f"{name} {took}" for name, took in trace.milliseconds.items()))
    return lines

"""What a swarm did with a message; and a trial of a swarm on a message that nobody sends."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from pydantic import BaseModel, Field

from agents.kit import llm
from agents.models import Agent, Channel, Message, RunMessage
from agents.swarm.intents import intent_of
from agents.swarm.models import Swarm, SwarmTurn
from agents.swarm.stages import PLACE, Calibration, Place, Polish
from agents.turn.orchestrator import MAX_TOKENS
from agents.turn.pipeline import Accept, Draft, Pipeline, Turn
from agents.turn.prompt import build_prompt
from agents.turn.tools import tool_definitions

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


class Trial(Trace):
    """What a swarm would do with a message of a stranger.

    Attributes:
        guidance: What the agent reads before it answers, beside its persona.
        steps: Each rewriting of the draft in order: phase, text, and why it was refused; empty where it was used.
        text: What would be sent.
    """

    guidance: str = ""
    steps: list[dict[str, str]] = Field(default_factory=list)
    text: str = ""


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


# -- a trial
def try_swarm(swarm: Swarm, *, agent: Agent, message: str, draft: str = "") -> Trial:
    """Pass a message through the stages as if a stranger had begun a conversation with it. Nothing is stored but calls in the ledger.

    Args:
        swarm: Enabled or not.
        agent: Who answers; it need not have the swarm. It is offered no further tools.
        message: What the person writes.
        draft: Polished instead of an answer of the agent's, and also where a question would be asked.
    """
    channel = Channel(pk=0, slug="trial", name="trial", kind=Channel.Kind.DM, synthetic=True)  # no row has this key
    trigger = Message(channel=channel, position=1, outsider="visitor", text=message)
    turn = Turn(agent=agent, channel=channel, trigger=trigger, transcript=[trigger])
    place = Place(message=trigger, intent=intent_of(message), voice=swarm, role=None, stored=False)
    turn.reports[PLACE] = place
    stages, failed = Pipeline([Calibration(), Polish()]), ""
    asked = stages.prepare(turn)
    text = draft or (asked.text if asked is not None else "")
    if not text:
        text, failed = _answer(turn)
    written = "" if asked is not None and not draft else text
    if written:
        text = cast(Accept, stages.review(turn, Draft(written))).draft.text
    row = place.row or SwarmTurn(intent=place.intent, swarm=swarm)
    trial = Trial(**_values(row), text=text, steps=place.polished.steps if place.polished else [])
    trial.guidance = "\n".join(section.body for section in turn.sections)
    trial.failed = "; ".join(filter(None, [trial.failed, failed, *(place.polished.failed if place.polished else ())]))
    trial.draft = written
    return trial


def _answer(turn: Turn) -> tuple[str, str]:
    """What the agent would say first, and why it says nothing."""
    prompt = build_prompt(turn)
    request = llm.LLMRequest(
        role="actor",
        task="turn",
        model=turn.agent.model_id,
        system=prompt.system,
        turns=(prompt.user,),
        tools=tuple(tool for tool in tool_definitions() if tool.name == "send_message"),
        temperature=turn.temperature,
        max_tokens=MAX_TOKENS,
        nonce=turn.nonce,
        facts={"agent": turn.agent.slug, "channel": turn.channel.slug, "sample_lines": list(turn.agent.sample_lines)},
        label=llm.Label(purpose="swarm", mechanism="trial", agent_id=turn.agent.pk),
    )
    reply = llm.complete(request, deadline=settings.TURN_STEP_DEADLINE)
    if not reply.ok:
        return "", f"{reply.status}: {reply.error}"
    said = next((str(call.input.get("text", "")) for call in reply.tool_calls if call.name == "send_message"), "")
    text = (said or reply.text).strip()
    return text, "" if text else "the agent says nothing"

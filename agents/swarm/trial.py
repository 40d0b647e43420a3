"""Try a swarm on a message: what its calibrators say, a draft, and what each polish changes.

No row is written but the calls in the ledger.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, Literal

from django.conf import settings
from pydantic import BaseModel, Field

from agents import llm
from agents.models import Agent, Channel, DialogState, Message, Swarm, SwarmPhase
from agents.swarm.calibration import UNCERTAIN, calibrate, guidance
from agents.swarm.clarifier import Assume, Cannot, Clarify, decide
from agents.swarm.intents import intent_of
from agents.swarm.polish import Material, executor_of, polish
from agents.text.fences import fence, neutral, render_prompt
from agents.turn.pipeline import Turn
from agents.turn.prompt import build_prompt
from agents.turn.tools import tool_definitions

MAX_TOKENS = 4_096


class Piece(BaseModel):
    """A stretch of a text that a polish took out, put in, or left as it was."""

    kind: Literal["same", "out", "in"]
    text: str


class Step(BaseModel):
    """What one polish made of the draft.

    Attributes:
        phase: Its name, or ``post`` for all in one call.
        text: The polished text, whether it was used or not; empty when there was none.
        diff: It against what it was made from.
        refused: Why it was not used. `failed`: why there was none. `replaced`: why another answer stands in its place.
        milliseconds: How long it took.
    """

    phase: str
    text: str = ""
    diff: list[Piece] = Field(default_factory=list)
    refused: str = ""
    failed: str = ""
    replaced: str = ""
    milliseconds: int = 0


class Trial(BaseModel):
    """What a swarm would do with a message of somebody it does not know.

    Attributes:
        intent: Of the message.
        calibration: What the calibrators saw; `guidance`: what the agent reads of it.
        failed: Why calibrators or agent gave no answer; empty when they did.
        question, assumption, cannot: What the clarifier decided; at most one of them.
        draft: The agent's answer, or the one given. Empty where a question is asked instead.
        steps: Each polish, in order. `text`: what would be sent.
        heuristic: Made by rules, without a model.
    """

    intent: str
    calibration: dict[str, Any]
    guidance: str
    failed: str = ""
    question: str = ""
    assumption: str = ""
    cannot: str = ""
    draft: str = ""
    steps: list[Step] = Field(default_factory=list)
    text: str = ""
    heuristic: bool = False


def try_swarm(swarm: Swarm, *, agent: Agent, message: str, draft: str = "") -> Trial:
    """Pass a message through a swarm as if a stranger had written it to the agent, in a conversation that begins with it.

    Args:
        swarm: Enabled or not.
        agent: Who answers; it need not have the swarm.
        message: What the person writes.
        draft: Polished instead of an answer of the agent's, and also where a question would be asked.
    """
    channel = Channel(slug="trial", name="trial", kind=Channel.Kind.DM, synthetic=True)  # not stored
    trigger = Message(channel=channel, position=1, outsider="visitor", text=message)
    turn = Turn(agent=agent, channel=channel, trigger=trigger, transcript=[trigger])
    state = DialogState(agent=agent, channel=channel)
    pre, main, post = (_phases(swarm, phase) for phase in SwarmPhase.Phase.values)
    reading, reply = calibrate(
        agent=agent,
        trigger=trigger,
        transcript=[trigger],
        state=state,
        phases=pre,
        deadline=settings.TURN_SWARM_PRE_DEADLINE,
        nonce=turn.nonce,
        temperature=min((phase.temperature for phase in pre), default=None),
    )
    decision = decide(reading, state, message)
    trial = Trial(
        intent=intent_of(message),
        calibration=reading.model_dump(mode="json"),
        guidance=guidance(reading, nonce=turn.nonce),
        failed="" if reply.ok else f"{reply.status}: {reply.error}",
        question=decision.question if isinstance(decision, Clarify) else "",
        assumption=decision.text if isinstance(decision, Assume) else "",
        cannot=decision.what if isinstance(decision, Cannot) else "",
        draft=draft,
        heuristic=reading.heuristic,
    )
    if not draft and not trial.question:
        advice = render_prompt(
            "swarm/answer",
            guidance=guidance(reading, assumption=trial.assumption, nonce=turn.nonce),
            prompts=[phase.prompt.strip() for phase in main],
            cannot=fence("MISSING", neutral(trial.cannot)[0], turn.nonce) if trial.cannot else "",
            tools=[],
        )
        turn.add_section("How to answer", advice)
        trial.draft, failed = _answer(turn, main)
        trial.failed = trial.failed or failed
    trial.text = trial.draft or trial.question
    if trial.draft:
        material = Material(
            message=message,
            uncertain=reading.uncertainty > UNCERTAIN,
            names=[agent.display_name, trigger.author_name],
        )
        _polish(trial, turn, post, material, executor_of(swarm))
    return trial


def _phases(swarm: Swarm, phase: str) -> list[SwarmPhase]:
    return list(swarm.phases.filter(phase=phase, enabled=True).order_by("order"))


def _answer(turn: Turn, main: Sequence[SwarmPhase]) -> tuple[str, str]:
    """What the agent would say first, and why it says nothing."""
    prompt = build_prompt(turn)
    request = llm.LLMRequest(
        role="actor",
        task="turn",
        model=turn.agent.model_id,
        system=prompt.system,
        turns=(prompt.user,),
        tools=tuple(tool for tool in tool_definitions() if tool.name == "send_message"),
        temperature=main[0].temperature if main else None,
        max_tokens=MAX_TOKENS,
        nonce=turn.nonce,
        facts={
            "agent": turn.agent.slug,
            "channel": turn.channel.slug,
            "sample_lines": list(turn.agent.sample_lines),
        },
        label=llm.Label(purpose="swarm", mechanism="trial", agent_id=turn.agent.pk),
    )
    reply = llm.complete(request, deadline=settings.TURN_STEP_DEADLINE)
    if not reply.ok:
        return "", f"{reply.status}: {reply.error}"
    said = next((str(call.input.get("text", "")) for call in reply.tool_calls if call.name == "send_message"), "")
    text = (said or reply.text).strip()
    return text, "" if text else "the agent says nothing"


def _polish(trial: Trial, turn: Turn, post: Sequence[SwarmPhase], material: Material, executor: str) -> None:
    """Polish the draft group by group, and note what each changed."""
    combined = executor == Swarm.Executor.COMBINED
    groups = [list(post)] if combined else [[phase] for phase in post]
    for group in groups if post and executor != Swarm.Executor.OFF else ():
        before = trial.text
        done = polish(turn, before, group, material, executor=executor)
        made = done.rejected[0]["text"] if done.rejected else done.text
        trial.steps.append(
            Step(
                phase="post" if combined else group[0].name,
                text=made if made != before else "",
                diff=diff(before, made) if made != before else [],
                refused=done.rejected[0]["why"] if done.rejected else "",
                failed="; ".join(done.failed),
                replaced=done.replaced,
                milliseconds=sum(done.milliseconds.values()),
            )
        )
        trial.text, trial.heuristic = done.text, trial.heuristic or done.heuristic
        if done.replaced:
            break


def diff(before: str, after: str) -> list[Piece]:
    """What leads from one text to the other, word by word."""
    old, new = (re.findall(r"\w+|[^\w\s]|\s+", text) for text in (before, after))
    pieces: list[Piece] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            pieces.append(Piece(kind="same", text="".join(new[c:d])))
            continue
        pieces += [Piece(kind="out", text="".join(old[a:b]))] if b > a else []
        pieces += [Piece(kind="in", text="".join(new[c:d]))] if d > c else []
    return pieces

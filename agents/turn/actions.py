"""Carrying out what an agent asked for with a tool. Every problem is an answer to the model, never an exception."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q

from agents import llm
from agents.models import Channel, ChannelMember, MemoryBlock, MemoryPassage, Message, Reaction
from agents.text.fences import fence, neutral
from agents.text.tokens import tokenize
from agents.turn import tools
from agents.turn.admission import KEY_CHARACTERS, RequiredStageFailed, SendRefused
from agents.turn.conversation import within_reach
from agents.turn.send_message import send_message
from agents.turn.templates import render
from agents.turn.tools import ToolFault, read_input, shown
from agents.turn.values import Draft, SendResult, Turn

MEMORY_BLOCKS = 20
SEARCHED_PASSAGES = 1_000
FOUND_PASSAGES = 5


@dataclass(frozen=True, slots=True)
class Performed:
    """What became of a tool call.

    Attributes:
        text: For the model.
        is_error: Whether nothing was done.
        message: The message it committed.
        detail: JSON that is stored with it, enough to go on from after a restart.
        ends: Whether the turn is over.
    """

    text: str
    is_error: bool = False
    message: Message | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    ends: bool = False


def calls_models(call: llm.ToolCall) -> bool:
    """Whether carrying it out may ask a model, so that no transaction may be open."""
    return call.name == "send_message"


def perform(call: llm.ToolCall, *, turn: Turn, nonce: str) -> Performed:
    """Carry out a tool call.

    Args:
        call: What the model asked for.
        turn: Whose; its run is set.
        nonce: For the fences around what others wrote.

    Raises:
        RequiredStageFailed: A stage without which nothing may be said failed: the turn cannot go on.
    """
    try:
        given = read_input(call)
        match given:
            case tools.SendMessage():
                return _send(turn, given, call)
            case tools.ReactToMessage():
                return _react(turn, given)
            case tools.DoNothing():
                turn.abandoned = True
                return Performed("Your turn is over.", detail={"reason": given.reason}, ends=True)
            case tools.UpdateMemory():
                return _update_memory(turn, given)
            case tools.SearchMemory():
                return _search_memory(turn, given, nonce)
            case tools.StoreMemory():
                if not turn.channel.synthetic:
                    MemoryPassage.objects.create(agent=turn.agent, text=given.text)
                return Performed("Kept.", detail=_memory_detail(turn))
    except RequiredStageFailed:
        raise
    except (ToolFault, SendRefused) as fault:
        return Performed(str(fault), is_error=True, detail={"refused": True})


def send_draft(draft: Draft, *, turn: Turn) -> Performed:
    """Send what a stage answered at once in place of the model."""
    if turn.run is None:
        raise ValueError("a stage's draft is sent by a run")
    try:
        result = send_message(
            agent=turn.agent, channel=turn.channel, text=draft.text, payload=draft.payload, run=turn.run, turn=turn,
            idempotency_key=f"run:{turn.run.pk}:draft",
        )  # fmt: skip
    except RequiredStageFailed:
        raise
    except SendRefused as fault:
        return Performed(str(fault), is_error=True, detail={"refused": True}, ends=True)
    return _answer_of(result, turn.channel, draft.text, ends=True)


def _send(turn: Turn, given: tools.SendMessage, call: llm.ToolCall) -> Performed:
    channel = _channel(turn, given.channel)
    result = send_message(
        agent=turn.agent, channel=channel, text=given.text, run=turn.run, turn=turn, idempotency_key=_key(turn, call)
    )
    return _answer_of(result, channel, given.text)


def _answer_of(result: SendResult, channel: Channel, draft: str, *, ends: bool = False) -> Performed:
    detail: dict[str, Any] = {
        "channel": channel.slug,
        "channel_id": channel.pk,
        "committed": result.committed,
        "outcome": result.outcome,
        "session": result.session,
        "stages": [entry.as_json() for entry in result.trace],
    }
    if result.message is None:
        detail["feedback"] = result.feedback
        return Performed(render("sent_back", feedback=result.feedback), is_error=True, detail=detail, ends=ends)
    text = render("sent", channel=channel.slug, number=result.message.position, changed=result.text != draft)
    return Performed(text, message=result.message, detail=detail, ends=ends)


def _key(turn: Turn, call: llm.ToolCall) -> str:
    """The key under which a repeated call commits nothing twice; an overlong id of a server is shortened to its digest."""
    key = f"run:{turn.run.pk if turn.run else ''}:{call.id}"
    return key if len(key) <= KEY_CHARACTERS else key[:60] + ":" + hashlib.sha256(key.encode()).hexdigest()


def _channel(turn: Turn, slug: str) -> Channel:
    """One of the agent's channels, by its short name."""
    mine = {c.slug: c for c in within_reach(turn.agent, turn.channel)}
    wanted = slug.removeprefix("#")
    found = mine.get(wanted) or mine.get(wanted.casefold())
    if found is None:
        allowed = ", ".join(list(mine)[:30]) or "none, you have joined no channel"
        raise ToolFault(f"The field channel is {shown(slug)}; allowed: {allowed}.")
    return found


def _react(turn: Turn, given: tools.ReactToMessage) -> Performed:
    mine = Q(agent=turn.agent, agent__is_active=True)
    if not ChannelMember.objects.filter(mine, channel=turn.channel).exists():
        raise ToolFault(f"You are not an active member of {turn.channel.slug}.")
    message = Message.objects.filter(channel=turn.channel, position=given.message).first()
    if message is None:
        allowed = "the number in front of a message of the conversation you are shown"
        raise ToolFault(f"The field message is {given.message}; allowed: {allowed}.")
    _, new = Reaction.objects.get_or_create(message=message, agent=turn.agent, emoji=given.emoji)
    detail = {"message": message.pk, "emoji": given.emoji}
    text = f"You reacted to message {given.message} with {given.emoji}."
    return Performed(text if new else f"You had put {given.emoji} on message {given.message} before.", detail=detail)


def _update_memory(turn: Turn, given: tools.UpdateMemory) -> Performed:
    labels = MemoryBlock.objects.filter(agent=turn.agent).values_list("label", flat=True)
    known = {tools.plain_label(label): label for label in labels}
    if given.label not in known and len(known) >= MEMORY_BLOCKS:
        raise ToolFault(
            f"The field label is {given.label!r}: you have {len(known)} notes; allowed: {', '.join(sorted(known))}."
        )
    label = known.get(given.label, given.label)
    if not turn.channel.synthetic:
        MemoryBlock.objects.update_or_create(agent=turn.agent, label=label, defaults={"value": given.value})
    return Performed(f"Your note {given.label} is changed.", detail={"label": label, **_memory_detail(turn)})


def _memory_detail(turn: Turn) -> dict[str, Any]:
    """What was only played is not remembered in real life; the agent, who acts as if it were real, is not told."""
    return {"stored": False, "why": "played: nothing is remembered"} if turn.channel.synthetic else {}


def _search_memory(turn: Turn, given: tools.SearchMemory, nonce: str) -> Performed:
    """The passages that hold most of the words looked for, the newer first among equals."""
    words = set(tokenize(given.query))
    recent = MemoryPassage.objects.filter(agent=turn.agent).order_by("-created_at", "-pk")[:SEARCHED_PASSAGES]
    hits = [(len(words & set(tokenize(passage.text))), passage) for passage in recent]
    best = sorted((hit for hit in hits if hit[0]), key=lambda hit: -hit[0])[:FOUND_PASSAGES]
    if not best:
        return Performed("Nothing you kept holds these words.", detail={"found": 0})
    lines = [f"{n}. " + neutral(passage.text)[0].replace("\n", "\n    | ") for n, (_, passage) in enumerate(best, 1)]
    return Performed(fence("MEMORY", "\n".join(lines), nonce), detail={"found": len(best)})

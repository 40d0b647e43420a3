"""The prompt at the beginning of a turn: persona, memory, channels and conversation; and the same as a preview for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db.models import OuterRef, Q, QuerySet, Subquery, prefetch_related_objects
from django.utils import timezone
from django.utils.module_loading import import_string
from pydantic import BaseModel

from agents.kit import llm
from agents.kit.capability import declared
from agents.kit.text.fences import fence, one_line, quoted_name, render_prompt, safe_and_cut
from agents.models import Agent, Channel, ChannelMember, Message, PersonaVersion, Run
from agents.personas.persona import render_persona
from agents.turn.pipeline import (
    Answer,
    Draft,
    Overrides,
    Section,
    TraceEntry,
    Turn,
    agent_facts,
    pipeline,
    speaker_of,
)


def render(name: str, /, **values: Any) -> str:
    """Render a prompt template of turns."""
    return render_prompt(f"turn/{name}", **values)


MAX_CHANNELS = 30
EARLIER = "[… other messages were said before …]"


def recent_messages(
    *, channel: Channel, trigger: Message | None = None, until: int | None = None, apart: Agent | None = None
) -> list[Message]:
    """Return the last `TURN_HISTORY_MESSAGES` messages of the channel, oldest first; of a trigger in a thread, those of its thread.

    The first message of a thread is always among them, unless `until` or `apart` leaves it out. Messages of a simulation are shown in its
    channel, and nowhere else.

    Args:
        trigger: The message that is answered; None, or one outside of threads = the channel's messages, those in threads among them.
        until: Position of the last message that is shown; None = the newest.
        apart: An agent that is shown no messages of other agents, only its own and people's; None = all are shown.
    """
    limit = settings.TURN_HISTORY_MESSAGES
    messages = Message.objects.filter(channel=channel).select_related("agent", "user", "channel")
    if not channel.synthetic:
        messages = messages.filter(synthetic=False)
    if until is not None:
        messages = messages.filter(position__lte=until)
    if apart is not None:
        messages = messages.filter(Q(agent=apart) | Q(agent=None))
    newest_first = messages.order_by("-position")
    if trigger is None or trigger.parent_id is None:
        return list(newest_first[:limit])[::-1]
    in_thread = Q(pk=trigger.parent_id) | Q(parent_id=trigger.parent_id)
    thread = list(newest_first.filter(in_thread)[:limit])
    has_first_message = any(message.pk == trigger.parent_id for message in thread)
    if not has_first_message:
        thread = [*thread[: limit - 1], *messages.filter(pk=trigger.parent_id)]  # in place of the oldest one
    return thread[::-1]


def lines(messages: Sequence[Message], *, agent: Agent) -> list[str]:
    """Return an entry per message: its number, who said it, when, and the text, which cannot pass for another entry.

    The number is the message's position in its channel. Where that of the first one is above 1, an entry says that others came before.
    """
    entries = [_line(message, agent) for message in messages]
    if messages and messages[0].position > 1:
        entries.insert(0, EARLIER)
    return entries


def _line(message: Message, agent: Agent) -> str:
    """Return a message as `agent` reads it, cut after 4,000 characters; further lines of its text are indented.

    E.g. ``12. Ada [2026-03-01 09:30]: Good morning.``; of its own messages ``12. (you) …``.
    """
    who = "(you)" if message.agent_id == agent.pk else one_line(message.author_name)
    when = f" [{timezone.localtime(message.sent_at):%Y-%m-%d %H:%M}]" if message.sent_at else ""
    return f"{message.position}. {who}{when}: " + safe_and_cut(message.text).replace("\n", "\n    | ")


def within_reach(agent: Agent, channel: Channel) -> QuerySet[Channel]:
    """Return the channels an agent can speak in while it takes a turn in `channel`, by slug.

    Those where it is a member; but from a simulation or a debate only that channel itself is reached, and no other channel reaches them.
    """
    joined = Channel.objects.filter(memberships__agent=agent).order_by("slug")
    if channel.synthetic or channel.kind == Channel.Kind.DEBATE:
        return joined.filter(pk=channel.pk)
    return joined.filter(synthetic=False).exclude(kind=Channel.Kind.DEBATE)


def channel_lines(agent: Agent, channel: Channel) -> list[str]:
    """Return a line per channel within the agent's reach, by slug, at most 30, with what kind it is and who is in a direct message."""
    channels = list(within_reach(agent, channel)[:MAX_CHANNELS])
    direct_messages = [reached for reached in channels if reached.kind == Channel.Kind.DM]
    prefetch_related_objects(direct_messages, "memberships__agent", "memberships__user")
    return [_channel_line(reached, agent) for reached in channels]


def _channel_line(channel: Channel, agent: Agent) -> str:
    """Return ``dm-1: direct message with Ada, Bob`` (the others in it), or ``news: public channel News, about: the topic``."""
    slug = _on_one_line(channel.slug)
    if channel.kind == Channel.Kind.DM:
        names = []
        for member in channel.memberships.all():
            if member.agent_id != agent.pk:
                names.append(one_line(_member_name(member)))
        return f"{slug}: direct message with {', '.join(names) or 'nobody'}"
    topic = f", about: {_on_one_line(channel.topic)}" if channel.topic.strip() else ""
    return f"{slug}: {channel.kind} channel {one_line(channel.name)}{topic}"


def _member_name(member: ChannelMember) -> str:
    if member.agent is not None:
        return member.agent.display_name
    return member.user.get_username() if member.user is not None else ""


def _on_one_line(text: str) -> str:
    """Return a text of a person on one line of at most 200 characters, without what could pass for a fence."""
    return safe_and_cut(" ".join(text.split()), 200)


MEMORY_CHARACTERS = 8_000
PROMPT_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The beginning of an exchange: system prompt and first user turn.

    Attributes:
        system: Static text first, up to the cache breakpoint; then memory and the stages' sections.
        user: The agent's channels, the conversation, and what to do now.
        sections: Every part of the system prompt under its heading, with who added it.
        transcript: The conversation as shown, one entry per message.
        wanted_answer: The typed answer that is asked for, if one is.
        draft: In a preview what a stage would answer at once, without asking the model. `trace`: there what the stages did.
    """

    system: tuple[llm.Block, ...]
    user: llm.Turn
    sections: tuple[Section, ...]
    transcript: tuple[str, ...]
    wanted_answer: Answer | None = None
    draft: Draft | None = None
    trace: tuple[TraceEntry, ...] = ()

    @property
    def system_text(self) -> str:
        return _joined(block.text for block in self.system)

    @property
    def user_text(self) -> str:
        return _joined(block.text for block in self.user.blocks)


def new_turn(
    *,
    agent: Agent,
    channel: Channel,
    run: Run | None = None,
    trigger: Message | None = None,
    overrides: Mapping[str, Any] | None = None,
    preview: bool = False,
) -> Turn:
    """Return a turn with the conversation it begins from and the version of the persona that speaks.

    In a debate the conversation is empty here: a stage decides which messages are shown. Under a system prompt of the overrides there is
    no version.
    """
    run_overrides = overrides or {}
    newest_version = PersonaVersion.objects.filter(agent=OuterRef("pk")).order_by("-number").values("pk")[:1]
    facts = agent_facts()
    rows = Agent.objects.filter(pk=agent.pk).values("pk", version=Subquery(newest_version), **facts)
    columns: Mapping[str, Any] = rows.first() or {}
    speaker = speaker_of(agent, run_overrides)
    transcript: list[Message] = []
    if channel.kind != Channel.Kind.DEBATE:
        own = Overrides.of(run_overrides)
        apart = agent if own.apart else None
        transcript = recent_messages(channel=channel, trigger=trigger, until=own.until, apart=apart)
    is_stored_persona = speaker is agent
    return Turn(
        agent=speaker,
        channel=channel,
        run=run,
        trigger=trigger,
        persona_version_id=columns.get("version") if is_stored_persona else None,
        overrides=run_overrides,
        facts={name: columns.get(name, False) for name in facts},
        transcript=transcript,
        preview=preview,
    )


def build_prompt(turn: Turn, *, prompt: str = "") -> Prompt:
    """Render what the agent is shown, after the stages prepared the turn.

    Rejected drafts cannot appear: nothing is read but persona, memory, channels, committed messages and the stages' sections.

    Args:
        turn: Its transcript and sections as the stages left them.
        prompt: What an operator asks of this turn.
    """
    static = _static_parts(turn)
    memory = _memory_part(turn.agent, turn.nonce)
    system = [llm.Block(_joined(part.body for part in static), cache=True)]
    if memory or turn.sections:
        varying = [part.body for part in memory]
        varying += [_under_heading(section) for section in turn.sections]
        system.append(llm.Block(_joined(varying)))
    transcript = tuple(lines(turn.transcript, agent=turn.agent))
    situation = llm.Block(_situation(turn, transcript))
    now = llm.Block(_now(turn, prompt), cache=True)
    return Prompt(
        system=tuple(system),
        user=llm.Turn("user", (situation, now)),
        sections=(*static, *memory, *turn.sections),
        transcript=transcript,
        wanted_answer=turn.wanted_answer,
    )


def preview_prompt(
    *,
    agent: Agent,
    channel: Channel,
    prompt: str = "",
    trigger: Message | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Prompt:
    """Return exactly what the agent would be shown if its turn began now. Asks no model and writes nothing.

    Raises:
        StageFailed: A required stage failed; a turn would not begin either.
    """
    turn = new_turn(agent=agent, channel=channel, trigger=trigger, overrides=overrides, preview=True)
    draft = pipeline(turn.overrides).prepare(turn)
    return replace(build_prompt(turn, prompt=prompt), draft=draft, trace=tuple(turn.trace))


def _static_parts(turn: Turn) -> list[Section]:
    """Return the parts of the system prompt that are the same in all turns of an agent: its persona and the instructions.

    Where a typed answer is asked for, the instructions name its fields and the channel.
    """
    agent = turn.agent
    values = {"name": one_line(agent.display_name)}
    if turn.wanted_answer is not None:
        shape: type[BaseModel] = import_string(declared("turn_answers")[turn.wanted_answer.name])
        values["fields"] = ", ".join(shape.model_fields)
        values["channel"] = turn.channel.slug
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    return [
        Section("Persona", persona, stage="persona"),
        Section("Instructions", render("instructions", **values), stage="instructions"),
    ]


def _memory_part(agent: Agent, nonce: str) -> list[Section]:
    """Return the section of the agent's memory notes; none where all of them are empty. What exceeds 8,000 characters of a note is cut."""
    notes = []
    for block in agent.memory_blocks.order_by("label"):
        label = safe_and_cut(" ".join(block.label.split()), 100)  # cut there, and without what could pass for a fence
        text = safe_and_cut(block.value, MEMORY_CHARACTERS).strip().replace("\n", "\n    | ")
        if block.value.strip():
            notes.append(f"{label}: {text}")
    if not notes:
        return []
    return [Section("Memory", render("memory", memory=fence("MEMORY", "\n".join(notes), nonce)), stage="memory")]


def _under_heading(section: Section) -> str:
    return f"### {' '.join(section.heading.split())}\n{section.body.strip()}"


def _situation(turn: Turn, transcript: Sequence[str]) -> str:
    """Return the part of the prompt with the agent's channels and the conversation."""
    channels = "\n".join(channel_lines(turn.agent, turn.channel))
    conversation = fence("CONVERSATION", "\n".join(transcript), turn.nonce) if transcript else ""
    return render(
        "situation",
        channels=fence("CHANNELS", channels or "(none)", turn.nonce),
        channel=turn.channel.slug,
        conversation=conversation,
        thread=turn.trigger is not None and turn.trigger.parent_id is not None,
        answer=turn.wanted_answer is not None,
    )


def _now(turn: Turn, prompt: str) -> str:
    """Return the part of the prompt that says what to do now: what an operator asks, and the message to answer.

    The text of that message is given where it is not in the conversation that is shown.

    Args:
        prompt: What an operator asks, cut at 20,000 characters; empty = nothing.
    """
    values: dict[str, Any] = {"trigger": False, "author": "", "number": 0, "thread": False, "trigger_text": ""}
    trigger = turn.trigger
    if trigger is not None:
        values["trigger"] = True
        values["author"] = _author_outside_fences(trigger)
        values["number"] = trigger.position
        values["thread"] = trigger.parent_id is not None
        is_shown = any(message.pk == trigger.pk for message in turn.transcript)
        if not is_shown:
            values["trigger_text"] = fence("MESSAGE", _line(trigger, turn.agent), turn.nonce)
    return render(
        "now",
        name=one_line(turn.agent.display_name),
        channel=turn.channel.slug,
        prompt=safe_and_cut(prompt.strip(), PROMPT_CHARACTERS),
        answer=turn.wanted_answer is not None,
        **values,
    )


def _author_outside_fences(message: Message) -> str:
    return quoted_name(message.author_name) if message.outsider else one_line(message.author_name)


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(texts)

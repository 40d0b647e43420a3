"""What an agent is shown at the beginning of a turn, and the same as a preview for people."""

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
from agents.kit.text.fences import fence, neutral, one_line, quoted_name, render_prompt
from agents.models import Agent, Channel, Message, PersonaVersion, Run
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
    return render_prompt(f"turn/{name}", **values)


MAX_CHANNELS = 30
EARLIER = "[… other messages were said before …]"


def recent_messages(
    *, channel: Channel, trigger: Message | None = None, until: int | None = None, apart: Agent | None = None
) -> list[Message]:
    """The last `TURN_HISTORY_MESSAGES` messages of the channel, or of the trigger's thread (its first message always), oldest first.

    Messages of a simulation are shown in its channel, and nowhere else; those after the position `until` not at all. To an agent that
    is `apart` those of other agents are not shown.
    """
    limit = settings.TURN_HISTORY_MESSAGES
    said = Message.objects.filter(channel=channel).select_related("agent", "user", "channel")
    if not channel.synthetic:
        said = said.filter(synthetic=False)
    if until is not None:
        said = said.filter(position__lte=until)
    if apart is not None:
        said = said.filter(Q(agent=apart) | Q(agent=None))
    if trigger is None or trigger.parent_id is None:
        return list(said.order_by("-position")[:limit])[::-1]
    thread = list(said.filter(Q(pk=trigger.parent_id) | Q(parent_id=trigger.parent_id)).order_by("-position")[:limit])
    if all(message.pk != trigger.parent_id for message in thread):
        thread = thread[: limit - 1] + list(said.filter(pk=trigger.parent_id))
    return thread[::-1]


def lines(messages: Sequence[Message], *, agent: Agent) -> list[str]:
    """One entry per message: its number, who said it, when, and the text, which cannot pass for another entry.

    The number is the message's position in its channel.
    """
    entries = [_line(message, agent) for message in messages]
    if messages and messages[0].position > 1:
        entries.insert(0, EARLIER)
    return entries


def _line(message: Message, agent: Agent) -> str:
    who = "(you)" if message.agent_id == agent.pk else one_line(message.author_name)
    when = f" [{timezone.localtime(message.sent_at):%Y-%m-%d %H:%M}]" if message.sent_at else ""
    return f"{message.position}. {who}{when}: " + neutral(message.text)[0].replace("\n", "\n    | ")


def within_reach(agent: Agent, channel: Channel) -> QuerySet[Channel]:
    """The channels an agent can speak in while it is in `channel`, by slug.

    Those where it is a member; but from the channel of a simulation or a debate only itself is reached, and from other ones none of these.
    """
    mine, debate = Channel.objects.filter(memberships__agent=agent).order_by("slug"), Channel.Kind.DEBATE
    if channel.synthetic or channel.kind == debate:
        return mine.filter(pk=channel.pk)
    return mine.filter(synthetic=False).exclude(kind=debate)


def channel_lines(agent: Agent, channel: Channel) -> list[str]:
    """One line per channel within the agent's reach, by slug, with what kind it is and who else is in a direct message."""
    mine = list(within_reach(agent, channel)[:MAX_CHANNELS])
    direct = [channel for channel in mine if channel.kind == Channel.Kind.DM]
    prefetch_related_objects(direct, "memberships__agent", "memberships__user")
    return [_channel_line(channel, agent) for channel in mine]


def _channel_line(channel: Channel, agent: Agent) -> str:
    if channel.kind == Channel.Kind.DM:
        members = [member for member in channel.memberships.all() if member.agent_id != agent.pk]
        names = [m.agent.display_name if m.agent else m.user.get_username() if m.user else "" for m in members]
        return f"{_flat(channel.slug)}: direct message with {', '.join(one_line(name) for name in names) or 'nobody'}"
    topic = f", about: {_flat(channel.topic)}" if channel.topic.strip() else ""
    return f"{_flat(channel.slug)}: {channel.kind} channel {one_line(channel.name)}{topic}"


def _flat(text: str) -> str:
    return neutral(" ".join(text.split()), 200)[0]


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
        answer: The typed answer that is asked for, if one is.
        draft: In a preview what a stage would answer at once, without asking the model. `trace`: there what the stages did.
    """

    system: tuple[llm.Block, ...]
    user: llm.Turn
    sections: tuple[Section, ...]
    transcript: tuple[str, ...]
    answer: Answer | None = None
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
    """A turn with the conversation it begins from and the version of the persona that speaks.

    In a debate a stage says what is shown.
    """
    versions = PersonaVersion.objects.filter(agent=OuterRef("pk")).order_by("-number").values("pk")
    facts = agent_facts()
    own: Mapping[str, Any] = (
        Agent.objects.filter(pk=agent.pk).values("pk", version=Subquery(versions[:1]), **facts).first() or {}
    )
    wished, speaker = Overrides.of(overrides or {}), speaker_of(agent, overrides or {})
    return Turn(
        agent=speaker,
        channel=channel,
        run=run,
        trigger=trigger,
        persona_version_id=own.get("version") if speaker is agent else None,  # an edited persona is no stored version
        overrides=overrides or {},
        facts={name: own.get(name, False) for name in facts},
        transcript=[]
        if channel.kind == Channel.Kind.DEBATE
        else recent_messages(
            channel=channel,
            trigger=trigger,
            until=wished.until,
            apart=agent if wished.apart else None,
        ),
        preview=preview,
    )


def build_prompt(turn: Turn, *, prompt: str = "") -> Prompt:
    """Render what the agent is shown, after the stages prepared the turn.

    Rejected drafts cannot appear: nothing is read but persona, memory, channels, committed messages and the stages' sections.

    Args:
        turn: Its transcript and sections as the stages left them.
        prompt: What an operator asks of this turn.
    """
    nonce = turn.nonce
    static, memory = _static_parts(turn), _memory_part(turn.agent, nonce)
    system = [llm.Block(_joined(part.body for part in static), cache=True)]
    if memory or turn.sections:
        varying = [*(part.body for part in memory), *map(_under_heading, turn.sections)]
        system.append(llm.Block(_joined(varying)))
    shown = tuple(lines(turn.transcript, agent=turn.agent))
    user = llm.Turn(
        "user", (llm.Block(_situation(turn, shown, nonce)), llm.Block(_now(turn, prompt, nonce), cache=True))
    )
    return Prompt(
        system=tuple(system),
        user=user,
        sections=(*static, *memory, *turn.sections),
        transcript=shown,
        answer=turn.answer,
    )


def preview_prompt(
    *,
    agent: Agent,
    channel: Channel,
    prompt: str = "",
    trigger: Message | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Prompt:
    """Exactly what the agent would be shown if its turn began now. Asks no model and writes nothing.

    Raises:
        StageFailed: A required stage failed; a turn would not begin either.
    """
    turn = new_turn(agent=agent, channel=channel, trigger=trigger, overrides=overrides, preview=True)
    draft = pipeline(turn.overrides).prepare(turn)
    return replace(build_prompt(turn, prompt=prompt), draft=draft, trace=tuple(turn.trace))


def _static_parts(turn: Turn) -> list[Section]:
    agent, values = turn.agent, {"name": one_line(turn.agent.display_name)}
    if turn.answer is not None:
        shape: type[BaseModel] = import_string(declared("turn_answers")[turn.answer.name])
        values |= {"fields": ", ".join(shape.model_fields), "channel": turn.channel.slug}
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    return [
        Section("Persona", persona, "persona"),
        Section("Instructions", render("instructions", **values), "instructions"),
    ]


def _memory_part(agent: Agent, nonce: str) -> list[Section]:
    notes = [
        f"{neutral(' '.join(block.label.split()), 100)[0]}: "
        + neutral(block.value, MEMORY_CHARACTERS)[0].strip().replace("\n", "\n    | ")
        for block in agent.memory_blocks.order_by("label")
        if block.value.strip()
    ]
    if not notes:
        return []
    return [Section("Memory", render("memory", memory=fence("MEMORY", "\n".join(notes), nonce)), "memory")]


def _under_heading(section: Section) -> str:
    return f"### {' '.join(section.heading.split())}\n{section.body.strip()}"


def _situation(turn: Turn, shown: tuple[str, ...], nonce: str) -> str:
    channels = channel_lines(turn.agent, turn.channel)
    return render(
        "situation",
        channels=fence("CHANNELS", "\n".join(channels) or "(none)", nonce),
        channel=turn.channel.slug,
        conversation=fence("CONVERSATION", "\n".join(shown), nonce) if shown else "",
        thread=turn.trigger is not None and turn.trigger.parent_id is not None,
        answer=turn.answer is not None,
    )


def _now(turn: Turn, prompt: str, nonce: str) -> str:
    trigger = turn.trigger
    hidden = trigger is not None and all(message.pk != trigger.pk for message in turn.transcript)
    return render(
        "now",
        name=one_line(turn.agent.display_name),
        channel=turn.channel.slug,
        prompt=neutral(prompt.strip(), PROMPT_CHARACTERS)[0],
        trigger=trigger is not None,
        author=_author_outside_fences(trigger) if trigger else "",
        number=trigger.position if trigger else 0,
        thread=trigger is not None and trigger.parent_id is not None,
        trigger_text=fence("MESSAGE", "\n".join(lines([trigger], agent=turn.agent)[-1:]), nonce)
        if hidden and trigger
        else "",
        answer=turn.answer is not None,
    )


def _author_outside_fences(message: Message) -> str:
    return quoted_name(message.author_name) if message.outsider else one_line(message.author_name)


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(texts)

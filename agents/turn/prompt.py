"""What an agent is shown at the beginning of a turn, and the same as a preview for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agents import llm
from agents.models import Agent, Channel, Message, PersonaVersion, Run
from agents.persona import render_persona
from agents.text.fences import fence, neutral, new_nonce
from agents.text.names import one_line
from agents.turn.conversation import channel_lines, lines, recent_messages
from agents.turn.pipeline import pipeline
from agents.turn.templates import render
from agents.turn.values import Draft, Section, TraceEntry, Turn

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
        nonce: The random text in this prompt's fences.
    """

    system: tuple[llm.Block, ...]
    user: llm.Turn
    sections: tuple[Section, ...]
    transcript: tuple[str, ...]
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPreview:
    """What an agent would be shown now, for people.

    Attributes:
        system: The whole system prompt. `blocks`: the same as it is sent.
        sections: Its parts: persona, instructions, memory, and one per section of a stage; `stage` says who added it.
        transcript: The conversation as shown, one entry per message.
        user: The text of the first user turn, transcript included.
        draft: What a stage would answer at once, without asking the model; None when the model is asked.
        trace: What the stages did.
    """

    system: str
    blocks: tuple[llm.Block, ...]
    sections: tuple[Section, ...]
    transcript: tuple[str, ...]
    user: str
    draft: Draft | None
    trace: tuple[TraceEntry, ...]


def new_turn(
    *,
    agent: Agent,
    channel: Channel,
    run: Run | None = None,
    trigger: Message | None = None,
    overrides: Mapping[str, Any] | None = None,
    preview: bool = False,
) -> Turn:
    """A turn with the conversation it begins from and the version of the persona it is taken under."""
    version = PersonaVersion.objects.filter(agent=agent).order_by("-number").values_list("pk", flat=True).first()
    return Turn(
        agent=agent,
        channel=channel,
        run=run,
        trigger=trigger,
        persona_version_id=version,
        overrides=overrides or {},
        transcript=recent_messages(channel=channel, trigger=trigger),
        preview=preview,
    )


def build_prompt(turn: Turn, *, prompt: str = "", nonce: str = "") -> Prompt:
    """Render what the agent is shown, after the stages prepared the turn.

    Rejected drafts cannot appear: nothing is read but persona, memory, channels, committed messages and the stages' sections.

    Args:
        turn: Its transcript and sections as the stages left them.
        prompt: What an operator asks of this turn.
        nonce: For the fences; default a new one.
    """
    nonce = nonce or new_nonce()
    static, memory = _static_parts(turn.agent), _memory_part(turn.agent, nonce)
    system = [llm.Block(_joined(part.body for part in static), cache=True)]
    if memory or turn.sections:
        varying = [*(part.body for part in memory), *map(_under_heading, turn.sections)]
        system.append(llm.Block(_joined(varying)))
    shown = tuple(lines(turn.transcript, agent=turn.agent))
    user = llm.Turn(
        "user", (llm.Block(_situation(turn, shown, nonce)), llm.Block(_now(turn, prompt, nonce), cache=True))
    )
    return Prompt(
        system=tuple(system), user=user, sections=(*static, *memory, *turn.sections), transcript=shown, nonce=nonce
    )


def preview_prompt(
    *,
    agent: Agent,
    channel: Channel,
    prompt: str = "",
    trigger: Message | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> PromptPreview:
    """Exactly what the agent would be shown if its turn began now. Asks no model and writes nothing.

    Raises:
        StageFailed: A required stage failed; a turn would not begin either.
    """
    turn = new_turn(agent=agent, channel=channel, trigger=trigger, overrides=overrides, preview=True)
    draft = pipeline(turn.overrides).prepare(turn)
    built = build_prompt(turn, prompt=prompt)
    return PromptPreview(
        system=_joined(block.text for block in built.system),
        blocks=built.system,
        sections=built.sections,
        transcript=built.transcript,
        user=_joined(block.text for block in built.user.blocks),
        draft=draft,
        trace=tuple(turn.trace),
    )


def _static_parts(agent: Agent) -> list[Section]:
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    return [
        Section("Persona", persona, "persona"),
        Section("Instructions", render("instructions", name=one_line(agent.display_name)), "instructions"),
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
        author=one_line(trigger.author_name) if trigger else "",
        number=trigger.position if trigger else 0,
        thread=trigger is not None and trigger.parent_id is not None,
        trigger_text=fence("MESSAGE", "\n".join(lines([trigger], agent=turn.agent)[-1:]), nonce)
        if hidden and trigger
        else "",
    )


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(texts)

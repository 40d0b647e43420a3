"""Write the prompts of the judge: rubric, persona, trajectory and propositions, in blocks the prompt cache can hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agents.llm.requests import Block, Turn
from agents.persona import cut_persona
from agents.text.fences import fence, neutral, one_line, render_prompt
from evaluation.scorers.subjects import Context, Event, Window

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition


@lru_cache(maxsize=8192)  # shown in the prompts of a whole channel, and of the estimate before
def one_event(event: Event, number: int) -> str:
    """Return one numbered entry. Further lines of a text are indented behind a bar, so that none can pass for an entry."""
    name, speaker = (neutral(" ".join(who.split()), 200)[0] for who in (event.name, event.speaker))
    head = f"{name} acts: " if event.kind == "action" else f"--> {name}: {f'{speaker} says: ' if event.speaker else ''}"
    return f"{number}. {head}" + neutral(event.text)[0].replace("\n", "\n    | ")


def render_trajectory(window: Window, *, nonce: str, marker: str = "TRAJECTORY") -> str:
    """Return the window inside its fence: numbered entries, and a line that says how many events were left out between them."""
    lines = [one_event(event, number) for number, event in enumerate(window.first, 1)]
    if window.omitted:
        lines.append(f"[… {window.omitted} events left out here …]")
    lines += [
        one_event(event, number) for number, event in enumerate(window.last, 1 + len(window.first) + window.omitted)
    ]
    return fence(marker, "\n".join(lines) or "(nothing happened yet)", nonce)


MOMENTS = ("EARLIER", "LATER")
PERSONA_CHARACTERS = 60_000


def render(name: str, /, **values: Any) -> str:
    return render_prompt(f"judge/{name}", **values)


@lru_cache(maxsize=8)
def rubric(*, hard: bool, environment: bool, method: str = "plumbline") -> str:
    """The scoring rubric, the same text however many claims a call asks, so that a prompt cache can hold it (AC-6.0.5)."""
    name = "rubric" if method == "plumbline" else f"rubric_{method}"
    return render(name, hard=hard, environment=environment)


# A run asks many questions about few windows and one persona: what they share is rendered once.
@lru_cache(maxsize=64)
def _persona_text(name: str, persona: str, nonce: str) -> str:
    text = neutral(cut_persona(persona, PERSONA_CHARACTERS), 2 * PERSONA_CHARACTERS)[0]
    return render("persona", name=name, persona=fence("PERSONA", text, nonce))


@lru_cache(maxsize=128)
def _trajectory_text(
    name: str, window: Window, nonce: str, statistics: str, environment: bool, own_messages: bool
) -> str:
    return render(
        "trajectory",
        name=name,
        trajectory=render_trajectory(window, nonce=nonce),
        statistics=fence("STATISTICS", neutral(statistics, 20_000)[0], nonce) if statistics else "",
        environment=environment,
        own_messages=own_messages,
    )


def system_blocks(
    context: Context, propositions: Sequence[Proposition], nonce: str, *, method: str = "plumbline"
) -> tuple[Block, ...]:
    """Rubric, then the persona where the claims may see it."""
    hard = any(p.hard for p in propositions)
    blocks = [Block(rubric(hard=hard, environment=context.environment, method=method), cache=True)]
    if context.persona is not None and propositions[0].include_personas:
        blocks.append(Block(_persona_text(one_line(context.agent_name), context.persona, nonce), cache=True))
    return tuple(blocks)


def user_turn(
    context: Context,
    claims: Sequence[tuple[str, str]],
    nonce: str,
    *,
    advised: Sequence[str] = (),
    alone: bool = False,
    again: bool = False,
) -> Turn:
    """The trajectory (cached, unless it is shown in this call `alone`), then what is judged and the claims (cached if asked `again`).

    Args:
        alone: Whether no other call shows this window.
        again: Whether the very same prompt is sent again.
    """
    blocks: list[Block] = []
    if context.window.events:
        statistics = json.dumps(context.statistics, ensure_ascii=False, indent=1) if context.statistics else ""
        text = _trajectory_text(
            one_line(context.agent_name), context.window, nonce, statistics, context.environment, context.own_messages
        )
        blocks.append(Block(text, cache=not alone))
    if context.additional:
        given = json.dumps(context.additional, ensure_ascii=False, indent=1)
        blocks.append(
            Block(
                render("additional", additional=fence("BACKGROUND", neutral(given, 8_000)[0], nonce)), cache=not alone
            )
        )
    message = _judged(context.message, context, nonce) if context.message else ""
    draft = Event("action", context.agent_name, context.action) if context.action is not None else None
    action = _judged(draft, context, nonce) if draft else ""
    tail = render(
        "claims",
        name=one_line(context.agent_name),
        message=message,
        number=context.message_number,
        action=action,
        pair=[render_trajectory(w, nonce=nonce, marker=m) for w, m in zip(context.pair or (), MOMENTS, strict=False)],
        single=len(claims) == 1,
        advised=", ".join(advised),
        claims=[{"key": key, "text": neutral(text)[0]} for key, text in claims],
    )
    blocks.append(Block(tail, cache=again))
    return Turn("user", tuple(blocks))


def _judged(event: Event, context: Context, nonce: str) -> str:
    """The one message judged, in its fence, with where it was sent."""
    where = f"(in {neutral(' '.join(context.channel_name.split()), 200)[0]})\n" if context.channel_name else ""
    return fence("MESSAGE", where + one_event(event, 1).removeprefix("1. "), nonce)

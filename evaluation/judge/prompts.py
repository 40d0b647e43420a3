"""Write the parts of the judge's prompts: rubric, persona, trajectory, claims (AC-6.0.4 to AC-6.0.6).

Each part is a block that the prompt cache can hold. What agents and users wrote stands between fences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from agents.kit.llm import Block, Turn
from agents.kit.text.fences import MAX_EVENT_CHARACTERS, fence, indented, one_line, render_prompt, safe_and_cut
from agents.personas.persona import cut_persona
from evaluation.propositions.schema import Proposition
from evaluation.scorers.context import Context, Event, Window

LONGEST_NAME = 200  # characters
LONGEST_JUDGED = 20_000  # characters of a message that is judged; one shown as context is cut sooner
LONGEST_EXAMPLE = 1_000  # characters of the message of an example, and of its claim
PERSONA_CHARACTERS = 60_000
MOMENTS = ("EARLIER", "LATER")  # the markers of the two windows of a pair


@dataclass(frozen=True, slots=True)
class Example:
    """A claim about another message with the score that people gave it, shown to the judge as its scale.

    Attributes:
        conversation: Primary key of the channel of the message: nothing said in it is judged with this example beside it.
        speaker: Who said `text`.
        value: 0 to 9 for the claim as written.
    """

    conversation: int
    speaker: str
    text: str
    claim: str
    value: int


def system_blocks(
    context: Context,
    propositions: Sequence[Proposition],
    nonce: str,
    *,
    method: str = "plumbline",
    examples: tuple[Example, ...] = (),
) -> tuple[Block, ...]:
    """Return the rubric (with its part on flaws if any claim is hard), then examples if there are any, then the persona.

    The persona is left out where there is none, and where the claims may not see it.

    Args:
        propositions: Those of one call; all or none of them may see the persona.
    """
    hard = any(p.hard for p in propositions)
    blocks = [Block(rubric(hard=hard, environment=context.environment, method=method), cache=True)]
    if examples:
        blocks.append(Block(_examples_text(examples, nonce), cache=True))
    if context.persona is not None and propositions[0].include_personas:
        blocks.append(Block(_persona_text(one_line(context.agent_name), context.persona, nonce), cache=True))
    return tuple(blocks)


@lru_cache(maxsize=8)
def rubric(*, hard: bool, environment: bool, method: str = "plumbline") -> str:
    """Return the scoring rubric, the same text however many claims a call asks, so that a prompt cache can hold it (AC-6.0.5)."""
    name = "rubric" if method == "plumbline" else f"rubric_{method}"
    return render(name, hard=hard, environment=environment)


# A run asks many questions about few windows and one persona: what they share is rendered once.
@lru_cache(maxsize=64)
def _persona_text(name: str, persona: str, nonce: str) -> str:
    text = safe_and_cut(cut_persona(persona, PERSONA_CHARACTERS), 2 * PERSONA_CHARACTERS)
    return render("persona", name=name, persona=fence("PERSONA", text, nonce))


@lru_cache(maxsize=64)
def _examples_text(examples: tuple[Example, ...], nonce: str) -> str:
    """Return the examples in a fence; further lines of a text are marked, so that none can pass for a score."""
    entries = []
    for number, example in enumerate(examples, 1):
        text = indented(example.text, LONGEST_EXAMPLE)
        claim = indented(example.claim, LONGEST_EXAMPLE)
        entry = f"{number}. {_shown_name(example.speaker)} says: {text}\n   Claim: {claim}\n   Score: {example.value}"
        entries.append(entry)
    return render("few_shot", examples=fence("EXAMPLES", "\n".join(entries), nonce))


def user_turn(
    context: Context,
    claims: Sequence[tuple[str, str]],
    nonce: str,
    *,
    advised: Sequence[str] = (),
    window_shown_once: bool = False,
    asked_again: bool = False,
) -> Turn:
    """Return the trajectory (if it has events), the additional context (if any), and last what is judged, with the claims.

    The first two are marked for the prompt cache unless `window_shown_once`, the last if `asked_again`; see `Question`.

    Args:
        claims: Key and text of each; what looks like a fence in them is made harmless, and more than 4,000 characters are cut.
        advised: Keys of the claims for which the judge is asked what would have been better.
    """
    name = one_line(context.agent_name)
    blocks: list[Block] = []
    if context.window.events:
        statistics = ""
        if context.statistics:
            statistics = json.dumps(context.statistics, ensure_ascii=False, indent=1)
        parts = _trajectory_parts(
            name,
            context.window,
            nonce,
            statistics,
            environment=context.environment,
            own_messages=context.own_messages,
        )
        blocks += [Block(part, cache=not window_shown_once) for part in parts]
    if context.additional:
        background = safe_and_cut(json.dumps(context.additional, ensure_ascii=False, indent=1), 8_000)
        text = render("additional", additional=fence("BACKGROUND", background, nonce))
        blocks.append(Block(text, cache=not window_shown_once))
    message = action = ""
    if context.message:
        message = _judged_message(context.message, context, nonce)
    if context.action is not None:
        action = _judged_message(Event("action", context.agent_name, context.action), context, nonce)
        if context.growing:
            # A prompt of its own: another text of `claims` would end all comparisons with earlier scores.
            action = f"{render('growing')}\n\n{action}"
    pair: list[str] = []  # stays empty where no pair is judged
    for window, moment in zip(context.pair or (), MOMENTS, strict=False):
        pair.append(render_trajectory(window, nonce=nonce, marker=moment, longest=LONGEST_JUDGED))
    claims_text = render(
        "claims",
        name=name,
        message=message,
        number=context.message_number,
        action=action,
        pair=pair,
        single=len(claims) == 1,
        advised=", ".join(advised),
        claims=[{"key": key, "text": safe_and_cut(claim)} for key, claim in claims],
    )
    blocks.append(Block(claims_text, cache=asked_again))
    return Turn("user", tuple(blocks))


@lru_cache(maxsize=128)
def _trajectory_parts(
    name: str, window: Window, nonce: str, statistics: str, *, environment: bool, own_messages: bool
) -> tuple[str, ...]:
    """Return the text of a trajectory, cut where windows that begin alike end, so that the prompt cache can hold what they share.

    The parts together are the text. It is cut after as many entries as each of the window's `ends` says; without `ends` it is one part.
    Statistics (empty: none) are cut after 20,000 characters.
    """
    fenced_statistics = ""
    if statistics:
        fenced_statistics = fence("STATISTICS", safe_and_cut(statistics, 20_000), nonce)
    rest = render(
        "trajectory",
        name=name,
        trajectory=render_trajectory(window, nonce=nonce),
        statistics=fenced_statistics,
        environment=environment,
        own_messages=own_messages,
    )
    entries = _numbered_entries(window)
    parts: list[str] = []
    for begin, end in pairwise((0, *window.ends)):
        shared = "\n".join(entries[begin:end]) + "\n"
        before, _, rest = rest.partition(shared)
        parts.append(before + shared)
    return (*parts, rest)


def _judged_message(event: Event, context: Context, nonce: str) -> str:
    """Return the one message judged, in its fence, with the channel where it was sent."""
    channel = ""
    if context.channel_name:
        channel = f"(in {_shown_name(context.channel_name)})\n"
    return fence("MESSAGE", channel + one_event(event, 1, LONGEST_JUDGED).removeprefix("1. "), nonce)


def render_trajectory(
    window: Window, *, nonce: str, marker: str = "TRAJECTORY", longest: int = MAX_EVENT_CHARACTERS
) -> str:
    """Return the window inside its fence: numbered entries, and a line that says how many events were left out between them.

    Args:
        longest: Characters of a text; more are cut with a mark.
    """
    return fence(marker, "\n".join(_numbered_entries(window, longest)) or "(nothing happened yet)", nonce)


def _numbered_entries(window: Window, longest: int = MAX_EVENT_CHARACTERS) -> list[str]:
    """Return the numbered entries; numbers count what was left out, and the line about that belongs to the entry that follows it."""
    first = [one_event(event, number, longest) for number, event in enumerate(window.first, 1)]
    number_after = 1 + len(window.first) + window.omitted
    last = [one_event(event, number, longest) for number, event in enumerate(window.last, number_after)]
    if window.omitted:
        left_out = f"[… {window.omitted} events left out here …]"
        if last:
            last[0] = f"{left_out}\n{last[0]}"
        else:
            last = [left_out]
    return first + last


def one_event(event: Event, number: int, longest: int = MAX_EVENT_CHARACTERS) -> str:
    """Return one numbered entry, e.g. ``3. Ann acts: Hello.`` or, of what reached her, ``4. --> Ann: Bob says: Hello.``

    Further lines of a text are indented behind a bar, so that none can pass for an entry. What looks like a fence is made harmless, and
    a text of more than `longest` characters is cut with a mark.
    """
    if len(event.text) > MAX_EVENT_CHARACTERS:
        return _entry(event, number, longest)
    return _kept_entry(event, number, longest)


def _entry(event: Event, number: int, longest: int) -> str:
    """Write a numbered entry for `one_event`."""
    name = _shown_name(event.name)
    speaker = _shown_name(event.speaker)
    if event.kind == "action":
        head = f"{name} acts: "
    elif speaker:
        head = f"--> {name}: {speaker} says: "
    else:
        head = f"--> {name}: "
    body = safe_and_cut(event.text, longest).replace("\n", "\n    | ")
    return f"{number}. {head}{body}"


# Shown in the prompts of a whole channel, and of the estimate before. Long texts are not kept: one may have a million characters.
_kept_entry = lru_cache(maxsize=2048)(_entry)


def _shown_name(name: str) -> str:
    """Return a name in one line, with fence-like text neutralised."""
    return safe_and_cut(" ".join(name.split()), LONGEST_NAME)


def render(name: str, /, **values: Any) -> str:
    """Render a prompt template of the judge."""
    return render_prompt(f"judge/{name}", **values)

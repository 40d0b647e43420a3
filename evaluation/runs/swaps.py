"""Swap texts: put what others said where an agent spoke, so that a judge can be tested on words that are certainly not the agent's.

Of the two halves of a swap test one judges what an agent said, the other the same messages, each amid the same conversation, but with a
text that another speaker wrote. It stores which, never the text itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from agents.models import Agent, Message
from evaluation.scorers.foils import load_foils
from evaluation.scorers.selection import messages_of_agent
from evaluation.windows import MessageWindow

if TYPE_CHECKING:
    from evaluation.models import EvaluationRun

MOST_VOICES = 20  # other agents, drawn at random
POOL = 200  # newest messages of each that are drawn from


def choose_swaps(agent: Agent, messages: Sequence[int], *, seed: int) -> dict[str, str]:
    """Choose a text of another speaker for each of an agent's messages, no text twice, from all others equally often.

    The others are up to 20 active agents with another persona; where none of them said anything, the foils.

    Returns:
        By the message's id the id of another agent's message, or a foil's name and number, e.g. ``pirate 3``; as far as there are texts.
    """
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    voices = _texts_of_others(agent, rng)
    if not any(voices):
        voices = _texts_of_foils()
    rng.shuffle(voices)
    for texts in voices:
        rng.shuffle(texts)
    # The first text of each voice, then the second of each, and so on.
    in_turns: list[str] = []
    for texts_of_turn in zip_longest(*voices):
        in_turns += [text for text in texts_of_turn if text]
    return dict(zip(map(str, messages), in_turns, strict=False))


def _texts_of_others(agent: Agent, rng: random.Random) -> list[list[str]]:
    """Return the ids of the newest messages of other active agents with another persona, drawn at random."""
    others = Agent.objects.filter(is_active=True).exclude(pk=agent.pk)
    if agent.system_prompt.strip():  # agents without any system prompt are not of one persona
        others = others.exclude(system_prompt=agent.system_prompt)
    candidates = list(others.order_by("slug"))
    rng.shuffle(candidates)
    newest = MessageWindow(f"last:{POOL}", last=POOL)
    voices: list[list[str]] = []
    for other in candidates[:MOST_VOICES]:
        keys = messages_of_agent(agent=other, window=newest).values_list("pk", flat=True)
        voices.append([str(key) for key in keys])
    return voices


def _texts_of_foils() -> list[list[str]]:
    """Return the names of the foils' texts, e.g. ``pirate 3``."""
    return [[f"{name} {number}" for number in range(len(texts))] for name, texts in load_foils().items()]


def swapped_texts(run: EvaluationRun) -> dict[int, str | None]:
    """Return the text that stands in for each message in the swapped half, by the message's id; None where it was deleted since."""
    message_keys = [int(source) for source in run.swaps.values() if source.isdecimal()]
    texts: dict[str, str] = {}
    for pk, text in Message.objects.filter(pk__in=message_keys).values_list("pk", "text"):
        texts[str(pk)] = text
    for name, foil_texts in load_foils().items():
        for number, text in enumerate(foil_texts):
            texts[f"{name} {number}"] = text
    return {int(message): texts.get(source) for message, source in run.swaps.items()}


def foils_in(run: EvaluationRun) -> bool:
    """Return whether the texts are those of the foils, for want of other agents."""
    return any(not source.isdecimal() for source in run.swaps.values())

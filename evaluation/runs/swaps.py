"""Swapped texts: what others said, put where an agent spoke, so that a judge can be tested on words that are surely not the agent's.

Of the two halves of a swap test one judges what an agent said, the other the same messages, each amid the same conversation, but with a
text that somebody else wrote. It stores which, never the text itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from agents.models import Agent, Message
from evaluation.scorers.foils import load_foils
from evaluation.scorers.subjects import spoken_by
from evaluation.windows import MessageWindow

if TYPE_CHECKING:
    from evaluation.models import EvaluationRun

MOST_VOICES = 20  # other agents, drawn at random
POOL = 200  # newest messages of each that are drawn from


def choose_swaps(agent: Agent, messages: Sequence[int], *, seed: int) -> dict[str, str]:
    """Choose a text of somebody else for each of an agent's messages, no text twice, from all others equally often.

    The others are up to 20 active agents with another persona; where none of them said anything, the foils.

    Returns:
        By the message's id the id of another agent's message, or a foil's name and number, e.g. ``pirate 3``; as far as there are texts.
    """
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    others = Agent.objects.filter(is_active=True).exclude(pk=agent.pk)
    if agent.system_prompt.strip():
        others = others.exclude(system_prompt=agent.system_prompt)
    chosen = list(others.order_by("slug"))
    rng.shuffle(chosen)
    newest = MessageWindow(f"last:{POOL}", last=POOL)
    spoken = (spoken_by(agent=other, window=newest).values_list("pk", flat=True) for other in chosen[:MOST_VOICES])
    voices = [list(map(str, keys)) for keys in spoken]
    if not any(voices):
        voices = [[f"{name} {number}" for number in range(len(texts))] for name, texts in load_foils().items()]
    rng.shuffle(voices)
    for texts in voices:
        rng.shuffle(texts)
    turns = chain.from_iterable(zip_longest(*voices))
    return dict(zip(map(str, messages), filter(None, turns), strict=False))


def swapped_texts(run: EvaluationRun) -> dict[int, str | None]:
    """The text that stands in for each message in the swapped half, by the message's id; None where it was deleted since."""
    wanted = [int(source) for source in run.swaps.values() if source.isdecimal()]
    texts = {str(pk): text for pk, text in Message.objects.filter(pk__in=wanted).values_list("pk", "text")}
    texts |= {f"{name} {number}": text for name, of in load_foils().items() for number, text in enumerate(of)}
    return {int(message): texts.get(source) for message, source in run.swaps.items()}


def foils_in(run: EvaluationRun) -> bool:
    """Whether the texts are those of the foils, for want of other agents."""
    return any(not source.isdecimal() for source in run.swaps.values())

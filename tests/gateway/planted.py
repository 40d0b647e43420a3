"""Replies of a model in which sentences are planted that the judge of these tests sends back."""

from __future__ import annotations

import random
from dataclasses import dataclass

MARK = "Hooray"  # what the judge sends back, wherever it stands
PLANTED = (
    "Hooray, that makes me so happy!",
    "Hooray for you, dear customer, number {number}!!!",
    "I must say it: Hooray, and once more Hooray.",
)
CLEAN = (
    "Your file is in cabinet {number}.",
    "It weighs 3.5 kg and came at 9.30 a.m. from Mr. Brown.",
    "“Is it there?”, you ask; it is.",
    "Nobody has opened it since then…",
    "Ask at the counter, e.g. on Monday, for form B-{number}.",
    "The clerk’s naïve résumé says: café, 東京, 🗄️.",
    "- first the key\n- then the drawer\n\n",
    "Do you need anything else?",
    "No.",
)


@dataclass(frozen=True, kw_only=True)
class PlantedReply:
    """What the model says, and what may reach the client of it.

    Attributes:
        text: The whole reply.
        clean_start: What stands before the first planted sentence; the whole text where there is none.
        planted: How many sentences are planted.
    """

    text: str
    clean_start: str
    planted: int

    def is_right(self, received: str, continuation: str) -> bool:
        """Return whether a client may have received this: the text byte for byte, or its clean start and then the continuation."""
        if not self.planted:
            return received == self.text
        start = self.clean_start.rstrip()
        return received.startswith(start) and received[len(start) :].strip() == continuation

    def is_shortened(self, received: str, continuation: str) -> bool:
        """Return whether also clean words before the planted sentence were written again, as where sentences are judged together."""
        if not self.planted or not received.endswith(continuation):
            return False
        start = received.removesuffix(continuation).rstrip()
        return self.clean_start.startswith(start) and self.clean_start[len(start) :][:1].isspace()


def replies(count: int, *, planted: int, seed: int) -> list[PlantedReply]:
    """Return replies of two to seven sentences, with so many planted ones in all, at most two in a reply.

    Args:
        count: Number of replies; at least half of `planted`.
        planted: Number of planted sentences.
        seed: Of the generator: the same seed gives the same replies.
    """
    generator = random.Random(seed)
    places = [number % count for number in range(planted)]
    made = []
    for number in range(count):
        sentences = [generator.choice(CLEAN) for _ in range(generator.randint(2, 6))]
        for _ in range(places.count(number)):
            sentences.insert(generator.randint(0, len(sentences)), generator.choice(PLANTED))
        made.append(_reply(sentences, number))
    generator.shuffle(made)
    return made


def _reply(sentences: list[str], number: int) -> PlantedReply:
    text = ""
    clean_start: str | None = None
    planted = 0
    for sentence in sentences:
        if MARK in sentence:
            planted += 1
            if clean_start is None:
                clean_start = text
        text += sentence.format(number=number)
        if not text.endswith("\n"):
            text += " "
    text = text.rstrip()
    return PlantedReply(text=text, clean_start=text if clean_start is None else clean_start, planted=planted)

"""A conversation full of ideas, and a judge that lists them."""

from __future__ import annotations

import re
from typing import Any

from agents.models import Channel
from tests.evaluation.conversing import converse
from tests.evaluation.judging import prompt_of
from tests.factories import make_channel

BRAINSTORM = [
    ("ada", "A vending machine for pencils."),
    ("bea", "A roof garden!"),
    ("cyd", "Or pencils from a machine in the hall, a vending machine."),
    ("Lou", "A quiet room, with a door."),
    ("ada", "What time is it?"),
    ("bea", "A garden on the roof, with bees."),
    ("cyd", "A quiet room. I mean it."),
    ("ada", "A newsletter."),
    ("bea", "Agreed."),
    ("cyd", "A pencil vending machine, but green."),
]


KINDS = {"pencil": "pencil machine", "garden": "roof garden", "quiet": "quiet room", "newsletter": "newsletter"}


def lister(body: dict[str, Any]) -> dict[str, Any]:
    """A judge that lists every proposal in its own words and sees by one word what is the same."""
    prompt = prompt_of(body)
    if "<<<IDEAS" in prompt:
        lines = re.findall(r"^(\d+)\. (.*)$", prompt.split("<<<IDEAS")[1], re.MULTILINE)
        kinds = [(int(number), kind_of(text)) for number, text in lines]
        first: dict[str, int] = {}
        same = []
        for number, kind in kinds:
            if first.setdefault(kind, number) != number:
                same.append({"idea": number, "same_as": first[kind]})
        return {"json": {"same": same}}
    said = re.findall(r"^(\d+)\. .*?(?:acts|says): (.*)$", prompt.split("<<<TRAJECTORY")[1], re.MULTILINE)
    found = [
        {"idea": text, "description": "as it was said", "entries": [int(number)]}
        for number, text in said
        if kind_of(text)
    ]
    return {"json": {"ideas": found}}


def kind_of(text: str) -> str:
    return next((kind for word, kind in KINDS.items() if word in text.lower()), "")


def brainstorm(slug: str = "brainstorm") -> Channel:
    return converse(make_channel(slug), BRAINSTORM)

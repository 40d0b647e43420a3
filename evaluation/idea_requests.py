"""What the judge is asked about ideas: to list those of a part, and to say which of a list are the same (AC-6.6.2 to AC-6.6.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from django.conf import settings
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from agents.llm import Block, Label, LLMRequest, Turn
from agents.llm.requests import InvalidAnswer
from agents.text.fences import fence, neutral, one_line
from evaluation.prompts import render
from evaluation.propositions.schema import Proposition, fill
from evaluation.trajectory import Event, Window, render_trajectory

LONGEST_IDEA, LONGEST_DESCRIPTION = 300, 1000


def _entries(value: Any) -> list[int]:
    """Where an idea was said helps people to find it; a wrong number must not cost the idea."""
    return [n for n in value if isinstance(n, int) and not isinstance(n, bool)] if isinstance(value, list) else []


class ListedIdea(BaseModel):
    """One idea of a part. `entries` are numbers of the entries shown, from 1; those that do not exist are left out later."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    idea: Annotated[str, Field(min_length=1, pattern=r"\S")]
    description: str = ""
    entries: Annotated[list[int], BeforeValidator(_entries)] = []


class _Listing(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    ideas: list[ListedIdea]


class _Pair(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    idea: int
    same_as: int


class _Pairs(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    same: list[_Pair]


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


_NUMBER, _TEXT = {"type": "integer"}, {"type": "string"}
_LISTING = _object(
    ideas={
        "type": "array",
        "items": _object(idea=_TEXT, description=_TEXT, entries={"type": "array", "items": _NUMBER}),
    }
)
_PAIRS = _object(same={"type": "array", "items": _object(idea=_NUMBER, same_as=_NUMBER)})
_LISTED = {
    "ideas": [{"idea": "A bench by the pond", "description": "Somewhere to sit in the park.", "entries": [2, 5]}]
}


def listing_request(
    *,
    name: str,
    proposition: Proposition,
    events: Sequence[Event],
    part: tuple[int, int],
    label: Label,
    model: str,
    nonce: str,
    max_tokens: int = 4000,
    again: bool = False,
) -> LLMRequest:
    """Ask for the ideas of one part of a conversation.

    Args:
        name: The channel's.
        proposition: Its claim says what is to be listed.
        events: What was said, all of it.
        part: Its number, and how many there are.
        label: Columns of the ledger.
        model: The judge.
        nonce: Of the fences.
        max_tokens: Most tokens of the answer.
        again: Whether the same is asked again (repeats), so that the prompt cache should hold it.
    """
    shown = one_line(name)
    text = render(
        "ideas_part",
        name=shown,
        part=part[0],
        parts=part[1],
        trajectory=render_trajectory(Window(tuple(events), 0, ()), nonce=nonce).text,
        claim=neutral(fill(proposition.claim, {"agent_name": shown, "channel_name": shown}))[0],
    )
    return LLMRequest(
        role="judge",
        task="ideas",
        system=(Block(render("ideas"), cache=True),),
        turns=(Turn("user", (Block(text, cache=again),)),),
        label=label,
        schema=_LISTING,
        parse=lambda data: _Listing.model_validate(data).ideas,
        example=_LISTED,
        reask=True,
        max_tokens=max_tokens,
        retries=settings.LLM_EVALUATION_RETRIES,
        model=model,
        nonce=nonce,
        facts={"lines": [event.text for event in events]},
    )


def collapse_request(
    *, name: str, ideas: Sequence[tuple[str, str]], known: int, label: Label, model: str, nonce: str, max_tokens: int
) -> LLMRequest:
    """Ask which ideas of a list repeat an earlier one.

    Args:
        name: The channel's.
        ideas: (idea, description), the first `known` of which are known to differ.
        known: How many.
        label: Columns of the ledger.
        model: The judge.
        nonce: Of the fences.
        max_tokens: Most tokens of the answer.

    Returns:
        A request whose answer is a mapping of 0-based places: a repetition to the earlier idea it repeats.
    """
    lines = [f"{number}. {_line(*idea)}" for number, idea in enumerate(ideas, 1)]
    text = render(
        "ideas_list",
        name=one_line(name),
        ideas=fence("IDEAS", "\n".join(lines), nonce),
        known=known,
        first=known + 1,
        last=len(ideas),
    )

    def parse(data: Any) -> dict[int, int]:
        return _places(_Pairs.model_validate(data), len(ideas))

    return LLMRequest(
        role="judge",
        task="collapse",
        system=(Block(render("ideas_collapse"), cache=True),),
        turns=(Turn("user", (Block(text),)),),
        label=label,
        schema=_PAIRS,
        parse=parse,
        example={"same": [{"idea": 4, "same_as": 1}]},
        reask=True,
        max_tokens=max_tokens,
        retries=settings.LLM_EVALUATION_RETRIES,
        model=model,
        nonce=nonce,
        facts={"ideas": [" ".join(idea) for idea in ideas], "known": known},
    )


def _line(idea: str, description: str) -> str:
    text = f"{idea}: {description}" if description else idea
    return " ".join(neutral(text, LONGEST_IDEA + LONGEST_DESCRIPTION)[0].split())


def _places(answer: _Pairs, count: int) -> dict[int, int]:
    """Repetition to original; of several originals the first, whichever way round the two were given."""
    found: dict[int, int] = {}
    for pair in answer.same:
        if pair.idea == pair.same_as:
            continue  # an idea is the same as itself: true, and no repetition
        first, later = sorted((pair.idea, pair.same_as))
        if first < 1 or later > count:
            raise InvalidAnswer(f"same: {pair.idea} and {pair.same_as}: the list has entries 1 to {count}")
        found[later - 1] = min(first - 1, found.get(later - 1, count))
    return found

"""What a model is asked when propositions are drafted, and the shape of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings

from agents.llm import Block, Label, LLMRequest, Turn
from agents.llm.requests import InvalidAnswer
from agents.persona_cut import cut_persona
from agents.text.fences import fence, neutral
from agents.text.names import one_line
from evaluation.judge.prompts import render
from evaluation.propositions.rules import Rule

LONGEST_PERSONA = 60_000
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_KINDS: dict[str, dict[str, Any]] = {
    **{name: {"type": "integer"} for name in ("max_sentences", "min_sentences", "max_words", "min_words")},
    "max_characters": {"type": "integer"},
    **dict.fromkeys(("matches", "not_matches"), _TEXT),
    **dict.fromkeys(("contains_any", "contains_all", "contains_none"), _TEXTS),
    **{name: {"type": "boolean"} for name in ("lowercase", "no_emoji")},
}
_RULE = {
    "type": "object",
    "properties": {name: _KINDS[name] for name in Rule.model_fields},
    "required": [],
    "additionalProperties": False,
}
_PROPOSAL: dict[str, Any] = {
    "id": _TEXT,
    "claim": _TEXT,
    "inverted": {"type": "boolean"},
    "quote": _TEXT,
    "rule": _RULE,
    "supports": _TEXTS,
    "contradicts": _TEXTS,
    "recommendation": _TEXT,
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "proposals": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": _PROPOSAL,
                "required": list(_PROPOSAL),
                "additionalProperties": False,
            },
        }
    },
    "required": ["proposals"],
    "additionalProperties": False,
}
EXAMPLE: dict[str, Any] = {
    "proposals": [
        {
            "id": "short-answers",
            "claim": "{{agent_name}} answers in at most two sentences",
            "inverted": False,
            "quote": "You answer in two sentences at most.",
            "rule": {"max_sentences": 2},
            "supports": [],
            "contradicts": [],
            "recommendation": "Say the one thing that matters and stop.",
        },
        {
            "id": "marketing-language",
            "claim": "{{agent_name}} uses marketing language",
            "inverted": True,
            "quote": "Sales talk makes you wince",
            "rule": {},
            "supports": ["world class", "game changer"],
            "contradicts": ["to be fair", "honestly"],
            "recommendation": "Say it the way a person on the quay would.",
        },
    ]
}


def draft_request(
    *,
    name: str,
    persona: str,
    existing: Sequence[str],
    others: Sequence[str],
    most: int,
    label: Label,
    model: str,
    nonce: str,
    again: bool = False,
) -> LLMRequest:
    """Ask for propositions about one persona.

    Args:
        name: Whose persona it is.
        persona: As it is rendered for actor and judge; data, never an instruction.
        existing: Claims there are, not to be proposed again.
        others: Names of other agents: what is said of them is not said of this one. For the offline responder.
        most: Most proposals.
        label: Columns of the ledger.
        model: Overrides the configured judge.
        nonce: Of the fences.
        again: A second try of an answer that was cut: with twice the room.
    """
    claims = "\n".join(f"- {' '.join(neutral(claim)[0].split())}" for claim in existing)
    text = render(
        "draft_persona",
        name=one_line(name),
        persona=fence("PERSONA", neutral(cut_persona(persona, LONGEST_PERSONA), 2 * LONGEST_PERSONA)[0], nonce),
        existing=fence("EXISTING", claims, nonce) if claims else "",
        most=most,
    )
    return LLMRequest(
        role="judge",
        task="draft",
        system=(Block(render("draft"), cache=True),),
        turns=(Turn("user", (Block(text),)),),
        label=label,
        schema=SCHEMA,
        parse=_proposals,
        example=EXAMPLE,
        reask=True,
        max_tokens=(1000 + 500 * most) * (2 if again else 1),
        retries=settings.LLM_EVALUATION_RETRIES,
        model=model,
        nonce=nonce,
        facts={"persona": persona, "name": name, "others": list(others)},
    )


def _proposals(data: Any) -> list[Any]:
    """The list of an answer; each entry is validated on its own, so that a broken one does not cost the others."""
    found = data.get("proposals") if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise InvalidAnswer("proposals: expected a list")
    return found

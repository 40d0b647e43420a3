"""The three questions about a message: does it ask for a change (gate), of what (extract), and as which trait (map)? (specification 002)

What a person quotes is never shown. What an earlier tier answered is data to the later ones. The answers are plain objects, kept as they
arrive: `next_tier` says from them alone what is to be asked next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import sentry_sdk
from django.conf import settings
from django.template.loader import render_to_string

from agents.llm import Block, Label, LLMRequest, Reply, Turn, complete
from agents.persona import TraitLike
from agents.text.fences import fence, neutral, new_nonce, one_line
from correction.behavior.answers import EXAMPLES, READERS, SCHEMAS
from correction.behavior.own_words import Words

Tier = Literal["gate", "extract", "map"]
TIERS: tuple[Tier, ...] = get_args(Tier)
Found = dict[str, dict[str, Any]]  # tier to its answer

PURPOSE = MECHANISM = "behavior"  # in the ledger; the tier is the dimension
JUDGED_WITHOUT_MODEL = "rule"
LONGEST_PERSONA, LONGEST_DESCRIPTION = 60_000, 500  # characters shown
MAX_TOKENS: Mapping[Tier, int] = {"gate": 800, "extract": 800, "map": 1_500}
NOTHING_SAID = {"has_request": False, "confidence": "high", "reason": "the message has no words of its author's own"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom the message is addressed to. Values, no rows.

    Attributes:
        name: Display name.
        persona: The system prompt, without traits.
        traits: As they are now; only the map tier is shown them and the persona.
    """

    name: str
    persona: str
    traits: Sequence[TraitLike] = ()
    agent_id: int | None = None


def found_without_model(words: Words) -> Found:
    """What needs no model to be known: a message of signs, emoji or quotations alone asks for nothing."""
    return {} if words.say_something else {"gate": dict(NOTHING_SAID)}


def next_tier(found: Mapping[str, Any]) -> Tier | None:
    """The question to ask next, from the answers so far; None when there is nothing more to ask."""
    if found.get("gate") is None:
        return "gate"
    if not found["gate"]["has_request"]:
        return None
    if found.get("extract") is None:
        return "extract"
    if not found["extract"]["behavior_name"]:
        return None
    return "map" if found.get("map") is None else None


def warnings_about(words: Words, found: Mapping[str, Any]) -> list[str]:
    """What was odd about the message or the gate's answer, for people."""
    warnings = []
    if words.quoted:
        warnings.append(f"{words.quoted:,} characters of quoted text were not read: they are somebody else's words")
    if words.cut:
        warnings.append(f"{words.cut:,} characters in the middle of the message were not read")
    if warning := (found.get("gate") or {}).get("warning"):
        warnings.append(str(warning))
    return warnings


def ask(
    tier: Tier, *, words: Words, subject: Subject, found: Mapping[str, Any], work_id: str = "", model: str = ""
) -> Reply:
    """Ask one question; the reply's `value` is the answer to keep. Nobody waits: retries and time are those of evaluations.

    Args:
        tier: Which question.
        words: The message.
        subject: Whom it is addressed to.
        found: The answers of the tiers before.
        work_id: Of the ledger row.
        model: Overrides the configured judge.
    """
    request = tier_request(tier, words=words, subject=subject, found=found, work_id=work_id, model=model)
    with sentry_sdk.start_span(op="correction.behavior", name=tier) as span:
        reply = complete(request, deadline=settings.LLM_EVALUATION_DEADLINE)
        span.set_data("status", str(reply.status))
        if reply.ok and tier == "gate":
            span.set_data("has_request", reply.value["has_request"])
    return reply


def tier_request(
    tier: Tier,
    *,
    words: Words,
    subject: Subject,
    found: Mapping[str, Any],
    work_id: str = "",
    model: str = "",
    nonce: str = "",
) -> LLMRequest:
    """The question as it is sent. `facts` are for the offline detector: what the prompt holds, and in every tier the words."""
    nonce = nonce or new_nonce()
    facts: dict[str, Any] = {"name": subject.name, "text": words.text}
    if tier == "map":
        prompt = _change(subject, found["extract"], nonce)
        traits = [
            {"name": t.name, "description": t.description, "sentiment": t.sentiment, "strength": t.strength}
            for t in subject.traits
        ]
        facts |= {**found["extract"], "persona": subject.persona, "traits": traits}
    else:
        prompt = _message(subject, words, found["gate"] if tier == "extract" else None, nonce)
        facts |= {"gate": dict(found["gate"])} if tier == "extract" else {}
    return LLMRequest(
        role="judge",
        task=f"behavior_{tier}",
        system=(Block(_template(tier), cache=True),),
        turns=(Turn("user", (Block(prompt),)),),
        label=Label(purpose=PURPOSE, mechanism=MECHANISM, dimension=tier, agent_id=subject.agent_id, work_id=work_id),
        schema=SCHEMAS[tier],
        parse=READERS[tier],
        example=EXAMPLES[tier],
        reask=True,
        max_tokens=MAX_TOKENS[tier],
        retries=settings.LLM_EVALUATION_RETRIES,
        model=model,
        nonce=nonce,
        facts=facts,
    )


def _message(subject: Subject, words: Words, gate: Mapping[str, Any] | None, nonce: str) -> str:
    finding = fence("FINDING", _json({"reason": gate["reason"]}), nonce) if gate is not None else ""
    message = fence("MESSAGE", neutral(words.text, len(words.text))[0], nonce)
    return _template("message", name=one_line(subject.name), message=message, finding=finding)


def _change(subject: Subject, extracted: Mapping[str, Any], nonce: str) -> str:
    listed = sorted(
        subject.traits, key=lambda trait: trait.name.casefold()
    )  # not by strength: none stands where cuts fall
    lines = "\n".join(_trait(trait) for trait in listed)
    asked = {name: extracted.get(name, "") for name in ("behavior_name", "current_state", "requested_change")}
    return _template(
        "change",
        name=one_line(subject.name),
        persona=fence("PERSONA", neutral(subject.persona, LONGEST_PERSONA)[0], nonce),
        traits=fence("TRAITS", lines, nonce) if lines else "",
        request=fence("REQUEST", _json(asked), nonce),
    )


def _trait(trait: TraitLike) -> str:
    shown = {
        "name": trait.name,
        "strength": round(trait.strength, 3),
        "sentiment": round(trait.sentiment, 3),
        "description": neutral(trait.description, LONGEST_DESCRIPTION)[0],
    }
    return _json(shown)


def _json(values: Mapping[str, Any]) -> str:
    """Values on one line each, with nothing in them that could pass for a marker."""
    text = json.dumps(values, ensure_ascii=False)
    return neutral(text, len(text))[0]


def _template(name: str, /, **values: Any) -> str:
    return render_to_string(f"prompts/behavior/{name}.md", values).strip()

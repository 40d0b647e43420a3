"""Answers of the offline provider to the three tiers: patterns and a small linear model (judge `offline:lexical-1`, a heuristic).

They take the request's `facts`: the words of the message (``text``), in the map tier also what was extracted and the traits there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agents.llm.requests import LLMRequest
from correction.behavior.features import parts
from correction.behavior.hostile import hostile_signs
from correction.behavior.lexicon import folded
from correction.behavior.linear import model
from correction.behavior.masking import masked
from correction.behavior.naming import SHORT, amount_of, behavior_name
from correction.behavior.rules import strength_of

CORE = "core persona"
_SENTENCE = re.compile(r"[^.!?…。！？؟\n]+[.!?…。！？؟]*")
_BEING = re.compile(
    r"\b(?:you(?: a|')re (?:now|no longer)|from now on you(?: a|')re|forget (?:who|what) you are|be somebody else|your new name is)\b"
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "the and you your with for from not use uses using user being speaking talking talk speak like saying calling call answers "
        "answer answering reply replies message messages usage bit more less very that this them they has have does asked",
    )
)
_ENDINGS = re.compile(r"(?:iness|ness|ing|ers|er|ies|es|ed|ly|s|y|e)$")
_LEADS = ("calling the user ", "saying ", "speaking ", "being ")
LONGEST_TEXT = 300
CERTAIN = "medium"  # as sure of a request as a heuristic may be: what is applied by itself takes more


def gate(request: LLMRequest) -> dict[str, Any]:
    """Does the message ask for other conduct? (responder for the task ``behavior_gate``)"""
    text = said(request.facts)
    found, hostile = model().find(text), hostile_signs(masked(text))
    if hostile and not found.has_request:
        return _gate(True, "low", f"the words read like an attempt to take the persona over: {hostile[0]}")
    why = (
        f"fits the form “{found.form}”"
        if found.form
        else f"words as in {'requests' if found.has_request else 'other messages'}"
    )
    confidence = CERTAIN if found.has_request and found.confidence == "high" else found.confidence
    return _gate(found.has_request, confidence, f"{why}; probability {found.probability:.2f}, a heuristic")


def extract(request: LLMRequest) -> dict[str, Any]:
    """Which behaviour? (responder for the task ``behavior_extract``) An empty name where it cannot be told."""
    text = said(request.facts)
    if hostile_signs(masked(text)) or _BEING.search(folded(masked(text))):
        return {"behavior_name": CORE, "current_state": "", "requested_change": _short(text)}
    sentences = [found.group().strip() for found in _SENTENCE.finditer(text[:4_000]) if found.group().strip()][:40]
    best = max(sentences, key=lambda one: model().probability(parts(one)), default=text)
    name = next((name for one in (best, text) if (name := behavior_name(" ".join(parts(one)), folded(one)))), "")
    complaint = re.search(r"\b(?:too|so|always|keep|never)\b", folded(best)) is not None
    name = _cased(name, text)
    return {"behavior_name": name, "current_state": _short(best) if complaint else "", "requested_change": _short(best)}


def map_trait(request: LLMRequest) -> dict[str, Any]:
    """As which trait? (responder for the task ``behavior_map``)"""
    facts = request.facts
    extracted = facts.get("extraction", facts)
    name = str(extracted.get("behavior_name", "")).strip()
    if not name:
        return {}
    trait = covering(name, facts.get("traits", ()))
    amount = amount_of(str(extracted.get("requested_change", "")) or said(facts))
    if name == SHORT and amount == "less":  # of the words, so more of their shortness
        amount = "more"
    return {
        "name": trait["name"] if trait else name,
        "description": str(trait["description"]) if trait else f"{name[0].upper()}{name[1:]}, as a user asked for it.",
        "sentiment": float(trait["sentiment"]) if trait else 0.0,
        "strength": strength_of(amount, float(trait["strength"]) if trait else None),
        "is_new": trait is None,
        "replaces_trait": trait["name"] if trait else None,
        "contradicts_persona": name == CORE,
        "contradiction": "it would make the agent somebody else" if name == CORE else "",
    }


def covering(name: str, traits: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The trait that is about the same thing: of the same name, or with most words of it in common; None where none has any."""
    wanted = stems(name)
    best: tuple[tuple[int, int, int], Mapping[str, Any]] | None = None
    for trait in traits:
        if str(trait["name"]).casefold() == name.casefold():
            return trait
        named, described = stems(str(trait["name"])), stems(str(trait.get("description", "")))
        rank = (len(wanted & named), len(wanted & described) if wanted <= described else 0, -len(named))
        if (rank[0] or rank[1]) and (best is None or rank > best[0]):
            best = (rank, trait)
    return best[1] if best else None


def stems(text: str) -> set[str]:
    """The telling words of a name, without their endings."""
    words = set(_WORD.findall(folded(text))) - _COMMON
    return {_ENDINGS.sub("", word) if len(word) > 4 else word for word in words}


def said(facts: Mapping[str, Any]) -> str:
    """The words of the message (or messages) a request is about."""
    texts = facts.get("texts")
    return "\n\n".join(map(str, texts)) if texts else str(facts.get("text", ""))


def _gate(has_request: bool, confidence: str, reason: str) -> dict[str, Any]:
    return {"has_request": has_request, "confidence": confidence, "reason": reason}


def _cased(name: str, text: str) -> str:
    """The name with its words as the message writes them: ``Robin``."""
    lead = next((lead for lead in _LEADS if name.startswith(lead)), "")
    what = name.removeprefix(lead)
    place = text.lower().find(what)
    if not what or place < 0 or len(text.lower()) != len(text):
        return name
    return lead + text[place : place + len(what)]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"

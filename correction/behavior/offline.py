"""Answers of the offline provider to the three tiers: patterns (`patterns`; judge `offline:lexical-1`, a heuristic).

They take the request's `facts`: the words of the message (``text``), in the map tier also what was extracted and the traits there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agents.llm.requests import LLMRequest
from correction.behavior.patterns import folded, read_request, written_name
from correction.behavior.policy import hostile_signs
from correction.behavior.rules import strength_of
from correction.behavior.words import masked

CORE = "core persona"
_BEING = re.compile(
    r"\b(?:you(?: a|')re (?:now|no longer)|from now on you(?: a|')re|forget (?:who|what) you are|be somebody else|your new name is)\b"
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "the and you your with for from not use uses using usage user being speaking talking talk speak like saying calling call answers "
        "answer answering replies reply messages tone language words bit more less very that this them they has have does asking giving",
    )
)
_OF_A_MANNER = re.compile(
    r"\b(?:answers?|tone|words|language|address)$"
)  # its other words alone are too general to tell a trait
_NEGATED = re.compile(
    r"\b(?:no|not|never|non|without|avoid\w*|refus\w*|less|few|fewer|lack\w*|dislik\w*|hat(?:e|es|red)|fear\w*|averse|aversion|against|anti|"
    r"hardly|kein\w*|nicht|nie|ohne|sans|pas|sin|senza|sem|geen|niet)\b|n't\b"
)
_ENDINGS = re.compile(r"(?:iness|ness|ing|ers|er|ies|es|ed|ly|s|y|e)$")
LONGEST_TEXT = 300


def gate(request: LLMRequest) -> dict[str, Any]:
    """Does the message ask for other conduct? (responder for the task ``behavior_gate``)"""
    text = str(request.facts.get("text", ""))
    reading, hostile = read_request(text), hostile_signs(masked(text))
    if reading is None and hostile:
        return _gate(True, "low", f"the words read like an attempt to take the persona over: {hostile[0]}")
    if reading is None:
        return _gate(False, "medium", "no form of a request fits; a heuristic")
    topic = f" about {name}" if (name := written_name(reading.name, text)) else ", but what about is not certain"
    return _gate(True, "medium" if name else "low", f"reads like a {reading.form}{topic}; a heuristic")


def extract(request: LLMRequest) -> dict[str, Any]:
    """Which behaviour? (responder for the task ``behavior_extract``) An empty name where it cannot be told."""
    text = str(request.facts.get("text", ""))
    if hostile_signs(masked(text)) or _BEING.search(folded(masked(text))):
        return {"behavior_name": CORE, "current_state": "", "requested_change": _short(text)}
    reading = read_request(text)
    if reading is None:
        return {"behavior_name": "", "current_state": "", "requested_change": _short(text)}
    complaint = _short(reading.sentence) if reading.form == "complaint" else ""
    return {
        "behavior_name": written_name(reading.name, text),
        "current_state": complaint,
        "requested_change": _short(reading.sentence),
    }


def map_trait(request: LLMRequest) -> dict[str, Any]:
    """As which trait? (responder for the task ``behavior_map``)"""
    facts = request.facts
    name = str(facts.get("behavior_name", "")).strip()
    reading = read_request(str(facts.get("text", "")))
    if not name or (name != CORE and (reading is None or not reading.name)):
        return {}
    trait = covering(name, facts.get("traits", ()))
    amount = reading.amount if reading is not None and name != CORE else "unspecified"
    text = reading.text if reading is not None and name != CORE and reading.name == name else ""
    return {
        "name": trait["name"] if trait else name,
        "description": str(trait["description"])
        if trait
        else text or f"{name[0].upper()}{name[1:]}, as a user asked for it.",
        "sentiment": float(trait["sentiment"]) if trait else 0.0,
        "strength": strength_of(amount, float(trait["strength"]) if trait else None),
        "is_new": trait is None,
        "replaces_trait": trait["name"] if trait else None,
        "contradicts_persona": name == CORE,
        "contradiction": "it would make the agent somebody else" if name == CORE else "",
    }


def covering(name: str, traits: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The trait about the same thing: of that name, or with its telling words; never one whose name says that it is left undone."""
    wanted, all_wanted = stems(name), stems(name, frozenset())
    best: tuple[int, Mapping[str, Any]] | None = None
    for trait in traits:
        other = str(trait["name"])
        if other.casefold() == name.casefold():
            return trait
        named = stems(other)
        same = named and named <= wanted
        wider = all_wanted <= stems(other, frozenset()) if _OF_A_MANNER.search(name) else wanted and wanted <= named
        if (same or wider) and not _NEGATED.search(folded(other)):
            distance = len(wanted ^ named)
            if best is None or distance < best[0]:
                best = (distance, trait)
    return best[1] if best else None


def stems(text: str, common: frozenset[str] = _COMMON) -> set[str]:
    """The telling words of a name, without their endings."""
    words = set(_WORD.findall(folded(text))) - common
    return {_ENDINGS.sub("", word) if len(word) > 4 else word for word in words}


def _gate(has_request: bool, confidence: str, reason: str) -> dict[str, Any]:
    return {"has_request": has_request, "confidence": confidence, "reason": reason}


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"

"""Answer the three tiers without a model, by what `patterns` parses: the judge `offline:lexical-1`, a heuristic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.kit.llm.requests import LLMRequest
from correction.behavior.languages import folded, has_pattern
from correction.behavior.naming import name_as_written, stems
from correction.behavior.patterns import LONGEST_WORDING, ParsedRequest, masked, parse_request
from correction.behavior.signs import hostile_signs
from correction.behavior.trait_change import strength_of

CORE_PERSONA = "core persona"  # the behaviour that is named where the message would make another person of the agent


def answer_gate(request: LLMRequest) -> dict[str, Any]:
    """Answer whether the message asks for other conduct (responder for the task ``behavior_gate``).

    Yes too, with low confidence, where it reads like an attempt to take the persona over: then a person has to look at it.
    """
    text = str(request.facts.get("text", ""))
    parsed = parse_request(text)
    if parsed is not None:
        return _gate_answer_for(parsed, text)
    signs = hostile_signs(masked(text))
    if signs:
        reason = f"the words read like an attempt to take the persona over: {signs[0]}"
        return {"has_request": True, "confidence": "low", "reason": reason}
    return {"has_request": False, "confidence": "medium", "reason": "no form of a request fits; a heuristic"}


def _gate_answer_for(parsed: ParsedRequest, text: str) -> dict[str, Any]:
    """Return the gate's answer for a request: less sure where its behaviour is not clear."""
    article = "an" if parsed.form == "order" else "a"
    name = name_as_written(parsed.trait_name, text)
    if not name:
        reason = f"reads like {article} {parsed.form}, but what about is not certain; a heuristic"
        return {"has_request": True, "confidence": "low", "reason": reason}
    reason = f"reads like {article} {parsed.form} about {name}; a heuristic"
    return {"has_request": True, "confidence": "medium", "reason": reason}


def answer_extract(request: LLMRequest) -> dict[str, Any]:
    """Answer which behaviour is meant (responder for the task ``behavior_extract``); an empty name where that is not clear.

    It is the core persona where the message would make another person of the agent. The current state is known of a complaint alone.
    """
    text = str(request.facts.get("text", ""))
    if _would_change_the_core(text):
        return {"behavior_name": CORE_PERSONA, "current_state": "", "requested_change": _on_one_line(text)}
    parsed = parse_request(text)
    if parsed is None:
        return {"behavior_name": "", "current_state": "", "requested_change": _on_one_line(text)}
    sentence = _on_one_line(parsed.sentence)
    return {
        "behavior_name": name_as_written(parsed.trait_name, text),
        "current_state": sentence if parsed.form == "complaint" else "",
        "requested_change": sentence,
    }


def _would_change_the_core(text: str) -> bool:
    """Return whether the message would make another person of the agent."""
    own = masked(text)
    return bool(hostile_signs(own)) or has_pattern("becoming another person", folded(own))


def answer_map(request: LLMRequest) -> dict[str, Any]:
    """Answer as which trait (responder for the task ``behavior_map``); empty where the behaviour is not clear.

    What would make another person of the agent contradicts the persona.
    """
    name = str(request.facts.get("behavior_name", "")).strip()
    traits = request.facts.get("traits", ())
    if name == CORE_PERSONA:
        return _map_answer(name, None, traits) | {
            "contradicts_persona": True,
            "contradiction": "it would make another person of the agent",
        }
    parsed = parse_request(str(request.facts.get("text", "")))
    if not name or parsed is None or not parsed.trait_name:
        return {}
    return _map_answer(name, parsed, traits)


def _map_answer(name: str, parsed: ParsedRequest | None, traits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the trait of that name: the agent's own about the same thing, at the strength that was asked for, else a new one.

    Args:
        parsed: The request that names the amount; None: no amount is known.
    """
    amount = parsed.amount if parsed is not None else "unspecified"
    covering = find_covering_trait(name, traits, is_narrow=parsed is not None and parsed.is_narrow)
    answer: dict[str, Any] = {"contradicts_persona": False, "contradiction": ""}
    if covering is not None:
        return answer | {
            "name": covering["name"],
            "description": str(covering["description"]),
            "sentiment": float(covering["sentiment"]),
            "strength": strength_of(amount, float(covering["strength"])),
            "is_new": False,
            "replaces_trait": covering["name"],
        }
    description = f"{name[0].upper()}{name[1:]}, as a user asked for it."
    if parsed is not None and parsed.trait_name == name and parsed.trait_description:
        description = parsed.trait_description
    return answer | {
        "name": name,
        "description": description,
        "sentiment": 0.0,
        "strength": strength_of(amount),
        "is_new": True,
        "replaces_trait": None,
    }


def find_covering_trait(
    name: str, traits: Sequence[Mapping[str, Any]], *, is_narrow: bool = False
) -> Mapping[str, Any] | None:
    """Return the trait about the same thing: of that name, or with its telling words, of several the nearest; None where there is none.

    A trait whose name says that something is left undone ("no emoji") never covers it: more of that would be less.

    Args:
        is_narrow: The name is of a kind ("Australian slang"): a trait with only some of its words ("slang") is about more.
    """
    for trait in traits:
        if str(trait["name"]).casefold() == name.casefold():
            return trait
    covering = []
    for trait in traits:
        other = str(trait["name"])
        if _covers(other, name, is_narrow=is_narrow) and not has_pattern("negated name", folded(other)):
            covering.append(trait)
    words = stems(name)
    # The one whose name has the fewest words that only one of the two has.
    return min(covering, key=lambda trait: len(words ^ stems(str(trait["name"]))), default=None)


def _covers(other: str, name: str, *, is_narrow: bool) -> bool:
    """Return whether the telling words of one trait's name are among those of the other's."""
    words, others = stems(name), stems(other)
    if others and others <= words and (not is_narrow or words <= others):
        return True
    if has_pattern("general noun at the end", name):  # "short answers": "short" alone is too general to tell a trait
        return stems(name, frozenset()) <= stems(other, frozenset())
    return bool(words) and words <= others


def _on_one_line(text: str) -> str:
    """Return the text on one line, cut visibly where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_WORDING else line[: LONGEST_WORDING - 1] + "…"

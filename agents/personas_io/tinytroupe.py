"""TinyTroupe persona specifications: the persona object becomes readable text, every key of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.personas_io.shape import NotAPersonaError

NOT_GIVEN = "not specified"


def is_tinytroupe(value: Any) -> bool:
    """Whether this is a ``{"persona": {...}}`` object, as in ``*.agent.json``."""
    return isinstance(value, dict) and isinstance(value.get("persona"), dict)


def read(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a persona file.

    Raises:
        NotAPersonaError: The persona has no name, as in a fragment.
    """
    persona = value["persona"]
    name = persona.get("name") or value.get("agent") or value.get("name")
    if not isinstance(name, str) or not name.strip():
        raise NotAPersonaError("'persona.name' is missing; a fragment is no persona of its own")
    return {
        "display_name": name.strip(),
        "title": _title(persona)[:200],
        "description": _description(persona)[:2000],
        "system_prompt": render(persona, name.strip()),
    }


def render(persona: Mapping[str, Any], name: str) -> str:
    """The persona as text: a heading for each key, lists as bullets."""
    parts = [f"You are {name}."]
    for key, value in persona.items():
        if key != "name":
            parts.append(f"## {_label(key)}\n" + "\n".join(_lines(value, 3)))
    return "\n\n".join(parts)


def _label(key: str) -> str:
    text = str(key).replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def _lines(value: Any, level: int) -> list[str]:
    """A value under its heading; nested objects get headings down to level 4, then labels."""
    if isinstance(value, dict):
        lines: list[str] = []
        for key, item in value.items():
            if isinstance(item, dict | list) and item and level <= 4:
                lines += [f"{'#' * level} {_label(key)}", *_lines(item, level + 1)]
            else:
                lines.append(f"- {_label(key)}: {_inline(item)}")
        return lines or [NOT_GIVEN]
    if isinstance(value, list):
        return [f"- {_inline(item)}" for item in value] or [NOT_GIVEN]
    return [_inline(value)]


def _inline(value: Any) -> str:
    """A value on one line; a person's ``{"name", "description"}`` reads as ``name: description``."""
    if isinstance(value, dict):
        if set(value) == {"name", "description"}:
            return f"{_inline(value['name'])}: {_inline(value['description'])}"
        return "; ".join(f"{_label(key)}: {_inline(item)}" for key, item in value.items()) or NOT_GIVEN
    if isinstance(value, list):
        return ", ".join(_inline(item) for item in value) or NOT_GIVEN
    if value is None or value == "":
        return NOT_GIVEN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).strip()


def _title(persona: Mapping[str, Any]) -> str:
    occupation = persona.get("occupation")
    if isinstance(occupation, dict):
        return str(occupation.get("title") or "")
    return occupation if isinstance(occupation, str) else ""


def _description(persona: Mapping[str, Any]) -> str:
    """One line for people: job, age, place."""
    parts = [_title(persona), persona.get("age"), persona.get("residence") or persona.get("country_of_residence")]
    return ", ".join(str(part) for part in parts if isinstance(part, str | int) and str(part))

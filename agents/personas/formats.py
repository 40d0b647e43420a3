"""Read personas in the formats of others: character cards (V1 to V3, JSON or PNG), TinyTroupe specifications, and plain prompt files."""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from agents.personas.shape import NotAPersonaError, slug_of

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNK = 16 * 1024 * 1024
KEYWORDS = ("ccv3", "chara")  # V3 first: a card may carry both
_SECTIONS = (("description", "Description"), ("personality", "Personality"), ("scenario", "Scenario"))
_CHAR = re.compile(r"\{\{char\}\}|<bot>|<char>", re.IGNORECASE)
_USER = re.compile(r"\{\{user\}\}|<user>", re.IGNORECASE)
_ORIGINAL = re.compile(r"\{\{original\}\}", re.IGNORECASE)
_START = re.compile(r"<start>", re.IGNORECASE)
_USER_NAME = "User"


def is_card(value: Mapping[str, Any]) -> bool:
    """Return whether this object is a character card of any version."""
    if str(value.get("spec", "")).startswith("chara_card"):
        return True
    return "name" in value and bool({"mes_example", "first_mes"} & set(value))


def read_card(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a persona file for a character card.

    The system prompt is "You are NAME.", the card's own prompt, and a section each for description, personality and scenario; the
    creator's notes are the description, cut at 500 characters.

    Raises:
        NotAPersonaError: The card has no name or says nothing about the character.
    """
    data = card.get("data", card)
    if not isinstance(data, dict):
        raise NotAPersonaError("'data' of the character card must be an object")
    name = _text_of(data, "nickname") or _text_of(data, "name")
    if not name:
        raise NotAPersonaError("'data.name' of the character card is missing")
    own_prompt = _ORIGINAL.sub("", _text_of(data, "system_prompt"))
    parts = [_resolve(own_prompt, name, "the user").strip()]
    for key, heading in _SECTIONS:
        text = _resolve(_text_of(data, key), name, "the user")
        if text:
            parts.append(f"## {heading}\n{text}".strip())
    parts = [part for part in parts if part]
    if not parts:
        raise NotAPersonaError("the character card has no description, personality, scenario or system_prompt")
    return {
        "display_name": name,
        "description": _text_of(data, "creator_notes")[:500],
        "system_prompt": "\n\n".join([f"You are {name}.", *parts]),
        "sample_lines": list(sample_lines(_text_of(data, "mes_example"), name)),
    }


def _text_of(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value.strip() if isinstance(value, str) else ""


def _resolve(text: str, name: str, user: str) -> str:
    """Return a text of a card with the names of character and user in place of their placeholders."""
    with_name = _CHAR.sub(lambda _: name, text)
    with_names = _USER.sub(lambda _: user, with_name)
    return with_names.replace("\r\n", "\n")


def sample_lines(examples: str, name: str) -> Iterator[str]:
    """Yield what the character says in the example dialogue, each once. Lines without a speaker go on with the one before."""
    seen: set[str] = set()
    for dialogue in _START.split(_resolve(examples, name, _USER_NAME)):
        for speaker, text in _turns(dialogue, name):
            if speaker == name and text and text not in seen:
                seen.add(text)
                yield text


def _turns(dialogue: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield speaker and text of each turn of an example dialogue."""
    turn = re.compile(rf"^({re.escape(name)}|{_USER_NAME})\s*:\s*", re.MULTILINE)
    starts = list(turn.finditer(dialogue))
    for start, following in zip_longest(starts, starts[1:]):
        end = following.start() if following else len(dialogue)
        yield start.group(1), dialogue[start.end() : end].strip()


def from_png(data: bytes) -> dict[str, Any]:
    """Return the card inside a PNG: base64 of JSON in a tEXt chunk named ``ccv3`` or, where that is missing, ``chara``.

    Raises:
        NotAPersonaError: No PNG, damaged, or without a card.
    """
    cards = {keyword: text for keyword, text in _text_chunks(data) if keyword in KEYWORDS}
    for keyword in KEYWORDS:
        if keyword in cards:
            try:
                card = json.loads(base64.b64decode(cards[keyword], validate=False))
            except (binascii.Error, ValueError, RecursionError):
                raise NotAPersonaError(f"the tEXt chunk {keyword!r} of the PNG does not hold base64 of JSON") from None
            if not isinstance(card, dict):
                raise NotAPersonaError(f"the tEXt chunk {keyword!r} of the PNG does not hold a JSON object")
            return card
    raise NotAPersonaError("the PNG holds no character card (no tEXt chunk 'ccv3' or 'chara')")


def _text_chunks(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield keyword and text of each tEXt chunk of a PNG, up to its end mark or where the data ends.

    Raises:
        NotAPersonaError: It is no PNG, or damaged.
    """
    if not data.startswith(SIGNATURE):
        raise NotAPersonaError("not a PNG file")
    offset = len(SIGNATURE)
    # A chunk is the length of its body and its kind (4 bytes each), the body, and a checksum of 4 bytes.
    while offset + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, offset)
        if length > MAX_CHUNK or offset + 12 + length > len(data):
            raise NotAPersonaError(f"the PNG is damaged: a chunk of {length:,} bytes at byte {offset}")
        body = data[offset + 8 : offset + 8 + length]
        if kind == b"tEXt":
            if zlib.crc32(kind + body) != struct.unpack_from(">I", data, offset + 8 + length)[0]:
                raise NotAPersonaError(f"the PNG is damaged: wrong checksum of the chunk at byte {offset}")
            keyword, _, text = body.partition(b"\x00")
            yield keyword.decode("latin-1"), text
        if kind == b"IEND":
            return
        offset += 12 + length


NOT_GIVEN = "not specified"


def is_tinytroupe(value: Any) -> bool:
    """Return whether this is a ``{"persona": {...}}`` object, as in ``*.agent.json``."""
    return isinstance(value, dict) and isinstance(value.get("persona"), dict)


def read_tinytroupe(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a persona file for a specification of TinyTroupe; all that it says becomes the system prompt.

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
        "system_prompt": tinytroupe_text(persona, name.strip()),
    }


def tinytroupe_text(persona: Mapping[str, Any], name: str) -> str:
    """Render the persona as text: a heading for each key, lists as bullets."""
    parts = [f"You are {name}."]
    for key, value in persona.items():
        if key != "name":
            parts.append(f"## {_label(key)}\n" + "\n".join(_lines(value, 3)))
    return "\n\n".join(parts)


def _label(key: str) -> str:
    text = str(key).replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def _lines(value: Any, level: int) -> list[str]:
    """Return the lines of a value under its heading: ``- Label: value`` for each key, ``- item`` for each of a list.

    Nested values get headings of their own down to level 4 (``####``), and stand on one line below that; an empty value is
    "not specified".
    """
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
    """Return a value on one line: ``Label: a; Other label: b`` for an object, ``a, b`` for a list, "not specified" for nothing.

    A person's ``{"name", "description"}`` reads as ``name: description``.
    """
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
    """Return one line for people: job, age, place."""
    parts = [_title(persona), persona.get("age"), persona.get("residence") or persona.get("country_of_residence")]
    return ", ".join(str(part) for part in parts if isinstance(part, str | int) and str(part))


_HEADING = re.compile(r"^#[ \t]+(\S.*)$", re.MULTILINE)


def read_prompt(stem: str, text: str) -> dict[str, Any]:
    """Return the fields of a persona file. The first ``# Heading`` is the display name; without one, the file's name is."""
    heading = _HEADING.search(text)
    name = heading.group(1).strip().rstrip("#").strip() if heading else ""
    return {
        "slug": slug_of(stem),
        "display_name": (name or re.sub(r"[-_]+", " ", stem).strip().title())[:120],
        "system_prompt": text,
    }

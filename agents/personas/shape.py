"""The shape of a persona file, checked field by field."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

from django.core.exceptions import ValidationError as DjangoValidationError
from django.utils.text import slugify
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agents.kit.text.cleaner import Cleaner
from agents.kit.text.fences import check_name
from agents.models.conversations import validate_aliases

SLUG_LIMIT = 64
SYSTEM_PROMPT_LIMIT = 200_000


class PersonaError(Exception):
    """A persona file that cannot be read: where, and why. Line 0 = not known."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        self.path, self.line, self.reason = path, line, reason
        super().__init__(f"{path}, line {line}: {reason}" if line else f"{path}: {reason}")


class NotAPersonaError(Exception):
    """Something in a file that is no persona; the reader of the file adds where."""


def _unique(field: str) -> AfterValidator:
    """Return a validator that refuses items of which two have the same value in a field, whatever the case."""

    def check(items: Any) -> Any:
        seen: set[str] = set()
        for item in items:
            key = getattr(item, field).casefold()
            if key in seen:
                raise ValueError(
                    f"{field} {getattr(item, field)!r} occurs twice; it must be unique (whatever the case)"
                )
            seen.add(key)
        return items

    return AfterValidator(check)


def not_reserved(slug: str) -> str:
    """Refuse an agent's id that begins with an underscore: such names, as ``_default``, stand for every agent.

    Raises:
        ValueError: It does.
    """
    if slug.startswith("_"):
        raise ValueError("an agent's id cannot begin with an underscore: _default stands for every agent")
    return slug


def _aliases(names: list[str]) -> list[str]:
    names = [name.strip() for name in names]
    try:
        validate_aliases(names)
    except DjangoValidationError as error:
        raise ValueError(error.messages[0]) from None
    return names


Aliases = Annotated[list[str], AfterValidator(_aliases)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TraitSpec(_Part):
    """A trait: `sentiment` -1 to 1, `strength` 0 (never) to 1 (always)."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]
    description: str = ""
    sentiment: float = Field(default=0.0, ge=-1, le=1)
    strength: float = Field(default=0.5, ge=0, le=1)


class MemoryBlockSpec(_Part):
    """A labelled text that is always in the agent's prompt."""

    label: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]
    value: str = ""


class PersonaSpec(_Part):
    """One persona, as an import or the seed says it. `traits` None = an existing agent's traits stay as they are."""

    slug: Annotated[
        str, StringConstraints(pattern=r"^[-a-zA-Z0-9_]+$", max_length=SLUG_LIMIT), AfterValidator(not_reserved)
    ]
    display_name: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120), AfterValidator(check_name)
    ]
    system_prompt: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=SYSTEM_PROMPT_LIMIT)
    ]
    aliases: Aliases = Field(default=[])
    title: str = Field(default="", max_length=200)
    description: str = Field(default="", max_length=2000)
    avatar_color: str = Field(default="", pattern=r"^(#[0-9a-fA-F]{6})?$")
    model_id: str = Field(default="", max_length=200)
    traits: Annotated[tuple[TraitSpec, ...], _unique("name")] | None = None
    memory_blocks: Annotated[tuple[MemoryBlockSpec, ...], _unique("label")] = ()
    sample_lines: tuple[Line, ...] = ()


def persona_spec(value: dict[str, Any]) -> PersonaSpec:
    """Check one persona; a missing slug is made from the display name and the other way round.

    Raises:
        ValidationError: One entry per field that is wrong.
    """
    data = Cleaner().value(value)
    name = data.get("display_name")
    slug = data.get("slug")
    if slug is None and isinstance(name, str) and name.strip():
        data["slug"] = slug_of(name)
    elif name is None and isinstance(slug, str):
        data["display_name"] = re.sub(r"[-_]+", " ", slug).strip().title()
    return PersonaSpec.model_validate(data)


def slug_of(name: str) -> str:
    """Return an agent's id made of its name; the same name always gives the same id, in any script."""
    slug = slugify(name)[:SLUG_LIMIT].strip("-_")
    if slug:
        return slug
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()
    return f"agent-{digest[:8]}"


def describe(error: ValidationError) -> str:
    """Return a sentence on the first wrong field of a validation error, with its value and what is allowed.

    For example ``'traits[0].strength' is 2: Input should be less than or equal to 1``; further wrong fields are not named.
    """
    first = error.errors(include_url=False)[0]
    location = first["loc"]
    field = _dotted(location) or "persona"
    if first["type"] == "missing":
        return f"{field!r} is missing"
    if first["type"] == "extra_forbidden":
        return f"unknown field {field!r}; allowed: {', '.join(_allowed_fields(location))}"
    return f"{field!r} is {_short_value(first['input'])}: {first['msg'].removeprefix('Value error, ')}"


def _dotted(location: tuple[int | str, ...]) -> str:
    """Return the path of a field, such as ``traits[0].name``."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".")


def _short_value(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value)[:80]


def _allowed_fields(location: tuple[int | str, ...]) -> list[str]:
    """Return the fields that are allowed where an unknown one stands."""
    if len(location) == 1:
        return list(PersonaSpec.model_fields)
    parts: dict[str, type[BaseModel]] = {"traits": TraitSpec, "memory_blocks": MemoryBlockSpec}
    return list(parts.get(str(location[0]), PersonaSpec).model_fields)

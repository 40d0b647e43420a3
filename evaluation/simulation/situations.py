"""Situations for simulations: what is said to an agent, line by line. Plumbline's own, or a team's file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from agents.llm.answers import storable
from evaluation.propositions.files import (
    FileProblem,
    YamlProblems,
    dotted,
    in_words,
    line_of,
    location_of,
    read_mapping,
)

CALLS_PER_LINE = 2  # an assumption: one call says something, the next ends the turn; an agent may use other tools, too
REPLY_TOKENS = 80  # an assumption, too

OUR_SITUATIONS = Path(__file__).with_name("situations.yaml")
SPEAKER = "Robin"
MOST_SITUATIONS = 200
MOST_LINES = 20
_TYPES = {"situations": "a list of situations, each with id and lines", "lines": "a list of texts"}


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("empty; allowed: text that is not only white space")
    if storable(value) != value:
        raise ValueError("holds a NUL character or half of a surrogate pair; allowed: any other text")
    return value.strip()


class Situation(BaseModel):
    """What happens to an agent.

    Attributes:
        lines: What is said to the agent, 1 to 20 lines; it answers each before the next is said.
        description: For people; the agent does not see it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    description: Annotated[str, Field(max_length=1_000)] = ""
    speaker: Annotated[str, Field(max_length=80), AfterValidator(lambda name: " ".join(_text(name).split()))] = SPEAKER
    lines: Annotated[
        tuple[Annotated[str, Field(max_length=10_000), AfterValidator(_text)], ...],
        Field(min_length=1, max_length=MOST_LINES),
    ]

    @field_validator("id")
    @classmethod
    def _check_id(cls, value: str) -> str:
        if not (
            len(value) <= 60 and value[:1].isalnum() and set(value) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")
        ):
            raise ValueError(f"{value!r}: allowed: 1 to 60 of a-z, 0-9, - and _, beginning with a letter or digit")
        return value


class _SituationFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    situations: Annotated[list[Situation], Field(min_length=1, max_length=MOST_SITUATIONS)]

    @field_validator("situations")
    @classmethod
    def _check_ids(cls, value: list[Situation]) -> list[Situation]:
        ids = [situation.id for situation in value]
        twice = next((number for number, one in enumerate(ids) if one in ids[:number]), None)
        if twice is not None:
            raise PydanticCustomError(
                "duplicate_id", "{id!r} stands twice; allowed: an id per situation", {"id": ids[twice], "number": twice}
            )
        return value


def load_situations(path: Path | None = None) -> tuple[Situation, ...]:
    """Read the situations of a file; Plumbline's own without one.

    Raises:
        YamlProblems: The file cannot be used; names file, line, field and what is allowed, for every problem.
    """
    path = path or OUR_SITUATIONS
    node, data = read_mapping(path, "situations")
    try:
        return tuple(_SituationFile.model_validate(data).situations)
    except ValidationError as error:
        raise YamlProblems([_problem(path, node, dict(item)) for item in error.errors()]) from None


def _problem(path: Path, node: yaml.Node | None, item: dict[str, Any]) -> FileProblem:
    location = location_of(item)
    if item["type"] == "duplicate_id":
        location = (*location, item["ctx"]["number"], "id")
        return FileProblem(
            path,
            line_of(node, location),
            dotted(location),
            f"{item['ctx']['id']!r} stands twice; allowed: an id per situation",
        )
    message = in_words(item, list((Situation if len(location) > 1 else _SituationFile).model_fields))
    if item["type"] in ("too_long", "too_short"):
        message += f"; allowed: 1 to {MOST_LINES if location[-1:] == ('lines',) else MOST_SITUATIONS}"
    if item["type"].endswith("_type"):
        message += f"; allowed: {_TYPES.get(str(location[-1]) if location else '', 'text')}"
    return FileProblem(path, line_of(node, location), dotted(location), message)


def situations_digest(situations: Iterable[Situation]) -> str:
    """Hash what is said and by whom; descriptions do not matter."""
    parts = [(s.id, s.speaker, s.lines) for s in situations]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

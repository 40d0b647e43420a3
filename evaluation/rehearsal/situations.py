"""Situations that agents are played through: what is said to them, line by line. Ours, or a team's own file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agents.llm.extraction import storable
from evaluation.propositions.yaml_files import (
    FileProblem,
    YamlProblems,
    dotted,
    in_words,
    line_of,
    location_of,
    read_mapping,
)

CANNED = Path(__file__).with_name("situations.yaml")
SPEAKER = "Robin"
MOST_SITUATIONS = 200
MOST_LINES = 20
LINE_CHARACTERS = 10_000

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")


@dataclass(frozen=True, slots=True)
class Situation:
    """What happens to an agent.

    Attributes:
        id: Names it in tags, results and comparisons.
        lines: What is said to the agent, 1 to 20 lines; it answers each before the next is said.
        speaker: Who says them.
        description: For people; the agent does not see it.
    """

    id: str
    lines: tuple[str, ...]
    speaker: str = SPEAKER
    description: str = ""


def _is_id(value: str) -> str:
    if not _ID.fullmatch(value):
        raise ValueError(f"{value!r}: allowed: 1 to 60 of a-z, 0-9, - and _, beginning with a letter or digit")
    return value


def _said(value: str) -> str:
    if not value.strip():
        raise ValueError("empty; allowed: text that is not only white space")
    if storable(value) != value:
        raise ValueError("holds a NUL character or half of a surrogate pair; allowed: any other text")
    return value.strip()


def _name(value: str) -> str:
    return " ".join(_said(value).split())


class _SituationSpec(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: Annotated[str, AfterValidator(_is_id)]
    description: Annotated[str, Field(max_length=1_000)] = ""
    speaker: Annotated[str, Field(max_length=80), AfterValidator(_name)] = SPEAKER
    lines: Annotated[
        list[Annotated[str, Field(max_length=LINE_CHARACTERS), AfterValidator(_said)]],
        Field(min_length=1, max_length=MOST_LINES),
    ]


class _SituationFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    situations: Annotated[list[_SituationSpec], Field(min_length=1, max_length=MOST_SITUATIONS)]


def load_situations(path: Path | None = None) -> tuple[Situation, ...]:
    """The situations of a file; of ours without one.

    Raises:
        YamlProblems: The file cannot be used; names file, line, field and what is allowed, for every problem found.
    """
    path = path or CANNED
    node, data = read_mapping(path, "situations")
    try:
        parsed = _SituationFile.model_validate(data)
    except ValidationError as error:
        raise YamlProblems([_problem(path, node, dict(item)) for item in error.errors()]) from None
    if twice := list(_ids_twice(path, node, parsed)):
        raise YamlProblems(twice)
    return tuple(Situation(s.id, tuple(s.lines), s.speaker, s.description) for s in parsed.situations)


def _ids_twice(path: Path, node: yaml.Node | None, parsed: _SituationFile) -> Iterator[FileProblem]:
    seen: set[str] = set()
    for number, situation in enumerate(parsed.situations):
        if situation.id in seen:
            location = ("situations", number, "id")
            message = f"{situation.id!r} stands twice; allowed: an id per situation"
            yield FileProblem(path, line_of(node, location), dotted(location), message)
        seen.add(situation.id)


def _problem(path: Path, node: yaml.Node | None, item: dict[str, Any]) -> FileProblem:
    location = location_of(item)
    schema = _SituationSpec if len(location) > 1 else _SituationFile
    message = in_words(item, list(schema.model_fields))
    if item["type"] in ("too_long", "too_short"):
        limits = (1, MOST_LINES) if location[-1:] == ("lines",) else (1, MOST_SITUATIONS)
        message += f"; allowed: {limits[0]} to {limits[1]}"
    if item["type"].endswith("_type"):
        message += f"; allowed: {_TYPES.get(str(location[-1]) if location else '', 'text')}"
    return FileProblem(path, line_of(node, location), dotted(location), message)


_TYPES = {"situations": "a list of situations, each with id and lines", "lines": "a list of texts"}


def situations_digest(situations: Iterable[Situation]) -> str:
    """Equal for situations in which the same is said by the same; descriptions do not matter."""
    parts: Sequence[object] = [(s.id, s.speaker, s.lines) for s in situations]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

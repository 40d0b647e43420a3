"""Read situations for simulations: what is said to an agent, line by line. Plumbline's own, or a team's file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from agents.kit.text.storable import storable
from evaluation.propositions.files import read_entries, refuse_repeated_ids

CALLS_PER_LINE = 2  # an assumption: one call says something, the next ends the turn; an agent may use other tools, too
REPLY_TOKENS = 80  # an assumption

OUR_SITUATIONS = Path(__file__).with_name("situations.yaml")
SPEAKER = "Robin"
MOST_SITUATIONS = 200
MOST_LINES = 20


def _check_text(value: str) -> str:
    """Refuse an empty text, and one that the database cannot store; return it without white space around it."""
    if not value.strip():
        raise ValueError("empty; allowed: text that is not only white space")
    if storable(value) != value:
        raise ValueError("holds a NUL character or half of a surrogate pair; allowed: any other text")
    return value.strip()


def _check_name(value: str) -> str:
    """Check a name like a text; return it on one line."""
    return " ".join(_check_text(value).split())


class Situation(BaseModel):
    """What happens to an agent.

    Attributes:
        lines: What is said to the agent, 1 to 20 lines; it answers each before the next is said.
        description: For people; the agent does not see it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,59}$")]
    description: Annotated[str, Field(max_length=1_000)] = ""
    speaker: Annotated[str, Field(max_length=80), AfterValidator(_check_name)] = SPEAKER
    lines: Annotated[
        tuple[Annotated[str, Field(max_length=10_000), AfterValidator(_check_text)], ...],
        Field(min_length=1, max_length=MOST_LINES),
    ]


class _SituationFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    situations: Annotated[list[Situation], Field(min_length=1, max_length=MOST_SITUATIONS)]

    @field_validator("situations")
    @classmethod
    def _check_ids(cls, value: list[Situation]) -> list[Situation]:
        refuse_repeated_ids([situation.id for situation in value], of="situation")
        return value


def load_situations(source: Path | str = OUR_SITUATIONS) -> tuple[Situation, ...]:
    """Read the situations of a file, or of a text; Plumbline's own without one.

    Raises:
        YamlProblems: They cannot be used; names file, line, field and what is allowed, for every problem.
    """
    return tuple(read_entries(source, _SituationFile, Situation).situations)


def situations_digest(situations: Iterable[Situation]) -> str:
    """Hash what is said and by whom; descriptions do not matter."""
    parts = [(situation.id, situation.speaker, situation.lines) for situation in situations]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

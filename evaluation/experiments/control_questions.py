"""Read control questions: what an agent is asked about itself after a talk. Plumbline's own 25, or a team's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from agents.kit.text.fences import fault_of
from evaluation.propositions.files import read_entries, refuse_repeated_ids

OUR_QUESTIONS = Path(__file__).with_name("control_questions.yaml")
MOST_QUESTIONS = 100
MOST_ASKS = 5  # of one question on one fork


def _checked_text(text: str) -> str:
    """Return a text that may stand in a prompt, without white space around it."""
    fault = fault_of(text)
    if fault:
        raise ValueError(fault)
    return text.strip()


class ControlQuestion(BaseModel):
    """A question that an agent is asked about itself.

    Attributes:
        text: As the agent reads it.
        about: A stable ``fact``, a ``preference``, or a ``rule`` that the agent is to keep.
        proposition: Id of the proposition that an answer to a question about a rule states, or does not; empty: each of the agent's own
            is looked for. None is looked for in answers about facts and preferences.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,59}$")]
    text: Annotated[str, Field(max_length=1_000), AfterValidator(_checked_text)]
    about: Literal["fact", "preference", "rule"] = "fact"
    proposition: Annotated[str, Field(pattern=r"^([a-z0-9]+(-[a-z0-9]+)*)?$", max_length=120)] = ""


class _QuestionFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    questions: Annotated[list[ControlQuestion], Field(min_length=1, max_length=MOST_QUESTIONS)]

    @field_validator("questions")
    @classmethod
    def _check_ids(cls, value: list[ControlQuestion]) -> list[ControlQuestion]:
        refuse_repeated_ids([question.id for question in value], of="question")
        return value


def load_questions(source: Path | str = OUR_QUESTIONS) -> list[ControlQuestion]:
    """Read the control questions of a file, or of a text; Plumbline's own without one.

    Raises:
        YamlProblems: They cannot be used; names file, line, field and what is allowed, for every problem.
    """
    return read_entries(source, _QuestionFile, ControlQuestion).questions

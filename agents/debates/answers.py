"""The answer of a seat: the fields of `send_message` in a debate, and a value without tables for the functions of `measures`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Stance = Literal["yes", "no", "neutral"]

Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]
Reasoning = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]
Source = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class Position(BaseModel):
    """The answer in a mode without stances."""

    position: Sentence = Field(description="your position on the question, in one or two sentences")
    reasoning: Reasoning = Field(description="why: your strongest reasons, and what speaks against them")
    confidence: float = Field(
        strict=False,
        allow_inf_nan=False,
        description="how sure you are of your position, 0 (not at all) to 1 (certain)",
    )
    citations: list[Source] = Field(
        default_factory=list,
        max_length=20,
        description="sources you rely on, one entry each; empty when there are none",
    )


class StancedPosition(Position):
    """The answer in a mode with stances."""

    stance: Stance = Field(description="your answer to the question: yes, no or neutral")


class Answer(BaseModel):
    """One seat's answer in one round, as the pure functions read it.

    Attributes:
        seat: Number of the seat, the same in all rounds; any distinct numbers do for other people's debates.
        position: What it holds, in one or two sentences. `reasoning`: why.
        stance: None where the mode has none.
        confidence: 0 to 1; None where it gave none.
        role: Role or perspective of the seat.
    """

    model_config = ConfigDict(frozen=True)

    seat: int
    position: str
    reasoning: str = ""
    stance: Stance | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    citations: tuple[str, ...] = ()
    role: str = ""

"""What may stand in a proposition file: its schema, as pydantic models (AC-6.0.2)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from evaluation.preconditions import PRECONDITIONS
from evaluation.rules import Phrase, Rule

DimensionId = Literal["adherence", "consistency", "fluency", "convergence", "ideas_quantity"]
# Judged over a whole window or conversation, never on one message.
WINDOW_DIMENSIONS = ("consistency", "fluency", "convergence", "ideas_quantity")
ENVIRONMENT_DIMENSIONS = ("convergence", "ideas_quantity")  # measured of a whole channel
MEASURED_IN = {
    "style": "consistency",
    "voices": "convergence",
}  # the one dimension in which the statistic means something
WINDOW_DEFAULTS: dict[str, tuple[int, int]] = {"evaluation": (10, 100), "action": (5, 10)}  # AC-6.0.12
VARIABLES = ("agent_name", "channel_name", "action")

VARIABLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")


def _known_variables(text: str) -> str:
    for name in VARIABLE.findall(text):
        if name not in VARIABLES:
            raise ValueError(
                f"unknown variable {{{{{name}}}}}; allowed: {', '.join('{{' + v + '}}' for v in VARIABLES)}"
            )
    return text


def _known_precondition(name: str) -> str:
    if name not in PRECONDITIONS:
        raise ValueError(f"unknown precondition {name!r}; allowed: {', '.join(sorted(PRECONDITIONS))}")
    return name


Claim = Annotated[str, Field(min_length=1, max_length=4000), AfterValidator(_known_variables)]
EventCount = Annotated[int, Field(ge=0, le=10_000)]


class Cues(BaseModel):
    """Words and patterns the offline judge looks for: phrases, or ``/regex/``. They speak of the claim as it is written."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    supports: list[Phrase] = Field(default_factory=list, description="found in a message: the claim holds")
    contradicts: list[Phrase] = Field(default_factory=list, description="found in a message: the claim does not hold")

    @model_validator(mode="after")
    def _not_empty(self) -> Cues:
        if not self.supports and not self.contradicts:
            raise ValueError("cues need at least one entry under supports or contradicts")
        return self


class PropositionSpec(BaseModel):
    """One proposition as it stands in a file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: str = Field(
        pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=120, description="unique in its dimension, kebab-case"
    )
    claim: Claim = Field(description="what the judge scores 0 to 9, with {{variables}}")
    weight: float = Field(1.0, gt=0, le=5, strict=False, description="share in the dimension's mean")
    inverted: bool = Field(False, description="an anti-pattern: the score is flipped (9 - raw) before it is averaged")
    hard: bool = Field(False, description="the judge lists flaws, each takes 20 % off the score")
    include_personas: bool | None = Field(None, description="overrides the file's")
    first_n: EventCount | None = Field(None, description="overrides the file's")
    last_n: EventCount | None = Field(None, description="overrides the file's")
    recommendations_for_improvement: str = Field(
        "", max_length=2000, description="advice to the agent when the score is low"
    )
    precondition: Annotated[str, AfterValidator(_known_precondition)] | None = Field(
        None, description="a registered name; where it is false the claim is trivially true"
    )
    rule: Rule | None = Field(
        None, description="an exact check of the message instead of a judge: 9 when it holds, 0 when not"
    )
    cues: Cues | None = Field(None, description="what the offline judge may go by")
    measure: Literal["repetition", "style", "voices"] | None = Field(
        None, description="the statistic the offline judge may answer from: in fluency, consistency, convergence"
    )
    trait: str | None = Field(
        None,
        pattern=r"\S",
        max_length=120,
        description="the agent's trait this claim is about: it stands in the place of the automatic one of that trait",
    )
    trait_stopped: bool = Field(
        False, description="the claim is about the trait at strength 0, which the agent is not to show"
    )
    active: bool = Field(True, description="false: a draft, which is never judged until somebody writes true")
    rejected: bool = Field(False, description="a draft that was turned down; kept, so that it is not proposed again")
    retired: bool = Field(
        False, description="no longer judged; in a team's folder under an id of ours it takes ours out, too"
    )
    source: str = Field("", max_length=1000, description="the words of the persona it was drafted from")

    @model_validator(mode="after")
    def _combinations(self) -> PropositionSpec:
        if self.hard and self.inverted:
            raise ValueError(
                "hard and inverted exclude each other: a penalty for flaws in an anti-pattern has no meaning"
            )
        if self.rule and (self.cues or self.hard or self.measure):
            raise ValueError("rule stands alone: cues, hard and measure are for judged claims")
        if self.trait_stopped and not self.trait:
            raise ValueError("trait_stopped: true says of which trait: give trait, too")
        if self.rejected and self.active:
            raise ValueError("rejected: true needs active: false, what was turned down is not judged")
        if self.retired and (self.active or self.rejected):
            raise ValueError("retired: true needs active: false, and excludes rejected: it was judged once")
        return self


class PropositionFile(BaseModel):
    """A proposition file: who and what it is about, and its propositions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    dimension: DimensionId
    agent_id: str | None = Field(
        None, description="the agent's slug (environment: the channel's); left out or _default: of every one"
    )
    include_personas: bool = Field(True, description="whether the judge sees the persona")
    target_type: Literal["agent", "environment"] = Field("agent", description="environment = a whole channel")
    level: Literal["evaluation", "action"] = Field(
        "evaluation", description="action = judged on a draft before it is sent"
    )
    first_n: EventCount | None = Field(
        None,
        description="events shown from the start of the channel (of the window, where that is judged); default 10, at action level 5",
    )
    last_n: EventCount | None = Field(
        None,
        description="events shown up to the end of the message's stretch (of the window); default 100, at action level 10",
    )
    propositions: list[PropositionSpec] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> PropositionFile:
        if self.target_type == "environment" and self.dimension not in ENVIRONMENT_DIMENSIONS:
            raise ValueError(
                f"target_type environment: {self.dimension} is measured of one agent; allowed for {', '.join(ENVIRONMENT_DIMENSIONS)}"
            )
        if self.target_type == "agent" and self.dimension in ENVIRONMENT_DIMENSIONS:
            raise ValueError(f"{self.dimension} is measured of a whole channel: write target_type: environment")
        seen: set[str] = set()
        for spec in self.propositions:
            if spec.id in seen:
                raise ValueError(f"the id {spec.id!r} stands twice in this file")
            seen.add(spec.id)
            usable = usable_variables(self)
            if wrong := [name for name in VARIABLE.findall(spec.claim) if name not in usable]:
                raise ValueError(
                    f"{spec.id}: {{{{{wrong[0]}}}}} has no value in {self.dimension} at {self.level} level; usable: {', '.join(usable)}"
                )
            if spec.precondition and self.dimension in WINDOW_DIMENSIONS:
                raise ValueError(
                    f"{spec.id}: a precondition looks at one message; {self.dimension} is judged over a window"
                )
            default_first, default_last = WINDOW_DEFAULTS[self.level]
            shown = first_given(spec.first_n, self.first_n, default_first) + first_given(
                spec.last_n, self.last_n, default_last
            )
            if self.dimension in WINDOW_DIMENSIONS and shown < 2:
                raise ValueError(
                    f"{spec.id}: first_n + last_n is {shown}; {self.dimension} needs at least 2 events to judge"
                )
            if spec.trait and (self.dimension, self.level) != ("adherence", "evaluation"):
                raise ValueError(f"{spec.id}: traits are measured in adherence, at evaluation level; leave trait out")
            if MEASURED_IN.get(spec.measure or "", self.dimension) != self.dimension:
                raise ValueError(
                    f"{spec.id}: measure {spec.measure} is a statistic of {MEASURED_IN[spec.measure or '']}"
                )
            if self.dimension == "ideas_quantity" and (spec.inverted or spec.hard or spec.cues or spec.measure):
                raise ValueError(
                    f"{spec.id}: ideas are counted, not scored: inverted, hard, cues and measure have no meaning"
                )
            if spec.rule and self.dimension in WINDOW_DIMENSIONS:
                raise ValueError(
                    f"{spec.id}: a rule checks one message; {self.dimension} is judged over a window (put it under adherence)"
                )
        return self


def usable_variables(file: PropositionFile) -> tuple[str, ...]:
    """Variables that have a value where this file's claims are judged."""
    if file.level == "action":
        return VARIABLES
    in_channel = file.dimension in ("adherence", *ENVIRONMENT_DIMENSIONS)
    return ("agent_name", "channel_name") if in_channel else ("agent_name",)


def first_given(*values: Any) -> Any:
    """The first that is not None: a proposition's own value, its file's, the default."""
    return next(value for value in values if value is not None)

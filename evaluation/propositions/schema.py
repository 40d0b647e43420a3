"""The schema of proposition files (AC-6.0.2), and the resolved `Proposition` that everything else works with."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from agents.kit.text.fences import prompt_path
from evaluation.dimensions import BY_ONE_MESSAGE, CHANNEL_DIMENSIONS, COUNTED, OF_PERSONA, TAKES_RULES, Dimension
from evaluation.propositions.preconditions import known_preconditions
from evaluation.propositions.rules import Phrase, Rule

if TYPE_CHECKING:
    DimensionId = str
else:
    DimensionId = Literal[tuple(Dimension.values)]  # a type checker cannot read a computed one
# The one dimension in which a statistic has a meaning.
MEASURED_IN = {dimension.kind.statistic: dimension.value for dimension in Dimension if dimension.kind.statistic}
WINDOW_DEFAULTS: dict[str, tuple[int, int]] = {"evaluation": (10, 100), "action": (5, 10)}  # AC-6.0.12
VARIABLES = ("agent_name", "channel_name", "action")
AGENT_NAME = "{{agent_name}}"

VARIABLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")


def _known_variables(text: str) -> str:
    """Refuse unknown variables."""
    for name in VARIABLE.findall(text):
        if name not in VARIABLES:
            allowed = ", ".join("{{" + variable + "}}" for variable in VARIABLES)
            raise ValueError(f"unknown variable {{{{{name}}}}}; allowed: {allowed}")
    return text


def _known_precondition(name: str) -> str:
    """Refuse a precondition that is not registered."""
    known = known_preconditions()
    if name not in known:
        raise ValueError(f"unknown precondition {name!r}; allowed: {', '.join(sorted(known))}")
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
    """One proposition as a file has it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: str = Field(
        pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$",
        max_length=120,
        description="small letters, digits, hyphens; scores are stored under it",
    )
    claim: Claim = Field(
        description="what the judge scores from 0 (not at all) to 9 (fully); {{agent_name}} stands for the agent's name"
    )
    weight: float = Field(
        1.0, gt=0, le=5, strict=False, description="share in the dimension's mean: above 0, at most 5"
    )
    inverted: bool = Field(False, description="an anti-pattern: the score is flipped (9 - raw) before it is averaged")
    hard: bool = Field(
        False, description="the judge lists flaws, each takes 20 % off the score; not for an anti-pattern"
    )
    include_personas: bool | None = Field(None, description="whether the judge sees the persona; overrides the file's")
    first_n: EventCount | None = Field(None, description="events shown from the start; overrides the file's")
    last_n: EventCount | None = Field(None, description="events shown up to the message; overrides the file's")
    recommendations_for_improvement: str = Field(
        "", max_length=2000, description="advice to the agent when the score is low"
    )
    precondition: Annotated[str, AfterValidator(_known_precondition)] | None = Field(
        None, description="a registered name; where it is false for a message the claim is trivially true"
    )
    rule: Rule | None = Field(
        None, description="an exact check of the message instead of a judge: 9 when it holds, 0 when not"
    )
    of_ten: int | None = Field(
        None,
        ge=1,
        le=9,
        description="of a rule that need not hold in every message: in how many of 10 it should; each message scores 9 or "
        "0, so the mean is 9 times their share, and no single draft is held to it",
    )
    cues: Cues | None = Field(None, description="what the offline judge may go by")
    measure: Literal["repetition", "phrases", "voice", "voices"] | None = Field(
        None, description="the statistic the offline judge may answer from: in fluency, consistency, convergence"
    )
    trait: str | None = Field(
        None,
        pattern=r"\S",
        max_length=120,
        description="the agent's trait this is about: it replaces the automatic proposition of that trait",
    )
    trait_stopped: bool = Field(
        False, description="the claim is about the trait at strength 0, which the agent is not to show"
    )
    active: bool = Field(True, description="false: a suggestion, which is not judged before you accept it (true)")
    rejected: bool = Field(False, description="a suggestion that was rejected: it is not suggested again")
    retired: bool = Field(
        False, description="no longer judged; in a team's folder under an id of ours it takes ours out, too"
    )
    source: str = Field("", max_length=1000, description="the words of the persona it comes from")

    @model_validator(mode="after")
    def _combinations(self) -> PropositionSpec:
        """Refuse fields that exclude each other, or need another one."""
        if self.hard and self.inverted:
            raise ValueError(
                "hard and inverted exclude each other: a penalty for flaws in an anti-pattern has no meaning"
            )
        if self.rule and (self.cues or self.hard or self.measure):
            raise ValueError("rule stands alone: cues, hard and measure are for judged claims")
        if self.of_ten is not None and (self.rule is None or self.inverted):
            raise ValueError("of_ten says in how many of 10 messages a rule should hold: give a rule, without inverted")
        if self.trait_stopped and not self.trait:
            raise ValueError("trait_stopped: true says of which trait: give trait, too")
        if self.rejected and self.active:
            raise ValueError("rejected: true needs active: false, what was rejected is not judged")
        if self.retired and (self.active or self.rejected):
            raise ValueError("retired: true needs active: false, and excludes rejected: it was judged once")
        return self


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """Why its file does not allow a proposition: its number in the list (from 0), its id, and why."""

    number: int
    id: str
    why: str


class SpecProblems(ValueError):
    """Propositions that their file does not allow."""

    def __init__(self, problems: list[SpecProblem]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{problem.id}: {problem.why}" for problem in problems))


class PropositionFile(BaseModel):
    """A proposition file: who and what it is about, and its propositions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    dimension: DimensionId
    agent_id: str | None = Field(
        None, description="the agent's slug (environment: the channel's); left out or _default: of every one"
    )
    include_personas: bool | None = Field(
        None,
        description="whether the judge sees the persona; default true in adherence, false in the others (an evaluation of consistency, "
        "fluency or ideas_quantity never shows it)",
    )
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
        """Refuse a target that the dimension is not measured of, then propositions that do not fit the file, all of them in one error.

        Raises:
            SpecProblems: With every such proposition.
        """
        if self.target_type == "environment" and self.dimension not in CHANNEL_DIMENSIONS:
            raise ValueError(
                f"target_type environment: {self.dimension} is measured of one agent; allowed for {', '.join(CHANNEL_DIMENSIONS)}"
            )
        if self.target_type == "agent" and self.dimension in CHANNEL_DIMENSIONS:
            raise ValueError(f"{self.dimension} is measured of a whole channel: write target_type: environment")
        seen: set[str] = set()
        problems: list[SpecProblem] = []
        for number, spec in enumerate(self.propositions):
            if spec.id in seen:
                problems.append(SpecProblem(number, spec.id, f"the id {spec.id!r} stands twice in this file"))
            seen.add(spec.id)
            for why in self._problems(spec):
                problems.append(SpecProblem(number, spec.id, why))
        if problems:
            raise SpecProblems(problems)
        return self

    def _problems(self, spec: PropositionSpec) -> Iterator[str]:
        """Yield what this file's dimension and level do not allow of one proposition."""
        yield from self._unusable_variables(spec)
        if self.dimension not in TAKES_RULES:
            if spec.precondition:
                yield f"a precondition looks at one message; {self.dimension} is judged over a window"
            if spec.rule:
                allowed = " or ".join(TAKES_RULES)
                yield f"a rule checks one message; {self.dimension} is judged over a window (put it under {allowed})"
        include_personas = first_given(spec.include_personas, self.include_personas, False)
        if include_personas and self.level == "evaluation" and Dimension(self.dimension).kind.hides_persona:
            yield f"include_personas: true; {self.dimension} is measured without the persona (leave it out, or write false)"
        if self.dimension not in BY_ONE_MESSAGE:
            default_first_n, default_last_n = WINDOW_DEFAULTS[self.level]
            first_n = first_given(spec.first_n, self.first_n, default_first_n)
            last_n = first_given(spec.last_n, self.last_n, default_last_n)
            if first_n + last_n < 2:
                yield f"first_n + last_n is {first_n + last_n}; {self.dimension} needs at least 2 events to judge"
        if spec.of_ten is not None and self.level == "action":
            yield "a draft is one message, and of_ten speaks of several; write it at evaluation level"
        if spec.trait and (self.dimension, self.level) != (OF_PERSONA, "evaluation"):
            yield f"traits are measured in {OF_PERSONA}, at evaluation level; leave trait out"
        measured_in = MEASURED_IN.get(spec.measure or "", self.dimension)
        if measured_in != self.dimension:
            yield f"measure {spec.measure} is a statistic of {measured_in}"
        if self.dimension in COUNTED and (spec.inverted or spec.hard or spec.cues or spec.measure):
            yield "ideas are counted, not scored: inverted, hard, cues and measure have no meaning"

    def _unusable_variables(self, spec: PropositionSpec) -> Iterator[str]:
        usable = usable_variables(self)
        for name in VARIABLE.findall(spec.claim):
            if name not in usable:
                file_kind = f"{self.dimension} at {self.level} level"
                yield f"{{{{{name}}}}} has no value in {file_kind}; usable: {', '.join(usable)}"


def usable_variables(file: PropositionFile) -> tuple[str, ...]:
    """Return the variables that have a value where this file's claims are judged."""
    if file.level == "action":
        return VARIABLES
    if file.dimension in (*BY_ONE_MESSAGE, *CHANNEL_DIMENSIONS):
        return ("agent_name", "channel_name")
    return ("agent_name",)  # a window may reach over several channels


def first_given(*values: Any) -> Any:
    """Return the first that is not None: a proposition's own value, its file's, the default."""
    return next(value for value in values if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposition:
    """A proposition with everything inherited and merged; immutable, so that no two runs can disturb each other.

    Attributes:
        of_ten: Of a rule that need not hold in every message: in how many of 10 it should; None: in every one.
        trait: Name of the trait it speaks of (`trait_stopped`: at strength 0); empty for most.
        trait_now: That trait as the agent has it: a change of it makes this another proposition.
        over_window: Judged once over the window instead of message by message.
        for_all: Whether its file is for all agents.
    """

    dimension: str
    id: str
    claim: str
    weight: float = 1.0
    inverted: bool = False
    hard: bool = False
    include_personas: bool = True
    target_type: str = "agent"
    first_n: int = 10
    last_n: int = 100
    recommendations: str = ""
    precondition: str | None = None
    rule: Rule | None = None
    of_ten: int | None = None
    cues: Cues | None = None
    measure: str | None = None
    source: str = ""
    active: bool = True
    rejected: bool = False
    retired: bool = False
    quote: str = ""
    trait: str = ""
    trait_stopped: bool = False
    trait_now: str = ""
    over_window: bool = False
    for_all: bool = False

    @property
    def state(self) -> str:
        """Return ``accepted`` (it is judged), ``suggested``, ``rejected`` or ``retired``."""
        if self.active:
            return "accepted"
        if self.rejected:
            return "rejected"
        return "retired" if self.retired else "suggested"

    @property
    def context_key(self) -> tuple[bool, str, int, int, bool]:
        """Return what propositions about the same message must have in common to share one call and its rubric."""
        return (self.include_personas, self.target_type, self.first_n, self.last_n, self.hard)

    def fingerprint(self) -> dict[str, object]:
        """Return everything that can change a score, for the digest: of what a judge scores also the prompts it is asked with."""
        content: dict[str, object] = {
            "dimension": self.dimension,
            "id": self.id,
            "claim": self.claim,
            "weight": self.weight,
            "inverted": self.inverted,
            "hard": self.hard,
            "context": list(self.context_key),
            "precondition": self.precondition,
            "rule": self.rule.checks() if self.rule else None,
            "cues": self.cues.model_dump() if self.cues else None,
            "measure": self.measure,
        }
        if self.of_ten is not None:
            content["of_ten"] = self.of_ten
        if self.trait_now:  # only one of a trait can be judged over the window
            content["trait"] = self.trait_now
            content["over_window"] = self.over_window
        if not self.rule:  # a rule asks nobody
            content["prompts"] = prompts_digest()
        return content


SCORING_PROMPTS = ("rubric", "rubric_tinytroupe", "persona", "trajectory", "additional", "claims", "double_check")


@lru_cache(maxsize=1)
def prompts_digest() -> str:
    """Return the SHA-256 (hex) of the prompts that ask for scores. Scores given under other ones do not compare."""
    prompts = (prompt_path(f"judge/{name}").read_bytes() for name in SCORING_PROMPTS)
    return hashlib.sha256(b"".join(prompts)).hexdigest()


def resolve(spec: PropositionSpec, file: PropositionFile, source: str, *, for_all: bool = False) -> Proposition:
    """Return a proposition with what it inherits from its file, where it does not say so itself.

    Args:
        source: Where it stands, ``file:line``. The words of the persona that it names as its source become `quote`.
        for_all: Whether the file is about all agents.
    """
    default_first_n, default_last_n = WINDOW_DEFAULTS[file.level]
    return Proposition(
        dimension=file.dimension,
        id=spec.id,
        claim=spec.claim.strip(),
        weight=spec.weight,
        inverted=spec.inverted,
        hard=spec.hard,
        include_personas=first_given(
            spec.include_personas, file.include_personas, Dimension(file.dimension).kind.shows_persona
        ),
        target_type=file.target_type,
        first_n=first_given(spec.first_n, file.first_n, default_first_n),
        last_n=first_given(spec.last_n, file.last_n, default_last_n),
        recommendations=spec.recommendations_for_improvement.strip(),
        precondition=spec.precondition,
        rule=spec.rule,
        of_ten=spec.of_ten,
        cues=spec.cues,
        measure=spec.measure,
        source=source,
        active=spec.active,
        rejected=spec.rejected,
        retired=spec.retired,
        quote=spec.source.strip(),
        trait=(spec.trait or "").strip(),
        trait_stopped=spec.trait_stopped,
        for_all=for_all,
    )


def fill(claim: str, variables: Mapping[str, str]) -> str:
    """Put the variables into a claim (AC-6.0.3), once: a value that looks like a variable stays as it is.

    Raises:
        ValueError: The claim uses a variable that has no value here.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in variables:
            names = ", ".join(sorted(variables)) or "none"
            raise ValueError(f"the claim uses {{{{{name}}}}}, which has no value here; given: {names}")
        return variables[name]

    return VARIABLE.sub(value, claim)


def propositions_digest(propositions: Iterable[Proposition]) -> str:
    """Return the SHA-256 (hex) of a set of propositions: equal when nothing that can change a score differs."""
    rows = [proposition.fingerprint() for proposition in propositions]
    rows.sort(key=lambda row: (str(row["dimension"]), str(row["id"])))
    return hashlib.sha256(json.dumps(rows, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def digest_of_each(propositions: Mapping[str, Iterable[Proposition]]) -> dict[str, dict[str, str]]:
    """Return a digest (12 hex digits) by dimension and id: it tells the versions of one proposition apart."""
    digests: dict[str, dict[str, str]] = {}
    for dimension, of_dimension in propositions.items():
        digests[dimension] = {proposition.id: propositions_digest([proposition])[:12] for proposition in of_dimension}
    return digests

"""Scenarios: what an experiment plays, read from YAML and checked before anything is written."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from agents.text.fences import fault_of
from evaluation.dimensions import Dimension
from evaluation.experiments.published import figures
from evaluation.propositions.files import (
    FileProblem,
    YamlProblems,
    dotted,
    in_words,
    line_of,
    location_of,
    read_mapping,
)

SHIPPED = Path(__file__).with_name("scenarios")
MOST_ENVIRONMENTS, MOST_AGENTS, MOST_STEPS, MOST_ARMS, MOST_REPEATS = 1_000, 50, 50, 8, 20
MOST_PEOPLE = 2_000

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]


def _said(text: str) -> str:
    if fault := fault_of(text):
        raise ValueError(fault)
    return text.strip()


Text = Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(_said)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Quota(_Part):
    """A property of the population, and how many have which value, in people or in per cent of them; each value is met exactly."""

    property: Annotated[str, StringConstraints(min_length=1, max_length=80)]
    values: Annotated[dict[str, Annotated[int, Field(ge=0, le=MOST_PEOPLE)]], Field(min_length=1, max_length=50)]


class Population(_Part):
    """People who are made for the experiment.

    Attributes:
        size: How many. `about`: who they are, in a sentence; the actor's model writes their personas from it, or templates offline.
        quotas: Of their properties; the values of each add up to `size`, or to 100 (per cent).
    """

    size: Annotated[int, Field(ge=2, le=MOST_PEOPLE)]
    about: Text
    quotas: Annotated[list[Quota], Field(max_length=20)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _add_up(self) -> Population:
        twice = [name for name, n in Counter(quota.property for quota in self.quotas).items() if n > 1]
        if twice:
            raise ValueError(f"quota {twice[0]!r} is there twice; allowed: one for each property")
        for quota in self.quotas:
            total = sum(quota.values.values())
            if total not in (self.size, 100):
                raise ValueError(
                    f"quota {quota.property!r} adds up to {total}; allowed: {self.size} people or 100 (per cent)"
                )
        return self


class Measured(_Part):
    """A dimension to measure. `hard`: judge its propositions in hard mode (AC-6.0.16)."""

    id: Dimension
    hard: bool = False


class PlayedDebate(_Part):
    """An environment of the arm is a debate about what the facilitator says first. See `agents.debates.debate.start_debate`."""

    mode: Slug
    rounds: Annotated[int, Field(ge=1, le=20)] = 3
    settings: dict[str, Any] = Field(default_factory=dict)


class Arm(_Part):
    """One way to play the conversations.

    Attributes:
        overrides: Of every turn (`Run.overrides`): stages, model, or any field of the configuration.
        debate: Its environments are debates; else agents talk.
        treatment: Stages of which at least one must leave a trace, or the arm was not treated: gate, repetition, interventions,
            calibration, polish, debate. Empty = it is a control.
    """

    name: Slug
    overrides: dict[str, Any] = Field(default_factory=dict)
    debate: PlayedDebate | None = None
    treatment: list[Slug] = Field(default_factory=list)


class Step(_Part):
    """One round of everybody's turns. `says`: what the facilitator says before it; `lines`: what the scripted actor says then, by agent."""

    says: Text | Literal[""] = ""
    lines: dict[Slug, list[Text]] = Field(default_factory=dict)


class Scenario(_Part):
    """What an experiment plays.

    Attributes:
        population: People made for it, or `cast`: agents that exist, by slug; exactly one of the two.
        environments: How many conversations an arm has; `agents`: how many agents in each.
        steps: What happens in each, step by step.
        order: ``together``: in a step all read the same and answer; ``sequence``: one after the other, in an order drawn for each step.
        facilitator: The name under which the facilitator speaks.
        start_from: ``CHANNEL@POSITION``: environments begin with what was said there up to that message.
        arms: The first is the control that others are compared with.
        repeats: How often everything is played.
    """

    name: Slug
    title: Annotated[str, StringConstraints(max_length=200)] = ""
    about: Annotated[str, StringConstraints(max_length=2_000)] = ""
    published: str = ""
    population: Population | None = None
    cast: list[Slug] = Field(default_factory=list, max_length=MOST_PEOPLE)
    environments: Annotated[int, Field(ge=1, le=MOST_ENVIRONMENTS)]
    agents: Annotated[int, Field(ge=1, le=MOST_AGENTS)]
    steps: Annotated[list[Step], Field(min_length=1, max_length=MOST_STEPS)]
    order: Literal["together", "sequence"] = "sequence"
    facilitator: Annotated[str, StringConstraints(min_length=1, max_length=80)] = "Facilitator"
    start_from: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_-]{1,128}@[1-9][0-9]{0,17})?$")] = ""
    arms: Annotated[list[Arm], Field(min_length=2, max_length=MOST_ARMS)]
    dimensions: Annotated[list[Measured], Field(min_length=1)]
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)] = 1
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @model_validator(mode="after")
    def _fits(self) -> Scenario:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        for what, names in (
            ("arm", [arm.name for arm in self.arms]),
            ("agent", self.cast),
            ("dimension", [one.id for one in self.dimensions]),
        ):
            yield from (f"{what} {name!r} is named twice; allowed: once" for name, n in Counter(names).items() if n > 1)
        if self.published and self.published not in figures():
            yield f"published {self.published!r}; allowed: {', '.join(figures())}, or none"
        if (self.population is None) == (not self.cast):
            yield "population and cast: exactly one of the two is needed"
        if len(self.cast or range(self.population.size if self.population else 0)) < self.seats:
            yield f"environments × agents = {self.seats}: more than there are people ({self.people}); each sits in one environment"

    @property
    def people(self) -> int:
        return self.population.size if self.population else len(self.cast)

    @property
    def seats(self) -> int:
        """Agents of an arm, in all its environments."""
        return self.environments * self.agents

    @property
    def conversations(self) -> int:
        """Environments of all arms and repeats."""
        return self.environments * len(self.arms) * self.repeats

    @property
    def digest(self) -> str:
        """What is played; title and description aside."""
        parts = self.model_dump(mode="json", exclude={"title", "about"})
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def scaled(self, scale: float) -> Scenario:
        """The same with a share of its environments, at least 2, and of its people.

        Raises:
            ValueError: The scale is not above 0 and at most 1.
        """
        if not 0 < scale <= 1:
            raise ValueError(f"scale {scale:g}; allowed: above 0, at most 1")
        environments = min(self.environments, max(2, math.ceil(self.environments * scale)))
        if environments == self.environments:
            return self
        changed: dict[str, Any] = {"environments": environments}
        if self.population is not None:
            size = environments * self.agents
            quotas = [
                quota.model_copy(update={"values": shared(quota.values, size)}) for quota in self.population.quotas
            ]
            changed["population"] = self.population.model_copy(update={"size": size, "quotas": quotas})
        return self.model_copy(update=changed)


def shared(values: Mapping[str, int], size: int) -> dict[str, int]:
    """So many people shared out in proportion to the values; the largest remainders get what is left (Hamilton)."""
    total = sum(values.values())
    exact = {name: share * size / total for name, share in values.items()}
    counts = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (counts[name] - exact[name], name))
    for name in by_remainder[: size - sum(counts.values())]:
        counts[name] += 1
    return counts


def read_scenario(path: Path) -> Scenario:
    """Read a scenario from a YAML file.

    Raises:
        YamlProblems: It cannot be used; names file, line, field and what is allowed, for every problem.
    """
    node, data = read_mapping(path, "a scenario")
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise YamlProblems([_problem(path, node, dict(item)) for item in error.errors()]) from None


def _problem(path: Path, node: yaml.Node | None, item: dict[str, Any]) -> FileProblem:
    location = location_of(item)
    return FileProblem(path, line_of(node, location), dotted(location), in_words(item, [*Scenario.model_fields]))


def shipped() -> dict[str, Path]:
    """The scenarios that come with Plumbline, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}

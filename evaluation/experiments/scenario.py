"""Scenarios: what an experiment plays, read from YAML and checked before anything is written."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from agents.llm.requests import storable
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

Place = tuple[str | int, ...]  # of a value in a scenario, e.g. ("arms", 1, "name")
SwarmName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
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
        swarms: That answer people with them, by name; `personality` comes with Plumbline.
    """

    size: Annotated[int, Field(ge=2, le=MOST_PEOPLE)]
    about: Text
    quotas: Annotated[list[Quota], Field(max_length=20)] = Field(default_factory=list)
    swarms: Annotated[list[SwarmName], Field(max_length=20)] = Field(default_factory=list)


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
        debate: Its environments are debates about what the first step says, whose rounds take the place of further steps; else agents talk.
        treatment: Stages of which at least one must leave a trace, or the arm was not treated: gate, repetition, interventions,
            calibration, polish, debate. Empty = it is a control.
    """

    name: Slug
    overrides: dict[str, JsonValue] = Field(default_factory=dict)
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
        order: ``together``: in a step all read the same and answer; ``sequence``: one after the other, in an order drawn for each step;
            ``apart``: nobody ever reads what another says, as in a vote.
        facilitator: The name under which the facilitator speaks.
        start_from: ``CHANNEL@POSITION``: environments begin with the last 200 messages up to that one.
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
    order: Literal["together", "sequence", "apart"] = "sequence"
    facilitator: Annotated[str, StringConstraints(min_length=1, max_length=80)] = "Facilitator"
    start_from: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_-]{1,128}@[1-9][0-9]{0,17})?$")] = ""
    arms: Annotated[list[Arm], Field(min_length=2, max_length=MOST_ARMS)]
    dimensions: Annotated[list[Measured], Field(min_length=1)]
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)] = 1
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, data: Any) -> Any:
        try:
            stored = storable(data)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if stored != data:
            raise ValueError("a text holds a NUL character or half of a surrogate pair; allowed: any other text")
        return data

    @model_validator(mode="after")
    def _fits(self) -> Scenario:
        """Name how fields do not fit each other, each at its place."""
        problems = [
            InitErrorDetails(
                type=PydanticCustomError("value_error", "{error}", {"error": ValueError(text)}), loc=place, input=None
            )
            for place, text in self._unfitting()
        ]
        if problems:
            raise ValidationError.from_exception_data(type(self).__name__, problems)
        return self

    def _unfitting(self) -> Iterator[tuple[Place, str]]:
        quotas = self.population.quotas if self.population else []
        names: dict[str, list[tuple[Place, str]]] = {
            "arm": [(("arms", n, "name"), arm.name) for n, arm in enumerate(self.arms)],
            "dimension": [(("dimensions", n, "id"), one.id) for n, one in enumerate(self.dimensions)],
            "agent": [(("cast", n), slug) for n, slug in enumerate(self.cast)],
            "quota": [(("population", "quotas", n, "property"), one.property) for n, one in enumerate(quotas)],
        }
        for what, placed in names.items():
            seen: set[str] = set()
            for place, name in placed:
                if name in seen:
                    yield place, f"{what} {name!r} is named twice; allowed: once"
                seen.add(name)
        if (self.population is None) == (not self.cast):
            yield ("cast",) if self.cast else ("population",), "exactly one of population and cast is needed"
        elif self.seats > self.people:
            text = f"environments × agents = {self.seats}; allowed: at most {self.people}, for each agent sits in one environment"
            yield ("environments",), text
        for number, quota in enumerate(quotas):
            if (total := sum(quota.values.values())) not in (self.people, 100):
                text = f"quota {quota.property!r} adds up to {total}; allowed: {self.people} people or 100 (per cent)"
                yield ("population", "quotas", number, "values"), text
        if self.published and self.published not in figures():
            yield ("published",), f"{self.published!r:.80} is unknown; allowed: {', '.join(figures())}, or none"
        for number, arm in enumerate(self.arms):
            if self.start_from and arm.debate:
                text = "a debate begins with an empty channel; allowed: scenarios without start_from"
                yield ("arms", number, "debate"), text
        for number, step in enumerate(self.steps):
            for slug in step.lines.keys() - set(self.cast):
                text = f"agent {slug!r} is not in the cast; allowed: agents of the cast"
                yield ("steps", number, "lines", slug), text

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


Check = Callable[[Scenario], Iterable[tuple[Place, str]]]


def read_scenario(path: Path, *, check: Check = lambda scenario: ()) -> Scenario:
    """Read a scenario from a YAML file.

    Args:
        check: Says what else is wrong with it, e.g. `evaluation.experiments.play.problems_here`.

    Raises:
        YamlProblems: It cannot be used; names file, line, field and what is allowed, for every problem.
    """
    node, data = read_mapping(path, "a scenario")
    try:
        scenario = Scenario.model_validate(data)
        problems = list(check(scenario))
    except ValidationError as error:
        problems = [(location_of(dict(item)), _in_words(dict(item))) for item in error.errors()]
    if problems:
        lines = [(line_of(node, place) or 0, place, text) for place, text in problems]
        lines.sort(key=lambda one: one[0])
        raise YamlProblems([FileProblem(path, line, dotted(place), text) for line, place, text in lines])
    return scenario


_PARTS: Mapping[str, type[_Part]] = {
    "population": Population,
    "quotas": Quota,
    "steps": Step,
    "arms": Arm,
    "debate": PlayedDebate,
    "dimensions": Measured,
}


def _in_words(item: dict[str, Any]) -> str:
    inner = [_PARTS[part] for part in location_of(item)[:-1] if part in _PARTS]
    return in_words(item, [*(inner[-1] if inner else Scenario).model_fields])


def shipped() -> dict[str, Path]:
    """The scenarios that come with Plumbline, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}

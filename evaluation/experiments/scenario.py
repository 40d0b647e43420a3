"""Scenarios: what an experiment plays, read from YAML and checked before anything is written."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from agents.kit.text.fences import fault_of
from evaluation.dimensions import Dimension
from evaluation.experiments.published import figures
from evaluation.propositions.files import (
    FileProblem,
    YamlProblems,
    dotted,
    in_words,
    line_of,
    location_of,
    path_of,
    read_mapping,
)

SHIPPED = Path(__file__).with_name("scenarios")
MOST_ENVIRONMENTS, MOST_AGENTS, MOST_STEPS, MOST_ARMS, MOST_REPEATS = 1_000, 50, 50, 8, 20
MOST_PEOPLE = 2_000
MOST_LEVELS = 20  # of values inside each other
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")

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
        environments: How many conversations an arm has: what verdicts count; `agents`: how many agents in each.
        steps: What happens in each, step by step.
        order: ``together``: in a step all read the same and answer; ``sequence``: one after the other, in an order drawn for each step;
            ``apart``: nobody ever reads what another says, as in a vote.
        facilitator: The name under which the facilitator speaks.
        start_from: ``CHANNEL@POSITION``: environments begin with the last 200 messages up to that one.
        arms: The first is the control that others are compared with.
        repeats: How often everything is played: steadier scores of the same conversations, which count once.
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

    @model_validator(mode="wrap")
    @classmethod
    def _all_problems(cls, data: Any, read: ModelWrapValidatorHandler[Scenario]) -> Scenario:
        """Name what is wrong with single fields, and how they do not fit each other, at once and each at its place."""
        problems = [
            InitErrorDetails(
                type=PydanticCustomError("value_error", "{error}", {"error": ValueError(text)}), loc=place, input=None
            )
            for place, text in (*unstorable(data), *_unfitting(data))
        ]
        try:
            scenario = read(data)
        except ValidationError as error:
            problems += [InitErrorDetails(**one) for one in error.errors(include_url=False)]  # type: ignore[typeddict-unknown-key]
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return scenario

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
    def comparisons(self) -> int:
        """Judged rows of the report, which are tested together."""
        return len(self.dimensions) * (len(self.arms) - 1)

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


def unstorable(value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Values that no database and no JSON can hold."""
    if len(place) > MOST_LEVELS:
        yield place, f"nested too deeply; allowed: {MOST_LEVELS} levels"
    elif isinstance(value, Mapping):
        for name, one in value.items():
            if not isinstance(name, str) or _UNSTORABLE.search(name):
                yield place, f"the key {name!r:.40}; allowed: text without NUL characters; numbers and dates in quotes"
            else:
                yield from unstorable(one, (*place, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from unstorable(one, (*place, number))
    elif isinstance(value, str):
        if _UNSTORABLE.search(value):
            yield place, "holds a NUL character or half of a surrogate pair; allowed: any other text"
    elif isinstance(value, int | float):
        if not -(2**63) <= value < 2**63:  # nan and infinity, too
            yield place, "is no number of 64 bits; allowed: those"
    elif value is not None and not isinstance(value, BaseModel):
        yield place, f"is a {type(value).__name__}; allowed: text (in quotes), numbers, lists, mappings"


def _unfitting(data: Any) -> Iterator[tuple[Place, str]]:
    """How fields do not fit each other, of those that can be read."""
    if not isinstance(data, Mapping):
        return
    population = _mapping(data.get("population"))
    arms, dimensions, quotas = (
        list(_mappings(of.get(name))) for of, name in ((data, "arms"), (data, "dimensions"), (population, "quotas"))
    )
    named = data.get("cast")
    cast = {
        number: slug for number, slug in enumerate(named if isinstance(named, list) else []) if isinstance(slug, str)
    }
    yield from _twice("arm", [(("arms", n, "name"), arm.get("name")) for n, arm in arms])
    yield from _twice("dimension", [(("dimensions", n, "id"), one.get("id")) for n, one in dimensions])
    yield from _twice("agent", [(("cast", n), slug) for n, slug in cast.items()])
    at = ("population", "quotas")
    yield from _twice("quota", [((*at, n, "property"), quota.get("property")) for n, quota in quotas])
    size, published = population.get("size"), data.get("published")
    for number, quota in quotas:
        counts = [n for n in _mapping(quota.get("values")).values() if isinstance(n, int)]
        if counts and isinstance(size, int) and sum(counts) not in (size, 100):
            text = f"quota {quota.get('property')!r:.80} adds up to {sum(counts)}; allowed: {size} people or 100 (per cent)"
            yield (*at, number, "values"), text
    if isinstance(published, str) and published and published not in figures():
        yield ("published",), f"{published!r:.80} is unknown; allowed: {', '.join(figures())}, or none"
    if bool(data.get("population")) == bool(data.get("cast")):
        yield ("cast",) if data.get("cast") else ("population",), "exactly one of population and cast is needed"
    seats = math.prod(number for number in (data.get("environments"), data.get("agents")) if isinstance(number, int))
    people = size if population else len(cast)
    if isinstance(people, int) and 0 < people < seats:
        text = f"environments × agents = {seats}; allowed: at most {people}, for each agent sits in one environment"
        yield ("environments",), text
    for number, arm in arms:
        if data.get("start_from") and arm.get("debate"):
            text = "a debate begins with an empty channel; allowed: scenarios without start_from"
            yield ("arms", number, "debate"), text
    for number, step in _mappings(data.get("steps")):
        for slug in _mapping(step.get("lines")):
            if slug not in cast.values():
                text = f"agent {slug!r:.80} is not in the cast; allowed: agents of the cast"
                yield ("steps", number, "lines", slug), text


def _mappings(value: Any) -> Iterator[tuple[int, Mapping[Any, Any]]]:
    """The mappings in what should be a list of them, with their places."""
    if isinstance(value, list):
        yield from ((number, one) for number, one in enumerate(value) if isinstance(one, Mapping))


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _twice(what: str, names: list[tuple[Place, Any]]) -> Iterator[tuple[Place, str]]:
    seen: set[str] = set()
    for place, name in names:
        if isinstance(name, str) and name in seen:
            yield place, f"{what} {name!r:.80} is named twice; allowed: once"
        seen |= {name} if isinstance(name, str) else set()


def shared(values: Mapping[str, int], size: int) -> dict[str, int]:
    """So many people shared out in proportion to the values; the largest remainders get what is left (Hamilton)."""
    total = sum(values.values())
    exact = {name: share * size / total for name, share in values.items()}
    counts = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (counts[name] - exact[name], name))
    for name in by_remainder[: size - sum(counts.values())]:
        counts[name] += 1
    return counts


Check = Callable[[Mapping[str, Any]], Iterator[tuple[Place, str]]]


def read_scenario(source: Path | str, *, check: Check = lambda data: iter(())) -> Scenario:
    """Read a scenario from a YAML file, or from its text.

    Args:
        check: Says what else is wrong with it, e.g. `evaluation.experiments.play.problems_here`.

    Raises:
        YamlProblems: It cannot be used; names file, line, field and what is allowed, for every problem.
    """
    node, data = read_mapping(source, "a scenario")
    problems = []
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        problems = [(location_of(dict(item)), _in_words(dict(item))) for item in error.errors()]
    problems += check(data)
    if problems:
        lines = [(line_of(node, place) or 0, place, text) for place, text in problems]
        lines.sort(key=lambda one: one[0])
        raise YamlProblems([FileProblem(path_of(source), line, dotted(place), text) for line, place, text in lines])
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

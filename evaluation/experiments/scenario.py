"""Scenarios: what an experiment plays, read from YAML and checked before anything is written."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from evaluation.experiments.control_questions import MOST_ASKS, MOST_QUESTIONS, ControlQuestion
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
MOST_ENVIRONMENTS = 1_000
MOST_AGENTS = 50  # in one environment
MOST_STEPS = 50
MOST_ARMS = 8
MOST_REPEATS = 20
MOST_REPLAYED = 50  # messages in one step
MOST_PEOPLE = 2_000
MOST_LEVELS = 20  # of values inside each other
_UNSTORABLE_CHARACTERS = re.compile(r"[\x00\ud800-\udfff]")

FieldPath = tuple[str | int, ...]  # of a value in a scenario, e.g. ("arms", 1, "name")


@dataclass(frozen=True, slots=True)
class ScenarioProblem:
    """Something wrong with a scenario: at which value, and what is allowed."""

    path: FieldPath
    text: str


SwarmName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
AgentSlug = SwarmName
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]


def _checked_text(text: str) -> str:
    """Return a text that may stand in a prompt, without white space around it."""
    fault = fault_of(text)
    if fault:
        raise ValueError(fault)
    return text.strip()


Text = Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(_checked_text)]


class ScenarioModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Quota(ScenarioModel):
    """A property of the population, and how many have which value, in people or in per cent of them; each value is met exactly."""

    property: Annotated[str, StringConstraints(min_length=1, max_length=80)]
    values: Annotated[dict[str, Annotated[int, Field(ge=0, le=MOST_PEOPLE)]], Field(min_length=1, max_length=50)]


class Population(ScenarioModel):
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

    def resized(self, size: int) -> Population:
        """Return the same population with so many people, in the proportions of the quotas."""
        quotas = [quota.model_copy(update={"values": shared(quota.values, size)}) for quota in self.quotas]
        return self.model_copy(update={"size": size, "quotas": quotas})


class Measured(ScenarioModel):
    """A dimension to measure. `hard`: judge its propositions in hard mode (AC-6.0.16)."""

    id: Dimension
    hard: bool = False


class PlayedDebate(ScenarioModel):
    """An environment of the arm is a debate about what the facilitator says first. See `agents.debates.starting.start_debate`."""

    mode: Slug
    rounds: Annotated[int, Field(ge=1, le=20)] = 3
    settings: dict[str, Any] = Field(default_factory=dict)


class Arm(ScenarioModel):
    """One way to play the conversations.

    Attributes:
        label: For people; empty: its name.
        overrides: Of every turn (`Run.overrides`): stages, model, or any field of the configuration.
        debate: Its environments are debates about what the first step says, whose rounds take the place of further steps; else agents talk.
        treatment: Stages of which at least one must leave a trace, or the arm was not treated: gate, repetition, interventions,
            calibration, polish, debate. Empty = it is a control.
        reminder: What an operator asks of the agents in the first step, and in every `reminder_every` steps after it (0: never again).
            It is shown to them and not said in the conversation.
    """

    name: Slug
    label: Annotated[str, StringConstraints(max_length=80)] = ""
    overrides: dict[str, Any] = Field(default_factory=dict)
    debate: PlayedDebate | None = None
    treatment: list[Slug] = Field(default_factory=list)
    reminder: Text | Literal[""] = ""
    reminder_every: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0

    def reminder_in(self, step: int) -> str:
        """Return the reminder that is shown in a step, from 1; empty where there is none."""
        if step == 1:
            return self.reminder
        is_due = self.reminder_every > 0 and (step - 1) % self.reminder_every == 0
        return self.reminder if is_due else ""


class Step(ScenarioModel):
    """One round of everybody's turns.

    Attributes:
        says: What the facilitator says before it.
        replays: Positions of messages in the channel of `start_from`, which their authors say again before it; then nobody else does.
        lines: What the scripted actor says in it, by agent.
    """

    says: Text | Literal[""] = ""
    replays: Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=MOST_REPLAYED)] = Field(default_factory=list)
    lines: dict[Slug, list[Text]] = Field(default_factory=dict)


class LabPlan(ScenarioModel):
    """The part of a scenario that makes it a laboratory: one agent, one conversation of `start_from`, forks of it in each arm.

    Attributes:
        questions: Asked on a copy of each fork once it was played. `asks`: how often each.
    """

    questions: Annotated[list[ControlQuestion], Field(max_length=MOST_QUESTIONS)] = Field(default_factory=list)
    asks: Annotated[int, Field(ge=1, le=MOST_ASKS)] = 2


class Scenario(ScenarioModel):
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
        lab: Makes it a laboratory, whose repeats are forks of one conversation; see `evaluation.experiments.lab`.
    """

    name: Slug
    title: Annotated[str, StringConstraints(max_length=200)] = ""
    about: Annotated[str, StringConstraints(max_length=2_000)] = ""
    published: str = ""
    population: Population | None = None
    cast: list[AgentSlug] = Field(default_factory=list, max_length=MOST_PEOPLE)
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
    lab: LabPlan | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _all_problems(cls, data: Any, read: ModelWrapValidatorHandler[Scenario]) -> Scenario:
        """Return the scenario that the data describe.

        Raises:
            ValidationError: With all problems at once: of single fields, and of fields that do not fit each other.
        """
        problems = [_error_details(problem) for problem in (*unstorable(data), *_contradictions(data))]
        try:
            scenario = read(data)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                problems.append(InitErrorDetails(**details))  # type: ignore[typeddict-unknown-key]
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return scenario

    @property
    def people(self) -> int:
        return self.population.size if self.population else len(self.cast)

    @property
    def seats(self) -> int:
        """Return the number of agents of an arm, in all its environments."""
        return self.environments * self.agents

    @property
    def conversations(self) -> int:
        """Return the number of environments of all arms and repeats."""
        return self.environments * len(self.arms) * self.repeats

    @property
    def turns(self) -> int:
        """Return the number of turns of all conversations, those that answer control questions among them."""
        turns = self.agents * len(self.steps)
        if self.lab is not None:
            turns += len(self.lab.questions) * self.lab.asks
        return self.conversations * turns

    @property
    def comparisons(self) -> int:
        """Return the number of judged rows of the report, which are tested together."""
        return len(self.dimensions) * (len(self.arms) - 1)

    def scaled(self, scale: float) -> Scenario:
        """Return the same scenario with a share of its environments, rounded up and at least 2, and with the people these need.

        A cast stays as it is. Where no environment would go, the scenario is returned unchanged.

        Raises:
            ValueError: The scale is not above 0 and at most 1.
        """
        if not 0 < scale <= 1:
            raise ValueError(f"scale {scale:g}; allowed: above 0, at most 1")
        environments = min(self.environments, max(2, math.ceil(self.environments * scale)))
        if environments == self.environments:
            return self
        changes: dict[str, Any] = {"environments": environments}
        if self.population is not None:
            changes["population"] = self.population.resized(environments * self.agents)
        return self.model_copy(update=changes)

    def with_cast(self, slugs: Sequence[str]) -> Scenario:
        """Return the same scenario played by these agents, each in one environment, in as many environments as they fill.

        Lines of the scripted actor stay where they are of one of these agents.

        Raises:
            ValueError: It makes its own people, or they are too few.
        """
        option = f"agents {', '.join(slugs):.80}"
        if self.population is not None:
            raise ValueError(f"{option}: {self.name} makes its own people; allowed: none, or a scenario with a cast")
        environments = min(len(slugs) // self.agents, MOST_ENVIRONMENTS)
        if environments < 2:
            fewest = 2 * self.agents
            raise ValueError(
                f"{option}: {len(slugs)} picked; allowed: at least {fewest}, for two conversations of an arm"
            )
        steps = []
        for step in self.steps:
            lines = {slug: texts for slug, texts in step.lines.items() if slug in slugs}
            steps.append(step.model_copy(update={"lines": lines}))
        return self.model_copy(update={"cast": list(slugs), "environments": environments, "steps": steps})


def _error_details(problem: ScenarioProblem) -> InitErrorDetails:
    """Return a problem in pydantic's form."""
    kind = PydanticCustomError("value_error", "{error}", {"error": ValueError(problem.text)})
    return InitErrorDetails(type=kind, loc=problem.path, input=None)


def unstorable(value: Any, path: FieldPath = ()) -> Iterator[ScenarioProblem]:
    """Yield what cannot be stored as JSON of a value and all that is in it.

    That is: NUL characters and half surrogate pairs, numbers of more than 64 bits, nan and infinity, keys that are no text, other types
    than JSON's, and more than `MOST_LEVELS` levels. What lies below a bad key or a level too many is not looked at.
    """
    if len(path) > MOST_LEVELS:
        yield ScenarioProblem(path, f"nested too deeply; allowed: {MOST_LEVELS} levels")
    elif isinstance(value, Mapping):
        for key, member in value.items():
            if not isinstance(key, str) or _UNSTORABLE_CHARACTERS.search(key):
                allowed = "allowed: text without NUL characters; numbers and dates in quotes"
                yield ScenarioProblem(path, f"the key {key!r:.40}; {allowed}")
            else:
                yield from unstorable(member, (*path, key))
    elif isinstance(value, list):
        for number, member in enumerate(value):
            yield from unstorable(member, (*path, number))
    elif isinstance(value, str):
        if _UNSTORABLE_CHARACTERS.search(value):
            yield ScenarioProblem(path, "holds a NUL character or half of a surrogate pair; allowed: any other text")
    elif isinstance(value, int | float):
        if not -(2**63) <= value < 2**63:  # nan and infinity, too
            yield ScenarioProblem(path, "is no number of 64 bits; allowed: those")
    elif value is not None and not isinstance(value, BaseModel):
        allowed = "allowed: text (in quotes), numbers, lists, mappings"
        yield ScenarioProblem(path, f"is a {type(value).__name__}; {allowed}")


# -- fields that do not fit each other; fields that cannot be read are reported by pydantic and left out here
def _contradictions(data: Any) -> Iterator[ScenarioProblem]:
    """Yield how fields contradict each other, as far as they can be read; data of another form than a mapping have no contradictions."""
    if not isinstance(data, Mapping):
        return
    yield from _repeated_names(data)
    yield from _quota_problems(data)
    published = data.get("published")  # the id of an experiment in a paper, see `figures`
    if isinstance(published, str) and published and published not in figures():
        allowed = f"allowed: {', '.join(figures())}, or none"
        yield ScenarioProblem(("published",), f"{published!r:.80} is unknown; {allowed}")
    if bool(data.get("population")) == bool(data.get("cast")):  # both, or neither
        field = "cast" if data.get("cast") else "population"
        yield ScenarioProblem((field,), "exactly one of population and cast is needed")
    yield from _too_few_people(data)
    yield from _debates_from_a_message(data)
    yield from _lines_of_strangers(data)
    if not data.get("start_from"):
        yield from _nothing_to_start_from(data)


def _repeated_names(data: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    """Yield arms, dimensions, agents of the cast and quotas that have the name of an earlier one."""
    arms: dict[FieldPath, Any] = {}
    for number, arm in _mappings_in(data.get("arms")):
        arms["arms", number, "name"] = arm.get("name")
    dimensions: dict[FieldPath, Any] = {}
    for number, dimension in _mappings_in(data.get("dimensions")):
        dimensions["dimensions", number, "id"] = dimension.get("id")
    cast: dict[FieldPath, Any] = {}
    for number, slug in _cast_in(data).items():
        cast["cast", number] = slug
    quotas: dict[FieldPath, Any] = {}
    for number, quota in _quotas_in(data):
        quotas["population", "quotas", number, "property"] = quota.get("property")
    yield from _named_twice("arm", arms)
    yield from _named_twice("dimension", dimensions)
    yield from _named_twice("agent", cast)
    yield from _named_twice("quota", quotas)


def _named_twice(what: str, names: Mapping[FieldPath, Any]) -> Iterator[ScenarioProblem]:
    """Yield each name that an earlier field has, too. Values that are no text are passed over: pydantic reports them."""
    seen: set[str] = set()
    for path, name in names.items():
        if not isinstance(name, str):
            continue
        if name in seen:
            yield ScenarioProblem(path, f"{what} {name!r:.80} is named twice; allowed: once")
        seen.add(name)


def _quota_problems(data: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    """Yield quotas that add up neither to the size of the population nor to 100 per cent; counts that cannot be read are left out."""
    size = _mapping(data.get("population")).get("size")
    if not isinstance(size, int):
        return
    for number, quota in _quotas_in(data):
        counts = [count for count in _mapping(quota.get("values")).values() if isinstance(count, int)]
        if counts and sum(counts) not in (size, 100):
            adds_up = f"quota {quota.get('property')!r:.80} adds up to {sum(counts)}"
            path = ("population", "quotas", number, "values")
            yield ScenarioProblem(path, f"{adds_up}; allowed: {size} people or 100 (per cent)")


def _too_few_people(data: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    """Yield that there are fewer people than seats. A number that cannot be read counts as 1; no people at all are reported elsewhere."""
    seats = 1
    for field in ("environments", "agents"):
        count = data.get(field)
        if isinstance(count, int):
            seats *= count
    population = _mapping(data.get("population"))
    people = population.get("size") if population else len(_cast_in(data))
    if isinstance(people, int) and 0 < people < seats:
        text = f"environments × agents = {seats}; allowed: at most {people}, for each agent sits in one environment"
        yield ScenarioProblem(("environments",), text)


def _debates_from_a_message(data: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    if not data.get("start_from"):
        return
    for number, arm in _mappings_in(data.get("arms")):
        if arm.get("debate"):
            text = "a debate begins with an empty channel; allowed: scenarios without start_from"
            yield ScenarioProblem(("arms", number, "debate"), text)


def _nothing_to_start_from(data: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    """Yield what only a scenario that starts from a message can have."""
    if data.get("lab"):
        yield ScenarioProblem(("lab",), "forks a conversation; allowed: scenarios with start_from")
    for number, step in _mappings_in(data.get("steps")):
        if step.get("replays"):
            text = "replays messages of the channel of start_from; allowed: scenarios with start_from"
            yield ScenarioProblem(("steps", number, "replays"), text)


def _lines_of_strangers(data: Mapping[str, Any]) -> Iterator[ScenarioProblem]:
    cast = _cast_in(data).values()
    for number, step in _mappings_in(data.get("steps")):
        for slug in _mapping(step.get("lines")):
            if slug not in cast:
                text = f"agent {slug!r:.80} is not in the cast; allowed: agents of the cast"
                yield ScenarioProblem(("steps", number, "lines", slug), text)


def _cast_in(data: Mapping[str, Any]) -> dict[int, str]:
    """Return the slugs of the cast by their number in the list."""
    cast = data.get("cast")
    if not isinstance(cast, list):
        return {}
    return {number: slug for number, slug in enumerate(cast) if isinstance(slug, str)}


def _quotas_in(data: Mapping[str, Any]) -> list[tuple[int, Mapping[Any, Any]]]:
    return _mappings_in(_mapping(data.get("population")).get("quotas"))


def _mappings_in(value: Any) -> list[tuple[int, Mapping[Any, Any]]]:
    """Return the mappings in what should be a list of them, each with its number there."""
    if not isinstance(value, list):
        return []
    return [(number, member) for number, member in enumerate(value) if isinstance(member, Mapping)]


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def shared(values: Mapping[str, int], size: int) -> dict[str, int]:
    """Share out so many people in proportion to the values; the largest remainders get what is left (Hamilton)."""
    total = sum(values.values())
    exact = {name: share * size / total for name, share in values.items()}
    counts = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (counts[name] - exact[name], name))  # the largest first
    for name in by_remainder[: size - sum(counts.values())]:
        counts[name] += 1
    return counts


# -- reading
Check = Callable[[Mapping[str, Any]], Iterable[ScenarioProblem]]


def _no_further_check(data: Mapping[str, Any]) -> Iterable[ScenarioProblem]:
    return ()


def read_scenario(source: Path | str, *, check: Check = _no_further_check) -> Scenario:
    """Read a scenario from a YAML file, or from its text.

    Args:
        check: Is given the data, also when they are no scenario; returns what else is wrong with them, e.g.
            `evaluation.experiments.problems.problems_here`.

    Raises:
        YamlProblems: It cannot be used; names file, line (0 = unknown), field and what is allowed, for every problem, by line.
    """
    node, data = read_mapping(source, "a scenario")
    problems: list[ScenarioProblem] = []
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        for item in map(dict, error.errors()):
            problems.append(ScenarioProblem(location_of(item), _in_words(item)))
    problems += check(data)
    if problems:
        file = path_of(source)
        file_problems = [
            FileProblem(file, line_of(node, problem.path) or 0, dotted(problem.path), problem.text)
            for problem in problems
        ]
        raise YamlProblems(sorted(file_problems, key=lambda problem: problem.line or 0))
    return scenario


_MODELS_BY_FIELD: Mapping[str, type[BaseModel]] = {
    "population": Population,
    "quotas": Quota,
    "steps": Step,
    "arms": Arm,
    "debate": PlayedDebate,
    "dimensions": Measured,
    "lab": LabPlan,
    "questions": ControlQuestion,
}


def _in_words(item: dict[str, Any]) -> str:
    """Return an error of pydantic in words, with the fields of the innermost model that it is in."""
    model: type[BaseModel] = Scenario
    for field in location_of(item)[:-1]:
        model = _MODELS_BY_FIELD.get(field, model)
    return in_words(item, list(model.model_fields))


def shipped() -> dict[str, Path]:
    """Return the files of the scenarios that come with Plumbline, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}

"""The experiment that is asked for: one request, from which command, page and route are made (`agents.kit.use_cases`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from agents.bodies import AgentSlug
from agents.kit.bodies import ABSENT, Body, OneOf, fault, is_local, not_there
from agents.kit.llm.endpoints import problem_of
from agents.kit.llm.providers import is_heuristic, reads_files
from agents.kit.llm.providers.base import OFFLINE_MODELS
from agents.kit.llm.providers.replay import replay_file
from agents.kit.llm.requests import Role
from agents.kit.use_cases import ChoiceCard, FieldDisplay
from evaluation.experiments.models import Experiment
from evaluation.experiments.problems import problems_here
from evaluation.experiments.scenario import Scenario, read_scenario
from evaluation.experiments.scenario import shipped as shipped_scenarios
from evaluation.experiments.starting import start_experiment
from evaluation.propositions.files import YamlProblems
from evaluation.runs.request import judge_choices
from evaluation.simulation.situations import CALLS_PER_LINE

MOST_PICKED = 200  # agents of one request


def _read_yaml(value: Any) -> Any:
    """Read a scenario that is a file (a path) or the text of one; any other value is returned as it is, for pydantic to check.

    Raises:
        ValueError: The YAML cannot be used here, or the text is only the name of a shipped scenario, which another field takes.
    """
    if not isinstance(value, str | Path):
        return value
    if value in shipped_scenarios():
        raise not_there(f"scenario {value!r}: is the name of a scenario that comes with Plumbline: send it as shipped")
    try:
        return read_scenario(value, check=problems_here)
    except YamlProblems as problems:
        raise not_there(str(problems)) from None


def _callable_as(role: Role) -> AfterValidator:
    """Refuse a model that cannot be called, and, but on the command line, one that is a file on this machine."""

    def check(name: str, info: ValidationInfo) -> str:
        if not name:
            return name
        problem = why_not_callable(role, name, may_be_file=is_local(info))
        if problem:
            raise not_there(f"{info.field_name} {name[:80]!r}: {problem}")
        return name

    return AfterValidator(check)


def why_not_callable(role: Role, name: str, *, may_be_file: bool) -> str:
    """Return why a model that was named cannot be asked in this role; empty when it can.

    Args:
        may_be_file: Allow ``replay:FILE``, recorded answers in a file of this machine.
    """
    if reads_files(name) and not may_be_file:
        return "allowed: the name of a model that can be called"
    if reads_files(name) and not replay_file(name).is_file():
        return "there is no such file; manage.py export_payloads writes one"
    if is_heuristic(name) and name not in OFFLINE_MODELS[role]:
        return f"there is no such offline model; allowed: {', '.join(OFFLINE_MODELS[role])}, the name of a model, replay:FILE"
    return problem_of(role, name)


def scenario_cards() -> list[ChoiceCard]:
    """Return a card for each scenario that comes with Plumbline, and one for a scenario of one's own (empty value)."""
    cards = [_card(name, read_scenario(path)) for name, path in shipped_scenarios().items()]
    own = ChoiceCard(
        value="",
        title="A scenario of your own",
        about="A YAML file, or its text, in the fields below.",
        when="your question, your conversations or your arms differ from these.",
        cost="as many conversations as it has environments, arms and repeats",
    )
    return [*cards, own]


def _card(name: str, scenario: Scenario) -> ChoiceCard:
    when = f"you have no agents to test: {scenario.people} people are made for it."
    if scenario.published:
        when = f"you want to see whether what the paper found holds here; {scenario.people} people are made for it."
    elif scenario.population is None:
        when = f"you want to test agents of your own, which you pick below; else its cast of {scenario.people} plays."
    turns = scenario.conversations * scenario.agents * len(scenario.steps)
    conversations = f"{scenario.conversations} conversations in {len(scenario.arms)} arms"
    cost = f"{conversations}, about {turns * CALLS_PER_LINE:,} calls for {turns:,} turns, and those of the judge"
    return ChoiceCard(value=name, title=scenario.title, about=scenario.about, when=when, cost=cost)


class ModelsRequest(Body):
    """The part of a request that says what is drawn, who judges and who acts."""

    seed: int = Field(ABSENT, ge=0, lt=2**63, description="of what is drawn (default: the scenario's)")
    judge: Annotated[str, _callable_as("judge"), FieldDisplay(choices=judge_choices, metavar="MODEL")] = Field(
        "", max_length=200, description="scores by different judges are never compared (default: the configured judge)"
    )
    actor_model: Annotated[
        str, _callable_as("actor"), FieldDisplay(option="--model", label="Model that acts", metavar="MODEL")
    ] = Field("", max_length=200, description="acts as all agents (default: each agent's own, else the configured one)")

    @property
    def models(self) -> dict[str, str]:
        """Return who judges and who acts, as `start_experiment` takes them."""
        return {"judge": self.judge, "actor_model": self.actor_model}


class PlayingRequest(ModelsRequest):
    """The part of a request that says how a scenario is played and judged."""

    agents: Annotated[list[AgentSlug], FieldDisplay(metavar="SLUGS")] = Field(
        [],
        max_length=MOST_PICKED,
        description="play it instead of its cast, by slug, such as michael,dwight,pam; each in one conversation of an arm "
        "(default: its cast)",
    )
    scale: float = Field(1.0, gt=0, le=1, description="a share of its conversations, above 0, at most 1 (default: 1)")


class ExperimentRequest(PlayingRequest):
    """A scenario of yours, or the name of a shipped one."""

    scenario: Annotated[
        Scenario, BeforeValidator(_read_yaml), FieldDisplay(label="Scenario of your own, as text", is_yaml=True)
    ] = Field(
        ABSENT,
        description="what is played; its fields are those of the YAML file that docs/how-to/experiment.md describes",
    )
    shipped: Annotated[str, OneOf(*shipped_scenarios()), FieldDisplay(label="Scenario", cards=scenario_cards)] = Field(
        ABSENT, description="a scenario that comes with Plumbline"
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.scenario is None) == (self.shipped is None):
            raise fault("scenario", "exactly one of scenario and shipped is needed")
        return self

    @model_validator(mode="after")
    def _agents_can_play_it(self) -> Self:
        try:
            self._recast_scenario()
        except ValueError as error:
            raise fault("agents", str(error)) from None
        return self

    def _recast_scenario(self) -> Scenario:
        """Return the scenario, with the agents that were picked instead of its cast.

        Raises:
            ValueError: They cannot play it.
        """
        scenario = self.scenario or read_scenario(shipped_scenarios()[self.shipped])
        if not self.agents:
            return scenario
        return scenario.with_cast(list(dict.fromkeys(agent.slug for agent in self.agents)))

    def scaled_scenario(self) -> Scenario:
        """Return what is played."""
        scenario = self._recast_scenario()
        if self.seed is not None:
            scenario = scenario.model_copy(update={"seed": self.seed})
        return scenario.scaled(self.scale)


def request_experiment(request: ExperimentRequest, *, user: Any = None) -> Experiment:
    """Store the experiment; workers play and judge it.

    Raises:
        ExperimentRefused: It cannot be played here.
    """
    return start_experiment(request.scaled_scenario(), **request.models, user=user)

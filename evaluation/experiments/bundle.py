"""Bundles: an experiment in one zip, so that others can make its report again without a key.

It holds what was played (scenario, people, messages, what was counted) and the judge's answers. `read_bundle` stores it as an experiment
that was played; judged by ``replay:BUNDLE`` it ends in the same report.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
import zlib
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from django.db import transaction
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agents.kit.llm.endpoints import ANSWERS, export_answers
from agents.models import Agent, Channel, ChannelMember, Message
from agents.personas.persona import TraitValue, save_persona
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.play import ExperimentRefused, evaluations, tags_of
from evaluation.experiments.population import NOTE
from evaluation.experiments.scenario import MOST_ENVIRONMENTS, MOST_REPEATS, Scenario, Slug, unstorable
from evaluation.propositions.files import dotted, location_of

CONTENT = "experiment.json"
MOST_BYTES = 200_000_000  # unpacked, of each of the two files
MOST_PROBLEMS, MOST_CHARACTERS = 20, 200  # that are named; of the name of a judge


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Trait(_Part):
    name: Annotated[str, Field(min_length=1, max_length=120)]
    description: str
    sentiment: Annotated[float, Field(ge=-1, le=1)]
    strength: Annotated[float, Field(ge=0, le=1)]


class _Agent(_Part):
    slug: Slug
    display_name: Annotated[str, Field(min_length=1, max_length=120)]
    title: Annotated[str, Field(max_length=200)]
    system_prompt: str
    traits: list[_Trait]


class _Message(_Part):
    position: Annotated[int, Field(ge=1, lt=2**62)]
    agent: str  # slug; empty = an outsider
    outsider: Annotated[str, Field(max_length=200)]
    text: str
    payload: dict[str, Any]
    sent_at: AwareDatetime | None
    tags: dict[str, str]
    said: bool  # in the experiment; else it is what an environment began with


class _Environment(_Part):
    arm: str
    repeat: Annotated[int, Field(ge=1, le=MOST_REPEATS)]
    number: Annotated[int, Field(ge=1, le=MOST_ENVIRONMENTS)]
    agents: list[str]
    counters: dict[str, int]
    figures: dict[str, float]
    missing: list[dict[str, Any]]
    status: Literal["completed"]
    name: Annotated[str, Field(max_length=200)]
    messages: list[_Message]


class _Content(_Part):
    scenario: Scenario
    judge: Annotated[str, Field(max_length=200)]
    actor_model: Annotated[str, Field(max_length=200)]
    agents: list[_Agent]
    environments: Annotated[list[_Environment], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> _Content:
        """Everything that is named is there, and once."""
        slugs, arms = [one.slug for one in self.agents], [arm.name for arm in self.scenario.arms]
        places = [(one.arm, one.repeat, one.number) for one in self.environments]
        for what, names in (("agent", slugs), ("environment", places)):
            if len(names) != len(set(names)):
                raise ValueError(f"an {what} is there twice; allowed: once")
        for one in self.environments:
            positions = [message.position for message in one.messages]
            if one.arm not in arms or len(positions) != len(set(positions)):
                raise ValueError(f"environment {one.number} of {one.arm!r:.80}: no such arm, or a position twice")
            if unknown := {*one.agents, *(message.agent for message in one.messages)} - {*slugs, ""}:
                raise ValueError(f"agent {min(unknown)!r:.80} is not in the bundle; allowed: agents that are")
        return self


# -- writing
def write_bundle(experiment: Experiment, out: Path) -> int:
    """Write the bundle of an experiment that was judged; returns the number of the judge's answers in it.

    Raises:
        ExperimentRefused: It is not finished, or the judge's answers were not stored.
        OSError: The file cannot be written.
    """
    runs = list(evaluations(experiment).filter(judge=experiment.judge).values_list("pk", "status"))
    if not runs or any(status != ExperimentEnvironment.Status.COMPLETED for _, status in runs):
        raise ExperimentRefused([f"experiment {experiment.pk} is {experiment.state}; allowed: one that was judged"])
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / ANSWERS
        written = export_answers(answers, work_ids=[f"evaluation_run:{pk}" for pk, _ in runs])
        if not written and not experiment.judge.startswith("offline:"):
            raise ExperimentRefused(
                [
                    "the judge's answers were not stored; allowed: experiments judged with LLM_STORE_PAYLOADS=judge or all"
                ]
            )
        draft = out.with_name(out.name + ".part")
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(CONTENT, _content(experiment).model_dump_json(indent=1))
            if written:
                archive.write(answers, ANSWERS)
            else:
                archive.writestr(ANSWERS, "")
        draft.replace(out)
    return written


def _content(experiment: Experiment) -> _Content:
    environments = list(experiment.environments.select_related("channel").order_by("pk"))
    agents = Agent.objects.prefetch_related("traits").in_bulk({pk for one in environments for pk in one.agents})
    return _Content(
        scenario=Scenario.model_validate(experiment.scenario),
        judge=experiment.judge,
        actor_model=experiment.actor_model,
        agents=[
            _Agent(
                slug=agent.slug,
                display_name=agent.display_name,
                title=agent.title,
                system_prompt=agent.system_prompt,
                traits=_traits_of(agent),
            )
            for _, agent in sorted(agents.items())
        ],
        environments=[
            _Environment(
                **{name: getattr(one, name) for name in ("arm", "repeat", "number", "counters", "figures", "status")},
                missing=[{"turn": gone["turn"], "agent": 0, "why": gone["why"]} for gone in one.missing],
                agents=[agents[pk].slug for pk in one.agents if pk in agents],
                name=one.channel.name,
                messages=[
                    _Message(
                        position=message.position,
                        agent=message.agent.slug if message.agent else "",
                        outsider="" if message.agent else message.author_name,
                        text=message.text,
                        payload=message.payload,
                        sent_at=message.sent_at,
                        tags={name: value for name, value in message.tags.items() if name == "step"},
                        said=Experiment.TAG in message.tags,
                    )
                    for message in Message.objects.filter(channel=one.channel)
                    .select_related("agent")
                    .order_by("position")
                ],
            )
            for one in environments
        ],
    )


# -- reading
def read_bundle(path: Path, *, judge: str = "", user: Any = None) -> Experiment:
    """Store what a bundle holds as an experiment that was played and is to be judged.

    The cast are agents of the same slug and persona, where there are such; others are made, and stand in no list.

    Args:
        judge: Default the bundle's own answers.

    Raises:
        ExperimentRefused: It is no bundle, or an agent here has the slug of one of its agents and another persona.
    """
    content = _unpacked(path)
    scenario, judge = content.scenario, judge or f"replay:{path.resolve()}"
    if len(judge) > MOST_CHARACTERS:
        raise ExperimentRefused(
            [f"{judge}: {len(judge)} characters; allowed: {MOST_CHARACTERS}, in a folder nearer by"]
        )
    with transaction.atomic():
        experiment: Experiment = Experiment.objects.create(
            name=scenario.name,
            scenario=scenario.model_dump(mode="json"),
            seed=scenario.seed,
            judge=judge,
            actor_model=content.actor_model,
            created_by=user,
        )
        made = scenario.population is not None
        agents = {
            one.slug: _agent_of(one, f"b{experiment.pk}-{number}" if made else one.slug)
            for number, one in enumerate(content.agents, 1)
        }
        for place, one in enumerate(content.environments, 1):
            tags = tags_of(experiment, arm=one.arm, repeat=one.repeat, number=one.number)
            channel: Channel = Channel.objects.create(
                slug=f"talk-{experiment.pk}-{place}",
                name=one.name,
                kind="private",
                synthetic=True,
                tags=tags,
                next_position=1 + max((message.position for message in one.messages), default=0),
            )
            here = [agents[slug] for slug in one.agents]
            ChannelMember.objects.bulk_create(ChannelMember(channel=channel, agent=agent) for agent in here)
            Message.objects.bulk_create(
                Message(
                    channel=channel,
                    position=message.position,
                    agent=agents[message.agent] if message.agent else None,
                    outsider=message.outsider,
                    text=message.text,
                    payload=message.payload,
                    sent_at=message.sent_at,
                    tags={**tags, **message.tags} if message.said else {},
                    synthetic=True,
                )
                for message in one.messages
            )
            ExperimentEnvironment.objects.create(
                experiment=experiment,
                channel=channel,
                agents=[agent.pk for agent in here],
                steps=len(scenario.steps),
                **{n: getattr(one, n) for n in ("arm", "repeat", "number", "counters", "figures", "missing", "status")},
            )
    return experiment


def _unpacked(path: Path) -> _Content:
    try:
        with zipfile.ZipFile(path) as archive:
            for one in archive.infolist():
                if one.filename not in (CONTENT, ANSWERS):
                    text = f"{one.filename!r:.80} is not of a bundle; allowed: {CONTENT}, {ANSWERS}"
                    raise ExperimentRefused([f"{path.name}: {text}"])
                if one.file_size > MOST_BYTES:
                    text = f"{one.filename} has {one.file_size:,} bytes; allowed: {MOST_BYTES:,}"
                    raise ExperimentRefused([f"{path.name}: {text}"])
            data = json.loads(archive.read(CONTENT))
        if fault := next(unstorable(data), None):
            raise ExperimentRefused([f"{path.name}: {dotted(fault[0])}: {fault[1]}"])
        return _Content.model_validate(data)
    except ValidationError as error:
        problems = (f"{path.name}: {dotted(location_of(dict(one)))}: {one['msg']}"[:400] for one in error.errors())
        raise ExperimentRefused(list(islice(problems, MOST_PROBLEMS))) from None
    except RecursionError:
        raise ExperimentRefused([f"{path.name}: nested too deeply"]) from None
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        if isinstance(error, ExperimentRefused):
            raise
        raise ExperimentRefused([f"{path.name} is no bundle of an experiment: {error}"[:400]]) from None


def _agent_of(one: _Agent, slug: str) -> Agent:
    agent: Agent | None = Agent.objects.filter(slug=slug).prefetch_related("traits").first()
    traits = [TraitValue(**trait.model_dump()) for trait in one.traits]
    if agent is None:
        agent = Agent(
            slug=slug, display_name=one.display_name, title=one.title, system_prompt=one.system_prompt, synthetic=True
        )
        save_persona(agent=agent, traits=traits, note=NOTE)
    elif (agent.display_name, agent.system_prompt, _traits_of(agent)) != (
        one.display_name,
        one.system_prompt,
        sorted(one.traits, key=lambda trait: trait.name),
    ):
        raise ExperimentRefused(
            [f"agent {slug!r} has another name or persona here; allowed: the same, or no agent of this slug"]
        )
    return agent


def _traits_of(agent: Agent) -> list[_Trait]:
    traits = sorted(agent.traits.all(), key=lambda trait: trait.name)
    return [_Trait(**{name: getattr(trait, name) for name in _Trait.model_fields}) for trait in traits]

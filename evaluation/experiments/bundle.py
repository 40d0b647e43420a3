"""Bundles: an experiment in one zip, so that others can make its report again without a key.

It holds what was played (scenario, people, messages, what was counted) and the judge's answers. `read_bundle` stores it as an experiment
that was played; judged by ``replay:BUNDLE`` it ends in the same report.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from django.db import transaction
from pydantic import BaseModel, ConfigDict, ValidationError

from agents.llm.endpoints import ANSWERS, export_answers
from agents.models import Agent, Channel, ChannelMember, Message
from agents.persona import TraitValue, save_persona
from evaluation.experiments.play import ExperimentRefused, evaluations, tags_of
from evaluation.experiments.population import NOTE
from evaluation.experiments.scenario import Scenario
from evaluation.models import Experiment, ExperimentEnvironment

CONTENT = "experiment.json"
MOST_BYTES = 200_000_000  # unpacked


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Agent(_Part):
    slug: str
    display_name: str
    title: str
    system_prompt: str
    traits: list[dict[str, Any]]


class _Message(_Part):
    position: int
    agent: str  # slug; empty = an outsider
    outsider: str
    text: str
    payload: dict[str, Any]
    sent_at: str | None
    tags: dict[str, str]
    said: bool  # in the experiment; else it is what an environment began with


class _Environment(_Part):
    arm: str
    repeat: int
    number: int
    agents: list[str]
    counters: dict[str, int]
    figures: dict[str, float]
    missing: list[dict[str, Any]]
    status: str
    name: str
    messages: list[_Message]


class _Content(_Part):
    scenario: dict[str, Any]
    judge: str
    actor_model: str
    agents: list[_Agent]
    environments: list[_Environment]


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
        scenario=experiment.scenario,
        judge=experiment.judge,
        actor_model=experiment.actor_model,
        agents=[
            _Agent(
                slug=agent.slug,
                display_name=agent.display_name,
                title=agent.title,
                system_prompt=agent.system_prompt,
                traits=[
                    {name: getattr(trait, name) for name in ("name", "description", "sentiment", "strength")}
                    for trait in agent.traits.order_by("name")
                ],
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
                        sent_at=message.sent_at.isoformat() if message.sent_at else None,
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

    Agents are those of the same slug and persona; others are made, and stand in no list.

    Args:
        judge: Default the bundle's own answers.

    Raises:
        ExperimentRefused: It is no bundle, or an agent here has the slug of one of its agents and another persona.
    """
    content = _unpacked(path)
    scenario = Scenario.model_validate(content.scenario)
    with transaction.atomic():
        agents = {one.slug: _agent_of(one) for one in content.agents}
        experiment: Experiment = Experiment.objects.create(
            name=scenario.name,
            scenario=scenario.model_dump(mode="json"),
            seed=scenario.seed,
            judge=judge or f"replay:{path}",
            actor_model=content.actor_model,
            created_by=user,
        )
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
            size = archive.getinfo(CONTENT).file_size
            if size > MOST_BYTES:
                raise ExperimentRefused([f"{path.name}: {CONTENT} has {size:,} bytes; allowed: {MOST_BYTES:,}"])
            return _Content.model_validate(json.loads(archive.read(CONTENT)))
    except ValidationError as error:
        first = error.errors()[0]
        raise ExperimentRefused([f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}"]) from None
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ExperimentRefused([f"{path.name} is no bundle of an experiment: {error}"]) from None


def _agent_of(one: _Agent) -> Agent:
    agent: Agent | None = Agent.objects.filter(slug=one.slug).prefetch_related("traits").first()
    if agent is None:
        agent = Agent(
            slug=one.slug,
            display_name=one.display_name,
            title=one.title,
            system_prompt=one.system_prompt,
            synthetic=True,
        )
        save_persona(agent=agent, traits=[TraitValue(**trait) for trait in one.traits], note=NOTE)
    elif agent.system_prompt != one.system_prompt:
        raise ExperimentRefused(
            [f"agent {one.slug!r} has another persona here; allowed: the same, or no agent of this slug"]
        )
    return agent

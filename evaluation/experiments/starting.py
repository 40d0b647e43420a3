"""Start an experiment: store it with its people and its environments, in which everything is decided that can be decided beforehand.

Who sits where is drawn from the seed. Environments of one number have the same agents in all arms; they are queued far apart, so that an
agent does not wait for itself.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction

from agents.kit.work.queues import wake_workers
from agents.models import Agent, Channel, ChannelMember, Message
from agents.models.conversations import agents_named
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.population import make_agents
from evaluation.experiments.problems import ExperimentRefused, problems_here
from evaluation.experiments.scenario import Arm, Scenario
from evaluation.models import SIMULATION
from evaluation.propositions.files import dotted

MOST_EARLIER_MESSAGES = 200  # of a real conversation, that an environment begins with
# Names of the tags of an environment's messages, beside that of the experiment; evaluations choose messages by them.
ARM_TAG = "arm"
REPEAT_TAG = "repeat"
ENVIRONMENT_TAG = "environment"
STEP_TAG = "step"
BEFORE_TAG = "before"  # of the agent's messages that were said before a laboratory's fork, in one fork of its control
MOST_JUDGED_BEFORE = 100


def start_experiment(scenario: Scenario, *, judge: str = "", actor_model: str = "", user: Any = None) -> Experiment:
    """Store an experiment with its people and environments; nothing is played yet. Nothing is written when it is refused.

    Args:
        scenario: What is played, scaled as wished.
        judge: The model that judges; default the configured one.
        actor_model: The model that acts as all agents; default each agent's own.

    Raises:
        ExperimentRefused: It cannot be played here, or a swarm or a debate refuses it.
    """
    problems = list(problems_here(scenario.model_dump()))
    if problems:
        raise ExperimentRefused([f"{dotted(problem.path)}: {problem.text}" for problem in problems])
    with transaction.atomic():
        experiment: Experiment = Experiment.objects.create(
            name=scenario.name,
            scenario=scenario.model_dump(mode="json"),
            seed=scenario.seed,
            judge=judge or str(settings.JUDGE_MODEL),
            actor_model=actor_model,
            created_by=user,
        )
        agents = _people_of(experiment, scenario)
        for plan in _planned_environments(scenario, agents):
            _store_environment(experiment, scenario, plan)
        transaction.on_commit(wake_workers)
    return experiment


def people_prefix(experiment: Experiment) -> str:
    """Return what the slugs of the people who are made for an experiment begin with."""
    return f"x{experiment.pk}"


def _people_of(experiment: Experiment, scenario: Scenario) -> list[Agent]:
    """Return the agents that take part: those of the cast, or a population that is stored now, with its swarms.

    Raises:
        ExperimentRefused: A swarm cannot be assigned to them.
    """
    if scenario.population is None:
        named = agents_named(scenario.cast)
        return [named[slug] for slug in scenario.cast]
    agents = make_agents(
        scenario.population,
        seed=scenario.seed,
        prefix=people_prefix(experiment),
        model=experiment.actor_model,
    )
    if scenario.population.swarms:
        _assign_swarms(scenario.population.swarms, agents)
    return agents


def _assign_swarms(swarms: Sequence[str], agents: Sequence[Agent]) -> None:
    """Assign the swarms to each agent; the one that comes with Plumbline is stored first, where it is named and not there yet.

    Raises:
        ExperimentRefused: A swarm cannot be assigned.
    """
    from agents.swarm.assign import SwarmRefused, assign_swarms
    from agents.swarm.phases import default_swarm, ensure_default_swarm

    if default_swarm()["name"] in swarms:
        ensure_default_swarm()
    try:
        for agent in agents:
            assign_swarms(agent=agent, swarms=swarms)
    except SwarmRefused as error:
        raise ExperimentRefused([f"population.swarms: {error}"]) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlannedEnvironment:
    """An environment that is to be stored.

    Attributes:
        number: From 1, within arm and repeat.
        order: From 1, in the order of playing.
    """

    arm: Arm
    repeat: int
    number: int
    order: int
    agents: Sequence[Agent]


def _planned_environments(scenario: Scenario, agents: Sequence[Agent]) -> list[_PlannedEnvironment]:
    """Return the environments in the order of playing: in turn one of each arm, each arm begun at another number.

    Environments of one number have the same agents in all arms and repeats. Each arm begins at another number, so that those of one
    number are played far apart, and an agent need not wait for itself.
    """
    drawn = random.Random(f"{scenario.seed}:seats")  # noqa: S311 (assignment, not secrecy)
    seated = drawn.sample(list(agents), scenario.seats)
    count = scenario.environments
    planned: list[_PlannedEnvironment] = []
    for repeat in range(1, scenario.repeats + 1):
        for turn in range(count):
            for arm_number, arm in enumerate(scenario.arms):
                number = (turn + arm_number * count // len(scenario.arms)) % count
                first_seat = number * scenario.agents
                planned.append(
                    _PlannedEnvironment(
                        arm=arm,
                        repeat=repeat,
                        number=number + 1,
                        order=len(planned) + 1,
                        agents=seated[first_seat : first_seat + scenario.agents],
                    )
                )
    return planned


def _store_environment(experiment: Experiment, scenario: Scenario, plan: _PlannedEnvironment) -> None:
    """Store an environment with its channel, whose tags later tell which messages are of which experiment, arm and repeat.

    Raises:
        ExperimentRefused: Its debate is refused.
    """
    tags = {
        Experiment.TAG: str(experiment.pk),
        SIMULATION: f"experiment-{experiment.pk}",
        ARM_TAG: plan.arm.name,
        REPEAT_TAG: str(plan.repeat),
        ENVIRONMENT_TAG: str(plan.number),
    }
    if plan.arm.debate is not None:
        channel = _debate_channel(experiment, scenario, plan, tags)
    else:
        channel = _conversation_channel(experiment, scenario, plan, tags)
    ExperimentEnvironment.objects.create(
        experiment=experiment,
        arm=plan.arm.name,
        repeat=plan.repeat,
        number=plan.number,
        channel=channel,
        agents=[agent.pk for agent in plan.agents],
    )


def _conversation_channel(
    experiment: Experiment, scenario: Scenario, plan: _PlannedEnvironment, tags: Mapping[str, str]
) -> Channel:
    """Store the channel of a conversation with its members and, where the scenario starts from a message, what was said before.

    Slug and name say nothing of the arm, for agents are shown them.
    """
    channel: Channel = Channel.objects.create(
        slug=f"talk-{experiment.pk}-{plan.order}",
        name="Conversation",
        kind="private",
        synthetic=True,
        tags=dict(tags),
    )
    ChannelMember.objects.bulk_create(ChannelMember(channel=channel, agent=agent) for agent in plan.agents)
    if scenario.start_from:
        slug, _, position = scenario.start_from.rpartition("@")
        copy_messages(slug, channel, until=int(position))
    is_first_of_control = plan.arm.name == scenario.arms[0].name and plan.repeat == 1 and plan.number == 1
    if scenario.lab is not None and is_first_of_control:
        _tag_messages_before(channel, plan.agents)
    return channel


def _tag_messages_before(channel: Channel, agents: Sequence[Agent]) -> None:
    """Tag the last messages of these agents in a new channel, copies all, so that they can be judged apart from what is said later."""
    copies = Message.objects.filter(channel=channel, agent__in=agents).order_by("-position")
    newest = list(copies.values_list("pk", flat=True)[:MOST_JUDGED_BEFORE])
    tags = {name: channel.tags[name] for name in (Experiment.TAG, SIMULATION)}
    Message.objects.filter(pk__in=newest).update(tags={**tags, BEFORE_TAG: "yes"})


def copy_messages(slug: str, channel: Channel, *, until: int) -> None:
    """Copy the last `MOST_EARLIER_MESSAGES` messages of the channel `slug`, up to a position, into an empty channel.

    The copies have neither a run nor tags, so that no figure and no evaluation of the experiment counts them.
    """
    newest_first = Message.objects.filter(channel__slug=slug, position__lte=until).order_by("-position")
    originals = list(newest_first[:MOST_EARLIER_MESSAGES])[::-1]
    copies = []
    for number, original in enumerate(originals, 1):
        copy = Message(
            channel=channel,
            position=number,
            text=original.text,
            payload=original.payload,
            sent_at=original.sent_at,
            synthetic=True,
        )
        copy.agent_id = original.agent_id
        copy.user_id = original.user_id
        copy.outsider = original.outsider
        copies.append(copy)
    Message.objects.bulk_create(copies)
    channel.next_position = len(copies) + 1
    channel.save(update_fields=["next_position"])


def _debate_channel(
    experiment: Experiment, scenario: Scenario, plan: _PlannedEnvironment, tags: Mapping[str, str]
) -> Channel:
    """Store a debate that waits to be played about what the first step says, or the scenario's title; return its channel.

    Raises:
        ExperimentRefused: The debate cannot be started.
    """
    from agents.debates.starting import DebateRefused, start_debate

    debate_asked = plan.arm.debate
    assert debate_asked is not None  # noqa: S101 (the caller's condition)
    model = str(plan.arm.overrides.get("model", "")) or experiment.actor_model  # empty = each agent's own
    try:
        debate = start_debate(
            topic=scenario.steps[0].says or scenario.title,
            mode=debate_asked.mode,
            agents=plan.agents,
            rounds=debate_asked.rounds,
            models={agent.slug: model for agent in plan.agents} if model else {},
            **debate_asked.settings,
        )
    except DebateRefused as error:
        raise ExperimentRefused([f"arms ({plan.arm.name}).debate: {error}"]) from None
    channel: Channel = debate.channel
    channel.tags = {**channel.tags, **tags}
    channel.save(update_fields=["tags"])
    return channel

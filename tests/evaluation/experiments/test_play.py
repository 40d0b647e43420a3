"""An experiment is played through the pipeline and measured by the existing evaluation."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pytest_django import Settings

from agents.models import Agent, Message
from evaluation.experiments.measuring import evaluations, specs
from evaluation.experiments.models import ExperimentEnvironment
from evaluation.experiments.play import play
from evaluation.experiments.starting import start_experiment
from evaluation.models import EvaluationRun
from evaluation.runs.control import queue_run
from tests.evaluation.experiments.playing import scenario

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:heuristic-1"


@pytest.mark.parametrize("order", ["together", "sequence"])
def test_every_agent_speaks_once_a_step_in_every_arm_and_is_measured(order: str) -> None:
    experiment = play(start_experiment(scenario(order=order)))

    assert experiment.measured_at is not None
    assert {one.status for one in experiment.environments.all()} == {ExperimentEnvironment.Status.COMPLETED}
    spoken = Message.objects.filter(agent__synthetic=True)
    assert spoken.count() == 2 * 2 * 2 * 2  # arms, environments, agents, steps
    assert set(spoken.values_list("synthetic", flat=True)) == {True}
    assert evaluations(experiment).count() == 2 * (4 + 2)  # agents, and conversations


def test_what_all_say_together_none_of_them_has_read() -> None:
    experiment = play(start_experiment(scenario(order="together")))

    first = experiment.environments.order_by("pk").first()
    assert first is not None
    prompts = [
        message.content
        for run in first.channel.runs.order_by("pk")[:2]
        for message in run.run_messages.filter(role="user")
    ]
    assert len(prompts) == 2
    said = Message.objects.filter(channel=first.channel, tags__step="1", agent__isnull=False).values_list(
        "text", flat=True
    )
    assert not [text for text in said for prompt in prompts if text in str(prompt)]


def test_arms_have_the_same_people_and_nothing_names_an_arm() -> None:
    experiment = start_experiment(scenario())

    seats: dict[int, set[tuple[int, ...]]] = {}
    for one in experiment.environments.all():
        seats.setdefault(one.number, set()).add(tuple(one.agents))
        assert one.arm not in one.channel.slug + one.channel.name
    assert all(len(agents) == 1 for agents in seats.values())


def test_quotas_hold_exactly_and_names_are_unique() -> None:
    start_experiment(scenario())

    people = Agent.objects.filter(synthetic=True)
    assert len({agent.display_name for agent in people}) == 4
    assert sum("age: 60" in agent.system_prompt for agent in people) == 3


def test_apart_nobody_ever_reads_what_another_says() -> None:
    experiment = play(start_experiment(scenario(order="apart")))

    for environment in experiment.environments.all():
        for run in environment.channel.runs.all():
            prompt = json.dumps([message.content for message in run.run_messages.filter(role="user")])
            for other in Message.objects.filter(channel=environment.channel, agent__isnull=False).exclude(
                agent=run.agent
            ):
                assert f"{other.author_name} [" not in prompt
            assert "What should the street buy together?" in prompt


def test_the_same_evaluation_asked_for_again_is_not_of_the_experiment() -> None:
    experiment = play(start_experiment(scenario()))
    before = evaluations(experiment).count()
    for _, spec in specs(experiment):
        _, resumed = queue_run(replace(spec, scope=""))
        assert not resumed

    assert evaluations(experiment).count() == before
    assert EvaluationRun.objects.count() == 2 * before


def test_a_deleted_experiment_leaves_what_was_said_and_its_evaluations() -> None:
    experiment = play(start_experiment(scenario()))
    before = Message.objects.count(), EvaluationRun.objects.count()
    experiment.delete()

    assert (Message.objects.count(), EvaluationRun.objects.count()) == before
    assert not ExperimentEnvironment.objects.exists()

"""Measure what was said in an experiment: plan, queue and make the evaluations of its environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from agents.kit.work.queues import wake_workers
from agents.models import Agent
from evaluation.dimensions import BY_ONE_MESSAGE, CHANNEL_DIMENSIONS, DEFAULT_DIMENSIONS
from evaluation.experiments.models import EnvironmentEvaluation, Experiment, ExperimentEnvironment
from evaluation.experiments.scenario import Measured, Scenario
from evaluation.experiments.starting import ARM_TAG, BEFORE_TAG, MOST_JUDGED_BEFORE, REPEAT_TAG
from evaluation.models import SIMULATION, EvaluationRun
from evaluation.propositions.files import load_all
from evaluation.runs.execute import execute
from evaluation.runs.planning import Plan, create_run, make_plan
from evaluation.runs.spec import RunSpec

# Environments and evaluations that a person has to resume.
STOPPED = (ExperimentEnvironment.Status.PAUSED_BUDGET, ExperimentEnvironment.Status.ERRORED)
SAMPLES_PER_STEP = 5  # messages of an agent


def evaluations(experiment: Experiment) -> QuerySet[EvaluationRun]:
    """Return the evaluations of an experiment."""
    return EvaluationRun.objects.filter(environment_link__environment__experiment=experiment)


def specs(experiment: Experiment) -> Iterator[tuple[ExperimentEnvironment, RunSpec]]:
    """Yield what is to be evaluated in all environments of an experiment by its judge, each with its environment.

    Agents that were deleted since are left out.
    """
    scenario = Scenario.model_validate(experiment.scenario)
    environments = list(experiment.environments.select_related("channel", "experiment").order_by("pk"))
    agent_ids = {pk for environment in environments for pk in environment.agents}
    agents = Agent.objects.in_bulk(agent_ids)
    for environment in environments:
        present = [agents[pk] for pk in environment.agents if pk in agents]
        for spec in environment_specs(environment, scenario, present):
            yield environment, spec


def environment_specs(
    environment: ExperimentEnvironment, scenario: Scenario, agents: Iterable[Agent]
) -> Iterator[RunSpec]:
    """Yield what is to be evaluated of an environment: its conversation, and each of its agents, as far as the scenario has dimensions.

    Dimensions of the usual and of hard mode are evaluated apart.
    """
    experiment = environment.experiment
    tags = environment.channel.tags
    of_conversation = [measured for measured in scenario.dimensions if measured.id in CHANNEL_DIMENSIONS]
    of_agents = [measured for measured in scenario.dimensions if measured.id not in CHANNEL_DIMENSIONS]
    channel_spec = RunSpec(
        agent=None,
        channel=environment.channel,
        scope=f"environment {environment.pk}",
        # Tags of the messages to judge. An agent sits in one environment of an arm and repeat, so theirs need not name it.
        where={name: tags[name] for name in (SIMULATION, Experiment.TAG, ARM_TAG, REPEAT_TAG)},
        samples=max(1, len(scenario.steps)) * SAMPLES_PER_STEP,
        seed=experiment.seed,
        judge=experiment.judge,
        simulated=True,
        actor_model=experiment.actor_model,
        dimensions=CHANNEL_DIMENSIONS,
    )
    yield from _specs_by_hardness(channel_spec, of_conversation)
    for agent in agents:
        agent_spec = replace(channel_spec, agent=agent, channel=None, dimensions=DEFAULT_DIMENSIONS)
        yield from _specs_by_hardness(agent_spec, of_agents)
        if scenario.lab is not None and _is_first_of_control(environment, scenario):
            before_spec = replace(
                agent_spec,
                where={SIMULATION: tags[SIMULATION], Experiment.TAG: tags[Experiment.TAG], BEFORE_TAG: "yes"},
                samples=MOST_JUDGED_BEFORE,
            )
            by_message = [measured for measured in of_agents if measured.id in BY_ONE_MESSAGE]
            yield from _specs_by_hardness(before_spec, by_message)


def _is_first_of_control(environment: ExperimentEnvironment, scenario: Scenario) -> bool:
    """Return whether the messages before a laboratory's fork are judged in this environment: in one is enough."""
    is_control = environment.arm == scenario.arms[0].name
    return is_control and environment.repeat == 1 and environment.number == 1


def _specs_by_hardness(spec: RunSpec, dimensions: Sequence[Measured]) -> Iterator[RunSpec]:
    """Yield a specification for the dimensions that are judged in the usual way, and one for those in hard mode."""
    for hard in (False, True):
        names = tuple(str(measured.id) for measured in dimensions if measured.hard is hard)
        if names:
            yield replace(spec, dimensions=names, hard=hard)


def plans_of(environment: ExperimentEnvironment, scenario: Scenario, agents: Iterable[Agent]) -> list[Plan]:
    """Return the plans of an environment's evaluations."""
    files = load_all()
    return [make_plan(spec, files=files) for spec in environment_specs(environment, scenario, agents)]


def queue_evaluations(environment: ExperimentEnvironment, plans: Sequence[Plan]) -> None:
    """Store the evaluations of an environment that has ended, to be judged by workers; call it inside a transaction.

    Where all environments of the experiment have ended, `Experiment.measured_at` is set, unless the experiment was cancelled.
    """
    link(environment, [create_run(plan) for plan in plans])
    experiments = Experiment.objects.filter(pk=environment.experiment_id)
    experiments.select_for_update(no_key=True).get()  # of two that end at once, the second sees that it is the last
    environments = ExperimentEnvironment.objects.filter(experiment=environment.experiment_id)
    if not environments.filter(status__in=(*ExperimentEnvironment.OPEN, *STOPPED)).exists():
        experiments.filter(measured_at=None, cancelled_at=None).update(measured_at=timezone.now())
    transaction.on_commit(wake_workers)


def link(environment: ExperimentEnvironment, runs: Iterable[EvaluationRun]) -> None:
    """Store which environment these evaluations measure, in the transaction that stored them; one that is resumed has its link."""
    links = [EnvironmentEvaluation(environment=environment, evaluation_run=run) for run in runs]
    EnvironmentEvaluation.objects.bulk_create(links, ignore_conflicts=True)


Progress = Callable[[EvaluationRun, int], None]


def no_progress(run: EvaluationRun, judgements: int) -> None:
    """Show nothing of how far evaluations are."""


def judge_here(experiment: Experiment, *, judges: Sequence[str] = (), progress: Progress = no_progress) -> None:
    """Judge here what is not judged yet; what a worker has is left to it.

    Where a budget or a crash stopped an evaluation, its error is stored in `Experiment.paused`.

    Args:
        judges: Whose evaluations; default the experiment's own judge.
        progress: Called with an evaluation and the number of judgements just settled, from any thread.
    """
    runs = evaluations(experiment).filter(judge__in=judges or [experiment.judge])
    execute(list(runs.exclude(status=EvaluationRun.Status.COMPLETED)), progress=progress)
    why_stopped = runs.filter(status__in=STOPPED).values_list("error", flat=True).first()
    if why_stopped:
        Experiment.objects.filter(pk=experiment.pk).update(paused=why_stopped)

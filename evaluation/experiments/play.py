"""Play the environments of an experiment, here or by workers.

Who speaks when is drawn from the seed, and every message and turn has a key of its place. So an experiment that was killed resumes where it
stopped and ends as it would have. Personas are written once, before all arms. An environment ends together with the plan of its
evaluations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from agents.kit.models import owner_name
from agents.kit.models.lease import LeaseLost
from agents.kit.running import check_stop, pause, retry_on_outage, side_by_side
from agents.kit.text.fences import fault_of
from agents.kit.work.queues import carry_out, do_next, wake_workers
from agents.models import Agent, Message
from agents.turn.orchestrator import TurnRefused, finish_turn, start_turn
from agents.turn.orchestrator import cancel as cancel_turn
from agents.turn.receive import receive_message
from evaluation.budget import why_over_budget
from evaluation.experiments.asking import Interview
from evaluation.experiments.measuring import STOPPED, evaluations, plans_of, queue_evaluations
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.outcome import outcome_of, step_key, turn_key
from evaluation.experiments.population import write_personas
from evaluation.experiments.problems import NO_DEBATES, ExperimentRefused
from evaluation.experiments.scenario import Arm, Scenario, Step
from evaluation.experiments.starting import STEP_TAG, people_prefix
from evaluation.models import EvaluationRun
from evaluation.simulation.conversations import actor_of

LEASE = timedelta(minutes=10)
FRESH = timedelta(seconds=5)  # a lease is renewed before each turn, and not again within this
SECONDS_BETWEEN_LOOKS = 0.2  # at work that another process has
# Environments that compute while as many as there are calls at a time wait for their models.
SPARE_ENVIRONMENTS = 4

Status = ExperimentEnvironment.Status
Progress = Callable[[ExperimentEnvironment], None]


def _no_progress(environment: ExperimentEnvironment) -> None:
    """Show nothing of how far an experiment is."""


def play(experiment: Experiment, *, progress: Progress = _no_progress) -> Experiment:
    """Play all environments here, side by side, or wait for the workers that have them; their evaluations are then queued.

    What was paused or crashed is resumed, too. Where writing the personas crashes, nothing is played. Why something stopped is stored in
    `Experiment.paused`.

    Args:
        progress: Called with each environment that has ended, was paused or crashed; perhaps in other threads.

    Raises:
        ExperimentRefused: It was cancelled.
    """
    resume_experiment(experiment)
    experiment.refresh_from_db()
    _do_here(experiment, _write_personas)
    if experiment.status == Status.COMPLETED:  # the personas are written
        open_environments = experiment.environments.filter(status__in=ExperimentEnvironment.OPEN).order_by("pk")
        jobs = [partial(_play_here, environment, progress) for environment in open_environments]
        side_by_side(jobs, _environments_at_once(experiment))
    _note_stopped()
    experiment.refresh_from_db()
    return experiment


def _environments_at_once(experiment: Experiment) -> int:
    """Return how many environments are played at a time: a few more than keep this process's calls to the models busy, at least 1."""
    if settings.WORKER_THREADS == 1:
        return 1
    scenario = Scenario.model_validate(experiment.scenario)
    calls = settings.LLM_MAX_CONCURRENCY + SPARE_ENVIRONMENTS
    # Then one environment alone makes as many calls at a time as it has agents.
    agents_call_together = scenario.order != "sequence" or any(arm.debate for arm in scenario.arms)
    if agents_call_together:
        return int(max(1, calls // scenario.agents))
    return int(max(1, calls))


def resume_experiment(experiment: Experiment) -> int:
    """Queue what was paused by a budget, or crashed; return the number of environments and evaluations that were queued.

    Personas whose writing crashed are queued, too, and not counted. `Experiment.paused` is emptied.

    Raises:
        ExperimentRefused: It was cancelled.
    """
    if experiment.cancelled_at is not None:
        raise ExperimentRefused([f"experiment {experiment.pk} is cancelled; allowed: one that is not"])
    with transaction.atomic():
        Experiment.objects.filter(pk=experiment.pk, status=Status.ERRORED).update(status=Status.PENDING)
        stopped_environments = experiment.environments.filter(status__in=STOPPED)
        stopped_evaluations = evaluations(experiment).filter(status__in=STOPPED)
        queued: int = stopped_environments.update(status=Status.PENDING, error="")
        queued += stopped_evaluations.update(status=EvaluationRun.Status.PENDING)
        Experiment.objects.filter(pk=experiment.pk).update(paused="")
        transaction.on_commit(wake_workers)
    return queued


def cancel(experiment: Experiment) -> Experiment:
    """End an experiment that is being played, with its environments and evaluations that have not ended; what was said stays.

    One that was played to its end or is cancelled already stays as it is. Who plays an environment loses its lease and stops.
    """
    now = timezone.now()
    ended = {"status": Status.CANCELLED, "lease_owner": "", "lease_expires_at": None, "finished_at": now}
    unfinished = (*ExperimentEnvironment.OPEN, Status.PAUSED_BUDGET)
    with transaction.atomic():
        # `measured_at` is empty until all its environments have ended.
        playing = Experiment.objects.filter(pk=experiment.pk, measured_at=None, cancelled_at=None)
        if playing.update(cancelled_at=now):
            Experiment.objects.filter(pk=experiment.pk, status__in=Experiment.OPEN).update(**ended)
            experiment.environments.filter(status__in=unfinished).update(**ended)
            evaluations(experiment).filter(status__in=unfinished).update(**ended)
    experiment.refresh_from_db()
    return experiment


# -- work
def work_one(*, owner: str) -> bool:
    """Have the personas of an experiment written, or play the environment that has waited longest; return whether there was one."""
    done = do_next(Experiment, partial(_write_personas, owner=owner), owner=owner, lease=LEASE)
    if not done:
        done = do_next(ExperimentEnvironment, partial(_play, owner=owner), owner=owner, lease=LEASE)
    if done:
        _note_stopped()
    return done


def _note_stopped() -> None:
    """Store in `Experiment.paused` why an experiment waits for a person to resume it, where that is not stored yet.

    The reason is the error of the experiment, where writing its personas crashed, else that of one of its environments that crashed or
    was paused by a budget. Cancelled experiments with such environments are left alone.
    """
    environments = ExperimentEnvironment.objects.filter(
        status__in=STOPPED, experiment__paused="", experiment__cancelled_at=None
    )
    crashed = Experiment.objects.filter(status=Status.ERRORED, paused="")
    reasons = dict(environments.values_list("experiment", "error"))
    reasons.update(crashed.values_list("pk", "error"))
    for pk, reason in reasons.items():
        Experiment.objects.filter(pk=pk, paused="").update(paused=reason)


def _do_here(row: Experiment | ExperimentEnvironment, do: Callable[..., Mapping[str, Any] | None]) -> None:
    """Do the work of a row here, or wait until the worker that has it has done it.

    A crash is stored in the row (errored) and not raised.
    """
    owner = owner_name()
    while row.status in row.OPEN:
        if row.acquire(owner=owner, lease=LEASE):
            carry_out(row, partial(do, owner=owner), owner=owner)
        else:
            pause(SECONDS_BETWEEN_LOOKS)
        row.refresh_from_db()


def _play_here(environment: ExperimentEnvironment, progress: Progress) -> None:
    _do_here(environment, _play)
    progress(environment)


def _write_personas(experiment: Experiment, *, owner: str) -> dict[str, Any]:
    """Have the personas of the people of a leased experiment written by the actor's model; return the columns of its end.

    A cast has its personas already. A person for whom the model writes none keeps the template's, and `error` says so; the end is
    `completed` all the same. The lease is renewed after each person.

    Raises:
        LeaseLost: The lease is not ours any more.
    """
    scenario = Scenario.model_validate(experiment.scenario)
    failures: list[str] = []
    if scenario.population is not None:
        people = Agent.objects.filter(slug__startswith=f"{people_prefix(experiment)}-", synthetic=True).order_by("pk")
        model = experiment.actor_model or str(settings.ACTOR_MODEL)
        for failure in write_personas(people, about=scenario.population.about, model=model):
            if failure:
                failures.append(failure)
            if not experiment.extend_lease(owner=owner, lease=LEASE):
                raise LeaseLost(f"{experiment} is not held by {owner} any more")
    error = ""
    if failures:
        error = f"{len(failures)} personas are our templates', their model wrote none: {'; '.join(failures)}"
    return {"status": Status.COMPLETED, "error": error[:1000]}


# -- an environment
def _play(environment: ExperimentEnvironment, *, owner: str) -> dict[str, Any] | None:
    """Play a leased environment from its next step on, and queue its evaluations together with its end.

    Agents that were deleted since are left out.

    Returns:
        The columns of its end, where a budget pauses it; None where it was played, and its end is stored here.

    Raises:
        LeaseLost: The lease is not ours any more.
        ExperimentRefused: It is a debate, and debates are not installed any more.
    """
    scenario = Scenario.model_validate(environment.experiment.scenario)
    arm = next(arm for arm in scenario.arms if arm.name == environment.arm)
    by_pk = Agent.objects.in_bulk(environment.agents)
    agents = [by_pk[pk] for pk in environment.agents if pk in by_pk]
    budgets = _Budgets(agents, model=str(arm.overrides.get("model", "")) or environment.experiment.actor_model)
    over_budget = budgets.why_over()
    if over_budget:
        return {"status": Status.PAUSED_BUDGET, "error": over_budget}
    if arm.debate is not None:
        _play_debate(environment, owner)
    else:
        over_budget = _play_steps(environment, scenario, arm, agents, budgets, owner)
        if not over_budget and scenario.lab is not None:
            over_budget = _ask_questions(environment, scenario, arm, agents, budgets, owner)
        if over_budget:
            return {"status": Status.PAUSED_BUDGET, "error": over_budget}
    outcome = outcome_of(environment, steps=0 if arm.debate else len(scenario.steps))
    plans = plans_of(environment, scenario, agents)
    with transaction.atomic():  # it ends with all its evaluations, or is played on
        # False where the lease was lost, or it was cancelled: then nothing is queued here.
        if environment.finish(owner=owner, status=Status.COMPLETED, **outcome.columns()):
            queue_evaluations(environment, plans)
    return None


class _Budgets:
    """The budgets of an environment's agents; agents without one are looked up once."""

    def __init__(self, agents: Sequence[Agent], *, model: str) -> None:
        self.model = model
        self.agents = list(agents)

    def why_over(self) -> str:
        """Return the first agent whose budget is used up, and why (``NAME: WHY``); empty when nobody's is.

        Agents without a budget are not asked again.
        """
        with_budget = []
        why = ""
        for agent in self.agents:
            why_agent = why_over_budget(agent, actor_of(agent, self.model))
            if why_agent is None:  # no budget
                continue
            with_budget.append(agent)
            if why_agent and not why:
                why = f"{agent}: {why_agent}"
        self.agents = with_budget
        return why


def _play_steps(
    environment: ExperimentEnvironment,
    scenario: Scenario,
    arm: Arm,
    agents: Sequence[Agent],
    budgets: _Budgets,
    owner: str,
) -> str:
    """Play the steps that were not played yet, and store each that was played to its end.

    Returns:
        Whose budget stopped it before a step, and why; empty when all were played.
    """
    for number, step in enumerate(scenario.steps, 1):
        if number <= environment.steps:  # played before a crash or pause
            continue
        over_budget = budgets.why_over() if number > 1 else ""  # before step 1, `_play` has just asked
        if over_budget:
            return over_budget
        _StepPlayer(environment, scenario, arm, number, step, owner).play(agents)
        _renew_lease(environment, owner, steps=number)
    return ""


def _ask_questions(
    environment: ExperimentEnvironment,
    scenario: Scenario,
    arm: Arm,
    agents: Sequence[Agent],
    budgets: _Budgets,
    owner: str,
) -> str:
    """Ask the control questions that were not asked yet on a copy of the conversation, and store what each answer shows.

    Returns:
        Whose budget stopped it before a question, and why; empty when all were asked.
    """
    assert scenario.lab is not None  # noqa: S101 (the caller's condition)
    if not agents or not scenario.lab.questions:
        return ""
    renew = partial(_renew_lease, environment, owner)
    interview = Interview.of(environment, agents[0], _arm_overrides(environment, arm), asks=scenario.lab.asks)
    answers = list(environment.answers)
    for question in scenario.lab.questions[len(answers) :]:
        over_budget = budgets.why_over()
        if over_budget:
            return over_budget
        answers.append(interview.ask(question, facilitator=scenario.facilitator, renew=renew).model_dump(mode="json"))
        renew(answers=answers)
    return ""


def _arm_overrides(environment: ExperimentEnvironment, arm: Arm) -> dict[str, Any]:
    """Return the overrides that an arm gives to every turn. Its model goes before the experiment's."""
    overrides: dict[str, Any] = {}
    if environment.experiment.actor_model:
        overrides["model"] = environment.experiment.actor_model
    return overrides | arm.overrides


def _play_debate(environment: ExperimentEnvironment, owner: str) -> None:
    """Play the debate of an environment to its end, renewing the lease as it goes.

    Raises:
        ExperimentRefused: Debates are not installed.
        LeaseLost: The lease is not ours any more.
    """
    if not apps.is_installed("agents.debates"):  # it was when the experiment was started
        raise ExperimentRefused([NO_DEBATES])
    from agents.debates.debate import ask_rounds
    from agents.debates.debate import play as play_debate
    from agents.debates.models import Debate

    debate = Debate.objects.get(channel=environment.channel_id)
    if debate.status == Debate.WAITING:
        debate = ask_rounds(debate, rounds=None)  # all that are left
    play_debate(debate, owner=owner, progress=lambda _: _renew_lease(environment, owner))


def _renew_lease(environment: ExperimentEnvironment, owner: str, **fields: Any) -> None:
    """Renew the lease and store fields; without fields, only where it was not renewed within the last seconds (`FRESH`).

    Raises:
        LeaseLost: The lease is not ours any more, or the environment was cancelled.
        Stopped: The work is to stop.
    """
    check_stop()
    now = timezone.now()
    is_fresh = environment.lease_expires_at and environment.lease_expires_at > now + LEASE - FRESH
    if is_fresh and not fields:
        return
    leased = ExperimentEnvironment.objects.filter(pk=environment.pk, status=Status.RUNNING, lease_owner=owner)
    if not retry_on_outage(lambda: leased.update(lease_expires_at=now + LEASE, **fields)):
        raise LeaseLost(f"{environment} is not held by {owner} any more")
    environment.lease_expires_at = now + LEASE


@dataclass(frozen=True, slots=True)
class _StepPlayer:
    """One step of an environment: the facilitator speaks, then each agent, one after the other or side by side."""

    environment: ExperimentEnvironment
    scenario: Scenario
    arm: Arm
    number: int
    step: Step
    owner: str

    def play(self, agents: Sequence[Agent]) -> None:
        """Let the facilitator speak, then each agent take a turn.

        One after the other in the order ``sequence``, else side by side; but not where `WORKER_THREADS` is 1.
        """
        trigger = self._facilitator_message()
        overrides = self._overrides()
        jobs = [partial(self._take_turn, agent, trigger, overrides) for agent in self._ordered(agents)]
        if self.scenario.order == "sequence":
            for job in jobs:
                job()
        elif settings.WORKER_THREADS == 1:
            side_by_side(jobs, 1)
        else:
            side_by_side(jobs, len(jobs))

    @property
    def tags(self) -> dict[str, str]:
        return {**self.environment.channel.tags, STEP_TAG: str(self.number)}

    def _facilitator_message(self) -> Message | None:
        """Store what the facilitator says before the step; return the stored message where it was said before a crash.

        None: it says nothing. Where the step replays messages their authors say them, and the last one is returned.
        """
        if self.step.replays:
            return self._replayed_messages()
        if not self.step.says:
            return None
        return receive_message(
            channel=self.environment.channel,
            outsider=self.scenario.facilitator,
            text=self.step.says,
            idempotency_key=step_key(self.environment, self.number),
            tags=self.tags,
        )

    def _replayed_messages(self) -> Message | None:
        """Store the messages that the step replays, and return the last; those deleted or emptied since are left out.

        None: all of them are.
        """
        slug = self.scenario.start_from.rpartition("@")[0]
        originals = Message.objects.filter(channel__slug=slug, position__in=self.step.replays)
        last = None
        for original in originals.select_related("agent", "user").order_by("position"):
            if fault_of(original.text):
                continue
            last = receive_message(
                channel=self.environment.channel,
                user=original.user,
                outsider="" if original.user else original.author_name,
                text=original.text,
                idempotency_key=f"{step_key(self.environment, self.number)}:{original.position}",
                tags=self.tags,
            )
        return last

    def _ordered(self, agents: Sequence[Agent]) -> list[Agent]:
        """Return the agents in the order of speaking: drawn for each step, where one speaks after the other."""
        ordered = list(agents)
        if self.scenario.order == "sequence":
            seed = f"{self.scenario.seed}:{self.environment.repeat}:{self.environment.number}:{self.number}"
            random.Random(seed).shuffle(ordered)  # noqa: S311 (an order, not secrecy)
        return ordered

    def _overrides(self) -> dict[str, Any]:
        """Return the overrides of every turn of the step.

        `apart`: nobody reads what another says; `until`: the position up to which all read.
        """
        overrides = _arm_overrides(self.environment, self.arm)
        if self.scenario.order == "apart":
            overrides["apart"] = True
        elif self.scenario.order == "together":
            overrides["until"] = self._last_position_before()
        overrides["tags"] = self.tags
        return overrides

    def _last_position_before(self) -> int:
        """Return the position up to which all read: the last message that is not of a turn of this step; 0 without any.

        The facilitator's message of this step is of no turn, so all read it. Turns of this step that were taken before a crash are left
        out, so that those taken after it read what the others read.
        """
        turns_of_step = f"{step_key(self.environment, self.number)}:"
        messages = Message.objects.filter(channel=self.environment.channel_id)
        earlier = messages.exclude(run__idempotency_key__startswith=turns_of_step)
        return earlier.aggregate(last=Max("position"))["last"] or 0

    def _take_turn(self, agent: Agent, trigger: Message | None, overrides: Mapping[str, Any]) -> None:
        """Have an agent take its turn, or end the one it began before a crash (which has the same key); renews the lease meanwhile.

        A turn that is refused (the agent is inactive, or an abandoned turn of it stands in the way) is cancelled and missing: no error.

        Raises:
            LeaseLost: The lease is not ours any more.
        """
        _renew_lease(self.environment, self.owner)
        own_overrides = dict(overrides)
        if agent.slug in self.step.lines:
            own_overrides["lines"] = self.step.lines[agent.slug]  # what the scripted actor says; models ignore it
        run = None
        try:
            run = start_turn(
                agent=agent,
                channel=self.environment.channel,
                prompt=self.arm.reminder_in(self.number),
                trigger=trigger,
                overrides=own_overrides,
                idempotency_key=turn_key(self.environment, self.number, agent.pk),
            )
            finish_turn(run, waiting=partial(_renew_lease, self.environment, self.owner))
        except TurnRefused:  # a missing turn, which `outcome_of` counts
            if run is not None:  # None: it was refused before it was stored
                cancel_turn(run)

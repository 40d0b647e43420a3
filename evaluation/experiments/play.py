"""Start an experiment, play its environments, and queue their evaluations.

Everything that is decided (who sits where, who speaks when) is drawn from the seed, and every message and turn has a key of its place. So
an experiment that was killed goes on where it stopped and ends as it would have. Personas are written once, before all arms. An
environment ends together with the plan of its evaluations. Environments of one number have the same agents in all arms; they are queued
far apart, so that an agent does not wait for itself.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet, Sum
from django.utils import timezone
from django.utils.module_loading import import_string
from pydantic import ValidationError

from agents.kit.capability import declared_one
from agents.kit.llm.endpoints import problem_of
from agents.kit.models import LLMCall, owner_name
from agents.kit.models.lease import LeaseLost
from agents.kit.ops.sums import TOKENS
from agents.kit.refusals import Refused
from agents.kit.running import check_stop, outlasting, pause, side_by_side
from agents.kit.text.ngrams import compute_corpus_repetition
from agents.kit.text.tokens import tokenize
from agents.kit.work.queues import carry_out, do_next, wake_workers
from agents.models import Agent, Channel, ChannelMember, Message, Run
from agents.models.conversations import UnknownAgent, find_agent
from agents.turn.orchestrator import TurnRefused, finish_turn, start_turn
from agents.turn.orchestrator import cancel as cancel_turn
from agents.turn.pipeline import name_of, pipeline
from agents.turn.receive import receive_message
from evaluation.budget import why_over_budget
from evaluation.dimensions import CHANNEL_DIMENSIONS, DEFAULT_DIMENSIONS
from evaluation.experiments.models import EnvironmentEvaluation, Experiment, ExperimentEnvironment
from evaluation.experiments.population import make_agents, write_personas
from evaluation.experiments.scenario import Arm, Measured, Place, PlayedDebate, Scenario, Step
from evaluation.judge.offline import rules_of
from evaluation.models import SIMULATION, EvaluationRun
from evaluation.propositions.files import dotted, load_all
from evaluation.runs.execute import execute
from evaluation.runs.planning import Plan, RunSpec, create_run, make_plan
from evaluation.simulation.conversations import actor_of

LEASE = timedelta(minutes=10)
FRESH = timedelta(seconds=5)  # a lease is renewed before each turn, and not again within this
WAIT = 0.2  # seconds between two looks at work that another process has
SPARE = 4  # environments that compute while as many as there are calls at a time wait
MOST_EARLIER = 200  # messages of a real conversation that an environment begins with
ARM, REPEAT, ENVIRONMENT, STEP = "arm", "repeat", "environment", "step"  # tags, beside the experiment's
OURS = ("tags", "scene", "lines", "until", "apart", "debate")  # overrides that the experiment sets itself
OF_TURNS = ("stages", "model")
NO_DEBATES = "debates are not installed; allowed: arms without a debate, or agents.debates in INSTALLED_APPS"
NO_SWARMS = "swarms are not installed; allowed: a population without swarms, or agents.swarm in INSTALLED_APPS"

Status = ExperimentEnvironment.Status
STOPPED = (Status.PAUSED_BUDGET, Status.ERRORED)  # what goes on when a person says so
Progress = Callable[[ExperimentEnvironment], None]


class ExperimentRefused(Refused):
    """The experiment cannot be started. `problems` has all of them; each names the field, its value and what is allowed."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__({"scenario": "\n".join(problems)}, names_nothing=True)


# -- starting
def start_experiment(scenario: Scenario, *, judge: str = "", actor_model: str = "", user: Any = None) -> Experiment:
    """Store an experiment with its people and environments; nothing is played yet. Nothing is written when it is refused.

    Args:
        scenario: What is played, scaled as wished.
        judge: The model that judges; default the configured one.
        actor_model: The model that acts as all agents; default each agent's own.

    Raises:
        ExperimentRefused: It cannot be played here.
    """
    if problems := list(problems_here(scenario.model_dump())):
        raise ExperimentRefused([f"{dotted(place)}: {text}" for place, text in problems])
    with transaction.atomic():
        experiment: Experiment = Experiment.objects.create(
            name=scenario.name,
            scenario=scenario.model_dump(mode="json"),
            seed=scenario.seed,
            judge=judge or str(settings.JUDGE_MODEL),
            actor_model=actor_model,
            created_by=user,
        )
        if scenario.population is not None:
            prefix = f"x{experiment.pk}"
            agents = make_agents(scenario.population, seed=scenario.seed, prefix=prefix, model=actor_model)
            _assign(scenario.population.swarms, agents)
        else:
            agents = [find_agent(slug) for slug in scenario.cast]
        _make_environments(experiment, scenario, agents)
        transaction.on_commit(wake_workers)
    return experiment


def problems_here(scenario: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """What keeps a scenario from being played here: what the file alone does not tell.

    Args:
        scenario: As data; what of it cannot be read is left out.
    """
    for number, given in enumerate(_listed(scenario, "arms")):
        with suppress(ValidationError):
            for place, text in _problems_of(Arm.model_validate(given)):
                yield ("arms", number, *place), text
    yield from _problems_of_swarms(scenario)
    slugs = [slug for slug in _listed(scenario, "cast") if isinstance(slug, str)]
    for number, slug in enumerate(slugs):
        try:
            agent = find_agent(slug)
        except UnknownAgent as error:
            yield ("cast", number), str(error)
        else:
            if not agent.is_active:
                yield ("cast", number), f"{slug!r} is inactive; allowed: active agents"
    start = scenario.get("start_from")
    match = re.fullmatch(r"(.+)@([0-9]{1,18})", start) if isinstance(start, str) else None
    if match and not Message.objects.filter(channel__slug=match[1], position=int(match[2])).exists():
        text = f"there is no message {match[2]} in a channel {match[1]!r:.80}; allowed: CHANNEL@POSITION of a message"
        yield ("start_from",), text


def _problems_of(arm: Arm) -> Iterator[tuple[Place, str]]:
    stages = [name_of(stage) for stage in pipeline().stages]
    own = {name: value for name, value in arm.overrides.items() if name not in OF_TURNS}
    if reserved := own.keys() & set(OURS):
        text = f"{', '.join(sorted(reserved))}: set by the experiment; allowed: {', '.join(OF_TURNS)}, settings"
        yield ("overrides",), text
    elif arm.debate and (ignored := arm.overrides.keys() - {"model"}):
        yield ("overrides",), f"{', '.join(sorted(ignored))}: not in a debate; allowed: model"
    else:
        path = declared_one("turn_request_check")
        for name, value in own.items() if path else ():
            for _, text in import_string(path)(agent=None, channel=None, overrides={name: value}, session=""):
                yield ("overrides", name), text
    model = arm.overrides.get("model", "")
    if not isinstance(model, str):
        yield ("overrides", "model"), f"{model!r:.80}; allowed: the name of a model"
    elif model and (problem := problem_of("actor", model)):
        yield ("overrides", "model"), problem
    named = arm.overrides.get("stages", [])
    if not isinstance(named, list):
        yield ("overrides", "stages"), f"{named!r:.80}; allowed: a list of {', '.join(stages)}"
        named = []
    for place, names in ((("overrides", "stages"), named), (("treatment",), arm.treatment)):
        for number, name in enumerate(names):
            if name not in stages:
                yield (*place, number), f"stage {name!r:.80} is unknown; allowed: {', '.join(stages)}"
    if arm.debate is not None:
        yield from _problems_of_debate(arm.debate)


def _problems_of_debate(debate: PlayedDebate) -> Iterator[tuple[Place, str]]:
    if not apps.is_installed("agents.debates"):
        yield ("debate",), NO_DEBATES
        return
    from agents.debates.debate import DebateRefused, checked_settings
    from agents.debates.modes import mode_of

    try:
        checked_settings(mode_of(debate.mode), debate.rounds, debate.settings)
    except DebateRefused as error:
        yield ("debate", "settings"), str(error)
    except ValueError as error:
        yield ("debate", "mode"), str(error)


def _problems_of_swarms(scenario: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Swarms that there are none of, and arms that use a swarm where no agent has one."""
    population = scenario.get("population")
    named = [one for one in _listed(population, "swarms") if isinstance(one, str)]
    if not apps.is_installed("agents.swarm"):
        if named:
            yield ("population", "swarms"), NO_SWARMS
        return
    from agents.swarm.models import Swarm
    from agents.swarm.phases import default_swarm

    for number, name in enumerate(named):
        known = {default_swarm()["name"], *Swarm.objects.values_list("name", flat=True)}
        if name not in known:
            text = f"swarm {name!r:.80} is unknown; allowed: {', '.join(sorted(known))}"
            yield ("population", "swarms", number), text
    cast = [slug for slug in _listed(scenario, "cast") if isinstance(slug, str)]
    if named or Swarm.objects.filter(agents__slug__in=cast, enabled=True).exists():
        return
    for number, arm in enumerate(_listed(scenario, "arms")):
        if used := set(_listed(arm, "treatment")) & {"calibration", "polish"}:
            yield (
                ("arms", number, "treatment"),
                f"{', '.join(sorted(used))}: none of the agents has a swarm; allowed: a cast of agents with one "
                "(PATCH /api/swarms/{id}/), or a population with `swarms: [personality]`",
            )


def _assign(swarms: Sequence[str], agents: Sequence[Agent]) -> None:
    if not swarms:
        return
    from agents.swarm.assign import SwarmRefused, assign_swarms
    from agents.swarm.phases import default_swarm, ensure_default_swarm

    if default_swarm()["name"] in swarms:
        ensure_default_swarm()
    try:
        for agent in agents:
            assign_swarms(agent=agent, swarms=swarms)
    except SwarmRefused as error:
        raise ExperimentRefused([f"population.swarms: {error}"]) from None


def _listed(part: Any, name: str) -> list[Any]:
    value = part.get(name) if isinstance(part, Mapping) else None
    return value if isinstance(value, list) else []


def _make_environments(experiment: Experiment, scenario: Scenario, agents: Sequence[Agent]) -> None:
    """Store the environments in the order in which they are played: arm by arm, each arm begun at another number."""
    drawn = random.Random(f"{scenario.seed}:seats")  # noqa: S311 (assignment, not secrecy)
    seated = drawn.sample(list(agents), scenario.seats)
    count, arms = scenario.environments, scenario.arms
    order = [
        (repeat, (place + which * count // len(arms)) % count, arm)
        for repeat in range(1, scenario.repeats + 1)
        for place in range(count)
        for which, arm in enumerate(arms)
    ]
    for which, (repeat, number, arm) in enumerate(order, 1):
        here = seated[number * scenario.agents : (number + 1) * scenario.agents]
        tags = tags_of(experiment, arm=arm.name, repeat=repeat, number=number + 1)
        ExperimentEnvironment.objects.create(
            experiment=experiment,
            arm=arm.name,
            repeat=repeat,
            number=number + 1,
            channel=_channel(experiment, scenario, arm, here, which, tags),
            agents=[agent.pk for agent in here],
        )


def tags_of(experiment: Experiment, *, arm: str, repeat: int, number: int) -> dict[str, str]:
    """The tags of what is said in an environment; evaluations choose by them."""
    return {
        Experiment.TAG: str(experiment.pk),
        SIMULATION: f"experiment-{experiment.pk}",
        ARM: arm,
        REPEAT: str(repeat),
        ENVIRONMENT: str(number),
    }


def _channel(
    experiment: Experiment, scenario: Scenario, arm: Arm, agents: Sequence[Agent], which: int, tags: Mapping[str, str]
) -> Channel:
    """The channel of an environment. What agents are shown of it says nothing of the arm."""
    if arm.debate is not None:
        model = str(arm.overrides.get("model", "")) or experiment.actor_model
        return _channel_of_debate(scenario, arm.name, arm.debate, agents, model, tags)
    channel: Channel = Channel.objects.create(
        slug=f"talk-{experiment.pk}-{which}", name="Conversation", kind="private", synthetic=True, tags=dict(tags)
    )
    ChannelMember.objects.bulk_create(ChannelMember(channel=channel, agent=agent) for agent in agents)
    if scenario.start_from:
        slug, _, position = scenario.start_from.rpartition("@")
        said = Message.objects.filter(channel__slug=slug, position__lte=int(position)).order_by("-position")
        earlier = list(said[:MOST_EARLIER])[::-1]
        copies = [
            Message(
                channel=channel, position=place, text=one.text, payload=one.payload, sent_at=one.sent_at, synthetic=True
            )
            for place, one in enumerate(earlier, 1)
        ]
        for copy, one in zip(copies, earlier, strict=True):
            copy.agent_id, copy.user_id, copy.outsider = one.agent_id, one.user_id, one.outsider
        Message.objects.bulk_create(copies)
        Channel.objects.filter(pk=channel.pk).update(next_position=len(copies) + 1)
        channel.next_position = len(copies) + 1
    return channel


def _channel_of_debate(
    scenario: Scenario, arm: str, debated: PlayedDebate, agents: Sequence[Agent], model: str, tags: Mapping[str, str]
) -> Channel:
    """The channel of a debate that was started and waits to be played."""
    from agents.debates.debate import DebateRefused, start_debate

    try:
        debate = start_debate(
            topic=scenario.steps[0].says or scenario.title,
            mode=debated.mode,
            agents=agents,
            rounds=debated.rounds,
            models={agent.slug: model for agent in agents} if model else {},
            **debated.settings,
        )
    except DebateRefused as error:
        raise ExperimentRefused([f"arms ({arm}).debate: {error}"]) from None
    channel: Channel = debate.channel
    channel.tags = {**channel.tags, **tags}
    channel.save(update_fields=["tags"])
    return channel


# -- playing
def play(experiment: Experiment, *, progress: Progress = lambda environment: None, limit: int = 0) -> Experiment:
    """Play all environments here, side by side, or wait for the workers that have them; their evaluations are then queued.

    What was paused or crashed goes on, too.

    Args:
        progress: Called with each environment that has ended; perhaps in other threads.
        limit: Environments side by side; default as many as keep this process's calls to the models busy.
    """
    resume_experiment(experiment)
    experiment.refresh_from_db()
    _do_here(experiment, _prepare)
    if experiment.status == Status.COMPLETED:
        open_ones = list(experiment.environments.filter(status__in=ExperimentEnvironment.OPEN).order_by("pk"))
        jobs = [partial(_play_here, environment, progress) for environment in open_ones]
        side_by_side(jobs, limit or _at_once(experiment))
        measure(experiment)
    _note_stopped()
    experiment.refresh_from_db()
    return experiment


def _at_once(experiment: Experiment) -> int:
    """A few environments more than there are calls at a time, each of which has one agent that waits for its call, or all of them."""
    if settings.WORKER_THREADS == 1:
        return 1
    scenario = Scenario.model_validate(experiment.scenario)
    together = scenario.order != "sequence" or any(arm.debate for arm in scenario.arms)
    return max(1, (settings.LLM_MAX_CONCURRENCY + SPARE) // (scenario.agents if together else 1))


def resume_experiment(experiment: Experiment) -> int:
    """Queue what was paused by a budget, or crashed; returns how many environments and evaluations.

    Raises:
        ExperimentRefused: It was cancelled.
    """
    if experiment.cancelled_at is not None:
        raise ExperimentRefused([f"experiment {experiment.pk} is cancelled; allowed: one that is not"])
    with transaction.atomic():
        Experiment.objects.filter(pk=experiment.pk, status=Status.ERRORED).update(status=Status.PENDING)
        queued: int = experiment.environments.filter(status__in=STOPPED).update(status=Status.PENDING, error="")
        queued += evaluations(experiment).filter(status__in=STOPPED).update(status=EvaluationRun.Status.PENDING)
        Experiment.objects.filter(pk=experiment.pk).update(paused="")
        transaction.on_commit(wake_workers)
    return queued


def work_one(*, owner: str) -> bool:
    """Have the personas of an experiment written, or play the environment that has waited longest; whether there was one."""
    done = any(
        do_next(model, partial(do, owner=owner), owner=owner, lease=LEASE)
        for model, do in ((Experiment, _prepare), (ExperimentEnvironment, _play))
    )
    if done:
        _note_stopped()
    return done


def cancel(experiment: Experiment) -> Experiment:
    """End an experiment and what waits to be judged; what was said stays. One that was played to its end stays as it is."""
    now = timezone.now()
    ended = {"status": Status.CANCELLED, "lease_owner": "", "lease_expires_at": None, "finished_at": now}
    going_on = (*ExperimentEnvironment.OPEN, Status.PAUSED_BUDGET)
    with transaction.atomic():
        mine = Experiment.objects.filter(pk=experiment.pk, measured_at=None, cancelled_at=None)
        if mine.update(cancelled_at=now):
            Experiment.objects.filter(pk=experiment.pk, status__in=Experiment.OPEN).update(**ended)
            for rows in (experiment.environments, evaluations(experiment)):
                rows.filter(status__in=going_on).update(**ended)
    experiment.refresh_from_db()
    return experiment


def _note_stopped() -> None:
    """Say of experiments why they do not go on by themselves."""
    unsaid = {"experiment__paused": "", "experiment__cancelled_at": None}
    stopped = ExperimentEnvironment.objects.filter(status__in=STOPPED, **unsaid).values_list("experiment", "error")
    crashed = Experiment.objects.filter(status=Status.ERRORED, paused="").values_list("pk", "error")
    for pk, why in {**dict(stopped), **dict(crashed)}.items():
        Experiment.objects.filter(pk=pk, paused="").update(paused=why)


def _do_here(row: Experiment | ExperimentEnvironment, do: Callable[..., Mapping[str, Any] | None]) -> None:
    """Do the work of a row here, or wait until the worker that has it has done it."""
    owner = owner_name()
    while row.status in row.OPEN:
        if row.acquire(owner=owner, lease=LEASE):
            carry_out(row, partial(do, owner=owner), owner=owner)
        else:
            pause(WAIT)
        row.refresh_from_db()


def _play_here(environment: ExperimentEnvironment, progress: Progress) -> None:
    _do_here(environment, _play)
    progress(environment)


def _prepare(experiment: Experiment, *, owner: str) -> dict[str, Any]:
    """Have the personas of the people of a leased experiment written, once; returns the columns of its end."""
    scenario, failures = Scenario.model_validate(experiment.scenario), []
    if scenario.population is not None:
        agents = Agent.objects.filter(slug__startswith=f"x{experiment.pk}-", synthetic=True).order_by("pk")
        model = experiment.actor_model or str(settings.ACTOR_MODEL)
        for failure in write_personas(agents, about=scenario.population.about, model=model):
            failures += [failure] if failure else []
            if not experiment.extend_lease(owner=owner, lease=LEASE):
                raise LeaseLost(f"{experiment} is not held by {owner} any more")
    why = (
        f"{len(failures)} personas are our templates', their model wrote none: {'; '.join(failures)}"
        if failures
        else ""
    )
    return {"status": Status.COMPLETED, "error": why[:1000]}


def _play(environment: ExperimentEnvironment, *, owner: str) -> dict[str, Any] | None:
    """Play a leased environment from its next step on, and end it, or return the columns of its end."""
    scenario = Scenario.model_validate(environment.experiment.scenario)
    arm = next(one for one in scenario.arms if one.name == environment.arm)
    agents = Agent.objects.in_bulk(environment.agents)
    seats = [agents[pk] for pk in environment.agents if pk in agents]
    model = str(arm.overrides.get("model", "")) or environment.experiment.actor_model
    capped = {agent.pk: why_over_budget(agent, actor_of(agent, model)) for agent in seats}  # None: no budget
    for agent in seats:
        if capped[agent.pk]:
            return {"status": Status.PAUSED_BUDGET, "error": f"{agent.slug}: {capped[agent.pk]}"}
    if arm.debate is not None:
        _play_debate(environment, owner)
    else:
        for number, step in enumerate(scenario.steps, 1):
            if number > environment.steps:
                for agent in seats if number > 1 else ():
                    if capped[agent.pk] is not None and (why := why_over_budget(agent, actor_of(agent, model))):
                        return {"status": Status.PAUSED_BUDGET, "error": f"{agent.slug}: {why}"}
                _play_step(environment, scenario, arm, number, step, seats, owner)
                _renew(environment, owner, steps=number)
    became = _became(environment, 0 if arm.debate else len(scenario.steps))
    plans = _plans(environment, scenario, seats)
    with transaction.atomic():  # it has all its evaluations, or is played on
        if environment.finish(owner=owner, status=Status.COMPLETED, **became):
            _queue(environment, plans)
    return None


def _play_debate(environment: ExperimentEnvironment, owner: str) -> None:
    if not apps.is_installed("agents.debates"):  # they were when it was started
        raise ExperimentRefused([NO_DEBATES])
    from agents.debates.debate import ask_rounds
    from agents.debates.debate import play as play_debate
    from agents.debates.models import Debate

    debate = Debate.objects.get(channel=environment.channel_id)
    if debate.status == Debate.WAITING:
        debate = ask_rounds(debate, None)
    play_debate(debate, owner=owner, progress=lambda _: _renew(environment, owner))


def _renew(environment: ExperimentEnvironment, owner: str, **fields: Any) -> None:
    """Renew the lease, where that was not done a moment ago, and store fields.

    Raises:
        LeaseLost: It is not ours any more, or was cancelled.
    """
    check_stop()
    now = timezone.now()
    if not fields and environment.lease_expires_at and environment.lease_expires_at > now + LEASE - FRESH:
        return
    mine = ExperimentEnvironment.objects.filter(pk=environment.pk, status=Status.RUNNING, lease_owner=owner)
    if not outlasting(lambda: mine.update(lease_expires_at=now + LEASE, **fields)):
        raise LeaseLost(f"{environment} is not held by {owner} any more")
    environment.lease_expires_at = now + LEASE


def _play_step(
    environment: ExperimentEnvironment,
    scenario: Scenario,
    arm: Arm,
    number: int,
    step: Step,
    agents: Sequence[Agent],
    owner: str,
) -> None:
    """Have the facilitator speak, then each agent, one after the other or side by side."""
    place = f"experiment:{environment.pk}:{number}"
    tags = {**environment.channel.tags, STEP: str(number)}
    trigger = None
    if step.says:
        trigger = receive_message(
            channel=environment.channel, outsider=scenario.facilitator, text=step.says, idempotency_key=place, tags=tags
        )
    order = list(agents)
    together = scenario.order != "sequence"
    if not together:
        random.Random(f"{scenario.seed}:{environment.repeat}:{environment.number}:{number}").shuffle(order)  # noqa: S311
    shown: dict[str, Any] = {}
    if scenario.order == "apart":
        shown = {"apart": True}
    elif together:  # what was said before the step, whoever of them has spoken when it goes on after a crash
        before = Message.objects.filter(channel=environment.channel_id).exclude(
            run__idempotency_key__startswith=f"{place}:"
        )
        shown = {"until": before.aggregate(last=Max("position"))["last"] or 0}
    model = {"model": environment.experiment.actor_model} if environment.experiment.actor_model else {}

    def take(agent: Agent) -> None:
        _renew(environment, owner)
        lines = {"lines": step.lines[agent.slug]} if agent.slug in step.lines else {}
        overrides = {**model, **arm.overrides, **shown, **lines, "tags": tags}
        key, run = _place(environment, number, agent.pk), None
        try:
            run = start_turn(
                agent=agent, channel=environment.channel, trigger=trigger, overrides=overrides, idempotency_key=key
            )
            finish_turn(run, waiting=partial(_renew, environment, owner))
        except TurnRefused:  # a missing turn, which `_became` counts
            if run is not None:
                cancel_turn(run)

    if together:
        limit = 1 if settings.WORKER_THREADS == 1 else len(order)
        side_by_side([partial(take, agent) for agent in order], limit)
    else:
        for agent in order:
            take(agent)


def _place(environment: ExperimentEnvironment, step: int, agent: int) -> str:
    return f"experiment:{environment.pk}:{step}:{agent}"


def _became(environment: ExperimentEnvironment, steps: int) -> dict[str, Any]:
    """What its turns came to: how often which stage did what, the turns that failed, and what can be counted without a judge."""
    counters: Counter[str] = Counter()
    missing, seconds, silent = [], 0.0, []
    said: dict[int | None, list[str]] = defaultdict(list)
    messages = Message.objects.filter(channel=environment.channel_id, run__isnull=False).order_by("position")
    spoke = set()
    for agent, run_pk, text in messages.values_list("agent", "run", "text"):
        said[agent].append(text)
        spoke.add(run_pk)
    runs = list(Run.objects.filter(channel=environment.channel_id).order_by("pk"))
    for run in runs:
        for entry in run.trace:
            if entry.get("status") == "ran":
                for name, n in (entry.get("counters") or {}).items():
                    counters[f"{entry['stage']}.{name}"] += n
        if run.status != Run.Status.COMPLETED:
            missing.append({"turn": run.idempotency_key, "agent": run.agent_id, "why": run.error or run.status})
        else:  # one that failed is missing, and no silence
            silent.append(run.pk not in spoke)
        if run.started_at and run.finished_at:
            seconds += (run.finished_at - run.started_at).total_seconds()
    queued = {run.idempotency_key for run in runs}
    for step, agent in product(range(1, steps + 1), environment.agents):
        if (place := _place(environment, step, agent)) not in queued:  # it was made inactive, or is gone
            missing.append({"turn": place, "agent": agent, "why": "the agent took no turn"})
    figures: dict[str, Any] = {"turns": len(runs), "messages": sum(map(len, said.values()))}
    figures |= {"silence": sum(silent) / len(silent)} if silent else {}
    figures |= {"seconds": seconds / len(runs)} if runs else {}
    if texts := [text for by in said.values() for text in by]:
        repeated = [compute_corpus_repetition(by) for by in said.values() if len(by) > 1]
        figures |= {"repetition": sum(repeated) / len(repeated)} if repeated else {}
        kept_rules = list(_rules_kept(said))
        figures |= {"rules": sum(kept_rules) / len(kept_rules)} if kept_rules else {}
        figures["length"] = sum(len(tokenize(text)) for text in texts) / len(texts)
    figures |= _spent([run.pk for run in runs], len(texts))
    return {"counters": dict(sorted(counters.items())), "missing": missing, "figures": figures}


def _rules_kept(said: Mapping[int | None, Sequence[str]]) -> Iterator[bool]:
    """For each message of an agent that has exact rules, whether it keeps them all."""
    for agent in Agent.objects.filter(pk__in=[pk for pk in said if pk is not None]):
        if rules := rules_of(agent):
            yield from (all(rule(text) for rule in rules) for text in said[agent.pk])


def _spent(runs: Sequence[int], messages: int) -> dict[str, float]:
    """Tokens and US dollars of all calls of these turns, in all and a message.

    No tokens where a server did not count those of an answer, no dollars where a call is unpriced, and nothing a message without messages.
    """
    calls = LLMCall.objects.filter(run__in=runs)
    uncounted = Q(input_tokens=None, status=LLMCall.Status.OK) & ~Q(provider="offline")
    sums = calls.aggregate(
        uncounted=Count("pk", filter=uncounted),  # before the sums, which have the columns' names
        **{name: Sum(name) for name in TOKENS},
        usd=Sum("cost_usd"),
        priced=Count("cost_usd"),
        n=Count("pk"),
    )
    spent = {}
    if messages and not sums["uncounted"]:
        spent["tokens"] = sum(sums[name] or 0 for name in TOKENS) / messages
    if sums["priced"] == sums["n"]:
        spent["usd_in_all"] = float(sums["usd"] or 0)
        spent |= {"usd": spent["usd_in_all"] / messages} if messages else {}
    return spent


# -- measuring
def measure(experiment: Experiment) -> None:
    """Queue the evaluations of environments that were not played here, such as those of a bundle."""
    scenario = Scenario.model_validate(experiment.scenario)
    here = EnvironmentEvaluation.objects.filter(environment=OuterRef("pk"))
    for environment in experiment.environments.filter(~Exists(here), status=Status.COMPLETED).order_by("pk"):
        plans = _plans(environment, scenario, Agent.objects.filter(pk__in=environment.agents).order_by("pk"))
        with transaction.atomic():
            Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
            if not environment.evaluation_links.exists():  # meanwhile, by another process
                _queue(environment, plans)


def _plans(environment: ExperimentEnvironment, scenario: Scenario, agents: Iterable[Agent]) -> list[Plan]:
    files = load_all()
    return [make_plan(spec, files=files) for spec in _specs(environment, scenario, agents)]


def _queue(environment: ExperimentEnvironment, plans: Sequence[Plan]) -> None:
    """Store the evaluations of an environment that has ended, and whether it was the last; in a transaction."""
    link(environment, [create_run(plan) for plan in plans])
    experiments = Experiment.objects.filter(pk=environment.experiment_id)
    experiments.select_for_update(no_key=True).get()  # of two that end at once, the second sees that it is the last
    others = ExperimentEnvironment.objects.filter(experiment=environment.experiment_id)
    if not others.filter(status__in=(*ExperimentEnvironment.OPEN, *STOPPED)).exists():
        experiments.filter(measured_at=None, cancelled_at=None).update(measured_at=timezone.now())
    transaction.on_commit(wake_workers)


def link(environment: ExperimentEnvironment, runs: Iterable[EvaluationRun]) -> None:
    """Store which environment these evaluations measure, in the transaction that stored them; one that is resumed has its link."""
    links = [EnvironmentEvaluation(environment=environment, evaluation_run=run) for run in runs]
    EnvironmentEvaluation.objects.bulk_create(links, ignore_conflicts=True)


def specs(experiment: Experiment) -> Iterator[tuple[ExperimentEnvironment, RunSpec]]:
    """What is measured: each agent in each arm and repeat, and each environment, where a dimension is of conversations."""
    scenario = Scenario.model_validate(experiment.scenario)
    environments = list(experiment.environments.select_related("channel", "experiment").order_by("pk"))
    agents = Agent.objects.in_bulk({pk for environment in environments for pk in environment.agents})
    for environment in environments:
        here = [agents[pk] for pk in environment.agents if pk in agents]
        yield from ((environment, spec) for spec in _specs(environment, scenario, here))


def _specs(environment: ExperimentEnvironment, scenario: Scenario, agents: Iterable[Agent]) -> Iterator[RunSpec]:
    experiment, tags = environment.experiment, environment.channel.tags
    own = [one for one in scenario.dimensions if one.id not in CHANNEL_DIMENSIONS]
    spec = RunSpec(
        agent=None,
        channel=environment.channel,
        scope=f"environment {environment.pk}",
        where={name: tags[name] for name in (SIMULATION, Experiment.TAG, ARM, REPEAT)},
        samples=max(1, len(scenario.steps)) * 5,
        seed=experiment.seed,
        judge=experiment.judge,
        simulated=True,
        actor_model=experiment.actor_model,
        dimensions=CHANNEL_DIMENSIONS,
    )
    yield from _by_hardness(spec, [one for one in scenario.dimensions if one.id in CHANNEL_DIMENSIONS])
    for agent in agents:
        yield from _by_hardness(replace(spec, agent=agent, channel=None, dimensions=DEFAULT_DIMENSIONS), own)


def _by_hardness(spec: RunSpec, dimensions: Sequence[Measured]) -> Iterator[RunSpec]:
    for hard in (False, True):
        if named := tuple(str(one.id) for one in dimensions if one.hard is hard):
            yield replace(spec, dimensions=named, hard=hard)


def judge_here(
    experiment: Experiment,
    *,
    judges: Sequence[str] = (),
    progress: Callable[[EvaluationRun, int], None] = lambda run, n: None,
) -> None:
    """Judge here what is not judged yet; what a worker has is left to it.

    Args:
        judges: Whose evaluations; default the experiment's own judge.
        progress: Called with an evaluation and the number of judgements just settled, from any thread.
    """
    mine = evaluations(experiment).filter(judge__in=judges or [experiment.judge])
    execute(list(mine.exclude(status=EvaluationRun.Status.COMPLETED)), progress=progress)
    if why := mine.filter(status__in=STOPPED).values_list("error", flat=True).first():
        Experiment.objects.filter(pk=experiment.pk).update(paused=why)


def evaluations(experiment: Experiment) -> QuerySet[EvaluationRun]:
    """The evaluations of an experiment."""
    return EvaluationRun.objects.filter(environment_link__environment__experiment=experiment)

"""Simulate conversations with an agent: the real turn pipeline with every optional stage off, each situation in a channel of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Annotated, Any

import sentry_sdk
from django.db import transaction
from django.db.models import QuerySet
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field

from agents.kit.models.lease import LeaseLost
from agents.kit.work.queues import carry_out
from agents.models import Agent, Channel, ChannelMember, Message, Run
from agents.personas.persona import current_digest
from agents.turn.orchestrator import TurnRefused, finish_turn, start_turn
from agents.turn.receive import receive_message
from agents.turn.send_message import SendRefused
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.propositions.files import PropositionError
from evaluation.runs.planning import (
    MOST_SAMPLES,
    SIMULATION,
    RunSpec,
    actor_of,
    has_little_speech,
    plan_later,
    why_not_simulated,
    why_over_budget,
)
from evaluation.simulation.situations import Situation, load_situations, situations_digest
from evaluation.windows import BEFORE, MessageWindow, parse_history, parse_window

MOST_REPEATS = 20
GIVE_UP_AFTER = 3  # failed conversations in a row: the model is down, the others are not tried
SITUATION, REPEAT, TURN = "situation", "repeat", "turn"  # tags of channels and messages, beside the simulation's

Progress = Callable[[int, int], None]


class NotSimulated(Exception):
    """A line could not be simulated. Its text says why."""


class Conversation(BaseModel):
    """One situation, simulated once.

    Attributes:
        situation: Its id. `repeat`: which of the repeats, from 1.
        lines: How many lines it has. `done`: how many of them the agent answered, or chose to pass over in silence.
        silent: How many of these it passed over.
        reason: Why the other lines are missing; empty when none is.
        tried: False when it was left out because others before it had failed.
    """

    model_config = ConfigDict(frozen=True)

    situation: str
    repeat: int
    channel: str
    lines: int
    done: int
    silent: int = 0
    reason: str = ""
    tried: bool = Field(True, exclude=True)

    @property
    def complete(self) -> bool:
        return self.done == self.lines

    @property
    def name(self) -> str:
        return self.situation if self.repeat == 1 else f"{self.situation} ({self.repeat})"


Slug = Annotated[Agent, PlainSerializer(lambda agent: agent.slug)]


class Simulation(BaseModel):
    """An agent's conversations in all situations, each in a channel of its own that is marked synthetic; dumped as commands print it.

    Every message has the tags ``simulation`` (the id), ``situation``, ``repeat`` and ``turn`` (which of the situation's lines, from 1).

    Attributes:
        id: The part before the last ``-`` is equal for the same agent, persona, situations, model and repeats.
        skipped: Why nothing was said to the agent at all; there are no conversations then.
        resumed: Whether it continues what an earlier process left.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    agent: Slug
    id: str = Field(serialization_alias="simulation")
    actor_model: str
    messages: int
    persona_digest: str = Field(exclude=True)
    conversations: tuple[Conversation, ...]
    skipped: str = Field("", exclude=True)
    resumed: bool = Field(False, exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def complete(self) -> bool:
        return not self.unfinished

    @property
    def unfinished(self) -> tuple[Conversation, ...]:
        """Conversations of which a line is missing, each with its reason."""
        return tuple(conversation for conversation in self.conversations if not conversation.complete)

    @property
    def usable(self) -> bool:
        """Whether it can be measured: the agent said something, and its model answered."""
        return self.messages > 0 and all(conversation.tried for conversation in self.conversations)

    @property
    def failed(self) -> bool:
        """Whether there is nothing to measure because the actor failed: trying again may help."""
        return not self.complete and not self.usable

    @computed_field  # type: ignore[prop-decorator]
    @property
    def problem(self) -> str:
        """Why there is less to measure than there should be, in a sentence; empty when everything was simulated."""
        if self.skipped:
            return self.skipped
        missing = self.unfinished
        if missing:
            reasons = "; ".join(dict.fromkeys(conversation.reason for conversation in missing))
            names = ", ".join(conversation.name for conversation in missing[:5])
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            return f"{len(missing)} of {len(self.conversations)} conversations not finished ({names}{more}): {reasons}"
        if not self.messages:
            return f"the agent said nothing in any of {len(self.conversations)} conversations"
        return ""


def simulations_json(simulations: Sequence[Simulation]) -> dict[str, Any]:
    """The entry ``simulations`` of a command's object; nothing without any."""
    rows = [one.model_dump(by_alias=True) for one in simulations]
    return {"simulations": rows} if rows else {}


def simulate(
    *,
    agent: Agent,
    situations: Sequence[Situation],
    actor_model: str = "",
    repeats: int = 1,
    progress: Progress = lambda done, total: None,
    reuse: bool = False,
) -> Simulation:
    """Say the lines of all situations to an agent, and wait for its answers.

    The same call resumes an interrupted simulation: it says the missing lines and retries failed turns, until an evaluation of the
    simulation is complete; after that a new simulation begins. A line is never said or answered twice in a simulation.

    No stage of the pipeline takes part but those marked `required`, and the agent remembers nothing of it. Where the actor could say
    nothing (`why_not_simulated`) nothing is said to the agent either.

    Args:
        situations: What happens to it, see `load_situations`.
        actor_model: The model that acts; default the agent's own, else `ACTOR_MODEL`.
        repeats: How often each situation is simulated, 1 to 20.
        reuse: Use the newest simulation of the same, whatever its age and even if it was measured, and only add what it lacks.

    Raises:
        ValueError: No situation, or repeats out of range.
    """
    if not situations:
        raise ValueError("no situation to simulate; allowed: at least 1")
    if not 1 <= repeats <= MOST_REPEATS:
        raise ValueError(f"repeats {repeats}: 1 to {MOST_REPEATS}")
    model = actor_of(agent, actor_model)
    if why := why_not_simulated(agent, actor_model):
        nothing = {"persona_digest": current_digest(agent), "conversations": (), "messages": 0}
        return Simulation(id="", agent=agent, actor_model=model, skipped=why, **nothing)
    with sentry_sdk.start_span(op="evaluation.simulation", name="simulate conversations") as span:
        span.set_data("agent", agent.pk)
        ident, scenes, resumed = prepare(agent, situations, model, repeats, reuse=reuse)
        span.set_data("simulation", ident)
        conversations = _converse(scenes, progress)
    spoken = Message.objects.filter(channel__in=[s.channel.pk for s in scenes], agent=agent, synthetic=True)
    return Simulation(
        id=ident,
        agent=agent,
        actor_model=model,
        persona_digest=scenes[0].persona_digest,
        conversations=conversations,
        messages=spoken.filter(text__regex=r"\S").count(),
        resumed=resumed,
    )


# -- the channels
def prepare(
    agent: Agent, situations: Sequence[Situation], model: str, repeats: int, *, reuse: bool | None
) -> tuple[str, list[_Scene], bool]:
    """Id and scenes of the newest simulation of the same if it is to be continued, else of a new one; and whether it is continued.

    It is not continued once a completed evaluation measured it; with `reuse` it always is; with None never.
    """
    persona = current_digest(agent)
    parts = [agent.pk, persona, situations_digest(situations), model, repeats]
    if is_heuristic(model):  # the scripted actor says its sample lines, which are no part of the persona
        parts.append(agent.sample_lines)
    same = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
    prefix = f"{agent.slug[:40]}-talk-{same}-"
    with transaction.atomic():
        # Two processes that start at once must find each other's channels: SQLite lets one writer in, PostgreSQL locks the agent
        # (not its key: what it says elsewhere refers to that, and does not wait).
        Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
        slugs = Channel.objects.filter(slug__startswith=prefix, synthetic=True).values_list("slug", flat=True)
        numbers = (slug.removeprefix(prefix).partition("-")[0] for slug in slugs)
        number = max((int(n) for n in numbers if n.isdecimal()), default=0)
        measured = EvaluationRun.objects.filter(simulated=True, status=EvaluationRun.Status.COMPLETED)
        resumed = (
            bool(number)
            and reuse is not None
            and (reuse or not measured.filter(where__simulation=f"{same}-{number}").exists())
        )
        number += not resumed
        ident, prefix = f"{same}-{number}", f"{prefix}{number}-"
        known = {channel.slug: channel for channel in Channel.objects.filter(slug__startswith=prefix, synthetic=True)}
        scenes, first = [], 0
        for repeat in range(1, repeats + 1):
            for place, situation in enumerate(situations, 1):
                slug = f"{prefix}{place:02}-{repeat}"  # slug and name are shown to the agent: they say nothing of what comes
                channel = known.get(slug) or Channel(
                    slug=slug,
                    name=f"{agent.display_name} and {situation.speaker}"[:200],
                    kind="private",
                    synthetic=True,
                    tags={SIMULATION: ident, SITUATION: situation.id, REPEAT: str(repeat)},
                )
                scenes.append(_Scene(agent, model, persona, situation, repeat, channel, first))
                first += len(situation.lines)
        Channel.objects.bulk_create([scene.channel for scene in scenes if scene.channel.pk is None])
        members = [ChannelMember(channel=scene.channel, agent=agent) for scene in scenes]
        ChannelMember.objects.bulk_create(members, ignore_conflicts=True)
    return ident, scenes, resumed


# -- the conversations
def _converse(scenes: Sequence[_Scene], progress: Progress) -> tuple[Conversation, ...]:
    total, failed = sum(len(scene.situation.lines) for scene in scenes), 0
    conversations = []
    for scene in scenes:
        if failed < GIVE_UP_AFTER:
            conversation = scene.simulate(lambda line, first=scene.first: progress(first + line, total))  # type: ignore[misc]
            failed = 0 if conversation.complete else failed + 1
        else:
            conversation = scene.conversation(scene.done(), f"not tried after {failed} in a row had failed")
            conversation = conversation.model_copy(update={"tried": conversation.complete})
        conversations.append(conversation)
        progress(scene.first + len(scene.situation.lines), total)
    return tuple(conversations)


@dataclass(frozen=True, slots=True)
class _Scene:
    """One conversation to simulate, and its channel. `first`: the number of its first line in the simulation, from 0."""

    agent: Agent
    model: str
    persona_digest: str
    situation: Situation
    repeat: int
    channel: Channel
    first: int

    def simulate(self, progress: Callable[[int], None]) -> Conversation:
        """Say the lines that are missing, until one fails; `progress` is called after each but the last."""
        done = self.done()
        lines = len(self.situation.lines)
        try:
            for turn in range(len(done) + 1, lines + 1):
                if current_digest(Agent.objects.get(pk=self.agent.pk)) != self.persona_digest:
                    raise NotSimulated("the persona was changed meanwhile")
                if over := why_over_budget(self.agent, self.model):
                    raise NotSimulated(over)
                done.append(self._say(turn))
                if turn < lines:
                    progress(turn)
        except (NotSimulated, TurnRefused, SendRefused) as error:
            return self.conversation(done, str(error))
        return self.conversation(done)

    def conversation(self, done: Sequence[Run], reason: str = "") -> Conversation:
        lines = len(self.situation.lines)
        return Conversation(
            situation=self.situation.id,
            repeat=self.repeat,
            channel=self.channel.slug,
            lines=lines,
            done=len(done),
            silent=sum(not run.messages.exists() for run in done),
            reason="" if len(done) == lines else reason,
        )

    def done(self) -> list[Run]:
        """The turns that answered the first lines, or passed over them in silence."""
        done: list[Run] = []
        for turn in range(1, len(self.situation.lines) + 1):
            run = self._turns(turn).last()
            if run is None or not _counts(run):
                break
            done.append(run)
        return done

    def _key(self, turn: int) -> str:
        return f"simulation:{self.channel.pk}:{turn}"

    def _turns(self, turn: int) -> QuerySet[Run]:
        """The turns in which the agent answered a line, or tried to."""
        key = f"{self._key(turn)}:"
        return Run.objects.filter(channel=self.channel, idempotency_key__startswith=key).order_by("pk")

    def _say(self, turn: int) -> Run:
        """Say a line and run the agent's turn.

        Raises:
            NotSimulated: The turn failed.
        """
        tags = {**{key: self.channel.tags[key] for key in (SIMULATION, SITUATION, REPEAT)}, TURN: str(turn)}
        line = receive_message(
            channel=self.channel,
            outsider=self.situation.speaker,
            text=self.situation.lines[turn - 1],
            idempotency_key=self._key(turn),
            tags=tags,
        )
        earlier = list(self._turns(turn))
        if earlier and _counts(earlier[-1]):  # meanwhile, by another process that simulates the same
            return earlier[-1]
        attempt = len(earlier) + (not earlier or earlier[-1].status in Run.FINAL)  # an unfinished one is continued
        run = start_turn(
            agent=self.agent,
            channel=self.channel,
            trigger=line,
            overrides={"stages": [], "model": self.model, "tags": tags, "scene": self.first + turn - 1},
            idempotency_key=f"{self._key(turn)}:{attempt}",
        )
        run = finish_turn(run)
        if not _counts(run):
            raise NotSimulated(run.error or f"the turn ended {run.status}")
        return run


def _counts(run: Run) -> bool:
    """Whether a turn answers its line: it completed, or it failed after something had been said."""
    return run.status == Run.Status.COMPLETED or (run.status in Run.FINAL and run.messages.exists())


# -- measuring them
def simulation_spec(spec: RunSpec, simulation: Simulation) -> RunSpec:
    """Return the same measurement of a simulation instead of real speech (AC-6.5.2): of everything the agent said in it.

    Window, tags and history of `spec` are about real speech and do not apply. Channel dimensions are skipped: a simulation has one agent.

    Raises:
        ValueError: `spec` is of another agent.
    """
    if spec.agent is None or spec.agent.pk != simulation.agent.pk:
        raise ValueError(f"{spec.target.slug!r} is not in this simulation; allowed: {simulation.agent.slug!r}")
    return replace(
        spec,
        simulated=True,
        actor_model=simulation.actor_model,
        window=MessageWindow(),
        where={SIMULATION: simulation.id},
        history=MessageWindow(BEFORE),
        history_where={},
        samples=min(max(spec.samples, simulation.messages), MOST_SAMPLES),
    )


def simulate_specs(
    specs: Sequence[RunSpec],
    *,
    situations: Sequence[Situation] = (),
    actor_model: str = "",
    progress: Callable[[str, int, int], None] = lambda agent, done, total: None,
) -> tuple[list[RunSpec], list[Simulation]]:
    """Simulate conversations with agents, and return the specs that measure these, and the simulations.

    Args:
        situations: Simulated with every agent, `RunSpec.repeats` times each; each line is judged once. Without any: our own, with the
            agents that have little speech; what exists under the same persona and model is used again.
        actor_model: Default as configured.
        progress: Called with an agent's slug, the number of lines done, and of all lines.

    Returns:
        The specs, those of simulated agents changed to measure the simulation. With our own situations an agent that was silent
        throughout is measured by its own messages, however few. Other agents that said nothing to measure are left out: the same call
        continues with those whose actor failed.
    """
    ours = () if situations else load_situations()
    measured: list[RunSpec] = []
    simulations: list[Simulation] = []
    for spec in specs:
        if spec.agent is None or (ours and not has_little_speech(spec)):
            measured.append(spec)
            continue
        simulation = simulate(
            agent=spec.agent,
            situations=situations or ours,
            actor_model=actor_model,
            repeats=1 if ours else spec.repeats,
            progress=partial(progress, spec.agent.slug),
            reuse=bool(ours),
        )
        simulations.append(simulation)
        if simulation.usable:
            measured.append(simulation_spec(spec if ours else replace(spec, repeats=1), simulation))
        elif ours and simulation.complete:  # silent throughout, or skipped
            measured.append(spec)
    return measured, simulations


LEASE = timedelta(minutes=10)  # longer than a line takes; extended with every line
Status = EvaluationRun.Status


def awaits_simulation(run: EvaluationRun) -> bool:
    """Whether the simulation that it measures is still to be made."""
    return run.simulated and run.agent_id is not None and SIMULATION not in run.where


def simulate_for(run: EvaluationRun, *, owner: str) -> None:
    """Simulate its situations (else ours) with the agent of a leased run and plan what to judge; the run is pending afterwards.

    Where the actor failed the run is failed, where the agent's budget is used up paused, each with the reason; an agent that was silent
    throughout is measured by its own messages, however few.
    """
    carry_out(run, partial(_simulated, owner=owner), owner=owner)


def _simulated(run: EvaluationRun, *, owner: str) -> dict[str, Any] | None:
    """Simulate and plan; returns the columns of the run's end, None where it goes on."""

    def renew(done: int, total: int) -> None:
        if not run.extend_lease(owner=owner, lease=LEASE):
            raise LeaseLost

    assert run.agent is not None  # noqa: S101 (only an agent's run is simulated)
    renew(0, 0)
    chosen, spec = [Situation.model_validate(one) for one in run.situations], _spec_of(run)
    try:
        simulation = simulate(
            agent=run.agent,
            situations=chosen or load_situations(),
            actor_model=run.actor_model,
            repeats=run.repeats if chosen else 1,
            progress=renew,
            reuse=not chosen,
        )
        if simulation.failed:
            if why := why_over_budget(run.agent, actor_of(run.agent, run.actor_model)):
                return {"status": Status.PAUSED_BUDGET, "error": why}
            return {"status": Status.FAILED, "error": f"not simulated: {simulation.problem}"[:1000]}
        spec = replace(spec, repeats=1) if chosen else spec
        plan_later(run, simulation_spec(spec, simulation) if simulation.usable else spec, owner=owner)
    except PropositionError as error:
        return {"status": Status.FAILED, "error": str(error)}
    return None


def _spec_of(run: EvaluationRun) -> RunSpec:
    """What a run that waits for its simulation asks for, as a spec of real speech."""
    same = ("agent", "samples", "seed", "per_call", "judge", "is_baseline", "repeats", "hard", "double_check", "method")
    return RunSpec(
        **{name: getattr(run, name) for name in (*same, "additional_context")},
        dimensions=tuple(run.dimensions),
        window=replace(parse_window(run.window), start=run.window_start, end=run.window_end),
        history=replace(parse_history(run.history), start=run.history_start, end=run.history_end),
        position_bins=tuple((first, last) for first, last in run.position_bins),
    )

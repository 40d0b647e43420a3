"""Simulate conversations with an agent: the real turn pipeline with every optional stage off, each situation in a channel of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import sentry_sdk
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field

from agents.models import Agent, Channel, ChannelMember, Message, Run
from agents.personas.persona import current_digest
from agents.turn.orchestrator import TurnRefused, finish_turn, start_turn
from agents.turn.receive import receive_message
from agents.turn.scripted import NO_LINES
from agents.turn.send_message import SendRefused
from evaluation.budget import why_over_budget
from evaluation.models import SIMULATION, EvaluationRun, is_heuristic
from evaluation.simulation.situations import Situation, situations_digest

MOST_REPEATS = 20
MOST_NAMED = 5  # unfinished conversations
GIVE_UP_AFTER = 3  # failed conversations in a row: the model is down, the others are not tried
# Tags of channels and messages, beside the simulation's.
SITUATION = "situation"
REPEAT = "repeat"
TURN = "turn"

Progress = Callable[[int, int], None]


def actor_of(agent: Agent, actor_model: str = "") -> str:
    """Return the model that acts as an agent, unless another one is asked for."""
    return actor_model or agent.model_id or str(settings.ACTOR_MODEL)


def why_not_simulated(agent: Agent, actor_model: str = "") -> str:
    """Return why the actor could say nothing as this agent, in a sentence; empty when it could."""
    if not is_heuristic(actor_of(agent, actor_model)):
        return ""
    if any(line.strip() for line in agent.sample_lines):
        return ""
    return f"not simulated: {NO_LINES}"


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
        """Return the conversations of which a line is missing, each with its reason."""
        return tuple(conversation for conversation in self.conversations if not conversation.complete)

    @property
    def usable(self) -> bool:
        """Return whether it can be measured: the agent said something, and its model answered."""
        return self.messages > 0 and all(conversation.tried for conversation in self.conversations)

    @property
    def failed(self) -> bool:
        """Return whether there is nothing to measure because the actor failed: trying again may help."""
        return not self.complete and not self.usable

    @computed_field  # type: ignore[prop-decorator]
    @property
    def problem(self) -> str:
        """Return why there is less to measure than there should be, in a sentence; empty when everything was simulated."""
        if self.skipped:
            return self.skipped
        if self.unfinished:
            return self._why_unfinished()
        if not self.messages:
            return f"the agent said nothing in any of {len(self.conversations)} conversations"
        return ""

    def _why_unfinished(self) -> str:
        """Say how many conversations are not finished, which, and why."""
        unfinished = self.unfinished
        names = ", ".join(conversation.name for conversation in unfinished[:MOST_NAMED])
        if len(unfinished) > MOST_NAMED:
            names += f" and {len(unfinished) - MOST_NAMED} more"
        reasons = "; ".join(dict.fromkeys(conversation.reason for conversation in unfinished))
        return f"{len(unfinished)} of {len(self.conversations)} conversations not finished ({names}): {reasons}"


def simulations_json(simulations: Sequence[Simulation]) -> dict[str, Any]:
    """Return the entry ``simulations`` of a command's object; nothing without any."""
    if not simulations:
        return {}
    return {"simulations": [simulation.model_dump(by_alias=True) for simulation in simulations]}


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
        progress: Called with the number of lines done, and of all lines.
        reuse: Use the newest simulation of the same, whatever its age and even if it was measured, and only add what it lacks.

    Raises:
        ValueError: No situation, or repeats out of range.
    """
    if not situations:
        raise ValueError("no situation to simulate; allowed: at least 1")
    if not 1 <= repeats <= MOST_REPEATS:
        raise ValueError(f"repeats {repeats}: 1 to {MOST_REPEATS}")
    model = actor_of(agent, actor_model)
    why_not = why_not_simulated(agent, actor_model)
    if why_not:
        return Simulation(
            id="",
            agent=agent,
            actor_model=model,
            skipped=why_not,
            persona_digest=current_digest(agent),
            conversations=(),
            messages=0,
        )
    with sentry_sdk.start_span(op="evaluation.simulation", name="simulate conversations") as span:
        span.set_data("agent", agent.pk)
        prepared = prepare(agent, situations, model, repeats, reuse=reuse)
        scenes = prepared.scenes
        span.set_data("simulation", prepared.id)
        conversations = _converse(scenes, progress)
    channels = [scene.channel.pk for scene in scenes]
    spoken = Message.objects.filter(channel__in=channels, agent=agent, synthetic=True)
    return Simulation(
        id=prepared.id,
        agent=agent,
        actor_model=model,
        persona_digest=scenes[0].persona_digest,
        conversations=conversations,
        messages=spoken.filter(text__regex=r"\S").count(),
        resumed=prepared.resumed,
    )


# -- the channels
class PreparedSimulation(NamedTuple):
    """A simulation's id, its conversations with their channels, and whether it continues an earlier one."""

    id: str
    scenes: list[Scene]
    resumed: bool


def prepare(
    agent: Agent, situations: Sequence[Situation], model: str, repeats: int, *, reuse: bool | None
) -> PreparedSimulation:
    """Store the channels of a simulation: those of the newest of the same if it is to be continued, else new ones.

    Args:
        reuse: False: it is continued until a completed evaluation measured it. True: always. None: never.

    Returns:
        A scene for each situation and repeat, the first repeat of all situations first; nothing has been said in new ones.
    """
    persona_digest = current_digest(agent)
    digest = _digest_of_same(agent, persona_digest, situations, model, repeats)
    prefix = f"{agent.slug[:40]}-talk-{digest}-"
    with transaction.atomic():
        # Two processes that start at once must find each other's channels: SQLite lets one writer in, PostgreSQL locks the agent
        # (not its key: what it says elsewhere refers to that, and does not wait).
        Agent.objects.select_for_update(no_key=True).get(pk=agent.pk)
        number = _newest_number(prefix)
        resumed = number > 0 and _is_continued(f"{digest}-{number}", reuse)
        if not resumed:
            number += 1
        simulation_id = f"{digest}-{number}"
        prefix = f"{prefix}{number}-"
        channels = {
            channel.slug: channel for channel in Channel.objects.filter(slug__startswith=prefix, synthetic=True)
        }
        scenes: list[Scene] = []
        first_line = 0
        for repeat in range(1, repeats + 1):
            for situation_number, situation in enumerate(situations, 1):
                slug = f"{prefix}{situation_number:02}-{repeat}"  # slug and name are shown to the agent: they say nothing of what comes
                channel = channels.get(slug) or _new_channel(slug, agent, situation, repeat, simulation_id)
                scenes.append(Scene(agent, model, persona_digest, situation, repeat, channel, first_line))
                first_line += len(situation.lines)
        Channel.objects.bulk_create([scene.channel for scene in scenes if scene.channel.pk is None])
        members = [ChannelMember(channel=scene.channel, agent=agent) for scene in scenes]
        ChannelMember.objects.bulk_create(members, ignore_conflicts=True)
    return PreparedSimulation(simulation_id, scenes, resumed)


def _digest_of_same(
    agent: Agent, persona_digest: str, situations: Sequence[Situation], model: str, repeats: int
) -> str:
    """Return a digest that is equal for simulations of the same."""
    parts = [agent.pk, persona_digest, situations_digest(situations), model, repeats]
    if is_heuristic(model):  # the scripted actor says its sample lines, which are no part of the persona
        parts.append(agent.sample_lines)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _newest_number(prefix: str) -> int:
    """Return the number of the newest simulation whose channels have this prefix; 0 when there is none."""
    newest = 0
    slugs = Channel.objects.filter(slug__startswith=prefix, synthetic=True).values_list("slug", flat=True)
    for slug in slugs:
        number = slug.removeprefix(prefix).partition("-")[0]
        if number.isdecimal():
            newest = max(newest, int(number))
    return newest


def _is_continued(simulation_id: str, reuse: bool | None) -> bool:
    """Return whether an earlier simulation is continued; `reuse` as for `prepare`."""
    if reuse is None:
        return False
    if reuse:
        return True
    measured = EvaluationRun.objects.filter(simulated=True, status=EvaluationRun.Status.COMPLETED)
    return not measured.filter(where__simulation=simulation_id).exists()


def _new_channel(slug: str, agent: Agent, situation: Situation, repeat: int, simulation_id: str) -> Channel:
    """Return a channel for a situation; it is not stored."""
    return Channel(
        slug=slug,
        name=f"{agent.display_name} and {situation.speaker}"[:200],
        kind="private",
        synthetic=True,
        tags={SIMULATION: simulation_id, SITUATION: situation.id, REPEAT: str(repeat)},
    )


# -- the conversations
def _converse(scenes: Sequence[Scene], progress: Progress) -> tuple[Conversation, ...]:
    """Simulate one conversation after the other, until three in a row failed.

    Those after that are returned as they were left before; they count as tried only if they were complete.
    """
    total = sum(len(scene.situation.lines) for scene in scenes)
    failed_in_a_row = 0
    conversations: list[Conversation] = []
    for scene in scenes:
        if failed_in_a_row < GIVE_UP_AFTER:
            conversation = scene.simulate(progress, total)
            failed_in_a_row = 0 if conversation.complete else failed_in_a_row + 1
        else:
            reason = f"not tried after {failed_in_a_row} in a row had failed"
            conversation = scene.conversation(scene.answered_turns(), reason)
            conversation = conversation.model_copy(update={"tried": conversation.complete})
        conversations.append(conversation)
        progress(scene.first_line + len(scene.situation.lines), total)
    return tuple(conversations)


@dataclass(frozen=True, slots=True)
class Scene:
    """One conversation to simulate, and its channel. `first_line`: the number of its first line in the simulation, from 0."""

    agent: Agent
    model: str
    persona_digest: str
    situation: Situation
    repeat: int
    channel: Channel
    first_line: int

    def simulate(self, progress: Progress, total: int) -> Conversation:
        """Say the lines that are missing, until one fails, the persona is changed, or the budget is used up; say how far it came, and why.

        Args:
            progress: Called after each line but the last.
            total: Lines of the whole simulation.
        """
        answered = self.answered_turns()
        lines = len(self.situation.lines)
        try:
            for turn in range(len(answered) + 1, lines + 1):
                if current_digest(Agent.objects.get(pk=self.agent.pk)) != self.persona_digest:
                    raise NotSimulated("the persona was changed meanwhile")
                over_budget = why_over_budget(self.agent, self.model)
                if over_budget:
                    raise NotSimulated(over_budget)
                answered.append(self._say(turn))
                if turn < lines:
                    progress(self.first_line + turn, total)
        except (NotSimulated, TurnRefused, SendRefused) as error:
            return self.conversation(answered, str(error))
        return self.conversation(answered)

    def conversation(self, answered: Sequence[Run], reason: str = "") -> Conversation:
        """Return the conversation as far as it was simulated.

        Args:
            reason: Why the other lines are missing.
        """
        lines = len(self.situation.lines)
        return Conversation(
            situation=self.situation.id,
            repeat=self.repeat,
            channel=self.channel.slug,
            lines=lines,
            done=len(answered),
            silent=sum(not run.messages.exists() for run in answered),
            reason="" if len(answered) == lines else reason,
        )

    def answered_turns(self) -> list[Run]:
        """Return the turns that answered the first lines, or passed over them in silence, up to the first line without one."""
        answered: list[Run] = []
        for turn in range(1, len(self.situation.lines) + 1):
            run = self._turns(turn).last()
            if run is None or not _answers_line(run):
                break
            answered.append(run)
        return answered

    def _key(self, turn: int) -> str:
        """Return the idempotency key of a line."""
        return f"simulation:{self.channel.pk}:{turn}"

    def _turns(self, turn: int) -> QuerySet[Run]:
        """Return the turns in which the agent answered a line, or tried to, oldest first."""
        key = f"{self._key(turn)}:"
        return Run.objects.filter(channel=self.channel, idempotency_key__startswith=key).order_by("pk")

    def _say(self, turn: int) -> Run:
        """Say a line, unless it was said before, and run the agent's turn, unless the line was answered meanwhile; return that turn.

        A turn that had not ended is continued; after one that failed a new attempt is made.

        Raises:
            NotSimulated: The turn failed.
            TurnRefused, SendRefused: It could not be started, or its message not be sent.
        """
        tags = {key: self.channel.tags[key] for key in (SIMULATION, SITUATION, REPEAT)}
        tags[TURN] = str(turn)
        line = receive_message(
            channel=self.channel,
            outsider=self.situation.speaker,
            text=self.situation.lines[turn - 1],
            idempotency_key=self._key(turn),
            tags=tags,
        )
        earlier = list(self._turns(turn))
        if earlier and _answers_line(earlier[-1]):  # meanwhile, by another process that simulates the same
            return earlier[-1]
        attempt = len(earlier)
        if not earlier or earlier[-1].status in Run.FINAL:  # an unfinished one is continued
            attempt += 1
        run = start_turn(
            agent=self.agent,
            channel=self.channel,
            trigger=line,
            overrides={"stages": [], "model": self.model, "tags": tags, "scene": self.first_line + turn - 1},
            idempotency_key=f"{self._key(turn)}:{attempt}",
        )
        run = finish_turn(run)
        if not _answers_line(run):
            raise NotSimulated(run.error or f"the turn ended {run.status}")
        return run


def _answers_line(run: Run) -> bool:
    """Return whether a turn answers its line: it completed, or it failed after something had been said."""
    if run.status == Run.Status.COMPLETED:
        return True
    return run.status in Run.FINAL and run.messages.exists()

"""Simulate conversations with an agent: the real turn pipeline with every optional stage off, each situation in a channel of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

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
GIVE_UP_AFTER = 3  # failed conversations in a row: the model is down, the others are not tried
SITUATION, REPEAT, TURN = "situation", "repeat", "turn"  # tags of channels and messages, beside the simulation's

Progress = Callable[[int, int], None]


def actor_of(agent: Agent, actor_model: str = "") -> str:
    """The model that acts as an agent, unless another one is asked for."""
    return actor_model or agent.model_id or str(settings.ACTOR_MODEL)


def why_not_simulated(agent: Agent, actor_model: str = "") -> str:
    """Why the actor could say nothing as this agent, in a sentence; empty when it could."""
    speaks = any(line.strip() for line in agent.sample_lines) or not is_heuristic(actor_of(agent, actor_model))
    return "" if speaks else f"not simulated: {NO_LINES}"


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

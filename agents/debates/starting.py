"""Check what a debate is asked for, and start it: its seats, settings and channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from pydantic import Field, ValidationError

from agents.debates.measures import MOST_ROUNDS, Criteria
from agents.debates.models import Debate, DebateSeat
from agents.debates.modes import Mode, labels_for, mode_of
from agents.kit.llm.endpoints import model_of, problem_of
from agents.kit.llm.providers import is_heuristic
from agents.kit.text.fences import fault_of
from agents.models import Agent, Channel, ChannelMember, Run
from agents.models.conversations import FieldRefused, UnknownAgent, find_agent

MOST_SEATS = 20
TOPIC_CHARACTERS = 2_000

ExtraRounds = Annotated[int, Field(ge=0, le=10)]


class DebateRefused(FieldRefused):
    """The debate cannot be started or go on."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(field, why)
        self.names_nothing = field in ("agents", "models", "debate")


class Settings(Criteria):
    """The settings of a debate: when it ends (`Criteria`), and what is done around its rounds.

    Attributes:
        poll: Ask every seat before the first round, without showing it another's answer (round 0).
        judge: Ask the judge after each round how far the answers agree.
        extra_rounds_on_groupthink: Rounds played at most where the debate would end and groupthink is detected.
        config: What the mode itself is given, e.g. the perspectives of an expert panel.
    """

    poll: bool = True
    judge: bool = True
    extra_rounds_on_groupthink: ExtraRounds = 0
    config: dict[str, Any] = Field(default_factory=dict)

    @property
    def most_rounds(self) -> int:
        """Rounds that are played at most, the poll not counted."""
        return self.max_rounds + self.extra_rounds_on_groupthink


def settings_of(debate: Debate) -> Settings:
    """Return the settings of a stored debate."""
    return Settings.model_validate(debate.settings)


def start_debate(
    *,
    topic: str,
    mode: str,
    agents: Sequence[Agent | str],
    rounds: int = 5,
    models: Mapping[str, str] | None = None,
    real: bool = False,
    user: AbstractBaseUser | None = None,
    **settings: Any,
) -> Debate:
    """Store a debate with its channel, seats and members; it waits until rounds are asked for. Nothing is written when it is refused.

    Args:
        topic: The question, 1 to 2,000 characters.
        mode: One of `MODES`.
        agents: Agents, or their slugs, in the order of the seats; 2 to 20 different ones, active and not busy.
        rounds: Most rounds, the poll not counted, 1 to 100.
        models: The model that acts for a seat, by number of the seat (as text) or slug of the agent; None = each agent's own.
        real: Whether its messages are ordinary speech of the agents. Otherwise they are marked synthetic.
        user: Who started it.
        settings: Further fields of `Settings`, and of the mode's own configuration (`perspectives`, `assignment`, `seed`).

    Raises:
        DebateRefused: An argument is not allowed.
    """
    topic = topic.strip()
    if not 1 <= len(topic) <= TOPIC_CHARACTERS:
        raise DebateRefused("topic", f"{len(topic):,} characters; allowed: 1 to {TOPIC_CHARACTERS:,}")
    if fault := fault_of(topic):
        raise DebateRefused("topic", fault)
    try:
        rules = mode_of(mode)
    except ValueError as error:
        raise DebateRefused("mode", str(error)) from None
    chosen = checked_settings(rules, rounds, settings)
    seated = _checked_agents(rules, agents)
    model_by_seat = _checked_models(seated, models or {})
    try:
        perspectives = rules.perspectives(len(seated), chosen.config)
    except ValidationError as error:
        raise _refusal_of(error) from None
    except ValueError as error:
        raise DebateRefused("perspectives", str(error)) from None
    labels = labels_for(seated)
    with transaction.atomic():
        channel = _new_channel(topic, synthetic=not real)
        debate: Debate = Debate.objects.create(
            channel=channel, mode=mode, topic=topic, settings=chosen.model_dump(mode="json"), created_by=user
        )
        seats = []
        for number, agent in enumerate(seated, 1):
            seat = DebateSeat(
                debate=debate,
                number=number,
                agent=agent,
                role=rules.get_agent_role(number, len(seated)),
                perspective=perspectives[number - 1],
                label=labels[number - 1],
                model=model_by_seat.get(number, ""),
            )
            seats.append(seat)
        DebateSeat.objects.bulk_create(seats)
        ChannelMember.objects.bulk_create(ChannelMember(channel=channel, agent=agent) for agent in seated)
    return debate


def checked_settings(rules: Mode, rounds: int, values: Mapping[str, Any]) -> Settings:
    """Return the settings of a debate: those given, and defaults for the others.

    Args:
        rules: The mode, which says what its own configuration may hold.
        values: Fields of `Settings`, and of the mode's own configuration, also within `config`.

    Raises:
        DebateRefused: One is unknown or has a value that is not allowed.
    """
    own: dict[str, Any] = {}
    config: dict[str, Any] = dict(values.get("config") or {})
    for name, value in values.items():
        if name == "config":
            continue
        if name in Settings.model_fields:
            own[name] = value
        else:
            config[name] = value
    unknown = next((name for name in config if name not in rules.config.model_fields), "")
    if unknown:
        allowed = ({*Settings.model_fields, *rules.config.model_fields} - {"config", "max_rounds"}) | {"rounds"}
        raise DebateRefused(unknown, f"not a setting of {rules.name}; allowed: {', '.join(sorted(allowed))}")
    try:
        return Settings.model_validate({**own, "max_rounds": rounds, "config": config})
    except ValidationError as error:
        raise _refusal_of(error) from None


def _refusal_of(error: ValidationError) -> DebateRefused:
    """Return the refusal for the first setting that is not allowed, under the name people give it (`rounds`, not `max_rounds`)."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"])).replace("max_rounds", "rounds")
    why = f"{str(first['input'])[:80]!r}: {first['msg'].removeprefix('Value error, ')}"
    if name == "rounds":
        why += f"; allowed: 1 to {MOST_ROUNDS}"
    return DebateRefused(name, why)


def _checked_agents(rules: Mode, named: Sequence[Agent | str]) -> list[Agent]:
    """Return the agents of the seats.

    Raises:
        DebateRefused: There are too few or too many, one is unknown, named twice, inactive or busy.
    """
    try:
        agents = [agent if isinstance(agent, Agent) else find_agent(agent) for agent in named]
    except UnknownAgent as error:
        raise DebateRefused("agents", str(error)) from None
    allowed = f"{rules.min_seats} to {MOST_SEATS} different agents"
    if not rules.min_seats <= len(agents) <= MOST_SEATS:
        raise DebateRefused("agents", f"{len(agents)} named; allowed in the mode {rules.name}: {allowed}")
    slugs = [agent.slug for agent in agents]
    for agent in agents:
        if slugs.count(agent.slug) > 1:
            raise DebateRefused("agents", f"{agent.slug!r} is named twice; allowed: {allowed}")
    for agent in agents:
        if not agent.is_active:
            raise DebateRefused("agents", f"{agent.slug!r} is inactive; allowed: active agents")
        if busy := _where_busy(agent):
            raise DebateRefused("agents", f"{agent.slug!r} is busy ({busy}); allowed: agents that act nowhere else now")
    return agents


def _where_busy(agent: Agent) -> str:
    """Return where the agent acts at the moment, in a debate or in a turn of its own; empty when it is free."""
    debate = Debate.objects.filter(seats__agent=agent, status__in=Debate.OPEN).first()
    if debate is not None:
        return f"debate {debate.pk} is {debate.status}"
    run = Run.objects.filter(agent=agent, status=Run.Status.RUNNING).select_related("channel").first()
    if run is None:
        return ""
    return f"turn {run.pk} in {run.channel.slug if run.channel else 'a deleted channel'}"


def _checked_models(agents: Sequence[Agent], models: Mapping[str, str]) -> dict[int, str]:
    """Return the model that acts for a seat, by the seat's number.

    Args:
        models: By the seat's number or the agent's slug.

    Raises:
        DebateRefused: There is no such seat, or the model cannot be called.
    """
    seat_numbers: dict[str, int] = {}  # by both names a seat has
    for number, agent in enumerate(agents, 1):
        seat_numbers[str(number)] = number
        seat_numbers[agent.slug] = number
    model_by_seat: dict[int, str] = {}
    for name, model in models.items():
        if name not in seat_numbers:
            raise DebateRefused("models", f"there is no seat {name!r}; allowed: {', '.join(seat_numbers)}")
        if not 0 < len(model.strip()) <= 200:
            raise DebateRefused("models", f"the model of seat {name} is {model[:80]!r}; allowed: 1 to 200 characters")
        if problem := problem_of("actor", model.strip()):
            raise DebateRefused("models", f"the model of seat {name} cannot be called: {problem}")
        model_by_seat[seat_numbers[name]] = model.strip()
    return model_by_seat


def _new_channel(topic: str, *, synthetic: bool) -> Channel:
    """Make a channel for a debate. Its slug is counted, not random: what a seat is shown can be replayed.

    It does not hold words of the question: slug and tags stay when the question is erased.
    """
    # The number after that of the newest debate's channel; one that is taken meanwhile is passed over.
    newest = Debate.objects.order_by("-pk").values_list("channel__slug", flat=True).first() or ""
    suffix = newest.rpartition("-")[2]
    number = int(suffix) if suffix.isdecimal() else 0
    while True:
        number += 1
        slug = f"{Debate.TAG}-{number}"
        with suppress(IntegrityError), transaction.atomic():
            channel: Channel = Channel.objects.create(
                slug=slug,
                name=topic[:200],
                kind=Channel.Kind.DEBATE,
                topic=topic,
                tags={Debate.TAG: slug},
                synthetic=synthetic,
            )
            return channel


def silent_offline(debate: Debate) -> list[str]:
    """Return the slugs of the seats that would say nothing: a script acts for them, and their agents have no sample lines to say."""
    script = settings_of(debate).config.get("script", {})
    silent = []
    for seat in debate.seats.select_related("agent").order_by("number"):
        if lacks_lines(seat.agent, seat.model) and not script.get(str(seat.number)):
            silent.append(seat.agent.slug)
    return silent


def lacks_lines(agent: Agent, model: str = "") -> bool:
    """Return whether a script acts for the agent and has no line to say."""
    is_scripted = is_heuristic(model or agent.model_id or model_of("actor"))
    return is_scripted and not any(line.strip() for line in agent.sample_lines)

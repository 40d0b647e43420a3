"""Make swarms and assign them to agents: what could not work is refused with the field and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from django.db import IntegrityError, transaction
from django.db.models import Model
from pydantic import Field, StringConstraints, model_validator

from agents.kit.bodies import ABSENT, Body, validate
from agents.kit.capability import declared
from agents.kit.use_cases import FieldDisplay
from agents.models import Agent
from agents.models.conversations import FieldRefused
from agents.swarm.intents import intents as known_intents
from agents.swarm.models import Swarm, SwarmPhase


class SwarmRefused(FieldRefused):
    """A swarm cannot be made or assigned like this."""


def _about(model: type[Model], name: str) -> str:
    """Return what the console says of a column."""
    column: Any = model._meta.get_field(name)
    return str(column.help_text)


Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


MOST_PHASES = 50  # of a swarm


def _moments() -> Sequence[tuple[str, str]]:
    return SwarmPhase.Phase.choices


class PhaseRequest(Body):
    """A phase as it is to be. One whose prompt or temperature is new gets its next version."""

    name: Name = Field(description=_about(SwarmPhase, "name"))
    phase: Annotated[Literal["pre", "main", "post"], FieldDisplay(choices=_moments)] = Field(
        description=_about(SwarmPhase, "phase")
    )
    order: int = Field(ge=1, le=1000, description=_about(SwarmPhase, "order"))
    prompt: Annotated[str, FieldDisplay(is_long=True)] = Field(
        min_length=1, max_length=20_000, description=_about(SwarmPhase, "prompt")
    )
    enabled: bool = Field(True, description=_about(SwarmPhase, "enabled"))
    temperature: float = Field(
        ABSENT,
        ge=0,
        le=2,
        allow_inf_nan=False,
        description=f"{_about(SwarmPhase, 'temperature')}; default 0.55, after the answer 0.4",
    )

    @model_validator(mode="after")
    def _set_usual_temperature(self) -> Self:
        """Set that of specification 003 where none is given: polishers are to be faithful, the others natural."""
        if self.temperature is ABSENT:
            self.temperature = 0.4 if self.phase == "post" else 0.55
        return self


class SwarmRequest(Body):
    """A swarm as it is to be, with all its phases."""

    name: Name = Field(description=_about(Swarm, "name"))
    intents: list[str] = Field(min_length=1, max_length=100, description=_about(Swarm, "intents"))
    tools: list[str] = Field([], max_length=100, description=_about(Swarm, "tools"))
    enabled: bool = Field(True, description=_about(Swarm, "enabled"))
    post_executor: Literal["combined", "sequential", "off"] = Field(
        "combined", description=_about(Swarm, "post_executor")
    )
    phases: list[PhaseRequest] = Field([], max_length=MOST_PHASES)


def save_swarm(
    values: Mapping[str, Any], *, swarm: Swarm | None = None, agents: Sequence[Agent] | None = None
) -> Swarm:
    """Make a swarm, or change `swarm`, with all its phases. A phase whose prompt or temperature changes gets its next version.

    Args:
        values: Fields of `SwarmRequest`; those that are left out get their defaults, and phases that are not among them are removed.
        swarm: The one to change; None: a new one is made.
        agents: All that are to have it; None: those that have it now.

    Raises:
        Refused: A value is not allowed, the name is in use, or an agent would have two swarms for one intent; nothing is written.
    """
    checked = check_values(values)
    with transaction.atomic():
        swarm = swarm or Swarm()
        for name, value in checked.model_dump(exclude={"phases"}).items():
            setattr(swarm, name, value)
        try:
            with transaction.atomic():  # a savepoint: the transaction around it can go on after an IntegrityError
                swarm.save()
        except IntegrityError:
            raise SwarmRefused("name", f"{checked.name!r} is in use; allowed: another name") from None
        _save_phases(swarm, checked.phases)
        if agents is not None:
            swarm.agents.set(agents)
        for agent in swarm.agents.order_by("pk"):  # in one order: two changes at a time wait for each other
            check_clashes(agent, agent.swarms.order_by("updated_at"))  # this one comes last
    return swarm


def save_phase(values: Mapping[str, Any], *, swarm: Swarm, phase: SwarmPhase | None = None) -> SwarmPhase:
    """Make a phase of a swarm, or change `phase`; the others stay. A new prompt or temperature makes its next version.

    Args:
        values: Fields of `PhaseRequest`.

    Raises:
        Refused: A value is not allowed, the name is in use in this swarm, or it has `MOST_PHASES` already; nothing is written.
    """
    checked = validate(PhaseRequest, dict(values))
    if phase is None and swarm.phases.count() >= MOST_PHASES:
        raise SwarmRefused("phases", f"{swarm.name!r} has {MOST_PHASES}; allowed: at most {MOST_PHASES}")
    try:
        with transaction.atomic():
            return _store_phase(phase or SwarmPhase(swarm=swarm, version=0), checked)
    except IntegrityError:
        raise SwarmRefused("name", f"{checked.name!r} is in use; allowed: another name") from None


def ensure_swarm(values: Mapping[str, Any]) -> Swarm:
    """Return the stored swarm of this name, or a new one with these values. What people changed stays as it is; no agent is assigned."""
    return Swarm.objects.filter(name=values["name"]).first() or save_swarm(values)


def check_values(values: Mapping[str, Any]) -> SwarmRequest:
    """Check the fields of a swarm and return them; what needs the database, such as clashes with other swarms, is not checked.

    Raises:
        Refused: A value is not allowed, an intent or a tool is unknown, or two phases have one name.
    """
    checked = validate(SwarmRequest, dict(values))
    check_names("intents", checked.intents, known_intents())
    check_names("tools", checked.tools, sorted(declared("turn_tools")))
    names = [phase.name for phase in checked.phases]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise SwarmRefused("phases.name", f"{twice!r} is there twice; allowed: different names")
    return checked


def assign_swarms(*, agent: Agent, swarms: Sequence[Swarm | str]) -> None:
    """Let these swarms, and no others, take part in an agent's turns; none: its turns are as without swarms.

    Raises:
        SwarmRefused: There is no such swarm, or two of them answer the same intent; nothing is written.
    """
    names = [swarm.name if isinstance(swarm, Swarm) else swarm for swarm in swarms]
    with transaction.atomic():
        rows = {swarm.name: swarm for swarm in Swarm.objects.all()}
        check_names("swarms", names, sorted(rows))
        chosen = [rows[name] for name in names]
        check_clashes(agent, chosen)
        agent.swarms.set(chosen)


def check_names(field: str, names: Any, allowed: Sequence[str]) -> None:
    """Raise `SwarmRefused` where they are no list of names, or a name is unknown or there twice.

    Args:
        field: Named in the error.
        names: Not checked yet: anything that was sent.
    """
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SwarmRefused(field, f'{str(names)[:80]!r}; allowed: a list of names, e.g. ["general"]')
    for name in names:
        if name not in allowed:
            raise SwarmRefused(
                field, f"{name!r} is unknown; allowed: {', '.join(allowed) or 'none, there are none yet'}"
            )
        if names.count(name) > 1:
            raise SwarmRefused(field, f"{name!r} is named twice; allowed: each once")


def check_clashes(agent: Agent, swarms: Iterable[Swarm]) -> None:
    """Raise `SwarmRefused` where two of the enabled swarms answer the same intent. Call it inside the transaction that saves them.

    Args:
        swarms: A query is read when the agent is locked: others may have changed its swarms until then.
    """
    Agent.objects.select_for_update().get(pk=agent.pk)  # two changes at a time could each be free of clashes
    answering: dict[str, str] = {}
    for swarm in (swarm for swarm in swarms if swarm.enabled):
        for intent in swarm.intents:
            if intent in answering:
                why = f"{intent!r} of agent {agent.slug!r} is answered by {answering[intent]!r} and {swarm.name!r}"
                raise SwarmRefused("intents", f"{why}; allowed: one enabled swarm for each intent")
            answering[intent] = swarm.name


def _save_phases(swarm: Swarm, phases: Sequence[PhaseRequest]) -> None:
    """Make a swarm's phases, known by their names, equal to these; others are deleted, unchanged ones are not saved again.

    A new one is version 1; a new prompt or temperature makes the next version, another change does not.
    """
    swarm.phases.exclude(name__in=[phase.name for phase in phases]).delete()
    before = {phase.name: phase for phase in swarm.phases.all()}
    for request in phases:
        _store_phase(before.get(request.name) or SwarmPhase(swarm=swarm, name=request.name, version=0), request)


def _store_phase(phase: SwarmPhase, request: PhaseRequest) -> SwarmPhase:
    """Make a phase equal to what is wanted and save it, unless nothing changes: each save is an entry of its history.

    Args:
        phase: A new one has version 0.
    """
    values = request.model_dump()
    changed = {name for name, value in values.items() if getattr(phase, name) != value}
    if phase.version == 0 or changed & {"prompt", "temperature"}:
        phase.version += 1
    for name, value in values.items():
        setattr(phase, name, value)
    if phase.pk is None or changed:
        phase.save()
    return phase

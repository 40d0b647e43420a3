"""Make swarms and assign them to agents: what could not work is refused with the field and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from django.db import IntegrityError, transaction
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agents.kit.capability import declared
from agents.models import Agent
from agents.models.conversations import FieldRefused
from agents.swarm.intents import intents as known_intents
from agents.swarm.models import Swarm, SwarmPhase


class SwarmRefused(FieldRefused):
    """A swarm cannot be made or assigned like this."""


_SHOULD = re.compile(r"^\w+ should (?:be|have) ")
Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class PhaseValues(BaseModel):
    """A phase as it is given. One whose prompt or temperature is new gets its next version."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    phase: Literal["pre", "main", "post"]
    order: Annotated[int, Field(ge=1, le=1000, description="within its phase, from 1")]
    prompt: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000)]
    enabled: bool = True
    temperature: float = Field(
        0.55, ge=0, le=2, allow_inf_nan=False, description="sent only to servers known to take it"
    )


class SwarmValues(BaseModel):
    """A swarm as it is to be, with all its phases."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    intents: list[str] = Field(min_length=1, max_length=100, description="of messages that it answers")
    tools: list[str] = Field([], max_length=100, description="names of the tools that it offers besides the usual ones")
    enabled: bool = True
    post_executor: Literal["combined", "sequential", "off"] = "combined"
    phases: list[PhaseValues] = Field([], max_length=50)


def save_swarm(values: Mapping[str, Any], *, swarm: Swarm | None = None) -> Swarm:
    """Make a swarm, or change `swarm`, with all its phases. A phase whose prompt or temperature changes gets its next version.

    Args:
        values: Fields of `SwarmValues`, all of them; phases that are not among them are removed.
        swarm: The one to change.

    Raises:
        SwarmRefused: A value is not allowed; nothing is written.
    """
    checked = check_values(values)
    with transaction.atomic():
        swarm = swarm or Swarm()
        for name, value in checked.model_dump(exclude={"phases"}).items():
            setattr(swarm, name, value)
        try:
            with transaction.atomic():
                swarm.save()
        except IntegrityError:
            raise SwarmRefused("name", f"{checked.name!r} is in use; allowed: another name") from None
        _save_phases(swarm, checked.phases)
        for agent in swarm.agents.order_by("pk"):  # in one order: two changes at a time wait for each other
            check_clashes(agent, agent.swarms.all())
    return swarm


def ensure_swarm(values: Mapping[str, Any]) -> Swarm:
    """The stored swarm of this name, or a new one with these values. What people changed stays as it is; no agent is assigned."""
    return Swarm.objects.filter(name=values["name"]).first() or save_swarm(values)


def check_values(values: Any) -> SwarmValues:
    """Check what is checked of a swarm, without the database.

    Raises:
        SwarmRefused: A value is not allowed.
    """
    try:
        checked = SwarmValues.model_validate(values)
    except ValidationError as error:
        raise _refused(error) from None
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
    named = [swarm.name if isinstance(swarm, Swarm) else swarm for swarm in swarms]
    with transaction.atomic():
        rows = {swarm.name: swarm for swarm in Swarm.objects.all()}
        check_names("swarms", named, sorted(rows))
        chosen = [rows[name] for name in named]
        check_clashes(agent, chosen)
        agent.swarms.set(chosen)


def check_names(field: str, names: Any, allowed: Sequence[str]) -> None:
    """Raise `SwarmRefused` where they are no list of names, or a name is unknown or there twice."""
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
    """Raise `SwarmRefused` where two of the enabled swarms answer the same intent. Call it inside the transaction that saves them."""
    Agent.objects.select_for_update().get(pk=agent.pk)  # two changes at a time could each be free of clashes
    answering: dict[str, str] = {}
    for swarm in (swarm for swarm in swarms if swarm.enabled):
        for intent in swarm.intents:
            if intent in answering:
                why = f"{intent!r} of agent {agent.slug!r} is answered by {answering[intent]!r} and {swarm.name!r}"
                raise SwarmRefused("intents", f"{why}; allowed: one enabled swarm for each intent")
            answering[intent] = swarm.name


def _save_phases(swarm: Swarm, phases: Sequence[PhaseValues]) -> None:
    swarm.phases.exclude(name__in=[phase.name for phase in phases]).delete()
    before = {phase.name: phase for phase in swarm.phases.all()}
    for wanted in phases:
        phase = before.get(wanted.name) or SwarmPhase(swarm=swarm, name=wanted.name, version=0)
        values = wanted.model_dump()
        changed = {name for name, value in values.items() if getattr(phase, name) != value}
        if phase.version == 0 or changed & {"prompt", "temperature"}:
            phase.version += 1
        for name, value in values.items():
            setattr(phase, name, value)
        if phase.pk is None or changed:  # each save is an entry of its history
            phase.save()


def _refused(error: ValidationError) -> SwarmRefused:
    """The first complaint, with the value and what is allowed."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        shape = PhaseValues if len(first["loc"]) > 1 else SwarmValues
        return SwarmRefused(field, f"there is no such field; allowed: {', '.join(shape.model_fields)}")
    value = "it is missing" if first["type"] == "missing" else f"{first['input']!r:.80}"
    return SwarmRefused(field, f"{value}; allowed: {_SHOULD.sub('', first['msg'])}")

"""What several people asked of an agent, each for themself, and making it the persona's own.

Such a request holds towards its person alone (`correction.behavior.scope`). Where many ask for the same, it may be the persona that
should change: people see it on the agent's page and decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import Count, F, Q, QuerySet, Value, Window
from django.db.models.functions import Lower, RowNumber

from agents.models import Agent, PersonaVersion
from agents.personas.persona import TraitValue, current_digest, record_version
from correction.behavior.applying import (
    BehaviorError,
    Conflict,
    lock_agent,
    record_version_and_description,
    write_trait,
)
from correction.behavior.models import BehaviorRequest
from correction.behavior.policy import protected_names
from correction.behavior.scope import holds_for_a_person
from correction.behavior.trait_change import as_value, find_trait, stored_trait
from correction.config.settings import resolve_config

LEAST_PEOPLE = 2
MOST_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRequest:
    """A trait that several people asked for, or asked to stop, each for themself.

    Attributes:
        name: Of the trait, in small letters as the database makes them.
        stops: Whether they asked the agent to stop it.
        people: Number of people for whom it holds now.
    """

    name: str
    stops: bool
    people: int


def shared_requests(*, agent: Agent) -> list[SharedRequest]:
    """Return what at least two people asked for, that of most people first; at most ten. One query."""
    rows = _held_by_people(agent).values("name", "stops").annotate(people=Count("pk"))
    rows = rows.filter(people__gte=LEAST_PEOPLE).order_by("-people", "name", "stops")
    return [SharedRequest(**row) for row in rows[:MOST_LISTED]]


def adopt_shared_request(*, agent: Agent, name: str, stops: bool, user: AbstractBaseUser | None) -> TraitValue:
    """Make what several people asked for a trait of the persona, in a new version; return the trait.

    It is worded as the newest of their requests, with the median of the strengths that they have. Their requests stay as they are. To
    undo it, restore the version before.

    Args:
        name: Of the trait, in any case.
        stops: Whether they asked to stop it.

    Raises:
        BehaviorError: Fewer than two people have asked for it, the trait is protected, the persona has it already, or another writer
            changed the persona at the same time.
    """
    try:
        with transaction.atomic():
            return _adopt_locked(agent, name, stops, user)
    except (IntegrityError, Conflict):
        raise BehaviorError(
            f"{name!r}: the persona was changed by others at the same time; allowed: to try again"
        ) from None


def _adopt_locked(agent: Agent, name: str, stops: bool, user: AbstractBaseUser | None) -> TraitValue:
    """Write the trait that people asked for, with the agent locked. Raises as `adopt_shared_request`."""
    lock_agent(agent.pk)
    trait_by_person: dict[str, TraitValue] = {}
    newest: TraitValue | None = None
    requests = _held_by_people(agent).filter(name=Lower(Value(name)), stops=stops)  # the database's small letters
    for request in requests.order_by("applied_at", "pk"):
        trait = stored_trait(request.trait_after)
        if trait is not None:
            trait_by_person[request.scope_key] = trait
            newest = trait
    if newest is None or len(trait_by_person) < LEAST_PEOPLE:
        raise BehaviorError(f"{name!r}: fewer than {LEAST_PEOPLE} people ask for it now; allowed: what several ask for")
    if protected_names((newest.name,), resolve_config(agent)):
        raise BehaviorError(
            f"the trait {newest.name!r} is protected (behavior_protected_traits); allowed: to edit the trait itself"
        )
    adopted = replace(newest, strength=median(trait.strength for trait in trait_by_person.values()))
    present = find_trait(adopted.name, agent.traits.all())
    if present is not None:
        adopted = replace(adopted, name=present.name)
    if present is not None and as_value(present) == adopted:
        raise BehaviorError(f"the persona has the trait {adopted.name!r} like that already; allowed: to leave it")
    note = f"asked for by {len(trait_by_person)} people"
    latest = PersonaVersion.objects.filter(agent=agent).order_by("-number").first()
    if latest is None or latest.digest != current_digest(agent):  # so that the persona as it is can be restored
        record_version(agent=agent, note=f"before what was {note}")
    write_trait(agent, present, adopted, note)
    record_version_and_description(agent, f"{adopted.name}: {note}", user)
    return adopted


def _held_by_people(agent: Agent) -> QuerySet[Any, Any]:
    """Return the requests that hold towards one person each, with the trait's `name` in small letters and whether it `stops`.

    Of those of one person about one trait the newest alone holds.
    """
    applied = BehaviorRequest.objects.filter(holds_for_a_person(), agent=agent, status=BehaviorRequest.Status.APPLIED)
    age = Window(
        RowNumber(),
        partition_by=[F("scope_key"), Lower("trait_name")],
        order_by=[F("applied_at").desc(), F("pk").desc()],
    )
    newest = applied.order_by().annotate(age=age).filter(age=1)
    is_stop = Q(operation=BehaviorRequest.Operation.STOP)
    rows = BehaviorRequest.objects.filter(pk__in=newest.values("pk")).order_by()
    requests: QuerySet[Any, Any] = rows.annotate(name=Lower("trait_name"), stops=is_stop)
    return requests

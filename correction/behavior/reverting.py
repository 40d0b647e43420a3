"""Taking a change back: the trait becomes exactly what it was, whatever happened to other traits since."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser

from agents.models import Agent, Trait
from agents.persona import TraitValue, record_version
from correction.behavior.description import queue_description
from correction.behavior.errors import BehaviorError, TraitChangedSince
from correction.behavior.map_answer import name_key
from correction.behavior.rules import as_value, find_trait, trait_from_json
from correction.behavior.writing import delete_trait, write_trait
from correction.models import BehaviorRequest


def restore(agent: Agent, row: BehaviorRequest, user: AbstractBaseUser | None, *, anyway: bool) -> None:
    """Undo an applied request, in the caller's transaction and with the agent locked.

    Raises:
        TraitChangedSince: The same trait was changed or deleted since, and `anyway` is false.
        BehaviorError: Another trait has the name that this one had before.
    """
    before = trait_from_json(row.trait_before) if row.trait_before else None
    made = trait_from_json(row.trait_after) if row.trait_after else None
    traits = list(agent.traits.all())
    trait = next((t for t in traits if t.pk == row.trait_id), None)
    if trait is None and made is not None:
        trait = find_trait(made.name, traits)
    now = as_value(trait) if trait is not None else None
    if now == before:
        return
    if now != made and not anyway:
        raise TraitChangedSince(_changed(row, now, made))
    if before is None:
        assert trait is not None  # noqa: S101 (it is not as before: there is one)
        delete_trait(trait)
    else:
        _check_name(row, before, trait, traits)
        write_trait(agent, trait, before, f"behaviour request {row.pk}")
    version = record_version(agent=agent, note=f"revert of behaviour request {row.pk}", user=user)
    if version is not None:
        queue_description(agent=agent, version=version)


def _check_name(row: BehaviorRequest, before: TraitValue, trait: Trait | None, traits: list[Trait]) -> None:
    mine = trait.pk if trait is not None else None
    taken = next((t for t in traits if t.pk != mine and name_key(t.name) == name_key(before.name)), None)
    if taken is not None:
        raise BehaviorError(
            f"{row}: its trait was called {before.name!r} before, and another trait has that name by now; allowed: to rename or delete "
            "that one first"
        )


def _changed(row: BehaviorRequest, now: TraitValue | None, made: TraitValue | None) -> str:
    """What is different, and who did it where that is known."""
    later = (
        BehaviorRequest.objects.filter(
            agent=row.agent_id, trait=row.trait_id, trait__isnull=False, status=BehaviorRequest.Status.APPLIED,
            applied_at__gt=row.applied_at,
        )
        .order_by("-applied_at")
        .values_list("pk", flat=True)
    )  # fmt: skip
    name = made.name if made is not None else row.trait_name
    if now is None:
        what = "was deleted"
    else:
        pairs = zip(("name", "description", "sentiment", "strength"), _values(now), _values(made), strict=True)
        what = "was changed: " + ", ".join(f"{field} is {is_now!r}" for field, is_now, was in pairs if is_now != was)
    by = f" (by behaviour request {later[0]}, which can be reverted first)" if later else ""
    return (
        f"{row}: the trait {name!r} {what} since{by}; allowed: to revert it anyway, by which the trait becomes what it was before this "
        "request"
    )


def _values(trait: TraitValue | None) -> tuple[object, ...]:
    return (trait.name, trait.description, trait.sentiment, trait.strength) if trait is not None else (None,) * 4

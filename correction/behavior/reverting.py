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
    later = _later(row)
    if now == before and not later:
        return
    if (now != made or later) and not anyway:
        raise TraitChangedSince(_changed(row, now, made, later))
    if now == before:
        return
    if (undone := _reverted_below(row)) and not anyway:
        raise TraitChangedSince(
            f"{row}: what the trait was before came of behaviour request {undone}, which was reverted since; allowed: to revert this one "
            "anyway, by which the trait becomes that again, or to edit the trait itself"
        )
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


def _later(row: BehaviorRequest) -> int | None:
    """The last request that was applied to the same trait after this one, and still is."""
    found: int | None = (
        BehaviorRequest.objects.filter(
            agent=row.agent_id, trait=row.trait_id, trait__isnull=False, status=BehaviorRequest.Status.APPLIED,
            applied_at__gt=row.applied_at,
        )
        .order_by("-applied_at")
        .values_list("pk", flat=True)
        .first()
    )  # fmt: skip
    return found


def _reverted_below(row: BehaviorRequest) -> int | None:
    """A request whose result this one changed, and that was reverted while this one stood."""
    reverted = BehaviorRequest.objects.filter(
        agent=row.agent_id, trait=row.trait_id, trait__isnull=False, status=BehaviorRequest.Status.REVERTED,
        applied_at__lt=row.applied_at, reverted_at__gt=row.applied_at,
    ).order_by("-applied_at")  # fmt: skip
    return next((pk for pk, after in reverted.values_list("pk", "trait_after") if after == row.trait_before), None)


def _changed(row: BehaviorRequest, now: TraitValue | None, made: TraitValue | None, later: int | None) -> str:
    """What is different, and who did it where that is known."""
    name = made.name if made is not None else row.trait_name
    by = f" (by behaviour request {later}, which can be reverted first)" if later else ""
    if now is None:
        what = "was deleted"
    else:
        pairs = zip(("name", "description", "sentiment", "strength"), _values(now), _values(made), strict=True)
        different = ", ".join(f"{field} is {is_now!r}" for field, is_now, was in pairs if is_now != was)
        what = f"was changed: {different}" if different else "was changed, and is as this request made it again,"
    return (
        f"{row}: the trait {name!r} {what} since{by}; allowed: to revert it anyway, by which the trait becomes what it was before this "
        "request"
    )


def _values(trait: TraitValue | None) -> tuple[object, ...]:
    return (trait.name, trait.description, trait.sentiment, trait.strength) if trait is not None else (None,) * 4

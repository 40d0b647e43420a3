"""A proposal as it was shown to whoever approves it: that is what is applied, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.persona import TraitLike, TraitValue
from correction.behavior.errors import BehaviorError
from correction.behavior.rules import STOP, Change, Operation, as_value, find_trait, trait_from_json
from correction.models import BehaviorRequest

INSTEAD = "allowed: to edit it, then apply, or to reject it"


def as_proposed(row: BehaviorRequest, traits: Sequence[TraitLike]) -> Change:
    """The change that was shown.

    Args:
        row: What was read from the message, and proposed.
        traits: As they are now.

    Raises:
        BehaviorError: The trait was changed, deleted or made since; says how. What was shown is not what would be done.
    """
    if not row.trait_after:
        return Change(operation="none", why=row.why or "nothing was proposed")
    before = trait_from_json(row.trait_before) if row.trait_before else None
    after = trait_from_json(row.trait_after)
    known = find_trait(before.name if before is not None else after.name, traits)
    now = as_value(known) if known is not None else None
    if now == after:
        return Change(operation="none", why=f"the trait {after.name!r} is like that already")
    if now != before:
        raise BehaviorError(f"{row}: since it was proposed {_what_happened(before, now)}; {INSTEAD}")
    namesake = find_trait(after.name, traits)
    if namesake is not None and namesake is not known:
        raise BehaviorError(f"{row}: there is another trait {namesake.name!r} by now; {INSTEAD}")
    operation: Operation = "stop" if after.strength == STOP else "update" if before is not None else "add"
    return Change(operation=operation, before=before, after=after, touches=_touched(row, before))


def _touched(row: BehaviorRequest, before: TraitValue | None) -> tuple[str, ...]:
    """The names the answer spoke of; what was erased is none of a trait."""
    answer: Mapping[str, Any] = row.map_result if isinstance(row.map_result, dict) else {}
    said = [answer.get("replaces_trait"), *(answer.get("touches") or ())]
    names = [before.name] if before is not None else []
    return tuple(dict.fromkeys([*names, *(name for name in said if isinstance(name, str) and name)]))


def _what_happened(before: TraitValue | None, now: TraitValue | None) -> str:
    if before is None:
        return f"a trait {now.name!r} was made" if now is not None else ""
    if now is None:
        return f"the trait {before.name!r} was deleted or renamed"
    pairs = {
        "name": (before.name, now.name),
        "description": (before.description, now.description),
        "sentiment": (before.sentiment, now.sentiment),
        "strength": (before.strength, now.strength),
    }
    changes = ", ".join(f"{name} is {is_now!r}" for name, (was, is_now) in pairs.items() if was != is_now)
    return f"the trait {before.name!r} was changed: {changes}"

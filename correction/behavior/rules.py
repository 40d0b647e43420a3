"""What becomes of a trait: rules over the mapping's answer and the traits as they are. Pure; no database, no model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from agents.persona import TraitLike, TraitValue
from correction.behavior.map_answer import Answer, Invalid, name_key, read_answer

Operation = Literal["add", "update", "stop", "none"]
Amount = Literal["stop", "rarely", "sometimes", "unspecified", "usually", "always", "more", "less"]

STOP, UNSPECIFIED, ALWAYS = 0.0, 0.5, 0.9
STRENGTHS: Mapping[str, float] = {
    "stop": STOP, "rarely": 0.15, "sometimes": 0.3, "unspecified": UNSPECIFIED, "usually": 0.7, "always": ALWAYS,
}  # fmt: skip
STEP = 0.2  # what "more" adds and "less" takes off
FAINTEST = 0.1  # as far as "less" goes: only "stop" is 0

Like = TypeVar("Like", bound=TraitLike)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a request would do to the traits.

    Attributes:
        operation: ``stop`` whenever the trait ends at strength 0, also when it is new; ``none`` when nothing comes of it.
        before: The trait that is changed, as it is; None for a new one.
        after: What it becomes; None with ``none``.
        why: Why nothing comes of it; empty otherwise.
        invalid: Nothing comes of it because the answer was none, not because nothing is to be done.
        warnings: What was odd about the answer.
        touches: Every trait's name the answer speaks of, also one that does not exist.
        says_what_it_touches: Whether the answer says which other traits it works against.
        contradiction: Why it goes against the core of the persona, as the model says; empty when it does not.
    """

    operation: Operation
    before: TraitValue | None = None
    after: TraitValue | None = None
    why: str = ""
    invalid: bool = False
    warnings: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    says_what_it_touches: bool = False
    contradiction: str = ""


def find_trait(name: str, traits: Iterable[Like]) -> Like | None:
    """The trait of that name: the one written exactly so, else the first that is the same to `name_key`."""
    rows, key = list(traits), name_key(name)
    return next((t for t in rows if t.name == name), None) or next((t for t in rows if name_key(t.name) == key), None)


def as_value(trait: TraitLike) -> TraitValue:
    """A trait without its row."""
    return TraitValue(trait.name, trait.description, float(trait.sentiment), float(trait.strength))


def trait_json(trait: TraitLike) -> dict[str, Any]:
    """What is stored of a trait before and after a change."""
    return {
        "name": trait.name,
        "description": trait.description,
        "sentiment": float(trait.sentiment),
        "strength": float(trait.strength),
    }


def trait_from_json(stored: Mapping[str, Any]) -> TraitValue:
    """The opposite of `trait_json`, exactly."""
    return TraitValue(
        str(stored["name"]), str(stored["description"]), float(stored["sentiment"]), float(stored["strength"])
    )


def strength_of(amount: Amount, current: float | None = None) -> float:
    """The strength a word for *how often* means.

    Args:
        amount: What was asked for.
        current: What the trait has now, 0 to 1; None where there is no such trait.

    Returns:
        0 only for ``stop``, and for ``less`` of what is stopped already. ``more`` and ``less`` go a step from the current value, or from
        the usual one where there is none.
    """
    if amount in ("more", "less"):
        start = UNSPECIFIED if current is None else current
        if amount == "more":
            return min(1.0, round(start + STEP, 3))
        return max(min(start, FAINTEST), round(start - STEP, 3))
    return STRENGTHS[amount]


def read_map(answer: object, *, traits: Sequence[TraitLike]) -> Change:
    """What the mapping's answer comes to, given the traits as they are now.

    `replaces_trait` names what is changed; where there is no such trait, and where it names none, the trait called `name` is, and a new
    one is made when there is none. An empty answer and one that is not valid change nothing.
    """
    if answer == {}:
        return Change(operation="none", why="no change is needed, or the request is too vague to say which")
    try:
        return _change(read_answer(answer), traits)
    except Invalid as error:
        return Change(operation="none", why=f"the answer cannot be used: {error}", invalid=True)


def change_to(trait: TraitValue, *, replaces: str = "", traits: Sequence[TraitLike]) -> Change:
    """What a person's own wording of the trait comes to. It is taken as it stands, also an empty description.

    Raises:
        ValueError: A value is not allowed; says which are.
    """
    answer = {**trait_json(trait), "replaces_trait": replaces or None}
    try:
        read = read_answer(answer)
    except Invalid as error:
        raise ValueError(str(error)) from None
    if read.warnings:
        raise ValueError("; ".join(read.warnings))
    return _change(read, traits, exact=True)


def _change(answer: Answer, traits: Sequence[TraitLike], *, exact: bool = False) -> Change:
    warnings = list(answer.warnings)
    replaced = find_trait(answer.replaces, traits) if answer.replaces else None
    named = find_trait(answer.name, traits)
    if answer.replaces and replaced is None:
        made = "is added as a new one" if named is None else "is updated"
        warnings.append(f"there is no trait {answer.replaces!r} to replace: {answer.name!r} {made}")
    if replaced is not None and named is not None and replaced is not named:
        warnings.append(f"{answer.replaces!r} cannot be renamed, for {named.name!r} exists: that is updated")
    target = named if named is not None else replaced
    if answer.is_new and target is not None and not answer.replaces:
        warnings.append(f"{target.name!r} is not new: it is updated")
    before = as_value(target) if target is not None else None
    after = _after(answer, before, exact=exact)
    others = answer.touches or ()
    touches = dict.fromkeys(filter(None, (before and before.name, answer.name, answer.replaces, *others)))
    common: dict[str, Any] = {
        "before": before,
        "warnings": tuple(warnings),
        "touches": tuple(touches),
        "says_what_it_touches": answer.touches is not None,
        "contradiction": answer.contradiction,
    }
    if after == before:
        return Change(operation="none", why=f"the trait {after.name!r} is like that already", **common)
    operation: Operation = "update" if before is not None else "add"
    return Change(operation="stop" if after.strength == STOP else operation, after=after, **common)


def _after(answer: Answer, before: TraitValue | None, *, exact: bool) -> TraitValue:
    known = before or TraitValue(answer.name, strength=UNSPECIFIED)
    unsaid = (
        UNSPECIFIED if known.strength == STOP and not exact else known.strength
    )  # what is asked for again is not "never"
    strength = unsaid if answer.strength is None else answer.strength
    sentiment = known.sentiment if answer.sentiment is None else answer.sentiment
    if exact or before is None:
        return TraitValue(answer.name, answer.description, sentiment, strength)
    description = answer.description or before.description
    if strength == STOP:  # what is to end is the trait as it is known, not the model's words for its absence
        return TraitValue(before.name, before.description or description, before.sentiment, STOP)
    name = before.name if name_key(answer.name) == name_key(before.name) else answer.name
    return TraitValue(name, description, sentiment, strength)

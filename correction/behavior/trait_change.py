"""Read the mapping's answer, or a person's own wording, as a change of the agent's traits (`read_map`, `change_to`). Asks no model."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import PydanticCustomError

from agents.kit.llm.requests import describe_validation
from agents.personas.persona import TraitLike, TraitValue
from correction.behavior.signs import name_key
from correction.behavior.topics import opposing

Operation = Literal["add", "update", "stop", "none"]
Amount = Literal["stop", "rarely", "sometimes", "unspecified", "usually", "always", "more", "less"]
AnyTrait = TypeVar("AnyTrait", bound=TraitLike)

LONGEST_NAME, LONGEST_DESCRIPTION = 120, 4_000  # characters
MOST_TOUCHED = 50  # names of traits an answer may say it is about
STOP, UNSPECIFIED, ALWAYS = 0.0, 0.5, 0.9
STRENGTHS: Mapping[str, float] = {
    "stop": STOP, "rarely": 0.15, "sometimes": 0.3, "unspecified": UNSPECIFIED, "usually": 0.7, "always": ALWAYS,
}  # fmt: skip
STEP = 0.2  # what "more" adds and "less" takes off
FAINTEST = 0.1  # as far as "less" goes: only "stop" is 0
UNSURE = "the answer leaves open whether it fits the persona"
# Not joiners: emoji and scripts need them.
_INVISIBLE_CHARACTERS = frozenset("\u00ad\u034f\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff")
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _storable_text(value: object) -> str:
    """Return a text as it can be stored and displayed, trimmed; empty for None.

    Invisible characters are left out; a control character, or one that turns the writing direction, becomes a space; line breaks stay.

    Raises:
        PydanticCustomError: It is no text.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PydanticCustomError("text", "expected a text")
    characters = []
    for char in value:
        if char in _INVISIBLE_CHARACTERS:
            continue
        is_control = char in _DIRECTION_MARKS or unicodedata.category(char) in ("Cc", "Cs")
        characters.append(" " if is_control and char != "\n" else char)
    return "".join(characters).strip()


def _storable_line(value: object) -> str:
    """Return a storable text on one line."""
    return " ".join(_storable_text(value).split())


def _finite_number(value: object) -> float | None:
    """Return a number, also one written as a text ("0.3"): small models do that, and it leaves no doubt. None for None.

    Raises:
        PydanticCustomError: It is no finite number; true and false are none.
    """
    if value is None:
        return None
    number = math.nan
    if not isinstance(value, bool):
        try:
            number = float(value)  # type: ignore[arg-type]  # what fails is caught
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number):
        raise PydanticCustomError("number", "expected a number")
    return number + 0.0  # never -0.0


def _trait_names(value: object) -> list[str] | None:
    """Return the names in a list, without what is no text; None where it is no list."""
    if not isinstance(value, list):
        return None
    texts = [item for item in value[:MOST_TOUCHED] if isinstance(item, str)]
    names = [_storable_line(text)[:LONGEST_NAME] for text in texts]
    return [name for name in names if name]


Text = Annotated[str, BeforeValidator(_storable_text)]
Line = Annotated[str, BeforeValidator(_storable_line)]
Number = Annotated[float | None, BeforeValidator(_finite_number)]


class MapAnswer(BaseModel):
    """A trait as the model, or a person, would have it. None = not given; its numbers may be out of their range.

    `touches`: names of listed traits the change is about or works against.
    """

    name: Line
    description: Text = ""
    sentiment: Number = None
    strength: Number = None
    is_new: Annotated[bool, BeforeValidator(lambda value: value is True)] = False
    replaces_trait: Line = ""
    contradicts_persona: Annotated[bool, BeforeValidator(lambda value: value not in (None, False))] = False
    contradiction: Line = ""
    touches: Annotated[list[str] | None, BeforeValidator(_trait_names)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change that a request would make to the traits.

    Attributes:
        operation: ``stop`` whenever the trait ends at strength 0, also when it is new; ``none`` when nothing would change.
        before: The trait that is changed, as it is; None for a new one.
        why: Why nothing would change; empty otherwise.
        touches: Every trait's name the answer speaks of, also one that does not exist.
        says_what_it_touches: Whether the answer says which other traits it works against.
        contradiction: Why it goes against the core of the persona, as the model says; empty when it does not.
    """

    operation: Operation
    before: TraitValue | None = None
    after: TraitValue | None = None
    why: str = ""
    warnings: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    says_what_it_touches: bool = False
    contradiction: str = ""

    def columns(self) -> dict[str, Any]:
        """Return the columns of a `BehaviorRequest` that say what it does, or would do.

        `trait_before` is None for a new trait; where nothing would change the name is empty and `trait_after` None.
        """
        columns: dict[str, Any] = {
            "operation": self.operation,
            "trait_name": "",
            "trait_before": None,
            "trait_after": None,
        }
        if self.before is not None:
            columns["trait_before"] = asdict(self.before)
        if self.after is not None:
            columns["trait_name"] = self.after.name
            columns["trait_after"] = asdict(self.after)
        return columns


def operation_of(before: TraitValue | None, after: TraitValue) -> Operation:
    """Return what is done to a trait that becomes `after`."""
    if after.strength == STOP:
        return "stop"
    return "update" if before is not None else "add"


def find_trait(name: str, traits: Iterable[AnyTrait]) -> AnyTrait | None:
    """Return the trait of that name: the one written exactly so, else the first of the same `name_key` (case and spaces do not count)."""
    candidates = list(traits)
    for trait in candidates:
        if trait.name == name:
            return trait
    key = name_key(name)
    for trait in candidates:
        if name_key(trait.name) == key:
            return trait
    return None


def as_value(trait: TraitLike) -> TraitValue:
    """Return a trait without its row."""
    return TraitValue(trait.name, trait.description, float(trait.sentiment), float(trait.strength))


def stored_trait(stored: Mapping[str, Any] | None) -> TraitValue | None:
    """Return the trait of a `trait_before` or `trait_after`; None where there is none."""
    return TraitValue(**stored) if stored else None


def strength_of(amount: Amount, current: float | None = None) -> float:
    """Return the strength a word for *how often* means.

    Args:
        current: What the trait has now, 0 to 1; None where there is no such trait.

    Returns:
        0 only for ``stop``, and for ``less`` of what is stopped already. ``more`` and ``less`` go a step from the current value, or from
        the usual one where there is none.
    """
    start = UNSPECIFIED if current is None else current
    if amount == "more":
        return min(1.0, round(start + STEP, 3))
    if amount == "less":
        faintest = min(start, FAINTEST)  # never more than it is now
        return max(faintest, round(start - STEP, 3))
    return STRENGTHS[amount]


def read_map(answer: object, *, traits: Sequence[TraitLike]) -> Change:
    """Return the change that the mapping's answer means, given the traits as they are now.

    `replaces_trait` names what is changed; where there is no such trait, and where it names none, the trait called `name` is. Else the
    trait that is its opposite is replaced (`topics.opposing`), and where there is none a new one is made. Numbers out of range are
    clamped, with a warning. An empty answer and one that is not valid change nothing: the operation is ``none``, and `why` says so.
    """
    if answer == {}:
        return Change(operation="none", why="no change is needed, or the request is too vague to say which")
    try:
        return _change_by_model(MapAnswer.model_validate(answer), traits)
    except ValidationError as error:
        return Change(operation="none", why=f"the answer cannot be used: {describe_validation(error)}")
    except ValueError as error:
        return Change(operation="none", why=f"the answer cannot be used: {error}")


def _change_by_model(answer: MapAnswer, traits: Sequence[TraitLike]) -> Change:
    """Return the change that a model's answer means: completed from the trait it changes, which may be its opposite.

    A new trait of a strength from 0.5 up takes the place of the strongest trait that is its opposite and has 0.5 or more, too.

    Raises:
        ValueError: A text is too long, or the name has nothing to see.
    """
    _refuse_unusable_texts(answer)
    warnings: list[str] = []
    sentiment = _clamped("sentiment", answer.sentiment, -1, warnings)
    strength = _clamped("strength", answer.strength, 0, warnings)
    before = _changed_trait(answer, traits, warnings)
    after = _completed_trait(answer.name, answer.description, sentiment, strength, before)
    if before is None and after.strength >= UNSPECIFIED:
        opposite = opposing(answer.name, traits, UNSPECIFIED)
        if opposite is not None:
            before = as_value(opposite)
            warnings.append(f"it replaces the trait {before.name!r}, its opposite")
    return _change_between(before, after, answer, warnings)


def change_to(trait: TraitValue, *, replaces: str = "", traits: Sequence[TraitLike]) -> Change:
    """Return the change to a trait in a person's own wording: exactly that, also an empty description.

    Args:
        replaces: The name of the trait that is changed; empty: the one of the same name, else a new one.

    Raises:
        ValueError: A value is not allowed (here nothing is clamped); says which are.
    """
    try:
        answer = MapAnswer(**asdict(trait), replaces_trait=replaces)
    except ValidationError as error:
        raise ValueError(describe_validation(error)) from None
    _refuse_unusable_texts(answer)
    out_of_range: list[str] = []
    _clamped("sentiment", answer.sentiment, -1, out_of_range)
    _clamped("strength", answer.strength, 0, out_of_range)
    if out_of_range:
        raise ValueError("; ".join(out_of_range))
    warnings: list[str] = []
    before = _changed_trait(answer, traits, warnings)
    return _change_between(before, _exact_trait(answer, before), answer, warnings)


def _change_between(before: TraitValue | None, after: TraitValue, answer: MapAnswer, warnings: list[str]) -> Change:
    """Return the change from one trait to another, with what the answer says about other traits and the persona.

    Without an `after`, and with the reason in `why`, where the trait is like that already.

    Args:
        before: None for a new trait.
    """
    contradiction = ""
    if answer.contradicts_persona:
        contradiction = answer.contradiction or "it goes against its core"
    change = Change(
        operation=operation_of(before, after),
        before=before,
        after=after,
        warnings=tuple(warnings),
        touches=_touched_names(answer, before),
        says_what_it_touches=answer.touches is not None,
        contradiction=contradiction,
    )
    if after == before:
        return replace(change, operation="none", after=None, why=f"the trait {after.name!r} is like that already")
    return change


def _refuse_unusable_texts(answer: MapAnswer) -> None:
    """Refuse a name without a visible character, and texts that are too long."""
    name = answer.name
    is_visible = any(unicodedata.category(char)[0] in "LNPS" for char in name)
    if not is_visible or len(name) > LONGEST_NAME:
        raise ValueError(f"name {name[:60]!r} of {len(name)} characters: allowed: 1 to {LONGEST_NAME} that can be seen")
    length = len(answer.description)
    if length > LONGEST_DESCRIPTION:
        raise ValueError(f"description has {length:,} characters; allowed: at most {LONGEST_DESCRIPTION:,}")


def _clamped(name: str, value: float | None, low: float, warnings: list[str]) -> float | None:
    """Return the number clamped to `low` to 1; add a warning where it was outside."""
    if value is None:
        return None
    clamped = float(min(1, max(low, value)))
    if clamped != value:
        warnings.append(f"{name} {value!r} is not from {low} to 1; the nearest allowed is {clamped:g}")
    return clamped


def _changed_trait(answer: MapAnswer, traits: Sequence[TraitLike], warnings: list[str]) -> TraitValue | None:
    """Return the trait that the answer changes: the one of its `name`, else the one it says it replaces; None for a new one.

    Adds a warning where the answer names a trait that does not exist, would take another one's name, or calls a known one new.
    """
    name, replaces = answer.name, answer.replaces_trait
    named = find_trait(name, traits)
    replaced = find_trait(replaces, traits) if replaces else None
    if replaces and replaced is None:
        outcome = "is added as a new one" if named is None else "is updated"
        warnings.append(f"there is no trait {replaces!r} to replace: {name!r} {outcome}")
    if replaced is not None and named is not None and replaced is not named:
        warnings.append(f"{replaces!r} cannot be renamed, for {named.name!r} exists: that is updated")
    target = named if named is not None else replaced
    if target is None:
        return None
    if answer.is_new and not replaces:
        warnings.append(f"{target.name!r} is not new: it is updated")
    return as_value(target)


def _exact_trait(answer: MapAnswer, before: TraitValue | None) -> TraitValue:
    """Return the trait as a person wrote it; numbers that are left out stay as they are."""
    earlier = before or TraitValue(answer.name, strength=UNSPECIFIED)
    sentiment = earlier.sentiment if answer.sentiment is None else answer.sentiment
    strength = earlier.strength if answer.strength is None else answer.strength
    return TraitValue(answer.name, answer.description, float(sentiment), float(strength))


def _completed_trait(
    name: str, description: str, sentiment: float | None, strength: float | None, before: TraitValue | None
) -> TraitValue:
    """Return the trait as a model would have it, completed from the trait that it changes.

    Args:
        description: Empty: as before.
        sentiment, strength: None: as before; for a new trait neutral, and 0.5.
        before: The trait that is changed; None for a new one.
    """
    earlier = before or TraitValue(name, strength=UNSPECIFIED)
    if strength is None:  # what is asked for again is not "never"
        strength = UNSPECIFIED if earlier.strength == STOP else earlier.strength
    if sentiment is None:
        sentiment = earlier.sentiment
    if before is None:
        return TraitValue(name, description, sentiment, strength)
    if strength == STOP:  # what is to end is the trait as it is known, not the model's words for its absence
        return TraitValue(before.name, before.description or description, before.sentiment, STOP)
    if name_key(name) == name_key(before.name):
        name = before.name
    return TraitValue(name, description or before.description, sentiment, strength)


def _touched_names(answer: MapAnswer, before: TraitValue | None) -> tuple[str, ...]:
    """Return the names of the traits that a change is about or works against, each once."""
    names = [answer.name, answer.replaces_trait, *(answer.touches or ())]
    if before is not None:
        names.insert(0, before.name)
    return tuple(dict.fromkeys(name for name in names if name))

"""Bodies of requests read strictly: an unknown field or a wrong value is a 400 that names field, value and what is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from django.conf import settings
from django.core.exceptions import ValidationError as InvalidTags
from django.core.validators import slug_re
from django.utils.module_loading import import_string
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request

from agents.api import parameters
from agents.llm.endpoints import problem_of, provider_of
from agents.models import Agent, Channel
from agents.models.conversations import TAG_KEY, validate_tags
from agents.persona import TraitValue
from agents.text.fences import MAX_CHARACTERS
from agents.turn.pipeline import name_of, pipeline

LONGEST_SHOWN = 80
MOST_TAGS = 20
MOST_OBJECT = 100_000  # characters of JSON
MOST_ROWS = 500
MOST_TRAITS = 200
TRAIT_DESCRIPTION = 10_000
_TRAIT_FIELDS = ("name", "description", "strength", "sentiment")
_SURROGATE = re.compile("[\ud800-\udfff]")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")


class StrictBody(serializers.Serializer[Any]):
    """A body with these fields and no others. One that is no JSON object, or holds what no database can, is refused, too."""

    def run_validation(self, data: Any = serializers.empty) -> Any:
        if data is not serializers.empty and not isinstance(data, Mapping):
            text = f"send a JSON object; its fields: {', '.join(self.fields)}"
            raise ValidationError({"non_field_errors": [text]})
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> Any:
        names = ", ".join(self.fields)
        errors = {name: [f"there is no field {name!r}; allowed: {names}"] for name in data if name not in self.fields}
        errors |= {
            name: [f"{name} {text}"]
            for name, value in data.items()
            if name in self.fields and (text := self.unstorable_in(name, value))
        }
        if errors:
            raise ValidationError(errors)
        return super().to_internal_value(data)

    def unstorable_in(self, name: str, value: Any) -> str:
        """Why no database can hold this field; empty when one can."""
        return unstorable(value)


def read_body(request: Request, body: type[StrictBody]) -> dict[str, Any]:
    """The validated fields of a request that takes no parameters."""
    parameters.only(request)
    given = body(data=request.data)
    given.is_valid(raise_exception=True)
    fields: dict[str, Any] = given.validated_data
    return fields


def read_changes(request: Request, body: type[StrictBody]) -> dict[str, Any]:
    """The same for a PATCH, which must change something."""
    fields = read_body(request, body)
    if not fields:
        raise ValidationError([f"nothing to change; allowed: {', '.join(body().fields)}"])
    return fields


class NoBody(StrictBody):
    """An empty body: there is nothing to choose."""


def unstorable(value: Any) -> str:
    """Why no database can hold a text in the value; empty when one can."""
    if isinstance(value, str):
        if "\x00" in value:
            return "holds a NUL character"
        return "holds half of a surrogate pair" if _SURROGATE.search(value) else ""
    parts: Sequence[Any] = ()
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, list):
        parts = value
    return next(filter(None, map(unstorable, parts)), "")


class _Allowing(serializers.Field[Any, Any, Any, Any]):
    """A field whose every error says what is allowed."""

    allowed = ""

    def refuse(self, value: Any) -> NoReturn:
        text = repr(value)
        shown = text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
        raise ValidationError([f"{self.field_name} {shown}: allowed: {self.allowed}"])

    def fail(self, key: str, **kwargs: Any) -> NoReturn:
        if key == "required":
            raise ValidationError([f"{self.field_name} is missing; allowed: {self.allowed}"])
        self.refuse(None)

    def is_allowed(self, data: Any) -> bool:
        raise NotImplementedError

    def to_internal_value(self, data: Any) -> Any:
        if not self.is_allowed(data):
            self.refuse(data)
        return data


class Text(_Allowing, serializers.CharField):
    """A text of 1 to `most` characters."""

    most: int

    def __init__(self, *, allowed: str = "", most: int = 200, **kwargs: Any) -> None:
        super().__init__(max_length=most, **kwargs)
        self.most, self.allowed = most, allowed or f"a text of 1 to {most} characters"

    def run_validation(self, data: Any = serializers.empty) -> Any:
        (absent, value) = self.validate_empty_values(data)
        return value if absent else self.to_internal_value(value)

    def is_allowed(self, data: Any) -> bool:
        return isinstance(data, str) and bool(data.strip()) and len(data) <= self.most

    def to_internal_value(self, data: Any) -> str:
        return str(super().to_internal_value(data)).strip()


class Note(Text):
    """A text of 0 to `most` characters."""

    def __init__(self, *, most: int = 200, **kwargs: Any) -> None:
        super().__init__(
            most=most, **{"allowed": f"a text of at most {most:,} characters", "allow_blank": True, **kwargs}
        )

    def is_allowed(self, data: Any) -> bool:
        return isinstance(data, str) and len(data) <= self.most


class Said(Text):
    """The text of a message: as it was written, blanks included."""

    def __init__(self, **kwargs: Any) -> None:
        allowed = f"a text of 1 to {MAX_CHARACTERS:,} characters, not only white space"
        super().__init__(most=MAX_CHARACTERS, allowed=allowed, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        super().to_internal_value(data)
        return str(data)


class Slug(Text):
    """A new short name, for addresses and commands."""

    def __init__(self, *, most: int, **kwargs: Any) -> None:
        super().__init__(most=most, allowed=f"1 to {most} letters a-z and A-Z, digits, - and _", **kwargs)

    def is_allowed(self, data: Any) -> bool:
        return isinstance(data, str) and slug_re.fullmatch(data) is not None and len(data) <= self.most


class Color(Text):
    """A colour as ``#1d4ed8``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(most=7, allowed="# and six hex digits, e.g. #1d4ed8", **kwargs)

    def is_allowed(self, data: Any) -> bool:
        return isinstance(data, str) and _COLOR.fullmatch(data) is not None


class Whole(_Allowing, serializers.IntegerField):
    """A whole number within bounds."""

    def __init__(self, *, least: int, most: int, allowed: str = "", **kwargs: Any) -> None:
        super().__init__(min_value=least, max_value=most, **kwargs)
        self.least, self.most = least, most
        self.allowed = allowed or f"a whole number from {least:,} to {most:,}"

    def is_allowed(self, data: Any) -> bool:
        return isinstance(data, int) and not isinstance(data, bool) and self.least <= data <= self.most


class Flag(_Allowing, serializers.BooleanField):
    """true or false, and nothing that merely looks like it."""

    allowed = "true, false"

    def is_allowed(self, data: Any) -> bool:
        return isinstance(data, bool)


class OneOf(_Allowing, serializers.ChoiceField):
    """One of some texts."""

    def __init__(self, choices: Sequence[str], **kwargs: Any) -> None:
        super().__init__(choices=[(name, name) for name in choices], **kwargs)
        self.allowed = ", ".join(choices)

    def is_allowed(self, data: Any) -> bool:
        return isinstance(data, str) and data in self.choices


class SomeOf(_Allowing, serializers.ListField):
    """A list of some texts, at least one."""

    def __init__(self, choices: Sequence[str], **kwargs: Any) -> None:
        super().__init__(child=serializers.ChoiceField(choices=list(choices)), **kwargs)
        self.names = tuple(choices)
        self.allowed = f"a list of {', '.join(choices)}"

    def to_internal_value(self, data: Any) -> list[str]:
        if not isinstance(data, list) or not data or not all(isinstance(name, str) for name in data):
            self.refuse(data)
        for name in data:
            if name not in self.names:
                self.refuse(name)
        return data


class Pairs(_Allowing, serializers.DictField):
    """An object of texts, such as the tags of messages."""

    def __init__(self, *, most: int = MOST_TAGS, **kwargs: Any) -> None:
        super().__init__(child=serializers.CharField(), **kwargs)
        self.most, self.allowed = most, f'an object of at most {most} texts, e.g. {{"build": "41"}}'

    def is_allowed(self, data: Any) -> bool:
        return (
            isinstance(data, dict) and len(data) <= self.most and all(isinstance(text, str) for text in data.values())
        )


class Tags(Pairs):
    """Tags of messages or channels."""

    def to_internal_value(self, data: Any) -> dict[str, str]:
        tags: dict[str, str] = super().to_internal_value(data)
        for key in tags:
            if not TAG_KEY.fullmatch(key):
                text = f"{self.field_name} {key[:80]!r}: allowed: keys of a letter, then up to 63 letters, digits, _ . or -"
                raise ValidationError([text])
        return tags


class Anything(_Allowing, serializers.DictField):
    """A JSON object with whatever fields its sender needs."""

    allowed = f"a JSON object of at most {MOST_OBJECT:,} characters"

    def is_allowed(self, data: Any) -> bool:
        try:  # databases cannot store the infinities; JSON may spell numbers that are too large, such as 1e999
            return isinstance(data, dict) and len(json.dumps(data, ensure_ascii=False, allow_nan=False)) <= MOST_OBJECT
        except ValueError:
            return False


class Texts(_Allowing, serializers.ListField):
    """A list of texts, none of them empty; `distinct` drops repetitions."""

    def __init__(self, *, most: int = MOST_ROWS, each: int = 200, distinct: bool = False, **kwargs: Any) -> None:
        super().__init__(child=serializers.CharField(max_length=each), max_length=most, **kwargs)
        self.most, self.each, self.distinct = most, each, distinct
        self.allowed = f"a list of at most {most} texts of 1 to {each:,} characters"

    def to_internal_value(self, data: Any) -> list[str]:
        if not isinstance(data, list) or len(data) > self.most:
            self.refuse(data)
        for text in data:
            if not isinstance(text, str) or not text.strip() or len(text) > self.each:
                self.refuse(text)
        return list(dict.fromkeys(data)) if self.distinct else data


class TraitFields(serializers.Serializer[Any]):
    """A trait: `sentiment` -1 (hates having it) to 1 (loves it), `strength` 0 (stop doing this) to 1 (always)."""

    name = serializers.CharField(max_length=120)
    description = serializers.CharField(allow_blank=True, required=False, max_length=TRAIT_DESCRIPTION)
    strength = serializers.FloatField(min_value=0, max_value=1, required=False)
    sentiment = serializers.FloatField(min_value=-1, max_value=1, required=False)


class Traits(_Allowing, serializers.ListField):
    """All traits of a persona. Strength 0 is an instruction (stop doing this) and is kept."""

    allowed = f"a list of at most {MOST_TRAITS} objects with {', '.join(_TRAIT_FIELDS)}"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=TraitFields(), max_length=MOST_TRAITS, **kwargs)

    def to_internal_value(self, data: Any) -> list[TraitValue]:
        if not isinstance(data, list) or len(data) > MOST_TRAITS or not all(isinstance(one, dict) for one in data):
            self.refuse(data)
        traits: list[TraitValue] = []
        names: set[str] = set()
        for number, given in enumerate(data):
            traits.append(trait := self._trait(number, given))
            if trait.name.casefold() in names:
                self._wrong(number, "name", trait.name, "a name no other trait has, whatever the case")
            names.add(trait.name.casefold())
        return traits

    def _trait(self, number: int, given: Mapping[str, Any]) -> TraitValue:
        for unknown in given.keys() - set(_TRAIT_FIELDS):
            self._wrong(number, unknown, given[unknown], f"no such field; {', '.join(_TRAIT_FIELDS)}")
        name, description = given.get("name"), given.get("description", "")
        if not isinstance(name, str) or not 0 < len(name.strip()) <= 120:
            self._wrong(number, "name", name, "a text of 1 to 120 characters")
        if not isinstance(description, str) or len(description) > TRAIT_DESCRIPTION:
            self._wrong(number, "description", description, f"a text of at most {TRAIT_DESCRIPTION:,} characters")
        numbers = {}
        for field, least, default in (("sentiment", -1, 0.0), ("strength", 0, 0.5)):
            value = given.get(field, default)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1:
                self._wrong(number, field, value, f"a number from {least} to 1")
            numbers[field] = float(value)
        return TraitValue(name=name.strip(), description=description.strip(), **numbers)

    def _wrong(self, number: int, name: str, value: Any, allowed: str) -> NoReturn:
        raise ValidationError([f"{self.field_name}[{number}].{name[:80]} {repr(value)[:80]}: allowed: {allowed}"])


NEEDED = "agents.change_agent"
HARMLESS = ("tags", "model", "scene")  # what no stage is left out or set by
LEAST, MOST = 0.1, 60.0  # seconds


class Deadline(_Allowing, serializers.FloatField):
    """Seconds that the stages may judge at most, of each dimension and of all."""

    allowed = f"a number of seconds from {LEAST:g} to {MOST:g}"

    def __init__(self, **kwargs: Any) -> None:
        text = "seconds the stages may judge, at most those of the configuration; below 2 only for users who may override it"
        super().__init__(min_value=LEAST, max_value=MOST, help_text=text, **kwargs)

    def is_allowed(self, data: Any) -> bool:
        return isinstance(data, int | float) and not isinstance(data, bool) and LEAST <= data <= MOST


class Overrides(Anything):
    """`stages` (names), `model`, `tags`, and any field of an agent's configuration; for users who may change agents."""

    def __init__(self, **kwargs: Any) -> None:
        text = (
            "settings for this one: model, tags; for users who may change agents. stages and fields of the configuration; "
            "for those who may change that, too"
        )
        super().__init__(help_text=text, **kwargs)


def of_request(
    request: Request, given: Mapping[str, Any], *, agent: Agent, channel: Channel, session: str = ""
) -> dict[str, Any]:
    """The overrides of a body's ``overrides`` and ``deadline``, as `Run.overrides` has them.

    Raises:
        PermissionDenied: The user may not change agents, or not what watches over them, which overrides could switch off.
        ValidationError: An override is none, or has a value it cannot have; or the session cannot be continued; or the deadline is
            so short that nothing could be judged, which is for those who may override it.
    """
    overrides: dict[str, Any] = dict(given.get("overrides") or {})
    if overrides and not request.user.has_perm(NEEDED):
        raise PermissionDenied(f"overrides: only for users with the permission {NEEDED}")
    may_set = all(request.user.has_perm(name) for name in (NEEDED, settings.TURN_OVERRIDES_NEED))
    if guarded := [name for name in overrides if name not in HARMLESS and not may_set]:
        text = f"overrides {', '.join(guarded)[:80]}: only for users with the permission {settings.TURN_OVERRIDES_NEED}"
        raise PermissionDenied(text)
    others = {name: value for name, value in overrides.items() if name not in _OWN}
    problems = [text for name, value in overrides.items() if name in _OWN and (text := _OWN[name](value))]
    errors = {"overrides": problems} if problems else {}
    if others or session:
        check = import_string(settings.TURN_REQUEST_CHECK)
        for name, text in check(agent=agent, channel=channel, overrides=others, session=session):
            errors.setdefault(name, []).append(text)
    if errors:
        raise ValidationError(errors)
    if "deadline" in given:
        try:
            of_seconds = import_string(settings.TURN_DEADLINES)
            deadlines = of_seconds(agent=agent, seconds=float(given["deadline"]), any_length=may_set)
        except ValueError as error:
            raise ValidationError({"deadline": [str(error)]}) from None
        overrides = {**deadlines, **overrides}
    return overrides


def _stages(value: Any) -> str:
    known = [name_of(stage) for stage in pipeline().stages]
    if isinstance(value, list) and all(isinstance(name, str) and name in known for name in value):
        return ""
    return f"stages {repr(value)[:80]}: allowed: a list of {', '.join(known)}"


def _model(value: Any) -> str:
    if isinstance(value, str) and value.strip() and provider_of(value) != "replay" and not problem_of("actor", value):
        return ""
    return f"model {repr(value)[:80]}: allowed: the name of a model that can be called"


def _tags(value: Any) -> str:
    try:
        validate_tags(value)
    except InvalidTags as error:
        return "tags: " + " ".join(error.messages)
    return ""


def _scene(value: Any) -> str:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return "" if good else f"scene {repr(value)[:80]}: allowed: a whole number of 0 or more"


_OWN: Mapping[str, Callable[[Any], str]] = {"stages": _stages, "model": _model, "tags": _tags, "scene": _scene}

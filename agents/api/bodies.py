"""Bodies of requests read strictly: an unknown field or a wrong value is a 400 that names field, value and what is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from agents.api.filters import the_agent, the_channel
from agents.models.conversations import TAG_KEY
from agents.persona import TraitValue
from agents.text.fences import MAX_CHARACTERS

MOST_TAGS = 20
MOST_OBJECT = 100_000  # characters of JSON
LARGEST_ID = 2**63 - 1
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBER = (int, float)
_TYPES: tuple[tuple[type[Any], type[Any] | tuple[type[Any], ...]], ...] = (  # DRF also takes what merely looks like it
    (serializers.BooleanField, bool),
    (serializers.IntegerField, int),
    (serializers.FloatField, _NUMBER),
    (serializers.CharField, str),
    (serializers.ChoiceField, str),
    (serializers.ListField, list),
    (serializers.ListSerializer, list),
    (serializers.DictField, dict),
    (serializers.Serializer, dict),
)


class Body(serializers.Serializer[Any]):
    """A body with these fields and no others, of which `needed` must be there.

    One that is no JSON object, or holds what no database can, is refused, too.
    """

    needed: ClassVar[tuple[str, ...]] = ()

    def get_fields(self) -> Any:
        fields = super().get_fields()
        for name, field in fields.items():
            field.required = name in self.needed
        return fields

    def run_validation(self, data: Any = serializers.empty) -> Any:
        if data is not serializers.empty and not isinstance(data, Mapping) and self.parent is None:
            raise ValidationError({"non_field_errors": [f"send a JSON object; its fields: {self.names}"]})
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):  # inside another body
            raise ValidationError([f"{shown(data)}: allowed: an object; its fields: {self.names}"])
        errors: dict[str, Any] = {
            name: [f"there is no field {name!r}; allowed: {self.names}"]
            for name in data
            if name not in self.fields or self.fields[name].read_only
        }
        if self.parent is not None:  # a PATCH leaves fields of the whole out, not of what is inside it
            missing = (name for name in self.needed if name not in data)
            errors |= {name: [f"{name} is missing; allowed: {allowed(self.fields[name])}"] for name in missing}
        fields = [(name, self.fields[name], value) for name, value in data.items() if name not in errors]
        for name, field, value in fields:
            if fault := self.unstorable_in(name, value):
                errors[name] = [f"{name} {fault}"]
            elif not (is_of_type(field, value) or (value is None and field.allow_null)):
                errors[name] = [f"{name} {shown(value)}: allowed: {allowed(field)}"]
        try:
            result = super().to_internal_value({name: value for name, _, value in fields if name not in errors})
        except ValidationError as error:
            for name, detail in error.detail.items():  # type: ignore[union-attr]  # of a serializer, by field
                errors.setdefault(name, _sentences(name, self.fields.get(name), data.get(name), detail))
        if errors:
            raise ValidationError(errors)
        return result

    def unstorable_in(self, name: str, value: Any) -> str:
        """Why no database can hold this field; empty when one can."""
        return unstorable(value)

    @property
    def names(self) -> str:
        return ", ".join(name for name, field in self.fields.items() if not field.read_only) or "none"


def refusal(text: str) -> ValidationError:
    """An error of a field whose sentence says everything itself."""
    return ValidationError([text], code="sentence")


def _sentences(name: str, field: Any, value: Any, detail: Any) -> Any:
    """What is wrong with a field; of what is inside it by its place, so that the path names it."""
    if isinstance(detail, dict) and isinstance(field, serializers.ListField):  # by number
        number = next(iter(detail))
        return [f"{name} {shown(value[number])}: allowed: {allowed(field)}"]
    if isinstance(field, serializers.ListSerializer) and "non_field_errors" in detail:  # of the list itself
        return [f"{name} {shown(value)}: allowed: {allowed(field)}"]
    if isinstance(detail, dict) or (detail and isinstance(detail[0], dict)):
        return detail
    code = getattr(detail[0], "code", "")
    if code == "sentence":
        return detail
    if code == "required":
        return [f"{name} is missing; allowed: {allowed(field)}"]
    return [f"{name} {shown(value)}: allowed: {allowed(field)}"]


def shown(value: Any) -> str:
    """A value as an error names it."""
    text = f"{len(value):,} of them" if isinstance(value, list) and len(value) > 20 else repr(value)
    return (text if len(text) <= 80 else text[:79] + "…").encode("utf-8", "backslashreplace").decode()


def allowed(field: Any) -> str:
    """What a field takes, in words."""
    if said := field.error_messages.get("allowed"):
        return str(said)
    child: Any = getattr(field, "child", None)
    most: Any = getattr(field, "max_length", None)
    match field:
        case serializers.BooleanField():
            return "true, false"
        case serializers.ChoiceField():
            return ", ".join(str(value) for value in field.choices if value) + ("" in field.choices) * ", or empty"
        case serializers.IntegerField():
            return f"a whole number from {field.min_value:,} to {field.max_value:,}"
        case serializers.FloatField():
            return f"a number from {field.min_value:g} to {field.max_value:g}"
        case serializers.SlugField():
            return f"1 to {most} letters a-z and A-Z, digits, - and _"
        case serializers.CharField() if field.allow_blank:
            return f"a text of at most {most:,} characters"
        case serializers.CharField():
            return f"a text of 1 to {most:,} characters"
        case serializers.ListField() if isinstance(child, serializers.ChoiceField):
            return f"a list of {allowed(child)}"
        case serializers.ListField():
            return f"a list of at most {most:,} texts of 1 to {child.max_length:,} characters"
        case serializers.ListSerializer():
            return f"a list of at most {most:,} objects with {child.names}"
        case Body():
            return f"an object with {field.names}"
    raise TypeError(f"say what {field.field_name} allows: error_messages={{'allowed': …}}")


def is_of_type(field: Any, value: Any) -> bool:
    """Whether a JSON value has the type of the field, down to those in a list."""
    if own := getattr(field, "json_types", ()):
        return isinstance(value, own)
    for kind, types in _TYPES:
        if isinstance(field, kind):
            if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
                return False
            return not isinstance(field, serializers.ListField) or all(is_of_type(field.child, one) for one in value)
    return True


def unstorable(value: Any) -> str:
    """Why no database can hold a text in the value; empty when one can."""
    if isinstance(value, str):
        if "\x00" in value:
            return "holds a NUL character"
        return "holds half of a surrogate pair" if _SURROGATE.search(value) else ""
    parts = [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return next(filter(None, map(unstorable, parts)), "")


def says(text: str) -> dict[str, Any]:
    """The `error_messages` of a field that takes what the text says."""
    return {"allowed": text}


class AgentField(serializers.CharField):
    """The slug of an agent, read as the agent."""

    default_error_messages = says("the slug of an agent")
    find = staticmethod(the_agent)

    def __init__(self, *, max_length: int = 200, **kwargs: Any) -> None:
        super().__init__(**{"help_text": "slug", "max_length": max_length, **kwargs})
        self.validators = []  # they would look at the agent

    def to_internal_value(self, data: Any) -> Any:
        try:
            return self.find(super().to_internal_value(data))
        except LookupError as error:
            raise refusal(str(error.args[0])) from None


class ChannelField(AgentField):
    """The slug of a channel, read as the channel."""

    default_error_messages = says("the slug of a channel")
    find = staticmethod(the_channel)  # type: ignore[assignment]  # as its base, of the other model

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": 120, **kwargs})


class Said(serializers.CharField):
    """The text of a message: as it was written, blanks included."""

    def __init__(self, **kwargs: Any) -> None:
        message = says(f"a text of 1 to {MAX_CHARACTERS:,} characters, not only white space")
        super().__init__(max_length=MAX_CHARACTERS, error_messages=message, **kwargs)

    def to_internal_value(self, data: Any) -> str:  # is not empty: the blanks were looked away for that
        super().to_internal_value(data)
        return str(data)


class Id(serializers.IntegerField):
    """A primary key."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=LARGEST_ID, **kwargs)


class Pairs(serializers.DictField):
    """An object of texts."""

    def __init__(self, *, most: int = MOST_TAGS, **kwargs: Any) -> None:
        message = says(f'an object of at most {most:,} texts, e.g. {{"build": "41"}}')
        super().__init__(child=serializers.CharField(), error_messages=message, **kwargs)
        self.most = most

    def to_internal_value(self, data: Any) -> dict[str, str]:
        if len(data) > self.most or not all(isinstance(text, str) for text in data.values()):
            raise ValidationError("")
        return dict(data)


class Tags(Pairs):
    """Tags of messages or channels."""

    def to_internal_value(self, data: Any) -> dict[str, str]:
        for key in (tags := super().to_internal_value(data)):
            if not TAG_KEY.fullmatch(key):
                allowed = "keys of a letter, then up to 63 letters, digits, _ . or -"
                raise refusal(f"{self.field_name} {key[:80]!r}: allowed: {allowed}")
        return tags


class Anything(serializers.DictField):
    """A JSON object with any fields."""

    most = MOST_OBJECT
    default_error_messages = says(f"a JSON object of at most {MOST_OBJECT:,} characters")

    def to_internal_value(self, data: Any) -> Any:
        try:  # databases cannot store the infinities; JSON may spell numbers that are too large, such as 1e999
            if len(json.dumps(data, ensure_ascii=False, allow_nan=False)) <= self.most:
                return data
        except ValueError:
            pass
        raise ValidationError("")


def many(body: type[Body], *, most: int, **kwargs: Any) -> Any:
    """A list of at most so many bodies."""
    return body(many=True, max_length=most, **kwargs)  # type: ignore[call-arg]  # of the list, which the stubs do not know


class TraitBody(Body):
    """A trait: `sentiment` -1 (hates having it) to 1 (loves it), `strength` 0 (stop doing this) to 1 (always)."""

    needed: ClassVar[tuple[str, ...]] = ("name",)

    name = serializers.CharField(max_length=120)
    description = serializers.CharField(allow_blank=True, max_length=10_000)
    strength = serializers.FloatField(min_value=0, max_value=1)
    sentiment = serializers.FloatField(min_value=-1, max_value=1)


def trait_values(traits: list[dict[str, Any]]) -> list[TraitValue]:
    """The traits of a persona.

    Raises:
        ValidationError: Two have the same name.
    """
    names = [trait["name"].casefold() for trait in traits]
    for number, name in enumerate(names):
        if name in names[:number]:
            text = f"name {traits[number]['name']!r}: allowed: a name no other trait has, whatever the case"
            raise ValidationError([*({} for _ in range(number)), {"name": [text]}])
    return [TraitValue(**trait) for trait in traits]

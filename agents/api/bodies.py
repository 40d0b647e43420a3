"""Bodies of requests read strictly: an unknown field or a wrong value is a 400 that names field, value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

LONGEST_SHOWN = 80


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


class NoBody(StrictBody):
    """An empty body: there is nothing to choose."""


def unstorable(value: Any) -> str:
    """Why no database can hold a text in the value; empty when one can."""
    if isinstance(value, str):
        if "\x00" in value:
            return "holds a NUL character"
        return "" if value.isascii() or _encodable(value) else "holds half of a surrogate pair"
    parts: Sequence[Any] = ()
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, list):
        parts = value
    return next(filter(None, map(unstorable, parts)), "")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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


class Text(_Allowing, serializers.CharField):
    """A text of 1 to `most` characters."""

    def __init__(self, *, allowed: str = "", most: int = 200, **kwargs: Any) -> None:
        super().__init__(max_length=most, **kwargs)
        self.allowed = allowed or f"a text of 1 to {most} characters"

    def run_validation(self, data: Any = serializers.empty) -> Any:
        (absent, value) = self.validate_empty_values(data)
        return value if absent else self.to_internal_value(value)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or not data.strip() or len(data) > (self.max_length or 0):
            self.refuse(data)
        return data.strip()


class Whole(_Allowing, serializers.IntegerField):
    """A whole number within bounds."""

    def __init__(self, *, least: int, most: int, allowed: str = "", **kwargs: Any) -> None:
        super().__init__(min_value=least, max_value=most, **kwargs)
        self.least, self.most = least, most
        self.allowed = allowed or f"a whole number from {least:,} to {most:,}"

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int) or not self.least <= data <= self.most:
            self.refuse(data)
        return data


class Flag(_Allowing, serializers.BooleanField):
    """true or false, and nothing that merely looks like it."""

    allowed = "true, false"

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.refuse(data)
        return data


class OneOf(_Allowing, serializers.ChoiceField):
    """One of some texts."""

    def __init__(self, choices: Sequence[str], **kwargs: Any) -> None:
        super().__init__(choices=[(name, name) for name in choices], **kwargs)
        self.allowed = ", ".join(choices)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.choices:
            self.refuse(data)
        return data


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

    def __init__(self, *, most: int = 20, **kwargs: Any) -> None:
        super().__init__(child=serializers.CharField(), **kwargs)
        self.most = most
        self.allowed = f'an object of at most {most} texts, e.g. {{"build": "41"}}'

    def to_internal_value(self, data: Any) -> dict[str, str]:
        if not isinstance(data, dict) or len(data) > self.most:
            self.refuse(data)
        if not all(isinstance(value, str) for value in data.values()):
            self.refuse(data)
        return data

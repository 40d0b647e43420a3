"""Fields of bodies that several routes take: what is said, tags, members, traits. Each error says what is allowed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from django.core.validators import slug_re
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from agents.api.bodies import Pairs, Text, _Allowing
from agents.models.conversations import TAG_KEY
from agents.persona import TraitValue
from agents.turn.send_message import MAX_CHARACTERS

MOST_TAGS = 20
MOST_OBJECT = 100_000  # characters of JSON
MOST_ROWS = 500
MOST_TRAITS = 200
TRAIT_DESCRIPTION = 10_000
_TRAIT_FIELDS = ("name", "description", "strength", "sentiment")
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")


class Note(Text):
    """A text of 0 to `most` characters."""

    def __init__(self, *, most: int = 200, **kwargs: Any) -> None:
        kwargs = {"allowed": f"a text of at most {most:,} characters", "allow_blank": True, **kwargs}
        super().__init__(most=most, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or len(data) > (self.max_length or 0):
            self.refuse(data)
        return data.strip()


class Said(Text):
    """What is said in a message: kept as it was written, blanks included."""

    def __init__(self, **kwargs: Any) -> None:
        allowed = f"a text of 1 to {MAX_CHARACTERS:,} characters, not only white space"
        super().__init__(most=MAX_CHARACTERS, allowed=allowed, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        super().to_internal_value(data)
        return str(data)


class Slug(Text):
    """A new short name, for addresses and commands."""

    def __init__(self, *, most: int, **kwargs: Any) -> None:
        allowed = f"1 to {most} letters a-z and A-Z, digits, - and _"
        super().__init__(most=most, allowed=allowed, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or not slug_re.fullmatch(data) or len(data) > (self.max_length or 0):
            self.refuse(data)
        return data


class Color(Text):
    """A colour as ``#1d4ed8``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(most=7, allowed="# and six hex digits, e.g. #1d4ed8", **kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or not _COLOR.fullmatch(data):
            self.refuse(data)
        return data


class Tags(Pairs):
    """Tags of messages or channels."""

    def to_internal_value(self, data: Any) -> dict[str, str]:
        found = super().to_internal_value(data)
        for key in found:
            if not TAG_KEY.fullmatch(key):
                text = f"{self.field_name} {key[:80]!r}: allowed: keys of a letter, then up to 63 letters, digits, _ . or -"
                raise ValidationError([text])
        return found


class Anything(_Allowing, serializers.DictField):
    """A JSON object of whatever somebody needs."""

    allowed = f"a JSON object of at most {MOST_OBJECT:,} characters"

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict) or len(json.dumps(data, ensure_ascii=False)) > MOST_OBJECT or not _finite(data):
            self.refuse(data)
        return data


class Texts(_Allowing, serializers.ListField):
    """A list of texts, none of them empty; `distinct` drops what was said before."""

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
        found = [self._trait(number, one) for number, one in enumerate(data)]
        names = [trait.name.casefold() for trait in found]
        for number, name in enumerate(names):
            if name in names[:number]:
                self._wrong(number, "name", found[number].name, "a name no other trait has, whatever the case")
        return found

    def _trait(self, number: int, given: Mapping[str, Any]) -> TraitValue:
        for unknown in given.keys() - set(_TRAIT_FIELDS):
            self._wrong(number, unknown, given[unknown], f"no such field; {', '.join(_TRAIT_FIELDS)}")
        name, description = given.get("name"), given.get("description", "")
        if not isinstance(name, str) or not 0 < len(name.strip()) <= 120:
            self._wrong(number, "name", name, "a text of 1 to 120 characters")
        if not isinstance(description, str) or len(description) > TRAIT_DESCRIPTION:
            self._wrong(number, "description", description, f"a text of at most {TRAIT_DESCRIPTION:,} characters")
        return TraitValue(
            name=name.strip(),
            description=description.strip(),
            sentiment=self._number(number, given, "sentiment", least=-1, default=0.0),
            strength=self._number(number, given, "strength", least=0, default=0.5),
        )

    def _number(self, number: int, given: Mapping[str, Any], name: str, *, least: int, default: float) -> float:
        value = given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1:
            self._wrong(number, name, value, f"a number from {least} to 1")
        return float(value)

    def _wrong(self, number: int, name: str, value: Any, allowed: str) -> NoReturn:
        raise ValidationError([f"{self.field_name}[{number}].{name[:80]} {repr(value)[:80]}: allowed: {allowed}"])


def _finite(value: Any) -> bool:
    """Whether databases can store the numbers in it: JSON may spell some that are too large, such as 1e999."""
    if isinstance(value, float):
        return math.isfinite(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(_finite(part) for part in parts)

"""Bodies of requests: strict pydantic models. What does not fit is a 400 that names the field, its value and what is allowed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, model_validator
from pydantic import ValidationError as Invalid
from pydantic_core import PydanticCustomError, core_schema
from rest_framework.exceptions import ValidationError

from agents.kit.refusals import Refused as Refused
from agents.kit.text.fences import MAX_CHARACTERS
from agents.kit.text.tags import TAG_KEY

MOST_TAGS = 20
MOST_OBJECT = 100_000  # characters of JSON
ABSENT: Any = None  # the default of a field that may be left out, but is not null where it is given
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOULD = re.compile(
    r"^(Input|String|List|Dictionary|Value) should (be |have )?| after validation.*|(?<=a valid dictionary) or instance of \w+$"
)
B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """A JSON object with these fields and no others; texts are read without the blanks around them."""

    model_config = ConfigDict(extra="forbid", strict=True, str_strip_whitespace=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _only_its_fields(cls, data: Any) -> Any:
        for name, sentence in cls.unknown(data if isinstance(data, dict) else {}).items():
            raise fault(name, sentence)
        return data

    @classmethod
    def unknown(cls, data: dict[str, Any]) -> dict[str, str]:
        """The names that are no field, and what is allowed."""
        allowed = ", ".join(cls.model_fields) or "none"
        return {
            name: f"there is no field {name!r}; allowed: {allowed}" for name in data if name not in cls.model_fields
        }

    @property
    def sent(self) -> dict[str, Any]:
        """The fields that were sent, without those left out."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class Nothing(Body):
    """An empty body: there is nothing to choose."""


def as_api_error(refused: Refused) -> ValidationError:
    """Return the 400 that says the same, line by line."""
    return ValidationError({place: sentence.split("\n") for place, sentence in refused.errors.items()})


def read(kind: type[B], data: Any, raw: Sequence[str] = ()) -> B:
    """The body that was sent, as `validate` reads it.

    Raises:
        ValidationError: By the path of a field what is wrong and what is allowed.
    """
    if not isinstance(data, dict):
        raise ValidationError([f"send a JSON object; its fields: {', '.join(kind.model_fields) or 'none'}"])
    try:
        return validate(kind, data, raw=raw)
    except Refused as refused:
        raise as_api_error(refused) from None


def validate(kind: type[B], data: dict[str, Any], *, raw: Sequence[str] = (), is_local: bool = False) -> B:
    """Check what was sent, and return it as a body.

    Args:
        raw: Fields that may hold what no database can.
        is_local: Whether it comes from a person at this machine, who may name files; see `is_local`.

    Raises:
        Refused: Something is wrong.
    """
    errors = dict(_unstorable({name: value for name, value in data.items() if name not in raw}))
    names_nothing = False
    if not errors:
        errors = kind.unknown(data)
        names_nothing = not errors
        known = {name: value for name, value in data.items() if name not in errors}
        try:
            body = kind.model_validate(known, context={"is_local": is_local})
            if not errors:
                return body
        except Invalid as error:
            for each in error.errors(include_url=False):
                errors.setdefault(*_sentence(dict(each)))
                names_nothing &= each["type"] == NOT_THERE
    raise Refused(errors, names_nothing=names_nothing)


def is_local(info: ValidationInfo) -> bool:
    """Whether what is validated was asked for by a person at this machine."""
    return bool(info.context and info.context["is_local"])


NOT_THERE = "not there"  # a fault: a name that is nothing's, a file that cannot be used


def fault(name: str, sentence: str) -> PydanticCustomError:
    """What a validator of a body raises about its field `name`; the sentence says everything itself."""
    return PydanticCustomError("sentence", "{sentence}", {"sentence": sentence, "name": name})


def not_there(sentence: str) -> PydanticCustomError:
    """What a validator raises about a name that is nothing's, or a file that cannot be used."""
    return PydanticCustomError(NOT_THERE, "{sentence}", {"sentence": sentence})


def _sentence(error: dict[str, Any]) -> tuple[str, str]:
    """Where a fault of pydantic is, and what it says."""
    context = error.get("ctx", {})
    place = dotted([*error["loc"], *([context["name"]] if context.get("name") else [])])
    match error["type"]:
        case "sentence" | "not there":
            return place or "non_field_errors", str(context["sentence"])
        case "value_error":
            return place or "non_field_errors", str(context["error"])
        case "missing":
            return place, f"{place} is missing"
    return place, f"{place} {shown(error['input'])}: allowed: {_SHOULD.sub('', error['msg'])}"


def dotted(location: Sequence[Any]) -> str:
    """``messages[2].text``"""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location if part != "[key]")
    return "".join(parts).replace(".[", "[").removeprefix(".").encode("utf-8", "backslashreplace").decode()


def shown(value: Any) -> str:
    """A value as an error names it."""
    text = f"{len(value):,} of them" if isinstance(value, list) and len(value) > 20 else repr(value)
    return (text if len(text) <= 80 else text[:79] + "…").encode("utf-8", "backslashreplace").decode()


def _unstorable(value: Any, location: tuple[Any, ...] = ()) -> Iterator[tuple[str, str]]:
    """The places of texts that no database can hold, and why."""
    if isinstance(value, str):
        if "\x00" in value:
            yield dotted(location), f"{dotted(location)} holds a NUL character"
        elif _SURROGATE.search(value):
            yield dotted(location), f"{dotted(location)} holds half of a surrogate pair"
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _unstorable(key, (*location, key))
        yield from _unstorable(part, (*location, key))


class OneOf:
    """Annotation of a text that is one of some."""

    def __init__(self, *values: str) -> None:
        self.values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.values))


class Reads:
    """Annotation of a text that `read` turns into something else; it raises ValueError or LookupError, with a sentence or without."""

    def __init__(self, read: Callable[[str], Any], allowed: str, *, strip: bool = True, **schema: Any) -> None:
        self.read, self.allowed, self.strip = read, allowed, strip
        self.schema = {"type": "string", "minLength": 1, **schema}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return self.schema

    def _validate(self, value: Any) -> Any:
        if isinstance(value, str) and value.strip() and len(value) <= self.schema.get("maxLength", math.inf):
            try:
                return self.read(value.strip() if self.strip else value)
            except LookupError as error:
                if error.args:
                    raise not_there(str(error.args[0])) from None
            except (ValueError, OverflowError) as error:
                if not isinstance(error, OverflowError) and error.args:
                    raise ValueError(str(error.args[0])) from None
        raise PydanticCustomError("type", "{allowed}", {"allowed": self.allowed})


def _said(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "a text, not only white space")
    return text


def _known_keys(tags: dict[str, str]) -> dict[str, str]:
    for key in tags:
        if not TAG_KEY.fullmatch(key):
            raise fault(key, f"tag {key[:80]!r}: allowed: keys of a letter, then up to 63 letters, digits, _ . or -")
    return tags


def _object(value: dict[str, Any]) -> dict[str, Any]:
    try:  # databases cannot store the infinities; JSON may spell numbers that are too large, such as 1e999
        if len(json.dumps(value, ensure_ascii=False, allow_nan=False)) <= MOST_OBJECT:
            return value
    except ValueError:
        pass
    raise PydanticCustomError("object", f"a JSON object of at most {MOST_OBJECT:,} characters")


Id = Annotated[int, Field(ge=1, le=2**63 - 1)]
MessageText = Annotated[
    str, StringConstraints(strip_whitespace=False, min_length=1, max_length=MAX_CHARACTERS), AfterValidator(_said)
]
Verbatim = Annotated[str, StringConstraints(strip_whitespace=False)]
Tags = Annotated[dict[Verbatim, Verbatim], Field(max_length=MOST_TAGS), AfterValidator(_known_keys)]
Anything = Annotated[dict[Verbatim, Any], AfterValidator(_object)]

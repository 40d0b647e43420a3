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
LONGEST_SHOWN = 80  # characters of a value in an error
ABSENT: Any = None  # the default of a field that may be left out, but is not null where it is given
_SURROGATE = re.compile("[\ud800-\udfff]")
# What pydantic's sentences have around what is allowed.
_WORDS_AROUND_ALLOWED = re.compile(
    r"^(Input|String|List|Dictionary|Value) should (be |have )?| after validation.*|(?<=a valid dictionary) or instance of \w+$"
)
B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """A JSON object with these fields and no others; texts are read without the blanks around them."""

    model_config = ConfigDict(extra="forbid", strict=True, str_strip_whitespace=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _only_its_fields(cls, data: Any) -> Any:
        """Return the data unchanged, or raise a `fault` for the first name that is no field, in our words instead of pydantic's."""
        for name, sentence in cls.unknown(data if isinstance(data, dict) else {}).items():
            raise fault(name, sentence)
        return data

    @classmethod
    def unknown(cls, data: dict[str, Any]) -> dict[str, str]:
        """Return the names that are no field, each with a sentence that says which fields there are."""
        allowed = ", ".join(cls.model_fields) or "none"
        unknown_names = [name for name in data if name not in cls.model_fields]
        return {name: f"there is no field {name!r}; allowed: {allowed}" for name in unknown_names}

    @property
    def sent(self) -> dict[str, Any]:
        """Return the fields that were sent, without those left out."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class Nothing(Body):
    """An empty body: there is nothing to choose."""


def as_api_error(refused: Refused) -> ValidationError:
    """Return the 400 that says what was refused: by field a list of the lines."""
    return ValidationError({field: sentence.split("\n") for field, sentence in refused.errors.items()})


def read(kind: type[B], data: Any, raw: Sequence[str] = ()) -> B:
    """Return the body that was sent, as `validate` reads it; fields in `raw` may hold what no database can.

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
    """Check what was sent, and return it as a body. Texts that no database can hold are refused before anything else is looked at.

    Args:
        raw: Fields that may hold what no database can.
        is_local: Whether it comes from a person at this machine, who may name files; see `is_local`.

    Raises:
        Refused: Something is wrong; names every mistake at once.
    """
    not_storable = dict(_unstorable({name: value for name, value in data.items() if name not in raw}))
    if not_storable:
        raise Refused(not_storable, names_nothing=False)
    errors = kind.unknown(data)
    valid = {name: value for name, value in data.items() if name not in errors}
    all_name_nothing = not errors
    try:
        body = kind.model_validate(valid, context={"is_local": is_local})
        if not errors:
            return body
    except Invalid as invalid:
        for error in invalid.errors(include_url=False):
            field, sentence = _field_and_sentence(dict(error))
            errors.setdefault(field, sentence)
            if error["type"] != NOT_THERE:
                all_name_nothing = False
    raise Refused(errors, names_nothing=all_name_nothing)


def is_local(info: ValidationInfo) -> bool:
    """Return whether what is validated was asked for by a person at this machine."""
    return bool(info.context and info.context["is_local"])


NOT_THERE = "not there"  # type of the errors of `not_there`


def fault(name: str, sentence: str) -> PydanticCustomError:
    """Return what a validator of a body raises about its field `name`; the sentence says everything itself."""
    return PydanticCustomError("sentence", "{sentence}", {"sentence": sentence, "name": name})


def not_there(sentence: str) -> PydanticCustomError:
    """Return what a validator raises about a name that nothing has, or a file that cannot be used."""
    return PydanticCustomError(NOT_THERE, "{sentence}", {"sentence": sentence})


def _field_and_sentence(error: dict[str, Any]) -> tuple[str, str]:
    """Return where an error of pydantic is, such as ``messages[2].text``, and a sentence that says what is wrong.

    Sentences of our validators stay as they are. Pydantic's become ``samples 900: allowed: less than or equal to 500``.
    """
    context = error.get("ctx", {})
    location = list(error["loc"])
    if context.get("name"):  # of a `fault`
        location.append(context["name"])
    field = dotted(location)
    match error["type"]:
        case "sentence" | "not there":
            return field or "non_field_errors", str(context["sentence"])
        case "value_error":
            return field or "non_field_errors", str(context["error"])
        case "missing":
            return field, f"{field} is missing"
    allowed = _WORDS_AROUND_ALLOWED.sub("", error["msg"])
    return field, f"{field} {shown(error['input'])}: allowed: {allowed}"


def dotted(location: Sequence[Any]) -> str:
    """Return a location of pydantic as ``messages[2].text``."""
    text = ""
    for part in location:
        if part == "[key]":  # pydantic's mark of a key of an object
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    text = text.replace(".[", "[")  # the name of a `fault` may begin with an index: ``[1].name``
    return _encodable(text.removeprefix("."))


def shown(value: Any) -> str:
    """Return a value as an error names it: shortened, of a long list only how many it holds."""
    text = repr(value)
    if isinstance(value, list) and len(value) > 20:
        text = f"{len(value):,} of them"
    if len(text) > LONGEST_SHOWN:
        text = text[: LONGEST_SHOWN - 1] + "…"
    return _encodable(text)


def _encodable(text: str) -> str:
    """Return a text with halves of surrogate pairs, which no answer can hold, written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _unstorable(value: Any, location: tuple[Any, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the places of texts that no database can hold, and why; keys of objects are texts, too."""
    if isinstance(value, str) and "\x00" in value:
        yield dotted(location), f"{dotted(location)} holds a NUL character"
    elif isinstance(value, str) and _SURROGATE.search(value):
        yield dotted(location), f"{dotted(location)} holds half of a surrogate pair"
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _unstorable(key, (*location, key))
            yield from _unstorable(part, (*location, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _unstorable(part, (*location, index))


class OneOf:
    """Annotation of a text that is one of some."""

    def __init__(self, *values: str) -> None:
        self.values = values

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.values))


class Reads:
    """Annotation of a text that `read` turns into something else; it raises ValueError or LookupError, with a sentence or without."""

    def __init__(self, read: Callable[[str], Any], allowed: str, *, strip: bool = True, **schema: Any) -> None:
        self.read = read
        self.allowed = allowed
        self.strip = strip
        self.schema = {"type": "string", "minLength": 1, **schema}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return self.schema

    def _validate(self, value: Any) -> Any:
        """Return what `read` makes of a text.

        Raises:
            PydanticCustomError: It is no text, blank or too long, or `read` refuses it without a sentence: says what is allowed. Or it
                names nothing (a LookupError with a sentence).
            ValueError: `read` refuses it with a sentence, which stays.
        """
        not_allowed = PydanticCustomError("type", "{allowed}", {"allowed": self.allowed})
        longest = self.schema.get("maxLength", math.inf)
        if not isinstance(value, str) or not value.strip() or len(value) > longest:
            raise not_allowed
        try:
            return self.read(value.strip() if self.strip else value)
        except LookupError as error:
            if error.args:
                raise not_there(str(error.args[0])) from None
        except OverflowError:  # its sentence is Python's, not ours
            pass
        except ValueError as error:
            if error.args:
                raise ValueError(str(error.args[0])) from None
        raise not_allowed


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "a text, not only white space")
    return text


def _with_allowed_keys(tags: dict[str, str]) -> dict[str, str]:
    """Return tags unchanged, or raise a `fault` for the first key that is not allowed."""
    for key in tags:
        if not TAG_KEY.fullmatch(key):
            raise fault(key, f"tag {key[:80]!r}: allowed: keys of a letter, then up to 63 letters, digits, _ . or -")
    return tags


def _storable_object(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object unchanged, or raise where it is too long or holds a number that databases cannot store."""
    refused = PydanticCustomError("object", f"a JSON object of at most {MOST_OBJECT:,} characters")
    try:
        # Databases cannot store the infinities, which JSON may spell as numbers that are too large, such as 1e999.
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise refused from None
    if len(text) > MOST_OBJECT:
        raise refused
    return value


Id = Annotated[int, Field(ge=1, le=2**63 - 1)]
MessageText = Annotated[
    str, StringConstraints(strip_whitespace=False, min_length=1, max_length=MAX_CHARACTERS), AfterValidator(_not_blank)
]
Verbatim = Annotated[str, StringConstraints(strip_whitespace=False)]
Tags = Annotated[dict[Verbatim, Verbatim], Field(max_length=MOST_TAGS), AfterValidator(_with_allowed_keys)]
Anything = Annotated[dict[Verbatim, Any], AfterValidator(_storable_object)]

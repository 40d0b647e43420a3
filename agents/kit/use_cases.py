"""Use cases: one pydantic model says what may be asked for; command, page and route are made from it.

The model is a `Body`: its fields have a description, which is the help text of all three, a default and limits. ::

    class TidyRequest(Body):
        where: Tags = Field({}, description="only messages with these tags, such as build=41")
        samples: int = Field(20, ge=1, le=500, description="most messages looked at, 1 to 500 (default: 20)")
        keep: Annotated[bool, Shown(label="Keep a copy")] = Field(False, description="keep a copy of each")

    class Command(CodedCommand):
        def add_arguments(self, parser):
            add_options(parser, TidyRequest)
        def handle(self, **options):
            tidy(read_options(TidyRequest, options))

    form = request_form(TidyRequest)(request.POST)    # agents.kit.console.forms; when it is valid:
    tidy(form.asked)

    class Tidying(View):
        bodies = {"create": TidyRequest}              # self.read_body() returns it

Options, inputs and JSON become one dictionary, which the model alone checks: a mistake is refused everywhere with the same sentence, that
begins with the field as the door names it (``--samples``, ``samples``). What holds for several fields is a validator of the model that
raises `fault`; what the service refuses is `Refused`, too (`refusing`). Where something holds at one door only, such as a name of a file,
a validator asks `is_local`.

A field is shown by its type: bool, int, float, `OneOf`, a list of `OneOf`, a list of texts, `Tags`, YAML that `FromFile` reads, and text,
which `Reads` reads. Where it may be None, ``off`` is typed for that. `Shown` says what does not follow from the type.
"""

from __future__ import annotations

from argparse import BooleanOptionalAction
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic_core import core_schema

from agents.kit.bodies import Body, Refused, not_there, validate
from agents.kit.commands import unusable, wrong

B = TypeVar("B", bound=Body)
Kind = Literal["flag", "whole number", "number", "choice", "choices", "texts", "tags", "file", "text"]
OFF = "off"  # typed where JSON has null


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Annotation: how a field is shown, where that does not follow from its name and type.

    Attributes:
        option: Of a command, such as ``--bins``; without dashes an argument. `metavar`: what stands for its value in the command's help.
        label: In a form. `choices`: what a form offers, value and label, asked for each time.
        is_yaml: An object that is typed as YAML. `is_long`: a text of several lines.
    """

    option: str = ""
    metavar: str = ""
    label: str = ""
    choices: Callable[[], Sequence[tuple[str, str]]] | None = None
    is_yaml: bool = False
    is_long: bool = False


class FromFile:
    """Annotation of YAML, which a command takes from a file, that `read` turns into something else.

    It is given the path on a command line, and the text elsewhere; what it cannot use it refuses with `refusal`.
    """

    def __init__(
        self, read: Callable[[Path | str], Any], *, longest: int, refusal: type[Exception] = ValueError
    ) -> None:
        self.read, self.longest, self.refusal = read, longest, refusal

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.longest, "contentMediaType": "application/yaml"}

    def _validate(self, value: Any) -> Any:
        is_text = isinstance(value, str) and len(value) <= self.longest
        if not is_text and not isinstance(value, Path):  # no JSON is a Path: only a command makes one
            raise ValueError(f"allowed: a text of at most {self.longest:,} characters")
        try:
            return self.read(value)
        except self.refusal as error:
            raise not_there(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCaseField:
    """A field as doors show it, from the schema that OpenAPI has of it.

    Attributes:
        choices: The values that may be chosen, where they are named.
        bounds: The least and the greatest number, None without a bound.
    """

    name: str
    kind: Kind
    help: str
    default: Any
    choices: tuple[str, ...]
    bounds: tuple[float | None, float | None]
    is_required: bool
    is_nullable: bool
    shown: Shown

    @property
    def option(self) -> str:
        """The name of its option: ``--per-call``."""
        return self.shown.option or f"--{self.name.replace('_', '-')}"


@cache
def fields_of(kind: type[Body]) -> dict[str, UseCaseField]:
    """Return the fields of a use case by name."""
    whole = kind.model_json_schema()
    fields = {}
    for name, schema in whole["properties"].items():
        value = _of_value(schema, whole.get("$defs", {}))
        named = value.get("items", value)
        shown = next((part for part in kind.model_fields[name].metadata if isinstance(part, Shown)), Shown())
        fields[name] = UseCaseField(
            name=name,
            kind="file" if shown.is_yaml else _kind_of(value),
            help=schema.get("description", ""),
            default=schema.get("default"),
            choices=(named["const"],) if "const" in named else tuple(named.get("enum", ())),
            bounds=(value.get("minimum"), value.get("maximum")),
            is_required=name in whole.get("required", ()),
            is_nullable={"type": "null"} in schema.get("anyOf", ()),
            shown=shown,
        )
    return fields


def _of_value(schema: Mapping[str, Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a field's value: null may stand beside it, and an enum under its name."""
    value = next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), schema)
    found: Mapping[str, Any] = named.get(value.get("$ref", "").rpartition("/")[2], value)
    return found


def _kind_of(schema: Mapping[str, Any]) -> Kind:
    match schema:
        case {"type": "boolean"}:
            return "flag"
        case {"type": "integer"}:
            return "whole number"
        case {"type": "number"}:
            return "number"
        case {"type": "array", "items": {"enum": _} | {"const": _}}:
            return "choices"
        case {"type": "array"}:
            return "texts"
        case {"type": "object"}:
            return "tags"
        case {"enum": _} | {"const": _}:
            return "choice"
        case {"contentMediaType": _}:
            return "file"
    return "text"


def read_texts(kind: type[B], texts: Mapping[str, Any], *, is_local: bool = False, **given: Any) -> B:
    """Read what was typed for the fields of a use case, as texts and flags; what is None was left out.

    Args:
        given: Fields that are no texts, because the door knows them.

    Raises:
        Refused: By field, what is wrong and what is allowed.
    """
    data = dict(given)
    errors: dict[str, str] = {}
    for name, field in fields_of(kind).items():
        typed = texts.get(name)
        if typed is None:
            continue
        try:
            data[name] = _value(field, typed)
        except ValueError as error:
            errors[name] = f"{name} {error}"
    try:
        body = validate(kind, data, is_local=is_local)
    except Refused as refused:
        if not errors:
            raise
        errors = {**refused.errors, **errors}
    if errors:
        raise Refused(errors)
    return body


def _value(field: UseCaseField, typed: Any) -> Any:
    """Return what the model checks of what was typed: a number, a list, tags; the text itself where it is none of these."""
    if field.is_nullable and typed == OFF:
        return None
    match field.kind:
        case "whole number":
            return _number(int, typed)
        case "number":
            return _number(float, typed)
        case "choices":
            return list(dict.fromkeys(_parts(typed)))
        case "texts":
            return _parts(typed)
        case "tags":
            return tags_in(_parts(typed), like=field.shown.metavar)
    return typed


def _number(kind: Callable[[Any], float], typed: Any) -> Any:
    try:
        return kind(typed)
    except ValueError:
        return typed


def _parts(typed: str | Sequence[str]) -> list[str]:
    """Return what stands between the commas, of a text or of several."""
    texts = [typed] if isinstance(typed, str) else typed
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def tags_in(parts: Sequence[str], *, like: str = "") -> dict[str, str]:
    """Return texts such as ``build=41`` as a mapping.

    Args:
        like: What is to be written instead.

    Raises:
        ValueError: One has no ``=``; says what to write.
    """
    tags = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{part!r}: write {like or 'tag=value, such as build=41'}")
        tags[key.strip()] = value.strip()
    return tags


# -- commands
def add_options(parser: Any, kind: type[Body], *names: str) -> None:
    """Add the options of a use case to a parser, or to a group of its options.

    Args:
        names: Of the fields, in this order; all without any.
    """
    fields = fields_of(kind)
    for name in names or fields:
        field = fields[name]
        settings: dict[str, Any] = {"dest": name, "default": None, "help": field.help.replace("%", "%%")}
        if field.kind == "flag":
            action: Any = BooleanOptionalAction if field.default is True else "store_true"
            parser.add_argument(field.option, action=action, **settings)
            continue
        if field.kind == "tags":
            settings["action"] = "append"
        if field.kind == "file":
            settings["type"] = Path
        settings["metavar"] = _metavar(field)
        if field.option.startswith("--"):
            parser.add_argument(field.option, required=field.is_required, **settings)
        else:
            settings.pop("dest")
            parser.add_argument(name, nargs=None if field.is_required else "?", **settings)


def _metavar(field: UseCaseField) -> str | None:
    if field.shown.metavar:
        return field.shown.metavar
    match field.kind:
        case "choice":
            return f"{{{','.join(field.choices)}}}"
        case "choices":
            return f"{{{','.join(field.choices)}}},…"
        case "texts":
            return f"{field.name.upper()},…"
        case "tags":
            return "TAG=VALUE,…"
        case "file":
            return "FILE"
    return field.option.removeprefix("--").replace("-", "_").upper()


def read_options(kind: type[B], options: Mapping[str, Any], **given: Any) -> B:
    """Read the options that `add_options` added; see `read_texts`.

    Raises:
        CommandError: Something is wrong, a line each; its exit code is that of names of what is not there where there is nothing else.
    """
    with refusing(kind):
        return read_texts(kind, options, is_local=True, **given)


@contextmanager
def refusing(kind: type[Body]) -> Iterator[None]:
    """Inside, what the service of a use case refuses is a CommandError about its option."""
    try:
        yield
    except Refused as refused:
        lines = "\n".join(_of_option(kind, place, sentence) for place, sentence in refused.errors.items())
        raise (unusable(lines) if refused.names_nothing else wrong(lines)) from None


def _of_option(kind: type[Body], place: str, sentence: str) -> str:
    """Return a sentence about a field as one about its option."""
    name = place.partition(".")[0].partition("[")[0]
    field = fields_of(kind).get(name)
    if field is None:
        return sentence
    for word in (place, name, field.option.removeprefix("--")):
        if sentence.startswith((f"{word} ", f"{word}:")):
            return f"{field.option}{sentence.removeprefix(word)}"
    return f"{field.option}: {sentence}"

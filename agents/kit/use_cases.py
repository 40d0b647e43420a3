"""Use cases: one pydantic model says what may be asked for; command, page and route are made from it.

The model is a `Body`: its fields have a description, which is the help text of all three, a default and limits. ::

    class TidyRequest(Body):
        where: Tags = Field({}, description="only messages with these tags, such as build=41")
        samples: int = Field(20, ge=1, le=500, description="most messages looked at, 1 to 500 (default: 20)")
        keep: Annotated[bool, FieldDisplay(label="Keep a copy")] = Field(False, description="keep a copy of each")

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
which `Reads` reads. Where it may be None, ``off`` is typed for that. `FieldDisplay` says what does not follow from the type.
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
class ChoiceCard:
    """A choice that a form explains.

    Attributes:
        title: Its name. `about`: what it does, a sentence.
        when: When to use it. `cost`: what it takes, in calls of models.
    """

    value: str
    title: str
    about: str
    when: str = ""
    cost: str = ""

    def __str__(self) -> str:
        return self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDisplay:
    """Annotation that says how a field is shown, where that does not follow from its name and type.

    Attributes:
        option: Of a command, such as ``--bins``; without dashes an argument. `metavar`: what stands for its value in the command's help.
        label: In a form. `choices`: what a form offers, value and label, asked for each time. `cards`: the same, each with its explanation.
        is_yaml: An object that is typed as YAML. `is_long`: a text of several lines.
    """

    option: str = ""
    metavar: str = ""
    label: str = ""
    choices: Callable[[], Sequence[tuple[str, str]]] | None = None
    cards: Callable[[], Sequence[ChoiceCard]] | None = None
    is_yaml: bool = False
    is_long: bool = False


class FromFile:
    """Annotation of YAML, which a command takes from a file, that `read` turns into something else.

    It is given the path on a command line, and the text elsewhere; what it cannot use it refuses with `refusal`.
    """

    def __init__(
        self, read: Callable[[Path | str], Any], *, longest: int, refusal: type[Exception] = ValueError
    ) -> None:
        self.read = read
        self.longest = longest
        self.refusal = refusal

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "maxLength": self.longest, "contentMediaType": "application/yaml"}

    def _validate(self, value: Any) -> Any:
        """Return what `read` makes of a path or a text.

        Raises:
            ValueError: It is neither, or the text is too long.
            PydanticCustomError: `read` cannot use it: it counts as a file that is not there, see `not_there`.
        """
        is_text = isinstance(value, str) and len(value) <= self.longest
        if not is_text and not isinstance(value, Path):  # no JSON is a Path: only a command makes one
            raise ValueError(f"allowed: a text of at most {self.longest:,} characters")
        try:
            return self.read(value)
        except self.refusal as error:
            raise not_there(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCaseField:
    """A field as command, form and route show it, read from the schema that OpenAPI has of it.

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
    display: FieldDisplay

    @property
    def option(self) -> str:
        """Return the name of its option: ``--per-call``."""
        return self.display.option or f"--{self.name.replace('_', '-')}"

    @property
    def names(self) -> tuple[str, str]:
        """Return how sentences about it may begin: with its name, or that of its option."""
        return self.name, self.option.removeprefix("--")


@cache
def fields_of(kind: type[Body]) -> dict[str, UseCaseField]:
    """Return the fields of a use case by name, in the order of its model; read from its JSON schema, once per process."""
    schema = kind.model_json_schema()
    definitions = schema.get("$defs", {})
    required = schema.get("required", ())
    fields = {}
    for name, field_schema in schema["properties"].items():
        value_schema = _schema_of_value(field_schema, definitions)
        display = _annotation(kind, name)
        fields[name] = UseCaseField(
            name=name,
            kind="file" if display.is_yaml else _kind_of(value_schema),
            help=field_schema.get("description", ""),
            default=field_schema.get("default"),
            choices=_named_values(value_schema),
            bounds=(value_schema.get("minimum"), value_schema.get("maximum")),
            is_required=name in required,
            is_nullable={"type": "null"} in field_schema.get("anyOf", ()),
            display=display,
        )
    return fields


def _annotation(kind: type[Body], name: str) -> FieldDisplay:
    """Return the `FieldDisplay` that a field is annotated with; an empty one where it has none."""
    for annotation in kind.model_fields[name].metadata:
        if isinstance(annotation, FieldDisplay):
            return annotation
    return FieldDisplay()


def _schema_of_value(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a field's value, without the null that is allowed as well, and with what a reference names."""
    value = schema
    for alternative in schema.get("anyOf", ()):
        if alternative.get("type") != "null":
            value = alternative
            break
    name_of_definition = value.get("$ref", "").rpartition("/")[2]
    defined: Mapping[str, Any] = definitions.get(name_of_definition, value)
    return defined


def _named_values(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values that a choice, or each of several choices, is taken from; none where they are not named."""
    of_one = schema.get("items", schema)
    if "const" in of_one:
        return (of_one["const"],)
    return tuple(of_one.get("enum", ()))


def _kind_of(schema: Mapping[str, Any]) -> Kind:
    """Return the kind of field that holds values of this schema."""
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
        texts: By the field's name; names of no field are not looked at.
        is_local: Whether it comes from a person at this machine, who may name files.
        given: Fields that are no texts, because the door knows them.

    Raises:
        Refused: By field, what is wrong and what is allowed: all mistakes at once.
    """
    data = dict(given)
    errors: dict[str, str] = {}
    for name, field in fields_of(kind).items():
        typed = texts.get(name)
        if typed is None:
            continue
        try:
            data[name] = _as_json(field, typed)
        except ValueError as error:
            errors[name] = f"{name} {error}"
    try:
        body = validate(kind, data, is_local=is_local)
    except Refused as refused:
        if not errors:
            raise
        errors = {**refused.errors, **errors}  # one that could not be read is not "missing", as the model says
    if errors:
        raise Refused(errors)
    return body


def _as_json(field: UseCaseField, typed: Any) -> Any:
    """Return what was typed as JSON would have it, for the model to check: a number, a list, tags, or the text or flag itself.

    ``off`` is null where a field may be that.

    Raises:
        ValueError: Tags are written in another way; says how.
    """
    if field.is_nullable and typed == OFF:
        return None
    match field.kind:
        case "whole number":
            return _number_or_text(int, typed)
        case "number":
            return _number_or_text(float, typed)
        case "choices":
            return list(dict.fromkeys(_parts_between_commas(typed)))  # each once
        case "texts":
            return _parts_between_commas(typed)
        case "tags":
            return tags_in(_parts_between_commas(typed), like=field.display.metavar)
    return typed


def _number_or_text(number_type: Callable[[Any], float], typed: Any) -> Any:
    """Return a number; the text itself where it is none, which the model then refuses."""
    try:
        return number_type(typed)
    except ValueError:
        return typed


def _parts_between_commas(typed: str | Sequence[str]) -> list[str]:
    """Return what stands between the commas of a text or of several, without empty parts."""
    joined = typed if isinstance(typed, str) else ",".join(typed)
    return [part.strip() for part in joined.split(",") if part.strip()]


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
        _add_option(parser, fields[name])


def _add_option(parser: Any, field: UseCaseField) -> None:
    """Add the option of a field, or its argument where `FieldDisplay.option` has no dashes.

    The default is None, which says that it was left out: the model has the real one.
    """
    settings: dict[str, Any] = {"default": None, "help": field.help.replace("%", "%%")}
    if field.kind == "flag":
        is_on_by_default = field.default is True  # then there is --no-… to turn it off
        action: Any = BooleanOptionalAction if is_on_by_default else "store_true"
        parser.add_argument(field.option, dest=field.name, action=action, **settings)
        return
    settings["metavar"] = _metavar(field)
    if field.kind == "tags":
        settings["action"] = "append"  # the option may be given several times
    if field.kind == "file":
        settings["type"] = Path
    if field.option.startswith("--"):
        parser.add_argument(field.option, dest=field.name, required=field.is_required, **settings)
    else:
        parser.add_argument(field.name, nargs=None if field.is_required else "?", **settings)


def _metavar(field: UseCaseField) -> str:
    """Return what stands for the value of an option in the command's help."""
    if field.display.metavar:
        return field.display.metavar
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
    """Raise a CommandError about the options for what a use case refuses inside, a line each.

    Its exit code is `UNUSABLE` where all that is wrong are names of what is not there, else `WRONG_USAGE`.
    """
    try:
        yield
    except Refused as refused:
        sentences = [_about_option(kind, location, sentence) for location, sentence in refused.errors.items()]
        text = "\n".join(sentences)
        if refused.names_nothing:
            raise unusable(text) from None
        raise wrong(text) from None


def _about_option(kind: type[Body], location: str, sentence: str) -> str:
    """Return a sentence about a field (or a part of it, such as ``tags.build``) as one that begins with its option.

    ``samples 900: allowed: …`` becomes ``--samples 900: allowed: …``. A sentence about no field stays as it is.
    """
    name = location.partition(".")[0].partition("[")[0]
    field = fields_of(kind).get(name)
    if field is None:
        return sentence
    return renamed(sentence, location, *field.names, to=field.option) or f"{field.option}: {sentence}"


def renamed(sentence: str, *names: str, to: object) -> str:
    """Return a sentence that begins with one of these names as one that begins with `to`; empty where it begins with none of them."""
    for name in names:
        if sentence.startswith((f"{name} ", f"{name}:")):
            return f"{to}{sentence.removeprefix(name)}"
    return ""

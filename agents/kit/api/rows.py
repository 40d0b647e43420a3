"""What answers show of tables: pydantic models that take their columns from a Django model, and know how rows are named and linked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from inspect import get_annotations
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Self
from uuid import UUID

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from rest_framework.reverse import reverse

Context = Mapping[
    str, Any
]  # what is known when rows are shown: the `request`, and what a view has read for all rows at once
Read = Callable[[Any, Context], Any]
_NAMES = ("slug", "username", "name")  # a foreign key is shown by the first of these columns that its table has
_TYPES: tuple[tuple[type[models.Field[Any, Any]], Any], ...] = (
    (models.BooleanField, bool),
    (models.IntegerField, int),
    (models.FloatField, float),
    (models.DateTimeField, datetime),
    (models.UUIDField, UUID),
    (models.JSONField, Any),
    (models.CharField, str),
    (models.TextField, str),
)


class _Source:
    """Says where a field of an answer is read from."""

    def __init__(self, read: Read) -> None:
        self.read = read


def shown(source: str | Read, about: str = "", *, read: Callable[[Any], Any] | None = None) -> Any:
    """Declare where a field of a `Row` is read from, where that is no column of the same name.

    Args:
        source: A path of attributes such as ``message.channel.slug``, of which each may be null; or a function of row and context.
        about: What the schema says of the field.
        read: Turns what is there into what is shown.
    """
    value_of = _path(source) if isinstance(source, str) else source
    field = Field(description=about or None)
    field.metadata.append(_Source(value_of if read is None else lambda row, context: read(value_of(row, context))))
    return field


_LEFT_OUT = object()


def optional(about: str = "") -> Any:
    """Declare a field that an answer leaves out where it has no value. Null is a value."""
    return Field(
        default_factory=lambda: _LEFT_OUT, exclude_if=lambda value: value is _LEFT_OUT, description=about or None
    )


Url = Annotated[str, WithJsonSchema({"type": "string", "format": "uri"})]


def one_of(choices: Iterable[tuple[Any, Any]], *, blank: bool = False) -> WithJsonSchema:
    """Return the annotation of a text that is one of some. It is not checked: what is stored may be older than the choices."""
    values = [str(value) for value, _ in choices]
    if blank and "" not in values:
        values.append("")
    return WithJsonSchema({"type": "string", "enum": values, "description": described(choices)})


def described(choices: Iterable[tuple[Any, Any]]) -> str:
    """Describe choices in Markdown."""
    return "\n".join(f"* `{value}` - {label}" for value, label in choices if value)


def link(view_name: str, key: str = "pk") -> Read:
    """Return what reads the address of a route; null where its key, a path of attributes, is."""
    key_of = _path(key)

    def read(row: Any, context: Context) -> str | None:
        value = key_of(row, context)
        return None if value is None else reverse(view_name, [value], request=context["request"])

    return read


def query_link(view_name: str, parameter: str, key: str = "pk") -> Read:
    """Return what reads the address of a list, narrowed by a value of the row."""
    value_of = _path(key)

    def read(row: Any, context: Context) -> str:
        return f"{reverse(view_name, request=context['request'])}?{parameter}={value_of(row, context)}"

    return read


class Answer(BaseModel):
    """What an answer holds. Read from an object, its fields are attributes of the same names."""

    model_config = ConfigDict(from_attributes=True, coerce_numbers_to_str=True)


class Row(Answer):
    """What answers show of a row of `table`.

    `columns` name the fields in order; those that the class does not declare are columns of the table. A foreign key is shown by the slug
    or name of its row, else by its id. ``url`` leads to the row itself, ``X_url`` to the row of the foreign key ``X``, else to the route
    ``MODEL-X`` of the row.
    """

    table: ClassVar[type[models.Model]]
    _reads: ClassVar[dict[str, Read]] = {}

    def __init_subclass__(
        cls, *, table: type[models.Model] | None = None, columns: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if table is not None:
            cls.table = table
        declared = dict(get_annotations(cls))
        annotations = {name: declared.pop(name, None) or _column(cls.table, name) for name in columns}
        cls.__annotations__ = {**annotations, **declared}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls._reads = {}
        for name, field in cls.model_fields.items():
            sources = [part.read for part in field.metadata if isinstance(part, _Source)]
            cls._reads[name] = sources[-1] if sources else _path(name)

    @classmethod
    def together(cls, rows: Sequence[Any]) -> Context:
        """Read what is read for all rows at once; `shown` functions find it in their context."""
        return {}

    @classmethod
    def all_of(cls, rows: Iterable[Any], context: Context) -> list[Self]:
        """Show rows."""
        rows = list(rows)
        context = {**context, **cls.together(rows)}
        return [cls.model_validate({name: read(row, context) for name, read in cls._reads.items()}) for row in rows]

    @classmethod
    def of(cls, row: Any, context: Context) -> Self:
        """Show one row."""
        [answer] = cls.all_of([row], context)
        return answer


def _path(path: str) -> Read:
    """Return what reads attributes of attributes: null where one on the way is null, and lists of related rows."""
    names = path.split(".")
    if len(names) == 1:
        attribute = attrgetter(path)
        return lambda row, context: _listed(attribute(row))

    def read(row: Any, context: Context) -> Any:
        value = row
        for name in names:
            if value is None:
                return None
            value = getattr(value, name)
        return value

    return read


def _listed(value: Any) -> Any:
    return list(value.all()) if isinstance(value, models.Manager) else value


def _column(table: type[models.Model], name: str) -> Any:
    """Return the type of a field of an answer, with where it is read from and what the schema says of it."""
    if name == "url" or name.endswith("_url"):
        return _link(table, name)
    column = _field_of(table, name)
    if column is None:
        raise FieldDoesNotExist(f"{table.__name__} has no field {name!r}")
    if column.many_to_many:
        return _names_of_many(column)
    if column.is_relation:
        return _name_of_one(column)
    kind, about = _type_of(column), Field(description=_about(column) or None)
    return Annotated[kind | None if column.null else kind, about]


def _link(table: type[models.Model], name: str) -> Any:
    """Return the type of a link: to the row itself, to that of a foreign key, or to another route of the row."""
    what = name.removesuffix("_url")
    column = _field_of(table, what)
    if column is None or not column.is_relation:
        view_name = f"{table._meta.model_name}-{'detail' if name == 'url' else what}"
        return Annotated[Url, _Source(link(view_name, _key_of(table)))]
    related = column.related_model
    key = f"{what}.slug" if _key_of(related) == "slug" else column.attname
    address = _Source(link(f"{related._meta.model_name}-detail", key))
    return Annotated[Url | None if column.null else Url, address]


def _field_of(table: type[models.Model], name: str) -> Any:
    """Return a column of the table; None where it has none of this name."""
    columns = (*table._meta.fields, *table._meta.many_to_many)
    return next((column for column in columns if column.name == name), None)


def _key_of(table: type[models.Model]) -> str:
    """Return the column by which routes know a row."""
    return "slug" if _field_of(table, "slug") else "pk"


def _name_of_one(column: Any) -> Any:
    """Return the type of a foreign key: the name of its row, else its id."""
    related = column.related_model
    for name in _NAMES:
        if named_by := _field_of(related, name):
            about = Field(description=column.help_text or _about(named_by) or None)
            kind = _type_of(named_by)
            return Annotated[kind | None if column.null else kind, _Source(_path(f"{column.name}.{name}")), about]
    kind, about = _type_of(related._meta.pk), Field(description=column.help_text or None)
    return Annotated[kind | None if column.null else kind, _Source(_path(column.attname)), about]


def _names_of_many(column: Any) -> Any:
    """Return the type of a relation to many: the names of their rows."""
    [name, *_] = (name for name in _NAMES if _field_of(column.related_model, name))

    def read(row: Any, context: Context) -> list[str]:
        return [getattr(related, name) for related in getattr(row, column.name).all()]

    return Annotated[list[str], _Source(read), Field(description=column.help_text or None)]


def _type_of(column: Any) -> Any:
    """Return the type of a column."""
    if column.choices:
        return Annotated[str, one_of(column.flatchoices, blank=column.blank)]
    if isinstance(column, models.SlugField):
        return Annotated[str, WithJsonSchema({"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"})]
    if isinstance(column, models.DecimalField):
        whole = column.max_digits - column.decimal_places
        pattern = rf"^-?\d{{0,{whole}}}(?:\.\d{{0,{column.decimal_places}}})?$"
        as_text = PlainSerializer("{:f}".format, return_type=str)
        return Annotated[Decimal, as_text, WithJsonSchema({"type": "string", "format": "decimal", "pattern": pattern})]
    return next(kind for field, kind in _TYPES if isinstance(column, field))


def _about(column: Any) -> str:
    """Return what a column is, with its choices."""
    parts = str(column.help_text), described(column.flatchoices or ())
    return "\n\n".join(part for part in parts if part)

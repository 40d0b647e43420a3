"""What answers show of tables: pydantic models that take their columns from a Django model, and know how rows are named and linked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Self
from uuid import UUID

from django.db import models
from django.utils import timezone
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from rest_framework.reverse import reverse

Context = Mapping[str, Any]  # what is known when rows are shown: the `request`, and what is read for all rows together
Read = Callable[[Any, Context], Any]
Url = Annotated[str, WithJsonSchema({"type": "string", "format": "uri"})]
Slug = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"})]
Dollars = Annotated[
    Decimal,
    PlainSerializer("{:.8f}".format, return_type=str),
    WithJsonSchema({"type": "string", "format": "decimal", "pattern": r"^-?\d{0,12}(?:\.\d{0,8})?$"}),
]
_TYPES: dict[type[models.Field[Any, Any]], Any] = {  # the first that fits
    models.BooleanField: bool,
    models.IntegerField: int,
    models.FloatField: float,
    models.DecimalField: Dollars,
    models.DateTimeField: Annotated[datetime, AfterValidator(timezone.localtime)],
    models.UUIDField: UUID,
    models.JSONField: Any,
    models.SlugField: Slug,
    models.CharField: str,
    models.TextField: str,
}
_NAMES = ("slug", "username", "name")  # a foreign key is shown by the first of these columns that its table has
_LEFT_OUT = object()


class _Source:
    """Annotates a field with what reads it."""

    def __init__(self, read: Read) -> None:
        self.read = read


def shown(source: str | Read, about: str = "") -> Any:
    """Declare where a field of a `Row` is read from, where that is no attribute of the same name.

    Args:
        source: A path of attributes such as ``message.channel.slug``, of which each may be null; or a function of row and context.
        about: What the schema says of the field.
    """
    field = Field(description=about or None)
    field.metadata.append(_Source(attribute(source) if isinstance(source, str) else source))
    return field


def optional(about: str = "") -> Any:
    """Declare a field that an answer leaves out where it has no value. Null is a value."""
    return Field(
        default_factory=lambda: _LEFT_OUT, exclude_if=lambda value: value is _LEFT_OUT, description=about or None
    )


def one_of(choices: Iterable[tuple[Any, Any]]) -> WithJsonSchema:
    """Return the annotation of a text that is one of some. It is not checked: what is stored may be older than the choices."""
    known = {str(value): label for value, label in choices}
    return WithJsonSchema({"type": "string", "enum": [*known], "description": described(known.items())})


def described(choices: Iterable[tuple[Any, Any]]) -> str:
    """Describe choices in Markdown."""
    return "\n".join(f"* `{value}` - {label}" for value, label in choices if value)


def attribute(path: str) -> Read:
    """Return what reads an attribute of attributes: null where one on the way is, and a list of related rows."""
    names = path.split(".")

    def read(row: Any, context: Context) -> Any:
        value = row
        for name in names:
            if value is None:
                return None
            value = getattr(value, name)
        return list(value.all()) if isinstance(value, models.Manager) else value

    return read


def link(view_name: str, key: str = "pk") -> Read:
    """Return what reads the address of a route; null where its key, a path of attributes, is."""
    key_of = attribute(key)

    def read(row: Any, context: Context) -> str | None:
        value = key_of(row, context)
        return None if value is None else reverse(view_name, [value], request=context["request"])

    return read


def query_link(view_name: str, parameter: str, key: str = "pk") -> Read:
    """Return what reads the address of a list, narrowed by a value of the row."""
    value_of = attribute(key)
    return lambda row, context: f"{reverse(view_name, request=context['request'])}?{parameter}={value_of(row, context)}"


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
    reads: ClassVar[dict[str, Read]]

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
        cls.reads = {name: attribute(name) for name in cls.model_fields}
        for name, field in cls.model_fields.items():
            cls.reads.update((name, part.read) for part in field.metadata if isinstance(part, _Source))

    @classmethod
    def together(cls, rows: Sequence[Any]) -> Context:
        """Read what is read for all rows together; what reads their fields finds it in the context."""
        return {}

    @classmethod
    def all_of(cls, rows: Iterable[Any], context: Context) -> list[Self]:
        """Show rows."""
        rows = list(rows)
        context = {**context, **cls.together(rows)}
        return [cls.model_validate({name: read(row, context) for name, read in cls.reads.items()}) for row in rows]

    @classmethod
    def of(cls, row: Any, context: Context) -> Self:
        """Show one row."""
        [answer] = cls.all_of([row], context)
        return answer


def _column(table: type[models.Model], name: str) -> Any:
    """Return the annotation of a field: its type, what reads it, and what the schema says of it."""
    if name == "url" or name.endswith("_url"):
        return _link(table, name)
    column: Any = table._meta.get_field(name)
    source, path = column, name
    if column.is_relation:
        named = {field.name: field for field in column.related_model._meta.fields}
        names = [known for known in _NAMES if known in named]
        source = named[names[0]] if names else column.related_model._meta.pk
        path = f"{name}.{names[0]}" if names else column.attname
    about = f"{column.help_text or source.help_text}\n\n{described(source.flatchoices or ())}".strip()
    kind = next(kind for field, kind in _TYPES.items() if isinstance(source, field))
    if source.choices:
        blank = [("", "")] if source.blank else []
        kind = Annotated[str, one_of([*source.flatchoices, *blank])]
    return Annotated[kind | None if column.null else kind, _Source(attribute(path)), Field(description=about or None)]


def _link(table: type[models.Model], name: str) -> Any:
    """Return the annotation of a link: to the row itself, to that of a foreign key, or to another route of the row."""
    what = name.removesuffix("_url")
    relations = {column.name: column for column in table._meta.fields if column.is_relation}
    if what not in relations:
        view_name = f"{table._meta.model_name}-{'detail' if name == 'url' else what}"
        return Annotated[Url, _Source(link(view_name, _key_of(table)))]
    column: Any = relations[what]
    key = f"{what}.slug" if _key_of(column.related_model) == "slug" else column.attname
    address = _Source(link(f"{column.related_model._meta.model_name}-detail", key))
    return Annotated[Url | None if column.null else Url, address]


def _key_of(table: type[models.Model]) -> str:
    """Return the column by which routes know a row."""
    return "slug" if any(column.name == "slug" for column in table._meta.fields) else "pk"

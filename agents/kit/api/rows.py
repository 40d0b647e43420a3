"""Answers that show rows of tables: pydantic models that take their columns from a Django model, and know how rows are named and linked."""

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

Context = Mapping[str, Any]  # for showing rows: the `request`, and what is read for all rows together
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
    """Return the annotation of a text that the schema says is one of `choices` (value, label).

    It is not checked: what is stored may be older than the choices.
    """
    labels = {str(value): label for value, label in choices}
    return WithJsonSchema({"type": "string", "enum": [*labels], "description": described(labels.items())})


def described(choices: Iterable[tuple[Any, Any]]) -> str:
    """Return choices (value, label) as a list in Markdown; an empty value is left out."""
    return "\n".join(f"* `{value}` - {label}" for value, label in choices if value)


def attribute(path: str) -> Read:
    """Return a function that reads an attribute of attributes: None where one on the way is; all rows where it is a manager of rows."""
    names = path.split(".")

    def read(row: Any, context: Context) -> Any:
        value = row
        for name in names:
            if value is None:
                return None
            value = getattr(value, name)
        if isinstance(value, models.Manager):
            return list(value.all())
        return value

    return read


def link(view_name: str, key: str = "pk") -> Read:
    """Return a function that reads the address of a row's route; None where its `key`, a path of attributes of the row, is None."""
    key_of = attribute(key)

    def read(row: Any, context: Context) -> str | None:
        value = key_of(row, context)
        if value is None:
            return None
        return reverse(view_name, [value], request=context["request"])

    return read


def query_link(view_name: str, parameter: str, key: str = "pk") -> Read:
    """Return a function that reads the address of a list, narrowed by a value of the row: ``…/runs/?agent=michael``."""
    value_of = attribute(key)

    def read(row: Any, context: Context) -> str:
        url = reverse(view_name, request=context["request"])
        return f"{url}?{parameter}={value_of(row, context)}"

    return read


class Answer(BaseModel):
    """The base of answers. Read from an object, its fields are attributes of the same names."""

    model_config = ConfigDict(from_attributes=True, coerce_numbers_to_str=True)


class Row(Answer):
    """The base of answers that show a row of `table`.

    `columns` name the fields in order; those that the class does not declare are columns of the table. A foreign key is shown by the slug
    or name of its row, else by its id. ``url`` leads to the row itself, ``X_url`` to the row of the foreign key ``X``, else to the route
    ``MODEL-X`` of the row.
    """

    table: ClassVar[type[models.Model]]
    reads: ClassVar[dict[str, Read]]

    def __init_subclass__(
        cls, *, table: type[models.Model] | None = None, columns: Sequence[str] = (), **kwargs: Any
    ) -> None:
        # Before pydantic looks at them: the class's annotations in the order of `columns`, then those it declares besides.
        super().__init_subclass__(**kwargs)
        if table is not None:
            cls.table = table
        declared = get_annotations(cls)
        annotations = {}
        for name in columns:
            annotations[name] = declared[name] if name in declared else _annotation_of_column(cls.table, name)
        for name, annotation in declared.items():
            annotations.setdefault(name, annotation)
        cls.__annotations__ = annotations

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Set `reads`: how each field is read, as `shown` declares it, else as the attribute of the same name."""
        cls.reads = {}
        for name, field in cls.model_fields.items():
            cls.reads[name] = attribute(name)
            for annotation in field.metadata:
                if isinstance(annotation, _Source):
                    cls.reads[name] = annotation.read

    @classmethod
    def together(cls, rows: Sequence[Any]) -> Context:
        """Return what is read for all rows together, so that queries do not grow with the rows; it is added to the fields' context."""
        return {}

    @classmethod
    def all_of(cls, rows: Iterable[Any], context: Context) -> list[Self]:
        """Return the answers that show these rows, in their order; what `together` reads is read once for all."""
        rows = list(rows)
        context = {**context, **cls.together(rows)}
        answers = []
        for row in rows:
            values = {name: read(row, context) for name, read in cls.reads.items()}
            answers.append(cls.model_validate(values))
        return answers

    @classmethod
    def of(cls, row: Any, context: Context) -> Self:
        """Show one row."""
        [answer] = cls.all_of([row], context)
        return answer


def _annotation_of_column(table: type[models.Model], name: str) -> Any:
    """Return the annotation of a field: its type, what reads it, and what the schema says of it."""
    if name == "url" or name.endswith("_url"):
        return _annotation_of_link(table, name)
    column: Any = table._meta.get_field(name)
    shown_column = column  # of a foreign key the column that names its row
    path = name
    if column.is_relation:
        shown_column = _naming_column(column.related_model)
        path = column.attname if shown_column.primary_key else f"{name}.{shown_column.name}"
    about = f"{column.help_text or shown_column.help_text}\n\n{described(shown_column.flatchoices or ())}".strip()
    kind = _type_of(shown_column)
    if column.null:
        kind = kind | None
    return Annotated[kind, _Source(attribute(path)), Field(description=about or None)]


def _naming_column(table: type[models.Model]) -> Any:
    """Return the column by which rows of this table are named elsewhere: the first of `_NAMES`, else the primary key."""
    columns = {column.name: column for column in table._meta.fields}
    for name in _NAMES:
        if name in columns:
            return columns[name]
    return table._meta.pk


def _type_of(column: Any) -> Any:
    """Return the type of a column's values; for one with choices a text of which the schema names the choices."""
    if column.choices:
        blank = [("", "")] if column.blank else []
        return Annotated[str, one_of([*column.flatchoices, *blank])]
    return next(kind for field_class, kind in _TYPES.items() if isinstance(column, field_class))


def _annotation_of_link(table: type[models.Model], name: str) -> Any:
    """Return the annotation of a link: ``url`` to the row itself, ``X_url`` to the row of the foreign key X, else to the row's route X.

    It is None where the foreign key is.
    """
    target = name.removesuffix("_url")
    relations = {column.name: column for column in table._meta.fields if column.is_relation}
    if target not in relations:
        view = "detail" if name == "url" else target
        return Annotated[Url, _Source(link(f"{table._meta.model_name}-{view}", _key_of(table)))]
    column: Any = relations[target]
    key = f"{target}.slug" if _key_of(column.related_model) == "slug" else column.attname
    source = _Source(link(f"{column.related_model._meta.model_name}-detail", key))
    if column.null:
        return Annotated[Url | None, source]
    return Annotated[Url, source]


def _key_of(table: type[models.Model]) -> str:
    """Return the column by which routes know a row."""
    has_slug = any(column.name == "slug" for column in table._meta.fields)
    return "slug" if has_slug else "pk"

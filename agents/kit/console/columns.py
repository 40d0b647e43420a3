"""Columns and filters of a list, and fields of a read-only page, from their names in the registration: a value looks as its field says."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.db.models import BooleanField, CharField, DateField, DateTimeField, Field, JSONField, Model, TextField

from agents.kit.console import display
from agents.kit.console.filters import (
    ChoicesFilter,
    DateRangeFilter,
    ErrorFilter,
    RelatedFilter,
    chosen,
    recent_values,
    tag_filter,
)

Show = Callable[[Any], object]
# By the name of a field, or the model that it leads to: what looks the same in all tables. The apps' admin modules add theirs.
VALUE_DISPLAYS: dict[str | type[Model] | None, Show] = {}
TAGS = ("tags", "where")


def column(page: Any, name: str, *, is_list: bool) -> Any:
    """What Django's ``list_display`` or ``fields`` takes for a name in the registration.

    Args:
        page: The admin class of the table; a name that is its own stays.
        name: A field, a path to one of a related row (``message__agent``) or ``pk``; ``created_at=queued_at`` gives a label.
        is_list: Whether long texts are folded.
    """
    path, _, label = name.partition("=")
    if hasattr(getattr(type(page), path, None), "short_description"):
        return path
    field = _field(page.model, path)
    label = label.replace("_", " ") or (
        str(field.verbose_name).removesuffix(" at") if path != "pk" else str(page.opts.verbose_name)
    )

    @admin.display(description=label, ordering=path)
    def shown(row: Any) -> object:
        for part in path.split("__"):
            row = getattr(row, part, None)
        if row in (None, ""):
            return display.EMPTY
        show = _show(page.model, field, is_list=is_list)  # only now all apps have said how theirs look
        return show(row)

    shown.__name__ = path
    return shown


def list_filter(page: Any, name: str) -> Any:
    """What Django's ``list_filter`` takes for a name in the registration.

    Args:
        page: The admin class of the table; its `own_filters` are taken by their names.
        name: A field or a path to one; ``tags,channel__tags`` filters by a tag in either column, and ``run=evaluation_run?`` by a
            column that only links set, with the parameter before ``=`` (default: the column).
    """
    model = page.model
    if name in page.own_filters:
        return page.own_filters[name]
    if name == "error":
        return ErrorFilter
    if name.endswith(TAGS):
        return tag_filter(*name.split(","))
    if name.endswith("?"):
        parameter, _, column = name[:-1].partition("=")
        return chosen(column or parameter, parameter)
    field = _field(model, name)
    if isinstance(field, DateTimeField):
        return (name, DateRangeFilter)
    if field.related_model is not None:
        return (name, RelatedFilter)
    if field.choices:
        return (name, ChoicesFilter)
    if not isinstance(field, CharField):
        return name
    most = {"newest_rows": 1_000, "most": 10} if name == "work_id" else {}
    return recent_values(name, str(field.verbose_name), **most)


def related(model: type[Model], names: list[str]) -> list[str]:
    """The related rows that these columns show."""
    joined = []
    for path in (name.partition("=")[0] for name in names):
        if hasattr(model, path.partition("__")[0]) and path != "pk":
            is_row = _field(model, path).related_model is not None
            joined.append(path if is_row else path.rpartition("__")[0])
    return [path for path in joined if path]


def _field(model: type[Model], path: str) -> Any:
    field: Any = None
    for part in path.split("__"):
        try:
            field = model._meta.pk if part == "pk" else model._meta.get_field(part)
        except FieldDoesNotExist:
            allowed = ", ".join(one.name for one in model._meta.get_fields())
            raise ValueError(f"{model._meta.label}: {path!r} is no field; allowed: {allowed}") from None
        model = field.related_model or model
    return field


def _show(model: type[Model], field: Field[Any, Any], *, is_list: bool) -> Show:
    if show := VALUE_DISPLAYS.get(field.name) or VALUE_DISPLAYS.get(field.related_model):
        return show
    if field.primary_key:
        return lambda pk: f"{model._meta.verbose_name} {pk}"
    if field.related_model is not None:
        return display.page_of if admin.site.is_registered(field.related_model) else display.isolated
    if field.name == "status":
        return lambda value: display.badge(
            dict(field.flatchoices).get(value, value), display.STATUS_TONES.get(value, "plain")
        )
    if field.choices:
        return lambda value: display.visible(dict(field.flatchoices).get(value, value))
    if isinstance(field, DateField):
        if isinstance(field, DateTimeField):
            return display.moment if is_list else display.exact_moment
        return display.day
    if isinstance(field, JSONField):
        return display.tags if field.name in TAGS else display.json_block
    if isinstance(field, TextField):
        return display.folded if is_list else display.block
    if isinstance(field, BooleanField):
        return lambda value: "yes" if value else "no"
    return _number_or_text


def _number_or_text(value: object) -> object:
    if isinstance(value, Decimal):
        return display.money(value)
    return f"{value:,}" if isinstance(value, int) else display.visible(value)

"""Columns and filters of a list, and fields of a read-only page, made from their names in the registration of the table.

How a value is displayed follows from its field.
"""

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
    filter_set_by_links,
    recent_values,
    tag_filter,
)

Display = Callable[[Any], object]
# By the name of a field, or the model that it leads to: values that look the same in all tables. The apps' admin modules add theirs.
VALUE_DISPLAYS: dict[str | type[Model] | None, Display] = {}
# Of these, by the model, what quotes messages: for users who may read them (see `LogAdmin.get_queryset`).
QUOTING_DISPLAYS: dict[type[Model] | None, Display] = {}
NAMES_OF_TAGS = ("tags", "where")


def column(page: Any, name: str, *, is_list: bool) -> Any:
    """Return what Django's ``list_display`` or ``fields`` takes for a name in the registration.

    Args:
        page: The admin class of the table; a name that is its own stays.
        name: A field, a path to one of a related row (``message__agent``) or ``pk``; ``created_at=queued_at`` gives a label.
        is_list: Whether long texts are folded.
    """
    path, _, label = name.partition("=")
    # Columns that a page computes itself are methods decorated with `admin.display`.
    is_method_of_page = hasattr(getattr(type(page), path, None), "short_description")
    if is_method_of_page:
        return path
    field = _field_at(page.model, path)
    label = label.replace("_", " ")
    if not label and path == "pk":
        label = str(page.opts.verbose_name)
    elif not label:
        label = str(field.verbose_name).removesuffix(" at")

    @admin.display(description=label, ordering=path)
    def shown(row: Any) -> object:
        value = row
        for part in path.split("__"):
            value = getattr(value, part, None)
        if value in (None, ""):
            return display.EMPTY
        # Looked up only now, when all apps have added to VALUE_DISPLAYS.
        if field.related_model in QUOTING_DISPLAYS and not getattr(row, "unread", True):
            return QUOTING_DISPLAYS[field.related_model](value)
        return _display_of(page.model, field, is_list=is_list)(value)

    shown.__name__ = path
    return shown


def list_filter(page: Any, name: str) -> Any:
    """Return what Django's ``list_filter`` takes for a name in the registration.

    Args:
        page: The admin class of the table; its `own_filters` are taken by their names.
        name: A field or a path to one; ``tags,channel__tags`` filters by a tag in either column, and ``run=evaluation_run?`` by a
            column that only links set, with the parameter before ``=`` (default: the column).
    """
    if name in page.own_filters:
        return page.own_filters[name]
    if name == "error":
        return ErrorFilter
    if name.endswith(NAMES_OF_TAGS):
        return tag_filter(*name.split(","))
    if name.endswith("?"):
        parameter, _, column_name = name.removesuffix("?").partition("=")
        return filter_set_by_links(column_name or parameter, parameter)
    field = _field_at(page.model, name)
    if isinstance(field, DateTimeField):
        return (name, DateRangeFilter)
    if field.related_model is not None:
        return (name, RelatedFilter)
    if field.choices:
        return (name, ChoicesFilter)
    if not isinstance(field, CharField):
        return name
    if name == "work_id":  # nearly every row has another one
        return recent_values(name, str(field.verbose_name), newest_rows=1_000, most=10)
    return recent_values(name, str(field.verbose_name))


def related_paths(model: type[Model], names: list[str]) -> list[str]:
    """Return the paths to related rows that these columns show, to be read together with the rows of a list.

    Columns of the row itself, and those that are no field (methods of the admin class), need none.
    """
    paths = []
    for name in names:
        path = name.partition("=")[0]
        is_field = hasattr(model, path.partition("__")[0])
        if not is_field or path == "pk":
            continue
        leads_to_row = _field_at(model, path).related_model is not None
        paths.append(path if leads_to_row else path.rpartition("__")[0])  # empty for a column of the row itself
    return [path for path in paths if path]


def _field_at(model: type[Model], path: str) -> Any:
    """Return the field that a path such as ``message__agent`` leads to.

    Raises:
        ValueError: It leads to none; says which fields there are.
    """
    field: Any = None
    for part in path.split("__"):
        try:
            field = model._meta.pk if part == "pk" else model._meta.get_field(part)
        except FieldDoesNotExist:
            allowed = ", ".join(allowed_field.name for allowed_field in model._meta.get_fields())
            raise ValueError(f"{model._meta.label}: {path!r} is no field; allowed: {allowed}") from None
        model = field.related_model or model
    return field


def _display_of(model: type[Model], field: Field[Any, Any], *, is_list: bool) -> Display:
    """Return the function that displays the values of a field, for a cell of a list or for the page of a row.

    What `VALUE_DISPLAYS` has for the field's name, or for the model it leads to, goes before everything else. Then a primary key is
    shown as ``LLM call 12``, a related row as a link to its page, a status as a badge, a choice by its label, the rest by type.
    """
    chosen = VALUE_DISPLAYS.get(field.name) or VALUE_DISPLAYS.get(field.related_model)
    if chosen:
        return chosen
    if field.primary_key:
        return lambda pk: f"{model._meta.verbose_name} {pk}"
    if field.related_model is not None:
        has_page = admin.site.is_registered(field.related_model)
        return display.page_of if has_page else display.isolated
    labels = dict(field.flatchoices)
    if field.name == "status":
        return lambda status: display.badge(labels.get(status, status), display.STATUS_TONES.get(status, "plain"))
    if field.choices:
        return lambda value: display.visible(labels.get(value, value))
    return _display_of_type(field, is_list=is_list)


def _display_of_type(field: Field[Any, Any], *, is_list: bool) -> Display:
    """Return the function that displays the values of a field of this type; a list has short forms: relative times, folded texts."""
    if isinstance(field, DateTimeField):
        return display.moment if is_list else display.exact_moment
    if isinstance(field, DateField):
        return display.day
    if isinstance(field, JSONField):
        return display.tags if field.name in NAMES_OF_TAGS else display.json_block
    if isinstance(field, TextField):
        return display.folded if is_list else display.block
    if isinstance(field, BooleanField):
        return lambda value: "yes" if value else "no"
    return _number_or_text


def _number_or_text(value: object) -> object:
    if isinstance(value, Decimal):
        return display.money(value)
    if isinstance(value, int):
        return f"{value:,}"
    return display.visible(value)

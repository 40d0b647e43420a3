"""List filters that stay fast on tables of any size, on the theme's own: choices, recent values, days, tags, related rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import get_fields_from_path
from django.core.exceptions import ValidationError
from django.db.models import Exists, Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.utils import timezone

from agents.kit.console.display import shortened
from agents.kit.text.tags import TAG_KEY

if TYPE_CHECKING:  # the theme is untyped; its filters keep the interface of Django's
    from django.contrib.admin import ChoicesFieldListFilter as ChoicesFilter
    from django.contrib.admin import FieldListFilter as DaysFilter
    from django.contrib.admin import RelatedFieldListFilter as RelatedRowFilter
    from django.contrib.admin import SimpleListFilter as DropdownFilter
    from django.contrib.admin import SimpleListFilter as TextFilter
else:
    from unfold.contrib.filters.admin import AutocompleteSelectFilter as RelatedRowFilter
    from unfold.contrib.filters.admin import ChoicesDropdownFilter as ChoicesFilter
    from unfold.contrib.filters.admin import DropdownFilter, TextFilter
    from unfold.contrib.filters.admin import RangeDateFilter as DaysFilter

__all__ = ["ChoicesFilter", "DropdownFilter"]


class RelatedFilter(RelatedRowFilter):
    """The related row, searched by its name."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        if any(len(str(key)) >= 19 for key in self.lookup_val or ()):  # no database compares such a number
            raise IncorrectLookupParameters
        return super().queryset(request, queryset)


class OptionFilter(DropdownFilter):
    """A choice among `options`: value to its label and the condition that rows meet."""

    options: ClassVar[dict[str, tuple[str, Q | Exists]]]

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(value, label) for value, (label, _) in self.options.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows that meet the chosen option's condition; all without a choice, none for a value that is no option."""
        value = self.value()
        if not value:
            return queryset
        if value not in self.options:
            return queryset.none()
        _, condition = self.options[value]
        return queryset.filter(condition)


class ErrorFilter(OptionFilter):
    """Rows with a text in their column `error`, or those without one."""

    title = "error"
    parameter_name = "error"
    options: ClassVar = {"yes": ("has an error", ~Q(error="")), "no": ("has none", Q(error=""))}


class RecentValuesFilter(DropdownFilter):
    """The values that a column has in the newest rows, and the chosen one; a whole table is not read for choices."""

    field: ClassVar[str]
    newest_rows: ClassVar[int]
    most_choices: ClassVar[int]

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the choices, value and label: what the newest rows have, the first by the alphabet, and the chosen value besides."""
        rows = model_admin.model._default_manager.order_by("-pk")
        # By their keys, because PostgreSQL reads the whole table for "keys above a subquery".
        newest = rows.filter(pk__in=rows.values("pk")[: self.newest_rows])
        values = newest.order_by(self.field).exclude(**{self.field: ""}).values_list(self.field, flat=True).distinct()
        choices = [str(value) for value in values[: self.most_choices]]
        chosen = self.value()
        if chosen and chosen not in choices:
            choices.append(chosen)
        return [(value, shortened(value, 60)) for value in choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.field: self.value()}) if self.value() else queryset


def recent_values(path: str, title: str, *, newest_rows: int = 5_000, most: int = 25) -> type[RecentValuesFilter]:
    """Return a filter by the values that a column has in the newest rows, at most so many of them."""
    names = {"title": title, "parameter_name": path, "field": path, "newest_rows": newest_rows, "most_choices": most}
    return type("RecentValuesFilter", (RecentValuesFilter,), names)


class FilterSetByLinks(DropdownFilter):
    """A filter that only a link sets: shown while it is set, so that one sees it and can take it off."""

    field: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        value = self.value()
        return [(value, f"{self.title} {value}")] if value else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the link's value in the column; all without one, none for a value that the column cannot have."""
        value = self.value()
        if not value:
            return queryset
        field: Any = get_fields_from_path(queryset.model, self.field)[-1]
        try:
            key = (field.related_model._meta.pk if field.is_relation else field).to_python(value)
        except ValidationError:
            return queryset.none()
        is_too_large = isinstance(key, int) and not 0 <= key < 2**63  # no database compares such a number
        if is_too_large:
            return queryset.none()
        return queryset.filter(**{self.field: key})


def filter_set_by_links(field: str, parameter: str) -> type[FilterSetByLinks]:
    """Return a filter by the column `field`, set by links with `parameter`."""
    title = "evaluation" if field == "evaluation_run" else parameter.replace("_", " ")
    names = {"title": title, "parameter_name": parameter, "field": field}
    return type("FilterSetByLinks", (FilterSetByLinks,), names)


class DateRangeFilter(DaysFilter):
    """Rows of a range of days, both ends included, in the console's time zone."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows from the first day to the end of the last one; an end that is missing or no day is open."""
        typed: Any = self.used_parameters
        first = day_of(str(typed.get(f"{self.field_path}_from", "")))
        last = day_of(str(typed.get(f"{self.field_path}_to", "")))
        if first is not None:
            queryset = queryset.filter(**{f"{self.field_path}__gte": midnight(first)})
        if last is not None:
            queryset = queryset.filter(**{f"{self.field_path}__lt": midnight(last + timedelta(days=1))})
        return queryset


def day_of(text: str) -> date | None:
    """Return the day that a text such as 2026-11-28 names; None for any other text, and for years that a database cannot compare."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 1900 <= day.year < 9000 else None


def midnight(day: date) -> datetime:
    """Return the beginning of a day in the console's time zone."""
    return timezone.make_aware(datetime.combine(day, time.min))


def number_in(query: Mapping[str, str], name: str) -> int | None:
    """Return a parameter that is a whole number; None where it is missing, or no such number that a database can compare."""
    return whole_number(query.get(name, ""))


def whole_number(text: str) -> int | None:
    """Return the number that a part of an address is; None where it is none that a database can compare."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 19
    return int(text) if is_number else None


class TagFilter(TextFilter):
    """Rows with a tag, as ``build=41``, or with any value of one, as ``build``. Subclasses say where the tags are."""

    title = "tag, such as build=41, or build for any"
    parameter_name = "tag"
    paths: ClassVar[tuple[str, ...]] = ("tags",)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the tag in any of the `paths`; all where nothing was typed, none where it is no tag."""
        key, separator, value = (self.value() or "").strip().partition("=")
        if not key and not separator:
            return queryset
        if not TAG_KEY.fullmatch(key):
            return queryset.none()
        has_tag = Q()
        for number, path in enumerate(self.paths):
            # As in `evaluation.scorers.selection.with_tags`: the key as it is, and a comparison of texts.
            name = f"tag_{number}"
            queryset = queryset.alias(**{name: Cast(KeyTextTransform(key, path), TextField())})
            if separator:
                has_tag |= Q(**{name: value})
            else:
                has_tag |= Q(**{f"{name}__isnull": False})
        return queryset.filter(has_tag)


def tag_filter(*paths: str) -> type[TagFilter]:
    """Return a filter by a tag in any of these columns, each a path of lookups to tags."""
    return type("TagFilter", (TagFilter,), {"paths": paths})

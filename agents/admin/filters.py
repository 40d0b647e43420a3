"""List filters that stay fast on tables of any size."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Field, Model, QuerySet, Subquery
from django.http import HttpRequest
from django.utils import timezone

from agents.admin.display import shortened


class RecentValuesFilter(admin.FieldListFilter):
    """The values a column has in the newest rows, and the chosen one.

    `admin.AllValuesFieldListFilter` reads the whole table for its choices; this one reads a bounded part of it.
    """

    newest_rows = 5_000
    most_choices = 25

    def __init__(
        self,
        field: Field[Any, Any],
        request: HttpRequest,
        params: dict[str, Any],
        model: type[Model],
        model_admin: admin.ModelAdmin[Any],
        field_path: str,
    ) -> None:
        self.lookup_kwarg = field_path
        super().__init__(field, request, params, model, model_admin, field_path)
        chosen: Any = self.used_parameters.get(field_path) or [None]
        self.chosen = chosen[-1]
        rows = model._default_manager.order_by("-pk")
        newest = rows.filter(pk__gt=Subquery(rows.values("pk")[:1]) - self.newest_rows)
        values = newest.order_by(field_path).exclude(**{field_path: ""}).values_list(field_path, flat=True).distinct()
        self.values = [str(value) for value in values[: self.most_choices]]
        if self.chosen and self.chosen not in self.values:
            self.values.append(self.chosen)

    def expected_parameters(self) -> list[str | None]:
        return [self.lookup_kwarg]

    def has_output(self) -> bool:
        return bool(self.values)

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        yield {
            "selected": not self.chosen,
            "query_string": changelist.get_query_string(remove=[self.lookup_kwarg]),
            "display": "All",
        }
        for value in self.values:
            yield {
                "selected": value == self.chosen,
                "query_string": changelist.get_query_string({self.lookup_kwarg: value}),
                "display": shortened(value, 60),
            }


class RecentWorkFilter(RecentValuesFilter):
    """The works (such as ``evaluation_run:12``) of the newest calls."""

    newest_rows = 1_000
    most_choices = 10


class ChosenFilter(admin.SimpleListFilter):
    """A filter that only a link sets: shown while it is set, so that one sees it and can take it off.

    Subclasses name the `field` it filters by, a number.
    """

    field: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        value = self.value()
        return [(value, f"{self.title} {value}")] if value else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if not value:
            return queryset
        return queryset.filter(**{self.field: value}) if value.isdecimal() and len(value) < 19 else queryset.none()


class DateRangeFilter(admin.FieldListFilter):
    """Rows of a range of days, both ends included, in the console's time zone; its dates are typed or picked."""

    template = "admin/date_range_filter.html"

    def __init__(
        self,
        field: Field[Any, Any],
        request: HttpRequest,
        params: dict[str, Any],
        model: type[Model],
        model_admin: admin.ModelAdmin[Any],
        field_path: str,
    ) -> None:
        self.names = (f"{field_path}_from", f"{field_path}_to")
        super().__init__(field, request, params, model, model_admin, field_path)
        typed: Any = self.used_parameters
        self.days = {name: day_of(str((typed.get(name) or [""])[-1])) for name in self.names}

    def expected_parameters(self) -> list[str | None]:
        return list(self.names)

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        first, last = (self.days[name] for name in self.names)
        if first is not None:
            queryset = queryset.filter(**{f"{self.field_path}__gte": _midnight(first)})
        if last is not None:
            queryset = queryset.filter(**{f"{self.field_path}__lt": _midnight(last + timedelta(days=1))})
        return queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """One choice, which holds what the template's form needs."""
        kept = {name: value for name, value in changelist.params.items() if name not in self.names}
        days = [(name, label, self.days[name]) for name, label in zip(self.names, ("from", "to"), strict=True)]
        yield {"days": days, "kept": kept, "selected": any(self.days.values())}


def day_of(text: str) -> date | None:
    """A day of the years that every database can compare; None for anything else."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 1900 <= day.year < 9000 else None


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))

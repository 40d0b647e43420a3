"""List filters that stay fast on tables of any size: typed values, time ranges, agents, tags, errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet, Subquery, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.utils import timezone

from agents.console.display import shortened
from agents.models.conversations import TAG_KEY


class RecentValuesFilter(admin.FieldListFilter):
    """The values a column has in the newest rows, and the chosen one.

    `admin.AllValuesFieldListFilter` reads the whole table for its choices; this one reads a bounded part of it.
    """

    newest_rows = 5_000
    most_choices = 25

    def __init__(
        self, field: Any, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any, field_path: str
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
        everything = changelist.get_query_string(remove=[self.lookup_kwarg])
        yield {"selected": not self.chosen, "query_string": everything, "display": "All"}
        for value in self.values:
            url = changelist.get_query_string({self.lookup_kwarg: value})
            yield {"selected": value == self.chosen, "query_string": url, "display": shortened(value, 60)}


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
        self, field: Any, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any, field_path: str
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
            queryset = queryset.filter(**{f"{self.field_path}__gte": midnight(first)})
        if last is not None:
            queryset = queryset.filter(**{f"{self.field_path}__lt": midnight(last + timedelta(days=1))})
        return queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """One choice, which holds what the template's form needs."""
        days = [(name, label, self.days[name]) for name, label in zip(self.names, ("from", "to"), strict=True)]
        yield {"days": days, "others": _others(changelist, *self.names), "selected": any(self.days.values())}


def day_of(text: str) -> date | None:
    """A day of the years that every database can compare; None for anything else."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if 1900 <= day.year < 9000 else None


def midnight(day: date) -> datetime:
    """The beginning of a day in the console's time zone."""
    return timezone.make_aware(datetime.combine(day, time.min))


def number_in(query: Mapping[str, str], name: str) -> int | None:
    """A whole number from the query string; None when it is missing or none."""
    value = query.get(name, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None


MOST_RELATED = 60  # offered as links; where there are more, a name is typed


class TypedFilter(admin.SimpleListFilter):
    """A filter whose value is typed into a field of its own form. Subclasses say what it narrows to."""

    template = "admin/typed_filter.html"
    hint: ClassVar[str]
    input_type: ClassVar[str] = "text"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("typed", "typed")]  # a filter without choices is not shown

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """One choice, which holds what the template's form needs."""
        others = _others(changelist, str(self.parameter_name))
        yield {"selected": bool(self.value()), "display": self.value() or "", "others": others}


def _others(changelist: ChangeList, *names: str | None) -> dict[str, Any]:
    """The other parameters of the list, which a filter's own form keeps."""
    return {name: value for name, value in changelist.params.items() if name not in names}


class TagFilter(TypedFilter):
    """Rows with a tag, as ``build=41``, or with any value of one, as ``build``. Subclasses say where the tags are."""

    title = "tag"
    parameter_name = "tag"
    hint = "build=41, or build for any"
    paths: ClassVar[tuple[str, ...]] = ("tags",)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        key, separator, value = (self.value() or "").strip().partition("=")
        if not key and not separator:
            return queryset
        if not TAG_KEY.fullmatch(key):
            return queryset.none()
        wanted = Q()
        for number, path in enumerate(self.paths):
            # As in `evaluation.scorers.windows.with_tags`: the key as it is, and a comparison of texts.
            name = f"tag_{number}"
            queryset = queryset.alias(**{name: Cast(KeyTextTransform(key, path), TextField())})
            wanted |= Q(**{name: value}) if separator else Q(**{f"{name}__isnull": False})
        return queryset.filter(wanted)


def tag_filter(*paths: str) -> type[TagFilter]:
    """A tag filter over these columns, each a path of lookups to tags."""
    return type("TagFilter", (TagFilter,), {"paths": paths})


class ErrorFilter(admin.SimpleListFilter):
    """Rows that tell of an error in their column `error`, and those that do not."""

    title = "error"
    parameter_name = "error"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("yes", "has an error"), ("no", "has none")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "yes":
            return queryset.exclude(error="")
        return queryset.filter(error="") if self.value() == "no" else queryset


class RelatedFilter(admin.RelatedFieldListFilter):
    """The related rows as links; where there are too many for that, a field for a name. Reads no more than `MOST_RELATED` of them.

    Subclasses say which column is typed, and which one the links show.
    """

    hint: ClassVar[str]
    input_type = "text"
    parameter_name: ClassVar[str]
    typed_by: ClassVar[str] = "name"
    shown_by: ClassVar[str] = "name"

    def __init__(
        self, field: Any, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any, field_path: str
    ) -> None:
        self.related = field.related_model._default_manager
        super().__init__(field, request, params, model, model_admin, field_path)
        typed: Any = self.used_parameters.pop(self.parameter_name, None) or [""]
        self.typed = str(typed[-1]).replace("\x00", "").strip()  # no text of the database holds one
        self.are_many = len(self.lookup_choices) > MOST_RELATED
        if self.are_many:
            self.template = "admin/typed_filter.html"

    def expected_parameters(self) -> list[str | None]:
        return [*super().expected_parameters(), self.parameter_name]

    def field_choices(
        self, field: Any, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, Any]]:
        # Sorted here: by the database, all of them would be read for the first few.
        some = self.related.order_by("pk").values_list("pk", self.shown_by)[: MOST_RELATED + 1]
        return [(str(pk), name) for pk, name in sorted(some, key=lambda row: str(row[1]).casefold())]

    def has_output(self) -> bool:
        return bool(self.lookup_choices or self.used_parameters or self.typed)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        rows = super().queryset(request, queryset)
        rows = queryset if rows is None else rows
        if not self.typed:
            return rows
        chosen = self.related.filter(**{self.typed_by: self.typed}).values_list("pk", flat=True).first()
        return rows.none() if chosen is None else rows.filter(**{self.field_path: chosen})

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        if not self.are_many:
            yield from super().choices(changelist)
            return
        chosen, name = str((self.lookup_val or [""])[-1]), self.typed
        if not name and chosen.isdecimal() and len(chosen) < 19:  # by a link
            name = self.related.filter(pk=chosen).values_list(self.typed_by, flat=True).first() or ""
        others = _others(changelist, *self.expected_parameters())
        yield {"selected": bool(self.typed or self.lookup_val), "display": name, "others": others}


class AgentFilter(RelatedFilter):
    hint = "the agent's id, as in commands"
    parameter_name = "agent_slug"
    typed_by = "slug"
    shown_by = "display_name"

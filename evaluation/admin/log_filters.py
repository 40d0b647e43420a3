"""What people look for in what was measured."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest

from evaluation.models import Dimension

HEIGHTS = {"low": ("0 to 3", (0, 3)), "middle": ("4 to 6", (4, 6)), "high": ("7 to 9", (7, 9))}


class DimensionFilter(admin.SimpleListFilter):
    """Evaluations in which a dimension was measured."""

    title = "dimension"
    parameter_name = "dimension"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(value, value.replace("_", " ")) for value in Dimension.values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in Dimension.values:
            return queryset
        listed: QuerySet[Any] = queryset.alias(listed_dimensions=Cast("dimensions", TextField()))
        return listed.filter(listed_dimensions__contains=f'"{self.value()}"')


class HeightFilter(admin.SimpleListFilter):
    """Scores of a third of the scale; trivial ones are no scores."""

    title = "score (of 9)"
    parameter_name = "height"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(value, label) for value, (label, _) in HEIGHTS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in HEIGHTS:
            return queryset
        return queryset.filter(status="scored", score__range=HEIGHTS[str(self.value())][1])

"""What people look for in the log of the gate."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest

from agents.admin.filters import ChosenFilter
from correction.config import GATE_DIMENSIONS
from correction.models import GateDimensionResult


class MessageFilter(ChosenFilter):
    title = "message"
    parameter_name = "message"
    field = "message_id"


class SessionFilter(ChosenFilter):
    """Set by links only: the attempts at one message."""

    title = "session"
    parameter_name = "session"
    field = "session"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if not value:
            return queryset
        try:
            return queryset.filter(session=uuid.UUID(value))
        except ValueError:
            return queryset.none()


class FailedDimensionFilter(admin.SimpleListFilter):
    title = "failed dimension"
    parameter_name = "failed"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("any", "any"), *((dimension, dimension) for dimension in GATE_DIMENSIONS)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if not value:
            return queryset
        failed = GateDimensionResult.objects.filter(log=OuterRef("pk"), passed=False)
        return queryset.filter(Exists(failed if value == "any" else failed.filter(dimension=value)))


class MarkFilter(admin.SimpleListFilter):
    """What people said of the verdicts; *unmarked* are the failures nobody looked at yet."""

    title = "mark"
    parameter_name = "mark"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("any", "any mark"), *GateDimensionResult.Mark.choices, ("none", "failed, not marked")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if not value:
            return queryset
        if value == "none":
            return queryset.filter(
                Exists(GateDimensionResult.objects.filter(log=OuterRef("pk"), passed=False, mark=""))
            )
        marked = GateDimensionResult.objects.exclude(mark="")  # few: an index holds just these
        return queryset.filter(pk__in=(marked if value == "any" else marked.filter(mark=value)).values("log"))

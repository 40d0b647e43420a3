"""What people look for in the log of the gate."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest

from agents.admin.filters import ChosenFilter
from correction.config.resolve import GATE_DIMENSIONS
from correction.models import CorrectionLog, GateDimensionResult, Outcome

Status = GateDimensionResult.Status
UNCHECKED = (
    *(Outcome.TIMEOUT_PASSED, Outcome.OVERLOAD_PASSED, Outcome.ERROR_PASSED, Outcome.UNSCORED_PASSED),
    Outcome.BUDGET_PASSED,
)
UNJUDGED = (Status.TIMEOUT, Status.OVERLOAD, Status.ERROR, Status.BUDGET, Status.UNSCORED)


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


class NotJudgedFilter(admin.SimpleListFilter):
    """Attempts that passed unchecked in some dimension, by why."""

    title = "not judged"
    parameter_name = "not_judged"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("any", "for any reason"), *((status.value, str(status.label)) for status in UNJUDGED)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if not value:
            return queryset
        unjudged = GateDimensionResult.objects.filter(log=OuterRef("pk"), status__in=UNJUDGED)
        return queryset.filter(Exists(unjudged if value == "any" else unjudged.filter(status=value)))


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


class GateFilter(admin.SimpleListFilter):
    """For the lists of messages and turns: what the gate did to them. Subclasses say how its log refers to their rows."""

    title = "gate"
    parameter_name = "gate"
    link: ClassVar[str]
    choices_of_gate: ClassVar[dict[str, tuple[str, Q]]] = {
        "seen": ("was judged", Q()),
        "passed": ("passed at once", Q(outcome=Outcome.PASSED)),
        "corrected": ("was corrected", Q(outcome=Outcome.CORRECTED)),
        "forced": ("was forced through", Q(outcome=Outcome.FORCED_THROUGH)),
        "observed": ("was observed", Q(outcome=Outcome.OBSERVED)),
        "unchecked": ("passed unchecked", Q(outcome__in=UNCHECKED)),
    }

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(value, label) for value, (label, _) in self.choices_of_gate.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        _, wanted = self.choices_of_gate.get(self.value() or "", ("", None))
        if wanted is None:
            return queryset
        return queryset.filter(Exists(CorrectionLog.objects.filter(wanted, **{self.link: OuterRef("pk")})))


class GateOfMessage(GateFilter):
    link = "message"


class GateOfRun(GateFilter):
    link = "run"

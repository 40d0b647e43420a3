"""Interventions, and the log of every one that was looked at, over the API."""

from __future__ import annotations

from typing import Any

from django.db.models import Prefetch, QuerySet
from rest_framework.serializers import DictField, FloatField, JSONField, ListField, SlugRelatedField

from agents.api.filters import of_agent
from agents.kit.api import filters
from agents.kit.api.filters import Filters, InTime
from agents.kit.api.pagination import LogByTime
from agents.kit.api.model_rows import QueryLink, Row
from agents.kit.api.views import Rows
from agents.models import Agent
from correction.interventions.models import Intervention, InterventionLog


class InterventionRow(Row):
    """One intervention that an operator wrote: all preconditions that are given must hold, then the nudge is shown to the agent."""

    agents = SlugRelatedField[Any](slug_field="slug", many=True, read_only=True, help_text="slugs; empty = every agent")
    proposition_threshold = FloatField(
        allow_null=True, help_text="fires when the score is below; null = when the claim holds"
    )
    function_parameters = DictField(child=JSONField())
    logs_url = QueryLink("interventionlog-list", "intervention", source="slug")

    class Meta:
        model = Intervention
        fields = (
            *("slug", "url", "description", "is_enabled", "agents", "dm_allowed", "window"),
            *("cooldown_messages", "textual_claim", "function", "function_parameters", "proposition_claim"),
            *("proposition_threshold", "nudge_type", "nudge", "updated_at", "logs_url"),
        )


class InterventionFilters(Filters):
    search = filters.search("slug", "description")
    is_enabled = filters.flag()
    agent = of_agent(method="holds_for")
    ordering = filters.ordering({"slug": ("slug",), "-updated_at": ("-updated_at", "-pk")})

    def holds_for(self, rows: QuerySet[Intervention], name: str, agent: Agent) -> QuerySet[Intervention]:
        return rows.filter(agents=None) | rows.filter(agents=agent)


class Interventions(Rows):
    """The interventions that operators wrote, by slug.

    Filters: `search` (in slug and description), `is_enabled`, `agent` (those that hold for it); `ordering`.
    """

    queryset = Intervention.objects.prefetch_related(
        Prefetch("agents", Agent.objects.only("pk", "slug").order_by("slug"))
    ).order_by("slug")
    serializer_class = InterventionRow
    filterset_class = InterventionFilters
    lookup_field = "slug"
    lookup_value_converter = "slug"

    def missing(self, key: Any) -> str:
        return f"there is no intervention {key[:80]!r}; built-in ones are fields of the configuration"


class BriefLog(Row):
    """One evaluation of one intervention, without what its preconditions said."""

    class Meta:
        model = InterventionLog
        fields: tuple[str, ...] = (
            *("id", "url", "name", "intervention", "intervention_url", "agent", "channel", "channel_position"),
            *("run", "run_url", "fired", "why", "nudge_type", "judge", "duration_ms", "created_at"),
        )


class WholeLog(BriefLog):
    """One evaluation of an intervention with what each precondition said, and the nudge."""

    preconditions = ListField(
        child=JSONField(),
        help_text="each one's kind, what it said, whether it held (null = not asked or not judged), reasoning",
    )
    calls_url = QueryLink("llmcall-list", "work_id", source="work_id", help_text="the model calls it made")

    class Meta(BriefLog.Meta):
        fields = (*BriefLog.Meta.fields, "preconditions", "nudge", "calls_url")


class LogFilters(InTime):
    agent = of_agent()
    intervention = filters.Parameter("name", about="its name: a slug, or a built-in one")
    fired = filters.flag()
    run = filters.number("run_id", allowed="the id of a run")


class InterventionLogs(Rows):
    """Every evaluation of an intervention, newest first, whether it fired or not.

    Filters: `agent`, `intervention` (its name: a slug, or a built-in one such as `variety`), `fired`, `run` (id), `since`, `until`.
    `ordering=created_at` for the oldest first.
    """

    queryset = InterventionLog.objects.select_related("agent", "channel", "intervention").defer(
        *("agent__system_prompt", "agent__sample_lines", "agent__description", "channel__topic", "channel__tags"),
        *("intervention__nudge", "intervention__textual_claim", "intervention__proposition_claim"),
    )
    row_class = BriefLog
    serializer_class = WholeLog
    pagination_class = LogByTime
    filterset_class = LogFilters

    def get_queryset(self) -> QuerySet[InterventionLog]:
        logs = super().get_queryset()
        return logs.defer("preconditions", "nudge") if self.action == "list" else logs

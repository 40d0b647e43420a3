"""Interventions, and the log of every one that was looked at, over the API."""

from __future__ import annotations

from typing import Any

from django.db.models import Prefetch, QuerySet
from pydantic import Field

from agents.api.filters import of_agent
from agents.kit.api import filters
from agents.kit.api.filters import Filters, InTime
from agents.kit.api.pagination import LogByTime
from agents.kit.api.rows import Row, Url, query_link, shown
from agents.kit.api.views import Rows
from agents.models import Agent
from correction.interventions.models import Intervention, InterventionLog
from evaluation.api.answers import QuotingRow


class InterventionRow(
    Row,
    table=Intervention,
    columns=(
        *("slug", "url", "description", "is_enabled", "agents", "dm_allowed", "window"),
        *("cooldown_messages", "textual_claim", "function", "function_parameters", "proposition_claim"),
        *("proposition_threshold", "nudge_type", "nudge", "updated_at", "logs_url"),
    ),
):
    """One intervention that an operator wrote: all preconditions that are given must hold, then the nudge is shown to the agent."""

    agents: list[str] = shown(
        lambda row, context: [agent.slug for agent in row.agents.all()], "slugs; empty = every agent"
    )
    function_parameters: dict[str, Any]
    proposition_threshold: float | None = Field(
        description="fires when the score is below; null = when the claim holds"
    )
    logs_url: Url = shown(query_link("interventionlog-list", "intervention", "slug"))


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
    answer_class = InterventionRow
    filterset_class = InterventionFilters
    lookup_field = "slug"
    lookup_value_converter = "slug"

    def missing(self, key: Any) -> str:
        return f"there is no intervention {key[:80]!r}; built-in ones are fields of the configuration"


class InterventionLogRow(
    QuotingRow,
    table=InterventionLog,
    columns=(
        *("id", "url", "name", "intervention", "intervention_url", "agent", "channel", "channel_position"),
        *("run", "run_url", "fired", "why", "nudge_type", "judge", "duration_ms", "created_at"),
    ),
):
    """One evaluation of one intervention, without what its preconditions said."""


class WholeInterventionLog(InterventionLogRow, columns=("preconditions", "nudge", "calls_url")):
    """One evaluation of an intervention with what each precondition said, and the nudge."""

    preconditions: list[Any] = Field(
        description="each one's kind, what it said, whether it held (null = not asked or not judged), reasoning"
    )
    calls_url: Url = shown(query_link("llmcall-list", "work_id", "work_id"), "the model calls it made")


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
    row_class = InterventionLogRow
    answer_class = WholeInterventionLog
    pagination_class = LogByTime
    filterset_class = LogFilters

    def get_queryset(self) -> QuerySet[InterventionLog]:
        logs = super().get_queryset()
        return logs.defer("preconditions", "nudge") if self.action == "list" else logs

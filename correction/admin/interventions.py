"""Interventions that operators write, and the log of every one that was looked at."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Count, Max, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.filters import ChosenFilter, DateRangeFilter, RecentValuesFilter
from agents.admin.log_filters import AgentFilter, tag_filter
from agents.admin.logs import LogAdmin
from agents.adminsite import ModelAdmin
from agents.models import LLMCall
from correction.admin.exports import INTERVENTIONS
from correction.admin.intervention_form import InterventionForm, functions_help, nudges_help
from correction.admin.intervention_log import fired_badge, preconditions_table
from correction.interventions.builtin import BUILT_IN
from correction.models import Intervention, InterventionLog
from evaluation.admin.display import judge_badge


@admin.register(Intervention)
class InterventionAdmin(ModelAdmin[Intervention]):
    form = InterventionForm
    list_display = ("name", "enabled", "preconditions", "nudged", "reach", "fired_times")
    list_display_links = ("name",)
    list_filter = ("is_enabled", "dm_allowed")
    search_fields = ("slug", "description", "textual_claim", "proposition_claim")
    autocomplete_fields = ("agents",)

    def get_fieldsets(self, request: HttpRequest, obj: Intervention | None = None) -> Any:
        conditions = ("function", "function_parameters", "textual_claim", "proposition_claim", "proposition_threshold")
        return (
            (None, {"fields": ("slug", "description", "is_enabled")}),
            ("Where and how often", {"fields": ("agents", "dm_allowed", "window", "cooldown_messages")}),
            ("Preconditions: all that are given must hold", {"fields": conditions, "description": functions_help()}),
            ("Nudge: what the agent is then shown", {"fields": ("nudge_type", "nudge"), "description": nudges_help()}),
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Intervention]:
        fired = (
            InterventionLog.objects.filter(intervention=OuterRef("pk"), fired=True).order_by().values("intervention")
        )
        return (
            super()
            .get_queryset(request)
            .annotate(
                fired_total=Subquery(fired.annotate(n=Count("pk")).values("n")),
                fired_last=Subquery(fired.annotate(last=Max("created_at")).values("last")),
            )
            .prefetch_related("agents")
        )

    @admin.display(description="intervention", ordering="slug")
    def name(self, row: Intervention) -> SafeString:
        return display.lines(
            format_html("<strong>{}</strong>", display.isolated(row.slug)), display.visible(row.description)
        )

    @admin.display(description="enabled", ordering="is_enabled")
    def enabled(self, row: Intervention) -> SafeString:
        return display.badge("on", "good") if row.is_enabled else display.badge("off")

    @admin.display(description="fires when")
    def preconditions(self, row: Intervention) -> SafeString:
        parts = []
        if row.function:
            parts.append(format_html("{} holds", display.visible(row.function)))
        if row.textual_claim:
            parts.append(format_html("“{}”", display.visible(display.shortened(row.textual_claim, 60))))
        if row.proposition_claim:
            below = f" scores below {row.proposition_threshold}" if row.proposition_threshold is not None else " holds"
            parts.append(format_html("“{}”{}", display.visible(display.shortened(row.proposition_claim, 60)), below))
        return format_html('<div class="pl-wide">{}</div>', display.lines(*parts) if parts else display.EMPTY)

    @admin.display(description="nudge")
    def nudged(self, row: Intervention) -> SafeString:
        return display.folded(row.nudge, 60) if row.nudge else display.badge(row.nudge_type)

    @admin.display(description="for")
    def reach(self, row: Intervention) -> SafeString:
        names = [display.isolated(agent.display_name) for agent in row.agents.all()]
        who = format_html(", ".join(["{}"] * len(names)), *names) if names else "every agent"
        return display.lines(who, "also in direct messages" if row.dm_allowed else "")

    @admin.display(description="fired", ordering="fired_total")
    def fired_times(self, row: Any) -> SafeString:
        if not row.fired_total:
            return display.EMPTY
        url = display.list_url(InterventionLog, intervention=row.pk, fired__exact=1)
        return display.lines(
            display.link(url, "once" if row.fired_total == 1 else f"{row.fired_total:,} times"),
            display.moment(row.fired_last),
        )


class InterventionFilter(ChosenFilter):
    title = "intervention"
    parameter_name = "intervention"
    field = "intervention_id"


@admin.register(InterventionLog)
class InterventionLogAdmin(LogAdmin[InterventionLog]):
    export = INTERVENTIONS
    list_display = ("when", "what", "who", "fired_mark", "reason", "shown", "place")
    list_display_links = ("when",)
    list_filter = (
        InterventionFilter,
        "fired",
        ("name", RecentValuesFilter),
        ("judge", RecentValuesFilter),
        ("agent", AgentFilter),
        tag_filter("channel__tags"),
        ("created_at", DateRangeFilter),
    )
    list_select_related = ("agent", "channel")
    ordering = ("-created_at", "-pk")  # an index has it, also below a range of days
    fieldsets: ClassVar = (
        (None, {"fields": ("what", "fired_mark", "reason", "conditions", "nudge_type", "nudge_text")}),
        ("Where", {"fields": ("who", "place", "channel_position", "run_link", "intervention_link")}),
        ("How it was judged", {"fields": ("judge_mark", "duration", "calls", "when")}),
    )

    @admin.display(description="time", ordering="created_at")
    def when(self, log: InterventionLog) -> SafeString:
        return display.moment(log.created_at)

    @admin.display(description="intervention", ordering="name")
    def what(self, log: InterventionLog) -> SafeString:
        return display.isolated(log.name.replace("_", " "))

    @admin.display(description="agent", ordering="agent")
    def who(self, log: InterventionLog) -> SafeString:
        return display.agent_chip(log.agent)

    @admin.display(description="fired", ordering="fired")
    def fired_mark(self, log: InterventionLog) -> SafeString:
        return fired_badge(log.fired)

    @admin.display(description="why")
    def reason(self, log: InterventionLog) -> SafeString:
        return display.folded(log.why, 90)

    @admin.display(description="nudge")
    def shown(self, log: InterventionLog) -> SafeString:
        return display.folded(log.nudge, 60)

    @admin.display(description="channel", ordering="channel")
    def place(self, log: InterventionLog) -> SafeString:
        if log.channel is None:
            return display.EMPTY
        return display.link(reverse("admin:agents_channel_transcript", args=[log.channel.pk]), log.channel)

    @admin.display(description="preconditions")
    def conditions(self, log: InterventionLog) -> SafeString:
        return preconditions_table(log.preconditions)

    @admin.display(description="nudge")
    def nudge_text(self, log: InterventionLog) -> SafeString:
        return display.block(log.nudge)

    @admin.display(description="run")
    def run_link(self, log: InterventionLog) -> SafeString:
        return display.page_of(log.run, f"run {log.run_id}") if log.run else display.EMPTY

    @admin.display(description="written down in")
    def intervention_link(self, log: InterventionLog) -> SafeString:
        if log.intervention is not None:
            return display.page_of(log.intervention)
        return SafeString("built in" if log.name in BUILT_IN else "an intervention that was deleted")

    @admin.display(description="judge")
    def judge_mark(self, log: InterventionLog) -> SafeString:
        return judge_badge(log.judge)

    @admin.display(description="duration")
    def duration(self, log: InterventionLog) -> str:
        return f"{log.duration_ms:,} ms"

    @admin.display(description="model calls")
    def calls(self, log: InterventionLog) -> SafeString:
        return display.link(display.list_url(LLMCall, work_id=log.work_id), "the calls it made")

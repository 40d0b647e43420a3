"""The log of the gate: every attempt with its verdicts, and the session it belongs to as a timeline."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.filters import DateRangeFilter, RecentValuesFilter
from agents.admin.log_filters import AgentFilter, tag_filter
from agents.admin.logs import LogAdmin
from correction.admin.display import (
    attempt_badge,
    endings,
    outcome_badge,
    outcome_words,
    results,
    source_badge,
    speaker,
)
from correction.admin.exports import ATTEMPTS
from correction.admin.log_filters import (
    FailedDimensionFilter,
    MarkFilter,
    MessageFilter,
    NotJudgedFilter,
    SessionFilter,
)
from correction.admin.timeline import MARKING, session_context
from correction.gate.thresholds import mark_result
from correction.models import CorrectionLog, GateDimensionResult


@admin.register(CorrectionLog)
class CorrectionLogAdmin(LogAdmin[CorrectionLog]):
    export = ATTEMPTS
    list_display = ("when", "who", "outcome_mark", "verdicts", "draft", "place")
    list_display_links = ("when",)
    list_filter = (
        SessionFilter,
        MessageFilter,
        "outcome",
        FailedDimensionFilter,
        NotJudgedFilter,
        MarkFilter,
        "committed",
        "source",
        ("judge", RecentValuesFilter),
        ("agent", AgentFilter),
        tag_filter("tags", "message__tags", "channel__tags"),
        ("created_at", DateRangeFilter),
    )
    list_select_related = ("agent", "channel")
    search_fields = ("judged_text",)
    search_help_text = "text of a draft"
    ordering = ("-created_at", "-pk")  # an index has it, also below a range of days
    fieldsets: ClassVar = (("As it is stored", {"fields": ("session", "draft_key"), "classes": ("collapse",)}),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[CorrectionLog]:
        return super().get_queryset(request).prefetch_related("dimension_results")

    def fill_in(self, rows: list[Any]) -> None:
        found = endings(rows)
        for row in rows:
            row.ending = found[row.session]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **more: Any) -> HttpResponse:  # type: ignore[override]
        log = more["obj"]
        context["subtitle"] = f"gate session: {outcome_words(log.ending.outcome)}"
        return super().render_change_form(request, context, **more)

    def get_panels(self, request: HttpRequest, obj: CorrectionLog) -> list[SafeString]:
        context = session_context(obj, may_mark=request.user.has_perm(MARKING))
        shown = render_to_string("admin/correction/log/session.html", context, request)
        return [SafeString(shown), *super().get_panels(request, obj)]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.mark_view)
        return [path("mark/<int:result_id>/", view, name="correction_mark"), *super().get_urls()]

    def mark_view(self, request: HttpRequest, result_id: int) -> HttpResponse:
        """*Right*, *false alarm*, or neither again, said of one failed dimension (POST)."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request) or not request.user.has_perm(MARKING):
            raise PermissionDenied
        result = GateDimensionResult.objects.select_related("log").filter(pk=result_id).first()
        if result is None:
            raise Http404(f"There is no verdict {result_id}.")
        mark = request.POST.get("mark", "")

        try:
            mark_result(result=result, mark=mark, user=request.user)
        except ValueError as error:
            self.message_user(request, str(error), messages.ERROR)
        page = reverse("admin:correction_correctionlog_change", args=[result.log_id])
        came_from = request.GET.get("next", "")
        if url_has_allowed_host_and_scheme(came_from, {request.get_host()}, require_https=request.is_secure()):
            page = came_from
        return HttpResponseRedirect(f"{page}#result-{result.pk}")

    @admin.display(description="time", ordering="created_at")
    def when(self, log: CorrectionLog) -> SafeString:
        return display.lines(display.moment(log.created_at), f"attempt {log.attempt}")

    @admin.display(description="agent", ordering="agent")
    def who(self, log: CorrectionLog) -> SafeString:
        return speaker(log)

    @admin.display(description="channel", ordering="channel")
    def place(self, log: CorrectionLog) -> SafeString:
        channel = log.channel
        if channel is None:
            return source_badge(log)
        link = display.link(reverse("admin:agents_channel_transcript", args=[channel.pk]), channel)
        return display.lines(link, source_badge(log))

    @admin.display(description="outcome", ordering="outcome")
    def outcome_mark(self, log: Any) -> SafeString:
        """How the session ended, and what became of this draft where that is something else."""
        ended, own = outcome_badge(log.ending.outcome), attempt_badge(log, log.ending)
        if log.committed:
            return format_html("{} {}", ended, display.badge("said", "plain", "this text was said in the end"))
        return ended if own == ended else display.lines(ended, format_html("this draft: {}", own))

    @admin.display(description="verdicts")
    def verdicts(self, log: CorrectionLog) -> SafeString:
        return results(log.dimension_results.all())

    @admin.display(description="draft")
    def draft(self, log: CorrectionLog) -> SafeString:
        return display.folded(log.judged_text, 90)

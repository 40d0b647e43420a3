"""Show the log of the gate: every attempt with its verdicts, and the session it belongs to as a timeline."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.transcript import channel_link
from agents.kit.console import display
from agents.kit.console.columns import VALUE_DISPLAYS
from agents.kit.console.filters import OptionFilter
from agents.kit.console.logs import READING, LogAdmin
from agents.kit.console.site import console_page
from correction.admin.display import (
    attempt_badge,
    ending_badge,
    outcome_words,
    results,
    source_badge,
    speaker,
)
from correction.admin.sessions import MARK_PERMISSION, session_context
from correction.config.settings import GATE_DIMENSIONS
from correction.gate.thresholds import mark_result
from correction.models import CorrectionLog, GateDimensionResult, ObservedMessage, Outcome

VALUE_DISPLAYS["session"] = lambda session: display.link(
    display.list_url(CorrectionLog, session=session), "its verdicts"
)


def _has_result(**conditions: Any) -> Exists:
    """Return an expression for attempts with such a dimension result."""
    return Exists(GateDimensionResult.objects.filter(log=OuterRef("pk"), **conditions))


class FailedDimensionFilter(OptionFilter):
    """Filter by a dimension that failed."""

    title = "failed dimension"
    parameter_name = "failed"
    options: ClassVar = {
        "any": ("any", _has_result(passed=False)),
        **{dimension: (dimension, _has_result(passed=False, dimension=dimension)) for dimension in GATE_DIMENSIONS},
    }


def _has_mark(**conditions: str) -> Q:
    """Return a condition for attempts with such a mark."""
    marked = GateDimensionResult.objects.exclude(mark="")  # few: an index holds just these
    return Q(pk__in=marked.filter(**conditions).values("log"))


class MarkFilter(OptionFilter):
    """Filter by the marks of people; *none* are the failures without a mark."""

    title = "mark"
    parameter_name = "mark"
    options: ClassVar = {
        "any": ("any mark", _has_mark()),
        **{value: (str(label), _has_mark(mark=value)) for value, label in GateDimensionResult.Mark.choices},
        "none": ("failed, not marked", _has_result(passed=False, mark="")),
    }


class CommittedFilter(OptionFilter):
    """Filter by whether the draft was sent."""

    title = "committed"
    parameter_name = "committed"
    options: ClassVar = {
        "yes": ("yes", Q(attempt=F("session__sent"))),
        "no": ("no", Q(session__sent__isnull=True) | ~Q(attempt=F("session__sent"))),
    }


@admin.register(CorrectionLog)
class CorrectionLogAdmin(LogAdmin[CorrectionLog]):
    own_filters: ClassVar = {"failed": FailedDimensionFilter, "mark": MarkFilter, "committed": CommittedFilter}
    list_select_related = ("session__agent", "session__channel")
    ordering = ("-created_at", "-pk")  # an index has it, also below a range of days

    def get_queryset(self, request: HttpRequest) -> QuerySet[CorrectionLog]:
        return super().get_queryset(request).prefetch_related("dimension_results")

    def get_search_fields(self, request: HttpRequest) -> Any:
        """Search the drafts for those alone who may read them: else their beginnings could be guessed."""
        return super().get_search_fields(request) if request.user.has_perm(READING) else ()

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **more: Any) -> HttpResponse:  # type: ignore[override]
        log = more["obj"]
        context["subtitle"] = f"gate session: {outcome_words(log.session.outcome or Outcome.CORRECTED)}"
        return super().render_change_form(request, context, **more)

    def get_panels(self, request: HttpRequest, obj: CorrectionLog) -> list[SafeString]:
        may_mark = request.user.has_perm(MARK_PERMISSION)
        context = session_context(obj, may_mark=may_mark, may_read=request.user.has_perm(READING))
        session_panel = render_to_string("admin/correction/log/session.html", context, request)
        return [SafeString(session_panel), *super().get_panels(request, obj)]

    @console_page("mark/<int:result_id>/", MARK_PERMISSION, post=True, name="correction_mark")
    def mark_view(self, request: HttpRequest, result_id: int) -> HttpResponse:
        """Mark one failed dimension as *right* or *false alarm*, or take the mark back; say why where that is refused."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        result = get_object_or_404(GateDimensionResult.objects.select_related("log"), pk=result_id)
        try:
            mark_result(result=result, mark=request.POST.get("mark", ""), user=request.user)
        except ValueError as error:
            self.message_user(request, str(error), messages.ERROR)
        return HttpResponseRedirect(f"{self.url('change', result.log)}#result-{result.pk}")

    @admin.display(description="time", ordering="created_at")
    def when(self, log: CorrectionLog) -> SafeString:
        return display.lines(display.moment(log.created_at), f"attempt {log.attempt}")

    who = display.column("agent", lambda log: speaker(log.session), ordering="session__agent")

    @admin.display(description="channel", ordering="session__channel")
    def place(self, log: CorrectionLog) -> SafeString:
        source = source_badge(log.session)
        channel = log.session.channel
        return source if channel is None else display.lines(channel_link(channel), source)

    @admin.display(description="outcome", ordering="outcome")
    def outcome_mark(self, log: Any) -> SafeString:
        """Show how the session ended, and what became of this draft where that is something else."""
        ended = ending_badge(log.session)
        own = attempt_badge(log)
        if log.committed:
            return own
        return ended if own == ended else display.lines(ended, format_html("this draft: {}", own))

    verdicts = display.column("verdicts", lambda log: results(log.dimension_results.all()))
    draft = display.column("draft", lambda log: "" if log.unread else display.folded(log.judged_text, 90))


@admin.register(ObservedMessage)
class ObservedMessageAdmin(LogAdmin[ObservedMessage]):
    @admin.display(description="status", ordering="status")
    def state(self, observed: ObservedMessage) -> SafeString:
        """Show the status, and of a message that waits for a batch that it does."""
        if observed.waits_since is None:
            return display.status_badge(observed)
        if observed.batch_id is None:
            return display.badge("waits for a batch", "plain", "it is put in the next batch of its agent")
        return display.badge("waits for a batch", "plain", "it is in a batch that is not answered yet")

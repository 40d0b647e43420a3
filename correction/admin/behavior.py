"""The queue of behaviour requests: what people asked agents to do differently, and what somebody decides of it."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.admin.transcript import transcript_url
from agents.console import display
from agents.console.filters import AgentFilter, DateRangeFilter, RecentValuesFilter
from agents.console.site import ReadOnlyAdmin
from correction.admin.behavior_acting import ACTS, may_decide, refused_by
from correction.admin.behavior_bulk import apply_chosen, reject_chosen, retry_chosen
from correction.admin.behavior_display import change, status_badge
from correction.admin.behavior_effect import effect_panel, measure_view
from correction.admin.behavior_page import READING, page_context
from correction.models import BehaviorRequest
from evaluation.admin.display import judge_badge


@admin.register(BehaviorRequest)
class BehaviorRequestAdmin(ReadOnlyAdmin[BehaviorRequest]):
    list_display = ("when", "who", "state", "changed", "sure", "said", "judge_mark", "reason")
    list_display_links = ("when",)
    list_filter = (
        "status",
        "operation",
        "confidence",
        "automatic",
        ("judge", RecentValuesFilter),
        ("agent", AgentFilter),
        ("created_at", DateRangeFilter),
    )
    list_select_related = ("agent", "message", "reviewed_by")
    search_fields = ("trait_name",)
    search_help_text = "name of a trait"
    ordering = ("-created_at", "-pk")
    actions = (apply_chosen, reject_chosen, retry_chosen)  # type: ignore[assignment]  # a log of which people decide
    fieldsets: ClassVar = (
        (
            "As it is stored",
            {
                "fields": (
                    *("created", "started", "finished", "applied", "reviewed", "reverted"),
                    *("attempt", "lease_owner", "automatic"),
                ),
                "classes": ("collapse",),
            },
        ),
    )

    created = display.time_of("created_at")
    started = display.time_of("started_at")
    finished = display.time_of("finished_at")
    applied = display.time_of("applied_at")
    reviewed = display.time_of("reviewed_at")
    reverted = display.time_of("reverted_at")

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """For the actions on several (``permissions=["decide"]``)."""
        return may_decide(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BehaviorRequest]:
        long = ("gate_result", "extract_result", "map_result")
        found = super().get_queryset(request)
        is_list = request.resolver_match is not None and (request.resolver_match.url_name or "").endswith("changelist")
        return found.defer(*long, "agent__system_prompt", "agent__sample_lines") if is_list else found

    def get_panels(self, request: HttpRequest, obj: BehaviorRequest) -> list[SafeString]:
        shown = render_to_string("admin/correction/behavior/request.html", page_context(request, obj), request)
        effect = effect_panel(request, obj)
        return [SafeString(shown), *([effect] if effect else []), *super().get_panels(request, obj)]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.act_view)
        own = [
            path(f"<int:pk>/{name}/", view, kwargs={"act": name}, name=f"correction_behaviorrequest_{name}")
            for name in ACTS
        ]
        measure = self.admin_site.admin_view(partial(measure_view, self))
        own.append(path("<int:pk>/measure/", measure, name="correction_behaviorrequest_measure"))
        return [*own, *super().get_urls()]

    def act_view(self, request: HttpRequest, pk: int, act: str) -> HttpResponse:
        """Apply, reject, revert or try again; the page of the request says what came of it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request) or not may_decide(request):
            raise PermissionDenied
        row = BehaviorRequest.objects.select_related("agent").filter(pk=pk).first()
        if row is None:
            raise Http404(f"There is no behaviour request {pk}.")
        said = ACTS[act]
        if problem := refused_by(said, row, user_of(request), request.POST):
            self.message_user(request, problem, messages.ERROR)
        else:
            self.log_change(request, row, f"{act} pressed")
            self.message_user(request, f"Behaviour request {pk} {said.done}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:correction_behaviorrequest_change", args=[pk]))

    def get_list_display(self, request: HttpRequest) -> Any:
        """Without the words, and what quotes them, for who may not read messages."""
        columns = super().get_list_display(request)
        if request.user.has_perm(READING):
            return columns
        return ["place" if name == "said" else name for name in columns if name != "reason"]

    @admin.display(description="time", ordering="created_at")
    def when(self, row: BehaviorRequest) -> SafeString:
        return display.lines(display.moment(row.created_at), f"#{row.pk}")

    @admin.display(description="agent", ordering="agent")
    def who(self, row: BehaviorRequest) -> SafeString:
        return display.agent_chip(row.agent)

    @admin.display(description="status", ordering="status")
    def state(self, row: BehaviorRequest) -> SafeString:
        return status_badge(row)

    @admin.display(description="change", ordering="trait_name")
    def changed(self, row: BehaviorRequest) -> SafeString:
        return change(row)

    @admin.display(description="confidence", ordering="confidence")
    def sure(self, row: BehaviorRequest) -> SafeString:
        return display.visible(row.confidence) if row.confidence else display.EMPTY

    @admin.display(description="message")
    def said(self, row: BehaviorRequest) -> SafeString:
        if row.message is None:
            return display.EMPTY
        return display.link(transcript_url(row.message), display.shortened(row.message.text, 70) or "a message")

    @admin.display(description="message")
    def place(self, row: BehaviorRequest) -> SafeString:
        return display.link(transcript_url(row.message), "a message") if row.message else display.EMPTY

    @admin.display(description="judge", ordering="judge")
    def judge_mark(self, row: BehaviorRequest) -> SafeString:
        return judge_badge(row.judge) if row.judge else display.EMPTY

    @admin.display(description="why")
    def reason(self, row: BehaviorRequest) -> SafeString:
        return display.folded(row.why or row.error, 70) if row.why or row.error else display.EMPTY

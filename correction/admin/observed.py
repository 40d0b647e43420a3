"""Messages that wait to be judged after they were said."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.filters import DateRangeFilter
from agents.admin.log_filters import AgentFilter, ErrorFilter
from agents.admin.logs import LogAdmin
from agents.admin.transcript import transcript_url
from correction.admin.exports import OBSERVED
from correction.models import CorrectionLog, ObservedMessage


@admin.register(ObservedMessage)
class ObservedMessageAdmin(LogAdmin[ObservedMessage]):
    export = OBSERVED
    list_display = ("name", "state", "who", "said", "created", "finished")
    list_display_links = ("name",)
    list_filter = ("status", ErrorFilter, ("message__agent", AgentFilter), ("created_at", DateRangeFilter))
    list_select_related = ("message__agent",)
    fields = (
        "state",
        "who",
        "said",
        "verdicts",
        "error_text",
        "created",
        "started",
        "finished",
        "attempt",
        "lease_owner",
    )

    created = display.time_of("created_at")
    started = display.time_of("started_at")
    finished = display.time_of("finished_at")

    @admin.display(description="observation", ordering="pk")
    def name(self, row: ObservedMessage) -> str:
        return f"observation {row.pk}"

    @admin.display(description="status", ordering="status")
    def state(self, row: ObservedMessage) -> SafeString:
        return display.status_badge(row)

    @admin.display(description="agent")
    def who(self, row: ObservedMessage) -> SafeString:
        return display.agent_chip(row.message.agent)

    @admin.display(description="message")
    def said(self, row: ObservedMessage) -> SafeString:
        shown = display.shortened(row.message.text, 80) or "(empty)"
        return display.link(transcript_url(row.message), shown, "in its conversation")

    @admin.display(description="verdicts")
    def verdicts(self, row: ObservedMessage) -> SafeString:
        return display.link(display.list_url(CorrectionLog, session=row.session), "what was found")

    @admin.display(description="error")
    def error_text(self, row: ObservedMessage) -> SafeString:
        return format_html("{}", display.block(row.error))

"""Everything that was said, as a searchable log."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.exports import MESSAGES
from agents.admin.filters import ChosenFilter, DateRangeFilter, RecentValuesFilter
from agents.admin.log_filters import AgentFilter, TagFilter
from agents.admin.logs import LogAdmin
from agents.admin.transcript import transcript_url
from agents.models import Message


class ChannelFilter(ChosenFilter):
    title = "channel"
    parameter_name = "channel"
    field = "channel_id"


@admin.register(Message)
class MessageAdmin(LogAdmin[Message]):
    export = MESSAGES
    list_display = ("where", "author", "said", "sent", "tag_chips")
    list_display_links = ("where",)
    list_filter = (
        ChannelFilter,
        ("agent", AgentFilter),
        ("outsider", RecentValuesFilter),
        TagFilter,
        "synthetic",
        ("sent_at", DateRangeFilter),
    )
    list_select_related = ("channel", "agent", "user")
    search_fields = ("text", "outsider")
    search_help_text = "text, or the name of an outsider"
    ordering = ("-pk",)
    fieldsets = (
        (None, {"fields": ("where", "author", "sent", "said_whole", "payload_json", "parent_link", "tag_chips")}),
        (
            "Origin",
            {"fields": ("run", "persona_version", "synthetic", "external_id", "stored")},
        ),
    )

    sent = display.time_of("sent_at")
    stored = display.time_of("created_at", "stored")

    @admin.display(description="place", ordering="channel")
    def where(self, message: Message) -> SafeString:
        return display.isolated(f"{message.channel} · {message.position}")

    @admin.display(description="author")
    def author(self, message: Message) -> SafeString:
        if message.agent is not None:
            return display.agent_chip(message.agent)
        return format_html(
            "{} {}",
            display.isolated(message.author_name),
            display.badge("user" if message.user else "outsider", "plain"),
        )

    @admin.display(description="text")
    def said(self, message: Message) -> SafeString:
        return display.folded(message.text, 110)

    @admin.display(description="text")
    def said_whole(self, message: Message) -> SafeString:
        return format_html(
            "{}{}", display.block(message.text), display.link(transcript_url(message), "Read it in its conversation")
        )

    @admin.display(description="tags")
    def tag_chips(self, message: Message) -> SafeString:
        return format_html(
            "{}{}", display.badge("synthetic", "warning") if message.synthetic else "", display.tags(message.tags)
        )

    @admin.display(description="payload")
    def payload_json(self, message: Message) -> SafeString:
        return display.json_block(message.payload)

    @admin.display(description="answers")
    def parent_link(self, message: Message) -> SafeString:
        parent = message.parent
        return (
            display.EMPTY
            if parent is None
            else display.link(transcript_url(parent), display.shortened(parent.text, 80))
        )

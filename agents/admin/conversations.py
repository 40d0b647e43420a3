"""Channels with their transcripts."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, OuterRef, QuerySet, Subquery, Value
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.chat import ChatPages
from agents.admin.display import agent_chip
from agents.admin.transcript import add_notes, transcript_page, transcript_url
from agents.kit.console import display
from agents.kit.console.filters import number_in
from agents.kit.console.forms import DistinctMembers
from agents.kit.console.logs import READING, LogAdmin
from agents.kit.console.paging import PagedList
from agents.kit.console.site import ModelAdmin, TabularInline, console_page
from agents.models import Channel, ChannelMember, Message, NumberOf
from agents.models.conversations import COPY_PREFIX

MOST_SEARCHED = 200_000  # messages
NO_FILTERS = {"q", "p", "o", "all"}  # parameters of a list that leave out nothing


@admin.register(Message)
class MessageAdmin(LogAdmin[Message]):
    list_select_related = ("channel", "agent", "user")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Message], search_term: str
    ) -> tuple[QuerySet[Message], bool]:
        """Search only the newest messages where no filter is set: no index serves words in the middle of a text."""
        has_filter = bool(set(request.GET) - NO_FILTERS)
        if search_term and not has_filter:
            newest = Message.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
            queryset = queryset.filter(pk__gt=newest - MOST_SEARCHED)
        return super().get_search_results(request, queryset, search_term)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        changelist.search_help_text = (
            f"text or outsider, in the newest {MOST_SEARCHED:,} messages; set a filter to search all that it leaves"
        )
        return changelist

    @admin.display(description="place", ordering="channel")
    def where(self, message: Message) -> SafeString:
        return display.isolated(f"{message.channel} · {message.position}")

    @admin.display(description="author")
    def author(self, message: Message) -> SafeString:
        if message.agent is not None:
            return agent_chip(message.agent)
        kind = display.badge("user" if message.user else "outsider")
        return format_html("{} {}", display.isolated(message.author_name), kind)

    @admin.display(description="text")
    def said(self, message: Message) -> SafeString:
        link = display.link(transcript_url(message), "Read it in its conversation")
        return format_html("{}{}", display.block(message.text), link)

    @admin.display(description="tags")
    def tag_chips(self, message: Message) -> SafeString:
        synthetic = display.badge("synthetic", "warning") if message.synthetic else ""
        return format_html("{}{}", synthetic, display.tags(message.tags))


MEMBERS_SHOWN = 5


class ConversationList(PagedList):
    """The list of channels; a channel's name leads to what was said in it."""

    def url_for_result(self, result: Model) -> str:
        return reverse("admin:agents_channel_transcript", args=[result.pk])


class MemberInline(TabularInline[ChannelMember, Channel]):
    model = ChannelMember
    formset = DistinctMembers
    fields = ("agent", "user")
    autocomplete_fields = ("agent", "user")
    verbose_name_plural = "members"


MOST_MESSAGES = 1_000  # of a channel, counted in the list


@admin.register(Channel)
class ChannelAdmin(ChatPages, ModelAdmin[Channel]):
    inlines = (MemberInline,)
    list_before_template = "admin/list_starts.html"
    fields = ("name", "slug", "kind", "topic", "tags")
    prepopulated_fields: ClassVar = {"slug": ("name",)}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Channel]:
        newest = Message.objects.filter(channel=OuterRef("pk")).order_by("-position")
        channels = super().get_queryset(request).prefetch_related("memberships__agent", "memberships__user")
        last_text: Subquery | Value = Value("")
        if request.user.has_perm(READING):
            last_text = Subquery(newest.values("text")[:1])
        return channels.annotate(last_sent=Subquery(newest.values("sent_at")[:1]), last_text=last_text)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Channel], search_term: str
    ) -> tuple[QuerySet[Channel], bool]:
        """Leave out the copies of chats in which a question was answered again: the chat leads to them."""
        without_copies = queryset.exclude(synthetic=True, slug__startswith=COPY_PREFIX)
        return super().get_search_results(request, without_copies, search_term)

    def fill_in(self, rows: list[Any]) -> None:
        # In the order of an index, which is then used.
        messages = Message.objects.filter(channel=OuterRef("pk")).order_by("position").values("pk")[: MOST_MESSAGES + 1]
        channels = Channel.objects.filter(pk__in=[channel.pk for channel in rows]).order_by()
        totals = dict(channels.annotate(n=NumberOf(messages)).values_list("pk", "n"))
        for channel in rows:
            channel.messages_total = totals.get(channel.pk, 0)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ConversationList

    @admin.display(description="channel", ordering="name")
    def conversation(self, channel: Channel) -> SafeString:
        return format_html('<strong title="{}">{}</strong>', display.marked(channel.topic), display.isolated(channel))

    @admin.display(description="kind", ordering="kind")
    def kind_badge(self, channel: Channel) -> SafeString:
        tone: display.Tone = "accent" if channel.kind == Channel.Kind.EXPERIMENT else "plain"
        return display.badge(channel.get_kind_display(), tone)

    @admin.display(description="members")
    def members(self, channel: Channel) -> SafeString:
        names = [str(member.agent or member.user) for member in channel.memberships.all()]
        if not names:
            return display.EMPTY
        text = ", ".join(names[:MEMBERS_SHOWN])
        if len(names) > MEMBERS_SHOWN:
            text += f" +{len(names) - MEMBERS_SHOWN}"
        return display.isolated(text)

    @admin.display(description="messages", ordering="next_position")
    def message_count(self, channel: Any) -> str | SafeString:
        return display.count_up_to(channel.messages_total, MOST_MESSAGES)

    @admin.display(description="last message", ordering="last_sent")
    def last_message(self, channel: Any) -> SafeString:
        if channel.last_sent is None:
            return display.EMPTY
        text = display.visible(display.shortened(channel.last_text, 60))
        return display.lines(text, display.moment(channel.last_sent))

    tag_chips = display.column("tags", lambda channel: display.tags(channel.tags))

    def has_delete_permission(self, request: HttpRequest, obj: Channel | None = None) -> bool:
        """Allow it for an empty channel only: its messages are a log."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.messages.exists())

    @console_page("<int:channel_id>/transcript/", "agents.view_channel", "agents.view_message")
    def transcript_view(self, request: HttpRequest, channel_id: int) -> HttpResponse:
        """Show the channel as a conversation, a page at a time."""
        channel = self.get_object(request, str(channel_id))
        if channel is None:
            raise Http404(f"There is no channel {channel_id}.")
        at = number_in(request.GET, "at")
        before = number_in(request.GET, "before")
        after = number_in(request.GET, "after")
        page = transcript_page(channel=channel, at=at, before=before, after=after)
        add_notes(request, page.lines)
        live = ""  # where the page asks for messages after its last one; an older page does not ask
        if page.newer is None:
            last_position = page.lines[-1]["message"].position if page.lines else channel.next_position - 1
            live = f"{reverse('channel-messages', args=[channel.slug])}?after={last_position}"
        return self.page(
            request,
            "admin/agents/channel/transcript.html",
            str(channel),
            original=channel,
            channel=channel,
            page=page,
            at=at,
            live=live,
            buttons=self.get_buttons(request, channel),
            list_url=display.list_url(Message, channel=channel.pk),
            members=[member.agent or member.user for member in channel.memberships.all()],
            kind_badge=self.kind_badge(channel),
        )

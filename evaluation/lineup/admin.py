"""Voice line-ups: the card on a channel's page, its button, and the list of all that were made."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.forms import Takes, as_query, ask, request_form
from agents.kit.console.site import ReadOnlyAdmin, console_page, extend
from agents.kit.templatetags.display import register as templates
from agents.models import Channel
from evaluation.lineup.measuring import WAITING, LineUp, LineUpRequest, newest_line_up, queue_line_up, said_since
from evaluation.lineup.models import LineUpRun
from evaluation.scorers.subjects import said_in

ADD = "lineup.add_lineuprun"
VOICES_SHOWN, LEFT_OUT_SHOWN = 50, 10
TEMPLATE = "admin/lineup/lineup.html"
LineUpForm = request_form(LineUpRequest)


def channel_page(channel_id: int) -> str:
    """The page of a channel that holds its card."""
    return reverse("admin:agents_channel_change", args=[channel_id])


@admin.register(LineUpRun)
class LineUpRunAdmin(ReadOnlyAdmin[LineUpRun]):
    accuracy = display.column("balanced accuracy", lambda made: percent(made.result.get("balanced_accuracy")))

    @console_page("measure/<int:channel_id>/", ADD, post=True)
    def measure_view(self, request: HttpRequest, channel_id: int) -> HttpResponse:
        """Queue a line-up of a channel; a worker makes it."""
        _, is_new = queue_line_up(channel=get_object_or_404(Channel, pk=channel_id))
        text = "The voices are queued to be measured" if is_new else "The voices are waiting to be measured already"
        self.message_user(request, f"{text}: the worker (manage.py work) does it in seconds.", messages.SUCCESS)
        return HttpResponseRedirect(channel_page(channel_id))

    @console_page("measure/<int:channel_id>/options/", ADD)
    def options_view(self, request: HttpRequest, channel_id: int) -> HttpResponse:
        """Choose which lines and speakers are compared, with the options of ``manage.py lineup``."""
        channel = get_object_or_404(Channel, pk=channel_id)
        form = LineUpForm(as_query(request, LineUpForm))

        def takes() -> Takes:
            said = said_in(channel=channel, window=form.asked.window, where=form.asked.where)
            facts = [("Channel", display.isolated(channel)), ("Lines", f"{said.count():,}")]
            return Takes(facts=[*facts, ("Cost", display.badge("free", "good"))], note="It takes seconds, offline.")

        def queue() -> str:
            asked = form.asked
            queue_line_up(channel=channel, window=asked.window.spec, where=asked.where, everybody=asked.everybody)
            return channel_page(channel.pk) + "#line-up"

        return ask(
            self, request, form, title=f"Measure the voices in {display.marked(channel)}", verb="Measure voices",
            takes=takes, do=queue, back=(channel_page(channel.pk), "Back to the channel"),
        )  # fmt: skip

    def get_panels(self, request: HttpRequest, obj: LineUpRun) -> list[SafeString]:
        context = {"figures": _figures(obj) if obj.result else None, "heading": str(obj)}
        return [render_to_string(TEMPLATE, context, request), *super().get_panels(request, obj)]


def lineup_panel(request: HttpRequest, channel: Channel) -> SafeString:
    """The newest line-up of a channel, whether one is being made, and the button for another."""
    made = newest_line_up(channel)
    all_of_channel = LineUpRun.objects.filter(channel=channel)
    last = all_of_channel.exclude(status__in=WAITING).first()
    may_measure = request.user.has_perm(ADD)
    context = {
        "heading": "Voice line-up",
        "figures": _figures(made) if made else None,
        "made": made,
        "since": said_since(made) if made else 0,
        "waiting": all_of_channel.filter(status__in=WAITING).first(),
        "failed": last.error if last is not None else "",
        "measure_url": reverse("admin:lineup_lineuprun_measure", args=[channel.pk]) if may_measure else "",
        "options_url": reverse("admin:lineup_lineuprun_options", args=[channel.pk]) if may_measure else "",
        "earlier_url": display.list_url(LineUpRun, channel__id__exact=channel.pk) if made else "",
        "slug": channel.slug,
    }
    return render_to_string(TEMPLATE, context, request)


def percent(share: float | None) -> SafeString | str:
    return display.EMPTY if share is None else f"{100 * share:.0f} %"


def _figures(made: LineUpRun) -> dict[str, Any]:
    """A stored result, and its speakers from the best recognised one."""
    result = LineUp(**made.result)
    ranked = sorted(result.voices, key=lambda voice: (-voice.recall, voice.speaker))[:VOICES_SHOWN]
    return {
        "result": result,
        "voices": ranked,
        "left_out": result.left_out[:LEFT_OUT_SHOWN],
        "left_out_more": max(0, len(result.left_out) - LEFT_OUT_SHOWN),
    }


templates.filter("share", percent)


extend(Channel, "lineup.view_lineuprun", panels=(lineup_panel,))

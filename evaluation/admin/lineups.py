"""Voice line-ups: the card on a channel's page, its button, and the list of all that were made."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.site import ReadOnlyAdmin
from agents.models import Channel
from evaluation.lineup import WAITING, LineUp, newest_line_up, queue_line_up, said_since
from evaluation.models import EvaluationRun, LineUpRun

VOICES_SHOWN, CONFUSIONS_SHOWN, LEFT_OUT_SHOWN = 50, 5, 10


def channel_page(channel_id: int) -> str:
    """The page of a channel that holds its card."""
    return reverse("admin:agents_channel_change", args=[channel_id])


def line_up_link(run: EvaluationRun) -> SafeString | str:
    """The way from the evaluation of a channel to its voice line-up."""
    if run.channel_id is None:
        return ""
    return display.link(f"{channel_page(run.channel_id)}#line-up", "voice line-up", "whose lines are recognised, free")


@admin.register(LineUpRun)
class LineUpRunAdmin(ReadOnlyAdmin[LineUpRun]):
    ordering = ("-pk",)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.measure_view)
        return [path("measure/<int:channel_id>/", view, name="evaluation_lineuprun_measure"), *super().get_urls()]

    def measure_view(self, request: HttpRequest, channel_id: int) -> HttpResponse:
        """Queue a line-up of a channel; a worker makes it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not request.user.has_perm("evaluation.add_lineuprun"):
            raise PermissionDenied
        channel = Channel.objects.filter(pk=channel_id).first()
        if channel is None:
            raise Http404(f"There is no channel {channel_id}.")
        _, is_new = queue_line_up(channel=channel)
        text = "The voices are queued to be measured" if is_new else "The voices are waiting to be measured already"
        self.message_user(request, f"{text}: the worker (manage.py work) does it in seconds.", messages.SUCCESS)
        return HttpResponseRedirect(channel_page(channel_id))

    def get_panels(self, request: HttpRequest, obj: LineUpRun) -> list[SafeString]:
        figures = _figures(obj) if obj.result else None
        card = render_to_string("admin/evaluation/lineup.html", {"figures": figures, "heading": str(obj)}, request)
        return [SafeString(card), *super().get_panels(request, obj)]

    accuracy = display.column("balanced accuracy", lambda made: percent(made.result.get("balanced_accuracy")))


def lineup_panel(request: HttpRequest, channel: Channel) -> SafeString:
    """The newest line-up of a channel, whether one is being made, and the button for another."""
    made = newest_line_up(channel)
    waiting = LineUpRun.objects.filter(channel=channel, status__in=WAITING).first()
    last = LineUpRun.objects.filter(channel=channel).exclude(status__in=WAITING).first()
    context = {
        "heading": "Voice line-up",
        "figures": _figures(made) if made else None,
        "made": display.moment(made.finished_at) if made else "",
        "since": said_since(made) if made else 0,
        "waiting": waiting,
        "failed": display.visible(last.error) if last is not None and last.error else "",
        "measure_url": reverse("admin:evaluation_lineuprun_measure", args=[channel.pk])
        if request.user.has_perm("evaluation.add_lineuprun")
        else "",
        "earlier_url": display.list_url(LineUpRun, channel__id__exact=channel.pk) if made else "",
        "slug": channel.slug,
    }
    return SafeString(render_to_string("admin/evaluation/lineup.html", context, request))


def percent(share: float | None) -> SafeString | str:
    return display.EMPTY if share is None else f"{100 * share:.0f} %"


def _figures(made: LineUpRun) -> dict[str, Any]:
    """A stored result as the card shows it; names come from people and files."""
    result = LineUp(**made.result)
    worst = result.most_taken_for()
    return {
        "reason": display.visible(result.reason),
        "distinct": result.distinct,
        "accuracy": percent(result.balanced_accuracy),
        "chance": percent(result.chance),
        "chance_high": percent(result.chance_high),
        "p_value": "–" if result.p_value is None else f"{result.p_value:.3g}",
        "permutations": f"{result.permutations:,}",
        "compared": f"{result.compared:,}",
        "lines": f"{result.lines:,}",
        "voices": [
            {
                "speaker": display.isolated(voice.speaker),
                "lines": f"{voice.lines:,}",
                "compared": f"{voice.compared:,}",
                "recall": percent(voice.recall),
                "share": f"{voice.recall:.3f}",
                "chance": percent(voice.chance),
                "taken_for": display.isolated(worst[voice.speaker].taken_for)
                if voice.speaker in worst
                else display.EMPTY,
            }
            for voice in sorted(result.voices, key=lambda voice: (-voice.recall, voice.speaker))[:VOICES_SHOWN]
        ],
        "confusions": [
            {
                "speaker": display.isolated(confusion.speaker),
                "taken_for": display.isolated(confusion.taken_for),
                "lines": f"{confusion.lines:,}",
                "share": percent(confusion.share),
            }
            for confusion in result.confusions[:CONFUSIONS_SHOWN]
        ],
        "left_out": [
            {
                "speaker": display.isolated(one.speaker),
                "lines": one.lines,
                "reason": display.visible(one.reason),
            }
            for one in result.left_out[:LEFT_OUT_SHOWN]
        ],
        "left_out_more": max(0, len(result.left_out) - LEFT_OUT_SHOWN),
        "notes": [display.visible(note) for note in result.notes],
    }

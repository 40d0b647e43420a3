"""Played speech in the console: which model acted, and the way to what was said. (Its badge is the procedure's.)"""

from __future__ import annotations

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin import display
from agents.models import Channel
from evaluation.models import EvaluationRun
from evaluation.rehearsal.queued import awaits_play

MOST_LINKS = 20


def played_by(run: EvaluationRun) -> SafeString | str:
    """The model that acted and the conversations it acted in, by situation; nothing for real speech."""
    if not run.played:
        return ""
    if awaits_play(run):
        return "to be played by a worker first: the agent said too little"
    return display.lines(display.badge(run.actor_model or "unknown", "plain", "the model that acted"), _channels(run))


def _channels(run: EvaluationRun) -> SafeString | str:
    play = run.where.get("play")
    if not play:
        return ""
    found = list(Channel.objects.filter(synthetic=True, tags__play=play).order_by("slug")[: MOST_LINKS + 1])
    links = format_html_join(" · ", "{}", ((_link(channel),) for channel in found[:MOST_LINKS]))
    return format_html("{}{}", links, " …" if len(found) > MOST_LINKS else "")


def _link(channel: Channel) -> SafeString:
    repeat = channel.tags.get("repeat", "1")
    label = channel.tags.get("situation", channel.slug) + (f" ({repeat})" if repeat != "1" else "")
    return display.link(reverse("admin:agents_channel_transcript", args=[channel.pk]), label)

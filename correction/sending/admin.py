"""Scores that are sent, in the console: the log of deliveries, and sending again what was given up."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.forms import confirmed, report_done
from agents.kit.console.site import ReadOnlyAdmin
from correction.sending.delivery import send_again
from correction.sending.models import ScoreDelivery, ScoreReceiver

PAGES = {
    ScoreDelivery.Kind.EVALUATION: ("evaluation", "admin:evaluation_evaluationrun_change"),
    ScoreDelivery.Kind.CHANGES: ("evaluation", "admin:evaluation_evaluationrun_change"),
    ScoreDelivery.Kind.ATTEMPT: ("attempt", "admin:correction_correctionlog_change"),
}


@admin.register(ScoreReceiver)
class ScoreReceiverAdmin(ReadOnlyAdmin[ScoreReceiver]):
    pass


@admin.register(ScoreDelivery)
class ScoreDeliveryAdmin(ReadOnlyAdmin[ScoreDelivery]):
    actions = ("send_again",)  # type: ignore[assignment]

    def has_send_again_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sending.change_scoredelivery")

    @admin.action(description="Send again", permissions=["send_again"])
    @confirmed("Send again", "What the receiver took is not sent again. The receiver is tried at once.")
    def send_again(self, request: HttpRequest, queryset: QuerySet[ScoreDelivery]) -> None:
        chosen = queryset.count()
        done = send_again(queryset)
        report_done(self, request, "delivery", "queued again", done=done, chosen=chosen, why="delivered, or on its way")

    @admin.display(description="about")
    def about(self, delivery: ScoreDelivery) -> SafeString:
        name, page = PAGES[ScoreDelivery.Kind(delivery.kind)]
        return display.link(reverse(page, args=[delivery.object_id]), f"{name} {delivery.object_id}")

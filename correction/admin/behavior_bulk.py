"""Deciding on several behaviour requests at once: each on its own, and said for which it was done, and why not for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.admin.access import user_of
from agents.console.forms import confirmed
from correction.behavior.applying import BehaviorError, apply_request, reject_request, retry_request
from correction.models import BehaviorRequest

NAMED = 10  # refusals that are told one by one


@admin.action(description="Apply as proposed", permissions=["decide"])
@confirmed(
    "Apply as proposed",
    "Those that wait for a person change their agent's persona, each as a version of its own that can be reverted. It holds in all "
    "channels from the agent's next turn on. The others are skipped.",
)
def apply_chosen(model_admin: Any, request: HttpRequest, queryset: QuerySet[BehaviorRequest]) -> None:
    """Those that wait for a person. What was rejected or dropped is applied on its own page only, where its reason stands."""
    user = user_of(request)
    _decide(model_admin, request, queryset, "applied", lambda row: apply_request(request=row, user=user, waiting=True))


@admin.action(description="Reject", permissions=["decide"])
@confirmed(
    "Reject",
    "The agents stay as they are, and these requests are closed without a reason. A reason is given on a request's own page.",
)
def reject_chosen(model_admin: Any, request: HttpRequest, queryset: QuerySet[BehaviorRequest]) -> None:
    _decide(model_admin, request, queryset, "rejected", lambda row: reject_request(request=row, user=user_of(request)))


@admin.action(description="Try again", permissions=["decide"])
def retry_chosen(model_admin: Any, request: HttpRequest, queryset: QuerySet[BehaviorRequest]) -> None:
    _decide(model_admin, request, queryset, "queued again", lambda row: retry_request(request=row))


def _decide(
    model_admin: Any,
    request: HttpRequest,
    queryset: QuerySet[BehaviorRequest],
    what: str,
    carry_out: Callable[[BehaviorRequest], object],
) -> None:
    done, refused = 0, []
    for row in queryset.select_related("agent").order_by("created_at", "pk"):  # as they were asked for
        try:
            carry_out(row)
        except BehaviorError as error:
            refused.append(f"Behaviour request {row.pk} was skipped: {error}")
        else:
            done += 1
    if done:
        model_admin.message_user(request, f"{done} {what}.", messages.SUCCESS)
    for said in refused[:NAMED]:
        model_admin.message_user(request, said, messages.WARNING)
    if len(refused) > NAMED:
        model_admin.message_user(request, f"{len(refused) - NAMED} more were skipped.", messages.WARNING)

"""What a person asked of agents: the lines of their page, and what a user's page says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.console import display
from agents.kit.console.panels import table
from agents.kit.console.site import extend
from correction.behavior.admin.lines import DECIDING, change, effect_badge, person_url, status_badge
from correction.behavior.models import BehaviorEffect, BehaviorRequest
from correction.behavior.scope import BY_NAME, requests_of, user_key

MOST_REQUESTS = 50  # on the page of a person, newest first
HEADS = ("Time", "Agent", "Change", "Status", "Effect", "")


def person_context(request: HttpRequest, person: str) -> dict[str, Any]:
    """Return the values of a person's page: the newest requests with the last effect that was judged of each. Three queries at most.

    Args:
        person: A key as `correction.behavior.scope.person_of` returns it.
    """
    requests = requests_of(person).select_related(
        "agent", "message__channel", "message__user", "message__agent", "reviewed_by"
    )
    long = ("gate_result", "extract_result", "map_result", "agent__system_prompt", "agent__sample_lines")
    rows = list(requests.defer(*long)[: MOST_REQUESTS + 1])
    is_cut = len(rows) > MOST_REQUESTS
    rows = rows[:MOST_REQUESTS]
    effect_of = _newest_effects(rows)
    cells = [_cells(request, row, effect_of.get(row.pk)) for row in rows]
    name = next((row.message.author_name for row in rows if row.message is not None), "a person")
    return {
        "name": name,
        "is_known_by_name": person.startswith(BY_NAME),
        "table": table(HEADS, cells, label="Requests"),
        "is_cut": is_cut,
        "most": MOST_REQUESTS,
    }


def _newest_effects(rows: Sequence[BehaviorRequest]) -> dict[int, BehaviorEffect]:
    """Return the newest effect of each request that has one, by the request's key."""
    effects = BehaviorEffect.objects.filter(request__in=[row.pk for row in rows]).order_by("pk")
    return {effect.request_id: effect for effect in effects}


def _cells(request: HttpRequest, row: BehaviorRequest, effect: BehaviorEffect | None) -> Sequence[object]:
    """Return the cells of a request under `HEADS`; the last is a button to undo it, where it holds and the user may."""
    may_undo = (
        request.user.has_perms(DECIDING) and row.agent is not None and row.status == BehaviorRequest.Status.APPLIED
    )
    undo = ""
    if may_undo:
        url = reverse("admin:behavior_behaviorrequest_revert", args=[row.pk])
        context = {"url": url, "next": request.get_full_path()}
        undo = render_to_string("admin/behavior/undo.html", context, request)
    return (
        display.lines(display.moment(row.created_at), display.page_of(row, f"request {row.pk}")),
        display.EMPTY if row.agent is None else agent_chip(row.agent),
        change(row),
        status_badge(row),
        effect_badge(effect),
        undo,
    )


def user_requests(request: HttpRequest, user: User) -> SafeString:
    """Return the line of a user's page that leads to what they asked of agents."""
    key = user_key(user.pk)
    applied = Count("pk", filter=Q(status=BehaviorRequest.Status.APPLIED))
    context = requests_of(key).order_by().aggregate(requests=Count("pk"), applied=applied)
    return SafeString(render_to_string("admin/behavior/user.html", {**context, "url": person_url(key)}, request))


extend(User, "behavior.view_behaviorrequest", sections=(user_requests,), anchors=(("requests", "Requests"),))

"""The review queue's behaviour requests to decide on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from django.db.models import QuerySet
from django.http import HttpRequest

from agents.kit.admin.access import user_of
from agents.kit.console.home import CountUpTo
from agents.kit.console.review import Decision, ReviewKind, Waits, add_review, by_key, newest
from agents.models import about_watched_agents
from correction.behavior.admin.lines import DECIDING, change
from correction.behavior.admin.requests import request_panel
from correction.behavior.applying import apply_request, reject_request, reopen_request, revert_request
from correction.behavior.models import BehaviorRequest


def pending() -> QuerySet[BehaviorRequest]:
    """Return the requests that a person decides on, newest first, of agents that are watched."""
    rows = BehaviorRequest.objects.filter(about_watched_agents(), status=BehaviorRequest.Status.PENDING_REVIEW)
    return rows.order_by("-created_at", "-pk")


def waiting_requests(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    """Return what waits of them."""
    return newest(pending(), agent, keys)


add_review(
    ReviewKind(
        name="requests",
        title="Behaviour requests",
        one="behaviour request to decide on",
        many="behaviour requests to decide on",
        order=20,
        permissions=DECIDING,
        fills="messages that ask an agent to behave differently, where a person decides.",
        note="Why (stored with a rejection)",
        waiting=waiting_requests,
        count=lambda request: CountUpTo(pending()),
        find=partial(
            by_key, BehaviorRequest.objects.select_related("agent", "message__channel", "message__user", "reviewed_by")
        ),
        line=change,
        show=request_panel,
        decisions=(
            Decision(
                name="apply",
                label="Apply as proposed",
                key="a",
                done="is applied: the persona has a new version",
                decide=lambda request, row, note: apply_request(request=row, user=user_of(request), waiting=True),
                undo=lambda request, row: revert_request(request=row, user=user_of(request)),
                main=True,
            ),
            Decision(
                name="reject",
                label="Reject",
                key="r",
                done="is rejected",
                decide=lambda request, row, note: reject_request(request=row, user=user_of(request), why=note),
                undo=lambda request, row: reopen_request(request=row, user=user_of(request)),
            ),
        ),
    )
)

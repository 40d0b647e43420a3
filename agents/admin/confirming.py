"""A page between choosing rows and doing something to them that costs money or cannot simply be taken back."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from agents.admin import display

NAMED = 20  # rows that are named; the others are counted

Action = TypeVar("Action", bound=Callable[..., HttpResponse | None])


def confirmed(verb: str, what: str | Callable[[HttpRequest, QuerySet[Any]], str]) -> Callable[[Action], Action]:
    """An admin action that first says what it will do, and does it when somebody agrees.

    Args:
        verb: What the button says.
        what: What it will do to the rows, a sentence or two; a function where that depends on them.
    """

    def decorate(action: Action) -> Action:
        @wraps(action)
        def asking(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
            if "confirmed" in request.POST:
                return action(model_admin, request, queryset)
            number = queryset.count()
            rows = list(queryset[:NAMED])
            everything = request.POST.get("select_across") == "1"
            opts = model_admin.opts
            response: HttpResponse = model_admin.page(
                request,
                "admin/confirm_action.html",
                f"{verb}: {number:,} {opts.verbose_name if number == 1 else opts.verbose_name_plural}",
                verb=verb,
                what=what if isinstance(what, str) else what(request, queryset),
                action=request.POST["action"],
                named=[display.isolated(row) for row in rows],
                more=number - len(rows),
                chosen=request.POST.getlist(ACTION_CHECKBOX_NAME),
                checkbox=ACTION_CHECKBOX_NAME,
                everything=everything,
                back=request.get_full_path(),
            )
            return response

        return asking  # type: ignore[return-value]

    return decorate


def tell_done(
    model_admin: Any, request: HttpRequest, name: str, what: str, *, done: int, chosen: int, why: str = ""
) -> None:
    """Say of how many rows it was done, and how many were skipped, and why (by itself: it was so already)."""
    if done:
        model_admin.message_user(request, f"{done:,} {name}{'s' if done != 1 else ''} {what}.", messages.SUCCESS)
    if skipped := chosen - done:
        reason = why or f"{what} already"
        model_admin.message_user(request, f"{skipped:,} skipped: {reason}.", messages.WARNING)

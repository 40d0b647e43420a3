"""Forms of the console: rows that must differ from each other, and the page that asks before an action."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse

from agents.console.site import InlineFormSet


class DistinctRows(InlineFormSet):
    """Refuses two rows with the same `key`: on the page, or added since it was opened."""

    message: ClassVar[str]

    def key(self, row: Any) -> Hashable:
        """What must be unique; None when the row cannot clash."""
        raise NotImplementedError

    def clean(self) -> None:
        super().clean()
        shown = {form.instance.pk for form in self.initial_forms}
        seen: set[Hashable] = {self.key(row) for row in self.get_queryset() if row.pk not in shown}
        for form in self.forms:
            blank = form.instance.pk is None and not form.has_changed()
            if blank or form in self.deleted_forms or form.errors:
                continue
            key = self.key(form.instance)
            if key is not None and key in seen:
                form.add_error(None, self.message)
            seen.add(key)


class DistinctTraits(DistinctRows):
    message = "This agent has a trait of that name already."

    def key(self, row: Any) -> Hashable:
        return str(row.name).casefold()


class DistinctMembers(DistinctRows):
    message = "This member is in the channel already."

    def key(self, row: Any) -> Hashable:
        return (row.agent_id, row.user_id) if row.agent_id or row.user_id else None


NAMED = 20  # rows that are named; the others are counted


def confirmed(
    verb: str, what: str, *, form: type[Form] | None = None
) -> Callable[[Callable[..., None]], Callable[..., HttpResponse | None]]:
    """An admin action that first says what it will do, and does it after a confirmation.

    Args:
        verb: What the button says.
        what: What it will do to the rows, a sentence or two.
        form: What is to be chosen first; the action gets the valid form as its last argument.
    """

    def decorate(action: Callable[..., None]) -> Callable[..., HttpResponse | None]:
        @wraps(action)
        def asking(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
            is_sent = "confirmed" in request.POST
            filled = None if form is None else form(request.POST if is_sent else None)
            if is_sent and (filled is None or filled.is_valid()):
                action(model_admin, request, queryset, *([filled] if filled else []))
                return None
            number, rows, opts = queryset.count(), list(queryset[:NAMED]), model_admin.opts
            response: HttpResponse = model_admin.page(
                request,
                "admin/confirm_action.html",
                f"{verb}: {number:,} {opts.verbose_name if number == 1 else opts.verbose_name_plural}",
                verb=verb,
                what=what,
                form=filled,
                action=request.POST["action"],
                named=rows,
                more=number - len(rows),
                chosen=request.POST.getlist(ACTION_CHECKBOX_NAME),
                checkbox=ACTION_CHECKBOX_NAME,
                everything=request.POST.get("select_across") == "1",
                back=request.get_full_path(),
            )
            return response

        return asking

    return decorate


def tell_done(
    model_admin: Any, request: HttpRequest, name: str, what: str, *, done: int, chosen: int, why: str = ""
) -> None:
    """Say of how many rows it was done, and how many were skipped, and why (default: it was so already)."""
    if done:
        model_admin.message_user(request, f"{done:,} {name}{'s' if done != 1 else ''} {what}.", messages.SUCCESS)
    if skipped := chosen - done:
        reason = why or f"{what} already"
        model_admin.message_user(request, f"{skipped:,} skipped: {reason}.", messages.WARNING)

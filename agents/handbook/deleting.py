"""The page that asks before something is deleted: what goes with it as numbers, what stays, what cannot be undone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from agents.deletion import consequences
from agents.handbook.texts import deletion_note

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    _Admin = ModelAdmin[Any]
else:
    _Admin = object


class CountedDeletion(_Admin):
    """An admin class whose delete page counts instead of listing: an agent may have 100,000 rows of runs."""

    delete_confirmation_template = "admin/delete_counted.html"

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """As Django's, with a line per model instead of one per row; the fourth are the lines of what forbids it."""
        rows = list(objs)
        found = consequences(rows)
        lacking = {
            str(model._meta.verbose_name)
            for model in found.deleted
            if self.admin_site.is_registered(model)
            and not self.admin_site.get_model_admin(model).has_delete_permission(request)
        }
        counts = {str(model._meta.verbose_name_plural): number for model, number in found.deleted.items()}
        own = {str(self.opts.verbose_name_plural): len(rows)}
        return lines_of(found.deleted), {**own, **counts}, lacking, lines_of(found.protecting)

    def render_delete_form(self, request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
        row = context["object"]
        context.update(
            note=deletion_note(self.model), kept=lines_of(consequences([row]).kept), change_url=_page_of(self, row)
        )
        return super().render_delete_form(request, context)


def lines_of(counts: Counter[type[Model]]) -> list[str]:
    """``12 traits``, most first."""
    return [
        f"{number:,} {model._meta.verbose_name if number == 1 else model._meta.verbose_name_plural}"
        for model, number in counts.most_common()
        if number
    ]


def _page_of(model_admin: Any, row: Model) -> str:
    opts = model_admin.opts
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[row.pk])

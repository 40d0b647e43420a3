"""What every log of the console shows above its rows: the filters in effect, and the rows as a file to download."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    QueryDict,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone

from agents.kit.console.site import ReadOnlyAdmin, console_page, has_nul_character
from agents.kit.registry import PORTION, Export, tables
from agents.kit.text.tables import csv_lines, json_lines

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Model)

MOST_ROWS = 100_000  # of a file; the newest
READING = "agents.view_message"
FORMATS = {"csv": "text/csv", "jsonl": "application/x-ndjson"}


class LogAdmin(ReadOnlyAdmin[M]):
    """A log that shows which filters are in effect, and gives what they leave as CSV or JSON lines."""

    list_before_template = "admin/log_tools.html"

    @property
    def export(self) -> Export | None:
        return self.table.export

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        response = super().changelist_view(request, extra_context)
        context = getattr(response, "context_data", None) or {}
        if "cl" in context:
            context["in_effect"] = filters_in_effect(context["cl"])
            query = context["cl"].get_query_string(remove=["p", "o", "all", "e"])
            context["exports"] = [
                {
                    "label": label,
                    "url": reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_export", args=[form]) + query,
                }
                for form, label in (("csv", "CSV"), ("jsonl", "JSON lines"))
                if self.export is not None
            ]
            context["most_rows"] = f"{MOST_ROWS:,}"
            context["left_out"] = sorted(self._left_out(request))
        return response

    def _left_out(self, request: HttpRequest) -> frozenset[str]:
        if self.export is None or request.user.has_perm(READING):
            return frozenset()
        return self.export.texts

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _Unread if isinstance(request, _Listed) else super().get_changelist(request, **kwargs)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **more: Any) -> HttpResponse:  # type: ignore[override]
        context["neighbours"] = self.neighbours(request, more["obj"]) if more.get("obj") else {}
        return super().render_change_form(request, context, **more)

    def neighbours(self, request: HttpRequest, row: M) -> dict[str, str]:
        """The addresses of the next newer and the next older row of those that the filters leave with which the list was left."""
        query, rows = self.get_preserved_filters(request), self.get_queryset(request)
        if query:  # else the choices of filters need not be read
            try:
                rows = self.get_changelist_instance(_Listed(request)).queryset
            except (IncorrectLookupParameters, ValueError):
                return {}
        keys = rows.values_list("pk", flat=True)
        beside = {
            "previous": keys.filter(pk__gt=row.pk).order_by("pk").first(),
            "next": keys.filter(pk__lt=row.pk).order_by("-pk").first(),
        }
        return {
            name: f"{self.url('change', self.model(pk=pk))}?{query}".rstrip("?")
            for name, pk in beside.items()
            if pk is not None
        }

    @console_page("export/<str:form>/")
    def export_view(self, request: HttpRequest, form: str) -> HttpResponseBase:
        """The rows that the filters of the URL leave, newest first, at most `MOST_ROWS`, as a file."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        if form not in FORMATS or self.export is None:
            raise Http404(f"{form} is no format; allowed: {', '.join(FORMATS)}")
        try:
            if has_nul_character(request):
                raise IncorrectLookupParameters
            chosen = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:
            return HttpResponse("A filter in the address cannot be read.", status=400, content_type="text/plain")
        newest = chosen.order_by("-pk").values("pk")[:MOST_ROWS]
        left_out = self._left_out(request)
        columns = [name for name in self.export.columns if name not in left_out]
        exported = self.export.rows(self.model._default_manager.filter(pk__in=newest))
        rows = ({name: row[name] for name in columns} for row in exported)
        lines = csv_lines(rows, columns) if form == "csv" else json_lines(rows)
        name = str(self.opts.verbose_name_plural).replace(" ", "-")
        logger.info("%s exported as %s by user %s", name, form, request.user.pk)
        response = StreamingHttpResponse(_joined(lines), content_type=f"{FORMATS[form]}; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{name}-{timezone.localdate()}.{form}"'
        return response


class _Listed(HttpRequest):
    """A request for the list that a row's page was opened from."""

    def __init__(self, request: HttpRequest) -> None:
        vars(self).update(vars(request))
        self.GET = QueryDict(request.GET.get("_changelist_filters", "").replace("\x00", ""))


class _Unread(ChangeList):
    """The rows that a list's filters leave, in its order, without reading a page of them."""

    def get_results(self, request: HttpRequest) -> None:
        self.result_list = self.queryset.none()


def discover() -> None:
    """Import the admin modules of all apps; registered tables without an admin class of their own get their list and page."""
    admin.autodiscover()
    for table in tables().values():
        if table.columns and not admin.site.is_registered(table.model):
            admin.site.register(table.model, LogAdmin)


def filters_in_effect(changelist: ChangeList) -> list[dict[str, str]]:
    """The filters that are set: each one's name, what it is set to, and the address of the list without it."""
    params, known, in_effect = changelist.params, set(), []
    for spec in changelist.filter_specs:
        known |= set(spec.expected_parameters())
        names = [name for name in spec.expected_parameters() if name and params.get(name)]
        if names:
            url = changelist.get_query_string(remove=names)
            in_effect.append(
                {"title": str(spec.title).partition(",")[0], "value": _value(spec, changelist), "url": url}
            )
    for name, value in params.items():
        if "__" in name and name not in known:  # set by a link, as a lookup of Django
            title = name.replace("__", " ").replace("_", " ").removesuffix(" exact")
            url = changelist.get_query_string(remove=[name])
            in_effect.append({"title": title, "value": str(value), "url": url})
    return in_effect


def _value(spec: Any, changelist: ChangeList) -> str:
    """What a filter is set to, as its choice or form shows it."""
    shown = []
    for choice in spec.choices(changelist):
        if choice.get("selected"):
            shown.append(str(choice.get("display")))
        for name, field in choice["form"].fields.items() if "form" in choice else ():
            value = choice["form"].data.get(name)
            if not value:
                continue
            if hasattr(field, "queryset"):
                value = field.queryset.filter(pk=value).first() or value
            named = dict(getattr(field, "choices", ()) if not hasattr(field, "queryset") else ())
            end = name.rpartition("_")[2]
            shown.append(f"{end} {value}" if end in ("from", "to") else str(named.get(value, value)))
    return " ".join(shown)


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Lines in portions: one write for each would cost more than making them."""
    portion: list[str] = []
    for line in lines:
        portion.append(line)
        if len(portion) >= PORTION // 10:
            yield "".join(portion)
            portion.clear()
    yield "".join(portion)

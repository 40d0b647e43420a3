"""Logs of the console: lists that show the filters in effect above their rows, and give what these leave as a file."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet, Value
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
from django.utils.dateparse import parse_datetime

from agents.kit.console.filters import day_of
from agents.kit.console.paging import NOT_COMPARABLE
from agents.kit.console.site import ReadOnlyAdmin, console_page, has_nul_character
from agents.kit.registry import PORTION, Export, tables
from agents.kit.text.tables import csv_lines, json_lines
from agents.kit.text.wording import day_text, time_text

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Model)

MOST_ROWS = 100_000  # of a file; the newest
READING = "agents.view_message"
FORMATS = {"csv": "text/csv", "jsonl": "application/x-ndjson"}
FORMAT_LABELS = {"csv": "CSV", "jsonl": "JSON lines"}


class LogAdmin(ReadOnlyAdmin[M]):
    """A log that shows which filters are in effect, and gives what they leave as CSV or JSON lines."""

    list_before_template = "admin/log_tools.html"

    @property
    def export(self) -> Export | None:
        return self.table.export

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        """Mark the rows (`unread`) for users who may not read messages."""
        unread = Value(not request.user.has_perm(READING))
        return super().get_queryset(request).annotate(unread=unread)  # type: ignore[return-value]  # the stubs lose the model

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the list with the filters in effect and the links to its files; redirects and answers to actions stay as they are."""
        response = super().changelist_view(request, extra_context)
        context = getattr(response, "context_data", None) or {}
        if "cl" in context:
            context["in_effect"] = filters_in_effect(context["cl"])
            context["exports"] = self._export_links(context["cl"])
            context["most_rows"] = f"{MOST_ROWS:,}"
            context["left_out"] = sorted(self._columns_left_out(request))
        return response

    def _export_links(self, changelist: ChangeList) -> list[dict[str, str]]:
        """Return the links to the files of what the filters leave; none for a table without an export."""
        if self.export is None:
            return []
        # Page, order, "show all" and "error" are no filters. Not `remove`, which takes everything away that begins so, such as "outcome".
        query = changelist.get_query_string({"p": None, "o": None, "all": None, "e": None})
        url_name = f"admin:{self.opts.app_label}_{self.opts.model_name}_export"
        return [
            {"label": label, "url": reverse(url_name, args=[form]) + query} for form, label in FORMAT_LABELS.items()
        ]

    def _columns_left_out(self, request: HttpRequest) -> frozenset[str]:
        """Return the columns of a file that quote messages, for a user who may not view these."""
        if self.export is None or request.user.has_perm(READING):
            return frozenset()
        return self.export.texts

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        if isinstance(request, _ListRequest):
            return _UnreadList
        return super().get_changelist(request, **kwargs)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **more: Any) -> HttpResponse:  # type: ignore[override]
        context["neighbours"] = self.neighbours(request, more["obj"]) if more.get("obj") else {}
        return super().render_change_form(request, context, **more)

    def neighbours(self, request: HttpRequest, row: M) -> dict[str, str]:
        """Return the addresses of the next newer (``previous``) and the next older row (``next``) of the list that was left.

        They are looked for among the rows that the list's filters leave; none where these cannot be read.
        """
        filters = self.get_preserved_filters(request)
        rows = self.get_queryset(request)
        try:
            if filters:  # without any, the list need not be made, which reads the choices of its filters
                rows = self.get_changelist_instance(_ListRequest(request)).queryset
            keys = rows.values_list("pk", flat=True)
            newer = keys.filter(pk__gt=row.pk).order_by("pk").first()
            older = keys.filter(pk__lt=row.pk).order_by("-pk").first()
        except (IncorrectLookupParameters, ValueError, *NOT_COMPARABLE):
            return {}
        urls = {}
        for name, key in (("previous", newer), ("next", older)):
            if key is not None:
                url = self.url("change", self.model(pk=key))
                urls[name] = f"{url}?{filters}" if filters else url
        return urls

    @console_page("export/<str:form>/")
    def export_view(self, request: HttpRequest, form: str) -> HttpResponseBase:
        """Give the rows that the filters of the URL leave as a file, newest first, at most `MOST_ROWS`; the log says who did.

        Columns that quote messages are left out for users who may not view these. A filter that cannot be read is a 400.
        """
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
        left_out = self._columns_left_out(request)
        columns = [name for name in self.export.columns if name not in left_out]
        exported = self.export.rows(self.model._default_manager.filter(pk__in=newest))
        rows = ({name: row[name] for name in columns} for row in exported)
        lines = csv_lines(rows, columns) if form == "csv" else json_lines(rows)
        name = str(self.opts.verbose_name_plural).replace(" ", "-")
        logger.info("%s exported as %s by user %s", name, form, request.user.pk)
        response = StreamingHttpResponse(_in_portions(lines), content_type=f"{FORMATS[form]}; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{name}-{timezone.localdate()}.{form}"'
        return response


class _ListRequest(HttpRequest):
    """A request for the list from which the page of a row was opened, with the filters of that list."""

    def __init__(self, request: HttpRequest) -> None:
        vars(self).update(vars(request))
        self.GET = QueryDict(request.GET.get("_changelist_filters", "").replace("\x00", ""))


class _UnreadList(ChangeList):
    """A list whose filters are applied, of which no page is read."""

    def get_results(self, request: HttpRequest) -> None:
        self.result_list = self.queryset.none()


def discover() -> None:
    """Import the admin modules of all apps; registered tables without an admin class of their own get their list and page."""
    admin.autodiscover()
    for table in tables().values():
        if table.columns and not admin.site.is_registered(table.model):
            admin.site.register(table.model, LogAdmin)


def filters_in_effect(changelist: ChangeList) -> list[dict[str, str]]:
    """Return the filters that are set: the name of each, its value, and the address of the list without it.

    Then the lookups that a link has put into the address without a filter for them, such as ``run__agent__exact``.
    """
    known_parameters: set[str | None] = set()
    in_effect = []
    for spec in changelist.filter_specs:
        known_parameters.update(spec.expected_parameters())
        names = [name for name in spec.expected_parameters() if name and changelist.params.get(name)]
        if names:
            title = str(spec.title).partition(",")[0]  # without the examples of `TagFilter`
            url = changelist.get_query_string(remove=names)
            in_effect.append({"title": title, "value": _value_of_filter(spec, changelist), "url": url})
    for name, value in changelist.params.items():
        is_lookup_of_a_link = "__" in name and name not in known_parameters
        if is_lookup_of_a_link:
            title = name.replace("__", " ").replace("_", " ").removesuffix(" exact")
            url = changelist.get_query_string(remove=[name])
            in_effect.append({"title": title, "value": _value_of_lookup(str(value)), "url": url})
    return in_effect


def _value_of_filter(spec: Any, changelist: ChangeList) -> str:
    """Return what a filter is set to, as its choice or its form shows it."""
    values = []
    for choice in spec.choices(changelist):
        if choice.get("selected"):
            values.append(str(choice.get("display")))
        if "form" in choice:
            values += _values_of_form(choice["form"])
    return " ".join(values)


def _value_of_lookup(value: str) -> str:
    """Return the value of a lookup as people write it: a time to the minute, anything else as it is."""
    if "-" not in value:  # a number such as 20261107 is a key
        return value
    try:
        moment = parse_datetime(value)
    except ValueError:
        return value
    return time_text(moment) if moment is not None else value


def _values_of_form(form: Any) -> list[str]:
    """Return the values that the form of a filter was sent with: rows and choices by their names, days as ``from 1 Nov 2026``."""
    values = []
    for name, field in form.fields.items():
        value = form.data.get(name)
        end = name.rpartition("_")[2]
        if not value:
            continue
        if end in ("from", "to"):
            day = day_of(value)
            values.append(f"{end} {day_text(day) if day is not None else value}")
        elif hasattr(field, "queryset"):
            values.append(str(field.queryset.filter(pk=value).first() or value))
        else:
            labels = dict(getattr(field, "choices", ()))
            values.append(str(labels.get(value, value)))
    return values


def _in_portions(lines: Iterable[str]) -> Iterator[str]:
    """Yield many lines at a time: one write for each would cost more than making them."""
    portion: list[str] = []
    for line in lines:
        portion.append(line)
        if len(portion) >= PORTION // 10:
            yield "".join(portion)
            portion.clear()
    yield "".join(portion)

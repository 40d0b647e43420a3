"""What every log of the console shows above its rows: the filters in effect, and the rows as a file to download."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Prefetch, QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from agents.console.site import ReadOnlyAdmin
from agents.models import Run
from agents.text.tables import csv_lines, json_lines

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Model)
Row = dict[str, Any]

MOST_ROWS = 100_000  # of a file; the newest
PORTION = 1_000  # rows in memory at a time
AGENT_TEXTS = ("system_prompt", "sample_lines", "description")  # long, and in no file of a log
READING = "agents.view_message"
FORMATS = {"csv": "text/csv", "jsonl": "application/x-ndjson"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A log as a file.

    Attributes:
        columns: Their names, in order.
        rows: From the chosen rows of the table to rows of the file, in portions.
        texts: The columns that quote messages: they are left out for users who may not view those.
    """

    columns: Sequence[str]
    rows: Callable[[QuerySet[Any]], Iterable[Row]]
    texts: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if unknown := self.texts.difference(self.columns):
            raise ValueError(f"texts {', '.join(sorted(unknown))}: allowed: the columns {', '.join(self.columns)}")


def export_of(
    columns: Mapping[str, str | Callable[[Any], Any]],
    *,
    select: Sequence[str] = (),
    prefetch: Sequence[str | Prefetch[Any]] = (),
    texts: Iterable[str] = (),
) -> Export:
    """An export whose cells are read off the rows, newest first.

    Args:
        columns: Name to where the value is: a path such as ``agent.slug`` (null where a part of it is), or a function of the row.
        select, prefetch: What these read, so that the number of queries does not grow with the rows.
        texts: As for `Export`.
    """

    def rows(chosen: QuerySet[Any]) -> Iterator[Row]:
        unread = [f"{path}__{text}" for path in select if path.endswith("agent") for text in AGENT_TEXTS]
        whole = chosen.select_related(*select).defer(*unread).prefetch_related(*prefetch).order_by("-pk")
        for row in whole.iterator(chunk_size=PORTION):
            yield {name: where(row) if callable(where) else _at(row, where) for name, where in columns.items()}

    return Export(columns=tuple(columns), rows=rows, texts=frozenset(texts))


def same(*names: str) -> dict[str, str]:
    """Columns named as the fields they hold."""
    return {name: name for name in names}


def _at(row: Any, where: str) -> Any:
    for part in where.split("."):
        row = getattr(row, part, None)
    return row


class LogAdmin(ReadOnlyAdmin[M]):
    """A log that shows which filters are in effect, and gives what they leave as CSV or JSON lines."""

    list_before_template = "admin/log_tools.html"
    export: Export | None = None

    def get_urls(self) -> list[URLPattern]:
        if self.export is None:
            return super().get_urls()
        view = self.admin_site.admin_view(self.export_view)
        return [path("export/<str:form>/", view, name=self._url_name), *super().get_urls()]

    @property
    def _url_name(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_export"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if _unreadable(request):
            return HttpResponseRedirect(request.path)
        response = super().changelist_view(request, extra_context)
        context = getattr(response, "context_data", None) or {}
        if "cl" in context:
            context["in_effect"] = filters_in_effect(context["cl"])
            query = context["cl"].get_query_string(remove=["p", "o", "all", "e"])
            context["exports"] = [
                {"label": label, "url": reverse(f"admin:{self._url_name}", args=[form]) + query}
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

    def export_view(self, request: HttpRequest, form: str) -> HttpResponseBase:
        """The rows that the filters of the URL leave, newest first, at most `MOST_ROWS`, as a file."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        if form not in FORMATS or self.export is None:
            raise Http404(f"{form} is no format; allowed: {', '.join(FORMATS)}")
        try:
            if _unreadable(request):
                raise IncorrectLookupParameters
            chosen = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:
            return HttpResponse("A filter in the address cannot be read.", status=400, content_type="text/plain")
        newest = chosen.order_by("-pk").values("pk")[:MOST_ROWS]
        left_out = self._left_out(request)
        columns = [name for name in self.export.columns if name not in left_out]
        whole = self.export.rows(self.model._default_manager.filter(pk__in=newest))
        rows = ({name: row[name] for name in columns} for row in whole)
        lines = csv_lines(rows, columns) if form == "csv" else json_lines(rows)
        name = str(self.opts.verbose_name_plural).replace(" ", "-")
        logger.info("%s exported as %s by user %s", name, form, request.user.pk)
        response = StreamingHttpResponse(_joined(lines), content_type=f"{FORMATS[form]}; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{name}-{timezone.localdate()}.{form}"'
        return response


def filters_in_effect(changelist: ChangeList) -> list[dict[str, str]]:
    """The filters that are set: each one's name, what it is set to, and the address of the list without it."""
    params, known, in_effect = changelist.params, set(), []
    for spec in changelist.filter_specs:
        known |= set(spec.expected_parameters())
        names = [name for name in spec.expected_parameters() if name and params.get(name)]
        if names:
            chosen: list[Any] = [choice for choice in spec.choices(changelist) if choice.get("selected")]
            value = chosen[-1].get("display") if chosen else ""
            if chosen and "days" in chosen[-1]:
                value = " ".join(f"{label} {day}" for _, label, day in chosen[-1]["days"] if day)
            value = value or ", ".join(str(params[name]) for name in names)
            url = changelist.get_query_string(remove=names)
            in_effect.append({"title": str(spec.title), "value": str(value), "url": url})
    for name, value in params.items():
        if "__" in name and name not in known:  # set by a link, as a lookup of Django
            title = name.replace("__", " ").replace("_", " ").removesuffix(" exact")
            url = changelist.get_query_string(remove=[name])
            in_effect.append({"title": title, "value": str(value), "url": url})
    return in_effect


def _unreadable(request: HttpRequest) -> bool:
    """Whether the address holds what no text of the database can."""
    return any("\x00" in text for pair in request.GET.lists() for text in (pair[0], *pair[1]))


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Lines in portions: one write for each would cost more than making them."""
    portion: list[str] = []
    for line in lines:
        portion.append(line)
        if len(portion) >= PORTION // 10:
            yield "".join(portion)
            portion.clear()
    yield "".join(portion)


def _took(run: Run) -> float | None:
    if run.started_at is None or run.finished_at is None:
        return None
    return round((run.finished_at - run.started_at).total_seconds(), 3)


CALLS: Export = export_of(
    {
        **same("id", "created_at", "role", "purpose", "mechanism", "dimension"),
        "agent": "agent.slug",
        "run": "run_id",
        **same("work_id", "provider", "endpoint", "model", "served_model", "status", "error", "stop_reason"),
        **same("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd"),
        **same("latency_ms", "attempts", "batch", "request_id", "request_digest"),
    },
    select=("agent",),
)
RUNS: Export = export_of(
    {
        **same("id", "created_at", "started_at", "finished_at"),
        "seconds": _took,
        "agent": "agent.slug",
        "channel": "channel.slug",
        "trigger": "trigger_id",
        **same("prompt", "depth", "status", "stop_reason", "error", "attempt", "overrides", "trace"),
    },
    select=("agent", "channel"),
    texts=("trace",),
)
MESSAGES: Export = export_of(
    {
        "id": "pk",
        "channel": "channel.slug",
        **same("position", "external_id"),
        "author": "author_name",
        "agent": "agent.slug",
        "user": "user.username",
        "outsider": "outsider",
        "parent": "parent_id",
        **same("text", "payload", "sent_at"),
        "run": "run_id",
        "persona_version": "persona_version.number",
        **same("synthetic", "tags"),
    },
    select=("channel", "agent", "user", "persona_version"),
)
BATCHES: Export = export_of(
    same(
        *("id", "created_at", "batch_id", "status", "provider_status", "work_id", "round", "model", "requests"),
        *("answered", "expires_at", "finished_at", "error"),
    )
)

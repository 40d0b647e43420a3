"""Save, rename, share and delete views of lists, from the forms above the lists (``admin/saved_views.html``)."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from typing import Any
from urllib.parse import quote

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ORDER_VAR, SEARCH_VAR, ChangeList
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.views.decorators.http import require_POST

from agents.kit.admin.access import user_of
from agents.kit.console.display import isolated
from agents.kit.console.saved_views import (
    LONGEST_QUERY,
    SHARE,
    change_view,
    query_of,
    save_view,
    views_to_change,
)
from agents.kit.console.site import add_pages
from agents.kit.models import SavedView
from agents.kit.registry import tables

UNREADABLE = "a filter has a value that it cannot read; set it again"


def add_page(request: HttpRequest) -> HttpResponse:
    """Save what the form says, and lead back to the list as it was; an error says why nothing was saved.

    Where the list cannot read the filters, it leads to the list without any.
    """
    form = request.POST
    list_admin = _admin_of(request, form.get("table", ""))
    list_url = list_admin.url("changelist")
    try:
        query = _checked_query(request, list_admin, form.get("query", ""))
        list_url = f"{list_url}?{query}"
        view = save_view(
            user=user_of(request),
            table=list_admin.opts.label_lower,
            name=form.get("name", ""),
            query=query,
            is_shared="shared" in form and request.user.has_perm(SHARE),
        )
    except ValueError as problem:
        messages.error(request, f"The view was not saved: {problem}.")
    else:
        messages.success(request, format_html("The view {} is saved.", isolated(view.name)))
    return HttpResponseRedirect(list_url)


def change_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Rename a view, share it or not, or delete it, and lead back to the list as the view shows it."""
    view = get_object_or_404(views_to_change(user_of(request)), pk=pk)
    list_admin = _admin_of(request, view.table)
    if "delete" in request.POST:
        view.delete()
        text = "The view {} is deleted. The list is as it showed it: to have it back, save it again."
        messages.success(request, format_html(text, isolated(view.name)))
        return _list_of(list_admin, view)
    may_be_shared = view.is_shared or request.user.has_perm(SHARE)
    is_shared = may_be_shared and "shared" in request.POST
    try:
        change_view(view, name=request.POST.get("name", ""), is_shared=is_shared)
    except ValueError as problem:
        messages.error(request, f"The view was not changed: {problem}.")
    else:
        messages.success(request, format_html("The view {} is changed.", isolated(view.name)))
    return _list_of(list_admin, view)


def _admin_of(request: HttpRequest, label: str) -> Any:
    """Return the admin class of the list with this label.

    Raises:
        Http404: No such list has saved views.
        PermissionDenied: The user may not view it.
    """
    for model, table in tables().items():
        if table.has_saved_views and model._meta.label_lower == label:
            list_admin = admin.site.get_model_admin(model)
            if not list_admin.has_view_permission(request):
                raise PermissionDenied
            return list_admin
    raise Http404(f"{label[:80]!r} is no list with saved views.")


def _list_of(list_admin: Any, view: SavedView) -> HttpResponseRedirect:
    return HttpResponseRedirect(f"{list_admin.url('changelist')}?{view.query}")


def _checked_query(request: HttpRequest, list_admin: Any, typed: str) -> str:
    """Return the query as it is stored, once the list has been read with it.

    Raises:
        ValueError: It is too long, or has a parameter that is no filter of the list, or a value that no filter can read.
    """
    query = query_of(QueryDict(typed))
    if quote("\x00") in query:  # PostgreSQL reads no such text
        raise ValueError(UNREADABLE)
    if len(query) > LONGEST_QUERY:
        raise ValueError(f"the filters have {len(query):,} characters; allowed: at most {LONGEST_QUERY:,}")
    try:
        parameters = _parameters(_read_list(request, list_admin, query))
    except (IncorrectLookupParameters, SuspiciousOperation, ValueError):
        parameters = _parameters(_read_list(request, list_admin, ""))
        _refuse_unknown(query, parameters)
        raise ValueError(UNREADABLE) from None
    _refuse_unknown(query, parameters)
    return query


def _read_list(request: HttpRequest, list_admin: Any, query: str) -> ChangeList:
    """Read the list as it is with this query."""
    list_request = copy(request)
    list_request.GET = QueryDict(query)
    changelist: ChangeList = list_admin.get_changelist_instance(list_request)
    return changelist


def _parameters(changelist: ChangeList) -> set[str]:
    """Return the parameters that filters, search and order of a list have in its address."""
    parameters = {SEARCH_VAR, ORDER_VAR}
    for spec in changelist.filter_specs:
        parameters.update(name for name in spec.expected_parameters() if name)
    return parameters


def _refuse_unknown(query: str, allowed: Collection[str]) -> None:
    """Raise a ValueError that names the parameters which the list does not know, where the query has any."""
    unknown = [name[:80] for name in QueryDict(query) if name not in allowed]
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is no filter of this list; allowed: {', '.join(sorted(allowed))}")


def _urls() -> list[URLPattern]:
    def guarded(view: Any) -> Any:
        return require_POST(admin.site.admin_view(view))

    return [
        path("kit/savedview/add/", guarded(add_page), name="kit_savedview_add"),
        path("kit/savedview/<int:pk>/change/", guarded(change_page), name="kit_savedview_change"),
    ]


add_pages(_urls)

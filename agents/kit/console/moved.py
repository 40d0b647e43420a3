"""Addresses of pages that moved when their tables got an app of their own: ``/admin/agents/debate/7/`` is ``/admin/debates/debate/7/``."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.urls import URLPattern, path

from agents.kit.capability import capabilities


def moved() -> Iterator[URLPattern]:
    """Yield a route for each table of a nested app: from below its root app to below its own."""
    for app in capabilities():
        root = app.name.partition(".")[0]
        if app.name == root:
            continue
        for model in app.get_models():
            old = f"admin/{root}/{model._meta.model_name}/"
            new = f"admin/{app.label}/{model._meta.model_name}/"
            yield path(f"{old}<path:rest>", _to, {"old": old, "new": new})
            yield path(old, _to, {"old": old, "new": new})


def _to(request: HttpRequest, *, old: str, new: str, rest: str = "") -> HttpResponse:
    """Lead to the same page below `new`, with the query of the address; a form is sent again there."""
    moved_to = request.get_full_path().replace(old, new, 1)
    return HttpResponsePermanentRedirect(moved_to, preserve_request=request.method == "POST")

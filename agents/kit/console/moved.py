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
            new = f"/admin/{app.label}/{model._meta.model_name}/"
            yield path(f"{old}<path:rest>", _to, {"new": new})
            yield path(old, _to, {"new": new})


def _to(request: HttpRequest, *, new: str, rest: str = "") -> HttpResponse:
    query = request.META.get("QUERY_STRING", "")
    return HttpResponsePermanentRedirect(f"{new}{rest}{'?' if query else ''}{query}")

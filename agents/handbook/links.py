"""What a link of a help text leads to, for somebody who may or may not open it."""

from __future__ import annotations

from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse

from agents.handbook.texts import documents, glossary


def where_for(request: HttpRequest | None, link: str) -> str | None:
    """URL of what `link` names (see `agents.handbook.markup`); None where it is nowhere, or not for the user of `request`.

    Args:
        request: Whose; None resolves everything there is, for tests.
    """
    kind, _, target = link.partition(":")
    if kind == "term":
        return f"{reverse('admin:glossary')}#{target}" if target in {t.anchor for t in glossary()} else None
    if kind == "doc":
        name, mark, anchor = target.partition("#")
        return f"{reverse('admin:document', args=[name])}{mark}{anchor}" if name in documents() else None
    if kind in ("help", "list", "add"):
        return _of_model(request, kind, target)
    if kind == "page":
        return reverse(target) if request is None or _may_open(request, target) else None
    return None


def _of_model(request: HttpRequest | None, kind: str, label: str) -> str | None:
    model: type[Model] = apps.get_model(label)
    model_admin = admin.site.get_model_admin(model)
    if request is not None:
        allowed = model_admin.has_add_permission(request) if kind == "add" else model_admin.has_view_permission(request)
        if not allowed:
            return None
    view = {"help": "help", "list": "changelist", "add": "add"}[kind]
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}")


def _may_open(request: HttpRequest, name: str) -> bool:
    """Whether the sidebar would show the page; what it does not know is for everybody."""
    entries = [entry for _, group in settings.CONSOLE_MENU for entry in group if entry[0] == name]
    return all(not permission or request.user.has_perm(permission) for *_, permission in entries)

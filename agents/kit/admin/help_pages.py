"""Help that belongs to no single model: the overview, the glossary, the documents, and the settings in effect."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.module_loading import import_string
from django.utils.text import capfirst
from django.views.decorators.http import require_safe

from agents.kit.console import help
from agents.kit.console.help import document, documents, glossary, help_of, resolve_link
from agents.kit.console.site import add_pages
from agents.kit.registry import in_menu

# Who administers access may know how the installation is set up; no group gives it.
SETTINGS_PERMISSION = "auth.view_user"


def help_overview(request: HttpRequest) -> HttpResponse:
    """Every help page that the user may open."""
    groups = []
    for group, *_ in settings.CONSOLE_MENU:
        rows = []
        mains = in_menu(group)
        for model in (table.model for main in mains for table in main.family):
            url, intro = resolve_link(request, f"help:{model._meta.label}"), help_of(model).partition("\n\n")[0]
            if url is not None and intro:
                name = capfirst(str(model._meta.verbose_name_plural))
                rows.append({"name": name, "url": url, "text": help.inline(intro, lambda link: None)})
        if rows:
            groups.append((group or "Agents and conversations", rows))
    return _page(request, "overview", "Help", groups=groups, documents=[(n, _title(n)) for n in documents()])


def glossary_page(request: HttpRequest) -> HttpResponse:
    """Every term, linkable by its anchor."""
    terms = [
        {
            "anchor": t.anchor,
            "name": t.name,
            "also": t.also,
            "text": help.inline(t.text, lambda link: resolve_link(request, link)),
        }
        for t in glossary()
    ]
    firsts: dict[str, str] = {}
    for term in terms:
        firsts.setdefault(str(term["name"])[0].upper(), str(term["anchor"]))
    return _page(request, "glossary", "Glossary", terms=terms, letters=sorted(firsts.items()))


def settings_page(request: HttpRequest) -> HttpResponse:
    """The settings in effect, for administrators and users who may view accounts. Secrets are never in it."""
    if not request.user.has_perm(SETTINGS_PERMISSION):
        raise PermissionDenied
    return _page(request, "settings", "Settings", groups=import_string(settings.EFFECTIVE_SETTINGS)())


def document_page(request: HttpRequest, name: str) -> HttpResponse:
    """A document of the checkout, as it is in this installation."""
    text = document(name)
    if not text:
        raise Http404
    html = help.render(text, lambda href: resolve_link(request, help.link_in_document(href, name)), heading=2)
    return _page(request, "document", _title(name), html=html)


def _title(name: str) -> str:
    return document(name).partition("\n")[0].lstrip("# ").strip()


def _page(request: HttpRequest, name: str, title: str, **context: Any) -> TemplateResponse:
    request.current_app = admin.site.name
    frame = {**admin.site.each_context(request), "title": title}
    return TemplateResponse(request, f"admin/help/{name}.html", {**frame, **context})


def _urls() -> list[URLPattern]:
    def guarded(view: Any) -> Any:
        return require_safe(admin.site.admin_view(view))

    return [
        path("help/", guarded(help_overview), name="help"),
        path("glossary/", guarded(glossary_page), name="glossary"),
        path("settings/", guarded(settings_page), name="settings"),
        path("help/docs/<path:name>/", guarded(document_page), name="document"),
    ]


add_pages(_urls)

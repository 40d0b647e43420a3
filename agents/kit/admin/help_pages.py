"""Help that belongs to no single model: the overview, the glossary, the documents, and the settings in effect."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.module_loading import import_string
from django.utils.text import capfirst
from django.views.decorators.http import require_safe

from agents.kit.console import help
from agents.kit.console.help import document, documents, glossary, help_of, resolve_link
from agents.kit.console.site import add_pages, console_response
from agents.kit.registry import Table, below, in_menu, tabs_of

# Who administers access may know how the installation is set up; no group gives it.
SETTINGS_PERMISSION = "auth.view_user"


def help_overview(request: HttpRequest) -> HttpResponse:
    """Show every help page that the user may open, and the documents."""
    groups = []
    for group, pages_before, pages_after in settings.CONSOLE_MENU:
        rows = []
        for url_name, *_ in pages_before:
            rows += _help_rows(request, tabs_of(url_name))
        for table in in_menu(group):
            rows += _help_rows(request, [table, *tabs_of(table.model._meta.label)])
        for url_name, *_ in pages_after:
            rows += _help_rows(request, tabs_of(url_name))
        if rows:
            groups.append((group or "Agents, conversations and what waits", rows))
    titles = [(name, _title(name)) for name in documents()]
    return console_response(request, "admin/help/overview.html", "Help", groups=groups, documents=titles)


def _help_rows(request: HttpRequest, tables: list[Table]) -> list[dict[str, Any]]:
    """Return the help pages of tables and of those below them that the user may open, each with its first paragraph, its links as text."""
    with_below = []
    for table in tables:
        with_below += [table, *below(table)]
    rows = []
    for table in with_below:
        options = table.model._meta
        url = resolve_link(request, f"help:{options.label}")
        intro = help_of(table.model).partition("\n\n")[0]
        if url is not None and intro:
            name = capfirst(str(options.verbose_name_plural))
            rows.append({"name": name, "url": url, "text": help.inline(intro, lambda link: None)})
    return rows


def glossary_page(request: HttpRequest) -> HttpResponse:
    """Show every term, linkable by its anchor, and above them the letters, which lead to their first terms."""
    terms = []
    first_anchor_of_letter: dict[str, str] = {}
    for term in glossary():
        text = help.inline(term.text, lambda link: resolve_link(request, link))
        terms.append({"anchor": term.anchor, "name": term.name, "also": term.also, "text": text})
        first_anchor_of_letter.setdefault(term.name[0].upper(), term.anchor)
    letters = sorted(first_anchor_of_letter.items())
    return console_response(request, "admin/help/glossary.html", "Glossary", terms=terms, letters=letters)


def settings_page(request: HttpRequest) -> HttpResponse:
    """Show the settings in effect, for administrators and users who may view accounts. Secrets are never in it."""
    if not request.user.has_perm(SETTINGS_PERMISSION):
        raise PermissionDenied
    groups = import_string(settings.EFFECTIVE_SETTINGS)()
    return console_response(request, "admin/help/settings.html", "Settings", groups=groups)


def document_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show a document of the checkout, as it is in this installation."""
    text = document(name)
    if not text:
        raise Http404
    html = help.render(text, lambda href: resolve_link(request, help.link_in_document(href, name)), heading=2)
    return console_response(request, "admin/help/document.html", _title(name), html=html)


def _title(name: str) -> str:
    """Return the title of a document: its first line."""
    return document(name).partition("\n")[0].lstrip("# ").strip()


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

"""Help in the console: the page "What is this?" of each model, help of fields, links of help texts, and the page that asks before deleting.

The texts are Markdown files in the folder ``help`` of each app. Links in them: ``doc:reference/api#gate-as-a-service`` (a document of
``docs/``), ``help:agents.Agent`` (a help page), ``list:agents.Agent`` (a list), ``page:admin:agents_import_add`` (a page). A link that the
reader may not open is shown as its text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from posixpath import dirname, normpath
from typing import TYPE_CHECKING, Any

import yaml
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Field, Model
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst, slugify
from django.views.decorators.http import require_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from agents.kit.ops.deletion import consequences
from agents.kit.registry import table_of

ELSEWHERE = {"auth": "kit"}  # Django's apps, and the app of ours that has the help pages of their models


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A word as the product uses it. `text` is Markdown; `also` are other words for it or forms of it."""

    name: str
    text: str
    also: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        return slugify(self.name)


def help_of(model: type[Model]) -> str:
    """Return the Markdown of the model's help page, ``help/<model>.md`` of its app; empty when it has none."""
    label = model._meta.app_label
    home = apps.get_app_config(ELSEWHERE.get(label, label)).path
    return _read(Path(home) / "help" / f"{model._meta.model_name}.md")


def field_help(model: type[Model], field: str) -> str:
    """Return what ``fields.yaml`` says of a field; empty when it says nothing."""
    text: str = _merged("fields.yaml").get(model._meta.label_lower, {}).get(field, "")
    return text


@cache
def glossary() -> tuple[Term, ...]:
    """Return the terms of all apps, by name."""
    terms = []
    for name, entry in _merged("glossary.yaml").items():
        row = {"text": entry} if isinstance(entry, str) else entry
        terms.append(Term(name=name, text=row["text"], also=tuple(row.get("also", ()))))
    return tuple(sorted(terms, key=lambda term: term.name.casefold()))


def document(name: str) -> str:
    """Return the Markdown of ``docs/<name>.md``; empty when there is none (an image may come without)."""
    if name not in documents():
        return ""
    return _read(Path(settings.BASE_DIR) / "docs" / f"{name}.md")


@cache
def documents() -> tuple[str, ...]:
    """Return the documents that can be read here: their paths below ``docs``, without ``.md``."""
    folder = Path(settings.BASE_DIR) / "docs"
    return tuple(sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.md")))


@cache
def _merged(name: str) -> dict[str, Any]:
    """Return the entries of the files of this name in the folder ``help`` of all apps."""
    entries: dict[str, Any] = {}
    for config in apps.get_app_configs():
        path = Path(config.path) / "help" / name
        if path.is_file():
            entries.update(yaml.safe_load(path.read_text(encoding="utf-8")))
    return entries


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


LinkResolver = Callable[[str], str | None]  # what a link names → its URL, None = no link

_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
_IN_DOCS = re.compile(r"docs/(?P<name>[a-z][a-z0-9/-]*)\.md")
_NO_LETTER = re.compile(r"[^\w\- ]")
_HOST = re.compile(r"https?://", re.IGNORECASE)


def render(text: str, resolve: LinkResolver, *, heading: int = 2) -> SafeString:
    """Return the HTML of a Markdown text: headings get their anchors as ids, pictures are left out, tables scroll in their own box.

    Args:
        resolve: Gives the URL of each link; of a link without one (None) only the text is shown.
        heading: Level of its highest heading on the page it is put on.
    """
    tokens = _markdown.parse(text)
    _shift_headings(tokens, heading)
    for number, token in enumerate(tokens):
        if token.type != "inline":
            continue
        token_before = tokens[number - 1] if number > 0 else None
        # Such a token is the tag of the heading whose text this is.
        if token_before is not None and token_before.type == "heading_open":
            token_before.attrSet("id", anchor_of(token.content))
        token.children = _resolve_links_and_drop_pictures(token.children or [], resolve)
    html: str = _markdown.renderer.render(tokens, _markdown.options, {})
    html = html.replace("<table>", '<div class="pl-scroll" tabindex="0"><table class="pl-table">')
    return mark_safe(html.replace("</table>", "</table></div>"))  # noqa: S308 (made by the renderer, which escapes all text)


def _shift_headings(tokens: Sequence[Token], highest: int) -> None:
    """Change the levels of all headings so that the highest gets this level; none gets below the sixth."""
    levels = [int(token.tag.removeprefix("h")) for token in tokens if token.type == "heading_open"]
    shift = highest - min(levels, default=highest)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            level = int(token.tag.removeprefix("h")) + shift
            token.tag = f"h{min(level, 6)}"


def inline(text: str, resolve: LinkResolver) -> SafeString:
    """Return the HTML of one paragraph without its ``<p>``."""
    return mark_safe(str(render(text, resolve)).removeprefix("<p>").rstrip().removesuffix("</p>"))  # noqa: S308 (as above)


def anchor_of(heading: str) -> str:
    """Return the id of a heading, as GitHub and the documents' own links have it."""
    return _NO_LETTER.sub("", heading.replace("`", "").lower()).replace(" ", "-")


def _resolve_links_and_drop_pictures(children: Sequence[Token], resolve: LinkResolver) -> list[Token]:
    """Return the tokens with the URLs of their links; a link that leads nowhere becomes its text, and pictures are left out."""
    cleaned = []
    leads_somewhere = []  # of each link that is open here
    for token in children:
        if token.type == "image":
            continue
        if token.type == "link_open":
            url = resolve(str(token.attrs["href"]))
            leads_somewhere.append(url is not None)
            if url is None:
                continue
            token.attrs = {"href": url, "class": "pl-link"}
        if token.type == "link_close" and not leads_somewhere.pop():
            continue
        cleaned.append(token)
    return cleaned


def link_in_document(href: str, name: str) -> str:
    """Return what a link in the document `name` names, as `resolve_link` takes it: ``doc:reference/api#getting-in``.

    Empty for what is no document below ``docs``, such as an address on the web.
    """
    if href.startswith("#"):
        return f"doc:{name}{href}"
    if _HOST.match(href):
        return ""
    path, mark, anchor = normpath(f"docs/{dirname(name)}/{href}").partition("#")
    match = _IN_DOCS.fullmatch(path)
    if match is None:
        return ""
    return f"doc:{match['name']}{mark}{anchor}"


def resolve_link(request: HttpRequest | None, link: str) -> str | None:
    """Return the URL of what `link` names (see `agents.kit.console.help`); None where it is nowhere, or not for the user of `request`.

    What belongs to an app that is not installed is nowhere.

    Args:
        request: Whose user reads the link; None resolves everything there is, for tests.
    """
    kind, _, target = link.partition(":")
    match kind:
        case "term":
            is_term = any(term.anchor == target for term in glossary())
            return f"{reverse('admin:glossary')}#{target}" if is_term else None
        case "doc":
            name, mark, anchor = target.partition("#")
            return f"{reverse('admin:document', args=[name])}{mark}{anchor}" if name in documents() else None
        case "help":
            return _url_of_model(request, target, "help")
        case "list":
            return _url_of_model(request, target, "changelist")
        case "add":
            return _url_of_model(request, target, "add")
        case "page":
            return _url_of_page(request, target)
    return None


def _url_of_model(request: HttpRequest | None, label: str, view: str) -> str | None:
    """Return the URL of a page of the model with this label; None where there is no such model, or the user may not open the page."""
    try:
        model: type[Model] = apps.get_model(label)
    except LookupError:
        return None
    page = admin.site.get_model_admin(model)
    if request is not None and view == "add" and not page.has_add_permission(request):
        return None
    if request is not None and view != "add" and not page.has_view_permission(request):
        return None
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}")


def _url_of_page(request: HttpRequest | None, url_name: str) -> str | None:
    """Return the URL of a page that belongs to no model; None where there is none, or the user has not the sidebar's permission for it.

    A page that is not in the sidebar is for everybody.
    """
    permissions = {name: permission for _, name, _, permission in settings.CONSOLE_TABS}
    for _, pages_before, pages_after in settings.CONSOLE_MENU:
        for name, _, _, permission in (*pages_before, *pages_after):
            permissions[name] = permission
    permission = permissions.get(url_name, "")
    if request is not None and permission and not request.user.has_perm(permission):
        return None
    try:
        return reverse(url_name)
    except NoReverseMatch:
        return None


HIDDEN_FIELDS = ("password",)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldNote:
    """One field for people. `values` are those allowed, where it has choices, with their labels; `advanced` ones are folded."""

    name: str
    label: str
    text: str
    values: tuple[tuple[str, str], ...] = ()
    advanced: bool = False


def fields_of(model: type[Model]) -> list[FieldNote]:
    """Return the fields of `model` that have a help text or choices, as they are declared; primary keys and passwords are left out."""
    notes = []
    for field in [*model._meta.fields, *model._meta.many_to_many]:
        text = str(field.help_text) or field_help(model, field.name)
        values = tuple((str(value), str(label)) for value, label in field.flatchoices if value not in ("", None))
        says_nothing = not text and not values
        if field.primary_key or field.name in HIDDEN_FIELDS or says_nothing:
            continue
        notes.append(
            FieldNote(
                name=field.name,
                label=capfirst(str(field.verbose_name)),
                text=_as_sentence(text),
                values=values,
                advanced=getattr(field, "advanced", False),
            )
        )
    return notes


def _as_sentence(text: str) -> str:
    """Return a help text, which is written small as labels are, with a capital and a full stop."""
    if not text:
        return ""
    end = "" if text.endswith((".", "!", "?")) else "."
    return f"{capfirst(text)}{end}"


if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin
    from django.contrib.admin.options import BaseModelAdmin

    _Admin = ModelAdmin[Any]
    _Base = BaseModelAdmin[Any]
else:
    _Admin = _Base = object


class FieldHelp(_Base):
    """Forms whose fields say in ``fields.yaml`` what their models do not."""

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        form_field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if form_field is not None and not form_field.help_text:
            form_field.help_text = field_help(self.model, db_field.name)
        return form_field


class Helped(FieldHelp, _Admin):
    """An admin class with a help page, for users who may view the model."""

    @property
    def help_url(self) -> str:
        """Return the address of the help page, to which the header of the model's pages links; empty where there is none."""
        if not help_of(self.model):
            return ""
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_help")

    def get_urls(self) -> list[URLPattern]:
        view = require_safe(self.admin_site.admin_view(self.help_view))
        name = f"{self.opts.app_label}_{self.opts.model_name}_help"
        return [path("help/", view, name=name), *super().get_urls()]

    def help_view(self, request: HttpRequest) -> HttpResponse:
        """Show the help page: the text up to its first second-level heading, the fields of the model, then the rest of the text.

        Raises:
            PermissionDenied: The user may not view the model.
            Http404: It has no help page.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        text = help_of(self.model)
        if not text:
            raise Http404
        intro, mark, rest = text.partition("\n## ")
        notes = fields_of(self.model)
        context = {
            "intro": render(intro, lambda link: resolve_link(request, link)),
            "fields": [note for note in notes if not note.advanced],
            "advanced": [note for note in notes if note.advanced],
            "rest": render(f"## {rest}" if mark else "", lambda link: resolve_link(request, link)),
            "list_url": resolve_link(request, f"list:{self.model._meta.label}"),
            "help_page": True,
        }
        title = str(self.opts.verbose_name_plural)
        return self.page(request, "admin/help/model.html", f"{capfirst(title)}: what is this?", **context)  # type: ignore[attr-defined,no-any-return]


class CountedDeletion(_Admin):
    """An admin class whose delete page counts instead of listing: an agent may have 100,000 rows of runs."""

    delete_confirmation_template = "admin/delete_counted.html"

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Return what Django's method does, with a line per model instead of one per row.

        Returns:
            Lines of what goes, numbers of it by name, names of models that the user may not delete, and lines of what forbids it. Rows of
            a model without pages of its own need no permission.
        """
        rows = list(objs)
        outcome = consequences(rows)
        counts = {str(self.opts.verbose_name_plural): len(rows)}
        not_allowed = set()
        for model, number in outcome.deleted.items():
            counts[str(model._meta.verbose_name_plural)] = number
            is_registered = self.admin_site.is_registered(model)
            if is_registered and not self.admin_site.get_model_admin(model).has_delete_permission(request):
                not_allowed.add(str(model._meta.verbose_name))
        return lines_of(outcome.deleted), counts, not_allowed, lines_of(outcome.protecting)

    def render_delete_form(self, request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
        """Show the page that asks, with what the table's registration says of deleting, and what stays without naming the row."""
        row = context["object"]
        url = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[row.pk])
        context["note"] = table_of(self.model).deleting
        context["unlinked"] = lines_of(consequences([row]).unlinked)
        context["change_url"] = url
        return super().render_delete_form(request, context)


def lines_of(counts: Counter[type[Model]]) -> list[str]:
    """Return a line per model, such as ``12 traits``, the most first."""
    lines = []
    for model, number in counts.most_common():
        name = model._meta.verbose_name if number == 1 else model._meta.verbose_name_plural
        if number:
            lines.append(f"{number:,} {name}")
    return lines

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

ELSEWHERE = {"auth": "kit"}  # whose pages are at home in another app


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
    """The Markdown of the model's help page; empty when it has none."""
    home = apps.get_app_config(ELSEWHERE.get(model._meta.app_label, model._meta.app_label)).path
    return _read(Path(home) / "help" / f"{model._meta.model_name}.md")


def field_help(model: type[Model], field: str) -> str:
    """What ``fields.yaml`` says of a field; empty when it says nothing."""
    text: str = _merged("fields.yaml").get(model._meta.label_lower, {}).get(field, "")
    return text


@cache
def glossary() -> tuple[Term, ...]:
    """The terms of all apps, by name."""
    terms = []
    for name, entry in _merged("glossary.yaml").items():
        row = {"text": entry} if isinstance(entry, str) else entry
        terms.append(Term(name=name, text=row["text"], also=tuple(row.get("also", ()))))
    return tuple(sorted(terms, key=lambda term: term.name.casefold()))


def document(name: str) -> str:
    """The Markdown of ``docs/<name>.md``; empty when there is none (an image may come without)."""
    return _read(Path(settings.BASE_DIR) / "docs" / f"{name}.md") if name in documents() else ""


@cache
def documents() -> tuple[str, ...]:
    """The documents that can be read here: their paths below ``docs``, without ``.md``."""
    folder = Path(settings.BASE_DIR) / "docs"
    return tuple(sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.md")))


@cache
def _merged(name: str) -> dict[str, Any]:
    """The entries of the file of this name in every app's ``help``."""
    paths = [Path(config.path) / "help" / name for config in apps.get_app_configs()]
    files = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths if path.is_file()]
    return {label: entry for file in files for label, entry in file.items()}


@cache
def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


Where = Callable[[str], str | None]  # what a link names → its URL, None = no link

_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
_IN_DOCS = re.compile(r"docs/(?P<name>[a-z][a-z0-9/-]*)\.md")
_NO_LETTER = re.compile(r"[^\w\- ]")
_HOST = re.compile(r"https?://", re.IGNORECASE)


def render(text: str, where: Where, *, heading: int = 2) -> SafeString:
    """HTML of `text`.

    Args:
        where: What becomes of each link.
        heading: Level of its highest heading on the page it is put on.
    """
    tokens = _markdown.parse(text)
    levels = [int(token.tag[1:]) for token in tokens if token.type == "heading_open"]
    lower = heading - min(levels, default=heading)
    for before, token in zip([*tokens[:1], *tokens], tokens, strict=False):
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + lower, 6)}"
        if token.type == "inline":
            if before.type == "heading_open":
                before.attrSet("id", anchor_of(token.content))
            token.children = list(_linked(token.children or [], where))
    html: str = _markdown.renderer.render(tokens, _markdown.options, {})
    # Tables scroll inside their own box.
    html = html.replace("<table>", '<div class="pl-scroll" tabindex="0"><table class="pl-table">')
    return mark_safe(html.replace("</table>", "</table></div>"))  # noqa: S308 (made by the renderer, which escapes all text)


def inline(text: str, where: Where) -> SafeString:
    """HTML of one paragraph without its ``<p>``."""
    return mark_safe(str(render(text, where)).removeprefix("<p>").rstrip().removesuffix("</p>"))  # noqa: S308 (as above)


def anchor_of(heading: str) -> str:
    """The id of a heading, as GitHub and the documents' own links have it."""
    return _NO_LETTER.sub("", heading.replace("`", "").lower()).replace(" ", "-")


def _linked(children: Sequence[Token], where: Where) -> list[Token]:
    """The tokens with links resolved; a link that leads nowhere, and a picture, leaves its text."""
    linked, open_links = [], []
    for token in children:
        if token.type == "link_open":
            url = where(str(token.attrs["href"]))
            open_links.append(url is not None)
            if url is None:
                continue
            token.attrs = {"href": url, "class": "pl-link"}
        elif (token.type == "link_close" and not open_links.pop()) or token.type == "image":
            continue
        linked.append(token)
    return linked


def link_in_document(href: str, name: str) -> str:
    """What a link of a document names, in the form above: its neighbours are documents, everything else in the checkout is no page."""
    if href.startswith("#"):
        return f"doc:{name}{href}"
    if _HOST.match(href):
        return ""
    path, mark, anchor = normpath(f"docs/{dirname(name)}/{href}").partition("#")
    match = _IN_DOCS.fullmatch(path)
    return f"doc:{match['name']}{mark}{anchor}" if match else ""


def resolve_link(request: HttpRequest | None, link: str) -> str | None:
    """URL of what `link` names (see `agents.kit.console.help`); None where it is nowhere, or not for the user of `request`.

    What belongs to an app that is not installed is nowhere.

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
        try:
            model: type[Model] = apps.get_model(target)
        except LookupError:
            return None
        page = admin.site.get_model_admin(model)
        if request is not None:
            allowed = page.has_add_permission(request) if kind == "add" else page.has_view_permission(request)
            if not allowed:
                return None
        view = {"help": "help", "list": "changelist", "add": "add"}[kind]
        return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}")
    if kind == "page":  # as the sidebar shows it; a page that the sidebar does not know is for everybody
        entries = [page for _, *pages in settings.CONSOLE_MENU for page in (*pages[0], *pages[1]) if page[0] == target]
        if request is None or all(not needed or request.user.has_perm(needed) for *_, needed in entries):
            try:
                return reverse(target)
            except NoReverseMatch:
                return None
    return None


HIDDEN = ("password",)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldNote:
    """One field for people. `values` are those allowed, where it has choices, with their labels."""

    name: str
    label: str
    text: str
    values: tuple[tuple[str, str], ...] = ()


def fields_of(model: type[Model]) -> list[FieldNote]:
    """The fields of `model` that say something about themselves, as they are declared."""
    notes = []
    for field in [*model._meta.fields, *model._meta.many_to_many]:
        text = str(field.help_text) or field_help(model, field.name)
        values = tuple((str(value), str(label)) for value, label in field.flatchoices if value not in ("", None))
        if field.primary_key or field.name in HIDDEN or not (text or values):
            continue
        if text:  # written small, as labels are; in a list of definitions it is a sentence
            text = f"{capfirst(text)}{'' if text.endswith(('.', '!', '?')) else '.'}"
        notes.append(FieldNote(name=field.name, label=capfirst(str(field.verbose_name)), text=text, values=values))
    return notes


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
        """Where the help page is; the header of the model's pages links to it."""
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_help") if help_of(self.model) else ""

    def get_urls(self) -> list[URLPattern]:
        view = require_safe(self.admin_site.admin_view(self.help_view))
        name = f"{self.opts.app_label}_{self.opts.model_name}_help"
        return [path("help/", view, name=name), *super().get_urls()]

    def help_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        text = help_of(self.model)
        if not text:
            raise Http404
        intro, mark, rest = text.partition("\n## ")
        context = {
            "intro": render(intro, lambda link: resolve_link(request, link)),
            "fields": fields_of(self.model),
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
        """As Django's, with a line per model instead of one per row; the fourth are the lines of what forbids it."""
        rows = list(objs)
        outcome = consequences(rows)
        lacking = {
            str(model._meta.verbose_name)
            for model in outcome.deleted
            if self.admin_site.is_registered(model)
            and not self.admin_site.get_model_admin(model).has_delete_permission(request)
        }
        counts = {str(model._meta.verbose_name_plural): number for model, number in outcome.deleted.items()}
        own = {str(self.opts.verbose_name_plural): len(rows)}
        return lines_of(outcome.deleted), {**own, **counts}, lacking, lines_of(outcome.protecting)

    def render_delete_form(self, request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
        row = context["object"]
        url = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[row.pk])
        unlinked = lines_of(consequences([row]).unlinked)
        return super().render_delete_form(
            request, {**context, "note": table_of(self.model).deleting, "unlinked": unlinked, "change_url": url}
        )


def lines_of(counts: Counter[type[Model]]) -> list[str]:
    """``12 traits``, most first."""
    return [
        f"{number:,} {model._meta.verbose_name if number == 1 else model._meta.verbose_name_plural}"
        for model, number in counts.most_common()
        if number
    ]

"""Markdown as HTML of the console: no HTML of its own, no pictures, and only links that lead somewhere.

A link names what it leads to, not where that is: ``term:baseline`` (the glossary), ``doc:measuring#comparing`` (a document),
``help:agents.Agent`` (a help page), ``list:agents.Agent`` (a list), ``page:admin:agents_import_add`` (a page). One that the reader may
not open is shown as its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from posixpath import normpath

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

Where = Callable[[str], str | None]  # what a link names → its URL, None = no link

_markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
_IN_DOCS = re.compile(r"(?P<name>[a-z][a-z0-9-]*)\.md(?P<anchor>#[^#]*)?")
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
    kept, open_links = [], []
    for token in children:
        if token.type == "link_open":
            url = where(str(token.attrs["href"]))
            open_links.append(url is not None)
            if url is None:
                continue
            token.attrs = {"href": url, "class": "pl-link"}
        elif (token.type == "link_close" and not open_links.pop()) or token.type == "image":
            continue
        kept.append(token)
    return kept


def link_in_document(href: str, name: str) -> str:
    """What a link of a document names, in the form above: its neighbours are documents, everything else in the checkout is no page."""
    if href.startswith("#"):
        return f"doc:{name}{href}"
    if _HOST.match(href):
        return ""
    base = "propositions" if name == "propositions" else "docs"
    path = normpath(f"{base}/{href}")
    if path.partition("#")[0] == "propositions/README.md":
        _, mark, anchor = path.partition("#")
        return f"doc:propositions{mark}{anchor}"
    found = _IN_DOCS.fullmatch(path.removeprefix("docs/")) if path.startswith("docs/") else None
    return f"doc:{found['name']}{found['anchor'] or ''}" if found else ""

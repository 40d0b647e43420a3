"""The console's ways to show values as template filters, so that a template reads rows: ``{{ log.created_at|moment }}``.

The apps' admin modules add theirs to `register`, so that every template of the console loads this one library.
"""

from typing import Any

from django.template import Context, Library
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from agents.kit.console import display, home

register = Library()
for show in (
    display.badge,
    display.block,
    display.count,
    display.folded,
    display.isolated,
    display.json_block,
    display.marked,
    display.moment,
    display.money,
    display.page_of,
    display.shortened,
    display.status,
    display.status_badge,
    display.tags,
    display.visible,
    display.word_diff,
    display.words,
):
    register.filter(show.__name__, show)


@register.simple_tag(takes_context=True)
def header_parts(context: Context) -> SafeString:
    """Return what the apps add to the header of every page; see `agents.kit.console.home.HomePart`."""
    return format_html_join("", "{}", ((part,) for part in home.parts_at("header", context["request"])))


@register.simple_tag(takes_context=True)
def breadcrumbs(context: Context, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the way to the page as the sidebar shows it; see `agents.kit.console.home.breadcrumbs`."""
    return home.breadcrumbs(context["request"], parts)

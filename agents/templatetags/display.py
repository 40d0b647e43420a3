"""The console's ways to show values as template filters, so that a template reads rows: ``{{ log.created_at|moment }}``."""

from typing import Any

from django.template import Context, Library

from agents.console import display, home

register = Library()
for show in (
    display.agent_chip,
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
    display.words,
):
    register.filter(show.__name__, show)


@register.simple_tag(takes_context=True)
def breadcrumbs(context: Context, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The way to the page as the sidebar shows it; see `agents.console.home.breadcrumbs`."""
    return home.breadcrumbs(context["request"], parts)

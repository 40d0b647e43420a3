"""The console's ways to show values as template filters, so that a template reads rows: ``{{ log.created_at|moment }}``."""

from django.template import Library

from agents.console import display

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

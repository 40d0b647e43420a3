"""The console's ways to show values as template filters, so that a template reads rows: ``{{ log.created_at|moment }}``."""

from typing import Any

from django.template import Context, Library

from agents.alerts.models import Alert
from agents.kit.console import display, home

register = Library()
NEWEST = 5  # alerts under the bell
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


@register.inclusion_tag("admin/alerts/alert/bell.html", takes_context=True)
def alert_bell(context: Context) -> dict[str, Any]:
    """The alerts that nobody has acknowledged: how many, and the newest."""
    request = context["request"]
    if not request.user.has_perm("alerts.view_alert"):
        return {}
    waiting = Alert.objects.filter(acknowledged_at__isnull=True).order_by("-pk").only("title", "created_at")
    alerts = list(waiting[: home.MOST_COUNTED + 1])
    return {
        "shown": True,
        "number": f"{home.MOST_COUNTED}+" if len(alerts) > home.MOST_COUNTED else len(alerts),
        "newest": alerts[:NEWEST],
        "all": display.list_url(Alert),
        "waiting": display.list_url(Alert, acknowledged_at__isempty=1),
    }


@register.simple_tag(takes_context=True)
def breadcrumbs(context: Context, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The way to the page as the sidebar shows it; see `agents.kit.console.home.breadcrumbs`."""
    return home.breadcrumbs(context["request"], parts)

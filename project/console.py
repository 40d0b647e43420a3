"""The console's settings: what stands in its sidebar, and its theme."""

from collections.abc import Callable

from django.http import HttpRequest
from django.templatetags.static import static

# The sidebar: its groups, each with the pages that belong to no table: (URL name, icon of Material Symbols, title, permission). The tables
# follow them as the apps register them (`agents.registry`); what a user may not view is left out.
CONSOLE_MENU: list[tuple[str, list[tuple[str, str, str, str]]]] = [
    ("Agents", [("admin:evaluation_drift_overview", "trending_down", "Drift overview", "evaluation.view_baseline")]),
    ("Measuring", [("admin:review", "inbox", "To review", "agents.change_reviewitem")]),
    ("Correcting", []),
    ("Logs", []),
    ("Access", []),
    (
        "Help",
        [
            ("admin:help", "help", "Help", ""),
            ("admin:glossary", "menu_book", "Glossary", ""),
            ("admin:settings", "settings", "Settings", "auth.view_user"),
        ],
    ),
]
# Every setting in effect, for the page "Settings": dotted path of a callable.
EFFECTIVE_SETTINGS = "project.effective.groups"


def _static(name: str) -> Callable[[HttpRequest], str]:
    return lambda request: static(f"agents/{name}")


UNFOLD = {
    "SITE_TITLE": "Plumbline",
    "SITE_HEADER": "Plumbline",
    "SITE_SUBHEADER": "Keeping personas in character",
    "SITE_SYMBOL": "straighten",
    "SITE_URL": None,
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {"navigation": "agents.console.home.navigation"},
    "DASHBOARD_CALLBACK": "agents.console.home.dashboard",
    "STYLES": [_static("console.css")],
    "SCRIPTS": [
        _static("names.js"),
        _static("keys.js"),
        _static("charts.js"),
    ],  # after Chart.js, before the theme draws
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _static("favicon.svg")}],
}

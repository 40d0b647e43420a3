"""The console's settings: what stands in its sidebar, and its theme."""

from collections.abc import Callable

from django.http import HttpRequest
from django.templatetags.static import static

Page = tuple[str, str, str, str]  # URL name, icon of Material Symbols, title, permission ("" = everyone)

# The sidebar: its groups, each with the pages before and after its tables. The apps register the tables, and which of them are tabs on
# another one's list (`agents.registry`: menu, tab_of); what a user may not view is left out.
CONSOLE_MENU: list[tuple[str, list[Page], list[Page]]] = [
    (
        "",
        [
            ("admin:index", "home", "Home", ""),
            ("admin:review", "inbox", "To review", "agents.change_reviewitem"),
        ],
        [],
    ),
    ("Quality", [("admin:evaluation_drift_overview", "trending_down", "Overview", "evaluation.view_baseline")], []),
    ("Gate", [], []),
    (
        "More",
        [],
        [
            ("docs", "api", "API reference", ""),
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
    "SIDEBAR": {"navigation": "agents.console.home.navigation", "show_search": True, "command_search": True},
    "TABS": "agents.console.home.tabs",
    "DASHBOARD_CALLBACK": "agents.console.home.dashboard",
    "STYLES": [_static("console.css")],
    "SCRIPTS": [
        _static(name) for name in ("names.js", "keys.js", "charts.js")
    ],  # after Chart.js, before the theme draws
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _static("favicon.svg")}],
}

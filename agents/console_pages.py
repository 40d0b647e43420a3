"""What stands in the console's sidebar and on its first page: parts that the apps of every floor add, whatever the theme.

The sidebar is the setting `CONSOLE_MENU`, because only the settings know all apps; the parts of the first page are added by
the admin packages of the apps with `add_home`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.text import capfirst

Place = Literal["setup", "waiting", "cards", "charts", "lists"]
PLACES: tuple[Place, ...] = get_args(Place)


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePart:
    """One part of the first page, for users with `permission`.

    Attributes:
        place: Where it stands: what is missing (`setup`), what only a person can do (`waiting`), numbers (`cards`), drawings
            (`charts`), or newest rows (`lists`); `agents.admin.home_parts` has a function for each.
        order: Smaller numbers come first within a place.
        permission: ``app.codename`` that a user needs to get it.
        render: A function of the request to HTML; None leaves the part out.
    """

    place: Place
    order: int
    permission: str
    render: Callable[[HttpRequest], SafeString | None]


_home: list[HomePart] = []


def add_home(*parts: HomePart) -> None:
    """Add parts to the first page; call it once, where the app registers its own admin classes."""
    _home.extend(parts)


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The context of the first page (``UNFOLD["DASHBOARD_CALLBACK"]``): rendered parts by place."""
    found: dict[str, list[SafeString]] = defaultdict(list)
    for part in sorted(_home, key=lambda part: part.order):
        if request.user.has_perm(part.permission):
            rendered = part.render(request)
            if rendered is not None:
                found[part.place].append(rendered)
    return {**context, "home": {place: found[place] for place in PLACES}, "has_home": any(found.values())}


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar (``UNFOLD["SIDEBAR"]``): the entries of `CONSOLE_MENU` that the user may view.

    An entry is a model, ``("app.Model", icon)``, or a page, ``("admin:url_name", icon, title, permission)``; the permission
    ``""`` lets everybody in who may open the console.
    """
    groups: list[dict[str, Any]] = []
    for title, entries in settings.CONSOLE_MENU:
        items = [item for item in (_item(request, *entry) for entry in entries) if item is not None]
        if items:
            groups.append({"title": title, "items": items})
    shown = [item for group in groups for item in group["items"]]
    here = max((item["link"] for item in shown if request.path.startswith(item["link"])), key=len, default="")
    for item in shown:
        item["active"] = item["link"] == here  # a page below another one's address is not that one, too
    return groups


def _item(request: HttpRequest, label: str, icon: str, title: str = "", permission: str = "") -> dict[str, Any] | None:
    if ":" in label:
        if permission and not request.user.has_perm(permission):
            return None
        return {"title": title, "icon": icon, "link": reverse(label)}
    model = apps.get_model(label)
    if not admin.site.get_model_admin(model).has_view_permission(request):
        return None
    link = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    return {"title": capfirst(model._meta.verbose_name_plural), "icon": icon, "link": link}

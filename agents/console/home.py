"""The console's sidebar and first page. The sidebar is the setting `CONSOLE_MENU`; apps add parts of the first page with `add_home`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from django.conf import settings
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from agents.console import display
from agents.registry import tables

Place = Literal["first", "setup", "waiting", "cards", "charts", "lists"]
PLACES: tuple[Place, ...] = get_args(Place)


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePart:
    """One part of the first page, for users with `permission`.

    Attributes:
        place: Where it stands: what a person must see (`first`), what is missing (`setup`), what only a person can do
            (`waiting`), numbers (`cards`), drawings (`charts`), or newest rows (`lists`); `agents.console.home` has a function for
            each.
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
    home: dict[str, list[SafeString]] = {place: [] for place in PLACES}
    for part in sorted(_home, key=lambda part: part.order):
        if request.user.has_perm(part.permission) and (rendered := part.render(request)) is not None:
            home[part.place].append(rendered)
    return {**context, "home": home, "has_home": any(home.values())}


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar (``UNFOLD["SIDEBAR"]``): the pages of `CONSOLE_MENU` and the registered tables that the user may view.

    The permission ``""`` of a page lets in everyone who may open the console.
    """
    groups: list[dict[str, Any]] = []
    for group, pages in settings.CONSOLE_MENU:
        items = [
            {"title": title, "icon": icon, "link": reverse(name)}
            for name, icon, title, permission in pages
            if not permission or request.user.has_perm(permission)
        ]
        for table in tables().values():
            if table.menu == group and admin.site.get_model_admin(table.model).has_view_permission(request):
                title = capfirst(str(table.model._meta.verbose_name_plural))
                items.append({"title": title, "icon": table.icon, "link": display.list_url(table.model)})
        if items:
            groups.append({"title": group, "items": items})
    shown = [item for group in groups for item in group["items"]]
    here = max((item["link"] for item in shown if request.path.startswith(item["link"])), key=len, default="")
    for item in shown:
        item["active"] = item["link"] == here  # a page below another one's address is not that one, too
    return groups


FAILURE_DAYS = 7  # of what a list shows as gone wrong
MOST_COUNTED = 100  # of what waits: beyond that it is "more than 100"


def card(
    title: str,
    *,
    figure: object,
    unit: str = "",
    lines: Iterable[object] = (),
    tone: display.Tone = "plain",
    wide: bool = False,
) -> SafeString:
    """One number with its unit, and sentences below it; `tone` colours its edge.

    Args:
        figure: A number, best as a link to the list behind it (`number_link`).
        lines: HTML or texts; empty ones are left out.
        wide: It takes two places where there is room.
    """
    shown = [line for line in lines if line not in ("", None)]
    context = {"title": title, "figure": figure, "unit": unit, "lines": shown, "tone": tone, "wide": wide}
    return render_to_string("admin/home/card.html", context)


def step(title: str, text: object, *, command: str = "", url: str = "", label: str = "") -> SafeString:
    """Something that is missing, with the command or the page that provides it."""
    context = {"title": title, "text": text, "command": command, "url": url, "label": label}
    return render_to_string("admin/home/step.html", context)


def waiting(number: int, one: str, many: str, url: str) -> SafeString | None:
    """Something that only a person can do, such as ``3 drift alerts``; None when there is none."""
    if not number:
        return None
    label = format_html("<strong>{}</strong> {}", up_to(number), one if number == 1 else many)
    return format_html('<a class="pl-waiting" href="{}">{}</a>', url, label)


def listing(
    title: str,
    *,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    wrong: Sequence[Sequence[object]] = (),
    more: Iterable[tuple[str, str]] = (),
    empty: str = "",
    command: str = "",
    note: object = "",
) -> SafeString:
    """A short table of the newest rows, and of what went wrong lately.

    Args:
        more: URLs and labels of the lists behind it.
        empty: What to say where there is no row, with the `command` that makes one.
    """
    groups = [("Newest", rows), (f"Went wrong in the last {FAILURE_DAYS} days", wrong)]
    context = {
        "title": title,
        "heads": heads,
        "groups": [group for group in groups if group[1]],
        "more": list(more),
        "empty": empty,
        "command": command,
        "note": note,
    }
    return render_to_string("admin/home/listing.html", context)


def number_link(url: str, number: object) -> SafeString:
    """A number that leads to what was counted."""
    return format_html('<a class="pl-count" href="{}">{}</a>', url, number)


def a_few(rows: QuerySet[Model], most: int = MOST_COUNTED) -> int:
    """How many there are, up to `most` + 1: counting all would read all."""
    return rows.order_by().values("pk")[: most + 1].count()


def up_to(number: int) -> str:
    """What `a_few` counted, in words."""
    return f"more than {MOST_COUNTED}" if number > MOST_COUNTED else f"{number}"


def since(hours: int) -> datetime:
    """The full hour so many hours ago: the window of a card, which then is read from sums of hours, and of the lists behind it."""
    return (timezone.now() - timedelta(hours=hours)).replace(minute=0, second=0, microsecond=0)


def percent(share: float | None) -> str:
    """``93 %``; never rounded up to 100, nor down to 0."""
    if share is None:
        return "–"
    rounded = round(100 * share)
    if rounded == 100 and share < 1:
        return "> 99 %"
    return "< 1 %" if rounded == 0 and share > 0 else f"{rounded} %"

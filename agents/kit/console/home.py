"""The console's sidebar, header and first page. The sidebar is the setting `CONSOLE_MENU`; apps add parts of the others with `add_home`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import IntegerField, QuerySet, Subquery
from django.db.models.expressions import BaseExpression, RawSQL
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.models.lease import Leasable
from agents.kit.registry import Table, in_menu

Place = Literal["header", "first", "setup", "waiting", "cards", "charts", "lists"]
PLACES: tuple[Place, ...] = get_args(Place)
FAILURE_DAYS = 7  # of what waits because it failed
MOST_COUNTED = 100  # of what waits: beyond that it is "more than 100"
Questions = Mapping[str, BaseExpression]
Answers = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePart:
    """One part of the first page or of every page's header, for users with `permission`.

    Attributes:
        place: Where it stands: on every page (`header`), or on the first one: what a person must see (`first`), what is missing
            (`setup`), what only a person can do (`waiting`), numbers (`cards`), drawings (`charts`), or newest rows (`lists`);
            `agents.kit.console.home` has a function for each of these.
        order: Smaller numbers come first within a place.
        permission: ``app.codename`` that a user needs to get it.
        asks: A function of the request to what the part needs to know, by name, such as a `CountUpTo`, an `Exists` or a `Subquery` of one
            value. All parts are answered by one statement; parts that ask the same under the same name are answered once.
        render: A function of the request and the answers to HTML; None leaves the part out.
    """

    place: Place
    order: int
    permission: str
    asks: Callable[[HttpRequest], Questions] = lambda request: {}
    render: Callable[[HttpRequest, Answers], SafeString | None]


_home: list[HomePart] = []


def add_home(*parts: HomePart) -> None:
    """Add parts to the first page or the header; call it once, where the app registers its own admin classes."""
    _home.extend(parts)
    _home.sort(key=lambda part: part.order)


def parts_at(place: Place, request: HttpRequest) -> list[SafeString]:
    """Return the rendered parts of a place that the user may see."""
    return _rendered((place,), request)[place]


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the first page (``UNFOLD["DASHBOARD_CALLBACK"]``): rendered parts by place."""
    home = _rendered([place for place in PLACES if place != "header"], request)
    return {**context, "home": home, "has_home": any(home.values())}


def _rendered(places: Collection[Place], request: HttpRequest) -> dict[Place, list[SafeString]]:
    """Return by place the rendered parts that the user may see, after asking what they need to know."""
    parts = [part for part in _home if part.place in places and request.user.has_perm(part.permission)]
    questions: dict[str, BaseExpression] = {}
    for part in parts:
        questions.update(part.asks(request))
    answers = ask(request, questions)
    rendered: dict[Place, list[SafeString]] = {place: [] for place in places}
    for part in parts:
        html = part.render(request, answers)
        if html is not None:
            rendered[part.place].append(html)
    return rendered


def ask(request: HttpRequest, questions: Questions) -> Answers:
    """Return the answers in one statement: they are columns of the user's own row, which is there."""
    if not questions:
        return {}
    columns: Any = questions.values()  # Any, because the stubs know no expressions that are columns
    row = User.objects.filter(username=request.user.get_username()).values_list(*columns).get()
    return dict(zip(questions, row, strict=True))


class CountUpTo(Subquery):
    """How many rows a queryset has, up to `most` + 1: counting all would read all."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()
    empty_result_set_value = 0

    def __init__(self, rows: QuerySet[Any], most: int = MOST_COUNTED) -> None:
        super().__init__(rows.order_by().values("pk")[: most + 1])


def count_of_work(model: type[Leasable], *statuses: str, since: datetime | None = None) -> RawSQL:
    """Return how many rows of a table of work have one of these statuses, made since a moment, up to `MOST_COUNTED` + 1.

    In SQL, because the first page asks this of all tables at once: the ORM takes 10 ms to write it.
    """
    quoted = connection.ops.quote_name
    conditions = f"{quoted('status')} IN ({', '.join(['%s'] * len(statuses))})"
    given: list[Any] = list(statuses)
    if since is not None:
        conditions += f" AND {quoted('created_at')} >= %s"
        given.append(connection.ops.adapt_datetimefield_value(since))
    table = quoted(model._meta.db_table)
    rows = f"SELECT 1 FROM {table} WHERE {conditions} LIMIT {MOST_COUNTED + 1}"  # noqa: S608 (the names are ours)
    return RawSQL(f"SELECT COUNT(*) FROM ({rows}) AS counted", given, IntegerField())  # noqa: S608, S611


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the sidebar (``UNFOLD["SIDEBAR"]``): the pages of `CONSOLE_MENU` and the registered tables that the user may view.

    An entry with `tabs` stands for several tables; it leads to the first one that the user may view. It is made once for a request: the
    theme asks for the sidebar and twice for the tabs, and the header for the breadcrumbs.
    """
    made: list[dict[str, Any]] | None = getattr(request, "console_navigation", None)
    if made is None:
        made = _navigation(request)
        request.console_navigation = made  # type: ignore[attr-defined]
    return made


def _navigation(request: HttpRequest) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = []
    if not admin.site.has_permission(request):  # on the sign-in page
        return groups
    for title, before, after in settings.CONSOLE_MENU:
        entries = [_entry(request, table) for table in in_menu(title)]
        if items := [*_pages(request, before), *filter(None, entries), *_pages(request, after)]:
            groups.append({"title": title, "items": items})
    listed = [item for group in groups for item in group["items"]]
    links = {part["link"] for item in listed for part in (item, *item["tabs"])} - {reverse("admin:index")}
    # A page below another one's address is not that one, too; all are below the first page.
    here = max(filter(request.path.startswith, links), key=len, default=request.path)
    for item in listed:
        for tab in item["tabs"]:
            tab["active"] = tab["link"] == here
        item["active"] = item["link"] == here or any(tab["active"] for tab in item["tabs"])
    return groups


def _pages(request: HttpRequest, pages: list[tuple[str, str, str, str]]) -> list[dict[str, Any]]:
    return [
        {"title": title, "icon": icon, "link": reverse(name), "tabs": []}
        for name, icon, title, permission in pages
        if not permission or request.user.has_perm(permission)
    ]


def _entry(request: HttpRequest, table: Table) -> dict[str, Any] | None:
    tabs = [
        {"title": one.name, "link": display.list_url(one.model), "models": [one.model._meta.label_lower]}
        for one in table.family
        if admin.site.get_model_admin(one.model).has_view_permission(request)
    ]
    return (
        {"title": table.entry or table.name, "icon": table.icon, "link": tabs[0]["link"], "tabs": tabs}
        if tabs
        else None
    )


def tabs(request: HttpRequest) -> list[dict[str, Any]]:
    """The tabs of lists (``UNFOLD["TABS"]``): the tables that share an entry of the sidebar."""

    def shown(tab: dict[str, Any]) -> dict[str, Any]:
        # As a callable: a text would make the theme mark each entry of the sidebar whose tab is part of the page's address.
        return {"title": tab["title"], "link": lambda _request: tab["link"], "active": tab["active"]}

    families = [item["tabs"] for group in navigation(request) for item in group["items"] if len(item["tabs"]) > 1]
    return [
        {"models": [model for tab in family for model in tab["models"]], "items": [shown(tab) for tab in family]}
        for family in families
    ]


def breadcrumbs(request: HttpRequest, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The way to a page as the sidebar shows it: group, entry and tab, then what the theme names below the list.

    Args:
        parts: Those of the theme: app, table and object, or one without a link.
    """
    for group in navigation(request):
        for item in group["items"]:
            if item["active"]:
                here = [tab for tab in item["tabs"] if tab["active"] and tab["title"] != item["title"]]
                titles = [{"title": group["title"]}] if group["title"] else []
                return [*titles, item, *here, *(parts[2:] if "link" in parts[0] else ())]
    return parts[1:] or parts


MOST_HITS = 8  # of each kind
Hit = tuple[str, str, str, str]  # title, what it is, address, icon of Material Symbols
Search = Callable[[HttpRequest, str], Iterable[Hit]]
_searches: list[tuple[str, Search]] = []


def add_search(permission: str, find: Search) -> None:
    """Let the search of the console (Ctrl+K) find rows, for users with `permission`; call it where the app registers its admin classes.

    Args:
        find: A function of the request and what was typed; it reads at most `MOST_HITS` rows.
    """
    _searches.append((permission, find))


def search(request: HttpRequest, typed: str) -> list[Hit]:
    """The pages of the sidebar and the rows that `typed` (any case) is part of, a few of each kind, as the user may view them."""
    hits = []
    for group in navigation(request):
        for item in group["items"]:
            for part in item["tabs"] or [item]:
                names = (group["title"], item["title"] if part["title"] != item["title"] else "")
                way = " › ".join(filter(None, names))
                if typed.lower() in f"{way} {part['title']}".lower():
                    hits.append((part["title"], way or "page", part["link"], item["icon"]))
    found = [find(request, typed) for permission, find in _searches if request.user.has_perm(permission)]
    return [*hits[:MOST_HITS], *(hit for some in found for hit in some)]


def card(
    title: str,
    *,
    figure: object,
    unit: str = "",
    lines: Iterable[object] = (),
    tone: display.Tone = "plain",
) -> SafeString:
    """One number with its unit, and sentences below it; `tone` colours its edge.

    Args:
        figure: A number, best as a link to the list behind it (`number_link`).
        lines: HTML or texts; empty ones are left out.
    """
    shown = [line for line in lines if line not in ("", None)]
    context = {"title": title, "figure": figure, "unit": unit, "lines": shown, "tone": tone}
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
    title: str, *, heads: Sequence[str], rows: Sequence[Sequence[object]], more: Iterable[tuple[str, str]] = ()
) -> SafeString:
    """A short table of the newest rows; `more` are URLs and labels of the lists behind it."""
    return render_to_string(
        "admin/home/listing.html", {"title": title, "heads": heads, "rows": rows, "more": list(more)}
    )


def number_link(url: str, number: object) -> SafeString:
    """A number that leads to what was counted."""
    return format_html('<a class="pl-count" href="{}">{}</a>', url, number)


def up_to(number: int) -> str:
    """Return what `CountUpTo` counted, in words."""
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

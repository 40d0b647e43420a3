"""The console's sidebar, header and first page. The sidebar is the setting `CONSOLE_MENU`; apps add parts of the others with `add_home`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, get_args

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
from agents.kit.registry import Table, below, in_menu, tabs_of

HomePlace = Literal["header", "first", "setup", "waiting", "cards"]
PLACES: tuple[HomePlace, ...] = get_args(HomePlace)
FAILURE_DAYS = 7  # work that failed is listed for so long
MOST_COUNTED = 100  # of what waits: beyond that it is "more than 100"
Questions = Mapping[str, BaseExpression]
Answers = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePart:
    """One part of the first page or of every page's header, for users with `permission`.

    Attributes:
        place: Where it stands: on every page (`header`), or on the first one: what a person must see (`first`), what is missing
            (`setup`), what only a person can do (`waiting`), or numbers (`cards`); `agents.kit.console.home` has a function for each of
            the last three.
        order: Smaller numbers come first within a place.
        permission: ``app.codename`` that a user needs to get it.
        asks: A function of the request to what the part needs to know, by name: expressions such as a `CountUpTo`, an `Exists` or a
            `Subquery` of one value. One statement answers all parts; parts that ask the same under the same name are answered once.
        render: A function of the request and the answers to HTML; None leaves the part out.
    """

    place: HomePlace
    order: int
    permission: str
    asks: Callable[[HttpRequest], Questions] = lambda request: {}
    render: Callable[[HttpRequest, Answers], SafeString | None]


_home_parts: list[HomePart] = []


def add_home(*parts: HomePart) -> None:
    """Add parts to the first page or the header; call it once, where the app registers its own admin classes."""
    _home_parts.extend(parts)
    _home_parts.sort(key=lambda part: part.order)


def parts_at(place: HomePlace, request: HttpRequest) -> list[SafeString]:
    """Return the rendered parts of a place that the user may see."""
    return _rendered((place,), request)[place]


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the first page (``UNFOLD["DASHBOARD_CALLBACK"]``): rendered parts by place."""
    home = _rendered([place for place in PLACES if place != "header"], request)
    return {**context, "home": home, "has_home": any(home.values())}


def _rendered(places: Collection[HomePlace], request: HttpRequest) -> dict[HomePlace, list[SafeString]]:
    """Return by place the rendered parts that the user may see, smaller `order` first; one statement asks what all of them need."""
    parts = [part for part in _home_parts if part.place in places and request.user.has_perm(part.permission)]
    questions: dict[str, BaseExpression] = {}
    for part in parts:
        questions.update(part.asks(request))
    answers = ask(request, questions)
    rendered: dict[HomePlace, list[SafeString]] = {place: [] for place in places}
    for part in parts:
        html = part.render(request, answers)
        if html is not None:
            rendered[part.place].append(html)
    return rendered


def ask(request: HttpRequest, questions: Questions) -> Answers:
    """Return the answers by name, in one statement: the questions are columns of the user's own row, which is always there."""
    if not questions:
        return {}
    columns: Any = questions.values()  # Any, because the stubs know no expressions that are columns
    row = User.objects.filter(username=request.user.get_username()).values_list(*columns).get()
    return dict(zip(questions, row, strict=True))


class CountUpTo(Subquery):
    """The number of rows of a queryset, up to `MOST_COUNTED` + 1: counting all would read all."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()
    empty_result_set_value = 0

    def __init__(self, rows: QuerySet[Any]) -> None:
        super().__init__(rows.order_by().values("pk")[: MOST_COUNTED + 1])


def count_of_work(model: type[Leasable], *statuses: str, since: datetime | None = None) -> RawSQL:
    """Return an expression for how many rows of a table of work have one of these statuses, up to `MOST_COUNTED` + 1.

    Only rows made `since` a moment count; None: of any time.

    In SQL, because the first page asks this of all tables at once: the ORM takes 10 ms to write it.
    """
    quoted = connection.ops.quote_name
    conditions = f"{quoted('status')} IN ({', '.join(['%s'] * len(statuses))})"
    values: list[Any] = list(statuses)
    if since is not None:
        conditions += f" AND {quoted('created_at')} >= %s"
        values.append(connection.ops.adapt_datetimefield_value(since))
    table = quoted(model._meta.db_table)
    rows = f"SELECT 1 FROM {table} WHERE {conditions} LIMIT {MOST_COUNTED + 1}"  # noqa: S608 (the names are ours)
    return RawSQL(f"SELECT COUNT(*) FROM ({rows}) AS counted", values, IntegerField())  # noqa: S608, S611


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the sidebar: the pages of `CONSOLE_MENU` and the registered tables that the user may view.

    An entry leads to the first of its `tabs` that the user may view; the lists `below` a tab are opened from its rows. It is made once
    for a request: the theme asks for the sidebar and the tabs, and the header for the breadcrumbs.
    """
    groups: list[dict[str, Any]] | None = getattr(request, "console_navigation", None)
    if groups is None:
        groups = _sidebar_groups(request)
        _mark_active(groups, request.path)
        request.console_navigation = groups  # type: ignore[attr-defined]
    return groups


def _sidebar_groups(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the groups of the sidebar that have an entry for the user; none on the sign-in page."""
    groups: list[dict[str, Any]] = []
    if not admin.site.has_permission(request):
        return groups
    for title, pages_before, pages_after in settings.CONSOLE_MENU:
        entries = [_page_entry(request, *page) for page in pages_before]
        entries += [_table_entry(request, table) for table in in_menu(title)]
        entries += [_page_entry(request, *page) for page in pages_after]
        items = [entry for entry in entries if entry["tabs"]]
        for item in items:
            item["link"] = item["tabs"][0]["link"]
            item["has_permission"] = True
        if items:
            groups.append({"title": title, "items": items})
    return groups


def _page_entry(request: HttpRequest, url_name: str, icon: str, title: str, permission: str) -> dict[str, Any]:
    """Return the entry of a page that belongs to no table, without the tabs that the user may not view."""
    tabs = _page_tab(request, url_name, title, permission) + _further_tabs(request, url_name)
    return {"key": url_name, "title": title, "icon": icon, "tabs": tabs}


def _table_entry(request: HttpRequest, table: Table) -> dict[str, Any]:
    """Return the entry of a table, without the tabs that the user may not view."""
    label = table.model._meta.label
    tabs = _table_tab(request, table) + _further_tabs(request, label)
    return {"key": label, "title": table.entry or table.name, "icon": table.icon, "tabs": tabs}


def _further_tabs(request: HttpRequest, entry: str) -> list[dict[str, Any]]:
    """Return the tables and then the pages that are further tabs of an entry, as far as the user may view them."""
    further = []
    for table in tabs_of(entry):
        further += _table_tab(request, table)
    for tab_of, url_name, title, permission in settings.CONSOLE_TABS:
        if tab_of == entry:
            further += _page_tab(request, url_name, title, permission)
    return further


def _page_tab(request: HttpRequest, url_name: str, title: str, permission: str) -> list[dict[str, Any]]:
    """Return the one tab of a page; none where the user may not open it."""
    if permission and not request.user.has_perm(permission):
        return []
    return [{"title": title, "link": reverse(url_name), "models": [], "below": []}]


def _table_tab(request: HttpRequest, table: Table) -> list[dict[str, Any]]:
    """Return the one tab of a table, with the lists below it; none where the user may not view the table."""
    if not admin.site.get_model_admin(table.model).has_view_permission(request):
        return []
    tab = {"title": table.name, "link": display.list_url(table.model), "models": [table.model._meta.label_lower]}
    lists_below: list[dict[str, Any]] = []
    for other in below(table):
        lists_below += _table_tab(request, other)
    return [{**tab, "below": lists_below}]


def _mark_active(groups: list[dict[str, Any]], path: str) -> None:
    """Set `active` of each entry, tab and list below a tab: true for the page with this address, and for what it is in.

    A page below another one's address belongs to the longer address alone. All pages are below the first page, which is therefore left out.
    """
    tabs = [tab for group in groups for item in group["items"] for tab in item["tabs"]]
    links = set()
    for tab in tabs:
        links.add(tab["link"])
        links.update(listed["link"] for listed in tab["below"])
    links.discard(reverse("admin:index"))
    # On the first page no other link fits, so that its own address is compared.
    here = max((link for link in links if path.startswith(link)), key=len, default=path)
    for tab in tabs:
        for listed in tab["below"]:
            listed["active"] = listed["link"] == here
        tab["active"] = tab["link"] == here or any(listed["active"] for listed in tab["below"])
    for group in groups:
        for item in group["items"]:
            item["active"] = any(tab["active"] for tab in item["tabs"])


def tabs(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the tabs of lists: what shares an entry of the sidebar, where the user may view several.

    The templates of pages that are tabs name the entry: ``{% tab_list "admin:help" %}``.
    """
    families = []
    for group in navigation(request):
        for item in group["items"]:
            if len(item["tabs"]) > 1:
                families.append({"page": item["key"], "models": _models_of(item), "items": _tab_items(item)})
    return families


def _models_of(item: dict[str, Any]) -> list[str]:
    """Return the models on whose lists the tabs of an entry are shown."""
    models = []
    for tab in item["tabs"]:
        models += tab["models"]
        for listed in tab["below"]:
            models += listed["models"]
    return models


def _tab_items(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tabs of an entry as the theme takes them."""
    return [{**tab, "has_permission": True} for tab in item["tabs"]]


def breadcrumbs(request: HttpRequest, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the way to a page as the sidebar shows it: group, entry, tab and list below it, then what the theme names below the list.

    Args:
        parts: Those of the theme: app, table and object, or one without a link.

    Returns:
        A mapping with ``title`` and, where it can be opened, ``link`` for each. For a page that is not in the sidebar the theme's
        parts, without the app where there are others.
    """
    for group in navigation(request):
        for item in group["items"]:
            if not item["active"]:
                continue
            crumbs = [{"title": group["title"]}] if group["title"] else []
            crumbs.append(item)
            for tab in item["tabs"]:
                if tab["active"] and tab["title"] != item["title"]:
                    crumbs.append(tab)
                crumbs += [listed for listed in tab["below"] if listed["active"]]
            if "link" in parts[0]:  # else the one part is the page, which the sidebar has already
                crumbs += parts[2:]  # app and table are in the sidebar
            return crumbs
    return parts[1:] or parts


MOST_HITS = 8  # of each kind


class Hit(NamedTuple):
    """A page or row that the search found.

    Attributes:
        description: What it is.
        icon: Of Material Symbols.
    """

    title: str
    description: str
    link: str
    icon: str


Search = Callable[[HttpRequest, str], Iterable[Hit]]
_searches: list[tuple[str, Search]] = []  # the permission that each needs, and the search


def add_search(permission: str, find: Search) -> None:
    """Let the search of the console (Ctrl+K) find rows, for users with `permission`; call it where the app registers its admin classes.

    Args:
        find: A function of the request and what was typed; it reads at most `MOST_HITS` rows.
    """
    _searches.append((permission, find))


def search(request: HttpRequest, typed: str) -> list[Hit]:
    """Return the pages of the sidebar and the rows that `typed` (any case) is part of, a few of each kind, as the user may view them."""
    hits = _pages_like(request, typed)[:MOST_HITS]
    for permission, find in _searches:
        if request.user.has_perm(permission):
            hits += find(request, typed)
    return hits


def _pages_like(request: HttpRequest, typed: str) -> list[Hit]:
    """Return the pages of the sidebar with this text (any case) in their title, or in the titles on the way to them."""
    hits = []
    for group in navigation(request):
        for item in group["items"]:
            for tab in item["tabs"]:
                titles = [group["title"], item["title"]]
                hits.append(_page_hit(titles, tab, item["icon"]))
                hits += [_page_hit([*titles, tab["title"]], listed, item["icon"]) for listed in tab["below"]]
    return [hit for hit in hits if typed.lower() in f"{hit.description} {hit.title}".lower()]


def _page_hit(path: Iterable[str], page: dict[str, Any], icon: str) -> Hit:
    """Return a page of the sidebar as a hit; `path` are the titles on the way to it, where a title that says the same is left out."""
    titles = []
    for title in path:
        if title and title != page["title"] and title not in titles:
            titles.append(title)
    return Hit(page["title"], " › ".join(titles) or "page", page["link"], icon)


def card(
    title: str,
    *,
    figure: object,
    unit: str = "",
    lines: Iterable[object] = (),
    tone: display.Tone = "plain",
) -> SafeString:
    """Return a card of the first page: one number with its unit, and sentences below it; `tone` colours its edge.

    Args:
        figure: A number, best as a link to the list behind it (`number_link`).
        lines: HTML or texts; empty ones are left out.
    """
    shown_lines = [line for line in lines if line not in ("", None)]
    context = {"title": title, "figure": figure, "unit": unit, "lines": shown_lines, "tone": tone}
    return render_to_string("admin/home/card.html", context)


def step(title: str, text: object, *, command: str = "", url: str = "", label: str = "") -> SafeString:
    """Return a step of the set-up: something that is missing, with the command or the page that provides it."""
    context = {"title": title, "text": text, "command": command, "url": url, "label": label}
    return render_to_string("admin/home/step.html", context)


def waiting_link(number: int, one: str, many: str, url: str) -> SafeString | None:
    """Return a link to what only a person can do, such as ``3 drift alerts``; None when there is none.

    Args:
        one, many: What it is, for a number of 1 and for others.
    """
    if not number:
        return None
    label = format_html("<strong>{}</strong> {}", up_to(number), one if number == 1 else many)
    return format_html('<a class="pl-waiting" href="{}">{}</a>', url, label)


def number_link(url: str, number: object) -> SafeString:
    """Return a number that leads to what was counted."""
    return format_html('<a class="pl-count" href="{}">{}</a>', url, number)


def up_to(number: int) -> str:
    """Return what `CountUpTo` counted, in words."""
    return f"more than {MOST_COUNTED}" if number > MOST_COUNTED else f"{number}"


def since(hours: int) -> datetime:
    """Return the full hour so many hours ago, from which cards and the lists behind them count.

    A full hour, because the sums that cards are read from are those of full hours.
    """
    return (timezone.now() - timedelta(hours=hours)).replace(minute=0, second=0, microsecond=0)


def percent(share: float | None) -> str:
    """Return a share of 0 to 1 as ``93 %``, never rounded up to 100 nor down to 0; a dash for None."""
    if share is None:
        return "–"
    rounded = round(100 * share)
    if rounded == 100 and share < 1:
        return "> 99 %"
    if rounded == 0 and share > 0:
        return "< 1 %"
    return f"{rounded} %"

"""The review queue: one page of everything that waits for a decision, worked by keyboard. Apps add their part with `add_review`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.expressions import BaseExpression
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.filters import number_in
from agents.kit.console.home import MOST_COUNTED, Answers, HomePart, Questions, add_home, waiting
from agents.kit.console.site import add_pages, has_nul_character
from agents.kit.models import ReviewItem

ASSIGNING = "kit.change_reviewitem"
AROUND = 4  # items listed before and after the open one
MOST_PEOPLE = 200  # to whom an item can be assigned
MOST_MINE = 1_000  # newest assignments that are looked through


class Waits(NamedTuple):
    """Something that waits for a decision.

    Attributes:
        key: Its name among those of its kind.
        at: Since when; None = not known.
        agent: Slug of the agent it is about; empty = none.
    """

    key: str
    at: datetime | None = None
    agent: str = ""


class Decision(NamedTuple):
    """A button of the queue.

    Attributes:
        name: In the form. `label`: on the button. `key`: the letter that presses it.
        done: What it did, after the item's line: ``is dismissed``.
        decide: Carries it out for the request, the row and a note; a `ValueError` says why not, e.g. that it is decided already.
        undo: Takes it back.
        main: Whether it is what most items need.
    """

    name: str
    label: str
    key: str
    done: str
    decide: Callable[[HttpRequest, Any, str], object]
    undo: Callable[[HttpRequest, Any], object]
    main: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewKind:
    """One kind of what waits, for users with all `permissions`.

    Attributes:
        name: In addresses, at most 32 characters. `title`: on the page. `one`, `many`: on the first page.
        order: Smaller numbers come first.
        fills: What makes such items; said where there are none.
        waiting: The newest at most `MOST_COUNTED` + 1, from the request, the slug of an agent (empty = all) and keys (None = all).
        count: How many wait, from the request, as an expression such as `CountUpTo`; None: the first page counts what `waiting` gives.
        counts_exactly: False: fewer than `count` says may wait, and the first page counts what `waiting` gives unless it is 0.
        find: Rows by key, also of those that are decided; in as many queries for many as for one.
        line: A row in a line, without the words of a message. `show`: all that is needed to decide.
        decisions: What can be decided. `url`: where more of it is; by default the row's own page.
        note: What a note with the decision is for; empty = none is asked for.
        seen: Digest of what a person sees of a row that others may change; a different one refuses the decision.
    """

    name: str
    title: str
    one: str
    many: str
    order: int
    permissions: tuple[str, ...]
    fills: str
    waiting: Callable[[HttpRequest, str, Collection[str] | None], Iterable[Waits]]
    find: Callable[[Collection[str]], Mapping[str, Any]]
    line: Callable[[Any], SafeString]
    show: Callable[[HttpRequest, Any], SafeString]
    decisions: tuple[Decision, ...]
    count: Callable[[HttpRequest], BaseExpression] | None = None
    counts_exactly: bool = True
    url: Callable[[Any], str] = display.page_url
    note: str = ""
    seen: Callable[[Any], str] = lambda row: ""


class Named(NamedTuple):
    """An agent as the queue shows it.

    Attributes:
        name: In a list. `chip`: beside the open item.
    """

    name: str
    chip: SafeString


_kinds: list[ReviewKind] = []
_names: list[Callable[[Collection[str]], Mapping[str, Named]]] = []


def name_agents(find: Callable[[Collection[str]], Mapping[str, Named]]) -> None:
    """Show agents by name, where `find` gives those of some slugs in their order in a list; else they are shown by slug."""
    _names.append(find)


def _agents(slugs: Collection[str]) -> dict[str, Named]:
    return {slug: agent for find in _names for slug, agent in find(slugs).items()}


def add_review(kind: ReviewKind) -> None:
    """Add a part to the queue, and its count to the first page; call it where the app registers its own admin classes."""
    _kinds.append(kind)
    _kinds.sort(key=lambda one: one.order)
    add_home(
        HomePart(
            place="waiting",
            order=kind.order,
            permission=kind.permissions[0],
            asks=partial(_asks, kind),
            render=partial(_on_home, kind),
        )
    )


def _asks(kind: ReviewKind, request: HttpRequest) -> Questions:
    if kind.count is None or not request.user.has_perms(kind.permissions):
        return {}
    return {f"review {kind.name}": kind.count(request)}


def _on_home(kind: ReviewKind, request: HttpRequest, answers: Answers) -> SafeString | None:
    if not request.user.has_perms(kind.permissions):
        return None
    return waiting(_number(kind, request, answers), kind.one, kind.many, review_url(kind=kind.name))


def _number(kind: ReviewKind, request: HttpRequest, answers: Answers) -> int:
    if kind.count is not None:
        number: int = answers[f"review {kind.name}"]
        if kind.counts_exactly or number == 0:
            return number
    return len(list(kind.waiting(request, "", None)))


def review_url(**query: object) -> str:
    """Return the address of the queue, narrowed by ``kind``, ``agent`` or ``mine``, at an ``item``."""
    url, given = reverse("admin:review"), {name: value for name, value in query.items() if value not in ("", None)}
    return f"{url}?{urlencode(given)}" if given else url


def numbers(keys: Collection[str]) -> list[int]:
    """Return the keys that are numbers of rows."""
    return [int(key) for key in keys if key.isascii() and key.isdigit() and len(key) < 19]


def newest(
    rows: QuerySet[Any], agent: str, keys: Collection[str] | None, *, at: str = "created_at", of: str = "agent__slug"
) -> list[Waits]:
    """Return those of ordered `rows` that `ReviewKind.waiting` is asked for; `at` and `of` are the columns of their time and agent."""
    if agent:
        rows = rows.filter(**{of: agent})
    if keys is not None:
        rows = rows.filter(pk__in=numbers(keys))
    shown = rows.values_list("pk", at, of)[: MOST_COUNTED + 1]
    return [Waits(str(pk), moment, slug or "") for pk, moment, slug in shown]


def by_key(rows: QuerySet[Any], keys: Collection[str]) -> dict[str, Any]:
    """Return the rows with these primary keys, for `ReviewKind.find`."""
    return {str(row.pk): row for row in rows.filter(pk__in=numbers(keys))}


@dataclass(frozen=True, slots=True)
class _Item:
    kind: ReviewKind
    waits: Waits

    @property
    def id(self) -> str:
        return f"{self.kind.name}:{self.waits.key}"


def _filters(request: HttpRequest) -> dict[str, str]:
    given = {name: request.GET.get(name, "")[:200] for name in ("kind", "agent", "mine")}
    return {name: value for name, value in given.items() if value}


def _queue(request: HttpRequest, kinds: Iterable[ReviewKind], filters: Mapping[str, str]) -> dict[str, list[_Item]]:
    """What waits by kind, as `agent` and `mine` leave it: a query or two for each kind."""
    mine: dict[str, list[str]] | None = None
    if "mine" in filters:
        mine = {}
        rows = ReviewItem.objects.filter(assigned_to=request.user.pk).order_by("-pk").values_list("kind", "key")
        for name, key in rows[:MOST_MINE]:
            mine.setdefault(name, []).append(key)
    queue = {}
    for kind in kinds:
        keys = None if mine is None else mine.get(kind.name, [])
        waits = kind.waiting(request, filters.get("agent", ""), keys) if keys is None or keys else ()
        queue[kind.name] = [_Item(kind, one) for one in waits][: MOST_COUNTED + 1]
    return queue


def review_page(request: HttpRequest) -> HttpResponse:
    """Show one item with its decisions, its neighbours beside it; POST decides, takes back or assigns."""
    kinds = {kind.name: kind for kind in _kinds if request.user.has_perms(kind.permissions)}
    if not kinds:
        raise PermissionDenied
    if has_nul_character(request):
        return HttpResponseRedirect(review_url())
    filters = _filters(request)
    if request.method == "POST":
        return _act(request, kinds, filters)
    queue = _queue(request, kinds.values(), filters)
    chosen = {name: of_kind for name, of_kind in queue.items() if filters.get("kind", name) == name}
    items = [item for of_kind in chosen.values() for item in of_kind[:MOST_COUNTED]]
    wanted = request.GET.get("item", "")
    place = next((n for n, item in enumerate(items) if item.id == wanted), None)
    if place is None:  # it was decided; what follows it has moved to its place
        place = max(0, min(number_in(request.GET, "place") or 0, len(items) - 1))
    context = {
        "title": "To review",
        **_filter_choices(kinds, queue, filters),
        "filters": filters,
        "filtered": bool(filters),
        "done": _last_decision(request, kinds),
        "kinds": list(kinds.values()),
        "all_url": review_url(),
        "of": _count(chosen.values()),
        **(_open(request, items, place, filters) if items else {}),
    }
    request.current_app = admin.site.name
    return TemplateResponse(request, "admin/review/page.html", {**admin.site.each_context(request), **context})


def _open(request: HttpRequest, items: list[_Item], place: int, filters: Mapping[str, str]) -> dict[str, Any]:
    """The open item and those around it."""
    kinds = {item.kind.name: item.kind for item in items}
    start = max(0, min(place - AROUND, len(items) - 2 * AROUND - 1))
    shown, current = items[start : start + 2 * AROUND + 1], items[place]
    keys: dict[str, list[str]] = {}
    for item in shown:
        keys.setdefault(item.kind.name, []).append(item.waits.key)
    rows = {name: kinds[name].find(some) for name, some in keys.items()}
    notes = ReviewItem.objects.filter(kind__in=keys, key__in=[key for some in keys.values() for key in some])
    assigned = {
        f"{kind}:{key}": name
        for kind, key, name in notes.exclude(assigned_to=None).values_list("kind", "key", "assigned_to__username")
    }
    agents = _agents({item.waits.agent for item in shown})

    def url(n: int) -> str:
        return review_url(**filters, item=items[n].id, place=n) if 0 <= n < len(items) else ""

    row = rows[current.kind.name].get(current.waits.key)
    return {
        "listed": [
            {
                "url": url(start + n),
                "line": item.kind.line(line_of) if (line_of := rows[item.kind.name].get(item.waits.key)) else "gone",
                "title": item.kind.title,
                "agent": agents[item.waits.agent].name if item.waits.agent in agents else item.waits.agent,
                "assigned": assigned.get(item.id, ""),
                "current": item is current,
            }
            for n, item in enumerate(shown)
        ],
        "first": start + 1,
        "item": current,
        "agent_of": agents.get(current.waits.agent),
        **(_shown(request, current.kind, row) if row is not None else {}),
        "place": place,
        "number": place + 1,
        "next": items[place + 1].id if place + 1 < len(items) else items[place - 1].id if place else "",
        "next_url": url(place + 1),
        "previous_url": url(place - 1),
        "assignee": assigned.get(current.id, ""),
        "people": people() if request.user.has_perm(ASSIGNING) else [],
    }


def _shown(request: HttpRequest, kind: ReviewKind, row: Any) -> dict[str, str]:
    return {"body": kind.show(request, row), "line": kind.line(row), "seen": kind.seen(row), "url": kind.url(row)}


def _count(kinds: Iterable[Collection[_Item]]) -> str:
    """How many these are, with a plus where there are more of a kind than are counted."""
    numbers = [len(items) for items in kinds]
    return f"{sum(min(number, MOST_COUNTED) for number in numbers):,}{'+' if max(numbers, default=0) > MOST_COUNTED else ''}"


def people() -> list[tuple[int, str]]:
    """Return whom an item can be assigned to: keys and names."""
    users = User.objects.filter(is_active=True, is_staff=True).order_by("username")
    return list(users.values_list("pk", "username")[:MOST_PEOPLE])


def _filter_choices(
    kinds: Mapping[str, ReviewKind], queue: Mapping[str, list[_Item]], filters: Mapping[str, str]
) -> dict[str, Any]:
    """The tabs with their counts, and the agents that something is about."""
    rest, chosen = {name: value for name, value in filters.items() if name != "kind"}, filters.get("kind", "")
    tabs = [("All", _count(queue.values()), "")]
    tabs += [(kind.title, _count([queue[name]]), name) for name, kind in kinds.items() if queue[name] or name == chosen]
    slugs = {item.waits.agent for items in queue.values() for item in items} | {filters.get("agent", "")} - {""}
    return {
        "tabs": [(title, count, review_url(**rest, kind=name), name == chosen) for title, count, name in tabs],
        "agents": [(slug, agent.name) for slug, agent in _agents(slugs).items()],
    }


def _last_decision(request: HttpRequest, kinds: Mapping[str, ReviewKind]) -> dict[str, Any] | None:
    """What was decided last, to be undone."""
    name, _, key = request.GET.get("done", "").partition(":")
    kind = kinds.get(name)
    decision = _decision(kind, request.GET.get("did", "")) if kind else None
    row = kind.find([key]).get(key) if kind and decision else None
    if kind is None or row is None:
        return None
    return {"kind": kind, "key": key, "decision": decision, "line": kind.line(row), "url": kind.url(row)}


def _decision(kind: ReviewKind, name: str) -> Decision | None:
    return next((decision for decision in kind.decisions if decision.name == name), None)


def _act(request: HttpRequest, kinds: Mapping[str, ReviewKind], filters: dict[str, str]) -> HttpResponse:
    """Carry out what a form of the page asks for, and go on at the next item."""
    given = request.POST
    key, place = given.get("key", "")[:300], number_in(given, "place") or 0
    here = {**filters, "item": f"{given.get('kind')}:{key}", "place": place}
    on = {**filters, "item": given.get("next", ""), "place": place}
    kind = kinds.get(given.get("kind", ""))
    row = kind.find([key]).get(key) if kind else None
    if kind is None or row is None:
        messages.warning(request, "That item is gone, or was changed meanwhile.")
        return HttpResponseRedirect(review_url(**on))
    if "assign" in given:
        assign(request, kind.name, key)
        return HttpResponseRedirect(review_url(**here))
    is_undo = "undo" in given
    decision = _decision(kind, given.get("undo" if is_undo else "decide", ""))
    try:
        if decision is None:
            raise ValueError(f"allowed: {', '.join(one.label for one in kind.decisions)}")
        if is_undo:
            decision.undo(request, row)
            messages.success(
                request, format_html("{}: {} is taken back; it waits again.", kind.line(row), decision.label)
            )
            return HttpResponseRedirect(review_url(**here))
        if kind.seen(row) != given.get("seen", ""):
            raise ValueError("It was changed since the page was opened. Look at it again.")
        decision.decide(request, row, given.get("note", "").replace("\x00", "").strip()[:1000])
    except ValueError as problem:
        messages.warning(request, f"Nothing was changed: {problem}")
        return HttpResponseRedirect(review_url(**here))
    return HttpResponseRedirect(review_url(**on, done=f"{kind.name}:{key}", did=decision.name))


def assign(request: HttpRequest, kind: str, key: str) -> None:
    """Assign an item to the person whose key is in ``assign`` of the form; empty = to nobody. Says what was done."""
    if not request.user.has_perm(ASSIGNING):
        raise PermissionDenied
    given = request.POST.get("assign", "")
    number = number_in(request.POST, "assign")
    person = User.objects.filter(pk=number, is_active=True, is_staff=True).first() if number is not None else None
    if given and person is None:
        messages.error(request, f"assigned to {given[:20]!r}: allowed: an active user of the console")
        return
    ReviewItem.objects.update_or_create(kind=kind, key=key, defaults={"assigned_to": person})
    messages.success(request, f"Assigned to {person.get_username()}." if person else "Assigned to nobody.")


def _urls() -> list[URLPattern]:
    return [path("review/", admin.site.admin_view(review_page), name="review")]


add_pages(_urls)

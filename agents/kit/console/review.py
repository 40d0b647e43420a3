"""The review queue: one page of everything that waits for a decision, worked by keyboard. Apps add their part with `add_review`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.filters import number_in
from agents.kit.console.home import MOST_COUNTED, Answers, HomePart, Questions, add_home, waiting_link
from agents.kit.console.site import add_pages, console_response, has_nul_character
from agents.kit.models import ReviewItem

ASSIGNING = "kit.change_reviewitem"
AROUND = 4  # items listed before and after the open one
MOST_PEOPLE = 200  # to whom an item can be assigned
MOST_MINE = 1_000  # newest assignments that are looked through


class Waits(NamedTuple):
    """An item that waits for a decision.

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
        label_for: What the button says for a row, where that differs; empty = the decision is not offered for it.
    """

    name: str
    label: str
    key: str
    done: str
    decide: Callable[[HttpRequest, Any, str], object]
    undo: Callable[[HttpRequest, Any], object]
    main: bool = False
    label_for: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewKind:
    """A kind of items that wait, for users with all `permissions`.

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
        fields: Inputs of a row that decisions read from the form, as HTML behind the last decision's button.
        seen: Digest of what a person sees of a row that others may change: a decision is refused where it is not that of the page.
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
    fields: Callable[[Any], SafeString] = lambda row: SafeString("")
    seen: Callable[[Any], str] = lambda row: ""


class Named(NamedTuple):
    """An agent as the queue shows it.

    Attributes:
        name: In a list. `chip`: beside the open item.
    """

    name: str
    chip: SafeString


_kinds: list[ReviewKind] = []
_agent_finders: list[Callable[[Collection[str]], Mapping[str, Named]]] = []


def name_agents(find: Callable[[Collection[str]], Mapping[str, Named]]) -> None:
    """Show agents by name, where `find` gives those of some slugs in their order in a list; else they are shown by slug."""
    _agent_finders.append(find)


def _named_agents(slugs: Collection[str]) -> dict[str, Named]:
    """Return agents by slug, in their order in a list."""
    agents: dict[str, Named] = {}
    for find in _agent_finders:
        agents.update(find(slugs))
    return agents


def add_review(kind: ReviewKind) -> None:
    """Add a part to the queue, and its count to the first page; call it where the app registers its own admin classes."""
    _kinds.append(kind)
    _kinds.sort(key=lambda added: added.order)
    add_home(
        HomePart(
            place="waiting",
            order=kind.order,
            permission=kind.permissions[0],
            asks=partial(_ask_count, kind),
            render=partial(_render_count, kind),
        )
    )


def _ask_count(kind: ReviewKind, request: HttpRequest) -> Questions:
    """Ask for the first page how many items of a kind wait."""
    if kind.count is None or not request.user.has_perms(kind.permissions):
        return {}
    return {f"review {kind.name}": kind.count(request)}


def _render_count(kind: ReviewKind, request: HttpRequest, answers: Answers) -> SafeString | None:
    """Return the line of the first page that says how many items of a kind wait; None where there are none for this user."""
    if not request.user.has_perms(kind.permissions):
        return None
    return waiting_link(_number_waiting(kind, request, answers), kind.one, kind.many, review_url(kind=kind.name))


def _number_waiting(kind: ReviewKind, request: HttpRequest, answers: Answers) -> int:
    """Return how many items of a kind wait: as the database counted them, else the length of what `waiting` gives."""
    if kind.count is not None:
        counted: int = answers[f"review {kind.name}"]
        if kind.counts_exactly or counted == 0:
            return counted
    any_agent = ""
    all_keys = None
    return len(list(kind.waiting(request, any_agent, all_keys)))


def review_url(**query: object) -> str:
    """Return the address of the queue, narrowed by ``kind``, ``agent`` or ``mine``, at an ``item``."""
    url = reverse("admin:review")
    parameters = {name: value for name, value in query.items() if value not in ("", None)}
    return f"{url}?{urlencode(parameters)}" if parameters else url


def numbers(keys: Collection[str]) -> list[int]:
    """Return the keys that can be primary keys of rows, as numbers; others, which an address may hold, are left out."""
    return [int(key) for key in keys if key.isascii() and key.isdigit() and len(key) < 19]


def newest(
    rows: QuerySet[Any],
    agent: str,
    keys: Collection[str] | None,
    *,
    at: str = "created_at",
    agent_slug: str = "agent__slug",
) -> list[Waits]:
    """Return the items that `ReviewKind.waiting` is asked for, the first `MOST_COUNTED` + 1 of `rows` that fit.

    Args:
        rows: In the order of the queue.
        agent: Slug; only items about it (empty = all). `keys`: only these (None = all).
        at, agent_slug: The columns of an item's time and of its agent.
    """
    if agent:
        rows = rows.filter(**{agent_slug: agent})
    if keys is not None:
        rows = rows.filter(pk__in=numbers(keys))
    columns = rows.values_list("pk", at, agent_slug)[: MOST_COUNTED + 1]
    return [Waits(str(pk), moment, slug or "") for pk, moment, slug in columns]


def by_key(rows: QuerySet[Any], keys: Collection[str]) -> dict[str, Any]:
    """Return the rows with these primary keys, for `ReviewKind.find`."""
    return {str(row.pk): row for row in rows.filter(pk__in=numbers(keys))}


@dataclass(frozen=True, slots=True)
class _Item:
    """An item of the queue with its kind."""

    kind: ReviewKind
    waits: Waits

    @property
    def id(self) -> str:
        return f"{self.kind.name}:{self.waits.key}"


Queue = dict[str, list[_Item]]  # by the name of the kind


def _filters_of(request: HttpRequest) -> dict[str, str]:
    """Return the filters of the address that are set."""
    filters = {}
    for name in ("kind", "agent", "mine"):
        value = request.GET.get(name, "")[:200]
        if value:
            filters[name] = value
    return filters


def _read_queue(request: HttpRequest, kinds: Iterable[ReviewKind], filters: Mapping[str, str]) -> Queue:
    """Return the items that wait, as the filters `agent` and `mine` leave them, at most `MOST_COUNTED` + 1 of a kind.

    The filter `kind` is not applied: the tabs count all kinds. It takes a query or two for each kind.
    """
    assigned_to_me = _keys_assigned_to(request) if "mine" in filters else None
    queue: Queue = {}
    for kind in kinds:
        keys = None if assigned_to_me is None else assigned_to_me[kind.name]  # None: all
        if keys == []:  # nothing of this kind is assigned to the user
            queue[kind.name] = []
            continue
        waiting = kind.waiting(request, filters.get("agent", ""), keys)
        queue[kind.name] = [_Item(kind, waits) for waits in waiting][: MOST_COUNTED + 1]
    return queue


def _keys_assigned_to(request: HttpRequest) -> dict[str, list[str]]:
    """Return the keys of the newest items that are assigned to the user, by the name of their kind."""
    keys: dict[str, list[str]] = defaultdict(list)
    rows = ReviewItem.objects.filter(assigned_to=request.user.pk).order_by("-pk").values_list("kind", "key")
    for kind, key in rows[:MOST_MINE]:
        keys[kind].append(key)
    return keys


def review_page(request: HttpRequest) -> HttpResponse:
    """Show one item with its decisions, its neighbours beside it; POST decides, takes back or assigns.

    A user sees the kinds for which they have all permissions; without any the page is refused. An address with a NUL character leads to
    the whole queue.
    """
    kinds = {kind.name: kind for kind in _kinds if request.user.has_perms(kind.permissions)}
    if not kinds:
        raise PermissionDenied
    if has_nul_character(request):
        return HttpResponseRedirect(review_url())
    filters = _filters_of(request)
    if request.method == "POST":
        answer = _answer_form(request, kinds, filters)
        if answer is not None:
            return answer
    queue = _read_queue(request, kinds.values(), filters)
    chosen = queue
    if "kind" in filters:
        chosen = {name: items for name, items in queue.items() if name == filters["kind"]}
    items: list[_Item] = []
    for items_of_kind in chosen.values():
        items += items_of_kind[:MOST_COUNTED]
    context = {
        **_filter_choices(kinds, queue, filters),
        "filters": filters,
        "filtered": bool(filters),
        "done": _last_decision(request, kinds),
        "kinds": list(kinds.values()),
        "all_url": review_url(),
        "total": _count_text(chosen.values()),
    }
    if items:
        context |= _open_item(request, items, _open_index(request, items), filters)
    return console_response(request, "admin/review/page.html", "To review", **context)


def _open_index(request: HttpRequest, items: Sequence[_Item]) -> int:
    """Return the place of the item that the address, or the form that was refused, names, from 0.

    Where it waits no more, the place that it had: the item that followed has moved there. Without any, the first.
    """
    item_id = request.GET.get("item", "")
    if request.method == "POST":
        item_id = _item_of_form(request)
    for index, item in enumerate(items):
        if item.id == item_id:
            return index
    former_place = number_in(request.POST or request.GET, "place") or 0
    return max(0, min(former_place, len(items) - 1))


def _open_item(request: HttpRequest, items: Sequence[_Item], index: int, filters: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows of the item at a place, and of those listed around it.

    An item whose row is gone meanwhile is listed as ``gone``, and the page has no body for it.
    """
    # As many are listed at the beginning and the end of the queue, where the open one is not in the middle.
    listed_items = 2 * AROUND + 1
    start = max(0, min(index - AROUND, len(items) - listed_items))
    around = items[start : start + listed_items]
    current = items[index]
    rows = _rows_of(around)
    assignees = _assignees_of(around)
    agents = _named_agents({item.waits.agent for item in around})

    def url_of(at_place: int) -> str:
        if not 0 <= at_place < len(items):
            return ""
        return review_url(**filters, item=items[at_place].id, place=at_place)

    listed = []
    for at_place, item in enumerate(around, start):
        slug = item.waits.agent
        listed.append(
            {
                "url": url_of(at_place),
                "line": item.kind.line(rows[item.id]) if item.id in rows else "gone",
                "title": item.kind.title,
                "agent": agents[slug].name if slug in agents else slug,
                "assigned": assignees.get(item.id, ""),
                "current": item is current,
            }
        )
    context = {
        "listed": listed,
        "first": start + 1,
        "item": current,
        "agent_of": agents.get(current.waits.agent),
        "place": index,
        "number": index + 1,
        "next": _id_after_decision(items, index),
        "next_url": url_of(index + 1),
        "previous_url": url_of(index - 1),
        "assignee": assignees.get(current.id, ""),
        "people": people() if request.user.has_perm(ASSIGNING) else [],
    }
    if current.id in rows:
        row = rows[current.id]
        kind = current.kind
        context |= {
            "body": kind.show(request, row),
            "decisions": _offered_decisions(kind, row),
            "fields": kind.fields(row),
            "line": kind.line(row),
            "typed_note": request.POST.get("note", "") if current.id == _item_of_form(request) else "",
            "seen": kind.seen(row),
            "url": kind.url(row),
        }
    return context


def _item_of_form(request: HttpRequest) -> str:
    """Return the id of the item that the form names."""
    return f"{request.POST.get('kind', '')}:{request.POST.get('key', '')}"


def _offered_decisions(kind: ReviewKind, row: Any) -> list[Decision]:
    """Return the decisions that are offered for a row, with what their buttons say."""
    offered = []
    for decision in kind.decisions:
        label = decision.label if decision.label_for is None else decision.label_for(row)
        if label:
            offered.append(decision._replace(label=label))
    return offered


def _rows_of(items: Iterable[_Item]) -> dict[str, Any]:
    """Return the rows of items by their ids, without those that are gone; a query or so for each kind among them."""
    keys: dict[str, list[str]] = defaultdict(list)
    kinds = {}
    for item in items:
        kinds[item.kind.name] = item.kind
        keys[item.kind.name].append(item.waits.key)
    rows = {}
    for name, kind in kinds.items():
        for key, row in kind.find(keys[name]).items():
            rows[f"{name}:{key}"] = row
    return rows


def _assignees_of(items: Iterable[_Item]) -> dict[str, str]:
    """Return the names of those to whom items are assigned, by the ids of the items."""
    kinds = {item.kind.name for item in items}
    keys = {item.waits.key for item in items}
    assigned = ReviewItem.objects.filter(kind__in=kinds, key__in=keys).exclude(assigned_to=None)
    names = assigned.values_list("kind", "key", "assigned_to__username")
    return {f"{kind}:{key}": name for kind, key, name in names}


def _id_after_decision(items: Sequence[_Item], index: int) -> str:
    """Return the id of the item that is opened after a decision: the next one, after the last the one before; empty where it was alone."""
    if index + 1 < len(items):
        return items[index + 1].id
    if index > 0:
        return items[index - 1].id
    return ""


def _count_text(kinds: Iterable[Collection[_Item]]) -> str:
    """Return how many items these are, with a plus where there are more of a kind than are counted."""
    counts = [len(items) for items in kinds]
    total = sum(min(count, MOST_COUNTED) for count in counts)
    has_more = any(count > MOST_COUNTED for count in counts)
    return f"{total:,}+" if has_more else f"{total:,}"


def people() -> list[tuple[int, str]]:
    """Return whom an item can be assigned to: keys and names."""
    users = User.objects.filter(is_active=True, is_staff=True).order_by("username")
    return list(users.values_list("pk", "username")[:MOST_PEOPLE])


def _filter_choices(kinds: Mapping[str, ReviewKind], queue: Queue, filters: Mapping[str, str]) -> dict[str, Any]:
    """Return the tabs with their counts (empty kinds without one, unless chosen), and the agents that an item is about."""
    chosen_kind = filters.get("kind", "")
    other_filters = {name: value for name, value in filters.items() if name != "kind"}
    tabs = [("All", _count_text(queue.values()), review_url(**other_filters), chosen_kind == "")]
    for name, kind in kinds.items():
        is_chosen = name == chosen_kind
        if queue[name] or is_chosen:
            url = review_url(**other_filters, kind=name)
            tabs.append((kind.title, _count_text([queue[name]]), url, is_chosen))
    slugs = {filters.get("agent", "")}
    for items in queue.values():
        slugs.update(item.waits.agent for item in items)
    agents = _named_agents(slugs - {""})
    return {"tabs": tabs, "agents": [(slug, agent.name) for slug, agent in agents.items()]}


def _last_decision(request: HttpRequest, kinds: Mapping[str, ReviewKind]) -> dict[str, Any] | None:
    """Return what was decided last, as the address names it, to be undone; None where it names nothing that is there."""
    name, _, key = request.GET.get("done", "").partition(":")
    kind = kinds.get(name)
    if kind is None:
        return None
    decision = _decision_named(kind, request.GET.get("did", ""))
    if decision is None:
        return None
    row = kind.find([key]).get(key)
    if row is None:
        return None
    return {"kind": kind, "key": key, "decision": decision, "line": kind.line(row), "url": kind.url(row)}


def _decision_named(kind: ReviewKind, name: str) -> Decision | None:
    return next((decision for decision in kind.decisions if decision.name == name), None)


def _answer_form(
    request: HttpRequest, kinds: Mapping[str, ReviewKind], filters: Mapping[str, str]
) -> HttpResponse | None:
    """Carry out what a form of the page asks for: assign, undo or decide. Return the address to go on at.

    After a decision that is the next item, and so where the item is gone; after everything else the same one. None where a decision was
    refused: the page is shown again with the note that was typed, and says what was not done.
    """
    form = request.POST
    key = form.get("key", "")[:300]
    index = number_in(form, "place") or 0
    same_item = review_url(**filters, item=f"{form.get('kind')}:{key}", place=index)
    kind = kinds.get(form.get("kind", ""))
    row = kind.find([key]).get(key) if kind else None
    if kind is None or row is None:
        messages.warning(request, "That item is gone, or was changed meanwhile.")
        return HttpResponseRedirect(review_url(**filters, item=form.get("next", ""), place=index))
    if "assign" in form:
        assign(request, kind.name, key)
        return HttpResponseRedirect(same_item)
    try:
        if "undo" in form:
            _undo_decision(request, kind, row)
            return HttpResponseRedirect(same_item)
        decision = _carry_out_decision(request, kind, row)
    except ValueError as problem:
        messages.warning(request, f"Nothing was changed: {problem}")
        return HttpResponseRedirect(same_item) if "undo" in form else None
    done = {"done": f"{kind.name}:{key}", "did": decision.name}
    return HttpResponseRedirect(review_url(**filters, item=form.get("next", ""), place=index, **done))


def _undo_decision(request: HttpRequest, kind: ReviewKind, row: Any) -> None:
    """Take back the decision that the form names, and tell the user.

    Raises:
        ValueError: It is no decision of this kind, or cannot be taken back.
    """
    decision = _decision_or_refusal(kind, request.POST.get("undo", ""))
    decision.undo(request, row)
    text = format_html("{}: {} is taken back; it waits again.", kind.line(row), decision.label)
    messages.success(request, text)


def _carry_out_decision(request: HttpRequest, kind: ReviewKind, row: Any) -> Decision:
    """Carry out the decision that the form names, and return it.

    Raises:
        ValueError: It is no decision of this kind, the row was changed since the page was opened, or it is decided already.
    """
    form = request.POST
    decision = _decision_or_refusal(kind, form.get("decide", ""))
    if kind.seen(row) != form.get("seen", ""):
        raise ValueError("It was changed since the page was opened. Look at it again.")
    note = form.get("note", "").replace("\x00", "").strip()[:1000]
    decision.decide(request, row, note)
    return decision


def _decision_or_refusal(kind: ReviewKind, name: str) -> Decision:
    decision = _decision_named(kind, name)
    if decision is None:
        raise ValueError(f"allowed: {', '.join(decision.label for decision in kind.decisions)}")
    return decision


def assign(request: HttpRequest, kind: str, key: str) -> None:
    """Assign an item to the person whose key is ``assign`` of the form, to nobody where it is empty, and tell the user.

    Whoever is no active user of the console is refused with a message.

    Raises:
        PermissionDenied: The user may not assign items.
    """
    if not request.user.has_perm(ASSIGNING):
        raise PermissionDenied
    typed = request.POST.get("assign", "")
    person_key = number_in(request.POST, "assign")
    person = None
    if person_key is not None:
        person = User.objects.filter(pk=person_key, is_active=True, is_staff=True).first()
    if typed and person is None:
        messages.error(request, f"assigned to {typed[:20]!r}: allowed: an active user of the console")
        return
    ReviewItem.objects.update_or_create(kind=kind, key=key, defaults={"assigned_to": person})
    name = person.get_username() if person else "nobody"
    messages.success(request, f"Assigned to {name}.")


def _urls() -> list[URLPattern]:
    return [path("review/", admin.site.admin_view(review_page), name="review")]


add_pages(_urls)

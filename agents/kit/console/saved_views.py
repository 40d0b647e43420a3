"""Saved views of a list: which ones a user sees, and what may be saved, changed and deleted.

The pages are in `agents.kit.admin.saved_views`, the links above the list in ``admin/saved_views.html``.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import Case, Model, Q, QuerySet, Value, When
from django.http import HttpRequest, QueryDict

from agents.kit.models import SavedView

SHARE = "kit.share_savedview"
MOST_OWN = 30  # of a user, of one list
MOST_SHOWN = 60
LONGEST_NAME = 60
LONGEST_QUERY = 2_000  # characters
# Of a list's address: page, "show all", error, counts of filters. They are no part of a view.
NOT_SAVED = ("p", "all", "e", "_facets")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewLink:
    """A saved view as the list shows it. `owner` is the name of another user who shared it."""

    view: SavedView
    is_open: bool
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListViews:
    """The saved views of a list for a user.

    Attributes:
        table: Label of the model.
        query: What the list shows now, as it would be saved; empty: all rows in the usual order.
        open: The view that is open, where the user may change it; of several the first.
    """

    table: str
    query: str
    links: list[ViewLink]
    open: SavedView | None
    may_share: bool


def query_of(query: QueryDict) -> str:
    """Return the part of a list's address that a view stores: what is set, in the order of the alphabet."""
    pairs = []
    for name, values in query.lists():
        if name not in NOT_SAVED:
            pairs += [(name, value) for value in values if value != ""]
    return urlencode(sorted(pairs))


def views_of_list(request: HttpRequest, model: type[Model]) -> ListViews:
    """Return the views of a list that the user sees, by name: their own, then those that others share. One query."""
    user = request.user
    label = model._meta.label_lower
    query = query_of(request.GET)
    views = SavedView.objects.filter(Q(owner=user.pk) | Q(is_shared=True), table=label)
    links = []
    open_view = None
    own_first = Case(When(owner=user.pk, then=Value(0)), default=Value(1))
    for view in views.select_related("owner").order_by(own_first, "name", "pk")[:MOST_SHOWN]:
        is_open = view.query == query
        owner = "" if view.owner_id == user.pk else view.owner.get_username()
        links.append(ViewLink(view=view, is_open=is_open, owner=owner))
        if is_open and open_view is None and may_change(user, view):
            open_view = view
    return ListViews(table=label, query=query, links=links, open=open_view, may_share=user.has_perm(SHARE))


def may_change(user: User | AnonymousUser, view: SavedView) -> bool:
    """Return whether the user may rename, share and delete a view: their own, and a superuser all that are shared."""
    return view.owner_id == user.pk or (user.is_superuser and view.is_shared)


def views_to_change(user: User) -> QuerySet[SavedView]:
    """Return the views that the user may change; see `may_change`."""
    own = Q(owner=user)
    return SavedView.objects.filter(own | Q(is_shared=True) if user.is_superuser else own)


def save_view(*, user: User, table: str, name: str, query: str, is_shared: bool) -> SavedView:
    """Save a view of a list for a user; its query was checked.

    Raises:
        ValueError: The name is not allowed, nothing is set, or the user has too many.
    """
    if not query:
        raise ValueError("nothing is filtered, searched or sorted: set something first")
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=user.pk)  # two at once would pass the limit
        own = SavedView.objects.filter(owner=user, table=table)
        if own.count() >= MOST_OWN:
            raise ValueError(f"you have {MOST_OWN} views of this list, and no more are allowed: delete one first")
        name = _free_name(own, name)
        return SavedView.objects.create(owner=user, table=table, name=name, query=query, is_shared=is_shared)


def change_view(view: SavedView, *, name: str, is_shared: bool) -> None:
    """Rename a view, and share it or not.

    Raises:
        ValueError: The name is not allowed.
    """
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=view.owner_id)
        others = SavedView.objects.filter(owner=view.owner_id, table=view.table).exclude(pk=view.pk)
        view.name = _free_name(others, name)
        view.is_shared = is_shared
        view.save(update_fields=["name", "is_shared"])


def _free_name(others: QuerySet[SavedView], typed: str) -> str:
    """Return the name that was typed, without white space around it.

    Raises:
        ValueError: It is empty or too long, or one of the other views has it.
    """
    name = " ".join(typed.replace("\x00", "").split())
    if not name or len(name) > LONGEST_NAME:
        raise ValueError(f"the name has {len(name)} characters; allowed: 1 to {LONGEST_NAME}")
    if others.filter(name=name).exists():
        raise ValueError(f"there is a view {name!r} of this list already; choose another name")
    return name

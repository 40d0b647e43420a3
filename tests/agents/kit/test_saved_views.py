"""A list as one filtered, searched and sorted it can be kept under a name, for oneself or for everyone."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from agents.alerts.models import Alert
from agents.kit.console.saved_views import MOST_OWN, MOST_SHOWN
from agents.kit.models import SavedView
from agents.kit.registry import tables
from agents.models import Agent, Channel
from correction.models import CorrectionLog
from evaluation.models import EvaluationRun
from tests.console import HOSTILE, in_group, list_of, plain, queries, read, signed_in, staff, superuser, viewer
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

ACTIVE = "?is_active__exact=1"


def save(client: Client, model: type[Model], query: str, name: str = "mine", **chosen: str) -> Any:
    """Fill in the form above the list and send it; the page it leads to."""
    form = {"table": model._meta.label_lower, "query": query.removeprefix("?"), "name": name, **chosen}
    return client.post(reverse("admin:kit_savedview_add"), form, follow=True)


def change(client: Client, view: SavedView, **chosen: str) -> Any:
    return client.post(reverse("admin:kit_savedview_change", args=[view.pk]), chosen, follow=True)


def links(client: Client, model: type[Model], query: str = "") -> str:
    """The saved views as a person reads them above the list."""
    page = read(client, list_of(model, query))
    return plain("<" + page.partition('aria-label="Saved views"')[2].partition("</ul>")[0])


def test_filter_search_and_order_come_back_under_the_name() -> None:
    make_agent("pam"), make_agent("jim")
    client = signed_in(viewer())

    answer = save(client, Agent, "?q=pam&o=-2&is_active__exact=1&p=2", "reception")

    assert "The view" in plain(answer.content.decode())
    stored = QueryDict(SavedView.objects.get().query).dict()
    assert stored == {"q": "pam", "o": "-2", "is_active__exact": "1"}, "not the page of the list"
    assert "reception" in links(client, Agent)
    shown = read(client, list_of(Agent, f"?{SavedView.objects.get().query}"))
    assert 'aria-current="true"' in shown
    assert "jim" not in plain(shown)


def test_the_five_main_lists_have_saved_views() -> None:
    client = signed_in(superuser())
    main = {Agent: ACTIVE, Channel: "?q=a", EvaluationRun: "?q=&o=1", CorrectionLog: "?outcome__exact=passed"}
    main[Alert] = "?acknowledged_at__isempty=1"

    assert {model for model, table in tables().items() if table.has_saved_views} == set(main)
    for model, query in main.items():
        save(client, model, query, "often")
        assert "often" in links(client, model), model


def test_own_views_are_for_oneself_and_shared_ones_for_everyone_who_sees_the_list() -> None:
    ann, bob = signed_in(in_group("Operator")), signed_in(viewer())

    save(ann, Agent, ACTIVE, "private")
    save(ann, Agent, "?q=x", "common", shared="on")

    assert "private" not in links(bob, Agent)
    assert "common" in links(bob, Agent)


def test_sharing_takes_its_permission() -> None:
    client = signed_in(viewer())

    save(client, Agent, ACTIVE, shared="on")

    assert not SavedView.objects.get().is_shared
    assert 'name="shared"' not in read(client, list_of(Agent, ACTIVE))


def test_one_renames_and_deletes_ones_own_and_superusers_the_shared_ones() -> None:
    ann, bob, root = signed_in(in_group("Operator")), signed_in(in_group("Editor")), signed_in(superuser())
    save(ann, Agent, ACTIVE, "private")
    save(ann, Agent, "?q=x", "common", shared="on")
    private, common = SavedView.objects.get(name="private"), SavedView.objects.get(name="common")

    assert [change(bob, view, delete="1").status_code for view in (private, common)] == [404, 404]
    assert change(root, private, delete="1").status_code == 404
    change(ann, private, name="renamed")
    change(root, common, name="of all", shared="on")
    assert set(SavedView.objects.values_list("name", "is_shared")) == {("renamed", False), ("of all", True)}

    change(ann, private, delete="1")
    change(root, common, delete="1")
    assert not SavedView.objects.exists()


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("?foo=1", "foo"),
        ("?evaluation_config__daily_budget_usd__gt=1", "evaluation_config__daily_budget_usd__gt"),
        ("?is_active__exact=1&slug__startswith=a", "slug__startswith"),
        ("?is_active__exact=maybe", "cannot read"),
        ("?q=%00", "cannot read"),
        ("", "nothing is filtered"),
        ("?p=3", "nothing is filtered"),
        ("?q=" + "x" * 2_001, "2,000"),
    ],
)
def test_what_the_list_has_no_filter_for_is_refused_by_name(query: str, named: str) -> None:
    answer = save(signed_in(superuser()), Agent, query)

    assert named in plain(answer.content.decode())
    assert not SavedView.objects.exists()


@pytest.mark.parametrize("name", ["", "   ", "x" * 61, "mine"])
def test_a_name_is_short_and_not_taken(name: str) -> None:
    client = signed_in(superuser())
    save(client, Agent, ACTIVE, "mine")

    answer = save(client, Agent, "?q=other", name)

    assert SavedView.objects.count() == 1
    assert answer.redirect_chain == [(list_of(Agent, "?q=other"), 302)], "the filters are kept"


def test_there_is_a_limit_to_the_views_of_a_user() -> None:
    root = superuser()
    for number in range(MOST_OWN):
        SavedView.objects.create(table="agents.agent", owner=root, name=f"{number}", query="q=x")

    answer = save(signed_in(root), Agent, ACTIVE)

    assert f"{MOST_OWN} views" in plain(answer.content.decode())


def test_ones_own_views_come_before_those_of_others() -> None:
    ann, root = in_group("Operator"), superuser()
    for number in range(MOST_SHOWN):
        SavedView.objects.create(table="agents.agent", owner=ann, name=f"{number}", query="q=x", is_shared=True)
    own = SavedView.objects.create(table="agents.agent", owner=root, name="zebra", query="q=x")

    page = read(signed_in(root), list_of(Agent, "?q=x"))

    assert "zebra" in page
    assert reverse("admin:kit_savedview_change", args=[own.pk]) in page, "the form changes one's own"


def test_names_and_searches_are_text() -> None:
    client = signed_in(superuser())

    answer = save(client, Agent, f"?q={HOSTILE}", HOSTILE[:60], shared="on")

    assert SavedView.objects.exists()
    assert HOSTILE not in answer.content.decode()
    assert HOSTILE not in read(signed_in(viewer()), list_of(Agent, f"?{SavedView.objects.get().query}"))


def test_views_of_a_list_are_for_those_who_may_see_it_and_there_is_none_of_other_tables() -> None:
    client = signed_in(staff("agents.view_channel"))

    assert save(client, Agent, ACTIVE).status_code == 403
    assert save(client, User, "?q=x").status_code == 404
    assert client.get(reverse("admin:kit_savedview_add")).status_code == 405


def test_a_list_asks_once_for_all_its_views() -> None:
    client = signed_in(superuser())
    for number in range(3):
        save(client, Agent, f"?q={number}", f"{number}", shared="on")

    asked = [sql for sql in queries(client, list_of(Agent)) if "saved_views" in sql]

    assert len(asked) == 1

"""What destroys, costs or cannot simply be taken back asks first, and says what it does; what acts on many rows says on how many."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models import Model
from django.http import HttpRequest
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext

from agents.kit.ops.deletion import consequences
from agents.kit.registry import table_of
from agents.models import Agent, Run
from tests.console import list_of, page_of, plain, read, signed_in, superuser
from tests.factories import make_agent, make_channel, say
from tests.listed_rows import MAKERS, people

pytestmark = pytest.mark.django_db

# Every bulk action of the console, and whether it asks first: what costs money or decides something does, what is undone by the
# action beside it does not. A page with a form of its own: copy_corrections.
ACTIONS = {
    "agents.Agent": {
        "capture_baseline": True,
        "copy_corrections": True,
    },
    "alerts.Alert": {"acknowledge": True},
    "change.DriftAlert": {"acknowledge": False},
    "evaluation.EvaluationRun": {"compare": False},
    "evaluation.EvaluationSchedule": {"fire": True, "pause": False, "resume": False},
    "behavior.BehaviorRequest": {"retry_chosen": False},
    "sending.ScoreDelivery": {"send_again": False},
}
DELETABLE = {
    *(
        "auth.User",
        "auth.Group",
        "kit.ApiToken",
        "agents.Agent",
        "agents.Channel",
        "kit.ModelPrice",
        "alerts.Receiver",
        "swarm.Swarm",
    ),
    *("calibration.LabelSet", "evaluation.EvaluationSchedule"),
    *("correction.AgentEvaluationConfig", "interventions.Intervention"),
}


@pytest.fixture
def asked() -> HttpRequest:
    request = RequestFactory().get("/")
    request.user = superuser()
    return request


def test_every_bulk_action_is_known_and_nothing_is_deleted_in_bulk(asked: HttpRequest) -> None:
    found = {
        model._meta.label: set(model_admin.get_actions(asked))
        for model, model_admin in admin.site._registry.items()
        if model_admin.get_actions(asked)
    }

    assert found == {label: set(actions) for label, actions in ACTIONS.items()}


def test_every_deletable_model_is_known_and_says_what_deleting_means(asked: HttpRequest) -> None:
    found = {
        m._meta.label for m, model_admin in admin.site._registry.items() if model_admin.has_delete_permission(asked)
    }

    assert found == DELETABLE
    assert all(table_of(m).deleting for m in admin.site._registry if m._meta.label in DELETABLE)


@pytest.mark.parametrize(
    ("label", "action"), [(label, action) for label, names in ACTIONS.items() for action, asks in names.items() if asks]
)
def test_what_asks_changes_nothing_before_somebody_agrees_and_names_the_rows(label: str, action: str) -> None:
    root = signed_in(superuser())
    model = next(m for m in admin.site._registry if m._meta.label == label)
    MAKERS[label.lower()](people(), 0, 2)
    rows = list(model._default_manager.all()[:2])
    url = list_of(model)
    with CaptureQueriesContext(connection) as captured:
        answer = root.post(url, {"action": action, "_selected_action": [row.pk for row in rows]})
    html = answer.content.decode()

    assert answer.status_code == 200
    written = [q["sql"] for q in captured.captured_queries if q["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]
    assert not [sql for sql in written if "django_session" not in sql]
    assert f'name="action" value="{action}"' in html
    assert all(f'name="_selected_action" value="{row.pk}"' in html for row in rows)


def test_what_was_chosen_across_pages_stays_chosen() -> None:
    root = signed_in(superuser())
    for number in range(25):
        make_agent(f"agent-{number:02}")
    first = Agent.objects.first()
    assert first is not None
    data = {"action": "capture_baseline", "_selected_action": [first.pk], "select_across": "1"}
    html = root.post(list_of(Agent), data).content.decode()

    assert 'name="select_across" value="1"' in html
    assert "Capture baseline: 25 agents" in plain(html)
    assert "and 5 more" in plain(html)


@pytest.mark.parametrize("label", sorted(DELETABLE))
def test_the_delete_page_says_what_it_does_and_deletes_only_when_told(label: str) -> None:
    root = signed_in(superuser())
    model = next(m for m in admin.site._registry if m._meta.label == label)
    row = deletable(model)
    html = read(root, page_of(row, "delete"))

    assert plain(table_of(model).deleting) in plain(html)
    assert "It cannot be undone." in html
    there = model._default_manager.count()
    root.post(page_of(row, "delete"), {"post": "yes"})
    assert model._default_manager.count() == there - 1


def deletable(model: type[Model]) -> Model:
    """A row of its own that nothing holds."""
    if model is Agent:
        return make_agent("unheard")
    if model is User:
        return User.objects.create_user("leaving")
    if model is Group:
        return Group.objects.create(name="Labellers")
    if model._meta.label == "agents.Channel":
        return make_channel("silent")
    MAKERS[model._meta.label_lower](people(), 0, 1)
    return next(row for row in model._default_manager.all() if not getattr(row, "is_defaults", False))


def test_what_goes_with_it_is_counted_and_never_loaded() -> None:
    ada = make_agent("ada")
    Run.objects.bulk_create(Run(agent=ada) for _ in range(3))
    root = signed_in(superuser())
    url = page_of(ada, "delete")
    few = statements(root, url)
    Run.objects.bulk_create(Run(agent=ada) for _ in range(300))
    many = statements(root, url)

    assert len(many) == len(few)
    assert not [sql for sql in many if '"runs"."trace"' in sql]
    told = plain(read(root, url))
    assert "303 turns" in told
    assert "It cannot be deleted here: turn would go with it" in told


def statements(client: Any, url: str) -> list[str]:
    read(client, url)
    with CaptureQueriesContext(connection) as captured:
        read(client, url)
    return [query["sql"] for query in captured.captured_queries]


def test_what_stays_and_what_forbids_is_told_apart() -> None:
    user = User.objects.create_user("bob")
    channel = make_channel()
    say(channel, make_agent("ada"), "Noted.")
    assert not consequences([user]).protecting

    channel.messages.update(agent=None, user=user)
    root = signed_in(superuser())
    assert "It cannot be deleted while these name it: 1 message." in plain(read(root, page_of(user, "delete")))
    root.post(page_of(user, "delete"), {"post": "yes"})
    assert User.objects.filter(pk=user.pk).exists()

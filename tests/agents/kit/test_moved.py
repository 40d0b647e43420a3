"""Addresses of the console from when fewer apps had the tables: they lead to where the pages are now, and nowhere else."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from django.apps import apps
from django.contrib import admin
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from agents.alerts.models import Alert
from agents.kit.capability import capabilities
from agents.kit.models import LLMCall
from tests.console import Browser, list_of, page_of, signed_in, superuser

pytestmark = pytest.mark.django_db

MOVED = [
    ("/admin/agents/debate/7/change/", "/admin/debates/debate/7/change/"),
    ("/admin/agents/alert/", "/admin/alerts/alert/"),
    ("/admin/agents/alert/?acknowledged_at__isempty=1&p=2", "/admin/alerts/alert/?acknowledged_at__isempty=1&p=2"),
    ("/admin/agents/llmcall/export/csv/?error=caf%C3%A9%20%26", "/admin/kit/llmcall/export/csv/?error=caf%C3%A9%20%26"),
    ("/admin/evaluation/baseline/a_2Fb%3Fc/change/", "/admin/change/baseline/a_2Fb%3Fc/change/"),
]
ELSEWHERE = [
    "/admin/agents/debate//evil.example/",
    "/admin/agents/debate/..//evil.example/",
    "/admin/agents/debate/https://evil.example/",
    "/admin/agents/debate/%5C%5Cevil.example/",
    "/admin/agents/debate/%0DLocation:%20https:%2F%2Fevil.example/",
    "/admin/agents/debate/7/?next=https://evil.example/",
]


def nested() -> list[type[Model]]:
    """The tables that have an app of their own below a root app, and a page in the console."""
    models = [model for app in capabilities() if "." in app.name for model in app.get_models()]
    return [model for model in models if admin.site.is_registered(model)]


def old_list(model: type[Model]) -> str:
    root = apps.get_app_config(model._meta.app_label).name.partition(".")[0]
    return f"/admin/{root}/{model._meta.model_name}/"


@pytest.fixture
def root() -> Client:
    return signed_in(superuser())


@pytest.mark.parametrize(("old", "new"), MOVED)
def test_an_old_address_leads_to_the_same_page_with_its_query(root: Client, old: str, new: str) -> None:
    answer = root.get(old)

    assert (answer.status_code, answer["Location"]) == (301, new)


def test_the_old_list_of_every_table_leads_to_its_list(root: Client) -> None:
    assert {Alert, LLMCall} < {*nested()}
    for model in nested():
        assert root.get(f"{old_list(model)}?q=x")["Location"] == list_of(model, "?q=x")


def test_what_it_leads_to_is_there(root: Client) -> None:
    alert = Alert.objects.create(kind="budget", about="x", title="The budget is reached")
    call = LLMCall.objects.create(role="judge", purpose="gate", provider="anthropic", model="m", status="ok")

    for row, old in ((alert, "agents/alert"), (call, "agents/llmcall")):
        answer = root.get(f"/admin/{old}/{row.pk}/change/", follow=True)
        assert (answer.status_code, answer.request["PATH_INFO"]) == (200, page_of(row))


def test_who_is_not_signed_in_signs_in_first_and_then_gets_there() -> None:
    alert = Alert.objects.create(kind="budget", about="x", title="The budget is reached")
    user = superuser()
    user.set_password("a long sentence")
    user.save()
    client, old = Browser(), f"/admin/agents/alert/{alert.pk}/change/?from=mail"
    sign_in = client.get(old)["Location"]

    assert sign_in.partition("?")[0] == reverse("admin:login")
    answer = client.post(sign_in, {"username": user.username, "password": "a long sentence"}, follow=True)
    assert (answer.status_code, answer.request["PATH_INFO"]) == (200, page_of(alert))
    assert answer.request["QUERY_STRING"] == "from=mail"


@pytest.mark.parametrize("old", ELSEWHERE)
@pytest.mark.parametrize("is_signed_in", [True, False])
def test_no_old_address_leads_to_another_host(old: str, is_signed_in: bool) -> None:
    client = signed_in(superuser()) if is_signed_in else Browser()
    answer = client.get(old)

    location = urlsplit(answer["Location"])
    assert (location.scheme, location.netloc) == ("", "")
    assert location.path.startswith("/admin/debates/debate/" if is_signed_in else reverse("admin:login"))


def test_no_old_address_hides_a_page_of_the_app_above() -> None:
    there = {list_of(model) for model in admin.site._registry}

    assert there.isdisjoint(map(old_list, nested()))

"""Who may open and who may do what, at every address of the console.

``console_roles.yaml`` names for each address the least role that gets an answer to GET (`read`) and to an empty POST (`write`):
viewer, operator, editor, administrator (a superuser), or nobody. Each role may what those before it may. Pages of a list that are
as those of a log need no line. When an address is new or its answer differs, the test names it;
``WRITE_ROLES=1 pytest tests/test_console_roles.py -k written`` writes the file again, to be read in the diff.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Model
from django.test import Client
from django.urls import URLPattern, URLResolver, reverse

from agents.chat import ask, begin_chat, chats
from agents.models import Agent, Channel
from agents.swarm.models import SwarmPhase
from correction.models import GateDimensionResult
from evaluation.models import Job
from tests.console import Browser, signed_in, superuser
from tests.listed_rows import MAKERS, people

pytestmark = pytest.mark.django_db

NOTED = Path(__file__).with_name("console_roles.yaml")
ROLES = ("viewer", "operator", "editor", "administrator")
OPEN_TO_ALL = {
    "login",
    "logout",
    "jsi18n",
    "password_change",
    "password_change_done",
    "autocomplete",
    "view_on_site",
    "search",
}
ROWS_OF: dict[str, type[Model]] = {
    "channel_id": Channel,
    "result_id": GateDimensionResult,
    "agent_id": Agent,
    "phase_id": SwarmPhase,
}
ELSEWHERE: dict[str, object] = {
    "number": 1,
    "position": 1,
    "form": "csv",
    "target": "defaults",
    "app_label": "agents",
    "name": "reference/api",
}  # what routes ask for beside rows


@dataclass(frozen=True, slots=True)
class Route:
    """An address of the console: what it is called, where it is, what it asks for."""

    name: str
    path: str
    keys: tuple[str, ...]

    def url(self) -> str:
        return reverse(f"admin:{self.name}", kwargs={key: self._value(key) for key in self.keys})

    def _value(self, key: str) -> object:
        if key == "chat_id":
            return getattr(chats().order_by("pk").last(), "pk", 1)
        if key in ELSEWHERE:
            return ELSEWHERE[key]
        app, name, *_ = self.path.split("/")
        if name == "proposition":  # the page of an agent's claims: they stand in files
            return getattr(Agent.objects.order_by("pk").first(), "slug", "nobody")
        model = ROWS_OF.get(key) or apps.get_model(app, name)
        row = model._default_manager.order_by("pk").first()
        return row.pk if row is not None else 1


def routes() -> list[Route]:
    """Every address of the console but those for everybody."""
    found = {route.name: route for route in _walk(admin.site.get_urls())}
    return sorted((route for name, route in found.items() if name not in OPEN_TO_ALL), key=lambda route: route.name)


def _walk(patterns: Any, before: str = "", keys: tuple[str, ...] = ()) -> Iterator[Route]:
    for pattern in patterns:
        path, own = before + str(pattern.pattern), (*keys, *_keys(pattern.pattern))
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, path, own)
        elif isinstance(pattern, URLPattern) and pattern.name:
            yield Route(pattern.name, path, own)


def _keys(pattern: Any) -> tuple[str, ...]:
    return tuple(getattr(pattern, "converters", None) or pattern.regex.groupindex)


@pytest.fixture
def addresses() -> dict[str, str]:
    """The URL of every address, with rows to be about."""
    cast = people()
    for make in MAKERS.values():
        make(cast, 0, 2)
    Job.objects.create(kind="suggestions", total=1)
    agent = Agent.objects.earliest("pk")
    ask(agent, begin_chat(agent), "Good morning.")
    return {route.name: route.url() for route in routes()}


def person(role: str) -> User:
    if role == "administrator":
        return superuser("somebody")
    user = User.objects.create_user("somebody", is_staff=True)
    user.groups.add(Group.objects.get(name=role.capitalize()))
    return user


def let_in(client: Client, method: str, url: str) -> bool:
    """Whether the address answers rather than refusing, hiding or leading to the login. What a POST did is undone."""
    with transaction.atomic():
        answer = getattr(client, method)(url)
        transaction.set_rollback(True)
    led_to_login = answer.status_code == 302 and "/login/" in answer["Location"]
    return answer.status_code not in (403, 404, 405) and not led_to_login


def found_for(client: Client, addresses: dict[str, str]) -> dict[str, dict[str, bool]]:
    asked = {"read": "get", "write": "post"}
    return {
        name: {kind: let_in(client, method, url) for kind, method in asked.items()} for name, url in addresses.items()
    }


def of_a_log() -> dict[str, dict[str, str]]:
    """What a list and its pages allow unless something else is noted: viewers read them, and nobody changes them."""
    kinds = {
        **dict.fromkeys(("add", "delete"), ("nobody", "nobody")),
        **dict.fromkeys(("change", "export", "help"), ("viewer", "nobody")),
        **dict.fromkeys(("changelist", "history"), ("viewer", "viewer")),
    }
    there = {route.name for route in routes()}
    names = [f"{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry]
    return {
        f"{name}_{kind}": {"read": read, "write": write}
        for name in names
        for kind, (read, write) in kinds.items()
        if f"{name}_{kind}" in there
    }


def noted() -> dict[str, dict[str, str]]:
    return of_a_log() | (yaml.safe_load(NOTED.read_text(encoding="utf-8")) or {})


def expected_for(role: str) -> dict[str, dict[str, bool]]:
    return {
        name: {kind: least in ROLES and ROLES.index(role) >= ROLES.index(least) for kind, least in kinds.items()}
        for name, kinds in noted().items()
    }


@pytest.mark.skipif("WRITE_ROLES" not in os.environ, reason="writes console_roles.yaml when WRITE_ROLES is set")
def test_the_roles_are_written(addresses: dict[str, str]) -> None:
    found = {}
    for role in ROLES:
        User.objects.filter(username="somebody").delete()
        found[role] = found_for(signed_in(person(role)), addresses)
    rows = {
        name: {kind: next((role for role in ROLES if found[role][name][kind]), "nobody") for kind in ("read", "write")}
        for name in addresses
    }
    usual = of_a_log()
    rows = {name: least for name, least in rows.items() if usual.get(name) != least}
    NOTED.write_text(yaml.safe_dump(rows, default_flow_style=None, width=140), encoding="utf-8")
    assert noted() == {**usual, **rows}


def test_each_role_has_the_permissions_of_the_role_before_it() -> None:
    viewer, operator, editor = (set(Permission.objects.filter(group__name=role.capitalize())) for role in ROLES[:-1])
    assert viewer < operator < editor


def test_every_address_of_the_console_is_noted() -> None:
    assert sorted(noted()) == [route.name for route in routes()]


@pytest.mark.slow
def test_each_role_may_open_and_do_what_is_noted_alone(addresses: dict[str, str], subtests: pytest.Subtests) -> None:
    for role in ROLES:
        with subtests.test(role=role):
            User.objects.filter(username="somebody").delete()
            assert found_for(signed_in(person(role)), addresses) == expected_for(role)
    customer = User.objects.create_user("customer")  # may not enter the console
    for visitor, client in (("not signed in", Browser()), ("no staff", signed_in(customer))):
        with subtests.test(visitor=visitor):
            found = found_for(client, addresses)
            assert not any(answer for kinds in found.values() for answer in kinds.values())

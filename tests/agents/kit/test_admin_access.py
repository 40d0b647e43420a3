"""The tokens of the API: made in the console or by the command, shown once, refused when they are over."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from agents.kit.models import ApiToken
from tests.console import HOSTILE, Browser, list_of, page_of, plain, read, signed_in, superuser

pytestmark = pytest.mark.django_db

AGENTS = "/api/agents/"


def make(client: Client, name: str = "bot", *, days: int = 90) -> str:
    """Make a token in the console; return its key."""
    made = client.post(list_of(ApiToken) + "add/", {"name": name, "expires_in": str(days)})
    assert "no-store" in made["Cache-Control"]
    return str(re.findall(r"pl_[\w-]{20,}", made.content.decode())[0])


def operator(name: str) -> User:
    user = User.objects.create_user(name, is_staff=True)
    user.groups.add(Group.objects.get(name="Operator"))
    return user


def asked_with(key: str) -> tuple[int, str]:
    answer = Browser().get(AGENTS, headers={"Authorization": f"Token {key}"})
    return answer.status_code, answer.json().get("detail", "")


def test_a_key_is_shown_once_works_at_once_and_is_nowhere_afterwards() -> None:
    client = signed_in(operator("grace"))
    key = make(client)
    token = ApiToken.objects.get()

    assert asked_with(key)[0] == 200
    assert key not in str(ApiToken.objects.values().get())
    for page in (list_of(ApiToken), page_of(token), page_of(token, "delete"), page_of(token, "history")):
        assert key not in read(client, page)
    assert token.hint in read(client, list_of(ApiToken))
    assert key not in str(list(LogEntry.objects.values()))


def test_of_a_users_tokens_a_deleted_one_is_refused_while_others_work() -> None:
    client = signed_in(operator("grace"))
    first, second = make(client, "bot"), make(client, "tests", days=0)
    assert (asked_with(first)[0], asked_with(second)[0]) == (200, 200)

    client.post(page_of(ApiToken.objects.get(name="bot"), "delete"), {"post": "yes"})

    assert (asked_with(first)[0], asked_with(second)[0]) == (401, 200)
    assert ApiToken.objects.get().expires_at is None


def test_a_wrong_or_expired_token_is_refused_and_one_of_closed_accounts() -> None:
    client = signed_in(operator("grace"))
    key = make(client, days=30)
    for wrong in ("pl_", "pl_nonsense", "nonsense"):
        assert asked_with(wrong)[0] == 401

    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    status, detail = asked_with(key)
    assert (status, "expired on" in detail) == (401, True)
    assert "expired" in plain(read(client, list_of(ApiToken)))

    ApiToken.objects.update(expires_at=None)
    assert asked_with(key)[0] == 200
    User.objects.update(is_active=False)
    assert asked_with(key)[0] == 401


def test_tokens_are_seen_by_their_user_and_superusers_alone() -> None:
    make(signed_in(operator("grace")), f"bot {HOSTILE}")
    token = ApiToken.objects.get()
    eve = signed_in(operator("eve"))

    assert token.hint not in read(eve, list_of(ApiToken))
    for page in ("change", "delete", "history"):
        assert token.hint not in eve.get(page_of(token, page), follow=True).content.decode()
    html = read(signed_in(superuser()), list_of(ApiToken))
    assert token.hint in html
    assert HOSTILE not in html

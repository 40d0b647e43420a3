"""The tokens of the API: made in the console or by the command, shown once, refused when they are over."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from rest_framework.authtoken.models import Token, TokenProxy

from agents.models import ApiToken
from tests.console import HOSTILE, Browser, list_of, page_of, plain, read, signed_in, staff, superuser

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


def test_a_user_has_several_tokens_and_a_deleted_one_is_refused_while_the_others_work() -> None:
    client = signed_in(operator("grace"))
    first, second = make(client, "bot"), make(client, "tests", days=0)
    assert (asked_with(first)[0], asked_with(second)[0]) == (200, 200)

    client.post(page_of(ApiToken.objects.get(name="bot"), "delete"), {"post": "yes"})

    assert (asked_with(first)[0], asked_with(second)[0]) == (401, 200)
    assert ApiToken.objects.get().expires_at is None


def test_an_expired_token_is_refused_and_the_answer_says_so() -> None:
    client = signed_in(operator("grace"))
    key = make(client, days=30)
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    status, said = asked_with(key)
    assert status == 401
    assert "expired on" in said
    assert "API tokens" in said
    assert "expired" in plain(read(client, list_of(ApiToken)))


@pytest.mark.parametrize("key", ["pl_", "pl_nonsense", "nonsense"])
def test_a_wrong_token_is_refused(key: str) -> None:
    assert asked_with(key)[0] == 401


def test_a_closed_account_closes_its_tokens() -> None:
    grace = operator("grace")
    key = make(signed_in(grace))
    User.objects.update(is_active=False)

    assert asked_with(key)[0] == 401


def test_a_token_of_the_command_line_still_works_and_only_its_ends_are_shown(root: Client) -> None:
    token = Token.objects.create(user=operator("grace"))

    assert asked_with(token.key)[0] == 200
    for page in (list_of(TokenProxy), f"{list_of(TokenProxy)}{token.user_id}/change/"):
        html = read(root, page)
        assert f"{token.key[:4]}…{token.key[-4:]}" in html
        assert token.key not in html
    answer = root.post(f"{list_of(TokenProxy)}{token.user_id}/delete/", {"post": "yes"}, follow=True).content.decode()
    assert "The token is deleted" in answer
    assert asked_with(token.key)[0] == 401
    assert [entry.object_repr for entry in LogEntry.objects.all()] == ["token of grace"]


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


def test_a_token_s_page_of_the_command_line_is_for_its_user_and_not_to_others_who_may_view_tokens() -> None:
    grace = staff("authtoken.view_tokenproxy", username="grace")
    eve = staff("authtoken.view_tokenproxy", username="eve")
    token = Token.objects.create(user=grace)

    assert token.key[-4:] in read(signed_in(grace), f"{list_of(TokenProxy)}{token.user_id}/change/")
    curious = signed_in(eve)
    for page in ("change", "delete", "history"):
        answer = curious.get(f"{list_of(TokenProxy)}{grace.pk}/{page}/", follow=True)
        assert token.key[-4:] not in answer.content.decode(), page

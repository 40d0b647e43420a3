"""The tokens of the API in the console."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.authtoken.models import Token, TokenProxy

from tests.console import list_of, read, signed_in, staff
from tests.evaluation.judged import cells

pytestmark = pytest.mark.django_db


def page_of_token(token: Token) -> str:
    return f"{list_of(TokenProxy)}{token.user_id}/change/"


def test_a_whole_token_is_shown_once_when_it_is_made_and_only_its_ends_afterwards(root: Client) -> None:
    person = staff(username="grace")
    made = root.post(list_of(TokenProxy) + "add/", {"user": str(person.pk)})

    token = Token.objects.get(user=person)
    assert token.key in made.content.decode()
    assert "no-store" in made["Cache-Control"]
    listed, page = read(root, list_of(TokenProxy)), read(root, page_of_token(token))
    assert cells(listed, "user") == ["grace"]
    assert 'name="user"' not in page
    for html in (listed, page):
        assert f"{token.key[:4]}…{token.key[-4:]}" in html
        assert token.key[4:-4] not in html
    for other in (f"{list_of(TokenProxy)}{person.pk}/delete/", f"{list_of(TokenProxy)}{person.pk}/history/"):
        assert token.key not in read(root, other)
    assert token.key not in read(root, f"{list_of(User)}{person.pk}/delete/")


def test_no_log_and_no_message_holds_a_token(root: Client) -> None:
    person = staff(username="grace")
    root.post(list_of(TokenProxy) + "add/", {"user": str(person.pk)})
    token = Token.objects.get(user=person)
    answer = root.post(f"{list_of(TokenProxy)}{person.pk}/delete/", {"post": "yes"}, follow=True).content.decode()

    assert "The token is deleted" in answer
    assert token.key not in answer
    entries = LogEntry.objects.order_by("pk")
    assert [(entry.object_repr, entry.action_flag) for entry in entries] == [
        ("token of grace", 1),
        ("token of grace", 3),
    ]
    assert not Token.objects.exists()


def test_a_token_s_page_is_for_its_user_and_not_to_others_who_may_view_tokens() -> None:
    grace = staff("authtoken.view_tokenproxy", "authtoken.change_tokenproxy", username="grace")
    eve = staff("authtoken.view_tokenproxy", "authtoken.change_tokenproxy", username="eve")
    token = Token.objects.create(user=grace)

    assert token.key[-4:] in read(signed_in(grace), page_of_token(token))
    curious = signed_in(eve)
    assert token.key not in read(curious, list_of(TokenProxy))
    for page in ("change", "delete", "history"):
        answer = curious.get(f"{list_of(TokenProxy)}{grace.pk}/{page}/", follow=True)
        assert token.key not in answer.content.decode(), page

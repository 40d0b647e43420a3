"""What a page of the console offers to somebody, they may do: no link and no button leads to a refusal."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.test import Client
from django.urls import Resolver404, resolve, reverse

from tests.console import list_of, page_of, signed_in
from tests.listed_rows import MAKERS, people

pytestmark = pytest.mark.django_db

LINK = re.compile(r'<a\b[^>]*\bhref="(/admin/[^"]*)"')
BUTTON = re.compile(r'<form\b[^>]*method="post"[^>]*\baction="(/admin/[^"]*)"|formaction="(/admin/[^"]*)"')
ENDS_IT = {"logout"}


def client_of(role: str) -> Client:
    user = User.objects.create_user(role, is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    return signed_in(user)


@pytest.mark.slow
def test_no_link_and_no_button_leads_to_a_refusal(subtests: pytest.Subtests) -> None:
    cast = people()
    for make in MAKERS.values():
        make(cast, 0, 2)
    for role in ("Viewer", "Operator", "Editor"):
        with subtests.test(role=role):
            assert refused_to(client_of(role)) == []


def refused_to(client: Client) -> list[str]:
    """Return what a person is offered and then refused."""
    client.raise_request_exception = False  # the rows are made for lists: not every page can show them
    pages = [reverse("admin:index"), reverse("admin:help"), reverse("admin:glossary")]
    for model in admin.site._registry:
        row = model._default_manager.first() if model._meta.label_lower in MAKERS else None
        pages += [list_of(model), *([page_of(row)] if row is not None else [])]
    asked: set[str] = set()
    refused = []
    for page in pages:
        answer = client.get(page)
        if answer.status_code != 200:
            continue  # not theirs; what leads there is looked at from where it stands
        html = answer.content.decode()
        for url in map(unescape, LINK.findall(html)):
            if is_new(url, asked) and client.get(url).status_code in (403, 404):
                refused.append(f"{page} links to {url}")
        for found in BUTTON.findall(html):
            url = unescape(found[0] or found[1])
            if is_new(f"POST {url}", asked) and posted(client, url) in (403, 404, 405):
                refused.append(f"{page} has a button for {url}")
    return refused


def is_new(url: str, asked: set[str]) -> bool:
    """Whether no address of the same name was asked for yet."""
    try:
        name = resolve(re.split(r"[?#]", url.removeprefix("POST "))[0]).url_name or ""
    except Resolver404:
        name = url
    key = f"{url.startswith('POST ')} {name}"
    if name in ENDS_IT or key in asked:
        return False
    asked.add(key)
    return True


def posted(client: Client, url: str) -> int:
    with transaction.atomic():
        status: int = client.post(url.removeprefix("POST ")).status_code
        transaction.set_rollback(True)
    return status

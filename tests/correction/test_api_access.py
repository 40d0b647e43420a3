"""Nobody uses the API without signing in, and nobody more of it than they may."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.converters import IntConverter, UUIDConverter

from tests.api_client import program
from tests.console import Browser, signed_in, staff, superuser, viewer
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

METHODS = ("get", "post", "put", "patch", "delete", "head", "options")


def routes(patterns: Any = None, before: str = "/") -> Iterator[str]:
    """Every path under /api/, with something filled in for its variables."""
    for entry in get_resolver().url_patterns if patterns is None else patterns:
        path = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry.url_patterns, path)
        elif isinstance(entry, URLPattern) and path.startswith("/api/"):
            for name, converter in entry.pattern.converters.items():
                example = "1" if isinstance(converter, IntConverter) else "x"
                if isinstance(converter, UUIDConverter):
                    example = "00000000-0000-0000-0000-000000000000"
                path = re.sub(rf"<(\w+:)?{name}>", example, path)
            yield path


def test_the_walk_finds_the_routes() -> None:
    found = set(routes())

    assert {"/api/evaluations/config/", "/api/evaluations/config/x/", "/api/evaluations/costs/"} <= found
    assert not any("<" in path for path in found)


@pytest.mark.parametrize("path", sorted(routes()))
@pytest.mark.parametrize("method", METHODS)
def test_no_route_answers_an_anonymous_request(path: str, method: str) -> None:
    response = getattr(program(), method)(path)

    assert response.status_code in (401, 403)
    if method not in ("head",):
        assert response["content-type"] == "application/problem+json"
        assert response.json()["status"] == response.status_code


@pytest.mark.parametrize("path", sorted(routes()))
def test_no_route_answers_somebody_who_may_nothing(path: str) -> None:
    client = program(staff())

    for method in METHODS:
        assert getattr(client, method)(path).status_code in (403, 405), method


@pytest.mark.parametrize("path", sorted(routes()))
def test_somebody_who_may_only_view_changes_nothing(path: str) -> None:
    client = program(viewer())

    for method in ("post", "put", "patch", "delete"):
        assert getattr(client, method)(path, {}).status_code in (403, 405), method


def test_a_wrong_token_is_a_401_that_says_so() -> None:
    client = program()
    client.credentials(HTTP_AUTHORIZATION="Token nonsense")

    response = client.get("/api/evaluations/config/")

    assert response.status_code == 401
    assert response.json() == {"title": "Unauthorized", "status": 401, "detail": "Invalid token."}


def test_an_inactive_user_s_token_opens_nothing() -> None:
    user = superuser()
    client = program(user)
    user.is_active = False
    user.save()

    assert client.get("/api/evaluations/config/").status_code == 401


def test_reading_needs_the_permission_to_view_that_model_and_no_more() -> None:
    client = program(staff("correction.view_agentevaluationconfig"))

    assert client.get("/api/evaluations/config/").status_code == 200
    assert client.get("/api/evaluations/costs/").status_code == 403
    assert client.put("/api/evaluations/config/", {}).status_code == 403


def test_somebody_signed_in_to_the_console_may_use_it_but_changes_need_the_page_s_csrf_token() -> None:
    make_agent("ada")
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(superuser())

    assert browser.get("/api/evaluations/config/ada/").status_code == 200
    refused = browser.patch("/api/evaluations/config/ada/", {"gate_mode": "off"}, content_type="application/json")
    assert refused.status_code == 403
    assert "CSRF" in refused.json()["detail"]


def page(client: Client, path: str) -> str:
    response = client.get(path, HTTP_ACCEPT="text/html")
    assert response["content-type"].startswith("text/html")
    return response.content.decode()


def test_a_person_can_browse_it_under_the_console_s_content_security_policy() -> None:
    make_agent("ada")

    html = page(signed_in(superuser()), "/api/evaluations/config/ada/")

    assert "Plumbline" in html
    assert "gate_adherence_enabled" in html
    inline = [tag for tag in re.findall(r"<script[^>]*>", html) if "src=" not in tag]
    assert all('type="application/json"' in tag for tag in inline)  # data, which the policy does not stop
    assert not re.search(r"\son\w+=", html)
    assert "http://" not in re.sub(r"https?://testserver", "", html).replace("http://www.w3.org", "")


def test_a_person_who_is_not_signed_in_is_shown_where_to() -> None:
    html = page(Browser(), "/api/evaluations/config/")

    assert "/admin/login/?next=/api/evaluations/config/" in html

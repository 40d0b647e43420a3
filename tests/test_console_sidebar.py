"""The sidebar says where one is: one entry, the nearest."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import RequestFactory
from django.urls import reverse

from agents.console.home import navigation
from tests.console import superuser

pytestmark = pytest.mark.django_db


def marked(user: User, path: str) -> list[str]:
    request = RequestFactory().get(path)
    request.user = user
    return [item["title"] for group in navigation(request) for item in group["items"] if item["active"]]


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("evaluation_drift_overview", ["Drift overview"]),
        ("evaluation_baseline_changelist", ["Baselines"]),
        ("evaluation_baseline_help", ["Baselines"]),
        ("glossary", ["Glossary"]),
        ("help", ["Help"]),
        ("agents_agent_add", ["Agents"]),
        ("index", []),
    ],
)
def test_one_entry_is_marked_the_one_whose_page_it_is(name: str, entry: list[str]) -> None:
    assert marked(superuser(), reverse(f"admin:{name}")) == entry

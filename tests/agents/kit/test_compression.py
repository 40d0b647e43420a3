"""Pages are compressed where the browser takes it; what programs read is sent as it is."""

from __future__ import annotations

import gzip

import pytest
from django.test import Client
from django.urls import reverse

from agents.models import Agent
from tests.console import list_of
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

TAKES = {"accept-encoding": "gzip"}


def test_a_page_of_the_console_is_compressed(root: Client) -> None:
    make_agent("pam", display_name="Pamela")
    answer = root.get(list_of(Agent), headers=TAKES)

    assert answer["Content-Encoding"] == "gzip"
    assert "Pamela" in gzip.decompress(answer.content).decode()
    assert len(answer.content) < len(root.get(list_of(Agent)).content) / 4


def test_files_and_json_are_not(root: Client) -> None:
    make_agent()
    for url in (reverse("admin:agents_message_export", args=["csv"]), "/api/agents/"):
        answer = root.get(url, headers={**TAKES, "accept": "application/json"})
        assert answer.status_code == 200
        assert not answer.has_header("Content-Encoding")

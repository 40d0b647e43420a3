"""What people look for in a log: set in the address, shown above the list, taken off with a click."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from agents.kit.models import LLMCall, WorkerHeartbeat
from agents.models import Message, Run
from tests.console import HOSTILE, list_of, plain, read
from tests.evaluation.judged import cells
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def chips(html: str) -> dict[str, str]:
    """The filters in effect, with the address of the list without each."""
    found = re.findall(r'<a class="pl-filter" href="(.*?)".*?>(.*?)</a>', html, flags=re.S)
    return {plain(label).removeprefix("Remove filter ").removesuffix(" ×"): unescape(url) for url, label in found}


def test_messages_are_found_by_their_tags(root: Client) -> None:
    channel = make_channel()
    for text, tags in (("a", {"build": "41"}), ("b", {"build": "4"}), ("c", {"locale": "41"}), ("d", {})):
        say(channel, "X", text, tags=tags)

    def found(tag: str) -> list[str]:
        return sorted(cells(read(root, list_of(Message, f"?tag={tag}")), "text"))

    assert found("build%3D41") == ["a"]
    assert found("build") == ["a", "b"]
    assert found("build%3D") == []
    assert found("nothing%3D41") == []
    assert found("") == ["a", "b", "c", "d"]
    assert found("%3D41") == found("41%3Dx") == found("b%22uild%3D41") == []


def test_rows_with_an_error_are_found(root: Client) -> None:
    ada = make_agent()
    Run.objects.create(agent=ada, status="errored", error="ValueError: x", prompt="broken")
    Run.objects.create(agent=ada, status="completed", prompt="whole")

    assert cells(read(root, list_of(Run, "?error=yes")), "answers") == ["broken"]
    assert cells(read(root, list_of(Run, "?error=no")), "answers") == ["whole"]


def test_calls_are_found_by_range_of_days(root: Client) -> None:
    fields = {"role": "judge", "provider": "anthropic", "model": "m", "status": "ok"}
    old = LLMCall.objects.create(purpose="old", **fields)
    LLMCall.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=9))
    LLMCall.objects.create(purpose="new", **fields)
    yesterday = timezone.localdate() - timedelta(days=1)

    assert cells(read(root, list_of(LLMCall, f"?created_at_from={yesterday}")), "what") == ["new judge"]
    assert cells(read(root, list_of(LLMCall, f"?created_at_to={yesterday}")), "what") == ["old judge"]


def test_filters_in_effect_stand_above_the_list_and_can_each_be_removed(root: Client) -> None:
    ada = make_agent()
    Run.objects.create(agent=ada, status="errored", error="x")
    query = f"?status__exact=errored&agent__id__exact={ada.pk}&error=yes&created_at_from=2026-01-02&attempt__gte=0"
    found = chips(read(root, list_of(Run, query)))

    assert list(found) == [
        *("status errored", "error has an error", "agent Ada", "created at from 2 Jan 2026", "attempt gte 0")
    ]
    without = found["error has an error"]
    assert "error=" not in without
    assert chips(read(root, list_of(Run) + without)).keys() == found.keys() - {"error has an error"}
    assert chips(read(root, list_of(Run))) == {}


def test_related_rows_are_searched_by_name_however_many_there_are(root: Client) -> None:
    agents = [make_agent(f"agent-{number}") for number in range(5)]
    for agent in agents:
        Run.objects.create(agent=agent, prompt=agent.slug)
    html = read(root, list_of(Run, f"?agent__id__exact={agents[1].pk}&error=no"))

    assert cells(html, "answers") == ["agent-1"]
    assert 'data-ajax--url="/admin/autocomplete/"' in html
    assert f'<option value="{agents[1].pk}" selected>' in html
    assert f'<option value="{agents[2].pk}"' not in html


def test_hostile_filters_are_shown_as_text_or_refused(root: Client) -> None:
    make_agent()
    Run.objects.create(agent=make_agent("bob"))
    html = read(root, list_of(Run, f"?tag={HOSTILE}&error={HOSTILE}"))

    assert "<script>alert" not in html
    for query in ("?tag=build%3D%00", "?status__exact=%00", "?%00=1"):
        assert root.get(list_of(Run, query))["Location"] == list_of(Run)
    for key in ("abc", "9" * 30):
        assert root.get(list_of(Run, f"?agent__id__exact={key}"))["Location"] == list_of(Run, "?e=1")
    assert root.get(list_of(WorkerHeartbeat, "?host=%00"))["Location"] == list_of(WorkerHeartbeat)

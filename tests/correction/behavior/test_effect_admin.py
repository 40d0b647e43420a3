"""The panel on a request's page that asks whether it changed anything."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from correction.behavior.effects import work_one
from correction.behavior.models import BehaviorEffect, BehaviorRequest
from tests.console import page_of, plain, queries, read, signed_in, staff, superuser, viewer
from tests.correction.behavior.changed import Changed
from tests.correction.behavior.measured import reads
from tests.correction.behavior.proposals import proposed
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
QUESTION = "Did it change anything?"


@pytest.fixture
def row(changed: Changed) -> BehaviorRequest:
    return changed()


def measure_url(row: BehaviorRequest) -> str:
    return reverse("admin:behavior_behaviorrequest_measure", args=[row.pk])


def press(client: Client, row: BehaviorRequest, **data: Any) -> str:
    answer = client.post(measure_url(row), data, follow=True)
    assert answer.status_code == 200
    return plain(answer.content.decode())


def test_the_button_queues_it_and_the_page_shows_what_came_out(row: BehaviorRequest) -> None:
    client = signed_in(superuser())
    page = plain(read(client, page_of(row)))
    assert QUESTION in page
    assert "3 before, 3 of 10 messages since not yet: 3 of 10 messages since" in page
    assert "Costs 6 calls, unpriced for 10 messages before and after" in page
    assert QUESTION not in plain(read(client, page_of(proposed(make_agent("bob"))))), "nothing was changed by it"

    page = press(client, row, messages="3")
    effect = BehaviorEffect.objects.get()
    assert f"Evaluation {effect.pk} is queued" in page
    assert (effect.messages, effect.requested_by is not None) == (3, True)
    assert measure_url(row) not in read(client, page_of(row)), "one at a time"
    assert "Nothing was changed" in press(client, row)
    work_one(owner="w")
    html = read(client, page_of(row))
    page = plain(html)
    assert "As requested: more of it was asked for, the agent does more of it since." in page
    assert re.search(r"\+9\.00 \(95 % interval \+\d\.\d\d to \+9\.00 if messages are independent\)", page)
    assert "6 calls, unpriced" in page
    assert measure_url(row) in html


def test_the_offline_judge_has_a_badge_and_unscored_counts(row: BehaviorRequest, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    client = signed_in(superuser())
    assert "Asks the judge on this machine, which costs nothing." in plain(read(client, page_of(row)))
    press(client, row, messages="3")
    work_one(owner="w")
    page = plain(read(client, page_of(row)))
    assert page.count("heuristic") >= 2
    assert "the judge scored none of 6 messages" in page
    assert "Unscored 6 needs an LLM judge" in page
    assert "Mean before –" in page


def test_who_may_not_ask_for_evaluations_sees_no_button(row: BehaviorRequest) -> None:
    html = read(signed_in(viewer()), page_of(row))
    assert QUESTION in plain(html)
    assert measure_url(row) not in html
    measurer = signed_in(staff("behavior.view_behaviorrequest", "evaluation.add_evaluationrun"))
    assert measure_url(row) in read(measurer, page_of(row))


def test_more_messages_and_results_take_no_more_queries(changed: Changed, llm_server: LLMServer) -> None:
    row, client = changed(since=1), signed_in(superuser())
    llm_server.respond = reads
    press(client, row, messages="1")
    work_one(owner="w")
    few = len(queries(client, page_of(row)))
    for _ in range(3):
        press(client, row, messages="3")
        work_one(owner="w")
    assert len(queries(client, page_of(row))) == few

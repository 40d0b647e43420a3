"""Schedules in the console: made, changed, fired and paused in forms."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluation.models import EvaluationRun, EvaluationSchedule
from tests.console import list_of, page_of, read
from tests.evaluation.change.drift.scheduling import make_schedule
from tests.evaluation.conftest import PropositionFolder
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def form(**fields: Any) -> dict[str, Any]:
    return {
        "name": "nightly",
        "is_active": "on",
        "window": "24h",
        "where": "{}",
        "samples": "20",
        "judge": "",
        "every": "1d",
        "drift_limit": "0.8",
        "next_at_0": "2026-11-23",
        "next_at_1": "03:00:00",
        "_save": "1",
        **fields,
    }


def post(client: Client, url: str, data: dict[str, Any]) -> str:
    return client.post(url, data, follow=True).content.decode()


def act(client: Client, row: Model, action: str) -> str:
    return post(client, list_of(type(row)), {"action": action, "confirmed": "1", "_selected_action": [row.pk]})


ADD = "admin:evaluation_evaluationschedule_add"


def test_a_schedule_is_made_in_a_form(root: Client) -> None:
    ada = make_agent("ada")

    post(
        root,
        reverse(ADD),
        form(every="6h", dimensions=["adherence", "fluency"], agents=[ada.pk], where='{"build": "41"}'),
    )

    schedule = EvaluationSchedule.objects.get()
    assert (schedule.every_minutes, schedule.dimensions, schedule.where) == (
        360,
        ["adherence", "fluency"],
        {"build": "41"},
    )
    assert list(schedule.agents.all()) == [ada]
    assert 'value="6h"' in read(root, page_of(schedule))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"every": "daily"}, "allowed: minutes, hours, days or weeks such as 30m, 6h, 1d, 1w; from 5m to 366d"),
        ({"window": "soon"}, "is not understood; allowed: all, last:N"),
        ({"dimensions": ["charm"]}, "charm is not one of the available choices"),
        ({"where": '{"build": 41}'}, "Tags are pairs of texts"),
        ({"name": "taken"}, "There is a schedule of this name"),
    ],
)
def test_a_form_that_cannot_be_measured_says_what_is_allowed(
    root: Client, fields: dict[str, Any], message: str
) -> None:
    """Other values: `test_schedule_fields`."""
    schedule = make_schedule("taken")

    assert message in post(root, reverse(ADD), form(**fields))
    assert EvaluationSchedule.objects.count() == 1
    if fields.keys() != {"name"}:
        again = post(root, page_of(schedule), form(**fields))
        assert message in again
        assert "Nothing yet." in again, "what is stored stands below the form"


@pytest.mark.parametrize("nothing", ["", "null"])
def test_no_tags_are_those_of_every_message(root: Client, nothing: str) -> None:
    schedule = make_schedule("nightly")
    EvaluationSchedule.objects.update(where={"build": "41"})

    post(root, page_of(schedule), form(where=nothing))

    schedule.refresh_from_db()
    assert schedule.where == {}


def test_fire_now_pause_and_resume(root: Client, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    schedule = make_schedule("nightly", make_agent("ada"), due=timezone.now() + timedelta(days=3))

    assert "nightly: 1 evaluation queued." in act(root, schedule, "fire")
    assert "ada skipped" in act(root, schedule, "fire")
    act(root, schedule, "pause")
    schedule.refresh_from_db()
    paused = schedule.is_active
    act(root, schedule, "resume")
    schedule.refresh_from_db()
    assert (paused, schedule.is_active) == (False, True)
    assert EvaluationRun.objects.count() == 1

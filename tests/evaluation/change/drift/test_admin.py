"""Schedules, alerts and the drift of an agent in the console."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agents.alerts.models import Alert
from agents.models import Agent
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs import schedules
from tests.console import drawn, list_of, page_of, plain, queries, read, signed_in, staff, viewer
from tests.declaring import declare
from tests.evaluation.change.drift.scheduling import DAY, make_schedule, measured_day
from tests.evaluation.change.measured import imported
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import LLM, OFFLINE, cells
from tests.factories import MONDAY, make_agent, talk

pytestmark = pytest.mark.django_db

HOSTILE = "<img src=x onerror=alert(1)>"


def fallen(slug: str = "ada", name: str = "nightly") -> tuple[EvaluationSchedule, Agent]:
    """An agent whose scores fell, with the alert."""
    agent = make_agent(slug)
    talk(agent, ["hello"])
    schedule = make_schedule(name, agent, due=MONDAY + 999 * DAY)
    for day in range(18):
        measured_day(schedule, agent, day, (7, 8, 7, 6 + day % 2) if day < 14 else (4, 5, 4, 3 + day % 2))
        assert schedules.work_one(owner="test")
    return schedule, agent


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


# -- schedules
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
        ({"drift_limit": "12"}, "less than or equal to 9"),
        ({"dimensions": ["charm"]}, "charm is not one of the available choices"),
        ({"where": '{"build": 41}'}, "Tags are pairs of texts"),
        ({"name": "taken"}, "There is a schedule of this name"),
    ],
)
def test_a_form_that_cannot_be_measured_says_what_is_allowed(
    root: Client, fields: dict[str, Any], message: str
) -> None:
    make_schedule("taken")

    assert message in post(root, reverse(ADD), form(**fields))
    assert EvaluationSchedule.objects.count() == 1


def test_a_refused_change_shows_the_form_again_with_what_is_stored_below(root: Client) -> None:
    schedule = make_schedule("nightly")

    html = post(root, page_of(schedule), form(window="soon"))

    assert "is not understood; allowed: all, last:N" in html
    assert "Nothing yet." in html


@pytest.mark.parametrize("nothing", ["", "null"])
def test_no_tags_are_those_of_every_message(root: Client, nothing: str) -> None:
    schedule = make_schedule("nightly")
    EvaluationSchedule.objects.update(where={"build": "41"})

    post(root, page_of(schedule), form(where=nothing))

    schedule.refresh_from_db()
    assert schedule.where == {}


def test_a_schedule_shows_what_it_measured_and_what_came_of_it(root: Client) -> None:
    schedule, _ = fallen()
    EvaluationSchedule.objects.update(last_outcome=f"0 evaluations queued; {HOSTILE}", last_fired_at=timezone.now())

    html = read(root, page_of(schedule))

    assert html.count(">evaluation ") == 18
    assert HOSTILE not in html
    assert "Nothing yet." in read(root, page_of(make_schedule("empty")))


def test_the_list_of_schedules_shows_state_timetable_and_new_alerts(root: Client) -> None:
    fallen()
    make_schedule("paused", is_active=False, window="7d", every_minutes=10080)

    html = read(root, list_of(EvaluationSchedule))

    assert cells(html, "name_and_state") == ["nightly active", "paused paused"]
    assert cells(html, "how") == ["24h every 1d alerts at 0.8 points", "7d every 1w alerts at 0.8 points"]
    assert cells(html, "new_alerts")[0] == "1"


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


def test_who_may_only_look_cannot_fire_or_change() -> None:
    schedule, agent = fallen()
    before = EvaluationRun.objects.count()
    guest = signed_in(viewer())

    act(guest, schedule, "fire")
    act(guest, DriftAlert.objects.get(), "acknowledge")

    assert EvaluationRun.objects.count() == before
    assert not Alert.objects.filter(acknowledged_at__isnull=False).exists()
    for url in (page_of(schedule), page_of(DriftAlert.objects.get()), page_of(agent), list_of(EvaluationSchedule)):
        read(guest, url)
    assert guest.get(reverse(ADD)).status_code == 403


# -- alerts
def test_an_alert_leads_to_agent_run_and_series_and_is_acknowledged(root: Client) -> None:
    _, agent = fallen()
    alert = DriftAlert.objects.get()

    page = read(root, page_of(alert))
    assert page_of(agent) in page
    assert f"{page_of(agent)}#change" in page
    assert page_of(alert.evaluation_run) in page
    assert "acknowledge the alert" in page
    assert page.count('class="pl-drift"') == 1
    assert "adherence fell from" in plain(page)

    assert "1 alert acknowledged." in act(root, alert, "acknowledge")
    assert "1 skipped: acknowledged already." in act(root, alert, "acknowledge")
    assert alert.alert_id is not None
    noted = Alert.objects.get(pk=alert.alert_id)
    assert noted.acknowledged_by is not None
    assert noted.acknowledged_by.username == "root"
    assert "acknowledge the alert" not in read(root, page_of(alert))
    assert cells(read(root, list_of(DriftAlert)), "state")[0].startswith("acknowledged")


def test_alerts_can_be_acknowledged_with_permission_and_changed_by_nobody() -> None:
    fallen()
    alert = DriftAlert.objects.get()
    keeper = signed_in(staff("change.view_driftalert", "alerts.change_alert"))

    act(keeper, alert, "acknowledge")

    assert alert.alert_id is not None
    assert Alert.objects.get(pk=alert.alert_id).acknowledged_at is not None
    assert 'name="_save"' not in read(keeper, page_of(alert))


@pytest.mark.parametrize("door", ["page", "list", "api"])
def test_a_fall_is_acknowledged_and_reopened_with_its_alert(root: Client, door: str) -> None:
    fallen()
    fall, alert = DriftAlert.objects.get(), Alert.objects.get()
    action = {"action": "acknowledge", "_selected_action": [alert.pk], "confirmed": "1", "note": "on it"}

    if door == "page":
        root.post(page_of(alert, "acknowledge_one"), {"note": "on it"})
    elif door == "list":
        root.post(list_of(Alert), action)
    else:
        root.post(f"/api/alerts/{alert.pk}/acknowledge/", {"note": "on it"}, content_type="application/json")
    fall.refresh_from_db()
    alert.refresh_from_db()
    assert (fall.acknowledged_by, fall.note) == (User.objects.get(username="root"), "on it")
    assert fall.acknowledged_at == alert.acknowledged_at

    root.post(page_of(alert, "take_back_one"))
    fall.refresh_from_db()
    assert (fall.acknowledged_at, fall.acknowledged_by, fall.note) == (None, None, "")


def test_a_fall_is_found_shown_and_acknowledged_where_nothing_sends_alerts(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, "alerting", {})
    fallen()
    fall = DriftAlert.objects.get()
    assert (fall.alert_id, Alert.objects.count()) == (None, 0)
    assert "acknowledge the alert" not in read(root, page_of(fall))

    assert "1 alert acknowledged." in act(root, fall, "acknowledge")
    assert "1 skipped: acknowledged already." in act(root, fall, "acknowledge")
    assert cells(read(root, list_of(DriftAlert)), "state")[0].startswith("acknowledged")


# -- charts
def test_an_agents_page_draws_alerts_and_scores_by_time_of_their_messages(root: Client) -> None:
    _, agent = fallen()

    html = read(root, page_of(agent))
    (chart,) = drawn(html[html.index('id="drift"') :].split("</section>")[0])

    assert len({point["x"] for point in chart["datasets"][0]["data"]}) == 18 * 4
    assert "72 messages" in plain(html)
    assert "--pl-bad" in [marker["colour"] for marker in chart["markers"]]
    assert "adherence fell from" in plain(html)


def test_judges_never_share_a_line(root: Client) -> None:
    agent = make_agent("ada")
    imported(agent, [7, 6, 7])
    imported(agent, [2, None, 2], judge=OFFLINE)

    html = read(root, page_of(agent))
    charts = drawn(html[html.index('id="drift"') :].split("</section>")[0])

    assert [[point["y"] for point in chart["datasets"][0]["data"]] for chart in charts] == [[7, 6, 7], [2, None, 2]]
    assert "1 unscored" in plain(html)


def test_an_agent_that_was_never_measured_has_the_button_for_it(root: Client) -> None:
    html = read(root, page_of(make_agent("ada")))
    section = html[html.index('id="drift"') :].split("</p>")[0]

    assert "was measured yet" in plain(section)
    assert "Evaluate now" in plain(section)
    assert "Evaluate now" not in plain(read(signed_in(viewer()), page_of(Agent.objects.get())))


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_the_rows(root: Client) -> None:
    schedule, agent = fallen()
    urls = [
        list_of(EvaluationSchedule),
        list_of(DriftAlert),
        page_of(schedule),
        page_of(agent),
        page_of(DriftAlert.objects.get()),
    ]
    before = {url: len(queries(root, url)) for url in urls}
    for number in range(3):
        more = make_schedule(f"more-{number}", agent, make_agent(f"agent-{number}"), due=MONDAY + 999 * DAY)
        for day in range(18, 24):
            for one in (schedule, more):
                measured_day(one, agent, day, (4, 5, 4))
                schedules.work_one(owner="test")
    alert = DriftAlert.objects.get()
    for run in EvaluationRun.objects.all()[:3]:
        DriftAlert.objects.create(
            schedule=schedule, agent=agent, dimension="fluency", judge=LLM, procedure="plumbline", evaluation_run=run,
            since=alert.since, before=7, after=4,
        )  # fmt: skip

    after = {url: queries(root, url) for url in urls}
    assert {url: len(found) for url, found in after.items()} == before, "\n".join(after[urls[3]])

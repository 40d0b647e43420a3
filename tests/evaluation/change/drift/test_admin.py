"""Schedules in the console's forms; falls: where they are shown, who acknowledges them, and how an agent's scores are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from agents.alerts.models import Alert
from agents.models import Agent
from agents.personas.persona import save_persona
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs import schedules
from tests.console import drawn, list_of, page_of, plain, queries, read, signed_in, staff, tab_of, viewer
from tests.declaring import declare
from tests.evaluation.change.drift.scheduling import DAY, fallen, make_schedule, measured_day
from tests.evaluation.change.measured import imported, scored
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import LLM, OFFLINE, cells
from tests.factories import MONDAY, make_agent
from tests.once import rows_for_all

pytestmark = pytest.mark.django_db

HOSTILE = "<img src=x onerror=alert(1)>"
DAYS = 18


@pytest.fixture(scope="module", autouse=True)
def _fallen(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with rows_for_all(django_db_blocker, SCORE_MIN_JUDGEMENTS=1, SCORE_MIN_COVERAGE=0.0):
        fallen()
        yield


@pytest.fixture
def nightly() -> EvaluationSchedule:
    return EvaluationSchedule.objects.get(name="nightly")


@pytest.fixture
def ada() -> Agent:
    return Agent.objects.get(slug="ada")


@pytest.fixture
def fall() -> DriftAlert:
    return DriftAlert.objects.get()


def act(client: Client, row: Model, action: str) -> str:
    chosen = {"action": action, "confirmed": "1", "_selected_action": [row.pk]}
    return client.post(list_of(type(row)), chosen, follow=True).content.decode()


# -- schedules
def form(**fields: Any) -> dict[str, Any]:
    return {
        "name": "weekly",
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


ADD = "admin:evaluation_evaluationschedule_add"


def test_a_schedule_is_made_in_a_form(root: Client) -> None:
    bob = make_agent("bob")

    post(
        root,
        reverse(ADD),
        form(every="6h", dimensions=["adherence", "fluency"], agents=[bob.pk], where='{"build": "41"}'),
    )

    schedule = EvaluationSchedule.objects.get(name="weekly")
    assert (schedule.every_minutes, schedule.dimensions, schedule.where) == (
        360,
        ["adherence", "fluency"],
        {"build": "41"},
    )
    assert list(schedule.agents.all()) == [bob]
    assert 'value="6h"' in read(root, page_of(schedule))


@pytest.mark.parametrize("typed", ["season: winter", '{"season": "winter"}'])
def test_background_is_typed_as_yaml_or_json_and_kept_by_a_form_sent_back_as_it_was(root: Client, typed: str) -> None:
    post(root, reverse(ADD), form(additional_context=typed))
    schedule = EvaluationSchedule.objects.get(name="weekly")
    shown = root.get(page_of(schedule)).context["adminform"].form["additional_context"].value()
    post(root, page_of(schedule), form(additional_context=shown, samples="7"))

    schedule.refresh_from_db()
    assert (schedule.additional_context, schedule.samples) == ({"season": "winter"}, 7)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"every": "daily"}, "allowed: minutes, hours, days or weeks such as 30m, 6h, 1d, 1w; from 5m to 366d"),
        ({"window": "soon"}, "is not understood; allowed: all, last:N"),
        ({"dimensions": ["charm"]}, "charm is not one of the available choices"),
        ({"where": '{"build": 41}'}, "Tags are pairs of texts"),
        ({"additional_context": "winter"}, "expected a mapping"),
        ({"name": "taken"}, "There is a schedule of this name"),
    ],
)
def test_a_form_that_cannot_be_measured_says_what_is_allowed(
    root: Client, fields: dict[str, Any], message: str
) -> None:
    """Other values: `test_schedule_fields`."""
    schedule = make_schedule("taken")

    assert message in post(root, reverse(ADD), form(**fields))
    assert EvaluationSchedule.objects.count() == 2
    if fields.keys() != {"name"}:
        again = post(root, page_of(schedule), form(**fields))
        assert message in again
        assert "Nothing yet." in again, "what is stored stands below the form"


@pytest.mark.parametrize("nothing", ["", "null"])
def test_no_tags_are_those_of_every_message(root: Client, nothing: str) -> None:
    schedule = make_schedule("weekly")
    EvaluationSchedule.objects.filter(pk=schedule.pk).update(where={"build": "41"})

    post(root, page_of(schedule), form(where=nothing))

    schedule.refresh_from_db()
    assert schedule.where == {}


def test_fire_now_pause_and_resume(root: Client, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    schedule = make_schedule("weekly", make_agent("bob"), due=timezone.now() + timedelta(days=3))

    assert "weekly: 1 evaluation queued." in act(root, schedule, "fire")
    assert "Bob skipped" in act(root, schedule, "fire")
    act(root, schedule, "pause")
    schedule.refresh_from_db()
    paused = schedule.is_active
    act(root, schedule, "resume")
    schedule.refresh_from_db()
    assert (paused, schedule.is_active) == (False, True)
    assert EvaluationRun.objects.filter(schedule=schedule).count() == 1


def section(html: str) -> str:
    return html[html.index('id="drift"') :].split("</section>")[0]


# -- what was measured
def test_a_schedule_shows_what_it_measured_and_what_came_of_it(root: Client, nightly: EvaluationSchedule) -> None:
    EvaluationSchedule.objects.update(last_outcome=f"0 evaluations queued; {HOSTILE}", last_fired_at=timezone.now())

    html = read(root, page_of(nightly))

    assert html.count(">evaluation ") == DAYS
    assert HOSTILE not in html


def test_the_list_of_schedules_shows_state_timetable_and_new_alerts(root: Client) -> None:
    make_schedule("paused", is_active=False, window="7d", every_minutes=10080)

    html = read(root, list_of(EvaluationSchedule))

    assert cells(html, "name_and_state") == ["nightly active", "paused paused"]
    assert cells(html, "how") == ["24h every 1d alerts at 0.8 points", "7d every 1w alerts at 0.8 points"]
    assert cells(html, "new_alerts")[0] == "1"


def test_who_may_only_look_cannot_fire_or_change(nightly: EvaluationSchedule, ada: Agent, fall: DriftAlert) -> None:
    guest = signed_in(viewer())

    act(guest, nightly, "fire")
    act(guest, fall, "acknowledge")

    assert EvaluationRun.objects.count() == DAYS
    assert not Alert.objects.filter(acknowledged_at__isnull=False).exists()
    for url in (page_of(nightly), page_of(fall), page_of(ada), list_of(EvaluationSchedule)):
        read(guest, url)
    assert guest.get(reverse("admin:evaluation_evaluationschedule_add")).status_code == 403


def test_a_fall_leads_to_agent_run_and_series_and_is_acknowledged(root: Client, ada: Agent, fall: DriftAlert) -> None:
    page = read(root, page_of(fall))
    assert page_of(ada) in page
    assert f"{page_of(ada)}#change" in page
    assert page_of(fall.evaluation_run) in page
    assert "acknowledge the alert" in page
    assert page.count('class="pl-drift"') == 1
    assert "adherence fell from" in plain(page)

    assert "1 alert acknowledged." in act(root, fall, "acknowledge")
    assert "1 skipped: acknowledged already." in act(root, fall, "acknowledge")
    noted = Alert.objects.get()
    assert noted.acknowledged_by is not None
    assert noted.acknowledged_by.username == "root"
    assert "acknowledge the alert" not in read(root, page_of(fall))
    assert cells(read(root, list_of(DriftAlert)), "state")[0].startswith("acknowledged")


def test_falls_can_be_acknowledged_with_permission_and_changed_by_nobody(fall: DriftAlert) -> None:
    keeper = signed_in(staff("change.view_driftalert", "alerts.change_alert"))

    act(keeper, fall, "acknowledge")

    assert Alert.objects.get().acknowledged_at is not None
    assert 'name="_save"' not in read(keeper, page_of(fall))


def test_a_fall_is_acknowledged_and_reopened_with_its_alert(root: Client, fall: DriftAlert) -> None:
    alert = Alert.objects.get()

    root.post(page_of(alert, "acknowledge_one"), {"note": "on it"})

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
    fallen("bob", "weekly")
    fall = DriftAlert.objects.get(agent__slug="bob")
    assert (fall.alert_id, Alert.objects.count()) == (None, 1)
    assert "acknowledge the alert" not in read(root, page_of(fall))

    assert "1 alert acknowledged." in act(root, fall, "acknowledge")
    assert "1 skipped: acknowledged already." in act(root, fall, "acknowledge")
    assert "acknowledged" in "".join(cells(read(root, list_of(DriftAlert)), "state"))


# -- charts
def test_an_agents_page_draws_alerts_and_scores_by_time_of_their_messages(root: Client, ada: Agent) -> None:
    html = read(root, tab_of(ada, "history"))
    (chart,) = drawn(section(html))

    assert len({point["x"] for point in chart["datasets"][0]["data"]}) == DAYS * 4
    assert f"{DAYS * 4} messages" in plain(html)
    assert "--pl-bad" in [marker["colour"] for marker in chart["markers"]]
    assert "adherence fell from" in plain(html)


def test_numbers_at_a_chart_name_their_evaluation_so_that_a_table_may_say_others(
    root: Client, ada: Agent, fall: DriftAlert
) -> None:
    page = section(read(root, tab_of(ada, "history")))

    assert f"adherence fell from 7.2 to 4.2, noticed in evaluation {fall.evaluation_run_id}" in plain(page)
    assert "<meter" not in page


def test_judges_never_share_a_line(root: Client) -> None:
    agent = make_agent("bob")
    imported(agent, [7, 6, 7])
    imported(agent, [2, None, 2], judge=OFFLINE)

    html = section(read(root, tab_of(agent, "history")))

    assert [[point["y"] for point in chart["datasets"][0]["data"]] for chart in drawn(html)] == [
        [7, 6, 7],
        [2, None, 2],
    ]
    assert "1 unscored" in plain(html)


def test_builds_persona_edits_and_alerts_are_marked_with_links(root: Client, ada: Agent, fall: DriftAlert) -> None:
    bob = make_agent("bob")
    for days, build, score in ((9, "40", 8), (6, "40", None), (3, "41", 2), (2, "41", 2)):
        scored(bob, score, days_ago=days, build=build)
    bob.system_prompt = "You are Bob, who jokes."
    save_persona(agent=bob, traits=[], note=f"jokes {HOSTILE}")
    html = section(read(root, tab_of(bob, "history")))
    markers = drawn(html)[0]["markers"]

    assert [marker["name"] for marker in markers if marker["name"]] == ["build 40", "build 41"]
    assert "--pl-accent" in [marker["colour"] for marker in markers]
    assert "build 41: first message" in plain(html)
    assert "Bob: persona version 2, jokes" in plain(html)
    assert f'href="{reverse("admin:agents_agent_versions", args=[bob.pk])}?before=3"' in html
    assert f'href="{page_of(fall)}"' in section(read(root, tab_of(ada, "history")))
    assert HOSTILE not in html


def test_a_point_leads_to_its_message_for_those_who_may_read_it(root: Client, ada: Agent) -> None:
    message = ada.messages.latest("sent_at")
    blind = staff("change.view_baseline", "agents.view_agent", "evaluation.view_evaluationrun", username="blind")

    assert points(read(root, tab_of(ada, "history")))[-1].endswith(
        f"/transcript/?at={message.position}#m{message.position}"
    )
    assert set(points(read(signed_in(blind), tab_of(ada, "history")))) == {""}


def points(html: str) -> list[str]:
    """The addresses behind the points that are drawn."""
    charts = [dataset["data"] for dataset in drawn(section(html))[0]["datasets"]]
    return [point.get("url", "") for data in charts for point in data if "text" in point]


def test_an_agent_that_was_never_measured_has_the_button_for_it(root: Client) -> None:
    bob = make_agent("bob")
    shown = plain(section(read(root, tab_of(bob, "history"))))

    assert "was measured yet" in shown
    assert "Evaluate now" in shown
    assert "Evaluate now" not in plain(section(read(signed_in(viewer()), tab_of(bob, "history"))))


def test_the_number_of_queries_does_not_grow_with_the_rows(
    root: Client, nightly: EvaluationSchedule, ada: Agent, fall: DriftAlert
) -> None:
    urls = [
        list_of(EvaluationSchedule),
        list_of(DriftAlert),
        page_of(nightly),
        page_of(ada),
        tab_of(ada, "history"),
        page_of(fall),
    ]
    before = {url: len(queries(root, url)) for url in urls}
    for number in range(2):
        more = make_schedule(f"more-{number}", ada, make_agent(f"agent-{number}"), due=MONDAY + 999 * DAY)
        for day in range(DAYS, DAYS + 3):
            for schedule in (nightly, more):
                measured_day(schedule, ada, day, (4, 5, 4))
                schedules.work_one(owner="test")
    for run in EvaluationRun.objects.all()[:3]:
        DriftAlert.objects.create(
            schedule=nightly, agent=ada, dimension="fluency", judge=LLM, procedure="plumbline", evaluation_run=run,
            since=fall.since, before=7, after=4,
        )  # fmt: skip

    after = {url: queries(root, url) for url in urls}
    assert {url: len(found) for url, found in after.items()} == before, "\n".join(after[urls[3]])

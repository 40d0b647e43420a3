"""Experiments over the API: who may start them, what is refused, their states, report and export."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel
from evaluation.experiments.measuring import judge_here
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.play import play
from evaluation.experiments.report import report
from tests.api_client import Program, program, refused
from tests.console import superuser
from tests.factories import make_agent, make_channel, talk

pytestmark = pytest.mark.django_db

URL = "/api/experiments/"
SCENARIO: dict[str, Any] = {
    "name": "small",
    "population": {"size": 4, "about": "people of one street"},
    "environments": 2,
    "agents": 2,
    "steps": [{"says": "What should the street buy together?"}],
    "arms": [{"name": "plain", "overrides": {"stages": []}}, {"name": "gated", "overrides": {"gate_mode": "enforce"}}],
    "dimensions": [{"id": "fluency"}, {"id": "convergence"}],
}


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:heuristic-1"


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


def started(client: Program, **changes: Any) -> Experiment:
    answer = client.post(URL, {"scenario": SCENARIO | changes}, format="json")
    assert answer.status_code == 201, answer.content
    experiment: Experiment = Experiment.objects.get(pk=answer.json()["id"])
    return experiment


def finished(client: Program, **changes: Any) -> Experiment:
    experiment = play(started(client, **changes))
    judge_here(experiment)
    experiment.refresh_from_db()
    report(experiment)
    experiment.refresh_from_db()
    return experiment


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"shipped": "no-such"}, {"shipped"}),
        ({"scenario": SCENARIO, "scale": 7, "colour": "red"}, {"scale", "colour"}),
        (
            {"scenario": SCENARIO | {"environments": -1, "order": "backwards", "dimensions": [{"id": "charm"}]}},
            {"scenario.environments", "scenario.order", "scenario.dimensions[0].id"},
        ),
        ({"scenario": SCENARIO | {"arms": [{"name": "a"}, {"name": "b", "overrides": {"no_such": 1}}]}}, {"scenario"}),
        ({"scenario": SCENARIO | {"title": "a\0b"}}, {"scenario.title"}),
    ],
)
def test_what_is_wrong_is_named_by_field_and_nothing_is_written(
    body: dict[str, Any], fields: set[str], client: Program
) -> None:
    errors = refused(client.post(URL, body, format="json"))

    assert set(errors) == fields
    assert not Experiment.objects.exists()
    assert not Agent.objects.filter(synthetic=True).exists()
    assert not Channel.objects.exists()


def test_states_from_playing_to_reported(client: Program) -> None:
    experiment = started(client)
    url = f"{URL}{experiment.pk}/"

    def state() -> str:
        return str(next(row["state"] for row in client.get(URL).json()["results"] if row["id"] == experiment.pk))

    assert state() == "playing"
    assert "to play" in client.get(url).json()["unfinished"]
    play(experiment)
    assert state() == "judging"
    judge_here(experiment)
    shown = client.get(url)
    assert (shown.json()["unfinished"], shown.json()["heuristic"]) == ("", True)
    assert state() == "reported"
    assert client.get(url, HTTP_IF_NONE_MATCH=shown["etag"]).status_code == 304
    assert client.post(f"{url}cancel/").json()["state"] == "reported"


def test_a_paused_one_says_why_and_resuming_queues_it(client: Program) -> None:
    experiment = started(client)
    experiment.environments.update(status=ExperimentEnvironment.Status.PAUSED_BUDGET, error="ada: 3 of 2 dollars")
    Experiment.objects.filter(pk=experiment.pk).update(paused="ada: 3 of 2 dollars")

    row = client.get(URL).json()["results"][0]
    assert (row["state"], row["paused"]) == ("paused", "ada: 3 of 2 dollars")
    assert "ada: 3 of 2 dollars" in client.get(f"{URL}{experiment.pk}/").json()["unfinished"]

    answer = client.post(f"{URL}{experiment.pk}/resume/")

    assert (answer.status_code, answer.json()["state"], answer.json()["paused"]) == (202, "playing", "")
    assert set(experiment.environments.values_list("status", flat=True)) == {"pending"}
    assert client.post(f"{URL}{experiment.pk}/cancel/").json()["state"] == "cancelled"
    refused(client.post(f"{URL}{experiment.pk}/resume/"), 409)
    assert client.get(f"{URL}{experiment.pk}/").json()["unfinished"] == "it was cancelled"


def test_the_report_is_exported_as_a_page_and_as_rows(client: Program) -> None:
    experiment = finished(client)

    page = client.get(f"{URL}{experiment.pk}/export/")
    rows = client.get(f"{URL}{experiment.pk}/export/?as=csv")

    assert page["content-type"].startswith("text/markdown")
    assert f"# Experiment {experiment.pk}" in page.content.decode()
    measures = [row["measure"] for row in csv.DictReader(io.StringIO(rows.content.decode()))]
    assert measures[:2] == ["fluency", "convergence"]
    refused(client.get(f"{URL}{experiment.pk}/export/?as=pdf"))


def test_labels_of_arms_are_no_formulas_in_rows_and_no_markup_on_the_page(client: Program) -> None:
    ada, office = make_agent("ada"), make_channel("office")
    talk(ada, ["Good day.", "The files are in order."], channel=office)
    labels = {"plain": "@all | [free](//evil.test)", "gated": "=HYPERLINK(0)"}
    arms = [arm | {"label": labels[arm["name"]]} for arm in SCENARIO["arms"]]
    forked = {"cast": ["ada"], "environments": 1, "agents": 1, "start_from": "office@2", "lab": {}, "repeats": 2}
    experiment = finished(client, **{"population": None, "dimensions": [{"id": "adherence"}], "arms": arms} | forked)

    page = client.get(f"{URL}{experiment.pk}/export/").content.decode()
    rows = client.get(f"{URL}{experiment.pk}/export/?as=csv").content.decode()

    assert [row["arm"] for row in csv.DictReader(io.StringIO(rows))] == ["'=HYPERLINK(0)"]
    assert not any(mark in page for mark in ("@all", "[free]", "=HYPER"))
    assert "free" in page


def test_starting_is_throttled_and_reading_is_not(client: Program, settings: Settings) -> None:
    settings.API_PAID_PER_MINUTE = 2
    answers = [client.post(URL, {"scenario": SCENARIO}, format="json").status_code for _ in range(3)]

    assert answers == [201, 201, 429]
    assert client.get(URL).status_code == 200
    assert Experiment.objects.count() == 2

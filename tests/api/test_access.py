"""Nobody uses the API without signing in, and nobody more of it than they may."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from pytest_django import Settings

from agents.alerts.raising import raise_alert
from evaluation.experiments.scenario import Scenario
from evaluation.experiments.starting import start_experiment
from tests.agents.debates.finished import make_debate
from tests.api.routes import EVERY_ROUTE, FOR_EVERYBODY, METHODS
from tests.api_client import Program, program
from tests.console import Browser, staff, superuser, viewer
from tests.correction.judged_drafts import make_log
from tests.evaluation.judged import make_run, make_score
from tests.factories import make_agent, make_channel, talk

pytestmark = pytest.mark.django_db
CONFIG = "/api/evaluations/config/"


def test_the_walk_finds_the_routes() -> None:
    assert {CONFIG, f"{CONFIG}x/", "/api/evaluations/costs/", *FOR_EVERYBODY} <= set(EVERY_ROUTE)
    assert not any("<" in path for path in EVERY_ROUTE)


def test_no_route_answers_who_may_not_or_fails_who_may_do_all(subtests: pytest.Subtests) -> None:
    anonymous, nobody, reader, everything = program(), program(staff()), program(viewer()), program(superuser())
    for path in EVERY_ROUTE:
        with subtests.test(path=path):
            for method in METHODS:
                response = getattr(anonymous, method)(path)
                assert response.status_code in (401, 403), method
                if method != "head" and path != "/api/docs/":  # which is a page
                    assert response["content-type"] == "application/problem+json", method
                    assert response.json()["status"] == response.status_code
                if path not in FOR_EVERYBODY or method not in ("get", "head", "options"):
                    assert getattr(nobody, method)(path).status_code in (403, 405), method
                if method in ("post", "put", "patch", "delete"):
                    assert getattr(reader, method)(path, {}).status_code in (403, 405), method
            assert everything.options(path).status_code < 500


DRAFT = {"agent": "ada", "channel": "office", "text": "Good morning."}
DEBATE = {"topic": "Should we move?", "mode": "delphi", "agents": ["ada", "bob"]}
CHECK = {"persona": "You are Ada.", "draft": "Good morning."}
EXPERIMENT = {"scenario": {
    "name": "small", "cast": ["ada", "bob"], "environments": 1, "agents": 2, "steps": [{"says": "Well?"}],
    "arms": [{"name": "a"}, {"name": "b"}], "dimensions": [{"id": "fluency"}],
}}  # fmt: skip
NEEDS = [  # route, body, what it needs beyond being signed in, and the answer
    ("evaluations/", {"agent": "ada", "dimensions": ["fluency"]}, "evaluation.add_evaluationrun", 202),
    ("evaluations/baselines/", {"agent": "ada", "dimensions": ["fluency"]}, "evaluation.add_evaluationrun", 202),
    ("evaluations/labels/", {"score": "{score}", "value": 5}, "calibration.add_scorelabel", 201),
    ("evaluations/{waiting}/cancel/", {}, "evaluation.change_evaluationrun", 200),
    ("evaluations/{failed}/resume/", {}, "evaluation.change_evaluationrun", 202),
    ("debates/", DEBATE, "debates.add_debate", 201),
    ("debates/{debate}/rounds/", {}, "debates.change_debate", 202),
    ("debates/{debate}/cancel/", {}, "debates.change_debate", 200),
    ("experiments/", EXPERIMENT, "experiments.add_experiment", 201),
    ("experiments/lab/", {"channel": "office"}, "experiments.add_experiment", 201),
    ("experiments/{experiment}/cancel/", {}, "experiments.change_experiment", 200),
    ("experiments/{experiment}/resume/", {}, "experiments.change_experiment", 202),
    ("alerts/{alert}/acknowledge/", {}, "alerts.change_alert", 200),
    ("alerts/{alert}/resolve/", {}, "alerts.change_alert", 200),
    ("alerts/acknowledge-build/", {"build": "build=41"}, "alerts.change_alert", 200),
    ("messages/send/", DRAFT, "agents.add_message", 201),
    ("quality-checks/", CHECK, "correction.add_correctionlog", 200),
    ("evaluations/correction-logs/{log}/results/fluency/mark/", {"mark": "right"}, "correction.change_gatedimensionresult", 200),
    ("evaluations/propositions/", None, "evaluation.view_evaluationscore", 200),
    ("evaluations/interventions/", None, "interventions.view_intervention", 200),
    ("evaluations/intervention-logs/", None, "interventions.view_interventionlog", 200),
]  # fmt: skip


@pytest.mark.parametrize(("route", "body", "permission", "status"), NEEDS, ids=[route for route, *_ in NEEDS])
def test_a_route_needs_one_permission_and_no_other_will_do(
    route: str, body: dict[str, Any] | None, permission: str, status: int, settings: Settings
) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"
    ada, office = make_agent("ada"), make_channel("office")
    make_agent("bob")
    office.memberships.create(agent=ada)
    talk(ada, ["Good day.", "The files are in order."])
    run = make_run(ada)
    rows = {
        "score": make_score(run, 3, raw_score=6).pk,
        "waiting": make_run(ada, status="pending").pk,
        "failed": make_run(ada, status="failed").pk,
        "debate": make_debate([]).pk,
        "log": make_log(ada, {"fluency": 2.0}).pk,
        "alert": raise_alert(kind="drift", about="a", title="x", agent=ada, build="build=41").pk,
        "experiment": start_experiment(Scenario.model_validate(EXPERIMENT["scenario"])).pk,
    }
    sent = {name: rows["score"] if value == "{score}" else value for name, value in (body or {}).items()}
    others = User.objects.create_user("others")
    others.user_permissions.set(Permission.objects.exclude(codename=permission.partition(".")[2]))

    def ask(client: Program) -> int:
        url = f"/api/{route.format(**rows)}"
        return int((client.get(url) if body is None else client.post(url, sent)).status_code)

    assert ask(program(others)) == 403
    assert ask(program(staff(permission))) == status


def test_a_wrong_token_is_a_401_that_says_so() -> None:
    client = program()
    client.credentials(HTTP_AUTHORIZATION="Token nonsense")

    response = client.get(CONFIG)

    assert response.status_code == 401
    assert response.json()["title"] == "Unauthorized"
    said = response.json()["detail"]
    assert "token is not known" in said
    assert "API tokens" in said  # where one is made


def test_an_inactive_user_s_token_opens_nothing() -> None:
    user = superuser()
    client = program(user)
    user.is_active = False
    user.save()

    assert client.get(CONFIG).status_code == 401


def test_the_root_lists_the_routes() -> None:
    listed = program(viewer()).get("/api/").json()

    assert listed["evaluations/config"].endswith(CONFIG)
    assert {"docs", "schema"} < listed.keys()
    assert {f"/api/{name}" for name in listed} <= {route.rstrip("/") for route in EVERY_ROUTE}


@pytest.mark.parametrize("path", ["/api/nowhere/", "/api/evaluations/x/y/z/"])
def test_what_is_no_route_is_a_problem_that_says_where_they_are(path: str) -> None:
    response = program(superuser()).get(path)

    assert (response.status_code, response["content-type"]) == (404, "application/problem+json")
    assert response.json()["detail"] == f"there is no route {path}; /api/ lists those there are"


@pytest.mark.parametrize(("method", "debug"), [("post", False), ("patch", True)])
def test_what_changes_something_is_told_of_a_missing_slash_and_not_redirected(
    settings: Settings, debug: bool, method: str
) -> None:
    settings.DEBUG = debug
    response = getattr(program(superuser()), method)("/api/evaluations", {}, format="json")

    assert (response.status_code, response["content-type"]) == (404, "application/problem+json")
    assert response.json()["detail"] == "there is no route /api/evaluations; did you mean /api/evaluations/?"


def test_who_sends_no_token_is_told_how_to() -> None:
    assert "send `Authorization: Token YOUR_TOKEN`" in program().get(CONFIG).json()["detail"]


def test_a_console_session_may_read_and_needs_a_csrf_token_to_change() -> None:
    make_agent("ada")
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(superuser())

    assert browser.get(f"{CONFIG}ada/").status_code == 200
    refused = browser.patch(f"{CONFIG}ada/", {"gate_mode": "off"}, content_type="application/json")
    assert refused.status_code == 403
    assert "CSRF" in refused.json()["detail"]


def test_options_of_a_route_show_users_the_bodies_they_may_send() -> None:
    shown = {
        name: program(user).options("/api/agents/").json().get("actions", {})
        for name, user in (("reader", viewer()), ("all", superuser()))
    }

    assert shown["reader"] == {}
    assert shown["all"]["POST"]["required"] == ["display_name", "system_prompt", "slug"]
    assert "version" not in shown["all"]["POST"]["properties"]  # which an answer has

"""Configurations over the API: what is in effect and why, changed field by field, refused with what is allowed."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from agents.models import Agent
from correction.config.configure import config_history, configure
from correction.config.settings import SETTINGS, resolve_config
from tests.api_client import Program, program
from tests.console import Browser, plain, signed_in, superuser
from tests.correction.gating import join, judge
from tests.correction.gating import send as send_draft
from tests.correction.ledger import price
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

ALL = "/api/evaluations/config/"
MICHAEL = f"{ALL}michael/"


@pytest.fixture
def eve() -> User:
    return superuser("eve")


@pytest.fixture
def client(eve: User) -> Program:
    make_agent("michael", display_name="Michael Scott")
    make_agent("dwight")
    return program(eve)


def michael() -> Agent:
    return Agent.objects.get(slug="michael")


def test_the_list_shows_every_agent_s_values_and_their_origins(client: Program) -> None:
    configure(agent=None, changes={"gate_fluency_threshold": 6})
    configure(agent=michael(), changes={"gate_adherence_enabled": True})

    listed = client.get(ALL).json()

    dwight, shown = listed["results"]
    assert (listed["count"], dwight["agent"], shown["agent"], shown["display_name"]) == (
        2, "dwight", "michael", "Michael Scott",
    )  # fmt: skip
    assert list(shown["config"]) == list(shown["provenance"]) == list(SETTINGS)
    assert shown["config"]["gate_adherence_enabled"] is True
    assert shown["config"]["gate_mode"] == "enforce"
    assert dwight["config"]["gate_mode"] == "off"
    assert (dwight["config"]["gate_fluency_threshold"], dwight["provenance"]["gate_fluency_threshold"]) == (
        6.0, "defaults",
    )  # fmt: skip
    assert listed["defaults"]["config"]["gate_fluency_threshold"] == 6.0
    page = client.get(shown["url"]).json()
    assert page["config"] == shown["config"]
    assert set(page["fields"]) == set(SETTINGS)
    assert page["fields"]["gate_fluency_threshold"]["allowed"] == "0 to 9 with at most 1 decimal place"


def test_patch_changes_the_fields_given_and_keeps_who_and_why_ac_7_3_4(client: Program) -> None:
    configure(agent=michael(), changes={"max_correction_attempts": 1})

    answer = client.patch(
        MICHAEL,
        {
            "gate_adherence_enabled": True,
            "gate_consistency_enabled": True,
            "gate_adherence_threshold": 6.5,
            "reason": "try",
        },
    )

    assert answer.status_code == 200
    config = answer.json()["config"]
    assert (config["gate_mode"], config["gate_adherence_threshold"], config["max_correction_attempts"]) == (
        "enforce",
        6.5,
        1,
    )
    assert resolve_config(michael()).gate_dimensions == ("adherence", "consistency")
    change = config_history(michael())[0]
    assert (change.user, change.reason) == ("eve", "try")

    inherits = client.patch(MICHAEL, {"gate_adherence_enabled": None, "gate_consistency_enabled": None}).json()
    assert (inherits["config"]["gate_mode"], inherits["provenance"]["gate_adherence_enabled"]) == ("off", "built-in")


def test_put_changes_the_defaults_for_every_agent_that_says_nothing(client: Program) -> None:
    answer = client.put(ALL, {"gate_fluency_enabled": True})

    assert answer.status_code == 200
    assert answer.json()["provenance"]["gate_fluency_enabled"] == "defaults"
    assert resolve_config(michael())["gate_fluency_enabled"] is True


def test_an_unknown_field_is_a_400_that_lists_the_allowed_ones(client: Program) -> None:
    answer = client.patch(MICHAEL, {"gate_adherance_enabled": True, "gate_fluency_enabled": True})

    assert answer.status_code == 400
    (says,) = answer.json()["errors"]["gate_adherance_enabled"]
    assert "did you mean gate_adherence_enabled" in says
    assert all(name in says for name in SETTINGS)
    assert config_history(michael()) == []
    flood = client.patch(MICHAEL, {f"gate_{n}": n for n in range(3_000)})
    assert (flood.status_code, len(flood.content) < 100_000) == (400, True)


def test_a_wrong_value_is_a_400_that_names_its_field(client: Program) -> None:
    for name, value in (("max_correction_attempts", 10**400), ("reason", "\x00")):
        answer = client.patch(MICHAEL, {"gate_fluency_enabled": True, name: value})

        assert (answer.status_code, answer["content-type"]) == (400, "application/problem+json")
        assert name in answer.json()["errors"]
    assert resolve_config(michael()).gate_is_off


def test_an_agent_that_is_none_is_a_404_with_the_nearest(client: Program) -> None:
    answer = client.get(f"{ALL}micheal/")

    assert answer.status_code == 404
    assert answer.json()["detail"] == "there is no agent 'micheal'; did you mean michael?"
    assert client.patch(f"{ALL}micheal/", {}).status_code == 404


# -- the form of the page
def form_of(page: Any) -> dict[str, str]:
    """The fields of the page's HTML form, as a browser would send them."""
    html = page.content.decode()
    html = html[html.index('id="put-object-form"') : html.index('id="put-generic-content-form"')]
    fields = {name: unescape(value) for name, value in re.findall(r'<input[^>]*name="(\w+)"[^>]*value="([^"]*)"', html)}
    for name, options in re.findall(r'<select[^>]*name="(\w+)">(.*?)</select>', html, re.S):
        chosen = re.search(r'value="([^"]*)" selected', options)
        fields[name] = unescape(chosen[1]) if chosen else ""
    return fields


def send(browser: Any, path: str, fields: dict[str, str], **headers: str) -> Any:
    body = encode_multipart(BOUNDARY, fields)
    return browser.put(path, body, content_type=MULTIPART_CONTENT, headers={"Accept": "text/html", **headers})


def test_the_form_shows_stored_values_and_changes_typed_ones(client: Program) -> None:
    agent, path = michael(), MICHAEL
    changes = {"gate_adherence_threshold": 6.5, "gate_mode": "observe", "behavior_named_requesters": ["eve", "a, b"]}
    configure(agent=agent, changes=changes)
    browser = signed_in(superuser())
    before = config_history(agent)

    fields = form_of(browser.get(path, headers={"Accept": "text/html"}))
    assert (fields["gate_adherence_threshold"], fields["gate_mode"]) == ("6.5", "observe")
    assert send(browser, path, fields).status_code == 200
    assert config_history(agent) == before  # sent as it was, it changes nothing
    page = send(browser, path, fields | {"gate_adherence_threshold": "7.5", "gate_mode": "", "reason": "tried"})

    assert page.status_code == 200
    assert form_of(page)["gate_adherence_threshold"] == "7.5"
    assert (resolve_config(michael())["gate_adherence_threshold"], resolve_config(michael())["gate_mode"]) == (
        Decimal("7.5"), "off",
    )  # fmt: skip
    assert config_history(agent)[0].reason == "tried"


def test_a_form_with_a_wrong_value_changes_nothing(client: Program) -> None:
    browser = signed_in(superuser())
    fields = form_of(browser.get(MICHAEL, headers={"Accept": "text/html"}))

    page = send(browser, MICHAEL, fields | {"gate_adherence_threshold": "12", "gate_fluency_threshold": "4"})

    assert page.status_code == 400
    typed = form_of(page)
    assert (typed["gate_adherence_threshold"], typed["gate_fluency_threshold"]) == ("12", "4")
    assert typed["etag"] == fields["etag"]
    assert "gate_adherence_threshold '12': allowed: 0 to 9" in plain(page.content.decode())
    assert config_history(michael()) == []


def test_a_form_writes_nothing_over_what_was_changed_since_it_was_opened(client: Program) -> None:
    browser = signed_in(superuser())
    fields = form_of(browser.get(MICHAEL, headers={"Accept": "text/html"}))
    client.patch(MICHAEL, {"gate_mode": "observe"})

    page = send(browser, MICHAEL, fields | {"gate_adherence_threshold": "7"})

    assert page.status_code == 412
    assert resolve_config(michael())["gate_mode"] == "observe"
    again = form_of(page)
    assert again["gate_mode"] == "observe"
    assert send(browser, MICHAEL, again | {"gate_adherence_threshold": "7"}).status_code == 200


def test_a_form_from_another_site_changes_nothing(client: Program) -> None:
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(superuser())
    page = browser.get(MICHAEL, headers={"Accept": "text/html", "Host": "testserver"})
    fields = form_of(page) | {"gate_adherence_threshold": "7"}
    token = json.loads(re.findall(r'id="drf_csrf">(.*?)</script>', page.content.decode(), re.S)[0])["csrfToken"]

    refused = send(browser, MICHAEL, fields)
    assert refused.status_code == 403
    assert "CSRF" in plain(refused.content.decode())
    own = {"Host": "testserver", "Referer": "https://testserver/", "X-CSRFToken": token}
    assert send(browser, MICHAEL, fields, **own).status_code == 200


def test_a_form_is_bounded_as_json_is(client: Program) -> None:
    browser = signed_in(superuser())

    assert send(browser, MICHAEL, {"reason": "x" * 70_000}).status_code == 413
    broken = browser.put(MICHAEL, b"--x", content_type="multipart/form-data; boundary=y")
    assert broken.status_code in (200, 400)
    assert config_history(michael()) == []


def test_gates_switched_over_the_api_act_on_the_next_message(llm_server: LLMServer) -> None:
    price()
    respond = judge({"adherence": 2, "consistency": 8})
    llm_server.respond = lambda body: {**respond(body), "usage": {"input_tokens": 1000, "output_tokens": 50}}
    michael = make_agent("michael")
    channel, client = join(michael), program(superuser())
    assert client.get(MICHAEL).json()["config"]["gate_mode"] == "off"

    client.patch(
        MICHAEL, {"gate_adherence_enabled": True, "gate_consistency_enabled": True, "gate_rules_enabled": False}
    )
    rejected = send_draft(michael, channel, "I refuse to speak.")
    client.patch(MICHAEL, {"gate_adherence_enabled": None, "gate_consistency_enabled": None})
    sent = send_draft(michael, channel, "I still refuse to speak.")

    assert (rejected.committed, rejected.outcome, sent.committed, sent.outcome) == (False, "corrected", True, "sent")
    costs = client.get("/api/evaluations/costs/?agent=michael").json()
    assert [(row["mechanism"], row["calls"], row["cost_usd"]) for row in costs["by"]["mechanism"]] == [
        ("gate", 2, 0.02)
    ]
    assert {row["dimension"]: (row["input_tokens"], row["output_tokens"]) for row in costs["by"]["dimension"]} == {
        "adherence": (1000, 50), "consistency": (1000, 50),
    }  # fmt: skip
    (log,) = client.get("/api/evaluations/correction-logs/?agent=michael").json()["results"]
    assert (log["outcome"], [d["passed"] for d in log["dimensions"]]) == ("corrected", [False, True])

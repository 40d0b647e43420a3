"""A person with a browser finds their way through the API, and changes there what they may; programs get JSON as ever."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve

from agents.personas.persona import TraitValue
from agents.swarm.models import Swarm
from correction.config.configure import configure
from tests.agents.debates.finished import make_debate
from tests.api.routes import EVERY_ROUTE
from tests.api.seeded import member, seed
from tests.api_client import program
from tests.console import HOSTILE, Browser, plain, signed_in, staff, superuser
from tests.factories import make_agent, make_channel, talk

pytestmark = pytest.mark.django_db

IN_BROWSERS = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
CONFIG = "/api/evaluations/config/"


def open_page(client: Client, path: str) -> Any:
    return client.get(path, headers={"Accept": IN_BROWSERS})


def is_file(response: Any) -> bool:
    return "attachment" in response.get("Content-Disposition", "")


def raw_form(response: Any) -> Any:
    """What the raw form of a page holds at first; None where there is no form."""
    found = re.search(r'<textarea name="_content"[^>]*>(.*?)</textarea>', response.content.decode(), re.S)
    return json.loads(unescape(found[1])) if found else None


def with_rows(path: str) -> str:
    """A path of `EVERY_ROUTE` about rows that `seed` makes."""
    names = {
        "agents": "michael",
        "config": "michael",
        "baselines": "michael",
        "channels": "general",
        "interventions": "repair",
    }
    return re.sub(r"/(\w+)/x/", lambda match: f"/{match[1]}/{names.get(match[1], 'general')}/", path)


def obeys_policy(html: str) -> bool:
    """Whether nothing in it needs more than scripts and styles of this server."""
    scripts = [tag for tag in re.findall(r"<script[^>]*>", html) if "src=" not in tag]
    sources = re.findall(r'(?:src|<link[^>]*href)="([^"]*)"', html)
    return (
        all('type="application/json"' in tag for tag in scripts)  # data, which the policy does not stop
        and not re.search(r"<[^>]*\son\w+=", html)
        and "javascript:" not in html
        and all(re.match(r"/\w|data:", source) for source in sources)
    )


def test_a_program_gets_json_unless_it_asks_for_a_page() -> None:
    client = program(superuser())
    for accept in (None, "*/*", "application/json"):
        for path in ("/api/", CONFIG, "/api/agents/nobody/"):
            response = client.get(path, headers={"Accept": accept} if accept else {})
            assert response["Content-Type"] in ("application/json", "application/problem+json"), path


@pytest.mark.slow
def test_every_route_has_a_page_for_every_role(subtests: pytest.Subtests) -> None:
    seed()
    for role in ("anonymous", "nobody", "Viewer", "Operator", "Editor", "superuser"):
        client: Client = Browser()
        if role != "anonymous":
            client.force_login(_user(role))
        with subtests.test(role=role):
            open_every_route(client, is_anonymous=role == "anonymous")


def open_every_route(client: Client, *, is_anonymous: bool) -> None:
    for path in set(EVERY_ROUTE) - {"/api/schema/"}:  # which is for programs
        response, answer = open_page(client, with_rows(path)), client.get(with_rows(path))
        assert response.status_code == answer.status_code < 500, path
        if is_file(response):
            continue
        assert response["Content-Type"].startswith("text/html"), path
        assert obeys_policy(response.content.decode()), path
        if is_anonymous:
            assert f"/admin/login/?next={with_rows(path)}" in response.content.decode(), path
            assert raw_form(response) is None, path


def test_a_form_is_offered_to_who_may_send_it() -> None:
    make_agent("ada")
    debate = make_debate([])
    for_operators = ("/api/debates/", "/api/messages/send/", f"/api/debates/{debate.pk}/cancel/")
    for_editors = ("/api/agents/", CONFIG, f"{CONFIG}ada/")
    for role in ("Viewer", "Operator", "Editor"):
        client = signed_in(member(role))
        may_act, may_edit = role != "Viewer", role == "Editor"

        assert [raw_form(open_page(client, path)) is not None for path in for_operators] == [may_act] * 3, role
        assert [raw_form(open_page(client, path)) is not None for path in for_editors] == [may_edit] * 3, role
        fields = open_page(client, f"{CONFIG}ada/").content.decode()
        assert ('name="gate_adherence_threshold"' in fields) == may_edit, role


def test_a_raw_form_holds_what_is_there_and_sent_unchanged_changes_nothing() -> None:
    ada, office = make_agent("ada", traits=[TraitValue("dry wit", "Is dry.", 0.3, 0.8)]), make_channel("office")
    office.memberships.create(agent=ada)
    swarm = Swarm.objects.create(name="meals", intents=["food_log"])
    client = Browser()
    client.force_login(superuser())
    for path in ("/api/agents/ada/", "/api/channels/office/", f"/api/swarms/{swarm.pk}/", f"{CONFIG}ada/", CONFIG):
        before, form = client.get(path), raw_form(open_page(client, path))
        for method in ("patch", "put"):
            if method.upper() not in before["Allow"]:
                continue
            response = getattr(client, method)(path, json.dumps(form), content_type="application/json")
            assert response.status_code == 200, (path, response.content)
        after = client.get(path).json()
        assert after | {"updated_at": ""} == before.json() | {"updated_at": ""}, path


def test_a_refused_form_keeps_what_was_typed_and_says_what_is_wrong() -> None:
    client = signed_in(superuser())
    sent = json.dumps({"slug": "ada", "display_name": "Ada", "system_prompt": ""})

    response = client.post("/api/agents/", sent, content_type="application/json", headers={"Accept": IN_BROWSERS})

    assert response.status_code == 400
    assert raw_form(response) == json.loads(sent)
    assert "system_prompt" in plain(response.content.decode())


def test_a_list_page_has_a_form_of_filters_that_names_no_row() -> None:
    make_agent("ada")
    make_channel("office")
    client = signed_in(staff("evaluation.view_evaluationrun"))

    page = open_page(client, "/api/evaluations/").content.decode()
    form = page[page.index("<h2>Field filters</h2>") :]

    for name in resolve("/api/evaluations/").func.cls.filterset_class.base_filters:  # type: ignore[attr-defined]  # a viewset
        assert f'name="{name}"' in form, name
    assert '<option value="fluency">' in form
    assert "ada" not in form
    assert "office" not in form
    empty = "&".join(f"{name}=" for name in ("agent", "channel", "dimension", "since"))
    assert open_page(client, f"/api/evaluations/?{empty}").status_code == 200
    refused = open_page(client, "/api/evaluations/?dimension=charm")
    assert refused.status_code == 400
    assert 'class="errorlist"' in refused.content.decode()


@pytest.mark.parametrize(
    "path", ["/api/agents/", "/api/messages/", "/api/evaluations/", CONFIG, f"{CONFIG}ada/", "/api/agents/ada/"]
)
def test_a_page_asks_the_database_hardly_more_than_the_answer(path: str) -> None:
    ada, office = make_agent("ada"), make_channel("office")
    office.memberships.create(agent=ada)
    talk(ada, ["Good day.", "The files are in order."])
    client = signed_in(superuser())

    def statements(accept: str) -> int:
        client.get(path, headers={"Accept": accept})
        with CaptureQueriesContext(connection) as seen:
            client.get(path, headers={"Accept": accept})
        return len(seen)

    assert statements(IN_BROWSERS) <= statements("*/*") + 1  # what is stored, for the forms of a configuration


def test_hostile_text_is_shown_on_pages_and_in_forms_and_never_run() -> None:
    ada = make_agent("ada", display_name=HOSTILE, system_prompt=f"</textarea>{HOSTILE}")
    configure(agent=ada, changes={"behavior_named_requesters": ['"><i>', "eve"]})
    client = signed_in(superuser())

    for path in ("/api/agents/", "/api/agents/ada/", f"{CONFIG}ada/", "/api/agents/?search=%22%3E%3Cscript%3E"):
        html = open_page(client, path).content.decode()
        assert obeys_policy(html), path
        assert "<script>" not in html
        assert '"><i>' not in html


def test_a_page_is_always_sent_whole_as_it_names_who_signed_in() -> None:
    make_agent("ada")
    client = signed_in(superuser())
    etag = client.get("/api/agents/ada/")["ETag"]

    page = client.get("/api/agents/ada/", headers={"Accept": IN_BROWSERS, "If-None-Match": etag})

    assert page.status_code == 200
    assert {"Accept", "Cookie"} <= {*page["Vary"].split(", ")}
    assert client.get("/api/agents/ada/", headers={"If-None-Match": etag}).status_code == 304


def _user(role: str) -> User:
    if role == "nobody":
        return staff()
    return superuser() if role == "superuser" else member(role)

"""Readers are spared what they have, and of two editors the second learns that there was a first."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from agents.models import Agent
from tests.api_client import Program, program
from tests.console import superuser
from tests.factories import make_agent, make_channel

DEFAULTS, ADA = "/api/evaluations/config/", "/api/evaluations/config/ada/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


@pytest.fixture
def client(ada: Agent) -> Program:
    make_channel("office")
    return program(superuser())


AGENT, CHANNEL = "/api/agents/ada/", "/api/channels/office/"
PERSONA = {"display_name": "Ada", "system_prompt": "You are Ada, a dry and careful clerk."}
CHANGES = [  # path, method, and two changes
    (DEFAULTS, "put", {"repetition_threshold": 0.4}, {"repetition_threshold": 0.5}),
    (ADA, "patch", {"repetition_threshold": 0.4}, {"repetition_threshold": 0.5}),
    (AGENT, "patch", {"title": "first"}, {"system_prompt": "Second."}),
    (AGENT, "put", {**PERSONA, "title": "first"}, {**PERSONA, "title": "second"}),
    (CHANNEL, "patch", {"agents": ["ada"]}, {"topic": "ships"}),
]


@pytest.mark.parametrize(("path", "method", "first", "second"), CHANGES)
def test_a_reader_gets_304_until_it_changes_and_a_second_editor_412(
    client: Program, path: str, method: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    etag = client.get(path)["ETag"]
    known = client.get(path, headers={"If-None-Match": etag})
    assert (known.status_code, known.content, known["ETag"]) == (304, b"", etag)

    made = getattr(client, method)(path, first, headers={"If-Match": etag})
    changed = client.get(path, headers={"If-None-Match": etag})
    mine = getattr(client, method)(path, second, headers={"If-Match": etag})
    again = getattr(client, method)(path, second, headers={"If-Match": made["ETag"]})

    assert (made.status_code, changed.status_code, again.status_code) == (200, 200, 200)
    assert changed["ETag"] != etag
    assert (mine.status_code, mine["content-type"], mine["ETag"]) == (412, "application/problem+json", made["ETag"])
    assert f"If-Match: {made['ETag']}" in mine.json()["detail"]
    assert client.get(path).json() != changed.json()


@pytest.mark.parametrize(("path", "needed"), [(AGENT, "system_prompt"), (CHANNEL, "name")])
def test_a_put_wants_what_a_new_one_needs(client: Program, path: str, needed: str) -> None:
    answer = client.put(path, {"display_name": "Ada"} if path == AGENT else {"topic": "ships"})

    assert answer.status_code == 400
    assert f"{needed} is missing" in answer.json()["errors"][needed][0]


def test_an_agent_s_etag_changes_with_the_defaults_it_inherits(client: Program) -> None:
    etag = client.get(ADA)["ETag"]
    client.put(DEFAULTS, {"repetition_threshold": 0.4})

    assert client.patch(ADA, {"gate_mode": "off"}, headers={"If-Match": etag}).status_code == 412


def test_the_defaults_may_be_changed_although_an_agent_on_the_page_was(client: Program) -> None:
    etag = client.get(DEFAULTS)["ETag"]
    client.patch(ADA, {"gate_mode": "off"})

    assert client.put(DEFAULTS, {"gate_mode": "off"}, headers={"If-Match": etag}).status_code == 200


@pytest.mark.parametrize("tag", ["nonsense", '"nonsense"', ""])
def test_what_is_no_current_etag_is_a_412(client: Program, tag: str) -> None:
    assert client.patch(ADA, {"gate_mode": "off"}, headers={"If-Match": tag}).status_code == 412


def test_if_match_may_be_a_star_several_etags_or_left_out(client: Program) -> None:
    etag = client.get(ADA)["ETag"]

    named = client.patch(ADA, {"max_correction_attempts": 3}, headers={"If-Match": f'"other", {etag}'})
    star = client.patch(ADA, {"max_correction_attempts": 4}, headers={"If-Match": "*"})
    none = client.patch(ADA, {"max_correction_attempts": 5})

    assert [named.status_code, star.status_code, none.status_code] == [200, 200, 200]


@pytest.mark.service
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("own_row", [True, False])
def test_of_two_editors_at_the_same_time_one_gets_a_412(ada: Agent, own_row: bool) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL: set DATABASE_URL")
    user = superuser()
    if own_row:
        program(user).patch(ADA, {"gate_mode": "off"})
    etag = program(user).get(ADA)["ETag"]
    start, statuses = threading.Barrier(6), []

    def edit(attempts: int) -> None:
        try:
            client = program(user)
            start.wait(10)
            changed = client.patch(ADA, {"max_correction_attempts": attempts}, headers={"If-Match": etag})
            statuses.append(changed.status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(3, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert sorted(statuses) == [200, 412, 412, 412, 412, 412]

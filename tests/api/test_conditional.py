"""Of two editors of a configuration the second is told that there was a first."""

from __future__ import annotations

import threading
from decimal import Decimal

import pytest
from django.db import connection

from agents.models import Agent
from correction.config.settings import resolve_config
from tests.api_client import Program, program
from tests.console import superuser
from tests.factories import make_agent

DEFAULTS, ADA = "/api/evaluations/config/", "/api/evaluations/config/ada/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


@pytest.fixture
def client(ada: Agent) -> Program:
    return program(superuser())


@pytest.mark.parametrize("path", [DEFAULTS, ADA])
def test_a_reader_who_has_it_gets_304_until_it_changes(client: Program, path: str) -> None:
    etag = client.get(path)["ETag"]

    known = client.get(path, headers={"If-None-Match": etag})
    client.patch(ADA, {"gate_mode": "observe"})
    changed = client.get(path, headers={"If-None-Match": etag})

    assert (known.status_code, known.content, known["ETag"]) == (304, b"", etag)
    assert changed.status_code == 200
    assert changed["ETag"] != etag


@pytest.mark.parametrize(("path", "method"), [(DEFAULTS, "put"), (ADA, "patch")])
def test_a_change_of_what_was_read_is_made_and_answers_with_the_new_etag(
    client: Program, path: str, method: str
) -> None:
    etag = client.get(path)["ETag"]

    made = getattr(client, method)(path, {"repetition_threshold": 0.4}, headers={"If-Match": etag})
    again = getattr(client, method)(path, {"repetition_threshold": 0.5}, headers={"If-Match": made["ETag"]})

    assert (made.status_code, again.status_code) == (200, 200)
    assert again.json()["config"]["repetition_threshold"] == 0.5


@pytest.mark.parametrize(("path", "method"), [(DEFAULTS, "put"), (ADA, "patch")])
def test_a_change_of_what_somebody_else_changed_is_a_412_with_the_current_etag(
    client: Program, path: str, method: str
) -> None:
    etag = client.get(path)["ETag"]
    theirs = getattr(client, method)(path, {"repetition_threshold": 0.4})["ETag"]

    mine = getattr(client, method)(path, {"repetition_threshold": 0.5}, headers={"If-Match": etag})

    assert (mine.status_code, mine["content-type"], mine["ETag"]) == (412, "application/problem+json", theirs)
    assert f"If-Match: {theirs}" in mine.json()["detail"]
    assert client.get(path).status_code == 200
    assert resolve_config(Agent.objects.get())["repetition_threshold"] == Decimal("0.4")
    assert getattr(client, method)(path, {"repetition_threshold": 0.5}, headers={"If-Match": theirs}).status_code == 200


def test_an_agent_s_etag_changes_with_the_defaults_it_inherits(client: Program) -> None:
    etag = client.get(ADA)["ETag"]
    client.put(DEFAULTS, {"repetition_threshold": 0.4})

    assert client.patch(ADA, {"gate_mode": "off"}, headers={"If-Match": etag}).status_code == 412


def test_the_defaults_may_be_changed_although_an_agent_on_the_page_was(client: Program) -> None:
    etag = client.get(DEFAULTS)["ETag"]
    client.patch(ADA, {"gate_mode": "off"})

    assert client.put(DEFAULTS, {"gate_mode": "off"}, headers={"If-Match": etag}).status_code == 200


@pytest.mark.parametrize("tag", ["nonsense", '"nonsense"', "W/nonsense", ""])
def test_what_is_no_current_etag_is_a_412(client: Program, tag: str) -> None:
    assert client.patch(ADA, {"gate_mode": "off"}, headers={"If-Match": tag}).status_code == 412


def test_any_state_will_do_with_a_star_or_without_the_header_and_several_may_be_named(client: Program) -> None:
    etag = client.get(ADA)["ETag"]

    named = client.patch(ADA, {"max_correction_attempts": 3}, headers={"If-Match": f'"other", {etag}'})
    star = client.patch(ADA, {"max_correction_attempts": 4}, headers={"If-Match": "*"})
    none = client.patch(ADA, {"max_correction_attempts": 5})

    assert [named.status_code, star.status_code, none.status_code] == [200, 200, 200]


def test_a_body_of_a_configuration_larger_than_any_is_a_413_that_says_how_large(client: Program) -> None:
    refused = client.patch(ADA, {"reason": "x" * 70_000})

    assert refused.status_code == 413
    assert refused.json()["detail"] == "the body is too large; allowed: at most 65,536 bytes"


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

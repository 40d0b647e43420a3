"""What nobody means: numbers no row has, bytes no text holds, bodies that are no object. Refused everywhere, never a server error."""

from __future__ import annotations

from base64 import b64encode

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, Message
from tests.api_client import Program, program
from tests.console import viewer
from tests.factories import say

pytestmark = pytest.mark.django_db

NUMBERED = ("agents", "channels")  # lists with numbered pages
LOGS = ("messages", "runs", "llm-calls", "agents/ada/turns", "agents/ada/versions", "channels/office/messages")
PAGES = (*NUMBERED, *LOGS, "agents/ada", "agents/ada/prompt", "channels/office")
ONES = ("messages/{}", "runs/{}", "runs/{}/trace", "llm-calls/{}", "agents/ada/versions/{}")
POSTS = ("agents", "channels", "messages", "messages/send", "agents/ada/turns")
BODIES = (  # JSON as somebody may send it, some of it no JSON at all
    *("[]", "null", "7", '"x"', "{", "", '{"a": NaN}', "[" * 200 + "]" * 200),
    *('{"slug": "\\ud800"}', '{"text": "\\u0000", "channel": "office", "agent": "ada"}', '{"\\ud800": 1}'),
    '{"channel": {"a": 1}, "agent": ["x"], "text": {"y": 2}, "slug": 1e400, "name": [], "display_name": {}}',
    '{"channel": "office\\u0000", "system_prompt": true}',
    '{"\\ud800": "\\u0000"}',
)
TWICE = (
    ('{"text": "Hello", "text": "Goodbye"}', "'text'"),
    ('{"channel": "office", "additional_context": {"mood": 1, "mood": 2}}', "'mood'"),
    ('[{"id": 1, "\\ud800": 2, "\\ud800": 3}]', "'\\ud800'"),
)
CURSORS = (
    "p=%00",
    "p=abc",
    "p=-1",
    "p=" + "9" * 40,
    "p=" + "9" * 4301,
    "p=0001-01-01T00:00:00%2B23:59",
    "o=-5",
    "o=x",
    "r=1&p=5",
)


@pytest.fixture(autouse=True)
def message(ada: Agent, office: Channel) -> Message:
    return say(office, ada, "one")


def test_an_unknown_parameter_is_a_400(client: Program, message: Message) -> None:
    for path in (*PAGES, f"messages/{message.pk}"):
        answer = client.get(f"/api/{path}/?no_such=1")
        assert answer.status_code == 400, path
        assert "there is no parameter 'no_such'" in answer.json()["detail"], path


def test_a_number_no_row_has_is_not_found(client: Program) -> None:
    for path in ONES:
        for number in ("0", "99999", str(2**63), str(10**30), "9" * 5000):
            assert client.get(f"/api/{path.format(number)}/").status_code == 404, (path, number)


def test_pages_that_nobody_gave_out_are_not_found(client: Program) -> None:
    for path in NUMBERED:
        for page in ("0", "-1", "x", "9" * 5000):
            assert client.get(f"/api/{path}/?page={page}").status_code == 404, (path, page[:9])
    for path in LOGS:
        for cursor in CURSORS:
            answer = client.get(f"/api/{path}/?cursor={b64encode(cursor.encode()).decode()}&page_size=100000")
            assert answer.status_code in (200, 404), (path, cursor)


@pytest.mark.parametrize("path", POSTS)
def test_a_body_nobody_means_is_a_400_and_changes_nothing(client: Program, path: str) -> None:
    before = (Agent.objects.count(), Channel.objects.count(), Message.objects.count())

    for body in BODIES:
        answer = client.generic("POST", f"/api/{path}/", body, content_type="application/json")
        assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json"), body
        assert answer.json()["detail"], body

    assert (Agent.objects.count(), Channel.objects.count(), Message.objects.count()) == before


def test_a_change_nobody_means_is_a_400(client: Program) -> None:
    for path in ("agents/ada", "channels/office"):
        for body in ("[]", "null", '{"title": "\\ud800"}', '{"no_such": 1}', '{"tags": 1, "traits": 1}'):
            answer = client.generic("PATCH", f"/api/{path}/", body, content_type="application/json")
            assert answer.status_code == 400, (path, body)


def test_other_types_of_bodies_are_a_415_and_other_methods_a_405(client: Program) -> None:
    for path in POSTS:
        assert client.generic("POST", f"/api/{path}/", "a=1", content_type="text/plain").status_code == 415
        assert client.delete(f"/api/{path}/").status_code == 405


def test_people_read_it_in_their_browsers(client: Program, message: Message) -> None:
    for path in (*PAGES, f"messages/{message.pk}"):
        answer = client.get(f"/api/{path}/", headers={"Accept": "text/html"})
        assert (answer.status_code, answer["Content-Type"]) == (200, "text/html; charset=utf-8"), path


def test_viewers_may_read_everything() -> None:
    reader = program(viewer())
    for path in PAGES:
        assert reader.get(f"/api/{path}/").status_code == 200, path


@pytest.mark.parametrize("path", POSTS)
def test_a_key_that_occurs_twice_is_a_400_that_names_it(client: Program, path: str) -> None:
    for body, name in TWICE:
        answer = client.generic("POST", f"/api/{path}/", body, content_type="application/json")
        assert answer.status_code == 400, body
        assert f"the key {name} occurs twice" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("agents/?is_active=1", "is_active '1': allowed: true, false"),
        ("agents/?ordering=mood", "ordering 'mood': allowed: display_name"),
        ("agents/?channel=nowhere", "there is no channel 'nowhere'; channels: office"),
        ("agents/?search=%00", "search holds a NUL character"),
        ("messages/?agent=nobody", "there is no agent 'nobody'"),
        ("messages/?user=mallory", "user 'mallory': allowed: the name of a user"),
        ("messages/?tag=build", "tag 'build': allowed: KEY=VALUE"),
        ("messages/?tag=1%27st=x", "allowed: KEY=VALUE"),
        ("messages/?since=monday", "since 'monday': allowed: a date or time"),
        ("messages/?until=9999-12-31T23:59:59-23:59", "allowed: a date or time"),
        ("messages/?synthetic=maybe", "allowed: true, false"),
        ("messages/?outsider=%00", "NUL"),
        ("runs/?status=odd", "status 'odd': allowed: pending"),
        ("runs/?stop_reason=odd", "stop_reason 'odd': allowed: "),
        ("agents/ada/turns/?since=x", "since 'x': allowed: a date or time"),
        ("llm-calls/?status=fine", "status 'fine': allowed: ok, refused"),
        ("llm-calls/?run=x", "run 'x': allowed: the id of a run"),
        ("llm-calls/?run=99999999999999999999", "allowed: the id of a run"),
        ("llm-calls/?purpose=%00", "purpose holds a NUL character"),
    ],
)
def test_a_filter_that_is_not_understood_is_a_400_that_says_what_is(client: Program, query: str, says: str) -> None:
    answer = client.get(f"/api/{query}")

    assert (answer.status_code, says in answer.json()["detail"]) == (400, True), answer.json()


@pytest.mark.parametrize(
    ("setting", "path", "body"),
    [
        ("API_PAID_PER_MINUTE", "messages", {"channel": "office", "text": "hello"}),
        ("API_SENDS_PER_MINUTE", "messages/send", {"agent": "ada", "channel": "office", "text": "hello"}),
    ],
)
def test_asking_too_often_is_a_429_and_reading_is_free(
    client: Program, settings: Settings, setting: str, path: str, body: dict[str, str]
) -> None:
    setattr(settings, setting, 1)

    assert [client.post(f"/api/{path}/", body).status_code for _ in range(2)] == [201, 429]
    assert client.get("/api/messages/").status_code == 200

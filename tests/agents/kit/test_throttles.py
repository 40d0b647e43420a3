"""Who asks too often is refused; wrong passwords and tokens cannot be tried at will; a Redis that is away costs no request."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django.core.cache.backends.redis import RedisCache
from django.test import RequestFactory
from pytest_django import Settings

from agents.kit.api import requests
from tests.api_client import Program, program
from tests.console import Browser, superuser
from tests.evaluation.judged import make_run
from tests.factories import make_agent, make_channel
from tests.machinery import Redis, free_port

URL = "/api/messages/"
SAID = {"channel": "office", "text": "Good morning."}
RIGHT = "right-and-long"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    found = Redis(tmp_path)
    found.start()
    yield found
    found.stop()


def counted_in(settings: Settings, url: str) -> None:
    shared: dict[str, Any] = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": url,
        "KEY_PREFIX": "plumbline",
        "OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5},
    }
    settings.CACHES = {"default": settings.CACHES["default"], "throttles": shared}


LIMITS = {  # by setting, the routes whose POSTs are counted together
    "API_PAID_PER_MINUTE": (
        *("messages/", "agents/ada/turns/", "evaluations/", "evaluations/baselines/", "evaluations/{run}/resume/"),
        *("behavior-requests/1/apply/", "behavior-requests/1/effect/"),
    ),
    "API_SENDS_PER_MINUTE": ("messages/send/", "quality-checks/"),
    "API_INGESTS_PER_MINUTE": ("messages/ingest/",),
    "API_TRANSCRIPTS_PER_MINUTE": ("transcripts/",),
}


@pytest.mark.django_db
@pytest.mark.parametrize("setting", LIMITS)
def test_what_costs_is_bounded_per_user_and_minute_over_all_its_routes(settings: Settings, setting: str) -> None:
    setattr(settings, setting, 1)
    client, run = program(superuser()), make_run(make_agent("ada"), status="pending")
    routes = [f"/api/{route.format(run=run.pk)}" for route in LIMITS[setting]]

    assert client.post(routes[0], {}).status_code == 400, "a mistake is counted, too"
    for route in routes:
        refused = client.post(route, {})
        assert refused.status_code == 429, route
        assert 0 < int(refused["Retry-After"]) <= 60
        assert setting in refused.json()["detail"], "which limit, and where it is set"
    assert client.get("/api/messages/").status_code == 200, "reading is free"
    assert client.post(f"/api/evaluations/{run.pk}/cancel/").status_code == 200, "and so is stopping"
    assert program(superuser("bob")).post(routes[0], {}).status_code == 400


# -- counting
@pytest.mark.service
@pytest.mark.django_db
def test_what_one_process_counted_another_knows(settings: Settings, redis: Redis) -> None:
    counted_in(settings, redis.url)
    settings.API_PAID_PER_MINUTE = 2
    make_channel("office")
    client = program(superuser())

    first = [client.post(URL, SAID).status_code for _ in range(2)]
    caches["throttles"] = RedisCache(redis.url, {"KEY_PREFIX": "plumbline"})  # as another process has it
    later = client.post(URL, SAID)

    assert (first, later.status_code) == ([201, 201], 429)
    assert int(later["Retry-After"]) > 0
    redis.stop()
    assert client.post(URL, SAID).status_code == 201
    redis.start()
    assert [client.post(URL, SAID).status_code for _ in range(3)] == [201, 201, 429], "it counts again"


@pytest.mark.django_db
def test_every_request_passes_while_redis_is_away_and_the_log_says_so(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    counted_in(settings, f"redis://127.0.0.1:{free_port()}/0")
    settings.API_PAID_PER_MINUTE = settings.WRONG_SIGN_INS_PER_MINUTE = 2
    make_channel("office")
    client = program(superuser())

    assert [client.post(URL, SAID).status_code for _ in range(4)] == [201] * 4
    assert [sign_in("nobody", "wrong").status_code for _ in range(4)] == [200] * 4
    lines = {record.getMessage() for record in caplog.records if record.name == requests.__name__}
    assert lines == {"the cache in which requests are counted does not answer (ConnectionError): this one passes"}


# -- wrong passwords
def sign_in(name: str, password: str, *, address: str = "192.0.2.7", **headers: str) -> Any:
    return Browser(REMOTE_ADDR=address).post(
        "/admin/login/?next=/admin/", {"username": name, "password": password}, headers=headers
    )


@pytest.fixture
def grace(db: None) -> User:
    return User.objects.create_superuser("grace", password=RIGHT)


def test_thirty_wrong_passwords_are_not_tried(grace: User) -> None:
    answers = [sign_in("grace", f"wrong-{n}") for n in range(30)]

    assert [answer.status_code for answer in answers] == [200] * 10 + [429] * 20
    assert 0 < int(answers[-1]["Retry-After"]) <= 60
    assert "Too many attempts" in answers[-1].content.decode()
    assert sign_in("grace", RIGHT).status_code == 429, "a right one among the guesses would be an answer"
    assert sign_in("grace", RIGHT, address="198.51.100.9").status_code == 302, "one address cannot lock a user out"


@pytest.mark.parametrize("names", [["grace"], ["GRACE", " grace", "\uff47race"]], ids=["one", "other-spellings"])
def test_guesses_from_many_addresses_count_for_the_user_name(grace: User, names: list[str], settings: Settings) -> None:
    settings.WRONG_SIGN_INS_PER_MINUTE = 3

    tried = [sign_in(names[n % len(names)], "wrong", address=f"192.0.2.{n}").status_code for n in range(17)]

    assert tried == [200] * 15 + [429] * 2


@contextmanager
def changing_threads_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("limit", [requests.SignIns, requests.WrongTokens])
def test_of_many_guesses_at_the_same_moment_no_more_pass(limit: type[requests.Throttle], settings: Settings) -> None:
    settings.WRONG_SIGN_INS_PER_MINUTE = 10
    request = RequestFactory().post("/admin/login/", {"username": "grace"})
    together = threading.Barrier(16)

    def guess(_: int) -> int:
        together.wait(timeout=30)
        return sum(limit().allow_request(request) for _ in range(20))

    with changing_threads_often(), ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(guess, range(16))) == 10


def test_guesses_for_many_users_count_for_the_address(grace: User, settings: Settings) -> None:
    settings.WRONG_SIGN_INS_PER_MINUTE = 3

    assert [sign_in(f"user-{n}", "wrong").status_code for n in range(5)] == [200] * 3 + [429] * 2
    assert sign_in("grace", RIGHT, address="198.51.100.9").status_code == 302


def test_right_sign_ins_are_never_too_many_and_leave_room_for_slips(grace: User, settings: Settings) -> None:
    settings.WRONG_SIGN_INS_PER_MINUTE = 2

    tried = [sign_in("grace", password).status_code for password in ["slip", *[RIGHT] * 5, "slip", RIGHT]]

    assert tried == [200, *[302] * 5, 200, 429]


def test_behind_a_proxy_the_proxy_names_the_address_and_not_the_caller(grace: User, settings: Settings) -> None:
    settings.WRONG_SIGN_INS_PER_MINUTE = 2
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "NUM_PROXIES": 1}
    proxied = [{"X-Forwarded-For": f"10.0.0.{n}, 203.0.113.5"} for n in range(3)]

    assert [sign_in(f"user-{n}", "wrong", **proxied[n]).status_code for n in range(3)] == [200, 200, 429]
    assert sign_in("grace", RIGHT, **{"X-Forwarded-For": "203.0.113.6"}).status_code == 302


# -- wrong tokens
def test_wrong_tokens_are_refused_as_too_many_while_right_ones_still_pass(grace: User, settings: Settings) -> None:
    settings.WRONG_SIGN_INS_PER_MINUTE = 3
    guessing = Program()

    answers = []
    for n in range(6):
        guessing.credentials(HTTP_AUTHORIZATION=f"Token {n:040x}")
        answers.append(guessing.get("/api/agents/"))

    assert [answer.status_code for answer in answers] == [401] * 3 + [429] * 3
    assert int(answers[-1]["Retry-After"]) > 0
    assert answers[-1]["Content-Type"] == "application/problem+json"
    assert program(grace).get("/api/agents/").status_code == 200

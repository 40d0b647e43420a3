"""Web processes count requests together in Redis; while it is away each counts on its own, and nobody gets an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from pytest_django import Settings

from agents import shared_cache
from agents.shared_cache import SharedCache
from tests.api_client import program
from tests.console import superuser
from tests.factories import make_channel
from tests.machinery import Redis, free_port

URL = "/api/messages/"
SAID = {"channel": "office", "text": "Good morning."}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    found = Redis(tmp_path)
    found.start()
    yield found
    found.stop()


def process(url: str) -> SharedCache:
    """The cache as one web process has it."""
    return SharedCache(
        url, {"KEY_PREFIX": "plumbline", "OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5}}
    )


def counted_in(settings: Settings, url: str) -> None:
    shared: dict[str, Any] = {"BACKEND": "agents.shared_cache.SharedCache", "LOCATION": url, "KEY_PREFIX": "plumbline"}
    settings.CACHES = {"default": settings.CACHES["default"], "throttles": shared}


@pytest.mark.service
@pytest.mark.django_db
def test_what_one_process_counted_another_knows(settings: Settings, redis: Redis) -> None:
    counted_in(settings, redis.url)
    settings.API_PAID_PER_MINUTE = 2
    make_channel("office")
    client = program(superuser())

    first = [client.post(URL, SAID).status_code for _ in range(2)]
    caches["throttles"] = process(redis.url)  # as another process has it, which remembers nothing itself
    later = client.post(URL, SAID)

    assert (first, later.status_code) == ([201, 201], 429)
    assert int(later["Retry-After"]) > 0


@pytest.mark.service
def test_forgetting_what_was_counted_leaves_the_broker_s_messages_alone(redis: Redis) -> None:
    cache = process(redis.url)
    client = cache._cache.get_client(write=True)
    client.set("celery", "a message")
    cache.set("count", 3)

    cache.clear()

    assert cache.get("count") is None
    assert client.get("celery") == b"a message"


@pytest.mark.django_db
def test_a_redis_that_is_away_costs_no_request_and_limits_go_on_per_process(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    counted_in(settings, f"redis://127.0.0.1:{free_port()}/0")
    settings.API_PAID_PER_MINUTE = 2
    make_channel("office")
    client = program(superuser())

    assert [client.post(URL, SAID).status_code for _ in range(3)] == [201, 201, 429]
    told = [record for record in caplog.records if record.name == shared_cache.__name__]
    assert [record.levelname for record in told] == ["WARNING"]
    assert "limits hold per process" in told[0].getMessage()


@pytest.mark.service
def test_when_redis_comes_back_it_is_counted_in_again(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_cache, "PAUSE", 0.0)
    cache = process(redis.url)
    redis.stop()
    cache.set("count", 3)
    assert cache.get("count") == 3
    redis.start()

    cache.set("count", 4)

    assert process(redis.url).get("count") == 4

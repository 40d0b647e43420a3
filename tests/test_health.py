"""What orchestrators and Prometheus are told."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from agents.kit.models import LLMCall, WorkerHeartbeat
from agents.kit.ops import health
from agents.kit.work.worker import Worker
from agents.models import Run
from tests.factories import make_agent
from tests.llm_server import LLMServer

TOKEN = "a-token-for-prometheus"


@pytest.fixture(autouse=True)
def _anew(settings: Settings) -> Iterator[None]:
    settings.METRICS_TOKEN, settings.READY_WITHOUT = TOKEN, []
    settings.JUDGE_MODEL = "offline:lexical-1"
    health._latest.clear()
    health._migrated = False
    yield
    health._latest.clear()
    cache.clear()


def get(path: str, *, token: str = "", **extra: Any) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    response = Client().get(path, headers=headers, **extra)
    text = response.content.decode()
    return response.status_code, json.loads(text) if text.startswith("{") else text


def series(token: str = TOKEN) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    status, text = get("/metrics", token=token)
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# -- /healthz
def test_a_process_lives_whatever_its_database_does(django_db_blocker: Any) -> None:
    assert get("/healthz") == (200, {"status": "ok"})  # no access to the database is allowed here


def test_probes_are_answered_by_address_over_plain_http(settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT, settings.ALLOWED_HOSTS = True, ["plumbline.example.org"]

    assert get("/healthz", SERVER_NAME="10.0.0.7")[0] == 200
    assert Client().post("/healthz").status_code == 405


# -- /readyz
@pytest.mark.django_db
def test_ready_when_everything_it_needs_answers(settings: Settings, llm_server: LLMServer) -> None:
    settings.JUDGE_MODEL = "test-model"

    status, found = get("/readyz")

    assert (status, found["status"]) == (200, "ready")
    assert found["checks"] == {"database": "ok", "migrations": "ok", "broker": "ok", "judge": "ok"}
    assert llm_server.calls == 0, "nothing is asked, nothing is paid"


@pytest.mark.django_db
def test_an_absent_judge_is_named_and_details_need_the_token(settings: Settings) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, not listening
        settings.JUDGE_BASE_URL, settings.JUDGE_MODEL = f"http://127.0.0.1:{nobody.getsockname()[1]}", "test-model"
        settings.ANTHROPIC_API_KEY = "sk-secret"

        status, found = get("/readyz")
        told = get("/readyz", token=TOKEN)[1]

    assert (status, found["status"], found["checks"]["judge"]) == (503, "not ready", "failed")
    assert told["checks"]["judge"] == "not reached: ConnectionRefusedError"
    assert "secret" not in json.dumps(told)


@pytest.mark.django_db
def test_what_is_not_essential_is_reported_and_fails_nothing(settings: Settings) -> None:
    settings.CELERY_BROKER_URL, settings.READY_WITHOUT = "redis://:password@127.0.0.1:1/0", ["broker"]

    status, found = get("/readyz", token=TOKEN)

    assert (status, found["checks"]["broker"]) == (200, "not reached: ConnectionError")


@pytest.mark.django_db
def test_missing_migrations_and_a_dead_database_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: object) -> None:
        raise OperationalError("server closed the connection\nof user secret")

    monkeypatch.setattr(connection, "cursor", away)

    status, found = get("/readyz", token=TOKEN)

    assert status == 503
    assert found["checks"]["database"] == "server closed the connection"
    assert found["checks"]["migrations"] != "ok"


@pytest.mark.django_db
def test_a_judge_is_knocked_at_once_in_a_while(settings: Settings, llm_server: LLMServer) -> None:
    settings.JUDGE_MODEL = "test-model"
    for _ in range(5):
        assert get("/readyz")[0] == 200

    assert llm_server.wait_until(lambda: llm_server.connections == 1)


# -- /metrics
def test_metrics_need_the_token(settings: Settings) -> None:
    assert get("/metrics")[0] == 401
    assert get("/metrics", token="wrong")[0] == 401
    assert get("/metrics", token=TOKEN + "ä")[0] == 401
    settings.METRICS_TOKEN = ""
    assert get("/metrics", token="")[0] == 404


@pytest.mark.django_db
def test_what_waits_and_who_works_is_shown() -> None:
    agent = make_agent("ada")
    old, held = Run.objects.create(agent=agent), Run.objects.create(agent=agent)
    Run.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(minutes=10))
    assert held.acquire(owner="elsewhere:1:x", lease=timedelta(minutes=5))
    Worker(WorkerHeartbeat.Kind.WORK, {}).beat()
    Worker(WorkerHeartbeat.Kind.WORK, {}, name="other:2:y").beat()
    WorkerHeartbeat.objects.filter(name="other:2:y").update(seen_at=timezone.now() - timedelta(hours=1))

    found = series()

    runs = (("kind", "runs"),)
    assert found["plumbline_work_waiting", runs] == 1
    assert 600 <= found["plumbline_work_oldest_waiting_seconds", runs] < 700
    assert found["plumbline_workers_alive", (("kind", "work"),)] == 1


@pytest.mark.django_db
def test_a_worker_long_at_work_is_alive_while_it_keeps_its_lease() -> None:
    name = "elsewhere:1:x"
    Worker(WorkerHeartbeat.Kind.WORK, {}, name=name).beat()
    WorkerHeartbeat.objects.update(seen_at=timezone.now() - timedelta(hours=1))
    assert series()["plumbline_workers_alive", (("kind", "work"),)] == 0

    assert Run.objects.create(agent=make_agent("ada")).acquire(owner=f"{name}/2", lease=timedelta(minutes=5))

    assert series()["plumbline_workers_alive", (("kind", "work"),)] == 1


@pytest.mark.django_db
def test_model_calls_of_the_last_minutes_are_shown() -> None:
    call = {"role": "judge", "purpose": "evaluation", "provider": "anthropic", "model": "m"}
    LLMCall.objects.create(**call, status="ok", input_tokens=10, output_tokens=2, cost_usd="0.5", latency_ms=200)
    LLMCall.objects.create(**call, status="timeout")
    LLMCall.objects.create(**call, status="ok", input_tokens=99)
    LLMCall.objects.filter(input_tokens=99).update(created_at=timezone.now() - timedelta(hours=1))

    found = series()

    of = (("model", "m"), ("purpose", "evaluation"))
    assert found["plumbline_llm_calls_5m", (("model", "m"), ("purpose", "evaluation"), ("status", "ok"))] == 1
    assert found["plumbline_llm_cost_usd_5m", of] == 0.5
    assert found["plumbline_llm_unpriced_calls_5m", of] == 1

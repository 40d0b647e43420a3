"""Calls made while the database is away: their rows are written afterwards, once, with the time and cost they had."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from agents.kit.llm import Status, complete, complete_together, ledger
from agents.kit.models import LLMCall, LLMPayload, ModelPrice, WorkerHeartbeat
from agents.kit.ops import health
from agents.kit.work.worker import Worker
from agents.models import Agent
from tests import zygote
from tests.agents.kit.llm.asking import asking, row_of
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def away(*, after: bool = False, times: int = 1_000) -> Iterator[None]:
    """Inside, no row of the ledger can be written: before the database does it, or after, so that only its answer is lost."""
    left = [times]

    def refuse(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.startswith('INSERT INTO "llm_calls"') or not left[0]:
            return execute(sql, params, many, context)
        left[0] -= 1
        if after:
            execute(sql, params, many, context)
        raise OperationalError("database is locked")

    with connection.execute_wrapper(refuse):
        yield


@pytest.fixture
def priced(db: None) -> None:
    for day, dollars in ((date(2026, 1, 1), 1), (timezone.now().date(), 10)):
        ModelPrice.objects.create(
            model="test-model", effective_from=day, input_usd=dollars, output_usd=0, cache_write_usd=0, cache_read_usd=0
        )


def test_rows_of_an_outage_are_written_with_the_next_one(
    llm_server: LLMServer, priced: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    begun = timezone.now()
    with away(), transaction.atomic():
        lost = complete_together([asking("one"), asking("two")], deadline=30)
    ended = timezone.now()
    assert [(reply.status, reply.call_id) for reply in lost] == [(Status.OK, None)] * 2
    assert not LLMCall.objects.exists()

    written = row_of(complete(asking("three")))
    with django_assert_num_queries(1):  # outside a transaction a row is a single statement
        complete(asking("four"))

    rows = list(LLMCall.objects.order_by("created_at"))
    assert [row.dimension for row in rows] == ["one", "two", "three", "four"], "each once"
    assert all(begun <= row.created_at <= ended for row in rows[:2])
    assert written.created_at > ended
    assert {row.cost_usd for row in rows} == {Decimal("0.001")}


def test_rows_of_an_outage_do_not_wait_for_the_next_call(llm_server: LLMServer) -> None:
    """A worker that looks for work writes them, and so does the answer to whether the process is ready."""
    with away():
        complete(asking("one"))
    for _ in range(2):
        Worker(WorkerHeartbeat.Kind.WORK, {}).work_once()
    assert [row.dimension for row in LLMCall.objects.all()] == ["one"]

    with away():
        complete(asking("two"))
    health._latest.clear()
    Client().get("/readyz")
    assert [row.dimension for row in LLMCall.objects.order_by("pk")] == ["one", "two"]


def test_an_insert_whose_answer_was_lost_makes_no_second_row(llm_server: LLMServer) -> None:
    with away(after=True, times=1):
        (one,) = complete_together([asking("one")], deadline=30)
    with away(after=True):
        complete_together([asking("two")], deadline=30)
    complete(asking("three"))

    assert row_of(one).dimension == "one"
    assert sorted(LLMCall.objects.values_list("dimension", flat=True)) == ["one", "three", "two"]


def test_a_row_of_an_agent_deleted_during_outages_keeps_cost_and_payload(
    llm_server: LLMServer, priced: None, settings: Any
) -> None:
    settings.LLM_STORE_PAYLOADS = "all"
    ada = Agent.objects.create(slug="ada", display_name="Ada", system_prompt="You are Ada.")
    with away():
        complete_together([asking("one", label={"agent_id": ada.pk}), asking("two")], deadline=30)
    ada.delete()
    complete(asking("three"))

    row = LLMCall.objects.get(dimension="one")
    assert (row.agent_id, row.cost_usd) == (None, Decimal("0.001"))
    assert LLMPayload.objects.count() == LLMCall.objects.count() == 3


def test_a_late_row_has_the_price_of_its_own_day(
    llm_server: LLMServer, priced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = timezone.now() - timedelta(days=3)
    with away(), monkeypatch.context() as patched:
        patched.setattr(timezone, "now", lambda: then)
        complete(asking("late"))

    complete(asking("next"))

    assert LLMCall.objects.get(dimension="late").cost_usd == Decimal("0.0001")


def test_what_does_not_fit_in_memory_is_counted_and_logged(
    llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledger, "MOST_LATE", 3)
    with away():
        for _ in range(2):
            complete_together([asking("one"), asking("two")], deadline=30)
    assert "1 ledger rows are lost" in caplog.text
    complete(asking("three"))
    assert LLMCall.objects.count() == 4


AT_EXIT = """
import django; django.setup()
from django.db import OperationalError, connection
from agents.kit.llm import complete
from tests.agents.kit.llm.asking import text_request

def refuse(execute, sql, params, many, context):
    if "llm_calls" in sql:
        raise OperationalError("database is locked")
    return execute(sql, params, many, context)

with connection.execute_wrapper(refuse):
    assert complete(text_request(model="offline:scripted-1")).call_id is None
"""


def test_a_process_that_ends_writes_what_it_still_holds(database_file: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": f"sqlite:///{database_file}",
        "DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"],
    }
    zygote.run([sys.executable, "-c", AT_EXIT], env=environment, cwd=django_settings.BASE_DIR, check=True)
    with sqlite3.connect(database_file) as file:
        assert file.execute("SELECT count(*) FROM llm_calls").fetchone() == (1,)

"""The recipe of docs/partitioning.sql: converted tables behave as before, get new partitions, and lose old ones in a moment."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from agents.kit.models import LLMCall, LLMPayload
from agents.kit.ops.sums import LEDGER, roll_up
from correction.costs import get_cost_summary
from correction.gate.statistics import GATE
from correction.models import CorrectionLog, GateDimensionResult
from tests.correction.judged_drafts import add_attempt
from tests.correction.ledger import call
from tests.factories import make_agent

pytestmark = [pytest.mark.service, pytest.mark.django_db]

RECIPE = Path(__file__).resolve().parent.parent / "docs" / "partitioning.sql"
OLD, NOW = datetime(2026, 1, 5, tzinfo=UTC), timezone.now()


@pytest.fixture(autouse=True)
def _recipe(db: None) -> None:
    if connection.vendor != "postgresql":
        if os.environ.get("CI") == "true" and os.environ.get("DATABASE_URL", "").startswith("postgres"):
            pytest.fail("the tests do not run on the PostgreSQL of DATABASE_URL")
        pytest.skip("DATABASE_URL names no PostgreSQL")
    with connection.cursor() as cursor:
        cursor.execute(RECIPE.read_text(encoding="utf-8").replace("%", "%%"), [])


def sql(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute("set constraints all immediate")  # the tests' one transaction has checks that wait
        cursor.execute(statement, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        cursor.execute("set constraints all deferred")
        return found


def result_of(row: LLMCall | None, at: datetime) -> GateDimensionResult:
    log = add_attempt()
    CorrectionLog.objects.filter(pk=log.pk).update(created_at=at)
    return GateDimensionResult.objects.create(
        log=log, dimension="fluency", status="trivial", threshold=5, passed=True, call=row
    )


def test_a_partitioned_ledger_keeps_rows_references_keys_and_figures() -> None:
    ada = make_agent("ada")
    before = call(ada, at=OLD)
    LLMPayload.objects.create(call=before, request={})
    result = result_of(before, OLD)

    sql("select plumbline_partition('llm_calls', 'id')")
    sql("select plumbline_add_partition('llm_calls', 1000)")
    after = call(ada)

    assert after.pk > before.pk
    assert LLMCall.objects.get(pk=before.pk).payload.request == {}
    assert get_cost_summary(window="all").total.calls == 2
    (where,) = sql("select tableoid::regclass::text from llm_calls where id = %s", after.pk)
    assert where == (f"llm_calls_p{before.pk + 1}",)
    with pytest.raises(IntegrityError), transaction.atomic():
        LLMCall.objects.bulk_create([LLMCall(pk=before.pk, role="judge", purpose="p", provider="p", model="m")])
    with pytest.raises(DatabaseError, match="foreign key"), transaction.atomic():
        sql("update correction_dimension_results set call_id = -1 where id = %s returning 1", result.pk)
    ada.delete()
    assert LLMCall.objects.filter(agent=None).count() == 2
    before.refresh_from_db()
    before.delete()
    result.refresh_from_db()
    assert result.call_id is None


def test_a_month_is_dropped_once_summed_up_and_its_figures_stay() -> None:
    old = call(at=OLD)
    LLMPayload.objects.create(call=old, request={})
    result = result_of(old, OLD)
    sql("select plumbline_partition('llm_calls', 'id')")
    sql("select plumbline_add_partition('llm_calls', 1000)")
    call(at=NOW - timedelta(days=2))
    with pytest.raises(DatabaseError, match=r"run manage\.py rollup first"), transaction.atomic():
        sql("select plumbline_drop_before('llm_calls', %s)", NOW - timedelta(days=90))
    roll_up(LEDGER)

    dropped = sql("select plumbline_drop_before('llm_calls', %s)", NOW - timedelta(days=90))

    assert dropped == [("llm_calls_p0",)]
    assert (LLMCall.objects.count(), LLMPayload.objects.count()) == (1, 0)
    result.refresh_from_db()
    assert result.call_id is None
    assert get_cost_summary(window="all").total.calls == 2


def test_verdicts_are_partitioned_by_their_logs() -> None:
    old = result_of(None, OLD)
    sql("select plumbline_partition('correction_dimension_results', 'log_id')")
    sql("select plumbline_add_partition('correction_dimension_results', 1000)")
    new = result_of(None, NOW)
    with pytest.raises(IntegrityError), transaction.atomic():
        GateDimensionResult.objects.create(log=new.log, dimension="fluency", status="trivial", threshold=5, passed=True)
    roll_up(GATE)

    assert sql("select plumbline_drop_before('correction_dimension_results', %s)", NOW - timedelta(days=90)) == [
        ("correction_dimension_results_p0",)
    ]

    assert list(GateDimensionResult.objects.all()) == [new]
    assert CorrectionLog.objects.filter(pk=old.log_id).exists()


def test_a_month_is_dropped_though_the_gate_was_last_used_long_ago() -> None:
    result_of(None, OLD - timedelta(days=30))
    roll_up(GATE, now=OLD)
    call(at=OLD)
    sql("select plumbline_partition('llm_calls', 'id')")
    sql("select plumbline_add_partition('llm_calls', 1000)")
    call(at=NOW - timedelta(days=2))
    roll_up(LEDGER)

    assert sql("select plumbline_drop_before('llm_calls', %s)", NOW - timedelta(days=90)) == [("llm_calls_p0",)]


def test_a_partition_that_was_emptied_does_not_keep_those_after_it() -> None:
    first = call(at=OLD)
    sql("select plumbline_partition('llm_calls', 'id')")
    sql("select plumbline_add_partition('llm_calls', 1)")
    second = call(at=OLD)
    sql("select plumbline_add_partition('llm_calls', 1000)")
    call(at=NOW - timedelta(days=2))
    roll_up(LEDGER)
    LLMCall.objects.filter(pk=first.pk).delete()

    dropped = sql("select plumbline_drop_before('llm_calls', %s)", NOW - timedelta(days=90))

    assert dropped == [(f"llm_calls_p{second.pk}",)]

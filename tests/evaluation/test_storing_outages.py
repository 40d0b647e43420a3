"""What an outage, or many runs, cost an evaluation beside its verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection
from pytest_django import DjangoAssertNumQueries

from agents.kit.text.patterns import TIMED_OUT
from evaluation.judge.verdicts import unscored
from evaluation.models import ChannelShare, EvaluationScore
from evaluation.runs.failures import refusal
from evaluation.runs.judging import save_verdicts
from tests.evaluation.judged import make_run, make_score
from tests.factories import make_agent


@pytest.mark.django_db(transaction=True)
def test_an_outage_while_slow_patterns_are_counted_costs_no_verdict(caplog: pytest.LogCaptureFixture) -> None:
    run = make_run(make_agent("ada"))
    row = make_score(run, None)
    EvaluationScore.objects.filter(pk=row.pk).update(status="pending")

    def refuse(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if "pattern_timeouts" in sql:
            raise OperationalError("database is locked")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse):
        assert save_verdicts([row], [unscored(f"{TIMED_OUT}/(a+)+$/")], None)

    row.refresh_from_db()
    assert row.status == "unscored"
    assert "not counted" in caplog.text


@pytest.mark.django_db
def test_why_a_judge_refused_takes_equal_queries_for_many_runs(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    runs = [make_run(make_agent(f"agent-{n}")) for n in range(8)]
    channel_run = make_run(None)
    ChannelShare.objects.create(agent_run=runs[-1], channel_run=channel_run, messages=1)
    make_score(channel_run, None, reason="rejected: HTTP 401: invalid x-api-key")

    with django_assert_max_num_queries(3):
        assert "401" in refusal(runs)

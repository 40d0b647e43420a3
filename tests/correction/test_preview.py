"""What another threshold would have done to the drafts that were judged."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pytest_django import DjangoAssertNumQueries

from correction.gate.thresholds import would_fail
from tests.correction.judged_drafts import OFFLINE, make_log
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def test_first_drafts_of_gate_and_observe_mode_count_and_nothing_else(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    ada, bob = make_agent(), make_agent("bob")
    for score in (2.0, 4.9, 5.0, 8.0):
        make_log(ada, {"adherence": score, "fluency": 1.0})
    make_log(ada, {"adherence": 3.0}, source="observe", outcome="observed")
    make_log(ada, {"adherence": None}, outcome="timeout_passed")
    make_log(ada, {"fluency": 2.0})
    make_log(ada, {"adherence": 0.0}, attempt=2)
    make_log(ada, {"adherence": 0.0}, source="external")
    make_log(bob, {"adherence": 0.0})

    with django_assert_num_queries(1):
        assert would_fail(agent=ada, dimension="adherence", threshold=Decimal("5.0")) == (3, 5, 7)
    assert would_fail(agent=ada, dimension="adherence", threshold=Decimal(0)) == (0, 5, 7)
    assert would_fail(agent=ada, dimension="adherence", threshold=Decimal(9)) == (5, 5, 7)
    assert would_fail(agent=None, dimension="adherence", threshold=Decimal("5.0")) == (4, 6, 8)
    assert would_fail(agent=ada, dimension="consistency", threshold=Decimal(9)) == (0, 0, 7)


def test_only_the_latest_are_looked_at() -> None:
    ada = make_agent()
    for score in (1.0, 1.0, 9.0, 9.0, 1.0):
        make_log(ada, {"adherence": score})

    assert would_fail(agent=ada, dimension="adherence", threshold=Decimal(5), limit=3) == (1, 3, 3)


def test_offline_judges_and_models_are_counted_apart_and_rules_with_both() -> None:
    ada = make_agent()
    make_log(ada, {"adherence": 1.0}, judge=OFFLINE)
    make_log(ada, {"adherence": 1.0})
    make_log(ada, {"adherence": 9.0})
    make_log(ada, {"adherence": 0.0}, judge="", result={"judge": "rule"})

    assert would_fail(agent=ada, dimension="adherence", threshold=Decimal(5), heuristic=True) == (2, 2, 2)
    assert would_fail(agent=ada, dimension="adherence", threshold=Decimal(5), heuristic=False) == (2, 3, 3)


def test_where_nothing_was_logged_nothing_would_have_failed() -> None:
    assert would_fail(agent=make_agent(), dimension="adherence", threshold=Decimal(5)) == (0, 0, 0)

"""What ``make e2e-local`` takes for a success."""

from __future__ import annotations

from typing import Any

import pytest

from tests.local_model.__main__ import MODEL, check

RUN: dict[str, Any] = {"calls": 2, "tokens": 1400, "cost_usd": None}


def row(**fields: Any) -> dict[str, Any]:
    made = {"dimension": "adherence", "proposition_id": "short", "judge": MODEL, "status": "scored", "score": 7}
    return made | {"reason": ""} | fields


TIMED_OUT = row(status="unscored", score=None, reason="timeout: no answer within the deadline of 60 s")
BY_RULE = row(judge="rule", score=9)


@pytest.mark.parametrize("rows", [[TIMED_OUT, TIMED_OUT], [TIMED_OUT, BY_RULE], []], ids=["all", "but a rule", "none"])
def test_it_fails_where_the_model_scored_nothing(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(SystemExit, match="not as it must be"):
        check(RUN, rows)


def test_it_passes_with_one_model_verdict_and_a_reason_for_every_other() -> None:
    check(RUN, [row(), TIMED_OUT, BY_RULE])
    with pytest.raises(SystemExit, match="not as it must be"):
        check(RUN, [row(), row(status="unscored", score=None)])

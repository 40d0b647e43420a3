"""What a run found: weighted means over scored judgements only, checked against counting by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from agents.kit.models import LLMCall
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.summary import summarize, worst_judgement
from tests.factories import make_agent

Row = tuple[str, str, str, int | None]
WEIGHTS = {"a": 1.0, "b": 2.5, "c": 0.2}


def run_with(rows: Sequence[Row]) -> EvaluationRun:
    run: EvaluationRun = EvaluationRun.objects.create(
        agent=make_agent("ada"), dimensions=["adherence", "fluency"], judge="test-model"
    )
    EvaluationScore.objects.bulk_create(
        EvaluationScore(
            evaluation_run=run,
            dimension=dimension,
            proposition_id=name,
            claim="x",
            weight=WEIGHTS[name],
            inverted=name == "c",
            status=status,
            score=score,
        )
        for dimension, name, status, score in rows
    )
    return run


rows_strategy = st.lists(
    st.tuples(
        st.sampled_from(["adherence", "fluency", "ideas_quantity"]),
        st.sampled_from("abc"),
        st.sampled_from(["scored", "trivial", "unscored", "pending"]),
        st.integers(0, 9),
    ).map(lambda r: (r[0], r[1], r[2], {"scored": r[3], "trivial": 9}.get(r[2]))),
    max_size=25,
)


class SummaryByHand(TestCase):
    @given(rows_strategy)
    def test_it_agrees_with_counting_by_hand(self, rows: list[Row]) -> None:
        found = summarize(run_with(rows))

        by_dimension: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            by_dimension[row[0]].append(row)
        assert set(found.dimensions) == set(by_dimension)
        means = []
        for name, some in by_dimension.items():
            dimension = found.dimensions[name]
            pairs = [(WEIGHTS[r[1]], r[3]) for r in some if r[2] == "scored" and r[3] is not None]
            mean = sum(w * s for w, s in pairs) / sum(w for w, _ in pairs) if pairs else None
            assert dimension.score == (None if mean is None else pytest.approx(mean, abs=1e-4))
            for status in ("scored", "trivial", "unscored", "pending"):
                assert getattr(dimension, status) == sum(r[2] == status for r in some)
            for part in dimension.propositions:
                own = [r[3] for r in some if r[1] == part.id and r[2] == "scored" and r[3] is not None]
                assert part.score == (pytest.approx(sum(own) / len(own), abs=1e-4) if own else None)
                assert (part.weight, part.inverted) == (WEIGHTS[part.id], part.id == "c")
            if mean is not None and name != "ideas_quantity":
                means.append(mean)
        assert found.overall_score == (pytest.approx(sum(means) / len(means), abs=1e-3) if means else None)


@pytest.mark.django_db
def test_the_weakest_proposition_and_its_worst_judgement_are_named() -> None:
    run = run_with([("adherence", "a", "scored", 7), ("adherence", "b", "scored", 5), ("adherence", "b", "scored", 1)])
    weakest = summarize(run).dimensions["adherence"].weakest

    assert weakest is not None
    assert (weakest.id, weakest.score) == ("b", 3.0)
    worst = worst_judgement(run, "adherence", "b")
    assert worst is not None
    assert worst.score == 1
    assert worst_judgement(run, "fluency", "b") is None


@pytest.mark.django_db
def test_tokens_and_cost_are_ledger_sums_and_unpriced_is_not_free() -> None:
    run = run_with([("adherence", "a", "scored", 7)])

    def call(cost: str | None, work_id: str = run.work_id) -> None:
        LLMCall.objects.create(
            role="judge",
            purpose="evaluation",
            work_id=work_id,
            provider="anthropic",
            model="m",
            status="ok",
            input_tokens=100,
            output_tokens=10,
            cache_read_tokens=5,
            cost_usd=None if cost is None else Decimal(cost),
        )

    assert summarize(run).cost_usd == 0
    call("0.01")
    call("0.02")
    call("9.99", work_id="evaluation_run:999999")
    priced = summarize(run)
    assert (priced.calls, priced.tokens, priced.cost_usd, priced.unpriced_calls) == (2, 230, Decimal("0.03"), 0)

    call(None)
    mixed = summarize(run)
    assert (mixed.cost_usd, mixed.unpriced_calls) == (Decimal("0.03"), 1)

    LLMCall.objects.filter(cost_usd__isnull=False).delete()
    assert summarize(run).cost_usd is None


@pytest.mark.django_db
def test_a_summary_takes_two_queries_however_long_the_run(django_assert_num_queries: Any) -> None:
    run = run_with([("adherence", name, "scored", 5) for name in "abc"] * 40)

    with django_assert_num_queries(2):
        summarize(run)

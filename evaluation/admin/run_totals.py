"""What evaluations came to, for a page of them at once: their judgements by status, and what the ledger says of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Count, Q, Sum

from agents.admin.ledger import ALL_TOKENS
from agents.models import LLMCall
from evaluation.models import EvaluationScore
from evaluation.runs.coverage import shares_of, total


def add_totals(runs: Sequence[Any]) -> None:
    """Set `share`, `scored_total` and its likes, `ledger_tokens`, `ledger_cost` and `ledger_unpriced`; None where there is nothing."""
    judged: dict[tuple[int, str], int] = {}
    counted = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs]).order_by()
    for run, status, n in counted.values_list("evaluation_run", "status").annotate(n=Count("*")):
        judged[run, status] = n
    shares = shares_of([run.pk for run in runs])
    calls = LLMCall.objects.filter(work_id__in=[run.work_id for run in runs]).order_by().values("work_id")
    sums = calls.annotate(
        tokens=Sum(ALL_TOKENS), cost=Sum("cost_usd"), unpriced=Count("pk", filter=Q(cost_usd__isnull=True))
    )
    ledger: dict[str, dict[str, Any]] = {row["work_id"]: dict(row) for row in sums}
    for run in runs:
        run.share = total(shares[run.pk].values())
        for status in EvaluationScore.Status.values:
            setattr(run, f"{status}_total", judged.get((run.pk, status)))
        for name in ("tokens", "cost", "unpriced"):
            setattr(run, f"ledger_{name}", ledger.get(run.work_id, {}).get(name))

"""Find judgements whose call failed: they are worth another try."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from django.db.models import Count, Q

from evaluation.models import RULE_JUDGE, ChannelShare, EvaluationRun, EvaluationScore

if TYPE_CHECKING:
    pass

FAILURES = ("timeout", "rate_limited", "unavailable", "rejected")  # of the call, not of the answer
CALL_FAILED = Q(status="unscored", cause__in=FAILURES)


def reopen_failed(run: EvaluationRun) -> int:
    """Make items whose call failed pending again, so that the run judges them when it resumes; returns how many."""
    failed = EvaluationScore.objects.filter(CALL_FAILED, evaluation_run=run)
    reopened = failed.update(status="pending", reason="", cause="", call=None, judged_at=None)
    if reopened and run.series_points is not None:  # its series looks at it again when it has ended
        EvaluationRun.objects.filter(pk=run.pk).update(series_points=None)
    return reopened


def failed_call(run: EvaluationRun) -> str:
    """Why one of the run's calls failed; empty when none did."""
    failed = EvaluationScore.objects.filter(CALL_FAILED, evaluation_run=run)
    return failed.values_list("reason", flat=True).first() or ""


def judge_answered(run: EvaluationRun) -> bool:
    """Whether the judge answered any call: what rules and preconditions settle needs no judge."""
    return EvaluationScore.objects.filter(evaluation_run=run, judge=run.judge).exclude(CALL_FAILED).exists()


ANSWERED = ~CALL_FAILED & ~Q(judge__in=["", RULE_JUDGE])  # by the judge, be it that it cannot tell
# What asking again cannot help: a key that is refused, a model or an address that does not exist.
_MISCONFIGURED = re.compile(
    r"rejected: (HTTP 40[134]:|HTTP 400:.*(\bmodel\b.*(not|invalid|unknown|exist)|(invalid|unknown) model)|.*is the base URL right)",
    re.IGNORECASE,
)


def unanswered(runs: Sequence[EvaluationRun]) -> set[tuple[int, str]]:
    """Run and dimension where the judge was asked and answered nothing: what rules score there is no score of this judge."""
    if not runs:
        return set()
    rows = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs]).order_by()
    per_dimension = rows.values("evaluation_run", "dimension").annotate(
        failed=Count("pk", filter=CALL_FAILED), answered=Count("pk", filter=ANSWERED)
    )
    return set(per_dimension.filter(failed__gt=0, answered=0).values_list("evaluation_run", "dimension"))


def refusal(runs: Iterable[EvaluationRun]) -> str:
    """Why the judge refused every question of these runs, and would again: key, model or address are wrong; else empty."""
    keys = {run.pk for run in runs}
    keys.update(ChannelShare.objects.filter(agent_run__in=keys).values_list("channel_run", flat=True))
    rows = EvaluationScore.objects.filter(evaluation_run__in=keys)
    reasons = list(rows.filter(CALL_FAILED).order_by().values_list("reason", flat=True).distinct())
    if not reasons or not all(map(_MISCONFIGURED.match, reasons)) or rows.filter(ANSWERED).exists():
        return ""
    return f"the judge answered nothing: {reasons[0]}"

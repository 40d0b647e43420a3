"""Judgements whose *call* failed: no answer of the judge, so worth another try, and no sign that it judged anything."""

from __future__ import annotations

from functools import reduce
from operator import or_

from django.db.models import Q

from evaluation.models import EvaluationRun, EvaluationScore

FAILURES = ("timeout", "rate_limited", "unavailable", "rejected")  # of the call, not of the answer
CALL_FAILED = reduce(or_, (Q(status="unscored", reason__startswith=failure) for failure in FAILURES))


def reopen_failed(run: EvaluationRun) -> int:
    """Make items whose call failed pending again, so that taking the run up judges them; returns how many."""
    failed = EvaluationScore.objects.filter(CALL_FAILED, evaluation_run=run)
    reopened = failed.update(status="pending", reason="", call=None, judged_at=None)
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

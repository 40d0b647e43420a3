"""Tell judgements whose call failed from those that the judge answered, and ask them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db.models import Count, Q

from agents.kit.llm.requests import is_misconfigured
from evaluation.models import RULE_JUDGE, ChannelShare, EvaluationRun, EvaluationScore

FAILURES = ("timeout", "rate_limited", "unavailable", "rejected")  # of the call, not of the answer
CALL_FAILED = Q(status="unscored", cause__in=FAILURES)
ANSWERED = ~CALL_FAILED & ~Q(judge__in=["", RULE_JUDGE])  # by the judge; "cannot tell" is an answer


def reopen_failed(run: EvaluationRun) -> int:
    """Make judgements whose call failed pending again, so that the run makes them when it resumes; return how many.

    If there are any, the run is no longer marked as looked at for drift (`series_points`). Its status stays.
    """
    reopened = run.scores.filter(CALL_FAILED).update(status="pending", reason="", cause="", call=None, judged_at=None)
    if reopened and run.series_points is not None:
        EvaluationRun.objects.filter(pk=run.pk).update(series_points=None)
    return reopened


def failed_call(run: EvaluationRun) -> str:
    """Return why one of the run's calls failed; empty when none did."""
    return run.scores.filter(CALL_FAILED).values_list("reason", flat=True).first() or ""


def judge_answered(run: EvaluationRun) -> bool:
    """Return whether the judge answered any call: what rules and preconditions settle needs no judge."""
    return run.scores.filter(judge=run.judge).exclude(CALL_FAILED).exists()


def unanswered(runs: Sequence[EvaluationRun]) -> set[tuple[int, str]]:
    """Return run (primary key) and dimension where calls to the judge failed and none was answered.

    What rules and preconditions settled there is no score of this judge.
    """
    rows = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs]).order_by()
    per_dimension = rows.values("evaluation_run", "dimension").annotate(
        failed=Count("pk", filter=CALL_FAILED), answered=Count("pk", filter=ANSWERED)
    )
    return set(per_dimension.filter(failed__gt=0, answered=0).values_list("evaluation_run", "dimension"))


def refusal(runs: Iterable[EvaluationRun]) -> str:
    """Return why the judge refused every question of these runs and of their channels', and would again; else empty.

    It would again where every call failed because key, model or address are wrong. One answer, or another failure, is enough for empty.
    """
    keys = {run.pk for run in runs}
    keys.update(ChannelShare.objects.filter(agent_run__in=keys).values_list("channel_run", flat=True))
    rows = EvaluationScore.objects.filter(evaluation_run__in=keys)
    reasons = list(rows.filter(CALL_FAILED).order_by().values_list("reason", flat=True).distinct())
    if not reasons or not all(map(is_misconfigured, reasons)) or rows.filter(ANSWERED).exists():
        return ""
    return f"the judge answered nothing: {reasons[0]}"

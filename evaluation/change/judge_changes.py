"""When did a judge change? What its sentinel found, for those who compare scores: a change of the judge is none of the agent.

`evaluation.change.sentinel` finds it. Alerts of agents are held back from then on until a person accepts the judge's new answers, and
scores from before are not compared with scores from after.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from evaluation.change.models import SentinelCheck
from evaluation.models import EvaluationRun

WAITED_FOR = timedelta(hours=24)  # a check; longer only where no worker does them, and nobody is to wait for that
Moments = Mapping[tuple[str, str], Sequence[datetime]]  # by judge and procedure


def open_checks() -> Exists:
    """Return the condition for evaluations whose judge is being checked: nobody is alerted before the check has ended."""
    return Exists(_waited_for(SentinelCheck.objects.filter(sentinel__judge=OuterRef("judge"))))


def is_being_checked(run: EvaluationRun) -> bool:
    """Return whether a check of the judge is open that was asked for before this evaluation, or with it."""
    return _waited_for(_checks_of(run).filter(fired_at__lte=run.created_at)).exists()


def change_holding(run: EvaluationRun) -> SentinelCheck | None:
    """Return the change of the judge for which alerts of an evaluation are held back; None where there is none.

    It was found with this evaluation or before, and its new answers were not accepted then.
    """
    changes = _checks_of(run).filter(changed=True, fired_at__lte=run.created_at)
    not_accepted = Q(accepted_at=None) | Q(accepted_at__gt=run.created_at)
    return changes.filter(not_accepted).select_related("sentinel").first()


def _waited_for(checks: QuerySet[SentinelCheck]) -> QuerySet[SentinelCheck]:
    """Return those of these checks that are open, and that alerts wait for."""
    return checks.filter(status__in=SentinelCheck.OPEN, created_at__gte=timezone.now() - WAITED_FOR)


def _checks_of(run: EvaluationRun) -> QuerySet[SentinelCheck]:
    return SentinelCheck.objects.filter(sentinel__judge=run.judge, sentinel__procedure=run.procedure)


def moments_of_change() -> Moments:
    """Return when judges changed, and when their new answers were accepted, in order, by judge and procedure. One query."""
    changes = SentinelCheck.objects.filter(changed=True).order_by()
    columns = ("sentinel__judge", "sentinel__procedure", "fired_at", "accepted_at")
    moments: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for judge, procedure, fired_at, accepted_at in changes.values_list(*columns):
        moments[judge, procedure].append(fired_at)
        if accepted_at is not None:
            moments[judge, procedure].append(accepted_at)
    for of_judge in moments.values():
        of_judge.sort()
    return moments


def changes_before(run: EvaluationRun, moments: Moments) -> int:
    """Return how often the judge had changed, or was accepted, when an evaluation was asked for: scores compare where it is the same."""
    return bisect_right(moments.get((run.judge, run.procedure), ()), run.created_at)


def same_judge(runs: Iterable[EvaluationRun]) -> bool:
    """Return whether no change of the judge lies between these evaluations, of one judge and procedure."""
    moments = moments_of_change()
    return len({changes_before(run, moments) for run in runs}) <= 1

"""When did a judge change? What its sentinel found, for those who compare scores: a change of the judge is none of the agent.

`evaluation.change.sentinel` finds it. Alerts of agents are held back from then on until a person accepts the judge's new answers, or it
answers as before. No alert compares scores from before a change with scores from after it; comparisons and baselines say that it lies
between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Exists, Max, OuterRef, Q, QuerySet
from django.utils import timezone

from evaluation.change.models import SentinelCheck
from evaluation.judge.identity import JudgeIdentity, identities_of
from evaluation.models import EvaluationRun

WAITED_FOR = timedelta(hours=24)  # alerts wait no longer for a check: then no worker does it


class JudgeState(NamedTuple):
    """How a judge answers from a moment on.

    Attributes:
        begins: That moment.
        since: When it first answered like this. It is earlier than `begins` where the judge went back; None: from the beginning.
    """

    begins: datetime
    since: datetime | None


Moments = Mapping[tuple[str, str], Sequence[JudgeState]]  # by judge and procedure


def judged_at(run: EvaluationRun) -> datetime:
    """Return when an evaluation was judged: when it ended; of one that has not, when it was asked for."""
    return run.finished_at or run.created_at


def open_checks() -> Exists:
    """Return the condition for evaluations whose judge is being checked: nobody is alerted before the check has ended."""
    return Exists(_waited_for(SentinelCheck.objects.filter(sentinel__judge=OuterRef("judge"))))


def is_being_checked(run: EvaluationRun) -> bool:
    """Return whether a check of the judge is open that was asked for before this evaluation was judged."""
    return _waited_for(_checks_of(run).filter(fired_at__lte=judged_at(run))).exists()


def change_holding(run: EvaluationRun) -> SentinelCheck | None:
    """Return the change of the judge for which alerts of an evaluation are held back; None where there is none.

    It was found before this evaluation was judged, and was not over then.
    """
    at = judged_at(run)
    changes = _checks_of(run).filter(changed=True, fired_at__lte=at)
    not_over = Q(ended_at=None) | Q(ended_at__gt=at)
    return changes.filter(not_over).select_related("sentinel").first()


def _waited_for(checks: QuerySet[SentinelCheck]) -> QuerySet[SentinelCheck]:
    """Return those of these checks that are open, and that alerts wait for."""
    return checks.filter(status__in=SentinelCheck.OPEN, created_at__gte=timezone.now() - WAITED_FOR)


def _checks_of(run: EvaluationRun) -> QuerySet[SentinelCheck]:
    return SentinelCheck.objects.filter(sentinel__judge=run.judge, sentinel__procedure=run.procedure)


def moments_of_change() -> Moments:
    """Return when judges changed, when their new answers were accepted, and when they went back, in order. One query.

    An accepted change begins a state of its own: what was judged before a person looked at it is not compared with what came after.
    """
    changes = SentinelCheck.objects.filter(changed=True).order_by("fired_at", "pk")
    columns = ("sentinel__judge", "sentinel__procedure", "fired_at", "ended_at", "went_back")
    moments: dict[tuple[str, str], list[JudgeState]] = defaultdict(list)
    for judge, procedure, fired_at, ended_at, went_back in changes.values_list(*columns):
        states = moments[judge, procedure]
        begins = fired_at
        since = None
        if states:
            begins = max(fired_at, states[-1].begins)  # a check can end after the earlier change was accepted
            since = states[-1].since
        states.append(JudgeState(begins=begins, since=begins))
        if ended_at is not None:
            states.append(JudgeState(begins=ended_at, since=since if went_back else ended_at))
    return moments


def judge_since(run: EvaluationRun, moments: Moments) -> datetime | None:
    """Return since when the judge had answered as it did in an evaluation; None: from the beginning.

    Scores are comparable where it is the same.
    """
    states = moments.get((run.judge, run.procedure), ())
    number = bisect_right(states, judged_at(run), key=lambda state: state.begins)
    return states[number - 1].since if number else None


def same_judge(runs: Iterable[EvaluationRun]) -> bool:
    """Return whether no change of the judge lies between these evaluations, of one judge and procedure."""
    moments = moments_of_change()
    return len({judge_since(run, moments) for run in runs}) <= 1


def known_identities(run: EvaluationRun, moments: Moments) -> tuple[JudgeIdentity, ...]:
    """Return who gave the scores of an evaluation, with what the judge's sentinel knows; at least one."""
    since = judge_since(run, moments)
    identities = identities_of(run) or (JudgeIdentity(),)
    return tuple(identity.model_copy(update={"since": since}) for identity in identities)


def accepted_moments() -> dict[tuple[str, str], datetime]:
    """Return when a judge's new answers were accepted the last time, by judge and procedure. One query."""
    accepted = SentinelCheck.objects.filter(changed=True, went_back=False, ended_at__isnull=False).order_by()
    newest = accepted.values_list("sentinel__judge", "sentinel__procedure").annotate(at=Max("ended_at"))
    return {(judge, procedure): at for judge, procedure, at in newest}

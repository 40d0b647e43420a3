"""The hourly sums of what the gate did. Marks of people are not summed: they come later than the rows, are few, and have an index."""

from __future__ import annotations

from django.db.models import Count, Exists, F, FloatField, OuterRef, Q, Sum
from django.db.models.functions import Coalesce

from agents.ops.sums import HourlySums, Rolled
from correction.models import AttemptHour, CorrectionLog, DimensionHour, GateDimensionResult, Outcome

Status = GateDimensionResult.Status
UNJUDGED = (Status.TIMEOUT, Status.OVERLOAD, Status.ERROR, Status.UNSCORED, Status.BUDGET)
_FIRST = Q(attempt=1)
_JUDGED = Q(score_sum__isnull=False) | Q(outcome=Outcome.PASSED)
_SCORED = Q(status=Status.SCORED)


def _scores(of: Q) -> Coalesce:
    return Coalesce(Sum("score", filter=_SCORED & of), 0.0, output_field=FloatField())


ATTEMPTS = HourlySums(
    table=AttemptHour,
    raw=lambda: CorrectionLog.objects.all(),
    time="created_at",
    keys={
        "agent": F("agent"),
        "source": F("source"),
        "synthetic": Coalesce("channel__synthetic", False),
        "outcome": F("outcome"),
    },
    sums={
        "attempts": Count("pk"),
        "firsts": Count("pk", filter=_FIRST),
        "firsts_judged": Count("pk", filter=_FIRST & _JUDGED),
        "failed": Count("pk", filter=Exists(GateDimensionResult.objects.filter(log=OuterRef("pk"), passed=False))),
    },
    counted="attempts",
)
VERDICTS = HourlySums(
    table=DimensionHour,
    raw=lambda: GateDimensionResult.objects.all(),
    time="log__created_at",
    keys={
        "agent": F("log__agent"),
        "source": F("log__source"),
        "synthetic": Coalesce("log__channel__synthetic", False),
        "dimension": F("dimension"),
        "judge": F("log__judge"),
    },
    sums={
        "checks": Count("pk"),
        "scored": Count("pk", filter=_SCORED),
        "failures": Count("pk", filter=Q(passed=False)),
        "first_failures": Count("pk", filter=Q(passed=False, log__attempt=1)),
        "score_sum": _scores(Q()),
        "first_scored": Count("pk", filter=_SCORED & Q(log__attempt=1)),
        "first_score_sum": _scores(Q(log__attempt=1)),
        "committed_scored": Count("pk", filter=_SCORED & Q(log__committed=True)),
        "committed_score_sum": _scores(Q(log__committed=True)),
        **{f"were_{status}": Count("pk", filter=Q(status=status)) for status in UNJUDGED},
    },
    counted="checks",
)
GATE = Rolled(name="gate", model=CorrectionLog, tables=(ATTEMPTS, VERDICTS))

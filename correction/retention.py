"""What of correction is a log: attempts with their verdicts, observed messages, interventions and requests that were looked at."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q

from agents.ops.retention import Log
from correction.models import (
    BehaviorEffect,
    BehaviorRequest,
    CorrectionLog,
    GateDimensionResult,
    InterventionLog,
    ObservedMessage,
)
from correction.rollup import GATE

# Marks of people are in no sums: a session with one stays, and with it the precision beside each threshold.
_MARKED = GateDimensionResult.objects.filter(log__session=OuterRef("session")).exclude(mark="")
# A cooldown is counted in messages from the last time it fired, however long ago that was.
_FIRED_LATER = InterventionLog.objects.filter(
    agent=OuterRef("agent"), channel=OuterRef("channel"), name=OuterRef("name"), fired=True, pk__gt=OuterRef("pk")
)

# What came to a decision stays: a version of a persona goes back to it, and it can still be taken back.
_CAME_TO_NOTHING = (
    BehaviorRequest.Status.NO_REQUEST,
    BehaviorRequest.Status.DETECTED,
    BehaviorRequest.Status.FAILED,
    BehaviorRequest.Status.ERRORED,
    BehaviorRequest.Status.CANCELLED,
)

# What was measured stays as long as its request does.
_NOT_MEASURED = (BehaviorEffect.Status.FAILED, BehaviorEffect.Status.ERRORED, BehaviorEffect.Status.CANCELLED)

LOGS = (
    Log(
        rows=lambda before: CorrectionLog.objects.filter(~Exists(_MARKED), created_at__lt=before),
        children=((GateDimensionResult, "log"),),
        rolled=GATE,
    ),
    Log(
        rows=lambda before: InterventionLog.objects.filter(
            Q(fired=False) | Q(agent=None) | Q(channel=None) | Exists(_FIRED_LATER), created_at__lt=before
        )
    ),
    Log(rows=lambda before: ObservedMessage.objects.filter(status__in=ObservedMessage.FINAL, finished_at__lt=before)),
    Log(rows=lambda before: BehaviorEffect.objects.filter(status__in=_NOT_MEASURED, finished_at__lt=before)),
    Log(rows=lambda before: BehaviorRequest.objects.filter(status__in=_CAME_TO_NOTHING, finished_at__lt=before)),
)

"""What of correction is a log: attempts with their verdicts, observed messages, and interventions that were looked at."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q

from agents.retention import Log
from correction.models import CorrectionLog, GateDimensionResult, InterventionLog, ObservedMessage
from correction.rollup import GATE

# Marks of people are in no sums: a session with one stays, and with it the precision beside each threshold.
_MARKED = GateDimensionResult.objects.filter(log__session=OuterRef("session")).exclude(mark="")
# A cooldown is counted in messages from the last time it fired, however long ago that was.
_FIRED_LATER = InterventionLog.objects.filter(
    agent=OuterRef("agent"), channel=OuterRef("channel"), name=OuterRef("name"), fired=True, pk__gt=OuterRef("pk")
)

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
)

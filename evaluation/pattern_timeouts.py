"""Counts of patterns that took too long, by proposition. Nothing is switched off for it: a sender could disable a rule that way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from django.db.models import F
from django.utils import timezone

from agents.text.patterns import TIMED_OUT
from evaluation.models import PatternTimeout


def count_timeouts(unscored: Iterable[tuple[str, str, str]]) -> None:
    """Add the time-outs among these (dimension, proposition id, reason); no statement where there are none."""
    found = Counter(
        (dimension, proposition_id, reason.removeprefix(TIMED_OUT)[:200])
        for dimension, proposition_id, reason in unscored
        if reason.startswith(TIMED_OUT)
    )
    now = timezone.now()
    for (dimension, proposition_id, pattern), times in sorted(found.items()):  # in one order, against deadlocks
        row, _ = PatternTimeout.objects.get_or_create(
            dimension=dimension, proposition_id=proposition_id, pattern=pattern, defaults={"last_at": now}
        )
        PatternTimeout.objects.filter(pk=row.pk).update(times=F("times") + times, last_at=now)


def timeouts_of(proposition_ids: Iterable[str]) -> dict[tuple[str, str], list[PatternTimeout]]:
    """The counted time-outs by dimension and proposition, in one statement."""
    found: dict[tuple[str, str], list[PatternTimeout]] = defaultdict(list)
    for row in PatternTimeout.objects.filter(proposition_id__in=set(proposition_ids)):
        found[row.dimension, row.proposition_id].append(row)
    return found

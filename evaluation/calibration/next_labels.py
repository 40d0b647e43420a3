"""The judgements to label next: a label set grows by judgements that are spread over the judge's scores."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from django.db import transaction
from django.db.models import Max

from evaluation.calibration.labels import MOST_DRAWN, NothingToDraw, population_of
from evaluation.calibration.models import DrawnScore, LabelSet

NEXT = 20  # of the button in the console


def draw_next(*, label_set: LabelSet, n: int = NEXT) -> int:
    """Draw n more judgements of what a label set was drawn from, spread over the judge's scores; return how many were added.

    Each judgement of the population is as likely as any other to be in the set, before and after, so that all figures of the set stay
    valid without weights. They are labelled in random order: any first few of them are a random draw, too.

    Raises:
        NothingToDraw: All of its population is drawn already.
        ValueError: n is out of range.
    """
    with transaction.atomic():
        LabelSet.objects.select_for_update().get(pk=label_set.pk)  # two clicks at once draw one after the other
        rows = DrawnScore.objects.filter(label_set=label_set)
        drawn = set(rows.values_list("evaluation_score_id", flat=True))
        if not 1 <= n <= MOST_DRAWN - len(drawn):
            raise ValueError(f"next {n}: 1 to {MOST_DRAWN - len(drawn):,} more for {label_set}")
        scores: dict[int, int] = {}
        for pk, raw_score in population_of(label_set).values_list("pk", "raw_score"):
            if pk not in drawn and raw_score is not None:
                scores[pk] = raw_score
        if not scores:
            raise NothingToDraw(f"{label_set}: everything it was drawn from is in it")
        rng = random.Random(f"{label_set.seed}/{len(drawn)}")  # noqa: S311 (repeatable, not unpredictable)
        chosen = spread_over_scores(scores, n, rng)
        last_place = rows.aggregate(last=Max("place"))["last"] or 0
        DrawnScore.objects.bulk_create(
            (
                DrawnScore(label_set=label_set, evaluation_score_id=pk, place=number)
                for number, pk in enumerate(chosen, last_place + 1)
            ),
            batch_size=500,
        )
    return len(chosen)


def spread_over_scores(scores: Mapping[int, int], n: int, rng: random.Random) -> Sequence[int]:
    """Return n keys (all, where there are fewer), spread evenly over the judge's scores, in random order.

    This is a systematic sample: the keys are put in the order of their scores, equal ones in random order, and every k-th is taken from a
    random start. Each key is as likely as any other, and each score has its share of the sample, give or take one.

    Args:
        scores: The judge's score by key.
    """
    n = min(n, len(scores))
    keys = sorted(scores)
    rng.shuffle(keys)
    keys.sort(key=lambda key: scores[key])
    step = len(keys) / n
    start = rng.random() * step
    chosen = [keys[int(start + number * step)] for number in range(n)]
    rng.shuffle(chosen)
    return chosen

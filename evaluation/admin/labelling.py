"""The page on which people label: one judgement at a time, without what the judge made of it until their own label is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.safestring import SafeString

from agents.console import display
from evaluation.calibration.labels import BANDS, drawn_ids
from evaluation.calibration.shown import shown
from evaluation.models import EvaluationScore, LabelSet, ScoreLabel

CANNOT_TELL = "cannot_tell"
_RELATED = (
    "evaluation_run__agent",
    "evaluation_run__channel",
    "message__channel",
    "message__agent",
    "compared_with__agent",
)


@dataclass(frozen=True, slots=True)
class Desk:
    """A label set as one annotator works on it: the judgements in their order, and the annotator's own labels by judgement."""

    label_set: LabelSet
    ids: list[int]
    mine: dict[int, ScoreLabel]

    @property
    def open_ids(self) -> list[int]:
        return [pk for pk in self.ids if pk not in self.mine]

    def next_after(self, pk: int | None) -> int | None:
        """The next judgement without a label of mine after `pk`, from the start again at the end; None when all have one."""
        left = self.open_ids
        if pk not in self.ids or not left:
            return left[0] if left else None
        later = self.ids[self.ids.index(pk) + 1 :]
        return next((other for other in later if other not in self.mine), left[0])

    def before(self, pk: int | None) -> int | None:
        """The judgement before `pk`; with None the last one."""
        place = self.ids.index(pk) if pk in self.ids else len(self.ids)
        return self.ids[place - 1] if place else None


def desk_of(label_set: LabelSet, annotator: str) -> Desk:
    """In two queries."""
    ids = drawn_ids(label_set)
    own = ScoreLabel.objects.filter(evaluation_score__label_sets=label_set, annotator=annotator, withdrawn=False)
    return Desk(label_set, ids, {label.evaluation_score_id: label for label in own})


def with_everything() -> QuerySet[EvaluationScore]:
    return EvaluationScore.objects.select_related(*_RELATED)


def page_context(desk: Desk, *, item: int | None, saved: int | None) -> dict[str, Any]:
    """What the template shows.

    Args:
        desk: Whose.
        item: The judgement to label; None when everything is labelled.
        saved: The judgement just labelled: only now it is shown what the judge gave.
    """
    done = len(desk.mine)
    unknown = sum(label.value is None for label in desk.mine.values())
    current = with_everything().filter(pk=item).first() if item is not None else None
    return {
        "label_set": desk.label_set,
        "done": done,
        "total": len(desk.ids),
        "unknown": unknown,
        "place": desk.ids.index(item) + 1 if item is not None else None,
        "item": None if current is None else shown(current),
        "item_id": item,
        "label": desk.mine.get(item) if item is not None else None,
        "bands": BANDS,
        "cannot_tell": CANNOT_TELL,
        "before": desk.before(item),
        "skippable": current is not None and any(pk != item for pk in desk.open_ids),
        "saved": _revealed(desk, saved) if saved is not None else None,
        "agreed": own_agreement(desk) if item is None else None,
    }


def own_agreement(desk: Desk) -> dict[str, Any] | None:
    """How one's own blind labels of a whole set compare with what the judge gave; None without any.

    `same` and `near` count labels that are the judge's number, and at most one point from it; `apart` is the mean of judge minus
    label, in points of 0 to 9.
    """
    given = {pk: label.value for pk, label in desk.mine.items() if label.blind and label.value is not None}
    raw = EvaluationScore.objects.filter(label_sets=desk.label_set, raw_score__isnull=False)
    apart = [score - given[pk] for pk, score in raw.values_list("pk", "raw_score") if score is not None and pk in given]
    if not apart:
        return None
    mean = sum(apart) / len(apart)
    return {
        "labels": len(apart),
        "same": apart.count(0),
        "near": sum(abs(points) <= 1 for points in apart),
        "apart": f"{abs(mean):.1f}",
        "side": "higher" if mean > 0 else "lower",
        "level": round(abs(mean), 1) == 0,
    }


def _revealed(desk: Desk, pk: int) -> dict[str, Any] | None:
    """What the judge gave for a judgement that has a label of one's own; None for every other."""
    label = desk.mine.get(pk)
    score = EvaluationScore.objects.filter(pk=pk).first() if label is not None else None
    if label is None or score is None:
        return None
    reasons = "\n\n".join(filter(None, (score.reasoning, score.justification)))
    return {
        "pk": pk,
        "mine": "cannot tell" if label.value is None else label.value,
        "judge": score.raw_score,
        "apart": None if label.value is None or score.raw_score is None else abs(label.value - score.raw_score),
        "blind": label.blind,
        "claim": display.visible(score.claim),
        "reasoning": display.folded(reasons, 200) if reasons else SafeString(""),
    }

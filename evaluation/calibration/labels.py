"""Store and withdraw labels, and say how far each annotator is. Labels are about the claim as written, blind to the judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Count, Q

from agents.transcripts.records import Cleaner
from evaluation.calibration.agreement import key_of, mark_changed
from evaluation.calibration.population import drawn_ids
from evaluation.judge.questions import MAX_SCORE, MIN_SCORE
from evaluation.models import COUNTED, RULE_JUDGE, DrawnScore, EvaluationScore, LabelSet, ScoreLabel

BANDS: tuple[tuple[tuple[int, ...], str], ...] = (
    ((0,), "completely false"),
    ((1, 2), "mostly false"),
    ((3,), "weak support"),
    ((4, 5), "mixed"),
    ((6,), "fair support"),
    ((7, 8), "mostly true"),
    ((9,), "completely true"),
)
"""What the numbers mean, as in the judge's prompt (templates/prompts/judge/rubric.md)."""
MOST_NOTE = 4_000


def why_not_labelled(score: EvaluationScore) -> str:
    """Why a label of this judgement would say nothing about the judge; empty when it would."""
    if score.dimension in COUNTED:
        return f"{score.dimension} is a count, not a score of 0 to 9"
    if score.status != EvaluationScore.Status.SCORED or score.raw_score is None:
        return f"it is {score.status}; only what the judge scored can be labelled"
    return "an exact rule scored it, no judge" if score.judge == RULE_JUDGE else ""


def save_label(
    *,
    score: EvaluationScore,
    annotator: str,
    value: int | None,
    note: str = "",
    user: User | None = None,
) -> ScoreLabel:
    """Store what a person says of a judgement. The same again changes nothing.

    A label that is changed from an account, which has seen the judge's score meanwhile, is stored as not blind.

    Args:
        score: The judgement; with its run.
        annotator: Who says so, 1 to 150 characters.
        value: 0 to 9 for the claim as written; None: cannot tell.

    Raises:
        ValueError: Names the field, the value, and what is allowed.
    """
    fields = {"value": checked_value(value), "note": checked_note(note), "withdrawn": False, "user": user}
    annotator = checked_annotator(annotator)
    if why := why_not_labelled(score):
        raise ValueError(f"score {score.pk}: {why}")
    try:
        with transaction.atomic():  # no label without its mark that figures changed
            label, created = ScoreLabel.objects.get_or_create(
                evaluation_score=score, annotator=annotator, defaults=fields
            )
            if not created:
                if not label.withdrawn and (label.value, label.note) == (value, fields["note"]):
                    return label
                label.blind = label.blind and label.user_id is None and user is None
                for name, new in fields.items():
                    setattr(label, name, new)
                label.save()
            mark_changed([key_of(score)])
    except IntegrityError:  # the judgement was deleted meanwhile
        raise ValueError(f"score {score.pk}: it was deleted") from None
    return label


def withdraw_label(*, score: EvaluationScore, annotator: str) -> bool:
    """Take a label back, so that the judgement is open again for its annotator, though not blind; whether there was one."""
    label = ScoreLabel.objects.filter(evaluation_score=score, annotator=annotator, withdrawn=False)
    with transaction.atomic():
        if not label.update(withdrawn=True, value=None, blind=False):
            return False
        mark_changed([key_of(score)])
    return True


def open_figures(*, label_set: LabelSet, user: User) -> None:
    """Note that an account asked to see what came of a set: what it has not labelled there it can no longer label blind."""
    rows = [
        ScoreLabel(evaluation_score_id=pk, annotator=user.get_username(), user=user, blind=False, withdrawn=True)
        for pk in drawn_ids(label_set)
    ]
    ScoreLabel.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def begun(label_set: LabelSet, annotator: str) -> bool:
    """Whether that annotator has labelled anything of a set."""
    labels = ScoreLabel.objects.filter(evaluation_score__label_sets=label_set, annotator=annotator)
    return labels.filter(withdrawn=False).exists()


def figures_opened(*, label_set: LabelSet, annotator: str) -> bool:
    """Whether that annotator can label nothing of a set blind any more."""
    blind = ScoreLabel.objects.filter(annotator=annotator, blind=False, evaluation_score__label_sets=label_set)
    return blind.count() >= label_set.drawn.count() > 0


def checked_value(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and MIN_SCORE <= value <= MAX_SCORE):
        return value
    raise ValueError(f"value {value!r}: allowed: whole numbers 0 to 9, or none for cannot tell")


def checked_annotator(name: str) -> str:
    name = Cleaner().text(name).strip()
    if not 1 <= len(name) <= 150:
        raise ValueError(f"annotator {name[:20]!r}: 1 to 150 characters")
    return name


def checked_note(note: str) -> str:
    note = Cleaner().text(note).strip().replace("\r\n", "\n")
    if len(note) > MOST_NOTE:
        raise ValueError(f"note of {len(note):,} characters: at most {MOST_NOTE:,}")
    return note


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one annotator is in a label set: `labelled` of `drawn`, `cannot_tell` among them."""

    annotator: str
    labelled: int
    drawn: int
    cannot_tell: int

    @property
    def done(self) -> bool:
        return self.labelled >= self.drawn


def progress(label_sets: Sequence[LabelSet]) -> dict[int, tuple[Progress, ...]]:
    """By label set, how far each annotator is who began; in two queries."""
    ids = [label_set.pk for label_set in label_sets]
    drawn = DrawnScore.objects.filter(label_set__in=ids).order_by()
    sizes = dict(drawn.values_list("label_set").annotate(n=Count("pk")))
    given = "evaluation_score__labels"
    rows = (
        drawn.filter(**{f"{given}__withdrawn": False})
        .values_list("label_set", f"{given}__annotator")
        .annotate(n=Count("pk"), unknown=Count("pk", filter=Q(**{f"{given}__value__isnull": True})))
        .order_by("label_set", f"{given}__annotator")
    )
    by_set: dict[int, list[Progress]] = {pk: [] for pk in ids}
    for pk, annotator, labelled, unknown in rows:
        by_set[pk].append(Progress(annotator, labelled, sizes.get(pk, 0), unknown))
    return {pk: tuple(entries) for pk, entries in by_set.items()}


def all_done(entries: Iterable[Progress]) -> bool:
    """Whether all who began have labelled everything; until then labels of others are hidden."""
    return all(entry.done for entry in entries)

"""Draw judgements of one judge at random, and store the labels people give them, blind to the judge, about the claim as written."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Count, F, Max, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from agents.kit.text.cleaner import Cleaner
from agents.kit.work.queues import wake_workers
from agents.models import Agent
from evaluation.calibration.models import DrawnScore, JudgeCalibration, LabelSet, ScoreLabel
from evaluation.judge.verdicts import MAX_SCORE, MIN_SCORE
from evaluation.models import (
    BY_MESSAGE,
    COUNTED,
    RULE_JUDGE,
    Dimension,
    EvaluationRun,
    EvaluationScore,
    Method,
    procedure_fields,
)

MOST_DRAWN = 10_000
MOST_NOTE = 4_000  # characters of a note

BANDS: tuple[tuple[tuple[int, ...], str], ...] = (
    ((0,), "completely false"),
    ((1, 2), "mostly false"),
    ((3,), "weak support"),
    ((4, 5), "mixed"),
    ((6,), "fair support"),
    ((7, 8), "mostly true"),
    ((9,), "completely true"),
)
"""What the numbers mean, as in the judge's prompt (evaluation/templates/prompts/judge/rubric.md)."""


class Key(NamedTuple):
    """A judge, how it judged, and a dimension: what figures are about."""

    judge: str
    procedure: str
    dimension: str


def key_of(score: EvaluationScore) -> Key:
    """Return what a label of this judgement changes the figures of."""
    run = score.evaluation_run
    return Key(run.judge, run.procedure, score.dimension)


def mark_changed(keys: Iterable[Key]) -> None:
    """Note that labels changed: their figures are stale until a worker (or `manage.py calibrate_judge`) computes them again."""
    for key in sorted(set(keys)):
        row, _ = JudgeCalibration.objects.get_or_create(**key._asdict())
        JudgeCalibration.objects.filter(pk=row.pk).update(changes=F("changes") + 1)
    transaction.on_commit(wake_workers)


# -- what there is to label
class NothingToDraw(ValueError):
    """There is no scored judgement of the kind asked for."""


def check_dimension(dimension: str) -> str:
    """Return the dimension, when it is scored 0 to 9.

    Raises:
        ValueError: There is no such dimension, or it is counted.
    """
    allowed = [name for name in Dimension.values if name not in COUNTED]
    if dimension not in allowed:
        why = " is a count, not a score" if dimension in COUNTED else ""
        raise ValueError(f"dimension {dimension!r}{why}; allowed: {', '.join(allowed)}")
    return dimension


def scored_judgements(*, judge: str, procedure: str, dimension: str) -> QuerySet[EvaluationScore]:
    """Return judgements with a raw score by that judge: no exact rules, nothing trivial or unscored, of repeats the first."""
    fields = {f"evaluation_run__{name}": value for name, value in procedure_fields(procedure).items()}
    fields["evaluation_run__swap_test"] = ""  # swapped texts stand nowhere to be read and labelled
    scores = EvaluationScore.objects.filter(
        evaluation_run__judge=judge, dimension=dimension, repeat=1, status="scored", raw_score__isnull=False, **fields
    )
    return scores.exclude(judge=RULE_JUDGE).exclude(evidence="absent").order_by("pk")


def population(
    *, judge: str, procedure: str, dimension: str, runs: Sequence[int], until: datetime | None = None
) -> QuerySet[EvaluationScore]:
    """Return what is drawn from: of each message and claim the newest judgement in these runs, of windows every one.

    Judgements whose message was deleted are left out.

    Args:
        until: Leaves out what was judged later, so that the population of a draw stays the same; judgements without a time stay in.
    """
    scores = scored_judgements(judge=judge, procedure=procedure, dimension=dimension).filter(evaluation_run__in=runs)
    if until is not None:
        scores = scores.filter(Q(judged_at__isnull=True) | Q(judged_at__lte=until))
    if dimension not in BY_MESSAGE:
        return scores
    newest = (
        scores.filter(message__isnull=False)
        .order_by()
        .values("message", "compared_with", "proposition_id", "claim")
        .annotate(newest=Max("pk"))
    )
    return EvaluationScore.objects.filter(pk__in=newest.values("newest")).order_by("pk")


def population_of(label_set: LabelSet) -> QuerySet[EvaluationScore]:
    """Return what a label set was drawn from, as far as it still exists."""
    return population(
        judge=label_set.judge,
        procedure=label_set.procedure,
        dimension=label_set.dimension,
        runs=label_set.population["runs"],
        until=parse_datetime(label_set.population["until"]),
    )


def draw_label_set(
    *,
    name: str,
    judge: str,
    dimension: str,
    n: int,
    procedure: str = Method.PLUMBLINE.value,
    runs: Sequence[EvaluationRun] | None = None,
    agents: Sequence[Agent] | None = None,
    seed: int = 0,
    user: User | None = None,
) -> LabelSet:
    """Draw judgements at random for people to label, each as likely as any other, and store them in the order drawn.

    Args:
        n: How many; all, when there are fewer.
        runs: Only of these evaluations. `agents`: only of these agents, and of the channels they spoke in. None = of all.

    Raises:
        NothingToDraw: No judgement is of that kind.
        ValueError: A value that is not allowed, or a name that is in use.
    """
    name = checked_name(name)
    if not 1 <= n <= MOST_DRAWN:
        raise ValueError(f"n is {n}; allowed: 1 to {MOST_DRAWN:,}")
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed {seed}: a whole number of at most 63 bits")
    kind = {"judge": judge, "procedure": procedure, "dimension": check_dimension(dimension)}
    drawn_from = _run_ids(kind, runs, agents)
    until = timezone.now()
    ids = list(population(**kind, runs=drawn_from, until=until).values_list("pk", flat=True))
    if not ids:
        raise NothingToDraw(f"no scored judgement of {dimension} by {judge} ({procedure}){_among(runs, agents)}")
    drawn = random.Random(seed).sample(ids, min(n, len(ids)))  # noqa: S311 (repeatable, not unpredictable)
    filters: dict[str, Any] = {"runs": drawn_from, "until": until.isoformat()}
    if agents is not None:
        filters["agents"] = sorted(agent.slug for agent in agents)
    try:
        with transaction.atomic():
            label_set = LabelSet.objects.create(
                name=name, **kind, population=filters, population_size=len(ids), seed=seed, created_by=user
            )
            DrawnScore.objects.bulk_create(
                (
                    DrawnScore(label_set=label_set, evaluation_score_id=pk, place=number)
                    for number, pk in enumerate(drawn, 1)
                ),
                batch_size=500,
            )
    except IntegrityError:
        raise ValueError(f"name {name!r}: there is a label set of that name") from None
    return label_set


def checked_name(name: str) -> str:
    """Return the name of a label set without white space around it.

    Raises:
        ValueError: It cannot be a name.
    """
    name = name.strip()
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise ValueError(f"name {name[:20]!r}: 1 to 100 characters, none of them a control character")
    return name


def drawn_ids(label_set: LabelSet) -> list[int]:
    """Return the ids of the judgements of a set in the order they were drawn: any first few of them are a random draw, too."""
    rows = DrawnScore.objects.filter(label_set=label_set).order_by("place")
    return list(rows.values_list("evaluation_score_id", flat=True))


def _run_ids(kind: dict[str, str], runs: Sequence[EvaluationRun] | None, agents: Sequence[Agent] | None) -> list[int]:
    """Return the ids of the evaluations that are drawn from: those with such judgements, narrowed."""
    chosen = EvaluationRun.objects.filter(pk__in=scored_judgements(**kind).order_by().values("evaluation_run"))
    if runs is not None:
        chosen = chosen.filter(pk__in=[run.pk for run in runs])
    if agents is not None:
        chosen = chosen.filter(Q(agent__in=agents) | Q(agent_runs__agent__in=agents))
    return sorted(set(chosen.values_list("pk", flat=True)))


def _among(runs: Sequence[EvaluationRun] | None, agents: Sequence[Agent] | None) -> str:
    """Say what a draw was narrowed to; empty when it was not."""
    groups = []
    if runs is not None:
        groups.append(f"evaluations {', '.join(str(run.pk) for run in runs) or 'none'}")
    if agents is not None:
        groups.append(f"agents {', '.join(agent.display_name for agent in agents) or 'none'}")
    return f" in {' and '.join(groups)}" if groups else ""


# -- labels
def why_not_labelled(score: EvaluationScore) -> str:
    """Return why a label of this judgement would say nothing about the judge; empty when it would."""
    if score.dimension in COUNTED:
        return f"{score.dimension} is a count, not a score of 0 to 9"
    if score.status != EvaluationScore.Status.SCORED or score.raw_score is None:
        return f"it is {score.status}; only what the judge scored can be labelled"
    if score.evaluation_run.swap_test:
        return "it was made to test the judge on texts of others"
    if score.judge == RULE_JUDGE:
        return "an exact rule scored it, no judge"
    return ""


def save_label(
    *,
    score: EvaluationScore,
    annotator: str,
    value: int | None,
    note: str = "",
    blind: bool = True,
    user: User | None = None,
) -> ScoreLabel:
    """Store what a person says of a judgement, in place of what the annotator said before, and mark the judge's figures as stale.

    The same value and note again change nothing. A label that is changed is stored as not blind where it was given, or is changed, from an
    account (`user`), which has seen the judge's score meanwhile; one that is not blind stays so.

    Args:
        score: The judgement; with its run.
        annotator: Who says so, 1 to 150 characters.
        value: 0 to 9 for the claim as written; None: cannot tell.
        blind: Whether they had not seen the judge's score.

    Raises:
        ValueError: Names the field, the value, and what is allowed.
    """
    fields = {"value": checked_value(value), "note": checked_note(note), "withdrawn": False, "user": user}
    annotator = checked_annotator(annotator)
    why_not = why_not_labelled(score)
    if why_not:
        raise ValueError(f"score {score.pk}: {why_not}")
    try:
        with transaction.atomic():  # no label without its mark that figures changed
            label, created = ScoreLabel.objects.get_or_create(
                evaluation_score=score, annotator=annotator, defaults={**fields, "blind": blind}
            )
            if not created:
                # A withdrawn label is given again, also with the same value.
                is_same = label.value == value and label.note == fields["note"]
                if is_same and not label.withdrawn:
                    return label
                # An account has seen the judge's score meanwhile.
                has_account = label.user_id is not None or user is not None
                label.blind = blind and label.blind and not has_account
                for name, new in fields.items():
                    setattr(label, name, new)
                label.save()
            mark_changed([key_of(score)])
    except IntegrityError:  # the judgement was deleted meanwhile
        raise ValueError(f"score {score.pk}: it was deleted") from None
    return label


def withdraw_label(*, score: EvaluationScore, annotator: str) -> bool:
    """Take a label back, so that the judgement is open again for its annotator, though not blind; return whether there was one.

    The row stays without its value, and the judge's figures become stale.
    """
    labels = ScoreLabel.objects.filter(evaluation_score=score, annotator=annotator, withdrawn=False)
    with transaction.atomic():
        if not labels.update(withdrawn=True, value=None, blind=False):
            return False
        mark_changed([key_of(score)])
    return True


def open_figures(*, label_set: LabelSet, user: User) -> None:
    """Note that an account asked to see what came of a set: what it has not labelled there it can no longer label blind.

    That is a withdrawn label that is not blind for each judgement; labels that the account has given stay as they are.
    """
    rows = [
        ScoreLabel(evaluation_score_id=pk, annotator=user.get_username(), user=user, blind=False, withdrawn=True)
        for pk in drawn_ids(label_set)
    ]
    ScoreLabel.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def has_begun(label_set: LabelSet, annotator: str) -> bool:
    """Return whether that annotator has labelled anything of a set."""
    labels = ScoreLabel.objects.filter(evaluation_score__label_sets=label_set, annotator=annotator)
    return labels.filter(withdrawn=False).exists()


def figures_opened(*, label_set: LabelSet, annotator: str) -> bool:
    """Return whether that annotator can label nothing of a set blind any more: each judgement has a label of theirs that is not blind."""
    not_blind = ScoreLabel.objects.filter(annotator=annotator, blind=False, evaluation_score__label_sets=label_set)
    drawn = label_set.drawn.count()
    return drawn > 0 and not_blind.count() >= drawn


def checked_value(value: object) -> int | None:
    """Return a label's value; None is cannot tell.

    Raises:
        ValueError: It is no whole number from 0 to 9.
    """
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and MIN_SCORE <= value <= MAX_SCORE:
        return value
    raise ValueError(f"value {value!r}: allowed: whole numbers 0 to 9, or none for cannot tell")


def checked_annotator(name: str) -> str:
    """Return the name of an annotator, cleaned.

    Raises:
        ValueError: It is empty or too long.
    """
    name = Cleaner().text(name).strip()
    if not 1 <= len(name) <= 150:
        raise ValueError(f"annotator {name[:20]!r}: 1 to 150 characters")
    return name


def checked_note(note: str) -> str:
    """Return a note, cleaned.

    Raises:
        ValueError: It is too long.
    """
    note = Cleaner().text(note).strip().replace("\r\n", "\n")
    if len(note) > MOST_NOTE:
        raise ValueError(f"note of {len(note):,} characters: at most {MOST_NOTE:,}")
    return note


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one annotator in a label set: `labelled` of `drawn`, `cannot_tell` among them."""

    annotator: str
    labelled: int
    drawn: int
    cannot_tell: int

    @property
    def done(self) -> bool:
        return self.labelled >= self.drawn


def progress(label_sets: Sequence[LabelSet]) -> dict[int, tuple[Progress, ...]]:
    """Return by label set how far each annotator is who began, by name; in two queries. Empty where nobody began.

    "Cannot tell" counts as labelled, a withdrawn label does not.
    """
    ids = [label_set.pk for label_set in label_sets]
    drawn = DrawnScore.objects.filter(label_set__in=ids).order_by()
    sizes = dict(drawn.values_list("label_set").annotate(n=Count("pk")))
    cannot_tell = Count("pk", filter=Q(evaluation_score__labels__value__isnull=True))
    rows = (
        drawn.filter(evaluation_score__labels__withdrawn=False)
        .values_list("label_set", "evaluation_score__labels__annotator")
        .annotate(labelled=Count("pk"), cannot_tell=cannot_tell)
        .order_by("label_set", "evaluation_score__labels__annotator")
    )
    by_set: dict[int, list[Progress]] = {pk: [] for pk in ids}
    for pk, annotator, labelled, cannot_tell_count in rows:
        by_set[pk].append(Progress(annotator, labelled, sizes.get(pk, 0), cannot_tell_count))
    return {pk: tuple(entries) for pk, entries in by_set.items()}


def all_done(entries: Iterable[Progress]) -> bool:
    """Return whether all who began have labelled everything; until then labels of others are hidden."""
    return all(entry.done for entry in entries)

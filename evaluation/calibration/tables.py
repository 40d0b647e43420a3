"""The tables of labels as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from django.db.models import Q

from agents.kit.registry import NO_ROWS, Erase, Person, Table
from evaluation.calibration.models import DrawnScore, JudgeCalibration, LabelSet, ScoreLabel


def _their_labels(person: Person) -> Q:
    return NO_ROWS if person.user is None else Q(user=person.user.pk)


def _labels_by_name(person: Person) -> Q:
    """A username stays what it is, and with it the annotator's, unless the account is closed."""
    return _their_labels(person) if person.deactivate else NO_ROWS


TABLES = (
    Table(
        model=LabelSet,
        editor="*",
        menu="Quality",
        icon="rate_review",
        title="Labels",
        columns="title what people label_link",
        filters="dimension judge",
        search="name*",
        empty="Draw judgements for people to score here, or with manage.py calibrate_judge --draw 80 --name first --dimension adherence. "
        "It takes evaluations by a model.",
        deleting="The draw is gone and cannot be drawn again the same way. The labels people gave stay with the judgements and in the "
        "judge's calibration.",
        no_speech="name judge population",
    ),
    Table(model=DrawnScore),
    Table(
        model=ScoreLabel,
        operator="add",
        erase=(
            Erase(
                columns="note",
                channel="evaluation_score__evaluation_run__channel evaluation_score__message__channel",
                agent="evaluation_score__evaluation_run__agent",
                blank=_their_labels,
            ),
            Erase(
                columns="annotator",
                name_only=_labels_by_name,
                rows=lambda person: ScoreLabel.objects.filter(_labels_by_name(person)),
            ),
        ),
    ),
    Table(model=JudgeCalibration, no_speech="judge figures swap_test"),
)

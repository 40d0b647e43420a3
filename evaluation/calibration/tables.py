"""The tables of labels as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from django.db.models import Q

from agents.kit.erasing import Erase, Person, matching
from agents.kit.registry import Table
from evaluation.calibration.models import DrawnScore, JudgeCalibration, LabelSet, ScoreLabel
from evaluation.tables import scores_there


def _their_labels(person: Person) -> Q:
    """Return the labels of a person's account; none without an account."""
    if person.user is None:
        return Q(pk=None)
    return Q(user=person.user.pk)


def _labels_by_name(person: Person) -> Q:
    """Return the labels whose annotator's name is erased: a username stays what it is, unless the account is closed."""
    return _their_labels(person) if person.deactivate else Q(pk=None)


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
        "It takes scores that no exact rule gave.",
        deleting="The draw is gone and cannot be drawn again the same way. The labels people gave stay with the judgements and in the "
        "judge's calibration.",
        no_speech="name judge population",
    ),
    Table(model=DrawnScore),
    Table(
        model=ScoreLabel,
        operator="add",
        erase=(
            Erase(columns="note", rows=(matching(_their_labels), *scores_there("evaluation_score__"))),
            Erase(columns="annotator", rows=(matching(_labels_by_name),), name_only=True),
        ),
        typed="annotator",
    ),
    Table(
        model=JudgeCalibration,
        tab_of="calibration.LabelSet",
        title="Judges",
        columns="judge_mark dimension_mark verdict agreement swap computed_at",
        filters="dimension judge procedure",
        empty="A judge has its row when its first evaluation has completed: evaluate an agent on its page.",
        start=(("Check a judge", "admin:evaluation_job_check", "evaluation.view_evaluationrun"),),
        no_speech="judge figures swap_test order_test observed identity",
    ),
)

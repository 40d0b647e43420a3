"""What people say of the same things a judge scored. Blind: the judge's score is shown beside a label once that is saved."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet
from pydantic import Field
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict
from agents.kit.api.rows import Row, Url, shown
from agents.kit.api.schema import answers
from agents.kit.api.views import Listed
from agents.kit.bodies import Body, Id
from evaluation.api.answers import heuristic_of, run_url_of
from evaluation.api.requests import by_dimension
from evaluation.calibration.labels import MOST_NOTE, save_label, why_not_labelled
from evaluation.calibration.models import ScoreLabel
from evaluation.models import EvaluationScore


class LabelBody(Body):
    """A person's own score of one judgement."""

    score: Id = Field(description="the id of a judgement that was scored")
    value: int | None = Field(
        ge=0, le=9, description="0 to 9 for the claim as written, null = cannot be scored from what is shown"
    )
    note: str = Field("", min_length=1, max_length=MOST_NOTE)


class LabelRow(
    Row,
    table=ScoreLabel,
    columns=(
        *("id", "score", "evaluation_run", "run_url", "dimension", "proposition_id", "annotator", "value"),
        *("note", "blind", "judge", "heuristic", "judge_raw_score", "judge_score", "created_at"),
        "updated_at",
    ),
):
    """A label beside what the judge said of the same thing."""

    score: int = shown("evaluation_score_id")
    evaluation_run: int = shown("evaluation_score.evaluation_run_id")
    run_url: Url = run_url_of("evaluation_score.evaluation_run_id")
    dimension: str = shown("evaluation_score.dimension")
    proposition_id: str = shown("evaluation_score.proposition_id")
    judge: str = shown("evaluation_score.judge")
    heuristic: bool = heuristic_of("evaluation_score.judge")
    judge_raw_score: int | None = shown("evaluation_score.raw_score")
    judge_score: int | None = shown("evaluation_score.score")


class LabelFilters(Filters):
    score = filters.number("evaluation_score__pk", allowed="the id of a judgement")
    run = filters.number("evaluation_score__evaluation_run__pk", allowed="the id of an evaluation")
    annotator = filters.Parameter(about="a user's name")
    dimension = by_dimension("evaluation_score__dimension")


class Labels(Listed):
    """Labels, newest first, beside the judge's scores.

    Filters: score and run (ids), annotator, dimension; ordering. Users who may give labels see those of others only for judgements that
    they labelled themselves.
    """

    queryset = ScoreLabel.objects.all()
    answer_class = LabelRow
    pagination_class = Log
    filterset_class = LabelFilters
    bodies: ClassVar = {"create": LabelBody}

    def get_queryset(self) -> QuerySet[ScoreLabel]:
        labels = ScoreLabel.objects.filter(withdrawn=False).select_related("evaluation_score")
        labels = labels.defer("evaluation_score__reasoning", "evaluation_score__justification")
        user = self.request.user
        if not user.has_perm("calibration.add_scorelabel"):
            return labels
        own = ScoreLabel.objects.filter(evaluation_score=OuterRef("evaluation_score"), user=user.pk, withdrawn=False)
        return labels.filter(Q(user=user.pk) | Exists(own))

    @answers({200: LabelRow, 201: LabelRow}, 409)
    def create(self, request: Request) -> Response:
        """Label a judgement: `value` is the score of the claim as written, null when it cannot be scored.

        The annotator is the user. 201; 200 when it replaces the user's own earlier one, which is then not `blind` any more: the judge's
        score was shown. 409 when the judgement is none to label (not scored, a count, a rule). To see what is to be labelled without the
        judge's answer, read an evaluation's `scores/?blind=true`.
        """
        body = self.read_body()
        score = EvaluationScore.objects.select_related("evaluation_run").filter(pk=body.score).first()
        if score is None:
            raise ValidationError({"score": [f"there is no judgement {body.score}"]})
        why_not = why_not_labelled(score)
        if why_not:
            raise Conflict(f"judgement {score.pk} cannot be labelled: {why_not}")
        user: User = request.user  # type: ignore[assignment]  # the permission refuses anonymous users
        annotator = user.get_username()
        is_relabelled = ScoreLabel.objects.filter(evaluation_score=score, annotator=annotator, withdrawn=False).exists()
        try:
            label = save_label(score=score, annotator=annotator, value=body.value, note=body.note, user=user)
        except ValueError as error:  # deleted meanwhile, or the user's name is too long for an annotator's
            raise Conflict(str(error)) from None
        return Response(self.shown(label), status=200 if is_relabelled else 201)

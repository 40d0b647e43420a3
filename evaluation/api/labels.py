"""What people say of the same things a judge scored. Blind: the judge's score is shown beside a label once that is saved."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api import parameters
from agents.api.bodies import StrictBody, Text, Whole
from agents.api.headers import IdempotentPosts
from agents.api.parameters import Log
from agents.api.problems import Conflict
from agents.api.schema import documented, query
from evaluation.api.requests import DIMENSION, number
from evaluation.calibration.labels import MOST_NOTE, save_label, why_not_labelled
from evaluation.models import Dimension, EvaluationScore, ScoreLabel, is_heuristic


class LabelRequest(StrictBody):
    """A person's own score of one judgement."""

    score = Whole(least=1, most=2**63 - 1, allowed="the id of a judgement that was scored")
    value = Whole(
        least=0,
        most=9,
        allow_null=True,
        allowed="0 to 9 for the claim as written, null = cannot be told from what is shown",
    )
    note = Text(required=False, most=MOST_NOTE)


class LabelRow(serializers.ModelSerializer[ScoreLabel]):
    """A label beside what the judge said of the same thing."""

    score = serializers.IntegerField(source="evaluation_score_id", read_only=True)
    evaluation_run = serializers.IntegerField(source="evaluation_score.evaluation_run_id", read_only=True)
    run_url = serializers.SerializerMethodField()
    dimension = serializers.CharField(source="evaluation_score.dimension", read_only=True)
    proposition_id = serializers.CharField(source="evaluation_score.proposition_id", read_only=True)
    judge = serializers.CharField(source="evaluation_score.judge", read_only=True)
    heuristic = serializers.SerializerMethodField()
    judge_raw_score = serializers.IntegerField(source="evaluation_score.raw_score", read_only=True, allow_null=True)
    judge_score = serializers.IntegerField(source="evaluation_score.score", read_only=True, allow_null=True)

    class Meta:
        model = ScoreLabel
        fields = (
            *("id", "score", "evaluation_run", "run_url", "dimension", "proposition_id", "annotator", "value", "note"),
            *("blind", "judge", "heuristic", "judge_raw_score", "judge_score", "created_at", "updated_at"),
        )

    def get_heuristic(self, label: ScoreLabel) -> bool:
        return is_heuristic(label.evaluation_score.judge)

    @extend_schema_field(OpenApiTypes.URI)
    def get_run_url(self, label: ScoreLabel) -> str:
        run = label.evaluation_score.evaluation_run_id
        return str(reverse("evaluation:run", [run], request=self.context["request"]))


_ID = {"type": "integer", "minimum": 1}
_FILTERS = (
    query("score", "the id of a judgement", type=_ID),
    query("run", "the id of an evaluation", type=_ID),
    query("annotator", "a user's name"),
    DIMENSION,
)


@extend_schema_view(get=documented({200: LabelRow(many=True)}, parameters=_FILTERS))
class Labels(IdempotentPosts, ListAPIView[ScoreLabel]):
    """Labels, newest first, beside the judge's scores; POST gives one's own.

    Filters: score and run (ids), annotator, dimension; ordering. Whoever may give labels sees those of others only for judgements that they
    labelled themselves. POST `{"score": ID, "value": 0 to 9 or null, "note": "…"}`: the score of the claim as
    written; null means that it cannot be told from what is shown. The annotator is the user. 201; 200 when it replaces the user's own
    earlier one, which is then not `blind` any more: the judge's score was shown. 409 when the judgement is none to label (not scored,
    a count, a rule). To see what is to be labelled without the judge's answer, read an evaluation's `scores/?blind=true`.
    """

    example: ClassVar = {"score": 1, "value": 7, "note": "as dry as ever"}
    queryset = ScoreLabel.objects.all()
    pagination_class = Log

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return LabelRequest if self.request.method == "POST" else LabelRow

    def get_queryset(self) -> QuerySet[ScoreLabel]:
        labels = ScoreLabel.objects.filter(withdrawn=False).select_related("evaluation_score")
        labels = labels.defer("evaluation_score__reasoning", "evaluation_score__justification")
        user = self.request.user
        if not user.has_perm("evaluation.add_scorelabel"):
            return labels
        own = ScoreLabel.objects.filter(evaluation_score=OuterRef("evaluation_score"), user=user.pk, withdrawn=False)
        return labels.filter(Q(user=user.pk) | Exists(own))

    def filter_queryset(self, queryset: QuerySet[ScoreLabel, Any]) -> QuerySet[ScoreLabel, Any]:
        request = self.request
        parameters.only(request, "score", "run", "annotator", "dimension", "ordering")
        if score := number(request, "score", allowed="the id of a judgement"):
            queryset = queryset.filter(evaluation_score__pk=score)
        if run := number(request, "run", allowed="the id of an evaluation"):
            queryset = queryset.filter(evaluation_score__evaluation_run__pk=run)
        if annotator := parameters.text(request, "annotator"):
            queryset = queryset.filter(annotator=annotator)
        if dimension := parameters.choice(request, "dimension", Dimension.values):
            queryset = queryset.filter(evaluation_score__dimension=dimension)
        return queryset

    @documented({200: LabelRow, 201: LabelRow}, body=LabelRequest, problems=(409,), summary="Label a judgement")
    def post(self, request: Request) -> Response:
        parameters.only(request)
        body = self.get_serializer(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        score = EvaluationScore.objects.select_related("evaluation_run").filter(pk=asked["score"]).first()
        if score is None:
            raise ValidationError({"score": [f"there is no judgement {asked['score']}"]})
        if why := why_not_labelled(score):
            raise Conflict(f"judgement {score.pk} cannot be labelled: {why}")
        user: User = request.user  # type: ignore[assignment]  # the permission refuses anonymous users
        annotator = user.get_username()
        again = ScoreLabel.objects.filter(evaluation_score=score, annotator=annotator, withdrawn=False).exists()
        try:
            label = save_label(
                score=score, annotator=annotator, value=asked["value"], note=asked.get("note", ""), user=user
            )
        except ValueError as error:  # deleted meanwhile, or the user's name is too long for an annotator's
            raise Conflict(str(error)) from None
        return Response(LabelRow(label, context={"request": request}).data, status=200 if again else 201)

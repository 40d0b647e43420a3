"""What the gate did, attempt by attempt, and what people say of its verdicts."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Exists, OuterRef, Prefetch, QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.headers import IdempotentPosts
from agents.api.parameters import LogByTime
from agents.api.requests import ActionPermissions
from agents.api.schema import AGENT, SINCE, UNTIL, documented, query
from correction.config.fields import GATE_DIMENSIONS
from correction.gate.thresholds import mark_result
from correction.models import CorrectionLog, GateDimensionResult, Outcome

_BRIEF = ("dimension", "status", "score", "threshold", "passed", "mark")
_TEXTS = ("original_text", "judged_text", "payload", "feedback")
_OF_LOG = (
    *("id", "url", "session", "attempt", "source", "agent", "channel", "run", "message", "committed", "outcome"),
    *("judge", "score_sum", "duration_ms", "created_at", "speaker", "tags", "dimensions"),
)


class BriefResult(serializers.ModelSerializer[GateDimensionResult]):
    threshold = serializers.FloatField()

    class Meta:
        model = GateDimensionResult
        fields = _BRIEF
        ref_name = "BriefGateResult"


class Result(serializers.ModelSerializer[GateDimensionResult]):
    threshold = serializers.FloatField()
    marked_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    class Meta:
        model = GateDimensionResult
        fields = (
            *_BRIEF,
            *("reasoning", "recommendations", "reason", "judge", "proposition_id", "parts", "call", "duration_ms"),
            *("marked_by", "marked_at"),
        )
        ref_name = "GateResult"


class BriefLog(serializers.ModelSerializer[CorrectionLog]):
    """Without texts, which may be long."""

    url = serializers.HyperlinkedIdentityField(view_name="correction:log")
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    channel = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    tags = serializers.DictField(child=serializers.CharField(allow_blank=True), read_only=True)
    dimensions = BriefResult(source="dimension_results", many=True)

    class Meta:
        model = CorrectionLog
        fields: tuple[str, ...] = _OF_LOG
        ref_name = "CorrectionLogRow"


class WholeLog(BriefLog):
    dimensions = Result(source="dimension_results", many=True)  # type: ignore[assignment]  # more of the same

    class Meta:
        model = CorrectionLog
        fields = (*_OF_LOG, *_TEXTS, "persona_version", "draft_key")
        ref_name = "WholeCorrectionLog"


class MarkRequest(serializers.Serializer[Any]):
    mark = serializers.ChoiceField(["right", "false_alarm", ""], help_text="empty takes a mark back")


_FILTERS = (
    *(AGENT, SINCE, UNTIL, query("outcome", enum=Outcome.values), query("source", enum=CorrectionLog.Source.values)),
    query("dimension", "was looked at", enum=GATE_DIMENSIONS),
    query("session", "the attempts at one message", type=UUID),
)


@extend_schema_view(get=documented({200: BriefLog(many=True)}, parameters=_FILTERS))
class CorrectionLogs(ListAPIView[CorrectionLog]):
    """Attempts at messages as the gate saw them, newest first, without texts; each attempt's own page has them.

    Filters: agent (slug), outcome, source, dimension (was looked at), session, since, until (ISO times). `ordering=created_at` for the
    oldest first.
    """

    queryset = CorrectionLog.objects.all()
    serializer_class = BriefLog
    pagination_class = LogByTime

    def get_queryset(self) -> QuerySet[CorrectionLog]:
        brief = GateDimensionResult.objects.only("log_id", *_BRIEF).order_by("dimension")
        logs = CorrectionLog.objects.select_related("agent", "channel").defer(
            "original_text", "judged_text", "feedback"
        )
        return logs.prefetch_related(Prefetch("dimension_results", brief))

    def filter_queryset(self, queryset: QuerySet[CorrectionLog, Any]) -> QuerySet[CorrectionLog, Any]:
        request = self.request
        parameters.only(request, "agent", "outcome", "source", "dimension", "session", "since", "until", "ordering")
        if agent := parameters.agent(request):
            queryset = queryset.filter(agent=agent)
        if outcome := parameters.choice(request, "outcome", Outcome.values):
            queryset = queryset.filter(outcome=outcome)
        if source := parameters.choice(request, "source", CorrectionLog.Source.values):
            queryset = queryset.filter(source=source)
        if dimension := parameters.choice(request, "dimension", GATE_DIMENSIONS):
            looked_at = GateDimensionResult.objects.filter(log=OuterRef("pk"), dimension=dimension)
            queryset = queryset.filter(Exists(looked_at))
        if session := parameters.uuid(request, "session"):
            queryset = queryset.filter(session=session)
        if since := parameters.moment(request, "since"):
            queryset = queryset.filter(created_at__gte=since)
        if until := parameters.moment(request, "until"):
            queryset = queryset.filter(created_at__lt=until)
        return queryset


@extend_schema_view(get=documented(WholeLog))
class CorrectionLogDetail(RetrieveAPIView[CorrectionLog]):
    """One attempt with its texts and, per dimension, score, threshold, reasoning and what it was made of."""

    queryset = CorrectionLog.objects.select_related("agent", "channel").prefetch_related(
        Prefetch("dimension_results", GateDimensionResult.objects.select_related("marked_by").order_by("dimension"))
    )
    serializer_class = WholeLog


class MarkResult(IdempotentPosts, APIView):
    """POST `{"mark": "right"}`, `"false_alarm"` or `""` (takes it back): what a person says of a failed check."""

    example: ClassVar = {"mark": "right"}
    queryset = GateDimensionResult.objects.all()
    permission_classes = (ActionPermissions,)

    @documented(Result, body=MarkRequest, summary="Mark a check's verdict as right or wrong")
    def post(self, request: Request, pk: int, dimension: str) -> Response:
        # By a subquery, for which a number too large for the column is one that is not there.
        log = CorrectionLog.objects.filter(pk=pk)
        result = GateDimensionResult.objects.filter(log__in=log, dimension=dimension).first()
        if result is None:
            raise NotFound(f"correction log {pk} has no result for the dimension {dimension[:32]!r}")
        if not isinstance(request.data, dict) or set(request.data) != {"mark"}:
            raise ValidationError({"mark": [f'send {{"mark": one of {_MARKS}}} and nothing else']})
        try:
            marked = mark_result(result=result, mark=request.data["mark"], user=request.user)
        except ValueError as error:
            raise ValidationError({"mark": [str(error)]}) from None
        return Response(Result(marked).data)


_MARKS = '"right", "false_alarm", "" (takes a mark back)'

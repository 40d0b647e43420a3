"""Evaluations: listed, asked for, looked at, cancelled, resumed (AC-6.0.7)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.bodies import NoBody
from agents.api.headers import Conditional, IdempotentPosts, etag_of
from agents.api.parameters import Log
from agents.api.problems import Conflict
from agents.api.requests import ActionPermissions, PaidRequests
from agents.api.schema import documented, query
from evaluation.api.requests import (
    DIMENSION,
    RUN_FILTERS,
    YES_NO,
    RunRequest,
    filtered_runs,
    reading_propositions,
    spec_of,
)
from evaluation.api.serializers import AcceptedRun, BlindScoreRow, RunRow, ScoreRow, WholeRun, links_of, shown_run
from evaluation.models import Dimension, EvaluationRun, EvaluationScore
from evaluation.runs.as_json import numbers_json
from evaluation.runs.control import NotPossible, Progress, cancel_run, progress_of, queue_run, resume_run
from evaluation.runs.summary import summarize

MOST_EMBEDDED = 1_000
_HOW_MANY = {"type": "integer", "minimum": 0, "maximum": MOST_EMBEDDED}


class ScorePages(Log):
    """In the order in which they were planned: by dimension, then by message."""

    orders = MappingProxyType({"id": ("pk",)})


@extend_schema_view(get=documented({200: RunRow(many=True)}, parameters=RUN_FILTERS))
class Runs(IdempotentPosts, ListAPIView[EvaluationRun]):
    """Evaluations, newest first; POST asks for one.

    GET filters: agent and channel (slugs), dimension, status, judge, procedure, is_baseline, since, until (ISO times, of when it was
    asked for); `ordering` is `-id` or `id`. POST names exactly one of `agent` and `channel`, and answers 202 with the run and its URL:
    a worker judges. What was asked for within 24 hours and has not ended is not asked for twice: then `taken_up` is true.
    """

    name = "Evaluations"
    example: ClassVar = {"agent": "michael", "dimensions": ["adherence"], "window": "all"}
    queryset = EvaluationRun.objects.select_related("agent", "channel")
    throttle_classes = (PaidRequests,)
    pagination_class = Log
    progress: Mapping[int, Progress] = MappingProxyType({})

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return RunRequest if self.request.method == "POST" else RunRow

    def filter_queryset(self, queryset: QuerySet[EvaluationRun, Any]) -> QuerySet[EvaluationRun, Any]:
        return filtered_runs(self.request, queryset)

    def paginate_queryset(self, queryset: Any) -> Any:
        page = super().paginate_queryset(queryset)
        self.progress = progress_of(page or [])
        return page

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "progress": self.progress}

    @documented({202: AcceptedRun}, body=RunRequest, summary="Ask for an evaluation")
    def post(self, request: Request) -> Response:
        parameters.only(request)
        with reading_propositions():
            run, taken_up = queue_run(spec_of(RunRequest(data=request.data)))
        return accepted(request, run, taken_up=taken_up)


class Run(Conditional, APIView):
    """One evaluation: what was asked for, how far it is, what it found, and its judgements.

    `summary` is the object that `--json` prints for a run, without its observations. `scores` holds the first judgements, 1,000
    unless `?scores=N` says fewer (0 while you only wait for it); `scores_url` has them all, in pages. Ask again with `If-None-Match` while
    you wait: 304 as long as nothing was judged.
    """

    name = "Evaluation"
    queryset = EvaluationRun.objects.all()

    @documented(WholeRun, parameters=(query("scores", "how many of its judgements", type=_HOW_MANY),))
    def get(self, request: Request, pk: int) -> Response:
        parameters.only(request, "scores")
        most = _how_many(request)
        run = the_run(pk)
        scores = scores_of(run)[: most + 1] if most else ()
        shown = list(scores)
        answer = {
            **shown_run(request, run),
            **links_of(request, run),
            "summary": numbers_json(summarize(run)),
            "channels": _channels(request, run),
            "scores": ScoreRow(shown[:most], many=True).data,
            "scores_complete": bool(most) and len(shown) <= most,
        }
        return self.tagged(request, answer, etag_of(answer))


_SCORE_FILTERS = (
    DIMENSION,
    query("status", enum=EvaluationScore.Status.values),
    query("proposition", "its id"),
    query("blind", "for people who label: without what the judge said", enum=YES_NO),
)
_SCORES = PolymorphicProxySerializer("ScoreToRead", [ScoreRow, BlindScoreRow], resource_type_field_name=None, many=True)


@extend_schema_view(get=documented({200: _SCORES}, parameters=_SCORE_FILTERS))
class RunScores(ListAPIView[EvaluationScore]):
    """The judgements of one evaluation, in the order in which they were planned.

    Filters: dimension, status, proposition (its id). With `blind=true` only those that were scored, without what the judge said of
    them: for people who label.
    """

    queryset = EvaluationScore.objects.all()
    pagination_class = ScorePages

    def filter_queryset(self, queryset: QuerySet[EvaluationScore, Any]) -> QuerySet[EvaluationScore, Any]:
        request, queryset = self.request, scores_of(the_run(self.kwargs["pk"]))
        parameters.only(request, "dimension", "status", "proposition", "blind")
        if self._blind():
            queryset = queryset.filter(status="scored")
        if dimension := parameters.choice(request, "dimension", Dimension.values):
            queryset = queryset.filter(dimension=dimension)
        if status := parameters.choice(request, "status", EvaluationScore.Status.values):
            queryset = queryset.filter(status=status)
        if proposition := parameters.text(request, "proposition"):
            queryset = queryset.filter(proposition_id=proposition)
        return queryset

    def get_serializer_class(self) -> type[ScoreRow]:
        return BlindScoreRow if self._blind() else ScoreRow

    def _blind(self) -> bool:
        return YES_NO.get(parameters.choice(self.request, "blind", YES_NO), False)


class RunAction(IdempotentPosts, APIView):
    """What is done with one evaluation; POST without a body."""

    queryset = EvaluationRun.objects.all()
    permission_classes = (ActionPermissions,)

    @documented({200: RunRow, 202: AcceptedRun}, body=NoBody, problems=(409,))
    def post(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        if request.data:
            raise ValidationError(["send no body, or an empty one: there is nothing to choose"])
        try:
            run = self.act(the_run(pk))
        except NotPossible as error:
            raise Conflict(str(error)) from None
        if run.status == EvaluationRun.Status.PENDING:
            return accepted(request, run)
        return Response(shown_run(request, run))

    def act(self, run: EvaluationRun) -> EvaluationRun:
        raise NotImplementedError


class CancelRun(RunAction):
    """POST stops an evaluation that waits, runs or is paused; what was judged stays. 409 when it ended already."""

    def act(self, run: EvaluationRun) -> EvaluationRun:
        return cancel_run(run)


class ResumeRun(RunAction):
    """POST has a worker go on with one that failed, crashed, paused or was cancelled, or ask again what its judge did not answer.

    202; stored judgements are not made again. 409 when it waits or runs, or nothing is left to ask.
    """

    throttle_classes = (PaidRequests,)

    def act(self, run: EvaluationRun) -> EvaluationRun:
        return resume_run(run)


def accepted(request: Request, run: EvaluationRun, **more: Any) -> Response:
    """202: a worker does it; where to look."""
    shown = {**shown_run(request, run), **more}
    return Response(shown, status=202, headers={"Location": str(shown["url"])})  # of no subclass: WSGI asks for that


def the_run(pk: int) -> EvaluationRun:
    run: EvaluationRun | None = EvaluationRun.objects.select_related("agent", "channel").filter(pk=pk).first()
    if run is None:
        raise NotFound(f"there is no evaluation {pk}")
    return run


def scores_of(run: EvaluationRun) -> QuerySet[EvaluationScore]:
    """The judgements of a run with what their rows show, without the messages' texts."""
    found = EvaluationScore.objects.filter(evaluation_run=run).select_related("message__channel")
    return found.defer("message__text", "message__tags", "message__channel__topic").order_by("pk")


def _how_many(request: Request) -> int:
    text = parameters.text(request, "scores")
    if not text:
        return MOST_EMBEDDED
    if not (text.isascii() and text.isdecimal() and int(text[:9]) <= MOST_EMBEDDED and len(text) < 9):
        raise ValidationError({"scores": [f"scores {text[:60]!r}: allowed: 0 to {MOST_EMBEDDED:,}"]})
    return int(text)


def _channels(request: Request, run: EvaluationRun) -> list[dict[str, Any]]:
    """The evaluations of the channels that stand behind an agent's."""
    shares = run.channel_shares.select_related("channel_run__channel")
    return [
        {
            "channel": share.channel_run.channel.slug if share.channel_run.channel else None,
            "messages": share.messages,
            "status": share.channel_run.status,
            "evaluation_run": share.channel_run_id,
            "url": reverse("evaluation:run", [share.channel_run_id], request=request),
        }
        for share in shares
    ]

"""Baselines: listed, captured, compared with (AC-6.5.5)."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.headers import IdempotentPosts
from agents.api.problems import Conflict
from agents.api.requests import ModelPermissions, PaidRequests
from agents.api.schema import AGENT, documented, query
from agents.finding import no_agent
from agents.models import Agent
from evaluation.api.requests import (
    DIMENSION,
    JUDGE,
    PROCEDURE,
    PROCEDURES,
    CaptureRequest,
    number,
    reading_propositions,
    spec_of,
)
from evaluation.api.runs import accepted
from evaluation.api.serializers import AcceptedRun, BaselineRow, BaselinesAnswer, ComparisonAnswer, shown_run
from evaluation.calibration.agreement import all_agreements
from evaluation.change.choosing import nothing_newer
from evaluation.change.comparison import compare_runs
from evaluation.change.evidence import Judged, newest_of, newest_since_baselines, runs_of
from evaluation.change.measurements import NotComparable
from evaluation.models import Baseline, Dimension, EvaluationRun
from evaluation.runs.control import queue_run
from evaluation.statistics.difference import MARGIN

MOST_MARGIN = 9.0
_BASELINES = Baseline.objects.select_related("agent").prefetch_related("agent__traits")


class CapturePermissions(ModelPermissions):
    """Capturing a baseline is asking for an evaluation: it needs that permission, as in the console."""

    perms_map = {**ModelPermissions.perms_map, "POST": ["evaluation.add_evaluationrun"]}  # noqa: RUF012 (as its base has it)


@extend_schema_view(
    get=documented({200: BaselineRow(many=True)}, parameters=(AGENT, JUDGE, PROCEDURE, DIMENSION)),
)
class Baselines(IdempotentPosts, ListAPIView[Baseline]):
    """The current baselines, by agent; POST asks for the capture of one.

    GET filters: agent (slug), judge, procedure, dimension. `is_stale` says that the persona changed since. POST names an `agent` and
    may say all that an evaluation may, but for a channel; 202 with the run and its URL: a worker judges, and the old baseline stays
    until the new one succeeded.
    """

    example: ClassVar = {"agent": "michael", "dimensions": ["adherence"]}
    queryset = _BASELINES.order_by("agent__slug", "judge", "procedure", "dimension")
    permission_classes = (CapturePermissions,)
    throttle_classes = (PaidRequests,)

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return CaptureRequest if self.request.method == "POST" else BaselineRow

    def filter_queryset(self, queryset: QuerySet[Baseline, Any]) -> QuerySet[Baseline, Any]:
        request = self.request
        parameters.only(request, "agent", "judge", "procedure", "dimension")
        if agent := parameters.agent(request):
            queryset = queryset.filter(agent=agent)
        if judge := parameters.text(request, "judge"):
            queryset = queryset.filter(judge=judge)
        if procedure := parameters.choice(request, "procedure", PROCEDURES):
            queryset = queryset.filter(procedure=procedure)
        if dimension := parameters.choice(request, "dimension", Dimension.values):
            queryset = queryset.filter(dimension=dimension)
        return queryset

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "agreements": all_agreements()}

    @documented({202: AcceptedRun}, body=CaptureRequest, summary="Ask for the capture of a baseline")
    def post(self, request: Request) -> Response:
        parameters.only(request)
        with reading_propositions():
            body = CaptureRequest(data=request.data)
            spec = spec_of(body, is_baseline=True)
            run, taken_up = queue_run(spec, simulate=body.validated_data.get("simulate", True))
        return accepted(request, run, taken_up=taken_up)


class BaselinesOfAgent(APIView):
    """The current baselines of one agent: one per judge, procedure and dimension. Empty when none was captured yet."""

    queryset = Baseline.objects.all()

    @documented(BaselinesAnswer)
    def get(self, request: Request, agent: str) -> Response:
        parameters.only(request)
        named = _agent(agent)
        rows = _BASELINES.filter(agent=named).order_by("judge", "procedure", "dimension")
        shown = BaselineRow(rows, many=True, context={"request": request, "agreements": all_agreements()}).data
        return Response({"agent": named.slug, "display_name": named.display_name, "baselines": shown})


class CompareWithBaseline(APIView):
    """An evaluation of the agent compared with its baseline by the same judge and procedure: delta, interval and verdict (AC-6.5.4).

    Per dimension the completed evaluation that scored something and judged the newest message, if that is newer than the baseline's
    newest; or `?run=ID`, of any time. `run` is the newest of them, `where` the tags they were made with. `margin` is the change, in
    points, that still counts as none: 0.5 unless given. 404 when there is nothing to compare, 409 when the two cannot be compared; the
    detail says why.
    """

    queryset = Baseline.objects.all()

    @documented(
        ComparisonAnswer,
        parameters=(
            query("run", "the id of an evaluation of this agent", type={"type": "integer", "minimum": 1}),
            query("margin", "points", type={"type": "number", "exclusiveMinimum": 0, "maximum": MOST_MARGIN}),
        ),
        problems=(409,),
    )
    def get(self, request: Request, agent: str) -> Response:
        parameters.only(request, "run", "margin")
        pk, margin = number(request, "run", allowed="the id of an evaluation of this agent"), _margin(request)
        named = _agent(agent)
        run, runs = _newest(named) if pk is None else _chosen(named, pk)
        try:
            comparison = compare_runs(runs, margin=margin)
        except NotComparable as error:
            raise Conflict(str(error)) from None
        if comparison is None:
            raise NotFound(_no_baseline(run))
        return Response({"agent": named.slug, "run": shown_run(request, run), "comparison": comparison.model_dump()})


def _agent(slug: str) -> Agent:
    agent = Agent.objects.filter(slug=slug).first()
    if agent is None:
        raise NotFound(no_agent(slug))
    return agent


def _margin(request: Request) -> float:
    text = parameters.text(request, "margin")
    try:
        margin = float(text) if text else MARGIN
    except ValueError:
        margin = -1.0
    if not 0 < margin <= MOST_MARGIN:  # which no "nan" is
        raise ValidationError({"margin": [f"margin {text[:60]!r}: allowed: points above 0, at most {MOST_MARGIN:g}"]})
    return margin


def _newest(agent: Agent) -> tuple[EvaluationRun, dict[str, EvaluationRun]]:
    """The newest evidence of this agent where it has a baseline, by any judge and procedure."""
    baselines = list(Baseline.objects.filter(agent=agent))
    if not baselines:
        raise NotFound(f"{agent.slug} has no baseline yet; POST to /api/evaluations/baselines/ captures one")
    ways = sorted({(row.judge, row.procedure) for row in baselines})
    by_way = [
        newest_since_baselines([agent.pk], Judged(judge=judge, procedure=how)).get(agent.pk) for judge, how in ways
    ]
    first = newest_of(one for newest in by_way if newest for one in newest.values())
    if first is not None:
        return first.evaluation_run, runs_of(next(newest for newest in by_way if newest and first in newest.values()))
    raise NotFound(
        f"nothing to compare: no evaluation of {agent.slug} {nothing_newer(baselines)}; "
        f'POST /api/evaluations/ {{"agent": "{agent.slug}"}} evaluates it'
    )


def _chosen(agent: Agent, pk: int) -> tuple[EvaluationRun, dict[str, EvaluationRun]]:
    runs = EvaluationRun.objects.filter(agent=agent).select_related("agent", "channel")
    run: EvaluationRun | None = runs.filter(pk=pk).first()
    if run is None:
        raise NotFound(f"there is no evaluation {pk} of {agent.slug}")
    if run.status != EvaluationRun.Status.COMPLETED:
        raise Conflict(f"evaluation {pk} is {run.status}; only one that is completed can be compared")
    return run, dict.fromkeys(run.dimensions, run)


def _no_baseline(run: EvaluationRun) -> str:
    there = Baseline.objects.filter(agent=run.agent).order_by("judge", "procedure").values_list("judge", "procedure")
    named = "; ".join(dict.fromkeys(f"{judge} by {procedure}" for judge, procedure in there)) or "none"
    return f"no baseline by judge {run.judge} and procedure {run.procedure} to compare evaluation {run.pk} with; there are: {named}"

"""Evaluations: listed, asked for, looked at, cancelled, resumed (AC-6.0.7)."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.headers import located
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import PAID, ActionPermissions
from agents.kit.api.schema import answers
from agents.kit.api.views import Listed, Rows
from evaluation.api.answers import (
    AcceptedEvaluation,
    BlindScoreRow,
    ChannelEvaluation,
    EvaluationRow,
    ScoreRow,
    ScoreToRead,
    WholeEvaluation,
    links_of,
    may_read_messages,
)
from evaluation.api.requests import RunFilters, by_dimension, reading_propositions
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.control import NotPossible, cancel_run, resume_run
from evaluation.runs.execute import run_json
from evaluation.runs.request import RunRequest, request_evaluation
from evaluation.runs.summary import summarize

EMBEDDED = 20  # judgements in an evaluation, unless asked otherwise
MOST_EMBEDDED = 1_000


class WholeRunFilters(Filters):
    scores = filters.number(
        allowed=f"0 to {MOST_EMBEDDED:,}",
        most=MOST_EMBEDDED,
        schema={"type": "integer", "minimum": 0, "maximum": MOST_EMBEDDED},
        about="how many of its judgements",
    )


class Evaluations(Rows):
    """Evaluations, newest first.

    Filters: agent and channel (slugs), dimension, status, judge, procedure, is_baseline, since, until (ISO times, of when it was
    asked for); `ordering` is `-id` or `id`.
    """

    queryset = EvaluationRun.objects.select_related("agent", "channel")
    row_class = EvaluationRow
    answer_class = WholeEvaluation
    pagination_class = Log
    filterset_class = RunFilters
    throttle_scope = PAID
    etags = ("retrieve",)
    bodies: ClassVar = {"create": RunRequest}
    what = "evaluation"

    def example(self, stored: Any) -> dict[str, Any]:
        return {"agent": "", "dimensions": ["adherence"]} if self.action == "create" else super().example(stored)

    def get_filterset_class(self) -> type[Filters]:
        return WholeRunFilters if self.action == "retrieve" else super().get_filterset_class()

    @answers({202: AcceptedEvaluation})
    def create(self, request: Request) -> Response:
        """Ask for an evaluation of exactly one of `agent` and `channel`. 202 with the run and its URL: a worker judges.

        What was asked for within 24 hours and has not ended is not asked for twice: then `taken_up` is true.
        """
        with reading_propositions():
            body = self.read_body()
            run, resumed = request_evaluation(body, agent=body.agent, channel=body.channel)
        return accepted(request, run, taken_up=resumed)

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One evaluation: what was asked for, how far it is, what it measured, and its judgements.

        `summary` is the object that `--json` prints for a run, without its observations. `scores` holds the first judgements, 20
        unless `?scores=N` says otherwise (0 while you only wait for it, at most 1,000); `scores_url` has them all, in pages. Ask again
        with `If-None-Match` while you wait: 304 as long as nothing was judged.
        """
        run = self.get_object()
        most = self.query["scores"]
        if most is None:
            most = EMBEDDED
        scores = list(scores_of(run)[: most + 1]) if most else []  # one more than is shown tells whether these are all
        shares = run.channel_shares.select_related("channel_run__channel")
        summary = run_json(summarize(run))
        if not may_read_messages(self.row_context()):
            for dimension in summary["dimensions"].values():
                dimension.pop("ideas", None)  # which quote
        answer = WholeEvaluation(
            **dict(EvaluationRow.of(run, self.row_context())),
            **links_of(request, run),
            summary=summary,
            channels=ChannelEvaluation.all_of(shares, self.row_context()),
            scores=ScoreRow.all_of(scores[:most], self.row_context()),
            scores_complete=bool(most) and len(scores) <= most,
        )
        return self.tagged(request, answer)

    @answers({200: EvaluationRow, 202: AcceptedEvaluation}, 409)
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,), throttle_scope="")
    def cancel(self, request: Request, pk: int) -> Response:
        """Stop an evaluation that waits, runs or is paused; what was judged stays. 409 when it ended already."""
        return self._act(cancel_run)

    @answers({200: EvaluationRow, 202: AcceptedEvaluation}, 409)
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def resume(self, request: Request, pk: int) -> Response:
        """Have a worker go on with one that failed, crashed, paused or was cancelled, or ask again what its judge did not answer.

        202; stored judgements are not made again. 409 when it waits or runs, or nothing is left to ask.
        """
        return self._act(resume_run)

    def _act(self, act: Callable[[EvaluationRun], EvaluationRun]) -> Response:
        self.read_body()
        try:
            run = act(self.get_object())
        except NotPossible as error:
            raise Conflict(str(error)) from None
        if run.status == EvaluationRun.Status.PENDING:
            return accepted(self.request, run)
        return Response(EvaluationRow.of(run, self.row_context()))


def accepted(request: Request, run: EvaluationRun, **more: Any) -> Response:
    """Answer 202 with the address of the evaluation: a worker makes it."""
    answer = AcceptedEvaluation(**dict(EvaluationRow.of(run, {"request": request})), **more)
    return located(answer, status=202)


class ScorePages(Log):
    """In the order in which they were planned: by dimension, then by message."""

    orders = MappingProxyType({"id": ("pk",)})


class ScoreFilters(Filters):
    dimension = by_dimension()
    status = filters.choice(EvaluationScore.Status.values)
    proposition = filters.Parameter("proposition_id", about="its id")
    blind = filters.flag(method="only_scored", about="for people who label: without what the judge said")

    def only_scored(self, scores: QuerySet[EvaluationScore], name: str, value: bool) -> QuerySet[EvaluationScore]:
        return scores.filter(status="scored") if value else scores


class Scores(Listed):
    """The judgements of one evaluation, in the order in which they were planned.

    Filters: dimension, status, proposition (its id). With `blind=true` only those that were scored, without what the judge said of
    them: for people who label.
    """

    queryset = EvaluationScore.objects.all()
    answer_class = ScoreRow
    pagination_class = ScorePages
    filterset_class = ScoreFilters
    what = "evaluation"

    @answers(ScoreToRead)
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[EvaluationScore]:
        run = EvaluationRun.objects.filter(pk=self.kwargs["pk"]).first()
        if run is None:
            raise NotFound(self.missing(self.kwargs["pk"]))
        return scores_of(run)

    def get_answer_class(self) -> type[BlindScoreRow]:
        if self.request.query_params.get("blind", "").strip() == "true":
            return BlindScoreRow
        return ScoreRow


def scores_of(run: EvaluationRun) -> QuerySet[EvaluationScore]:
    """Return the judgements of a run with what their rows show, without the messages' texts."""
    scores = EvaluationScore.objects.filter(evaluation_run=run).select_related("message__channel")
    return scores.defer("message__text", "message__tags", "message__channel__topic").order_by("pk")

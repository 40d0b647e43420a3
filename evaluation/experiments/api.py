"""Experiments: listed, started from a scenario, read and cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from pydantic import Field
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agents.kit.api import filters
from agents.kit.api.filters import Filters, InTime
from agents.kit.api.headers import located
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import PAID, ActionPermissions
from agents.kit.api.rows import Row
from agents.kit.api.schema import answers
from agents.kit.api.views import Rows
from evaluation.experiments.lab import LabRequest, request_lab
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import cancel, resume_experiment
from evaluation.experiments.printed import as_csv, as_markdown
from evaluation.experiments.problems import ExperimentRefused
from evaluation.experiments.report import ExperimentReport, report
from evaluation.experiments.request import ExperimentRequest, request_experiment

FORMS: Mapping[str, tuple[str, Callable[[ExperimentReport], str]]] = {
    "markdown": ("text/markdown", as_markdown),
    "csv": ("text/csv", as_csv),
}


class ExperimentRow(
    Row,
    table=Experiment,
    columns=(
        *("id", "url", "name", "state", "paused", "seed", "judge", "actor_model", "created_by", "created_at"),
        *("measured_at", "cancelled_at", "resume_url", "cancel_url", "export_url"),
    ),
):
    """An experiment, without its report."""

    state: str = Field(description="playing, judging, paused, reported or cancelled")


class ExperimentFilters(InTime):
    search = filters.search("name")


class ExportFilters(Filters):
    vars()["as"] = filters.choice(FORMS, about="default markdown")


class Experiments(Rows):
    """Experiments, newest first. Filters: `search` (in the name), `since`, `until`; `ordering=id` for the oldest first."""

    queryset = Experiment.objects.select_related("created_by")
    row_class = ExperimentRow
    answer_class = ExperimentRow
    pagination_class = Log
    filterset_class = ExperimentFilters
    throttle_scope = PAID
    etags = ("retrieve",)
    bodies: ClassVar = {"create": ExperimentRequest, "lab": LabRequest}

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Answer an export in the form that `as` names and not in that of its `Accept`."""
        return super().perform_content_negotiation(request, force=force or self.action == "export")

    @answers({201: ExperimentRow})
    def create(self, request: Request) -> Response:
        """Start an experiment: a worker plays it, then judges it. 201 with its row."""
        experiment = request_experiment(self.read_body(), user=request.user)
        return located(self.shown(experiment))

    @answers({201: ExperimentRow})
    @action(detail=False, methods=["post"])
    def lab(self, request: Request) -> Response:
        """Start a laboratory: a conversation is forked at a message, and each fork is played on with one repair, or with none.

        201 with its row; its report has what came of the repairs in `lab`.
        """
        experiment = request_lab(self.read_body(), user=request.user)
        return located(self.shown(experiment))

    @answers(ExperimentReport)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """What an experiment came to: arms, rows of gains, harms and costs, and why it is void or not finished.

        Ask again with `If-None-Match` while it is played: 304 as long as nothing happened.
        """
        return self.tagged(request, report(self.get_object()))

    @answers({202: ExperimentRow})
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def resume(self, request: Request, pk: int) -> Response:
        """Go on with what was paused by its budget, or crashed. 202: a worker plays it. 409 when it was cancelled."""
        self.read_body()
        experiment = self.get_object()
        try:
            resume_experiment(experiment)
        except ExperimentRefused as error:
            raise Conflict(str(error)) from None
        experiment.refresh_from_db()
        return located(self.shown(experiment), status=202)

    @answers(ExperimentRow)
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def cancel(self, request: Request, pk: int) -> Response:
        """End an experiment that is played; what was said stays. One that was played stays as it is."""
        self.read_body()
        return Response(self.shown(cancel(self.get_object())))

    @answers({(200, "text/markdown"): OpenApiTypes.STR, (200, "text/csv"): OpenApiTypes.STR})
    @action(detail=True, filterset_class=ExportFilters)
    def export(self, request: Request, pk: int) -> HttpResponse:
        """The report as a page of Markdown, or as CSV with a line for each row."""
        form = self.query["as"] or "markdown"
        kind, text_of = FORMS[form]
        return HttpResponse(text_of(report(self.get_object())), content_type=f"{kind}; charset=utf-8")

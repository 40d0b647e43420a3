"""Experiments: listed, started from a scenario, read and cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from pydantic import Field
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.overrides import ModelName
from agents.kit.api import filters
from agents.kit.api.filters import Filters, InTime
from agents.kit.api.headers import located
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import PAID, ActionPermissions
from agents.kit.api.rows import Row
from agents.kit.api.schema import answers
from agents.kit.api.views import Rows
from agents.kit.bodies import ABSENT, Body, OneOf
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import ExperimentRefused, cancel, go_on, start_experiment
from evaluation.experiments.printed import as_csv, as_markdown
from evaluation.experiments.report import ExperimentReport, report
from evaluation.experiments.scenario import Scenario, read_scenario
from evaluation.experiments.scenario import shipped as scenarios

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


class NewExperiment(Body):
    """A scenario of yours, or the name of a shipped one."""

    scenario: Scenario = Field(ABSENT, description="what is played; its fields are those of the YAML file")
    shipped: Annotated[str, OneOf(*scenarios())] = Field(ABSENT, description="a scenario that comes with Plumbline")
    scale: float = Field(1.0, gt=0, le=1, description="a share of its conversations")
    judge: ModelName = Field(ABSENT, description="model that judges; default the configured one")
    actor_model: ModelName = Field(ABSENT, description="acts as all agents; default each agent's own")


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
    bodies: ClassVar = {"create": NewExperiment}

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """An export answers in the form that `as` names and not in that of its `Accept`."""
        return super().perform_content_negotiation(request, force=force or self.action == "export")

    @answers({201: ExperimentRow})
    def create(self, request: Request) -> Response:
        """Start an experiment: a worker plays it, then judges it. 201 with its row."""
        given: NewExperiment = self.read_body()
        if (given.scenario is None) == (given.shipped is None):
            raise ValidationError({"scenario": ["exactly one of scenario and shipped is needed"]})
        scenario = given.scenario or read_scenario(scenarios()[given.shipped])
        try:
            experiment = start_experiment(
                scenario.scaled(given.scale),
                judge=given.judge or "",
                actor_model=given.actor_model or "",
                user=request.user,
            )
        except ExperimentRefused as error:
            raise ValidationError({"scenario": error.problems}) from None
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
        try:
            go_on(experiment := self.get_object())
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

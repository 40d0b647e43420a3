"""Baselines: listed, captured, compared with (AC-6.5.5); and the falls that were found, to read."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from pydantic import BaseModel
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import (
    CharField,
    DateTimeField,
    HyperlinkedRelatedField,
    IntegerField,
    Serializer,
    SerializerMethodField,
)

from agents.api.filters import of_agent
from agents.bodies import the_agent
from agents.kit.api import filters
from agents.kit.api.filters import Filters, InTime
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import PAID, ModelPermissions
from agents.kit.api.model_rows import AsRow, Row
from agents.kit.api.schema import answers
from agents.kit.api.views import View, or_404
from agents.models import Agent
from evaluation.api.requests import CaptureRequest, by_dimension, by_judge, by_procedure, reading_propositions, spec_of
from evaluation.api.runs import accepted
from evaluation.api.serializers import (
    COVERAGE,
    AcceptedRun,
    CalibrationShown,
    Heuristic,
    RunRow,
    SwapTestShown,
    run_link,
    shown_run,
)
from evaluation.calibration.agreement import all_agreements, calibration_json, swap_json, with_trust
from evaluation.calibration.labels import Key
from evaluation.change.choosing import against_baselines
from evaluation.change.comparison import Comparison
from evaluation.change.evidence import Judged, dropped_tags, is_stale, newest_of_ways, nothing_newer, stale_reasons
from evaluation.change.measurements import NotComparable
from evaluation.change.models import Baseline, DriftAlert
from evaluation.models import EvaluationRun
from evaluation.runs.control import queue_run
from evaluation.runs.planning import RunSpec
from evaluation.runs.summary import NOTHING, Share, shares_of
from evaluation.statistics.difference import MARGIN

MOST_MARGIN = 9.0


class CapturePermissions(ModelPermissions):
    """Capturing a baseline is asking for an evaluation: it needs that permission, as in the console."""

    perms_map = {**ModelPermissions.perms_map, "POST": ["evaluation.add_evaluationrun"]}  # noqa: RUF012 (as its base has it)


def _read_margin(text: str) -> float:
    if not 0 < float(text) <= MOST_MARGIN:  # which no "nan" is
        raise ValueError
    return float(text)


class ComparisonFilters(Filters):
    run = filters.number(allowed="the id of an evaluation of this agent")
    margin = filters.Parameter(
        read=_read_margin,
        allowed=f"points above 0, at most {MOST_MARGIN:g}",
        schema={"type": "number", "exclusiveMinimum": 0, "maximum": MOST_MARGIN},
        about="points",
    )


class ComparisonAnswer(BaseModel):
    """An evaluation compared with the baseline."""

    agent: str
    run: Annotated[dict[str, Any], AsRow(RunRow)]
    comparison: Comparison


class BaselineRow(Row):
    """The current baseline of an agent in one dimension, by one judge and procedure. Needs ``agreements`` in its context."""

    heuristic = Heuristic(source="judge")
    coverage = SerializerMethodField(help_text=COVERAGE)
    calibration = SerializerMethodField(help_text="how well the judge agrees with people; null = not known")
    swap_test = SerializerMethodField(help_text="how well the judge tells own words from others'; null = not checked")
    is_stale = SerializerMethodField(help_text="the persona changed since it was captured")
    stale_reason = SerializerMethodField(
        help_text="which versions of the persona came since, what made them and what they changed; empty when not stale"
    )
    run_url = run_link()
    url, compare_url = (
        HyperlinkedRelatedField[Any](
            source="agent", view_name=view, lookup_field="slug", lookup_url_kwarg="agent", read_only=True
        )
        for view in ("baseline-detail", "baseline-compare")
    )
    _stale_reasons: dict[int, str] | None = None
    _shares: dict[int, dict[str, Share]] | None = None

    class Meta:
        model = Baseline
        fields = (
            *("id", "agent", "dimension", "score", "count", "coverage", "judge", "heuristic", "procedure"),
            *(
                "calibration",
                "swap_test",
                "is_stale",
                "stale_reason",
                "persona_digest",
                "captured_at",
                "evaluation_run",
            ),
            *("run_url", "url", "compare_url"),
        )

    @extend_schema_field(CalibrationShown(allow_null=True))
    def get_calibration(self, baseline: Baseline) -> dict[str, Any] | None:
        key = Key(baseline.judge, baseline.procedure, baseline.dimension)
        return calibration_json(self.context["agreements"].get(key))

    @extend_schema_field(SwapTestShown(allow_null=True))
    def get_swap_test(self, baseline: Baseline) -> dict[str, Any] | None:
        key = Key(baseline.judge, baseline.procedure, baseline.dimension)
        return swap_json(self.context["agreements"].get(key), agent=baseline.agent.slug)

    def get_coverage(self, baseline: Baseline) -> float | None:
        if self._shares is None:  # of all rows at once
            rows = [baseline] if self.parent is None else list(self.parent.instance)  # type: ignore[arg-type]
            self._shares = shares_of({row.evaluation_run_id for row in rows})
        return self._shares.get(baseline.evaluation_run_id, {}).get(baseline.dimension, NOTHING).rounded

    def get_is_stale(self, baseline: Baseline) -> bool:
        return is_stale(baseline)

    def get_stale_reason(self, baseline: Baseline) -> str:
        if self._stale_reasons is None:  # of all rows at once
            self._stale_reasons = stale_reasons([baseline] if self.parent is None else list(self.parent.instance))  # type: ignore[arg-type]
        return self._stale_reasons.get(baseline.pk, "")


class BaselinesAnswer(Serializer[Any]):
    """The current baselines of one agent."""

    agent = CharField()
    display_name = CharField()
    baselines = BaselineRow(many=True)


class BaselineFilters(Filters):
    agent = of_agent()
    judge = by_judge()
    procedure = by_procedure()
    dimension = by_dimension()


class Baselines(View, ListModelMixin):
    """The current baselines, by agent.

    Filters: agent (slug), judge, procedure, dimension. `is_stale` says that the persona changed since.
    """

    queryset = (
        Baseline.objects.select_related("agent")
        .prefetch_related("agent__traits")
        .order_by("agent__slug", "judge", "procedure", "dimension")
    )
    row_class = BaselineRow
    serializer_class = BaselinesAnswer
    permission_classes = (CapturePermissions,)
    throttle_scope = PAID
    filterset_class = BaselineFilters
    bodies: ClassVar = {"create": CaptureRequest}
    lookup_field = "agent"
    lookup_value_converter = "slug"

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "agreements": all_agreements()}

    @answers({202: AcceptedRun})
    def create(self, request: Request) -> Response:
        """Ask for the capture of a baseline. It names an `agent` and may say all that an evaluation may, but for a channel.

        202 with the run and its URL: a worker judges, and the old baseline stays until the new one succeeded. 409 when the old one is of
        messages with a tag that this one would not ask for, unless `replace` is true.
        """
        with reading_propositions():
            given = self.read_body()
            spec = spec_of(given)
            if not given.replace:
                _keep_tags(spec)
            run, again = queue_run(spec, simulate=given.simulate)
        return accepted(request, run, taken_up=again)

    def retrieve(self, request: Request, agent: str) -> Response:
        """The current baselines of one agent: one per judge, procedure and dimension. Empty when none was captured yet."""
        named = or_404(the_agent, agent)
        rows = BaselineRow(self.get_queryset().filter(agent=named), many=True, context=self.get_serializer_context())
        return Response({"agent": named.slug, "display_name": named.display_name, "baselines": rows.data})

    @answers(ComparisonAnswer, 409)
    @action(detail=True, filterset_class=ComparisonFilters)
    def compare(self, request: Request, agent: str) -> Response:
        """An evaluation of the agent compared with its baseline by the same judge and procedure: delta, interval and verdict (AC-6.5.4).

        Per dimension the completed evaluation that scored something and judged the newest message, if that is newer than the baseline's
        newest; or `?run=ID`, of any time. `run` is the newest of them, `where` the tags they were made with. `margin` is the change, in
        points, that still counts as none: 0.5 unless given. Beside each dimension stand the judge's `calibration` (agreement with people)
        and `swap_test`, as in an evaluation; null: not known. 404 when there is nothing to compare, 409 when the two cannot be compared;
        the detail says why.
        """
        named, pk, margin = or_404(the_agent, agent), self.query["run"], self.query["margin"] or MARGIN
        run, runs = _newest(named) if pk is None else _chosen(named, pk)
        try:
            comparison = against_baselines(runs, margin=margin)
        except NotComparable as error:
            raise Conflict(str(error)) from None
        if comparison is None:
            raise NotFound(_no_baseline(run))
        document = comparison.model_dump(mode="json")
        how = {"judge": comparison.judge, "procedure": comparison.procedure}
        with_trust(document["dimensions"], **how, agent=named.slug)
        return Response({"agent": named.slug, "run": shown_run(request, run), "comparison": document})


def _keep_tags(spec: RunSpec) -> None:
    """Refuse a baseline that would replace one of messages with a tag, and would not ask for that tag.

    Raises:
        Conflict: Names the tags.
    """
    for slug, tags in dropped_tags([spec]).items():
        raise Conflict(
            f"the baseline of {slug} is of messages with a tag that the new one would not ask for: {tags}; "
            "send the tag in `where`, or `replace`: true"
        )


def _newest(agent: Agent) -> tuple[EvaluationRun, dict[str, EvaluationRun]]:
    """The newest evidence of this agent where it has a baseline, by any judge and procedure."""
    baselines = list(Baseline.objects.filter(agent=agent))
    if not baselines:
        raise NotFound(f"{agent.slug} has no baseline yet; POST to /api/evaluations/baselines/ captures one")
    ways = sorted({(row.judge, row.procedure) for row in baselines})
    runs = newest_of_ways([agent.pk], (Judged(judge=judge, procedure=how) for judge, how in ways)).get(agent.pk)
    if runs:
        return [*runs.values()][-1], runs
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


# -- alerts
class DriftAlertRow(Row):
    """A lasting fall in a series of scores, with the evaluation in which it was noticed."""

    heuristic = Heuristic(source="judge")
    run_url = run_link()
    alert = IntegerField(
        source="alert_id",
        allow_null=True,
        help_text="who was told, and who acknowledged it; empty = older than alerts that are sent",
    )
    acknowledged_at = DateTimeField(default=None)
    acknowledged_by = CharField(
        source="acknowledged_by.username", default=None, help_text="see `alerts`, where it is acknowledged"
    )

    class Meta:
        model = DriftAlert
        fields = (
            *("id", "agent", "dimension", "judge", "heuristic", "procedure", "before", "after", "since"),
            *("schedule", "evaluation_run", "run_url", "alert", "created_at", "acknowledged_at", "acknowledged_by"),
        )


class AlertFilters(InTime):
    agent = of_agent()
    dimension = by_dimension()
    acknowledged = filters.flag(method="by_acknowledgement")

    def by_acknowledgement(self, alerts: QuerySet[DriftAlert], name: str, value: bool) -> QuerySet[DriftAlert]:
        return alerts.filter(acknowledged_at__isnull=not value)


class Alerts(View, ListModelMixin):
    """Falls that lasted, newest first. Filters: agent (slug), dimension, acknowledged, since, until (ISO times, of the alert);
    `ordering=id` for the oldest first."""

    queryset = DriftAlert.objects.select_related("agent", "schedule", "acknowledged_by")
    serializer_class = DriftAlertRow
    pagination_class = Log
    filterset_class = AlertFilters

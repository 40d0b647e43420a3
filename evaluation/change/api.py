"""Baselines: listed, captured, compared with (AC-6.5.5); what changed since, and the falls that were found, to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

from django.db.models import QuerySet
from pydantic import BaseModel
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.filters import OfWatchedAgents, of_agent
from agents.bodies import the_agent
from agents.kit.api import filters
from agents.kit.api.filters import Filters, InTime
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import PAID, ModelPermissions
from agents.kit.api.rows import Answer, Context, Row, Url, link, shown
from agents.kit.api.schema import answers
from agents.kit.api.views import Listed, or_404
from agents.models import Agent
from evaluation.api.answers import (
    COVERAGE,
    AcceptedEvaluation,
    EvaluationRow,
    heuristic_of,
    run_url_of,
)
from evaluation.api.requests import by_dimension, by_judge, by_procedure, reading_propositions
from evaluation.api.runs import accepted
from evaluation.calibration.labels import Key
from evaluation.calibration.models import JudgeCalibration
from evaluation.calibration.passport import passport_of, with_passports
from evaluation.calibration.stored import agreements_of
from evaluation.change.choosing import against_baselines
from evaluation.change.comparison import Comparison
from evaluation.change.evidence import JudgeAndProcedure, dropped_tags, newest_of_ways, nothing_newer, stale_reasons
from evaluation.change.measurements import NotComparable
from evaluation.change.models import Baseline, Change, DriftAlert
from evaluation.judge.passport import Passport
from evaluation.models import COUNTED, EvaluationRun
from evaluation.runs.request import CaptureRequest, request_evaluation
from evaluation.runs.shares import NOTHING, Share, shares_of
from evaluation.runs.spec import RunSpec
from evaluation.statistics.difference import MARGIN, Verdict

MOST_MARGIN = 9.0


class CapturePermissions(ModelPermissions):
    """Capturing a baseline is asking for an evaluation: it needs that permission, as in the console."""

    perms_map = {**ModelPermissions.perms_map, "POST": ["evaluation.add_evaluationrun"]}  # noqa: RUF012 (as its base has it)


def _read_margin(text: str) -> float:
    """Read points; no "nan" lies between the limits.

    Raises:
        ValueError: It is no number that is allowed; the filter says what is.
    """
    margin = float(text)
    if not 0 < margin <= MOST_MARGIN:
        raise ValueError
    return margin


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
    run: EvaluationRow
    comparison: Comparison


def _passport(baseline: Baseline, context: Context) -> Passport | None:
    """Return the passport of a baseline's judge; None for a dimension that is counted."""
    if baseline.dimension in COUNTED:
        return None
    agreements: dict[Key, JudgeCalibration] = context["agreements"]
    key = Key(baseline.judge, baseline.procedure, baseline.dimension)
    return passport_of(key, agreements.get(key), agent=baseline.agent.slug)


def _coverage(baseline: Baseline, context: Context) -> float | None:
    shares: dict[int, dict[str, Share]] = context["shares"]
    return shares.get(baseline.evaluation_run_id, {}).get(baseline.dimension, NOTHING).rounded


class BaselineRow(
    Row,
    table=Baseline,
    columns=(
        *("id", "agent", "dimension", "score", "count", "coverage", "judge", "heuristic", "procedure"),
        *("passport", "is_stale", "stale_reason", "persona_digest", "captured_at"),
        *("evaluation_run", "run_url", "url", "compare_url"),
    ),
):
    """The current baseline of an agent in one dimension, by one judge and procedure."""

    coverage: float | None = shown(_coverage, COVERAGE)
    heuristic: bool = heuristic_of()
    passport: Passport | None = shown(
        _passport, "what is known of the judge, and whether it may be used; null = counted"
    )
    is_stale: bool = shown(
        lambda baseline, context: baseline.pk in context["stale_reasons"],
        "the persona, or the judge, changed since it was captured",
    )
    stale_reason: str = shown(
        lambda baseline, context: context["stale_reasons"].get(baseline.pk, ""),
        "which versions of the persona came since, what made them and what they changed; when the judge's new answers were "
        "accepted; empty when not stale",
    )
    run_url: Url = run_url_of()
    url: Url = shown(link("baseline-detail", "agent.slug"))
    compare_url: Url = shown(link("baseline-compare", "agent.slug"))

    @classmethod
    def together(cls, rows: Sequence[Baseline]) -> Context:
        return {
            "agreements": agreements_of({row.judge for row in rows}),
            "shares": shares_of({row.evaluation_run_id for row in rows}),
            "stale_reasons": stale_reasons(rows),
        }


class BaselinesAnswer(Answer):
    """The current baselines of one agent."""

    agent: str
    display_name: str
    baselines: list[BaselineRow]


class BaselineFilters(Filters):
    agent = of_agent()
    judge = by_judge()
    procedure = by_procedure()
    dimension = by_dimension()


class Baselines(Listed):
    """The current baselines, by agent.

    Filters: agent (slug), judge, procedure, dimension. `is_stale` says that the persona, or the judge, changed since.
    """

    queryset = (
        Baseline.objects.select_related("agent")
        .prefetch_related("agent__traits")
        .order_by("agent__slug", "judge", "procedure", "dimension")
    )
    row_class = BaselineRow
    answer_class = BaselinesAnswer
    permission_classes = (CapturePermissions,)
    throttle_scope = PAID
    filterset_class = BaselineFilters
    bodies: ClassVar = {"create": CaptureRequest}
    lookup_field = "agent"
    lookup_value_converter = "slug"

    @answers({202: AcceptedEvaluation})
    def create(self, request: Request) -> Response:
        """Ask for the capture of a baseline. It names an `agent` and may say all that an evaluation may, but for a channel.

        202 with the run and its URL: a worker judges, and the old baseline stays until the new one succeeded. 409 when the old one is of
        messages with a tag that this one would not ask for, unless `replace` is true.
        """
        with reading_propositions():
            body = self.read_body()
            if not body.replace:
                _refuse_dropped_tags(body.spec(agent=body.agent))
            run, is_same = request_evaluation(body, agent=body.agent, is_baseline=True)
        return accepted(request, run, taken_up=is_same)

    def retrieve(self, request: Request, agent: str) -> Response:
        """The current baselines of one agent: one per judge, procedure and dimension. Empty when none was captured yet."""
        named = or_404(the_agent, agent)
        rows = BaselineRow.all_of(self.get_queryset().filter(agent=named), self.row_context())
        answer = BaselinesAnswer(agent=named.slug, display_name=named.display_name, baselines=rows)
        return Response(answer)

    @answers(ComparisonAnswer, 409)
    @action(detail=True, filterset_class=ComparisonFilters)
    def compare(self, request: Request, agent: str) -> Response:
        """An evaluation of the agent compared with its baseline by the same judge and procedure: delta, interval and verdict (AC-6.5.4).

        Per dimension the completed evaluation that scored something and judged the newest message, if that is newer than the baseline's
        newest; or `?run=ID`, of any time. `run` is the newest of them, `where` the tags they were made with. `margin` is the change, in
        points, that still counts as none: 0.5 unless given. Beside each dimension that is not counted stands the judge's
        `passport`, as in an evaluation. 404 when there is nothing to compare, 409 when the two cannot be compared; the detail says why.
        """
        named = or_404(the_agent, agent)
        margin = self.query["margin"] or MARGIN
        pk = self.query["run"]
        compared = _newest_runs(named) if pk is None else _chosen_run(named, pk)
        try:
            comparison = against_baselines(compared.by_dimension, margin=margin)
        except NotComparable as error:
            raise Conflict(str(error)) from None
        if comparison is None:
            raise NotFound(_no_baseline(compared.newest))
        document = comparison.model_dump(mode="json")
        with_passports(document["dimensions"], judge=comparison.judge, procedure=comparison.procedure, agent=named.slug)
        row = EvaluationRow.of(compared.newest, self.row_context())
        return Response({"agent": named.slug, "run": row, "comparison": document})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsToCompare:
    """The evaluations that are compared with an agent's baselines: one per dimension, and the newest of them."""

    newest: EvaluationRun
    by_dimension: dict[str, EvaluationRun]


def _refuse_dropped_tags(spec: RunSpec) -> None:
    """Refuse a baseline that would replace one of messages with a tag, and would not ask for that tag.

    Raises:
        Conflict: Names the tags.
    """
    for slug, tags in dropped_tags([spec]).items():
        raise Conflict(
            f"the baseline of {slug} is of messages with a tag that the new one would not ask for: {tags}; "
            "send the tag in `where`, or `replace`: true"
        )


def _newest_runs(agent: Agent) -> RunsToCompare:
    """Return the newest evidence of this agent where it has a baseline, by any judge and procedure.

    Raises:
        NotFound: It has no baseline, or was not evaluated since.
    """
    baselines = list(Baseline.objects.filter(agent=agent))
    if not baselines:
        raise NotFound(f"{agent.slug} has no baseline yet; POST to /api/evaluations/baselines/ captures one")
    ways = sorted({(baseline.judge, baseline.procedure) for baseline in baselines})
    judges = [JudgeAndProcedure(judge=judge, procedure=procedure) for judge, procedure in ways]
    runs = newest_of_ways([agent.pk], judges).get(agent.pk)
    if runs:
        return RunsToCompare(newest=list(runs.values())[-1], by_dimension=runs)
    raise NotFound(
        f"nothing to compare: no evaluation of {agent.slug} {nothing_newer(baselines)}; "
        f'POST /api/evaluations/ {{"agent": "{agent.slug}"}} evaluates it'
    )


def _chosen_run(agent: Agent, pk: int) -> RunsToCompare:
    """Return the evaluation that was asked for.

    Raises:
        NotFound: There is none of this agent.
        Conflict: It is not completed.
    """
    runs = EvaluationRun.objects.filter(agent=agent).select_related("agent", "channel")
    run: EvaluationRun | None = runs.filter(pk=pk).first()
    if run is None:
        raise NotFound(f"there is no evaluation {pk} of {agent.slug}")
    if run.status != EvaluationRun.Status.COMPLETED:
        raise Conflict(f"evaluation {pk} is {run.status}; only one that is completed can be compared")
    return RunsToCompare(newest=run, by_dimension=dict.fromkeys(run.dimensions, run))


def _no_baseline(run: EvaluationRun) -> str:
    """Return by which judges there are baselines to compare, where there is none by the judge of this evaluation."""
    baselines = Baseline.objects.filter(agent=run.agent).order_by("judge", "procedure")
    names = [f"{judge} by {procedure}" for judge, procedure in baselines.values_list("judge", "procedure")]
    judges = "; ".join(dict.fromkeys(names)) or "none"
    return f"no baseline by judge {run.judge} and procedure {run.procedure} to compare evaluation {run.pk} with; there are: {judges}"


# -- changes
class ChangeRow(
    Row,
    table=Change,
    columns=(
        *("id", "agent", "dimension", "proposition", "current", "verdict", "baseline", "candidate", "points"),
        *("low", "high", "p", "n", "baseline_n", "n_more", "scored", "baseline_scored", "unscored", "inverted"),
        *("judge", "heuristic", "procedure", "agreement", "labels", "evaluation_run", "run_url", "baseline_run"),
        *("measured_at", "since_tag", "since_value", "since_at"),
    ),
):
    """How one number of an agent changed from its baseline to an evaluation: of a dimension, or of a proposition in it."""

    heuristic: bool = heuristic_of()
    run_url: Url = run_url_of()


class ChangeFilters(Filters):
    since = filters.since("measured_at")
    until = filters.until("measured_at")
    agent = of_agent()
    judge = by_judge()
    procedure = by_procedure()
    dimension = by_dimension()
    verdict = filters.choice(get_args(Verdict))
    current = filters.flag()


class Changes(Listed):
    """What changed since the baselines, as it was stored when evaluations ended: per dimension (`proposition` is empty) and proposition.

    `current=true`: of the newest evaluation of each agent, judge and dimension. Other filters: agent (slug), judge, procedure, dimension,
    verdict, since, until (ISO times, of the newest message judged); `ordering=id` for the oldest first.
    """

    queryset = Change.objects.select_related("agent").defer("value").order_by("-pk")
    row_class = ChangeRow
    pagination_class = Log
    filterset_class = ChangeFilters


# -- alerts
class DriftAlertRow(
    Row,
    table=DriftAlert,
    columns=(
        *("id", "agent", "dimension", "judge", "heuristic", "procedure", "before", "after", "since"),
        *("schedule", "evaluation_run", "run_url", "alert", "created_at", "acknowledged_at", "acknowledged_by"),
    ),
):
    """A lasting fall in a series of scores, with the evaluation in which it was noticed."""

    heuristic: bool = heuristic_of()
    run_url: Url = run_url_of()
    alert: int | None = shown(
        "alert_id", "who was notified, and who acknowledged it; empty = older than alerts that are sent"
    )
    acknowledged_by: str | None = shown("acknowledged_by.username", "see `alerts`, where it is acknowledged")


class AlertFilters(OfWatchedAgents, InTime):
    dimension = by_dimension()
    acknowledged = filters.flag(method="by_acknowledgement")

    def by_acknowledgement(self, alerts: QuerySet[DriftAlert], name: str, value: bool) -> QuerySet[DriftAlert]:
        return alerts.filter(acknowledged_at__isnull=not value)


class Alerts(Listed):
    """Falls that lasted, newest first. Filters: agent (slug), dimension, acknowledged, since, until (ISO times, of the alert);
    `ordering=id` for the oldest first. Those of the examples are listed where there are no agents of your own, or with `agent`."""

    queryset = DriftAlert.objects.select_related("agent", "schedule", "acknowledged_by")
    answer_class = DriftAlertRow
    pagination_class = Log
    filterset_class = AlertFilters

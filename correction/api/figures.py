"""TODO: what this module is for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.schema import AGENT, SINCE, UNTIL, documented, query
from agents.models import Agent, LLMCall
from correction.api.answers import CostAnswer, GateAnswer, PrecisionAnswer
from correction.config.resolve import GATE_DIMENSIONS
from correction.costs import (
    ALLOWED_WINDOWS,
    costs_as_json,
    get_cost_summary,
    get_total_cost_summary,
    groupings,
    window_of_time,
)
from correction.gate.statistics import Checks, DimensionStatistics, get_gate_statistics
from correction.gate.thresholds import precision
from correction.models import CorrectionLog, GateDimensionResult
from evaluation.scorers.windows import MessageWindow

NAMES = ("window", "since", "until")
STRETCH = (query("window", f"{ALLOWED_WINDOWS}; or since and until instead"), SINCE, UNTIL)


def stretch(request: Request, default: str = "7d") -> MessageWindow:
    """``window`` (a duration back from now, or all), or ``since`` and ``until`` (either may be left out)."""
    spec = parameters.text(request, "window")
    since, until = parameters.moment(request, "since"), parameters.moment(request, "until")
    if since or until:
        if spec:
            raise ValidationError({"window": ["give window, or since and until, not both"]})
        if since and until and since >= until:
            raise ValidationError({"until": [f"until {until.isoformat()} is not after since {since.isoformat()}"]})
        return MessageWindow("", start=since, end=until)
    try:
        return window_of_time(spec or default)
    except ValueError as error:
        raise ValidationError({"window": [str(error)]}) from None


class Costs(APIView):
    """Calls, tokens and US dollars of a stretch of time, of one agent or of all.

    `?agent=michael&window=7d&by=mechanism,dimension`; `since` and `until` (ISO times) instead of `window`; `by` takes any of
    mechanism, dimension, model, day (UTC) and agent. `cost_usd` leaves out the `unpriced` calls.
    """

    queryset = LLMCall.objects.all()

    @documented(
        CostAnswer,
        parameters=(AGENT, *STRETCH, query("by", "groupings, with commas between; default mechanism,dimension")),
    )
    def get(self, request: Request) -> Response:
        parameters.only(request, "agent", *NAMES, "by")
        agent, window = parameters.agent(request), stretch(request)
        try:
            by = groupings(parameters.text(request, "by") or "mechanism,dimension")
        except ValueError as error:
            raise ValidationError({"by": [str(error)]}) from None
        if agent is None:
            return Response(costs_as_json(get_total_cost_summary(window=window, by=by)))
        return Response(costs_as_json(get_cost_summary(agent=agent, window=window, by=by)))


_COUNTS = (
    *("total_actions", "judged_count", "original_pass_count", "original_success_rate"),
    "regeneration_count",
    *("passed_after_retry_count", "forced_through_count", "regeneration_failure_rate", "abandoned"),
    *("timeouts", "overloads", "errors", "unscored", "over_budget"),
)


class GateStatistics(APIView):
    """What the gate did in a stretch of time, of one agent or of all: `?agent=michael&window=7d`, or `since` and `until`.

    `total_actions` counts each message once, however many drafts it took; `original_success_rate` is first drafts passed ÷
    those judged: a message whose first draft could not be judged is in `total_actions` only. Observed and external checks stand
    apart. Means are per judge: those of different judges are never mixed.
    """

    queryset = CorrectionLog.objects.all()

    @documented(GateAnswer, parameters=(AGENT, *STRETCH))
    def get(self, request: Request) -> Response:
        parameters.only(request, "agent", *NAMES)
        agent, window = parameters.agent(request), stretch(request)
        found = get_gate_statistics(agent, window)
        return Response(
            {
                **_asked(agent, window),
                **{name: getattr(found, name) for name in _COUNTS},
                "dimensions": {name: _dimension(d) for name, d in found.dimensions.items()},
                "observed": _checks(found.observed),
                "external": _checks(found.external),
            }
        )


class GatePrecision(APIView):
    """How often a failed check was right, as far as people marked it, with its 95 % interval, per dimension, threshold and judge.

    `?agent=michael&dimension=fluency&window=all` (the default here), or `since` and `until`.
    """

    queryset = GateDimensionResult.objects.all()

    @documented(PrecisionAnswer, parameters=(AGENT, query("dimension", enum=GATE_DIMENSIONS), *STRETCH))
    def get(self, request: Request) -> Response:
        parameters.only(request, "agent", "dimension", *NAMES)
        agent, window = parameters.agent(request), stretch(request, default="all")
        dimension = parameters.choice(request, "dimension", GATE_DIMENSIONS)
        found = precision(agent=agent, window=window, dimension=dimension)
        results = [
            {**asdict(p), "threshold": float(p.threshold), "marked": p.marked, "heuristic": p.heuristic} for p in found
        ]
        return Response({**_asked(agent, window), "results": results})


def _asked(agent: Agent | None, window: MessageWindow) -> dict[str, Any]:
    start, end = window.start, window.end
    return {
        "agent": agent.slug if agent else None,
        "since": start.isoformat() if start else None,
        "until": end.isoformat() if end else None,
    }


def _dimension(found: DimensionStatistics) -> dict[str, Any]:
    counts = {name: getattr(found, name) for name in ("checks", "scored", "failures", "first_failures")}
    judges = [asdict(means) | {"heuristic": means.heuristic} for means in found.by_judge]
    return {**counts, "unjudged": dict(found.unjudged), "by_judge": judges}


def _checks(found: Checks) -> dict[str, Any]:
    return {
        "total": found.total,
        "passed": found.passed,
        "dimensions": {name: _dimension(d) for name, d in found.dimensions.items()},
    }

"""Figures over a stretch of time: costs (AC-7.3.6), what the gate did (AC-7.0.14), and how often people found it right."""

from __future__ import annotations

from typing import Any

from pydantic import AwareDatetime, BaseModel
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.filters import of_agent
from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.schema import answers
from agents.kit.api.views import View
from agents.kit.models import LLMCall
from correction.config.settings import GATE_DIMENSIONS
from correction.costs import ALLOWED_WINDOWS, CostSummary, get_cost_summary, groupings, window_of_time
from correction.gate.statistics import GateStatistics, get_gate_statistics
from correction.gate.thresholds import Precision, precision
from correction.models import CorrectionLog, GateDimensionResult
from evaluation.windows import MessageWindow


class Stretch(Filters):
    """``window`` (a duration back from now, or all), or ``since`` and ``until`` (either may be left out)."""

    agent = of_agent()
    window = filters.Parameter(about=f"{ALLOWED_WINDOWS}; or since and until instead")
    since = filters.since()
    until = filters.until()


class CostFilters(Stretch):
    by = filters.Parameter(about="groupings, with commas between; default mechanism,dimension")


class PrecisionFilters(Stretch):
    dimension = filters.choice(GATE_DIMENSIONS)


def stretch(query: dict[str, Any], default: str = "7d") -> MessageWindow:
    """Return the stretch of time that the parameters name: ``window``, or ``since`` and ``until``, of which one may be left out.

    Args:
        default: The window where none of them is given.

    Raises:
        ValidationError: They contradict each other, or the window is none.
    """
    window = query["window"]
    since = query["since"]
    until = query["until"]
    if not since and not until:
        try:
            return window_of_time(window or default)
        except ValueError as error:
            raise ValidationError({"window": [str(error)]}) from None
    if window:
        raise ValidationError({"window": ["give window, or since and until, not both"]})
    if since and until and since >= until:
        raise ValidationError({"until": [f"until {until.isoformat()} is not after since {since.isoformat()}"]})
    return MessageWindow("", start=since, end=until)


class PrecisionAnswer(BaseModel):
    agent: str | None
    since: AwareDatetime | None
    until: AwareDatetime | None
    results: list[Precision]


class Figures(View):
    """Base of what is counted over a stretch of time; a GET of it is no list."""

    filterset_class = Stretch

    def get_filterset_class(self) -> type[Filters]:
        return self.filterset_class


class Costs(Figures):
    """Calls, tokens and US dollars of a stretch of time, of one agent or of all.

    `?agent=michael&window=7d&by=mechanism,dimension`; `since` and `until` (ISO times) instead of `window`; `by` takes any of
    mechanism, dimension, model, day (UTC) and agent. `cost_usd` leaves out the `unpriced` calls.
    """

    queryset = LLMCall.objects.all()
    filterset_class = CostFilters

    @answers(CostSummary)
    def retrieve(self, request: Request) -> Response:
        parameters = self.query
        window = stretch(parameters)
        try:
            by = groupings(parameters["by"] or "mechanism,dimension")
        except ValueError as error:
            raise ValidationError({"by": [str(error)]}) from None
        return Response(get_cost_summary(agent=parameters["agent"], window=window, by=by).data())


class GateFigures(Figures):
    """What the gate did in a stretch of time, of one agent or of all: `?agent=michael&window=7d`, or `since` and `until`.

    `total_actions` counts each message once, however many drafts it took; `original_success_rate` is first drafts passed ÷
    those judged: a message whose first draft could not be judged is in `total_actions` only. Observed and external checks stand
    apart. Means are per judge: those of different judges are never mixed.
    """

    queryset = CorrectionLog.objects.all()

    @answers(GateStatistics)
    def retrieve(self, request: Request) -> Response:
        parameters = self.query
        return Response(get_gate_statistics(parameters["agent"], stretch(parameters)))


class GatePrecision(Figures):
    """How often a failed check was right, as far as people marked it, with its 95 % interval, per dimension, threshold and judge.

    `?agent=michael&dimension=fluency&window=all` (the default here), or `since` and `until`.
    """

    queryset = GateDimensionResult.objects.all()
    filterset_class = PrecisionFilters

    @answers(PrecisionAnswer)
    def retrieve(self, request: Request) -> Response:
        parameters = self.query
        agent = parameters["agent"]
        window = stretch(parameters, default="all")
        results = precision(agent=agent, window=window, dimension=parameters["dimension"] or "")
        answer = PrecisionAnswer(
            agent=agent.slug if agent else None, since=window.start, until=window.end, results=results
        )
        return Response(answer)

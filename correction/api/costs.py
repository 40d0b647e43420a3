"""What it costs (AC-7.3.6)."""

from __future__ import annotations

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.schema import AGENT, documented, query
from agents.models import LLMCall
from correction.api.answers import CostAnswer
from correction.api.times import NAMES, STRETCH, stretch
from correction.costs import costs_as_json, get_cost_summary, get_total_cost_summary, groupings


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

"""The ledger: every call of a model, what it used and cost."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api import filters, parameters
from agents.api.lookups import the_row
from agents.api.pagination import LogByTimeOf
from agents.api.schema import AGENT, SINCE, UNTIL, documented, query
from agents.api.serializers import LLMCallRow, WholeLLMCall
from agents.models import LLMCall

SEEING_PAYLOADS = "agents.view_llmpayload"
TEXTS = ("purpose", "mechanism", "dimension", "model", "work_id")
CALL_FILTERS = (
    *(AGENT, *(query(name) for name in TEXTS), query("status", enum=LLMCall.Status.values)),
    *(query("run", "the id of a run", type=int), SINCE, UNTIL),
)


def shown_calls() -> QuerySet[LLMCall]:
    found = LLMCall.objects.select_related("agent")
    return found.defer("agent__system_prompt", "agent__sample_lines", "agent__description")


@extend_schema_view(get=documented({200: LLMCallRow(many=True)}, parameters=CALL_FILTERS))
class LLMCalls(ListAPIView[LLMCall]):
    """Calls of models, newest first, failed ones too. `cost_usd` null = unpriced, never free.

    Filters: `agent`, `purpose`, `mechanism`, `dimension`, `model`, `status`, `run` (id), `work_id` (what it served, such as
    `evaluation_run:12`), `since`, `until`. `ordering=created_at` for the oldest first.
    """

    queryset = LLMCall.objects.all()
    serializer_class = LLMCallRow
    pagination_class = LogByTimeOf

    def filter_queryset(self, queryset: QuerySet[LLMCall, Any]) -> QuerySet[LLMCall, Any]:
        request, found = self.request, shown_calls()
        parameters.only(request, "agent", *TEXTS, "status", "run", "since", "until", "ordering")
        if agent := parameters.agent(request):
            found = found.filter(agent=agent)
        for name in TEXTS:
            if value := parameters.text(request, name):
                found = found.filter(**{name: value})
        if status := parameters.choice(request, "status", LLMCall.Status.values):
            found = found.filter(status=status)
        if (run := filters.number(request, "run", allowed="the id of a run")) is not None:
            found = found.filter(run_id=run)
        return filters.in_time(request, found)


class OneLLMCall(GenericAPIView[LLMCall]):
    """One call; with its exact prompt and raw reply where `LLM_STORE_PAYLOADS` kept them and you may view payloads."""

    queryset = LLMCall.objects.all()
    serializer_class = WholeLLMCall

    @documented(WholeLLMCall)
    def get(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        call = the_row(shown_calls().select_related("agent", "payload"), pk, "model call")
        return Response(self.get_serializer(call).data)

    def get_serializer_context(self) -> dict[str, Any]:
        may = self.request.user.has_perm(SEEING_PAYLOADS)
        return {**super().get_serializer_context(), "may_see_payload": may}

"""Behaviour requests over the API: the queue, and what a person decides of them (specification 002)."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet, Value
from django.db.models.functions import Lower
from drf_spectacular.utils import extend_schema_view
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api import parameters
from agents.api.headers import IdempotentPosts
from agents.api.parameters import LogByTime, the_row
from agents.api.problems import Conflict
from agents.api.requests import ActionPermissions, PaidRequests
from agents.api.schema import AGENT, CHANNEL, SINCE, UNTIL, documented, query
from agents.persona import TraitValue
from correction.api.behavior_rows import (
    ApplyBody,
    BehaviorRequestRow,
    RejectBody,
    RetryBody,
    RevertBody,
    WholeBehaviorRequest,
    shown_requests,
)
from correction.behavior.applying import BehaviorError, apply_request, reject_request, retry_request, revert_request
from correction.models import BehaviorRequest

Status, Operation, Confidence = BehaviorRequest.Status, BehaviorRequest.Operation, BehaviorRequest.Confidence
_FILTERS = (
    *(AGENT, CHANNEL, query("status", enum=Status.values), query("operation", enum=Operation.values)),
    *(query("confidence", enum=Confidence.values), query("trait", "the trait's name, whatever the case")),
    *(query("automatic", "applied by itself", enum=parameters.YES_NO), query("message", "its id", type=int)),
    *(SINCE, UNTIL),
)


@extend_schema_view(get=documented({200: BehaviorRequestRow(many=True)}, parameters=_FILTERS))
class BehaviorRequests(ListAPIView[BehaviorRequest]):
    """What people asked agents to do differently, newest first; also messages that were looked at and asked for nothing.

    Filters: `agent`, `channel` (slugs), `status` (`pending_review` waits for a person), `operation`, `confidence`, `trait`, `automatic`,
    `message` (id), `since`, `until`. `ordering=created_at` for the oldest first.
    """

    queryset = BehaviorRequest.objects.all()
    serializer_class = BehaviorRequestRow
    pagination_class = LogByTime

    def filter_queryset(self, queryset: QuerySet[BehaviorRequest, Any]) -> QuerySet[BehaviorRequest, Any]:
        request, found = self.request, shown_requests(queryset).defer(*_LONG)
        parameters.only(request, *(parameter.name for parameter in _FILTERS), "ordering")
        if agent := parameters.agent(request):
            found = found.filter(agent=agent)
        if channel := parameters.channel(request):
            found = found.filter(message__channel=channel)
        for name, allowed in (("status", Status), ("operation", Operation), ("confidence", Confidence)):
            if value := parameters.choice(request, name, allowed.values):
                found = found.filter(**{name: value})
        if trait := parameters.text(request, "trait"):
            found = found.alias(called=Lower("trait_name")).exclude(trait_name="").filter(called=Lower(Value(trait)))
        if (automatic := parameters.flag(request, "automatic")) is not None:
            found = found.filter(automatic=automatic)
        if message := parameters.number(request, "message", allowed="the id of a message"):
            found = found.filter(message__pk=message)
        return parameters.in_time(request, found)


_LONG = ("gate_result", "extract_result", "map_result")


class BehaviorRequestDetail(GenericAPIView[BehaviorRequest]):
    """One behaviour request with what each tier said."""

    queryset = BehaviorRequest.objects.all()
    serializer_class = WholeBehaviorRequest

    @documented(WholeBehaviorRequest, problems=(404,))
    def get(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        return Response(self.get_serializer(_the_request(pk)).data)


class _Decision(IdempotentPosts, GenericAPIView[BehaviorRequest]):
    """Base of the routes that decide: they change a persona, so that they also need the right to change agents."""

    queryset = BehaviorRequest.objects.all()
    permission_classes = (ActionPermissions,)
    example: ClassVar[dict[str, Any]] = {}

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        if request.method == "POST" and not request.user.has_perm("agents.change_agent"):
            self.permission_denied(request, message="deciding on behaviour requests needs agents.change_agent")

    def decide(self, request: Request, row: BehaviorRequest, body: Any) -> BehaviorRequest:
        raise NotImplementedError

    def post(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        row = _the_request(pk)
        body = self.get_serializer(data=request.data)
        body.is_valid(raise_exception=True)
        try:
            self.decide(request, row, body)
        except BehaviorError as error:
            raise Conflict(str(error)) from None
        return Response(WholeBehaviorRequest(_the_request(pk), context={"request": request}).data)


@extend_schema_view(post=documented(WholeBehaviorRequest, body=ApplyBody, problems=(404, 409)))
class ApplyRequest(_Decision):
    """Make the proposed change, or the one in `trait` instead. What was applied, rejected or reverted already: 409."""

    serializer_class = ApplyBody
    throttle_classes = (PaidRequests,)  # a description is generated anew
    example: ClassVar = {"trait": {"name": "concise replies", "strength": 0.7}}

    def decide(self, request: Request, row: BehaviorRequest, body: Any) -> BehaviorRequest:
        given, proposal = body.validated_data.get("trait"), row.trait_after if isinstance(row.trait_after, dict) else {}
        kept = {name: proposal[name] for name in ("description", "sentiment") if name in proposal}
        return apply_request(request=row, user=request.user, trait=TraitValue(**{**kept, **given}) if given else None)


@extend_schema_view(post=documented(WholeBehaviorRequest, body=RejectBody, problems=(404, 409)))
class RejectRequest(_Decision):
    """Say that nothing is to come of it; `why` is kept."""

    serializer_class = RejectBody
    example: ClassVar = {"why": "out of character"}

    def decide(self, request: Request, row: BehaviorRequest, body: Any) -> BehaviorRequest:
        return reject_request(request=row, user=request.user, why=body.validated_data.get("why", ""))


@extend_schema_view(post=documented(WholeBehaviorRequest, body=RevertBody, problems=(404, 409)))
class RevertRequest(_Decision):
    """Take an applied change back: the trait becomes exactly what it was before, whatever else was changed since.

    Where the same trait was changed since, it is a 409; `{"anyway": true}` does it all the same.
    """

    serializer_class = RevertBody
    example: ClassVar = {"anyway": False}

    def decide(self, request: Request, row: BehaviorRequest, body: Any) -> BehaviorRequest:
        return revert_request(request=row, user=request.user, anyway=body.validated_data.get("anyway", False))


@extend_schema_view(post=documented(WholeBehaviorRequest, body=RetryBody, problems=(404, 409)))
class RetryRequest(_Decision):
    """Queue one again that failed or was cancelled: it goes on at the tier at which it stopped."""

    serializer_class = RetryBody
    throttle_classes = (PaidRequests,)

    def decide(self, request: Request, row: BehaviorRequest, body: Any) -> BehaviorRequest:
        return retry_request(request=row)


def _the_request(pk: int) -> BehaviorRequest:
    versions = ("persona_version_before", "persona_version")
    rows = shown_requests(BehaviorRequest.objects.select_related(*versions))
    found: BehaviorRequest = the_row(rows, pk, "behaviour request")
    return found

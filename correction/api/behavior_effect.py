"""Whether an applied behaviour request changed anything, over the API: what judging it would take, what came out, and asking for it."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiExample
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api import parameters
from agents.api.headers import IdempotentPosts
from agents.api.parameters import the_row
from agents.api.problems import Conflict
from agents.api.requests import ModelPermissions, PaidRequests
from agents.api.schema import documented, query
from correction.api.behavior_effect_rows import EffectBody, EffectOfRequest, EffectRow, with_name
from correction.behavior.before_after import RequestedChange, plan_as_json, plan_request
from correction.behavior.effects import check_measurable, queue_effect
from correction.behavior.errors import BehaviorError
from correction.models import BehaviorEffect, BehaviorRequest
from evaluation.change.before_after import MESSAGES, MOST_MESSAGES

MEASURING = "evaluation.add_evaluationrun"  # it costs what an evaluation costs, and changes nothing
MOST_SHOWN = 20
_PERMS = {**ModelPermissions.perms_map, "POST": [*ModelPermissions.perms_map["GET"], MEASURING]}
_MESSAGES = query(
    "messages", "messages of each side of the plan", type={"type": "integer", "minimum": 1, "maximum": MOST_MESSAGES}
)
_EXAMPLE = OpenApiExample("ten messages of each side", request_only=True, value={"messages": MESSAGES})


class MayMeasure(ModelPermissions):
    """Reading needs the right to view requests; asking for an evaluation also the right to ask for evaluations."""

    perms_map = _PERMS


class RequestEffect(IdempotentPosts, GenericAPIView[BehaviorRequest]):
    """Whether an applied request changed anything: its trait, judged on the agent's messages before the change and on the next after it.

    GET shows the `plan`, with how many messages there are, what judging them would cost, and the newest evaluations of this kind, 20 at
    most; it asks no model. POST has a worker judge (202). Fewer messages than wanted are judged where there are no more; with none on
    one side it is a 409, and so it is while one is under way. What was interrupted is judged anew.
    """

    queryset = BehaviorRequest.objects.all()
    serializer_class = EffectBody
    permission_classes = (MayMeasure,)
    throttle_classes = (PaidRequests,)
    example: ClassVar[dict[str, Any]] = {"messages": MESSAGES}

    @documented(EffectOfRequest, parameters=(_MESSAGES,), problems=(404,))
    def get(self, request: Request, pk: int) -> Response:
        parameters.only(request, "messages")
        row = _the_request(pk)
        change, why_not = _plan(row, _how_many(request))
        rows = BehaviorEffect.objects.filter(request=row).select_related("requested_by", "request__agent")
        shown = EffectRow(rows[:MOST_SHOWN], many=True, context={"request": request}).data
        plan = with_name(plan_as_json(change), row) if change is not None else None
        return Response({"plan": plan, "why_not": why_not, "effects": shown})

    @documented(
        {202: EffectRow},
        body=EffectBody,
        problems=(404, 409),
        examples=[_EXAMPLE],
        summary="Judge whether an applied request changed anything",
    )
    def post(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        row = _the_request(pk)
        body = EffectBody(data=request.data)
        body.is_valid(raise_exception=True)
        try:
            messages = body.validated_data.get("messages", MESSAGES)
            effect = queue_effect(request=row, messages=messages, user=request.user)  # type: ignore[arg-type]  # nobody anonymous comes here
        except BehaviorError as error:
            raise Conflict(str(error)) from None
        shown = EffectRow(effect, context={"request": request}).data
        return Response(shown, status=202, headers={"Location": str(reverse("behavior:effect", [pk], request=request))})


def _plan(row: BehaviorRequest, messages: int) -> tuple[RequestedChange | None, str]:
    """What could be judged, and why it cannot be asked for now; empty when it can."""
    try:
        change = plan_request(request=row, n=messages)
    except BehaviorError as error:
        return None, str(error)
    try:
        check_measurable(change)
    except BehaviorError as error:
        return change, str(error)
    return change, ""


def _how_many(request: Request) -> int:
    allowed = f"1 to {MOST_MESSAGES}"
    found = parameters.number(request, "messages", allowed=allowed)
    if found is None:
        return MESSAGES
    if not 1 <= found <= MOST_MESSAGES:
        raise ValidationError({"messages": [f"messages {found}: allowed: {allowed}"]})
    return found


def _the_request(pk: int) -> BehaviorRequest:
    found: BehaviorRequest = the_row(BehaviorRequest.objects.select_related("agent"), pk, "behaviour request")
    return found

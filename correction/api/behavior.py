"""Behaviour requests over the API: the queue, decisions about them, and the effect of an applied one (specification 002)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal, TypeVar

from django.db.models import QuerySet, Value
from django.db.models.functions import Lower
from django.urls import path
from drf_spectacular.utils import OpenApiExample, extend_schema_view
from pydantic import BaseModel, Field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api import parameters
from agents.api.bodies import Flag, NoBody, StrictBody, Text, Whole
from agents.api.headers import IdempotentPosts
from agents.api.parameters import LogByTime, the_row
from agents.api.problems import Conflict
from agents.api.requests import ActionPermissions, ModelPermissions, PaidRequests
from agents.api.schema import AGENT, CHANNEL, SINCE, UNTIL, documented, query
from agents.persona import TraitValue
from correction.behavior.applying import BehaviorError, apply_request, reject_request, retry_request, revert_request
from correction.behavior.effects import (
    EffectPlan,
    EffectResult,
    RequestedChange,
    check_measurable,
    plan_request,
    queue_effect,
    result_of,
)
from correction.models import BehaviorEffect, BehaviorRequest
from evaluation.change.before_after import MESSAGES, MOST_MESSAGES
from evaluation.models import is_heuristic

_ROW = (
    *("id", "url", "agent", "channel", "message", "message_url", "requester", "status", "confidence", "operation"),
    *("trait_name", "trait_before", "trait_after", "why", "warnings", "judge", "heuristic", "automatic"),
    *("reviewed_by", "created_at", "finished_at", "applied_at", "reviewed_at", "reverted_at"),
)
_TIERS = ("gate_result", "extract_result", "map_result")
_QUOTING = ("why", "warnings", "error", *_TIERS)  # what was made of the words may hold them
_UNREAD = "null = you may not read messages (agents.view_message)"


class RequestedTrait(serializers.Serializer[Any]):
    """A trait as it was, or is to be."""

    name = serializers.CharField()
    description = serializers.CharField()
    sentiment = serializers.FloatField(help_text="how the persona feels about it, -1 to 1")
    strength = serializers.FloatField(help_text="0 = stop doing this, 0.5 = usual, 1 = always")


class BehaviorRequestRow(serializers.ModelSerializer[BehaviorRequest]):
    """One look at one message for one agent: whether it asked for a change, for which, and what became of it."""

    url = serializers.HyperlinkedIdentityField(view_name="behavior:request")
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    channel = serializers.SerializerMethodField(help_text="the slug of where it was said; null = it was deleted since")
    message = serializers.IntegerField(source="message_id", read_only=True, allow_null=True)
    message_url = serializers.SerializerMethodField()
    why = serializers.SerializerMethodField(
        help_text=f"why it waits, why no change came of it, or what went wrong; {_UNREAD}"
    )
    requester = serializers.SerializerMethodField(help_text="name of the user or outsider who said it")
    trait_before = RequestedTrait(read_only=True, allow_null=True)
    trait_after = RequestedTrait(read_only=True, allow_null=True)
    warnings = serializers.ListField(
        child=serializers.CharField(), read_only=True, allow_null=True, help_text=f"what was odd about it; {_UNREAD}"
    )
    heuristic = serializers.SerializerMethodField(help_text="found by the offline detector, not by a model")
    reviewed_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    class Meta:
        model = BehaviorRequest
        fields: tuple[str, ...] = _ROW
        read_only_fields = fields

    def to_representation(self, row: BehaviorRequest) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(row)
        if not self.may_read:
            shown.update((name, None) for name in _QUOTING if name in shown)
        return shown

    @property
    def may_read(self) -> bool:
        return bool(self.context["request"].user.has_perm("agents.view_message"))

    def get_channel(self, row: BehaviorRequest) -> str | None:
        return row.message.channel.slug if row.message else None

    def get_message_url(self, row: BehaviorRequest) -> str | None:
        return self._link("agents:message", row.message_id) if row.message_id else None

    def get_why(self, row: BehaviorRequest) -> str | None:
        return row.why or row.error

    def get_requester(self, row: BehaviorRequest) -> str:
        return row.message.author_name if row.message else ""

    def get_heuristic(self, row: BehaviorRequest) -> bool:
        return row.judge.startswith("offline:")

    def _link(self, view: str, key: object) -> str:
        return str(reverse(view, [key], request=self.context["request"]))


class WholeBehaviorRequest(BehaviorRequestRow):
    """The same with what each tier said, why it failed, and the words it is about."""

    text = serializers.SerializerMethodField(
        help_text="the message; null where it was deleted, or may not be read by you (agents.view_message)"
    )
    gate_result, extract_result, map_result = (
        serializers.JSONField(read_only=True, allow_null=True, help_text=f"null = not asked yet; also {_UNREAD}")
        for _ in _TIERS
    )
    error = serializers.CharField(read_only=True, allow_null=True, help_text=f"why it failed or paused; {_UNREAD}")
    persona_version_before = serializers.IntegerField(
        source="persona_version_before.number", read_only=True, allow_null=True, default=None
    )
    persona_version = serializers.IntegerField(
        source="persona_version.number", read_only=True, allow_null=True, default=None
    )
    calls_url = serializers.SerializerMethodField(help_text="the model calls it made")

    class Meta:
        model = BehaviorRequest
        fields = (*_ROW, "text", *_TIERS, "error", "persona_version_before", "persona_version", "calls_url")
        read_only_fields = fields

    def get_text(self, row: BehaviorRequest) -> str | None:
        return row.message.text if row.message and self.may_read else None

    def get_calls_url(self, row: BehaviorRequest) -> str:
        return _calls_url(row, self.context["request"])


class Between(serializers.FloatField):
    """A number within bounds; an error says which."""

    def to_internal_value(self, data: Any) -> float:
        allowed = f"a number from {self.min_value:g} to {self.max_value:g}"
        inside = isinstance(data, int | float) and not isinstance(data, bool)
        if not inside or not self.min_value <= data <= self.max_value:
            raise serializers.ValidationError([f"{self.field_name} {str(data)[:80]!r}: allowed: {allowed}"])
        return float(data)


class TraitBody(StrictBody):
    name = Text(most=120)
    description = Text(most=4000, required=False, allowed="a text of 1 to 4,000 characters; left out = as proposed")
    sentiment = Between(min_value=-1, max_value=1, required=False, help_text="left out = as proposed")
    strength = Between(min_value=0, max_value=1)


class ApplyBody(StrictBody):
    """Nothing, or the trait as it is to be instead of as it was proposed."""

    trait = TraitBody(required=False)


class RejectBody(StrictBody):
    why = Text(most=1000, required=False, allowed="a text of 1 to 1,000 characters; left out = none")


class RevertBody(StrictBody):
    anyway = Flag(required=False, help_text="also where the same trait was changed since")


class RetryBody(NoBody):
    pass


def shown_requests(rows: QuerySet[BehaviorRequest]) -> QuerySet[BehaviorRequest]:
    """With what their rows show, in one query, without the long texts of those who are named."""
    found = rows.select_related("agent", "message__channel", "message__user", "message__agent", "reviewed_by")
    return found.defer(
        *("agent__system_prompt", "agent__sample_lines", "agent__description"),
        *("message__channel__topic", "message__channel__tags", "message__payload", "message__text"),
        *("message__agent__system_prompt", "message__agent__sample_lines", "message__agent__description"),
    )


class EffectRow(BaseModel):
    """One evaluation of whether a request changed anything."""

    id: int
    status: Literal["pending", "running", "completed", "failed", "errored", "cancelled", "paused_budget"]
    messages: int = Field(description=f"most messages before and after, 1 to {MOST_MESSAGES}")
    judge: str
    heuristic: bool = Field(description="asked of the offline judge, not of a model")
    requested_by: str | None
    error: str
    attempt: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    result: EffectResult | None = Field(description="null = not judged (yet)")
    calls_url: str = Field(description="the model calls it made")


class EffectOfRequest(BaseModel):
    """What could be judged, and what was."""

    plan: EffectPlan | None = Field(description="null = nothing was changed by the request, or its agent is gone")
    why_not: str = Field(description="why it cannot be asked for now; empty = it can")
    effects: list[EffectRow] = Field(description="newest first")


Shown = TypeVar("Shown", bound=EffectPlan)


def _with_name(shown: Shown, request: BehaviorRequest) -> Shown:
    """With the claim as the judge reads it: with the agent's name, where the agent is still there."""
    name = request.agent.display_name if request.agent is not None else "{{agent_name}}"
    return shown.model_copy(update={"claim": shown.claim.replace("{{agent_name}}", name)})


def _effect(effect: BehaviorEffect, request: Request) -> EffectRow:
    result = result_of(effect)
    if result is not None:
        result = _with_name(result, effect.request)
        if not request.user.has_perm("agents.view_message"):
            for message in result.messages:
                message.justification = None
    return EffectRow(
        **{name: getattr(effect, name) for name in EffectRow.model_fields if hasattr(effect, name)}
        | {
            "result": result,
            "requested_by": effect.requested_by.get_username() if effect.requested_by else None,
            "heuristic": is_heuristic(effect.judge),
            "calls_url": _calls_url(effect, request),
        }
    )


def _calls_url(row: BehaviorRequest | BehaviorEffect, request: Request) -> str:
    return f"{reverse('agents:llm-calls', request=request)}?work_id={row.work_id}"


class EffectBody(StrictBody):
    """How many messages before and after; nothing = 10."""

    messages = Whole(
        least=1, most=MOST_MESSAGES, required=False, help_text=f"before and after each; left out = {MESSAGES}"
    )


Status, Operation, Confidence = BehaviorRequest.Status, BehaviorRequest.Operation, BehaviorRequest.Confidence
_FILTERS = (
    *(AGENT, CHANNEL, query("status", enum=Status.values), query("operation", enum=Operation.values)),
    *(query("confidence", enum=Confidence.values), query("trait", "the trait's name, whatever the case")),
    *(query("automatic", "applied automatically", enum=parameters.YES_NO), query("message", "its id", type=int)),
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
        request, found = self.request, shown_requests(queryset).defer(*_TIERS)
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
    throttle_classes = (PaidRequests,)  # a description is generated
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


MEASURING = "evaluation.add_evaluationrun"  # it costs what an evaluation costs, and changes nothing
MOST_SHOWN = 20
_PERMS = {**ModelPermissions.perms_map, "POST": [*ModelPermissions.perms_map["GET"], MEASURING]}
_MESSAGES = query(
    "messages",
    "messages before and after, of the plan",
    type={"type": "integer", "minimum": 1, "maximum": MOST_MESSAGES},
)
_EXAMPLE = OpenApiExample("ten messages before and after", request_only=True, value={"messages": MESSAGES})


class MayMeasure(ModelPermissions):
    """Reading needs the right to view requests; asking for an evaluation also the right to ask for evaluations."""

    perms_map = _PERMS


class RequestEffect(IdempotentPosts, GenericAPIView[BehaviorRequest]):
    """Whether an applied request changed anything: its trait, judged on the agent's messages before the change and on the next after it.

    GET shows the `plan`, with how many messages there are, what judging them would cost, and the newest evaluations of this kind, 20 at
    most; it asks no model. POST has a worker judge (202). Fewer messages than wanted are judged where there are no more; with none
    before or after it is a 409, and so it is while one is under way. What was interrupted is judged again.
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
        effects = [_effect(effect, request) for effect in rows[:MOST_SHOWN]]
        plan = _with_name(change.shown(), row) if change is not None else None
        return Response(EffectOfRequest(plan=plan, why_not=why_not, effects=effects).model_dump(mode="json"))

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
        shown = _effect(effect, request).model_dump(mode="json")
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


app_name = "behavior"
urlpatterns = [
    path("", BehaviorRequests.as_view(), name="requests"),
    path("<int:pk>/", BehaviorRequestDetail.as_view(), name="request"),
    path("<int:pk>/apply/", ApplyRequest.as_view(), name="apply"),
    path("<int:pk>/reject/", RejectRequest.as_view(), name="reject"),
    path("<int:pk>/revert/", RevertRequest.as_view(), name="revert"),
    path("<int:pk>/retry/", RetryRequest.as_view(), name="retry"),
    path("<int:pk>/effect/", RequestEffect.as_view(), name="effect"),
]

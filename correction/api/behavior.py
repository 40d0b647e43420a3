"""Behaviour requests over the API: the queue, decisions about them, and the effect of an applied one (specification 002)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeVar

from django.db.models import QuerySet, Value
from django.db.models.functions import Lower
from drf_spectacular.utils import OpenApiExample
from pydantic import BaseModel, Field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ReadOnlyModelViewSet

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
MEASURING = "evaluation.add_evaluationrun"  # it costs what an evaluation costs, and changes nothing
MOST_SHOWN = 20
_MEASURE = {**ModelPermissions.perms_map, "POST": [*ModelPermissions.perms_map["GET"], MEASURING]}


class RequestedTrait(serializers.Serializer[Any]):
    """A trait as it was, or is to be."""

    name = serializers.CharField()
    description = serializers.CharField()
    sentiment = serializers.FloatField(help_text="how the persona feels about it, -1 to 1")
    strength = serializers.FloatField(help_text="0 = stop doing this, 0.5 = usual, 1 = always")


class BehaviorRequestRow(serializers.ModelSerializer[BehaviorRequest]):
    """One look at one message for one agent: whether it asked for a change, for which, and what became of it."""

    url = serializers.HyperlinkedIdentityField(view_name="behavior:request-detail")
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
    heuristic = serializers.SerializerMethodField(help_text="read by the offline detector, not by a model")
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


def shown_requests(rows: QuerySet[BehaviorRequest]) -> QuerySet[BehaviorRequest]:
    """With what their rows show, in one query, without the long texts of those who are named."""
    rows = rows.select_related("agent", "message__channel", "message__user", "message__agent", "reviewed_by")
    return rows.defer(
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


class MayDecide(ActionPermissions):
    """Decisions change a persona, so that they also need the right to change agents."""

    message = "deciding on behaviour requests needs agents.change_agent"

    def has_permission(self, request: Request, view: APIView) -> bool:
        may_change = request.method != "POST" or request.user.has_perm("agents.change_agent")
        return super().has_permission(request, view) and may_change


class MayMeasure(ModelPermissions):
    """Reading needs the right to view requests; asking for an evaluation also the right to ask for evaluations."""

    perms_map = _MEASURE


Status, Operation, Confidence = BehaviorRequest.Status, BehaviorRequest.Operation, BehaviorRequest.Confidence
_FILTERS = (
    *(AGENT, CHANNEL, query("status", enum=Status.values), query("operation", enum=Operation.values)),
    *(query("confidence", enum=Confidence.values), query("trait", "the trait's name, whatever the case")),
    *(query("automatic", "applied automatically", enum=parameters.YES_NO), query("message", "its id", type=int)),
    *(SINCE, UNTIL),
)
_MESSAGES = query(
    "messages",
    "messages before and after, of the plan",
    type={"type": "integer", "minimum": 1, "maximum": MOST_MESSAGES},
)
_DECIDES: dict[str, Any] = {"detail": True, "methods": ["post"], "permission_classes": (MayDecide,)}
_TRAIT = {"trait": {"name": "concise replies", "strength": 0.7}}


class BehaviorRequests(IdempotentPosts, ReadOnlyModelViewSet[BehaviorRequest]):
    """What people asked agents to do differently, what became of it, and its effect."""

    queryset = BehaviorRequest.objects.all()
    serializer_class: Any = WholeBehaviorRequest
    pagination_class = LogByTime
    lookup_value_converter = "int"
    example: ClassVar[dict[str, Any]] = {}

    def get_object(self) -> BehaviorRequest:
        rows = shown_requests(BehaviorRequest.objects.select_related("persona_version_before", "persona_version"))
        row: BehaviorRequest = the_row(rows, self.kwargs["pk"], "behaviour request")
        return row

    def filter_queryset(self, queryset: QuerySet[BehaviorRequest, Any]) -> QuerySet[BehaviorRequest, Any]:
        request, rows = self.request, shown_requests(queryset).defer(*_TIERS)
        parameters.only(request, *(parameter.name for parameter in _FILTERS), "ordering")
        if agent := parameters.agent(request):
            rows = rows.filter(agent=agent)
        if channel := parameters.channel(request):
            rows = rows.filter(message__channel=channel)
        for name, allowed in (("status", Status), ("operation", Operation), ("confidence", Confidence)):
            if value := parameters.choice(request, name, allowed.values):
                rows = rows.filter(**{name: value})
        if trait := parameters.text(request, "trait"):
            rows = rows.alias(called=Lower("trait_name")).exclude(trait_name="").filter(called=Lower(Value(trait)))
        if (automatic := parameters.flag(request, "automatic")) is not None:
            rows = rows.filter(automatic=automatic)
        if message := parameters.number(request, "message", allowed="the id of a message"):
            rows = rows.filter(message__pk=message)
        return parameters.in_time(request, rows)

    @documented({200: BehaviorRequestRow(many=True)}, parameters=_FILTERS)
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """What people asked agents to do differently, newest first; also messages that were read and asked for nothing.

        Filters: `agent`, `channel` (slugs), `status` (`pending_review` waits for a person), `operation`, `confidence`, `trait`,
        `automatic`, `message` (id), `since`, `until`. `ordering=created_at` for the oldest first.
        """
        self.serializer_class = BehaviorRequestRow
        return super().list(request, *args, **kwargs)

    @documented(WholeBehaviorRequest, problems=(404,))
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One behaviour request with what each tier said."""
        parameters.only(request)
        return super().retrieve(request, *args, **kwargs)

    def _body(self, request: Request) -> dict[str, Any]:
        parameters.only(request)
        body = self.get_serializer(data=request.data)
        body.is_valid(raise_exception=True)
        values: dict[str, Any] = body.validated_data
        return values

    def _decided(self, decide: Callable[..., BehaviorRequest], row: BehaviorRequest, **values: Any) -> Response:
        try:
            decide(request=row, **values)
        except BehaviorError as error:
            raise Conflict(str(error)) from None
        return Response(WholeBehaviorRequest(self.get_object(), context={"request": self.request}).data)

    @documented(WholeBehaviorRequest, body=ApplyBody, problems=(404, 409))
    @action(
        **_DECIDES, serializer_class=ApplyBody, throttle_classes=(PaidRequests,), example=_TRAIT
    )  # pays a description
    def apply(self, request: Request, pk: int) -> Response:
        """Make the proposed change, or the one in `trait` instead. What was applied, rejected or reverted already: 409."""
        row, given = self.get_object(), self._body(request).get("trait")
        proposal = row.trait_after if isinstance(row.trait_after, dict) else {}
        unsaid = {name: proposal[name] for name in ("description", "sentiment") if name in proposal}
        trait = TraitValue(**{**unsaid, **given}) if given else None
        return self._decided(apply_request, row, user=request.user, trait=trait)

    @documented(WholeBehaviorRequest, body=RejectBody, problems=(404, 409))
    @action(**_DECIDES, serializer_class=RejectBody, example={"why": "out of character"})
    def reject(self, request: Request, pk: int) -> Response:
        """Say that nothing is to be changed; `why` is stored."""
        row, why = self.get_object(), self._body(request).get("why", "")
        return self._decided(reject_request, row, user=request.user, why=why)

    @documented(WholeBehaviorRequest, body=RevertBody, problems=(404, 409))
    @action(**_DECIDES, serializer_class=RevertBody, example={"anyway": False})
    def revert(self, request: Request, pk: int) -> Response:
        """Take an applied change back: the trait becomes exactly what it was before, whatever else was changed since.

        Where the same trait was changed since, it is a 409; `{"anyway": true}` does it all the same.
        """
        row, anyway = self.get_object(), self._body(request).get("anyway", False)
        return self._decided(revert_request, row, user=request.user, anyway=anyway)

    @documented(WholeBehaviorRequest, body=NoBody, problems=(404, 409))
    @action(**_DECIDES, serializer_class=NoBody, throttle_classes=(PaidRequests,))
    def retry(self, request: Request, pk: int) -> Response:
        """Queue one again that failed or was cancelled: it goes on at the tier at which it stopped."""
        row = self.get_object()
        self._body(request)
        return self._decided(retry_request, row)

    @documented(EffectOfRequest, parameters=(_MESSAGES,), problems=(404,))
    @action(
        detail=True,
        permission_classes=(MayMeasure,),
        throttle_classes=(PaidRequests,),
        serializer_class=EffectBody,
        example={"messages": MESSAGES},
    )
    def effect(self, request: Request, pk: int) -> Response:
        """Whether an applied request changed anything: its trait, judged on messages before the change and on the next after it.

        GET shows the `plan`, with how many messages there are, what judging them would cost, and the newest evaluations of this kind,
        20 at most; it asks no model. POST has a worker judge (202). Fewer messages than wanted are judged where there are no more;
        with none before or after it is a 409, and so it is while one is under way. What was interrupted is judged again.
        """
        parameters.only(request, "messages")
        row, allowed = self.get_object(), f"1 to {MOST_MESSAGES}"
        messages = parameters.number(request, "messages", allowed=allowed)
        if messages is not None and not 1 <= messages <= MOST_MESSAGES:
            raise ValidationError({"messages": [f"messages {messages}: allowed: {allowed}"]})
        plan, why_not = None, ""
        try:
            change = plan_request(request=row, n=messages or MESSAGES)
            plan = _with_name(change.shown(), row)
            check_measurable(change)
        except BehaviorError as error:
            why_not = str(error)
        rows = BehaviorEffect.objects.filter(request=row).select_related("requested_by", "request__agent")
        effects = [_effect(effect, request) for effect in rows[:MOST_SHOWN]]
        return Response(EffectOfRequest(plan=plan, why_not=why_not, effects=effects).model_dump(mode="json"))

    @documented(
        {202: EffectRow},
        body=EffectBody,
        problems=(404, 409),
        examples=[OpenApiExample("ten messages before and after", request_only=True, value={"messages": MESSAGES})],
        summary="Judge whether an applied request changed anything",
    )
    @effect.mapping.post  # type: ignore[untyped-decorator]
    def measure(self, request: Request, pk: int) -> Response:
        """Have a worker judge whether an applied request changed anything."""
        row, messages = self.get_object(), self._body(request).get("messages", MESSAGES)
        try:
            effect = queue_effect(request=row, messages=messages, user=request.user)  # type: ignore[arg-type]  # users only
        except BehaviorError as error:
            raise Conflict(str(error)) from None
        where = reverse("behavior:request-effect", [pk], request=request)
        return Response(_effect(effect, request).model_dump(mode="json"), status=202, headers={"Location": str(where)})


app_name = "behavior"
router = SimpleRouter(use_regex_path=False)
router.register("", BehaviorRequests, basename="request")
urlpatterns = router.urls

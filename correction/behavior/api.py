"""Behaviour requests over the API: the queue, decisions about them, and the effect of an applied one (specification 002)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from django.db.models import QuerySet, Value
from django.db.models.functions import Lower
from drf_spectacular.utils import OpenApiExample
from pydantic import BaseModel, Field
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api.agents import TraitAnswer
from agents.api.filters import of_agent, of_channel
from agents.kit.api import filters
from agents.kit.api.filters import Filters, InTime
from agents.kit.api.headers import located
from agents.kit.api.pagination import LogByTime
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import PAID, ActionPermissions, ModelPermissions
from agents.kit.api.rows import Context, Row, Url, query_link, shown
from agents.kit.api.schema import answers
from agents.kit.api.views import Rows
from agents.kit.bodies import ABSENT, Body
from correction.behavior.applying import BehaviorError, apply_request, reject_request, retry_request, revert_request
from correction.behavior.effects import (
    EffectPlan,
    EffectResult,
    plan_request,
    queue_effect,
    result_of,
)
from correction.behavior.models import MESSAGES, MOST_MESSAGES, BehaviorEffect, BehaviorRequest
from correction.behavior.scope import holds_in
from evaluation.models import is_heuristic

_TIERS = ("gate_result", "extract_result", "map_result")
_UNREAD = "null = you may not read messages (agents.view_message)"


def may_read(context: Context) -> bool:
    """Return whether the user may read messages."""
    return bool(context["request"].user.has_perm("agents.view_message"))


def _quoting(source: Callable[[BehaviorRequest], Any]) -> Callable[[BehaviorRequest, Context], Any]:
    """Return a function for a value that may quote the message: null for users who may not read messages."""

    def value_for_reader(row: BehaviorRequest, context: Context) -> Any:
        return source(row) if may_read(context) else None

    return value_for_reader


class BehaviorRequestRow(
    Row,
    table=BehaviorRequest,
    columns=(
        *("id", "url", "agent", "channel", "message", "message_url", "requester", "status", "confidence"),
        *("operation", "trait_name", "trait_before", "trait_after", "holds", "why", "warnings", "judge"),
        *("heuristic", "automatic", "reviewed_by", "created_at", "finished_at", "applied_at"),
        *("reviewed_at", "reverted_at"),
    ),
):
    """One look at one message for one agent: whether it asked for a change, for which, and what became of it."""

    channel: str | None = shown("message.channel.slug", "the slug of where it was said; null = it was deleted since")
    requester: str = shown(
        lambda row, context: row.message.author_name if row.message else "",
        "name of the user or outsider who said it",
    )
    trait_before: TraitAnswer | None
    trait_after: TraitAnswer | None
    holds: str = shown(
        lambda row, context: holds_in(row), "where: the whole persona, only in a channel, or only towards a person"
    )
    why: str | None = shown(
        _quoting(lambda row: row.why or row.error),
        f"why it waits, why no change came of it, or what went wrong; {_UNREAD}",
    )
    warnings: list[str] | None = shown(_quoting(lambda row: row.warnings), f"what was odd about it; {_UNREAD}")
    heuristic: bool = shown(
        lambda row, context: is_heuristic(row.judge), "read by the offline detector, not by a model"
    )


class WholeBehaviorRequest(
    BehaviorRequestRow,
    columns=(
        *("text", "gate_result", "extract_result", "map_result", "error", "persona_version_before"),
        *("persona_version", "calls_url"),
    ),
):
    """One behaviour request with what each tier said, why it failed, and the words it is about."""

    text: str | None = shown(
        _quoting(lambda row: row.message.text if row.message else None),
        "the message; null where it was deleted, or may not be read by you (agents.view_message)",
    )
    gate_result: dict[str, Any] | None = shown(
        _quoting(lambda row: row.gate_result), f"null = not asked yet; also {_UNREAD}"
    )
    extract_result: dict[str, Any] | None = shown(
        _quoting(lambda row: row.extract_result), f"null = not asked yet; also {_UNREAD}"
    )
    map_result: dict[str, Any] | None = shown(
        _quoting(lambda row: row.map_result), f"null = not asked yet; also {_UNREAD}"
    )
    error: str | None = shown(_quoting(lambda row: row.error), f"why it failed or paused; {_UNREAD}")
    persona_version_before: int | None = shown("persona_version_before.number")
    persona_version: int | None = shown("persona_version.number")
    calls_url: Url = shown(query_link("llmcall-list", "work_id", "work_id"), "the model calls it made")


class NewTrait(Body):
    """A trait as it is to be; what is left out is as proposed."""

    name: str = Field(ABSENT, min_length=1, max_length=120)
    strength: float = Field(ABSENT, ge=0, le=1)
    description: str = Field(ABSENT, min_length=1, max_length=4000)
    sentiment: float = Field(ABSENT, ge=-1, le=1)


class ApplyBody(Body):
    """Nothing, or the trait as it is to be instead of as it was proposed."""

    trait: NewTrait = ABSENT


class RejectBody(Body):
    why: str = Field("", max_length=1000)


class RevertBody(Body):
    anyway: bool = Field(False, description="also where the same trait was changed since")


AnyPlan = TypeVar("AnyPlan", bound=EffectPlan)


def _with_name(plan: AnyPlan, request: BehaviorRequest) -> AnyPlan:
    """Return the plan with the claim as the judge reads it: with the agent's name, where the agent is still there."""
    name = request.agent.display_name if request.agent is not None else "{{agent_name}}"
    return plan.model_copy(update={"claim": plan.claim.replace("{{agent_name}}", name)})


def _result(effect: BehaviorEffect, context: Context) -> EffectResult | None:
    result = result_of(effect)
    if result is None:
        return None
    if not may_read(context):
        for message in result.messages:
            message.justification = None
    return _with_name(result, effect.request)


class EffectRow(
    Row,
    table=BehaviorEffect,
    columns=(
        *("id", "status", "messages", "judge", "heuristic", "requested_by", "error", "attempt", "created_at"),
        *("started_at", "finished_at", "result", "calls_url"),
    ),
):
    """One evaluation of whether a request changed anything."""

    heuristic: bool = shown(
        lambda effect, context: is_heuristic(effect.judge), "asked of the offline judge, not of a model"
    )
    result: EffectResult | None = shown(_result, "null = not judged (yet)")
    calls_url: Url = shown(query_link("llmcall-list", "work_id", "work_id"), "the model calls it made")


class EffectOfRequest(BaseModel):
    """The plan of an evaluation of the effect, and those that were made."""

    plan: EffectPlan | None = Field(description="null = nothing was changed by the request, or its agent is gone")
    why_not: str = Field(description="why it cannot be asked for now; empty = it can")
    effects: list[EffectRow] = Field(description="newest first")


class EffectBody(Body):
    """The number of messages before and after; nothing = 10."""

    messages: int = Field(MESSAGES, ge=1, le=MOST_MESSAGES, description="before and after each")


class RequestFilters(InTime):
    agent = of_agent()
    channel = of_channel("message__channel")
    status = filters.choice(BehaviorRequest.Status.values)
    operation = filters.choice(BehaviorRequest.Operation.values)
    confidence = filters.choice(BehaviorRequest.Confidence.values)
    trait = filters.Parameter(method="called", about="the trait's name, whatever the case")
    automatic = filters.flag(about="applied without a person's decision")
    message = filters.number("message__pk", allowed="the id of a message")

    def called(self, rows: QuerySet[BehaviorRequest], name: str, trait: str) -> QuerySet[BehaviorRequest]:
        return rows.alias(called=Lower("trait_name")).exclude(trait_name="").filter(called=Lower(Value(trait)))


class EffectFilters(Filters):
    messages = filters.number(
        allowed=f"1 to {MOST_MESSAGES}",
        least=1,
        most=MOST_MESSAGES,
        schema={"type": "integer", "minimum": 1, "maximum": MOST_MESSAGES},
        about="messages before and after, of the plan",
    )


class MayDecide(ActionPermissions):
    """Deciding changes a persona, so that it also needs the right to change agents."""

    message = "deciding on behaviour requests needs behavior.change_behaviorrequest and agents.change_agent"

    def has_permission(self, request: Request, view: Any) -> bool:
        may = request.method != "POST" or request.user.has_perm("agents.change_agent")
        return may and super().has_permission(request, view)


class MayMeasure(ModelPermissions):
    """Reading needs the right to view requests; asking for an evaluation also the right to ask for evaluations."""

    perms_map = {  # noqa: RUF012 (as its base has it)
        **ModelPermissions.perms_map,
        "POST": [*ModelPermissions.perms_map["GET"], "evaluation.add_evaluationrun"],
    }


MOST_SHOWN = 20
_EXAMPLE = OpenApiExample("ten messages before and after", request_only=True, value={"messages": MESSAGES})
_LONG = (
    *("agent__system_prompt", "agent__sample_lines", "agent__description", "message__channel__topic"),
    *("message__channel__tags", "message__payload", "message__text", "message__agent__system_prompt"),
    *("message__agent__sample_lines", "message__agent__description"),
)


class BehaviorRequests(Rows):
    """What people asked agents to do differently, newest first; also messages that were looked at and asked for nothing.

    Filters: `agent`, `channel` (slugs), `status` (`pending_review` waits for a person), `operation`, `confidence`, `trait`, `automatic`,
    `message` (id), `since`, `until`. `ordering=created_at` for the oldest first.
    """

    queryset = BehaviorRequest.objects.select_related(
        "agent", "message__channel", "message__user", "message__agent", "reviewed_by"
    ).defer(*_LONG)
    row_class = BehaviorRequestRow
    answer_class = WholeBehaviorRequest
    pagination_class = LogByTime
    filterset_class = RequestFilters
    bodies: ClassVar = {
        "apply": ApplyBody,
        "reject": RejectBody,
        "revert": RevertBody,
        "judge_effect": EffectBody,
    }

    def get_queryset(self) -> QuerySet[BehaviorRequest]:
        rows = super().get_queryset()
        if self.action == "list":
            return rows.defer(*_LONG, *_TIERS)
        return rows.select_related("persona_version_before", "persona_version")

    @answers(WholeBehaviorRequest, 409)
    @action(
        detail=True, methods=["post"], permission_classes=(MayDecide,), throttle_scope=PAID
    )  # a description is written
    def apply(self, request: Request, pk: int) -> Response:
        """Make the proposed change, or the one in `trait` instead: what that leaves out is as proposed.

        Where the persona was changed since it was proposed, and `trait` names none, the request is mapped again first. What was applied or
        reverted already, what would change nothing and what is doubtful now: 409.
        """

        def decide(row: BehaviorRequest, body: ApplyBody) -> object:
            return apply_request(request=row, user=request.user, trait=body.trait.sent if body.trait else None)

        return self._decided(decide)

    @answers(WholeBehaviorRequest, 409)
    @action(detail=True, methods=["post"], permission_classes=(MayDecide,))
    def reject(self, request: Request, pk: int) -> Response:
        """Say that nothing is to come of it; `why` is stored."""
        return self._decided(lambda row, body: reject_request(request=row, user=request.user, why=body.why))

    @answers(WholeBehaviorRequest, 409)
    @action(detail=True, methods=["post"], permission_classes=(MayDecide,))
    def revert(self, request: Request, pk: int) -> Response:
        """Take an applied change back: the trait becomes exactly what it was before, whatever else was changed since.

        Where the same trait was changed since, it is a 409; `{"anyway": true}` does it all the same.
        """
        return self._decided(lambda row, body: revert_request(request=row, user=request.user, anyway=body.anyway))

    @answers(WholeBehaviorRequest, 409)
    @action(detail=True, methods=["post"], permission_classes=(MayDecide,), throttle_scope=PAID)
    def retry(self, request: Request, pk: int) -> Response:
        """Queue one again that failed or was cancelled: it goes on at the tier at which it stopped."""
        return self._decided(lambda row, body: retry_request(request=row))

    def _decided(self, decide: Callable[[BehaviorRequest, Any], object]) -> Response:
        row = self.get_object()
        try:
            decide(row, self.read_body())
        except BehaviorError as error:
            raise Conflict(str(error)) from None
        return Response(self.shown(self.get_object()))

    @answers(EffectOfRequest)
    @action(detail=True, permission_classes=(MayMeasure,), throttle_scope=PAID, filterset_class=EffectFilters)
    def effect(self, request: Request, pk: int) -> Response:
        """Return whether an applied request changed anything: its trait, judged on the agent's messages before the change and after it.

        Shows the `plan`, with how many messages there are, what judging them would cost, and the newest evaluations of this kind, 20 at
        most; asks no model.
        """
        row = self.get_object()
        plan = None
        why_not = ""
        try:
            planned = plan_request(request=row, n=self.query["messages"] or MESSAGES)
            plan = _with_name(planned, row)
            why_not = planned.why_not
        except BehaviorError as error:
            why_not = str(error)
        rows = BehaviorEffect.objects.filter(request=row).select_related("requested_by", "request__agent")
        effects = EffectRow.all_of(rows[:MOST_SHOWN], self.row_context())
        return Response(EffectOfRequest(plan=plan, why_not=why_not, effects=effects))

    @answers({202: EffectRow}, 409, examples=[_EXAMPLE])
    @effect.mapping.post  # type: ignore[untyped-decorator]  # of the stubs
    def judge_effect(self, request: Request, pk: int) -> Response:
        """Judge whether an applied request changed anything. A worker does it.

        Fewer messages than wanted are judged where there are no more; with none before or after it is a 409, and so it is while one is
        under way. What was interrupted is judged again.
        """
        row = self.get_object()
        body = self.read_body()
        try:
            effect = queue_effect(request=row, messages=body.messages, user=request.user)  # type: ignore[arg-type]  # no user is anonymous here
        except BehaviorError as error:
            raise Conflict(str(error)) from None
        return located(
            EffectRow.of(effect, self.row_context()),
            status=202,
            url=reverse("behaviorrequest-effect", [pk], request=request),
        )

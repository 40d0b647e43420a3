"""List, queue, show and cancel turns of agents; list model calls."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from pydantic import Field
from rest_framework.decorators import action
from rest_framework.mixins import CreateModelMixin, ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.serializers import (
    CharField,
    ChoiceField,
    DecimalField,
    DictField,
    HyperlinkedIdentityField,
    IntegerField,
    JSONField,
    ListField,
    Serializer,
    SerializerMethodField,
)

from agents.api.agents import StageFields, named_message
from agents.api.filters import of_agent, of_channel
from agents.api.messages import MessageRow, shown_messages
from agents.api.overrides import Deadline, Overrides, overrides_of
from agents.bodies import ChannelSlug, the_agent
from agents.kit.api import filters, headers
from agents.kit.api.filters import InTime
from agents.kit.api.headers import etag_of, located
from agents.kit.api.pagination import LogByTimeOf
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import PAID, ActionPermissions, ReadsMessages
from agents.kit.api.rows import QueryLink, Row
from agents.kit.api.schema import answers
from agents.kit.api.views import Rows, View, or_404
from agents.kit.bodies import ABSENT, Body, Id
from agents.kit.llm.ledger import totals
from agents.kit.models import LLMCall
from agents.models import Run, RunMessage, RunStep
from agents.turn.orchestrator import TurnRefused, cancel, start_turn
from agents.turn.prompt import PROMPT_CHARACTERS


class RunRow(Row):
    """A turn of an agent, without what happened in it."""

    stop_reason = CharField(help_text=f"{', '.join(Run.StopReason.values)}, or empty")

    class Meta:
        model = Run
        fields: tuple[str, ...] = (
            *("id", "url", "agent", "channel", "status", "stop_reason", "error", "trigger", "trigger_url"),
            *("prompt", "depth", "attempt", "cancel_requested", "created_at", "started_at", "finished_at"),
            *("trace_url", "cancel_url"),
        )


class UsageFields(Serializer[Any]):
    """Sums over model calls. `cost_usd` leaves out the unpriced ones."""

    calls = IntegerField()
    input_tokens = IntegerField()
    output_tokens = IntegerField()
    cache_read_tokens = IntegerField()
    cache_write_tokens = IntegerField()
    cost_usd = DecimalField(max_digits=20, decimal_places=8)
    unpriced = IntegerField(help_text="calls whose price is not known")


class WholeRun(RunRow):
    """One turn with what was said in it and what its model calls used; `trace_url` has every step.

    Ask again with `If-None-Match` while you wait for it: 304 as long as nothing happened.
    """

    steps = IntegerField(source="steps.count", help_text="how many it has taken so far")
    said = SerializerMethodField(help_text="what was said in it, in order")
    usage = SerializerMethodField(help_text="of the agent's own model calls")
    usage_with_stages = SerializerMethodField(help_text="of all model calls that the turn caused")
    overrides = DictField(child=JSONField())
    calls_url = QueryLink("llmcall-list", "run", source="pk")

    class Meta(RunRow.Meta):
        fields = (*RunRow.Meta.fields, "overrides", "steps", "said", "usage", "usage_with_stages", "calls_url")

    @extend_schema_field(MessageRow(many=True))
    def get_said(self, run: Run) -> Any:
        return MessageRow(shown_messages().filter(run=run).order_by("pk"), many=True, context=self.context).data

    @extend_schema_field(UsageFields)
    def get_usage(self, run: Run) -> dict[str, Any]:
        return dict(UsageFields(totals(work_id=f"run:{run.pk}")).data)

    @extend_schema_field(UsageFields)
    def get_usage_with_stages(self, run: Run) -> dict[str, Any]:
        return dict(UsageFields(totals(LLMCall.objects.filter(run=run))).data)


class StepFields(Row):
    detail = JSONField(help_text="of a model call its status, model and tools; of a tool what became of it")
    call_url = SerializerMethodField()

    class Meta:
        model = RunStep
        fields = ("number", "kind", "detail", "duration_ms", "created_at", "call_url")

    def get_call_url(self, step: RunStep) -> str | None:
        call = step.detail.get("call") if isinstance(step.detail, dict) else None
        if not isinstance(call, int):
            return None
        return str(reverse("llmcall-detail", [call], request=self.context["request"]))


class ExchangeFields(Row):
    """One entry of the exchange with the model."""

    step = IntegerField(source="step.number", default=None, allow_null=True)
    content = JSONField()

    class Meta:
        model = RunMessage
        fields = ("number", "role", "step", "tool_name", "content", "message", "created_at")


class Trace(Serializer[Run]):
    """What happened in a turn."""

    run = IntegerField(source="pk")
    url = HyperlinkedIdentityField(view_name="run-detail")
    status = ChoiceField(Run.Status.choices)
    stages = StageFields(source="trace", many=True, help_text="what the stages did, in order")
    steps = SerializerMethodField(help_text="model calls and tools, in order")
    exchange = SerializerMethodField(help_text="all that passed between the turn and the model")

    @extend_schema_field(StepFields(many=True))
    def get_steps(self, run: Run) -> Any:
        return StepFields(run.steps.order_by("number"), many=True, context=self.context).data

    @extend_schema_field(ExchangeFields(many=True))
    def get_exchange(self, run: Run) -> Any:
        rows = RunMessage.objects.filter(run=run).select_related("step").order_by("number")
        return ExchangeFields(rows, many=True, context=self.context).data


class NewTurn(Body):
    """Where an agent is to act, and what is asked of it."""

    channel: ChannelSlug = Field(description="slug; the agent must be a member")
    prompt: str = Field(
        "", max_length=PROMPT_CHARACTERS, description="what you ask of this turn; shown to it, not said in the channel"
    )
    trigger: Id = Field(ABSENT, description="id of the message it is to answer")
    deadline: Deadline = ABSENT
    overrides: Overrides = Overrides()


class TurnFilters(InTime):
    channel = of_channel()
    status = filters.choice(Run.Status.values)
    stop_reason = filters.choice(Run.StopReason.values)


class RunFilters(TurnFilters):
    agent = of_agent()


class RunPages(LogByTimeOf):
    """By time where a status is asked for, by primary key else."""

    filter = "status"


def shown_runs() -> QuerySet[Run]:
    """Runs with what their rows show, without traces and the texts of agents."""
    return Run.objects.select_related("agent", "channel").defer(
        *("trace", "overrides", "agent__system_prompt", "agent__sample_lines", "agent__description"),
        *("channel__topic", "channel__tags"),
    )


class Runs(Rows):
    """Turns of agents, newest first.

    Filters: `agent`, `channel`, `status`, `stop_reason`, `since` and `until` (of when it was asked for). `ordering=created_at` for the
    oldest first.
    """

    queryset = shown_runs()
    row_class = RunRow
    serializer_class = WholeRun
    pagination_class = RunPages
    filterset_class = RunFilters
    etags = ("retrieve",)

    def get_permissions(self) -> Any:
        return [ReadsMessages()] if self.action == "retrieve" else super().get_permissions()

    def get_queryset(self) -> QuerySet[Run]:
        return shown_runs() if self.action == "list" else Run.objects.select_related("agent", "channel")

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        shown = self.get_serializer(self.get_object()).data
        return self.tagged(request, shown, etag_of(shown))

    @action(detail=True, permission_classes=(ReadsMessages,), serializer_class=Trace)
    def trace(self, request: Request, pk: int) -> Response:
        """What happened in a turn: what the stages did, each step with its tool or model call, all that passed between it and the model."""
        return Response(self.get_serializer(self.get_object()).data)

    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,), serializer_class=RunRow)
    def cancel(self, request: Request, pk: int) -> Response:
        """End a turn: at once when it has not begun, else before its next step. 409 when it has ended already."""
        self.read_body()
        run: Run = self.get_object()
        if run.status not in Run.FINAL:
            run = cancel(run)
        if run.status in Run.FINAL and run.status != Run.Status.CANCELLED:
            raise Conflict(f"run {run.pk} has ended already: {run.get_status_display()}")
        return Response(self.get_serializer(run).data)


class Turns(View, ListModelMixin, CreateModelMixin):
    """An agent's turns, newest first.

    Filters: `channel`, `status`, `stop_reason`, `since`, `until`; `ordering`.
    """

    queryset = shown_runs()
    serializer_class = RunRow
    pagination_class = RunPages
    filterset_class = TurnFilters
    throttle_scope = PAID
    bodies: ClassVar = {"create": NewTurn}

    def get_queryset(self) -> QuerySet[Run]:
        return shown_runs().filter(agent=or_404(the_agent, self.kwargs["slug"]))

    @answers({202: RunRow})
    def create(self, request: Request, slug: str) -> Response:
        """Ask for a turn of an agent. 202 with the run and its URL: a worker takes it. 409 when the agent is inactive or no member."""
        agent, body = or_404(the_agent, slug), self.read_body()
        try:
            run = start_turn(
                agent=agent,
                channel=body.channel,
                prompt=body.prompt,
                trigger=named_message(body.trigger, "trigger", body.channel),
                overrides=overrides_of(request, body, agent=agent, channel=body.channel),
                idempotency_key=headers.of(request, Run) or None,
            )
        except TurnRefused as error:
            raise Conflict(str(error)) from None
        return located(self.get_serializer(run).data, status=202)


class LLMCallRow(Row):
    """A call of a model: what it was for, what it used and cost. `cost_usd` null = unpriced, never free."""

    class Meta:
        model = LLMCall
        fields: tuple[str, ...] = (
            *("id", "url", "created_at", "role", "purpose", "mechanism", "dimension", "agent", "run"),
            *("work_id", "provider", "endpoint", "model", "served_model", "status", "error", "stop_reason"),
            *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd"),
            *("latency_ms", "attempts", "batch", "temperature", "temperature_applied", "request_id", "request_digest"),
        )


class PayloadFields(Serializer[Any]):
    """The exact prompt and the raw reply."""

    request = JSONField()
    reply = CharField()
    tool_calls = ListField(child=JSONField())


class WholeLLMCall(LLMCallRow):
    """One call; with its exact prompt and raw reply where `LLM_STORE_PAYLOADS` kept them and you may view payloads."""

    payload = SerializerMethodField(help_text="null = none is stored, or not yours to see")
    payload_stored = SerializerMethodField()

    class Meta(LLMCallRow.Meta):
        fields = (*LLMCallRow.Meta.fields, "payload_stored", "payload")

    def get_payload_stored(self, call: LLMCall) -> bool:
        return getattr(call, "payload", None) is not None

    @extend_schema_field(PayloadFields(allow_null=True))
    def get_payload(self, call: LLMCall) -> dict[str, Any] | None:
        if not self.get_payload_stored(call) or not self.context["request"].user.has_perm("kit.view_llmpayload"):
            return None
        return dict(PayloadFields(call.payload).data)


class CallFilters(InTime):
    agent = of_agent()
    purpose, mechanism, dimension, model, work_id = (filters.Parameter() for _ in range(5))
    status = filters.choice(LLMCall.Status.values)
    run = filters.number("run_id", allowed="the id of a run")


class LLMCalls(Rows):
    """Calls of models, newest first, failed ones too. `cost_usd` null = unpriced, never free.

    Filters: `agent`, `purpose`, `mechanism`, `dimension`, `model`, `status`, `run` (id), `work_id` (what it served, such as
    `evaluation_run:12`), `since`, `until`. `ordering=created_at` for the oldest first.
    """

    queryset = LLMCall.objects.select_related("agent").defer(
        "agent__system_prompt", "agent__sample_lines", "agent__description"
    )
    row_class = LLMCallRow
    serializer_class = WholeLLMCall
    pagination_class = LogByTimeOf
    filterset_class = CallFilters
    what = "model call"

    def get_queryset(self) -> QuerySet[LLMCall]:
        calls = super().get_queryset()
        return calls if self.action == "list" else calls.select_related("agent", "payload")

"""Turns of agents: listed, asked for, looked at, cancelled."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from agents.api import bodies, headers, parameters
from agents.api.bodies import Note, StrictBody, Text, Whole, read_body
from agents.api.headers import Conditional, IdempotentPosts, etag_of, located
from agents.api.messages import LARGEST_ID, MessageRow, OneRow, shown_message, shown_messages
from agents.api.parameters import LogByTimeOf, named_channel, named_message, the_agent, the_row
from agents.api.problems import Conflict, Unavailable
from agents.api.requests import ActionPermissions, PaidRequests, ReadsMessages
from agents.api.schema import AGENT, CHANNEL, SINCE, UNTIL, documented, query
from agents.llm.endpoints import model_of
from agents.llm.ledger import Totals
from agents.models import Agent, Channel, ChannelMember, LLMCall, Message, Run, RunMessage, RunStep
from agents.turn.orchestrator import TurnRefused, cancel, start_turn
from agents.turn.pipeline import StageFailed
from agents.turn.prompt import PROMPT_CHARACTERS, preview_prompt
from agents.turn.timeline import spent
from agents.turn.tools import tool_definitions


class SectionFields(serializers.Serializer[Any]):
    heading = serializers.CharField(allow_blank=True)
    body = serializers.CharField(allow_blank=True)
    stage = serializers.CharField(allow_blank=True, help_text="who added it")


class ToolFields(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()
    input_schema = serializers.JSONField()


class StageFields(serializers.Serializer[Any]):
    """What one stage did."""

    stage = serializers.CharField()
    phase = serializers.ChoiceField(["received", "prepare", "review", "committed", "finish"])
    status = serializers.ChoiceField(["ran", "skipped", "failed"])
    ms = serializers.FloatField()
    why = serializers.CharField(required=False)
    counters = serializers.DictField(child=serializers.IntegerField(), required=False)


class DraftFields(serializers.Serializer[Any]):
    text = serializers.CharField()
    payload = serializers.JSONField()


class PromptFields(serializers.Serializer[Any]):
    """What the model is sent at the beginning of a turn."""

    agent = serializers.CharField()
    channel = serializers.CharField()
    model = serializers.CharField()
    system = serializers.CharField(help_text="the whole system prompt")
    user = serializers.CharField(help_text="the first user turn, the conversation included")
    sections = SectionFields(many=True, help_text="the system prompt by its parts")
    transcript = serializers.ListField(child=serializers.CharField(), help_text="the conversation as it is shown")
    tools = ToolFields(many=True)
    draft = DraftFields(allow_null=True, help_text="what a stage would answer at once; null = the model is asked")
    trace = StageFields(many=True, help_text="what the stages did; `why` names what a turn would evaluate")


class Prompt(APIView):
    """Exactly what the agent's model would be sent if its turn began now: persona, memory, the stages' sections, conversation, tools.

    `channel` (slug) is where; without it, the channel where it spoke last, else its first one. `trigger` is the id of a message it
    would answer. No model is asked and nothing is written; so an intervention that needs a judge is named in `trace`, not evaluated.
    """

    queryset = Agent.objects.all()
    permission_classes = (ReadsMessages,)  # a prompt holds what was said in the channel

    @documented(
        PromptFields,
        parameters=(CHANNEL, query("trigger", "the id of a message", type=int)),
        problems=(409, 503),
    )
    def get(self, request: Request, slug: str) -> Response:
        parameters.only(request, "channel", "trigger")
        agent = the_agent(slug)
        channel = parameters.channel(request) or _usual_channel(agent)
        if not ChannelMember.objects.filter(agent=agent, channel=channel).exists():
            joined = Channel.objects.filter(memberships__agent=agent).order_by("slug").values_list("slug", flat=True)
            raise Conflict(
                f"agent {slug!r} is not a member of channel {channel.slug!r}; allowed: {', '.join(joined[:30])}"
            )
        number = parameters.number(request, "trigger", allowed="the id of a message")
        trigger = named_message(number, "trigger", channel)
        try:
            shown = preview_prompt(agent=agent, channel=channel, trigger=trigger)
        except StageFailed as error:
            raise Unavailable(f"no turn could begin: a required stage failed ({error})") from None
        answer = {
            "agent": agent.slug,
            "channel": channel.slug,
            "model": agent.model_id or model_of("actor"),
            "tools": tool_definitions(),
            "trace": [entry.as_json() for entry in shown.trace],
            "system": shown.system_text,
            "user": shown.user_text,
            **{name: getattr(shown, name) for name in ("sections", "transcript", "draft")},
        }
        return Response(PromptFields(answer).data)


def _usual_channel(agent: Agent) -> Channel:
    last = Message.objects.filter(agent=agent, synthetic=False).select_related("channel").order_by("-pk").first()
    if last is not None and last.channel.memberships.filter(agent=agent).exists():
        return last.channel
    first = Channel.objects.filter(memberships__agent=agent).order_by("synthetic", "slug").first()
    if first is None:
        raise Conflict(f"agent {agent.slug!r} has joined no channel: there is nothing it could be shown")
    return first


_OF_RUN = (
    *("id", "url", "agent", "channel", "status", "stop_reason", "error", "trigger", "trigger_url", "prompt", "depth"),
    *("attempt", "cancel_requested", "created_at", "started_at", "finished_at", "trace_url", "cancel_url"),
)
_OF_CALL = (
    *("id", "url", "created_at", "role", "purpose", "mechanism", "dimension", "agent", "run", "work_id"),
    *("provider", "endpoint", "model", "served_model", "status", "error", "stop_reason", "input_tokens"),
    *("output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "latency_ms", "attempts", "batch"),
    *("request_id", "request_digest"),
)


class RunRow(serializers.ModelSerializer[Run]):
    """A turn of an agent, without what happened in it."""

    url = serializers.HyperlinkedIdentityField(view_name="agents:run")
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
    channel = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    trigger = serializers.IntegerField(
        source="trigger_id", read_only=True, allow_null=True, help_text="id of the message it answers"
    )
    trigger_url = serializers.SerializerMethodField()
    stop_reason = serializers.CharField(read_only=True, help_text=f"{', '.join(Run.StopReason.values)}, or empty")
    trace_url = serializers.HyperlinkedIdentityField(view_name="agents:run-trace")
    cancel_url = serializers.HyperlinkedIdentityField(view_name="agents:run-cancel")

    class Meta:
        model = Run
        fields = _OF_RUN
        read_only_fields = fields

    def get_trigger_url(self, run: Run) -> str | None:
        if run.trigger_id is None:
            return None
        return str(reverse("agents:message", [run.trigger_id], request=self.context["request"]))


class LLMCallRow(serializers.ModelSerializer[LLMCall]):
    """A call of a model: what it was for, what it used and cost. `cost_usd` null = unpriced, never free."""

    url = serializers.HyperlinkedIdentityField(view_name="agents:llm-call")
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    run = serializers.IntegerField(source="run_id", read_only=True, allow_null=True)
    cost_usd = serializers.DecimalField(
        max_digits=14, decimal_places=8, read_only=True, allow_null=True, help_text="US dollars; null = unpriced"
    )

    class Meta:
        model = LLMCall
        fields = _OF_CALL
        read_only_fields = fields


class PayloadFields(serializers.Serializer[Any]):
    """The exact prompt and the raw reply."""

    request = serializers.JSONField()
    reply = serializers.CharField()
    tool_calls = serializers.ListField(child=serializers.JSONField())


class WholeLLMCall(LLMCallRow):
    """With the payload, where one is stored and the user may see it."""

    payload = serializers.SerializerMethodField(help_text="null = none is stored, or not yours to see")
    payload_stored = serializers.SerializerMethodField()

    class Meta:
        model = LLMCall
        fields = (*_OF_CALL, "payload_stored", "payload")
        read_only_fields = fields

    def get_payload_stored(self, call: LLMCall) -> bool:
        return getattr(call, "payload", None) is not None

    @extend_schema_field(PayloadFields(allow_null=True))
    def get_payload(self, call: LLMCall) -> dict[str, Any] | None:
        if not self.get_payload_stored(call) or not self.context["may_see_payload"]:
            return None
        return dict(PayloadFields(call.payload).data)


class UsageFields(serializers.Serializer[Any]):
    """Sums over model calls. `cost_usd` leaves out the unpriced ones."""

    calls = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cache_read_tokens = serializers.IntegerField()
    cache_write_tokens = serializers.IntegerField()
    cost_usd = serializers.DecimalField(max_digits=20, decimal_places=8)
    unpriced = serializers.IntegerField(help_text="calls whose price is not known")


class WholeRun(RunRow):
    """A turn with what was said in it and what it used. Of one run only: not for lists."""

    _known: tuple[Totals, Totals] | None = None

    steps = serializers.IntegerField(source="steps.count", read_only=True, help_text="how many it has taken so far")
    said = serializers.SerializerMethodField(help_text="what was said in it, in order")
    usage = serializers.SerializerMethodField(help_text="of the agent's own model calls")
    usage_with_stages = serializers.SerializerMethodField(help_text="of all model calls that the turn caused")
    overrides = serializers.DictField(child=serializers.JSONField(), read_only=True)
    calls_url = serializers.SerializerMethodField()

    class Meta:
        model = Run
        fields = (*RunRow.Meta.fields, "overrides", "steps", "said", "usage", "usage_with_stages", "calls_url")
        read_only_fields = fields

    @extend_schema_field(MessageRow(many=True))
    def get_said(self, run: Run) -> list[dict[str, Any]]:
        request = self.context["request"]
        return [shown_message(message, request) for message in shown_messages().filter(run=run).order_by("pk")]

    @extend_schema_field(UsageFields)
    def get_usage(self, run: Run) -> dict[str, Any]:
        return _usage(self._spent(run)[0])

    @extend_schema_field(UsageFields)
    def get_usage_with_stages(self, run: Run) -> dict[str, Any]:
        return _usage(self._spent(run)[1])

    def get_calls_url(self, run: Run) -> str:
        return f"{reverse('agents:llm-calls', request=self.context['request'])}?run={run.pk}"

    def _spent(self, run: Run) -> tuple[Totals, Totals]:
        if self._known is None:
            self._known = spent(run)
        return self._known


class StepFields(serializers.ModelSerializer[RunStep]):
    detail = serializers.JSONField(help_text="of a model call its status, model and tools; of a tool what became of it")
    call_url = serializers.SerializerMethodField()

    class Meta:
        model = RunStep
        fields = ("number", "kind", "detail", "duration_ms", "created_at", "call_url")
        read_only_fields = fields

    def get_call_url(self, step: RunStep) -> str | None:
        call = step.detail.get("call") if isinstance(step.detail, dict) else None
        if not isinstance(call, int):
            return None
        return str(reverse("agents:llm-call", [call], request=self.context["request"]))


class ExchangeFields(serializers.ModelSerializer[RunMessage]):
    """One entry of the exchange with the model."""

    step = serializers.IntegerField(source="step.number", default=None, allow_null=True, read_only=True)
    message = serializers.IntegerField(
        source="message_id", allow_null=True, read_only=True, help_text="id of what it said"
    )
    content = serializers.JSONField()

    class Meta:
        model = RunMessage
        fields = ("number", "role", "step", "tool_name", "content", "message", "created_at")
        read_only_fields = fields


class Trace(serializers.Serializer[Run]):
    """What happened in a turn."""

    run = serializers.IntegerField(source="pk")
    url = serializers.HyperlinkedIdentityField(view_name="agents:run")
    status = serializers.ChoiceField(Run.Status.choices)
    stages = StageFields(source="trace", many=True, help_text="what the stages did, in order")
    steps = serializers.SerializerMethodField(help_text="model calls and tools, in order")
    exchange = serializers.SerializerMethodField(help_text="all that passed between the turn and the model")

    @extend_schema_field(StepFields(many=True))
    def get_steps(self, run: Run) -> Any:
        return StepFields(run.steps.order_by("number"), many=True, context=self.context).data

    @extend_schema_field(ExchangeFields(many=True))
    def get_exchange(self, run: Run) -> Any:
        rows = RunMessage.objects.filter(run=run).select_related("step").order_by("number")
        return ExchangeFields(rows, many=True, context=self.context).data


def _usage(sums: Totals) -> dict[str, Any]:
    return dict(UsageFields(sums).data)


OF_RUNS = ("channel", "status", "stop_reason", "since", "until", "ordering")
RUN_FILTERS = (
    *(CHANNEL, query("status", enum=Run.Status.values), query("stop_reason", enum=Run.StopReason.values)),
    *(SINCE, UNTIL),
)


class NewTurn(StrictBody):
    """Where an agent is to act, and what is asked of it."""

    channel = Text(most=120, allowed="the slug of a channel", help_text="slug; the agent must be a member")
    prompt = Note(
        required=False,
        most=PROMPT_CHARACTERS,
        help_text="what you ask of this turn; shown to it, not said in the channel",
    )
    trigger = Whole(required=False, least=1, most=LARGEST_ID, help_text="id of the message it is to answer")
    deadline = bodies.Deadline(required=False)
    overrides = bodies.Overrides(required=False)


class RunPages(LogByTimeOf):
    """By time where a status is asked for, by primary key else."""

    filter = "status"


def shown_runs() -> QuerySet[Run]:
    """Runs with what their rows show, without traces and the texts of agents."""
    return Run.objects.select_related("agent", "channel").defer(
        *("trace", "overrides", "agent__system_prompt", "agent__sample_lines", "agent__description"),
        *("channel__topic", "channel__tags"),
    )


def filtered_runs(request: Request, runs: QuerySet[Run], *more: str) -> QuerySet[Run]:
    """Runs as the parameters of a request narrow them."""
    parameters.only(request, *OF_RUNS, *more)
    rows = parameters.narrowed(
        runs,
        channel=parameters.channel(request),
        status=parameters.choice(request, "status", Run.Status.values),
        stop_reason=parameters.choice(request, "stop_reason", Run.StopReason.values),
    )
    return parameters.in_time(request, rows)


@extend_schema_view(get=documented({200: RunRow(many=True)}, parameters=(AGENT, *RUN_FILTERS)))
class Runs(ListAPIView[Run]):
    """Turns of agents, newest first.

    Filters: `agent`, `channel`, `status`, `stop_reason`, `since` and `until` (of when it was asked for). `ordering=created_at` for the
    oldest first.
    """

    queryset = shown_runs()
    serializer_class = RunRow
    pagination_class = RunPages

    def filter_queryset(self, queryset: QuerySet[Run, Any]) -> QuerySet[Run, Any]:
        rows = filtered_runs(self.request, queryset, "agent")
        return parameters.narrowed(rows, agent=parameters.agent(self.request))


@extend_schema_view(get=documented({200: RunRow(many=True)}, parameters=RUN_FILTERS))
class Turns(IdempotentPosts, ListAPIView[Run]):
    """An agent's turns, newest first; POST asks for one.

    GET filters: `channel`, `status`, `stop_reason`, `since`, `until`; `ordering`. POST answers 202 with the run and its URL: a worker
    takes the turn. 409 when the agent is inactive or no member of the channel.
    """

    queryset = shown_runs()
    pagination_class = RunPages
    throttle_classes = (PaidRequests,)

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return NewTurn if self.request.method == "POST" else RunRow

    def filter_queryset(self, queryset: QuerySet[Run, Any]) -> QuerySet[Run, Any]:
        agent = the_agent(self.kwargs["slug"], Agent.objects.only("pk"))
        return filtered_runs(self.request, queryset).filter(agent=agent)

    @documented({202: RunRow}, body=NewTurn, summary="Ask for a turn of an agent")
    def post(self, request: Request, slug: str) -> Response:
        agent = the_agent(slug)
        given = read_body(request, NewTurn)
        channel = named_channel(given["channel"])
        try:
            run = start_turn(
                agent=agent,
                channel=channel,
                prompt=given.get("prompt", ""),
                trigger=named_message(given.get("trigger"), "trigger", channel),
                overrides=bodies.of_request(request, given, agent=agent, channel=channel),
                idempotency_key=headers.of(request, Run) or None,
            )
        except TurnRefused as error:
            raise Conflict(str(error)) from None
        return located(RunRow(run, context=self.get_serializer_context()).data, status=202)


class OneRun(Conditional, GenericAPIView[Run]):
    """One turn with what was said in it and what its model calls used; `trace_url` has every step.

    Ask again with `If-None-Match` while you wait for it: 304 as long as nothing happened.
    """

    queryset = Run.objects.all()
    permission_classes = (ReadsMessages,)
    serializer_class = WholeRun

    @documented(WholeRun)
    def get(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        run = the_row(Run.objects.select_related("agent", "channel"), pk, "run")
        shown = self.get_serializer(run).data
        return self.tagged(request, shown, etag_of(shown))


@extend_schema_view(get=documented(Trace))
class RunTrace(OneRow):
    """What happened in a turn: what the stages did, each step with its tool or model call, and all that passed between it and the model."""

    queryset = Run.objects.select_related("agent", "channel")
    permission_classes = (ReadsMessages,)
    serializer_class = Trace
    what = "run"


class CancelRun(IdempotentPosts, APIView):
    """POST without a body: the turn ends at once when it has not begun, else before its next step. 409 when it has ended already."""

    queryset = Run.objects.all()
    permission_classes = (ActionPermissions,)

    @documented(RunRow, summary="End a turn before its next step")
    def post(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        if request.data:
            raise ValidationError(["send no body, or an empty one: there is nothing to choose"])
        run = the_row(Run.objects.select_related("agent", "channel"), pk, "run")
        if run.status not in Run.FINAL:
            run = cancel(run)
        if run.status in Run.FINAL and run.status != Run.Status.CANCELLED:
            raise Conflict(f"run {run.pk} has ended already: {run.get_status_display()}")
        return Response(RunRow(run, context={"request": request}).data)


SEEING_PAYLOADS = "agents.view_llmpayload"
TEXTS = ("purpose", "mechanism", "dimension", "model", "work_id")
CALL_FILTERS = (
    *(AGENT, *(query(name) for name in TEXTS), query("status", enum=LLMCall.Status.values)),
    *(query("run", "the id of a run", type=int), SINCE, UNTIL),
)


def shown_calls() -> QuerySet[LLMCall]:
    calls = LLMCall.objects.select_related("agent")
    return calls.defer("agent__system_prompt", "agent__sample_lines", "agent__description")


@extend_schema_view(get=documented({200: LLMCallRow(many=True)}, parameters=CALL_FILTERS))
class LLMCalls(ListAPIView[LLMCall]):
    """Calls of models, newest first, failed ones too. `cost_usd` null = unpriced, never free.

    Filters: `agent`, `purpose`, `mechanism`, `dimension`, `model`, `status`, `run` (id), `work_id` (what it served, such as
    `evaluation_run:12`), `since`, `until`. `ordering=created_at` for the oldest first.
    """

    queryset = shown_calls()
    serializer_class = LLMCallRow
    pagination_class = LogByTimeOf

    def filter_queryset(self, queryset: QuerySet[LLMCall, Any]) -> QuerySet[LLMCall, Any]:
        request = self.request
        parameters.only(request, "agent", *TEXTS, "status", "run", "since", "until", "ordering")
        rows = parameters.narrowed(
            queryset,
            agent=parameters.agent(request),
            **{name: parameters.text(request, name) for name in TEXTS},
            status=parameters.choice(request, "status", LLMCall.Status.values),
            run_id=parameters.number(request, "run", allowed="the id of a run"),
        )
        return parameters.in_time(request, rows)


@extend_schema_view(get=documented(WholeLLMCall))
class OneLLMCall(OneRow):
    """One call; with its exact prompt and raw reply where `LLM_STORE_PAYLOADS` kept them and you may view payloads."""

    queryset = shown_calls().select_related("agent", "payload")
    serializer_class = WholeLLMCall
    what = "model call"

    def get_serializer_context(self) -> dict[str, Any]:
        may = self.request.user.has_perm(SEEING_PAYLOADS)
        return {**super().get_serializer_context(), "may_see_payload": may}

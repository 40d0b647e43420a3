"""List, queue, show and cancel turns of agents; list model calls."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from pydantic import Field
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api.agents import StageAnswer, message_named_in_field
from agents.api.filters import of_agent, of_channel
from agents.api.messages import MessageRow, shown_messages
from agents.api.overrides import Deadline, Overrides, overrides_of
from agents.bodies import ChannelSlug, the_agent
from agents.kit.api import filters, headers
from agents.kit.api.filters import InTime
from agents.kit.api.headers import located
from agents.kit.api.pagination import LogByTimeOf
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import PAID, ActionPermissions, ReadsMessages
from agents.kit.api.rows import Answer, Context, Dollars, Row, Url, query_link, shown
from agents.kit.api.schema import answers
from agents.kit.api.views import Listed, Rows, or_404
from agents.kit.bodies import ABSENT, Body, Id
from agents.kit.llm.ledger import totals
from agents.kit.models import LLMCall
from agents.models import Run, RunMessage, RunStep
from agents.turn.orchestrator import TurnRefused, cancel, start_turn
from agents.turn.prompt import PROMPT_CHARACTERS


class RunRow(
    Row,
    table=Run,
    columns=(
        *("id", "url", "agent", "channel", "status", "stop_reason", "error", "trigger", "trigger_url"),
        *("prompt", "depth", "attempt", "cancel_requested", "created_at", "started_at", "finished_at"),
        *("trace_url", "cancel_url"),
    ),
):
    """A turn of an agent, without what happened in it."""

    stop_reason: str = Field(description=f"{', '.join(Run.StopReason.values)}, or empty")


class UsageAnswer(Answer):
    """Sums over model calls. `cost_usd` leaves out the unpriced ones."""

    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Dollars
    unpriced: int = Field(description="calls whose price is not known")


def _said(run: Run, context: Context) -> list[MessageRow]:
    return MessageRow.all_of(shown_messages().filter(run=run).order_by("pk"), context)


class WholeRun(RunRow, columns=("overrides", "steps", "said", "usage", "usage_with_stages", "calls_url")):
    """One turn with what was said in it and what its model calls used; `trace_url` has every step.

    Ask again with `If-None-Match` while you wait for it: 304 as long as nothing happened.
    """

    overrides: dict[str, Any]
    steps: int = shown(lambda run, context: run.steps.count(), "how many it has taken so far")
    said: list[MessageRow] = shown(_said, "what was said in it, in order")
    usage: UsageAnswer = shown(lambda run, context: totals(work_id=f"run:{run.pk}"), "of the agent's own model calls")
    usage_with_stages: UsageAnswer = shown(
        lambda run, context: totals(LLMCall.objects.filter(run=run)), "of all model calls that the turn caused"
    )
    calls_url: Url = shown(query_link("llmcall-list", "run"))


def _call_url(step: RunStep, context: Context) -> str | None:
    call = step.detail.get("call") if isinstance(step.detail, dict) else None
    if not isinstance(call, int):
        return None
    return reverse("llmcall-detail", [call], request=context["request"])


class StepRow(Row, table=RunStep, columns=("number", "kind", "detail", "duration_ms", "created_at", "call_url")):
    detail: Any = Field(description="of a model call its status, model and tools; of a tool what became of it")
    call_url: Url | None = shown(_call_url)


class ExchangeRow(
    Row, table=RunMessage, columns=("number", "role", "step", "tool_name", "content", "message", "created_at")
):
    """One entry of the exchange with the model."""

    step: int | None = shown("step.number")


def _steps(run: Run, context: Context) -> list[StepRow]:
    return StepRow.all_of(run.steps.order_by("number"), context)


def _exchange(run: Run, context: Context) -> list[ExchangeRow]:
    return ExchangeRow.all_of(RunMessage.objects.filter(run=run).select_related("step").order_by("number"), context)


class Trace(Row, table=Run, columns=("run", "url", "status", "stages", "steps", "exchange")):
    """What happened in a turn."""

    run: int = shown("pk")
    stages: list[StageAnswer] = shown("trace", "what the stages did, in order")
    steps: list[StepRow] = shown(_steps, "model calls and tools, in order")
    exchange: list[ExchangeRow] = shown(_exchange, "all that passed between the turn and the model")


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
    """Return runs with what their rows show, without traces and the texts of agents."""
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
    answer_class = WholeRun
    pagination_class = RunPages
    filterset_class = RunFilters
    etags = ("retrieve",)

    def get_permissions(self) -> Any:
        if self.action == "retrieve":
            return [ReadsMessages()]
        return super().get_permissions()

    def get_queryset(self) -> QuerySet[Run]:
        if self.action == "list":
            return shown_runs()
        return Run.objects.select_related("agent", "channel")

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return self.tagged(request, self.shown(self.get_object()))

    @action(detail=True, permission_classes=(ReadsMessages,), answer_class=Trace)
    def trace(self, request: Request, pk: int) -> Response:
        """What happened in a turn: what the stages did, each step with its tool or model call, all that passed between it and the model."""
        return Response(self.shown(self.get_object()))

    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,), answer_class=RunRow)
    def cancel(self, request: Request, pk: int) -> Response:
        """End a turn: at once when it has not begun, else before its next step. 409 when it has ended already."""
        self.read_body()
        run: Run = self.get_object()
        if run.status not in Run.FINAL:
            run = cancel(run)
        if run.status in Run.FINAL and run.status != Run.Status.CANCELLED:
            raise Conflict(f"run {run.pk} has ended already: {run.get_status_display()}")
        return Response(self.shown(run))


class Turns(Listed):
    """An agent's turns, newest first.

    Filters: `channel`, `status`, `stop_reason`, `since`, `until`; `ordering`.
    """

    queryset = shown_runs()
    answer_class = RunRow
    pagination_class = RunPages
    filterset_class = TurnFilters
    throttle_scope = PAID
    bodies: ClassVar = {"create": NewTurn}

    def get_queryset(self) -> QuerySet[Run]:
        return shown_runs().filter(agent=or_404(the_agent, self.kwargs["slug"]))

    @answers({202: RunRow})
    def create(self, request: Request, slug: str) -> Response:
        """Ask for a turn of an agent. 202 with the run and its URL: a worker takes it. 409 when the agent is inactive or no member."""
        agent = or_404(the_agent, slug)
        body = self.read_body()
        try:
            run = start_turn(
                agent=agent,
                channel=body.channel,
                prompt=body.prompt,
                trigger=message_named_in_field(body.trigger, field="trigger", channel=body.channel),
                overrides=overrides_of(request, body, agent=agent, channel=body.channel),
                idempotency_key=headers.idempotency_key_of(request, Run) or None,
            )
        except TurnRefused as error:
            raise Conflict(str(error)) from None
        return located(self.shown(run), status=202)


class LLMCallRow(
    Row,
    table=LLMCall,
    columns=(
        *("id", "url", "created_at", "role", "purpose", "mechanism", "dimension", "agent", "run"),
        *("work_id", "provider", "endpoint", "model", "served_model", "status", "error", "stop_reason"),
        *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd"),
        *("latency_ms", "attempts", "batch", "temperature", "temperature_applied", "request_id", "request_digest"),
    ),
):
    """A call of a model: what it was for, what it used and cost. `cost_usd` null = unpriced, never free."""


class PayloadAnswer(Answer):
    """The exact prompt and the raw reply."""

    request: Any
    reply: str
    tool_calls: list[Any]


def _payload(call: LLMCall, context: Context) -> Any:
    return getattr(call, "payload", None) if context["request"].user.has_perm("kit.view_llmpayload") else None


class WholeLLMCall(LLMCallRow):
    """One call; with its exact prompt and raw reply where `LLM_STORE_PAYLOADS` kept them and you may view payloads."""

    payload_stored: bool = shown(lambda call, context: hasattr(call, "payload"))
    payload: PayloadAnswer | None = shown(_payload, "null = none is stored, or not yours to see")


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
    answer_class = WholeLLMCall
    pagination_class = LogByTimeOf
    filterset_class = CallFilters
    what = "model call"

    def get_queryset(self) -> QuerySet[LLMCall]:
        calls = super().get_queryset()
        if self.action == "list":
            return calls
        return calls.select_related("agent", "payload")

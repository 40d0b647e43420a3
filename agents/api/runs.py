"""Turns of agents: listed, asked for, looked at, cancelled."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import filters, keys, overrides, parameters
from agents.api.bodies import StrictBody, Text, Whole
from agents.api.conditional import Conditional, etag_of
from agents.api.fields import Note
from agents.api.idempotency import IdempotentPosts
from agents.api.lookups import named_channel, named_message, the_agent, the_row
from agents.api.messages import LARGEST_ID
from agents.api.pagination import LogByTimeOf
from agents.api.permissions import ActionPermissions, ReadsMessages
from agents.api.problems import Conflict
from agents.api.run_rows import Trace, WholeRun
from agents.api.schema import AGENT, SINCE, UNTIL, documented, query
from agents.api.serializers import RunRow
from agents.api.throttles import PaidRequests
from agents.models import Agent, Run
from agents.turn.orchestrator import TurnRefused, cancel, start_turn
from agents.turn.prompt import PROMPT_CHARACTERS

OF_RUNS = ("channel", "status", "stop_reason", "since", "until", "ordering")
RUN_FILTERS = (
    *(filters.CHANNEL, query("status", enum=Run.Status.values), query("stop_reason", enum=Run.StopReason.values)),
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
    deadline = overrides.Deadline(required=False)
    overrides = overrides.Overrides(required=False)


class RunPages(LogByTimeOf):
    """By time where a status is asked for, by primary key else."""

    filter = "status"


def shown_runs() -> QuerySet[Run]:
    """Runs with what their rows show, without traces and the texts of agents."""
    found = Run.objects.select_related("agent", "channel")
    return found.defer(
        *("trace", "overrides", "agent__system_prompt", "agent__sample_lines", "agent__description"),
        *("channel__topic", "channel__tags"),
    )


def filtered_runs(request: Request, runs: QuerySet[Run], *more: str) -> QuerySet[Run]:
    """Runs as the parameters of a request narrow them."""
    parameters.only(request, *OF_RUNS, *more)
    if channel := filters.channel(request):
        runs = runs.filter(channel=channel)
    if status := parameters.choice(request, "status", Run.Status.values):
        runs = runs.filter(status=status)
    if reason := parameters.choice(request, "stop_reason", Run.StopReason.values):
        runs = runs.filter(stop_reason=reason)
    return filters.in_time(request, runs)


@extend_schema_view(get=documented({200: RunRow(many=True)}, parameters=(AGENT, *RUN_FILTERS)))
class Runs(ListAPIView[Run]):
    """Turns of agents, newest first.

    Filters: `agent`, `channel`, `status`, `stop_reason`, `since` and `until` (of when it was asked for). `ordering=created_at` for the
    oldest first.
    """

    queryset = Run.objects.all()
    serializer_class = RunRow
    pagination_class = RunPages

    def filter_queryset(self, queryset: QuerySet[Run, Any]) -> QuerySet[Run, Any]:
        found = filtered_runs(self.request, shown_runs(), "agent")
        agent = parameters.agent(self.request)
        return found if agent is None else found.filter(agent=agent)


@extend_schema_view(get=documented({200: RunRow(many=True)}, parameters=RUN_FILTERS))
class Turns(IdempotentPosts, ListAPIView[Run]):
    """An agent's turns, newest first; POST asks for one.

    GET filters: `channel`, `status`, `stop_reason`, `since`, `until`; `ordering`. POST answers 202 with the run and its URL: a worker
    takes the turn. 409 when the agent is inactive or no member of the channel.
    """

    queryset = Run.objects.all()
    pagination_class = RunPages
    throttle_classes = (PaidRequests,)

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return NewTurn if self.request.method == "POST" else RunRow

    def filter_queryset(self, queryset: QuerySet[Run, Any]) -> QuerySet[Run, Any]:
        agent = the_agent(self.kwargs["slug"], Agent.objects.only("pk"))
        return filtered_runs(self.request, shown_runs()).filter(agent=agent)

    @documented({202: RunRow}, body=NewTurn, summary="Ask for a turn of an agent")
    def post(self, request: Request, slug: str) -> Response:
        parameters.only(request)
        agent = the_agent(slug)
        body = NewTurn(data=request.data)
        body.is_valid(raise_exception=True)
        given = body.validated_data
        channel = named_channel(given["channel"])
        try:
            run = start_turn(
                agent=agent,
                channel=channel,
                prompt=given.get("prompt", ""),
                trigger=named_message(given.get("trigger"), "trigger", channel),
                overrides=overrides.of_request(request, given, agent=agent, channel=channel),
                idempotency_key=keys.of(request, Run) or None,
            )
        except TurnRefused as error:
            raise Conflict(str(error)) from None
        shown = RunRow(run, context=self.get_serializer_context()).data
        return Response(shown, status=202, headers={"Location": str(shown["url"])})


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


class RunTrace(GenericAPIView[Run]):
    """What happened in a turn: what the stages did, each step with its tool or model call, and all that passed between it and the model."""

    queryset = Run.objects.all()
    permission_classes = (ReadsMessages,)
    serializer_class = Trace

    @documented(Trace)
    def get(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        run = the_row(Run.objects.select_related("agent", "channel"), pk, "run")
        return Response(self.get_serializer(run).data)


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
        elif run.status != Run.Status.CANCELLED:
            raise Conflict(f"run {run.pk} has ended already: {run.get_status_display()}")
        if run.status in Run.FINAL and run.status != Run.Status.CANCELLED:  # it ended meanwhile
            raise Conflict(f"run {run.pk} has ended already: {run.get_status_display()}")
        return Response(RunRow(run, context={"request": request}).data)

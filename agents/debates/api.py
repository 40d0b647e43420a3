"""Debates: listed, started, asked for rounds, cancelled, read and exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from pydantic import Field
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.filters import of_agent, of_channel
from agents.api.overrides import NEEDED
from agents.debates.debate import ask_rounds, cancel
from agents.debates.measures import MOST_ROUNDS
from agents.debates.models import Debate
from agents.debates.modes import MODES
from agents.debates.report import DebateReport, as_json, as_markdown, report
from agents.debates.request import USUAL_MODE, DebateRequest, request_debate
from agents.debates.starting import DebateRefused
from agents.kit.api import filters
from agents.kit.api.filters import Filters, InTime
from agents.kit.api.headers import located
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict
from agents.kit.api.requests import PAID, ActionPermissions, ReadsMessages
from agents.kit.api.rows import Row
from agents.kit.api.schema import answers
from agents.kit.api.views import Rows
from agents.kit.bodies import Body

EXPORTS: dict[str, tuple[str, Callable[[DebateReport], str]]] = {
    "markdown": ("text/markdown", as_markdown),
    "json": ("application/json", as_json),
}
ENDINGS = {"markdown": "md", "json": "json"}


class DebateRow(
    Row,
    table=Debate,
    columns=(
        *("id", "url", "channel", "channel_url", "mode", "topic", "status", "error", "rounds_asked"),
        *("exit_reason", "exit_details", "created_by", "created_at", "started_at", "finished_at"),
        *("rounds_url", "cancel_url", "export_url"),
    ),
):
    """A debate, without what was said in it."""


class MoreRounds(Body):
    """The number of rounds to play."""

    rounds: int | None = Field(1, ge=1, le=MOST_ROUNDS, description="so many more; null = to the end")


class DebateFilters(InTime):
    mode = filters.choice(MODES)
    status = filters.choice([value for value, _ in Debate.STATES])
    exit_reason = filters.choice(("consensus", "convergence", "confidence", "max_rounds"))
    channel = of_channel()
    agent = of_agent("seats__agent")


class ExportFilters(Filters):
    vars()["as"] = filters.choice(EXPORTS, about="default markdown")


class Debates(Rows):
    """Debates, newest first.

    Filters: `mode`, `status`, `exit_reason`, `channel`, `agent` (has a seat), `since`, `until`; `ordering=id` for the oldest first.
    """

    queryset = Debate.objects.select_related("channel", "created_by").defer("channel__topic", "channel__tags")
    row_class = DebateRow
    answer_class = DebateRow
    pagination_class = Log
    filterset_class = DebateFilters
    throttle_scope = PAID
    etags = ("retrieve",)
    bodies: ClassVar = {"create": DebateRequest, "rounds": MoreRounds}

    def example(self, stored: Any) -> dict[str, Any]:
        if self.action == "create":
            return {"topic": "", "mode": USUAL_MODE, "agents": []}
        return super().example(stored)

    def get_permissions(self) -> Any:
        return [ReadsMessages()] if self.action in ("retrieve", "export") else super().get_permissions()

    def get_queryset(self) -> QuerySet[Debate]:
        return self.queryset.all()

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        """Answer an export in the form that `as` names and not in that of its `Accept`."""
        return super().perform_content_negotiation(request, force=force or self.action == "export")

    @answers({201: DebateRow})
    def create(self, request: Request) -> Response:
        """Start a debate. 201: it waits, and asks no model, until you ask for `rounds`."""
        body: DebateRequest = self.read_body()
        if body.models and not request.user.has_perm(NEEDED):
            raise PermissionDenied(f"models: only for users with the permission {NEEDED}")
        debate = request_debate(body, user=request.user)  # type: ignore[arg-type]  # no user is anonymous here
        return located(self.shown(debate))

    @answers(DebateReport)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return the results of a debate in four layers: decision, agent responses, evidence, metadata.

        `decision.what_talking_changed` holds the vote of the blind poll beside that of the last round, and what the rounds between used.
        Ask again with `If-None-Match` while it is played: 304 as long as nothing happened.
        """
        return self.tagged(request, report(self.get_object()))

    @answers({202: DebateRow})
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def rounds(self, request: Request, pk: int) -> Response:
        """Ask for one more round of a debate that waits, for several, or for all that are left. 202: a worker plays them.

        Asked again while it is played, it stays as it is. 409 when it has ended.
        """
        try:
            debate = ask_rounds(self.get_object(), self.read_body().rounds)
        except DebateRefused as error:
            raise Conflict(str(error)) from None
        return located(self.shown(debate), status=202)

    @answers(DebateRow)
    @action(detail=True, methods=["post"], permission_classes=(ActionPermissions,))
    def cancel(self, request: Request, pk: int) -> Response:
        """End a debate: at once, or before the next seat's turn where it is being played. 409 when it has ended already.

        What was said stays, and the debate cannot go on. Cancelled again, it stays as it is.
        """
        self.read_body()
        try:
            debate = cancel(self.get_object())
        except DebateRefused as error:
            raise Conflict(str(error)) from None
        return Response(self.shown(debate))

    @answers({(200, "text/markdown"): OpenApiTypes.STR, (200, "application/json"): DebateReport})
    @action(detail=True, filterset_class=ExportFilters)
    def export(self, request: Request, pk: int) -> HttpResponse:
        """Return a debate as a file: a page of Markdown, or JSON that holds every word."""
        form = self.query["as"] or "markdown"
        content_type, as_text = EXPORTS[form]
        debate = self.get_object()
        response = HttpResponse(as_text(report(debate)), content_type=f"{content_type}; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{debate.channel.slug}.{ENDINGS[form]}"'
        return response

"""What the gate did, attempt by attempt, and what people say of its verdicts."""

from __future__ import annotations

from typing import Annotated, ClassVar
from uuid import UUID

from django.db.models import Exists, OuterRef, Prefetch, QuerySet
from pydantic import Field
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.filters import of_agent
from agents.kit.api import filters
from agents.kit.api.filters import InTime
from agents.kit.api.pagination import LogByTime
from agents.kit.api.requests import ActionPermissions
from agents.kit.api.rows import Row, Slug, one_of, shown
from agents.kit.api.schema import answers
from agents.kit.api.views import Rows, View
from agents.kit.bodies import Body, OneOf
from correction.config.settings import GATE_DIMENSIONS
from correction.gate.thresholds import mark_result
from correction.models import CorrectionLog, GateDimensionResult, GateSession, Outcome
from evaluation.api.answers import QuotingRow

_BRIEF = ("dimension", "status", "score", "threshold", "passed", "mark")


class BriefGateResult(Row, table=GateDimensionResult, columns=_BRIEF):
    threshold: float


class GateResult(
    QuotingRow,
    BriefGateResult,
    columns=(
        *("reasoning", "recommendations", "reason", "judge", "proposition_id", "parts", "call"),
        *("duration_ms", "marked_by", "marked_at"),
    ),
):
    """One dimension of an attempt, with what the judge said of the draft."""


class CorrectionLogRow(
    Row,
    table=CorrectionLog,
    columns=(
        *("id", "url", "session", "attempt", "source", "agent", "channel", "run", "message", "committed"),
        *("outcome", "judge", "score_sum", "duration_ms", "created_at", "speaker", "tags", "dimensions"),
    ),
):
    """Without texts, which may be long."""

    session: UUID = shown("session.uuid", "groups the attempts at one message")
    source: Annotated[str, one_of(GateSession.Source.choices)] = shown("session.source")
    agent: Slug | None = shown("session.agent.slug", "empty for an external check with a persona of its own")
    channel: Slug | None = shown("session.channel.slug")
    run: int | None = shown("session.run_id")
    message: int | None = shown(
        "session.message_id", "what was said in the end; the same for every attempt of a session"
    )
    committed: bool = shown("committed", "this attempt's text is the one that was said")
    speaker: str = shown("session.speaker", "who spoke, where it is no agent of ours")
    tags: dict[str, str] = shown("session.tags")
    dimensions: list[BriefGateResult] = shown(
        lambda log, context: BriefGateResult.all_of(log.dimension_results.all(), context)
    )


class WholeCorrectionLog(
    QuotingRow,
    CorrectionLogRow,
    columns=("original_text", "judged_text", "payload", "feedback", "persona_version", "draft_key"),
):
    """One attempt with its texts and, per dimension, score, threshold, reasoning and what it was made of."""

    dimensions: list[GateResult] = shown(  # type: ignore[assignment]
        lambda log, context: GateResult.all_of(log.dimension_results.all(), context)
    )


class MarkBody(Body):
    mark: Annotated[str, OneOf("right", "false_alarm", "")] = Field(description="empty takes a mark back")


class LogFilters(InTime):
    agent = of_agent("session__agent")
    outcome = filters.choice(Outcome.values)
    source = filters.choice(GateSession.Source.values, "session__source")
    dimension = filters.choice(GATE_DIMENSIONS, method="looked_at", about="was looked at")
    session = filters.uuid("session__uuid", about="the attempts at one message")

    def looked_at(self, logs: QuerySet[CorrectionLog], name: str, dimension: str) -> QuerySet[CorrectionLog]:
        return logs.filter(Exists(GateDimensionResult.objects.filter(log=OuterRef("pk"), dimension=dimension)))


class CorrectionLogs(Rows):
    """Attempts at messages as the gate saw them, newest first, without texts; each attempt's own page has them.

    Filters: agent (slug), outcome, source, dimension (was looked at), session, since, until (ISO times). `ordering=created_at` for the
    oldest first.
    """

    queryset = CorrectionLog.objects.select_related("session__agent", "session__channel")
    row_class = CorrectionLogRow
    answer_class = WholeCorrectionLog
    pagination_class = LogByTime
    filterset_class = LogFilters

    def get_queryset(self) -> QuerySet[CorrectionLog]:
        logs = super().get_queryset()
        results = GateDimensionResult.objects.order_by("dimension")
        if self.action != "list":
            return logs.prefetch_related(Prefetch("dimension_results", results.select_related("marked_by")))
        brief = Prefetch("dimension_results", results.only("log_id", *_BRIEF))
        return logs.defer("original_text", "judged_text", "feedback").prefetch_related(brief)


class MarkResult(View):
    """What a person says of a failed check."""

    queryset = GateDimensionResult.objects.all()
    permission_classes = (ActionPermissions,)
    bodies: ClassVar = {"mark": MarkBody}

    @answers(GateResult)
    def mark(self, request: Request, pk: int, dimension: str) -> Response:
        """Mark a check's verdict as right or wrong: `"right"`, `"false_alarm"` or `""` (takes it back)."""
        # By a subquery, for which a number too large for the column is one that is not there.
        log = CorrectionLog.objects.filter(pk=pk)
        result = GateDimensionResult.objects.filter(log__in=log, dimension=dimension).first()
        if result is None:
            raise NotFound(f"correction log {pk} has no result for the dimension {dimension[:32]!r}")
        try:
            marked = mark_result(result=result, mark=self.read_body().mark, user=request.user)
        except ValueError as error:
            raise ValidationError({"mark": [str(error)]}) from None
        return Response(GateResult.of(marked, self.row_context()))

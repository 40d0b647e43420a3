"""What leaves of a result: a score with its name, label and place in a trace. No text of a message, persona or claim is read for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from agents.kit.models import TraceSpan
from agents.models import Agent, Message
from correction.models import CorrectionLog, GateDimensionResult
from correction.sending.models import ScoreDelivery
from evaluation.change.models import Change
from evaluation.models import OUT_OF_REACH, EvaluationRun, EvaluationScore, is_heuristic

MOST_RECORDS = 100  # in one request
LONGEST_EXPLANATION = 2_000  # characters; so a request is smaller than 1 MB
UNSCORED = "unscored"
MESSAGE_COLUMNS = ("message__external_id", "message__channel", "message__channel__slug")
Detail = str | bool | int | float


@dataclass(frozen=True, slots=True)
class TracePlace:
    """The span in which a message was said, as its ids came in."""

    trace: str
    span: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord:
    """One result that leaves.

    Attributes:
        id: The same whenever it is sent.
        name: Kind, dimension and proposition, such as ``adherence/terse``, ``gate/adherence`` or ``change/adherence``.
        label: What came of it: ``scored``, ``trivial`` or ``unscored``; ``pass`` or ``fail`` at the gate; the verdict of a change.
        value: 0 to 9, a count of ideas, or points of a change; None where there is no number, and for what is trivial.
        at: When it was judged.
        conversation: Slug of the channel; empty for what is about no single one.
        place: None where no span of the message is known.
        message_id: The message's id in its source; empty for what is about no single message.
        error_type: How the judge failed; empty where it did not.
        explanation: Empty unless SCORES_WITH_EXPLANATIONS.
        details: Further attributes, without the prefix ``plumbline.``.
        is_change: Whether it is a change: its label, the verdict, says more than its number.
    """

    id: str
    name: str
    label: str
    value: float | None
    at: datetime
    agent: Agent | None
    conversation: str = ""
    place: TracePlace | None = None
    message_id: str = ""
    error_type: str = ""
    explanation: str = ""
    details: Mapping[str, Detail] = field(default_factory=dict)
    is_change: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """The next results of a delivery, and the id of the last of them; none when all were read."""

    records: list[ScoreRecord]
    last: int


def next_batch(delivery: ScoreDelivery) -> Batch:
    """Read the results of a delivery that come after those that were taken; none where they are gone."""
    read = READERS[delivery.kind]
    return read(delivery)


def _judgements(delivery: ScoreDelivery) -> Batch:
    run = EvaluationRun.objects.select_related("agent", "channel").filter(pk=delivery.object_id).first()
    if run is None:
        return Batch([], 0)
    scores = run.scores.exclude(status=EvaluationScore.Status.PENDING)
    if delivery.since is not None:
        scores = scores.filter(judged_at__gte=delivery.since)
    rows = _next_rows(
        scores.select_related("message__channel"),
        delivery,
        "dimension proposition_id repeat status score count cause judge judged_at message inclusion_weight",
        texts="reasoning reason",
        further=MESSAGE_COLUMNS,
    )
    place_by_message = _places_of(row.message for row in rows)
    records = []
    for row in rows:
        judge = row.judge or run.judge
        details: dict[str, Detail] = {
            "kind": "judgement",
            "dimension": row.dimension,
            "proposition": row.proposition_id,
            "evaluation.id": run.pk,
            "procedure": run.procedure,
            "repeat": row.repeat,
            **_details_of_judge(judge),
            **_details_of_weight(row.inclusion_weight),
        }
        if row.cause:
            details["cause"] = row.cause
        is_scored = row.status == EvaluationScore.Status.SCORED
        number = row.score if row.count is None else row.count
        channel_slug = run.channel.slug if run.channel is not None else ""
        records.append(
            ScoreRecord(
                id=_record_id(delivery, "judgement", row.pk),
                name=f"{row.dimension}/{row.proposition_id}",
                label=row.status,
                value=float(number) if is_scored and number is not None else None,
                at=row.judged_at or run.finished_at or run.created_at,
                agent=run.agent,
                conversation=row.message.channel.slug if row.message is not None else channel_slug,
                place=place_by_message.get(row.message_id),
                message_id=row.message.external_id if row.message is not None else "",
                error_type="" if row.cause == OUT_OF_REACH else row.cause,
                explanation=_explanation(row, "reasoning", "reason"),
                details=details,
            )
        )
    return _batch(records, rows)


def _attempts(delivery: ScoreDelivery) -> Batch:
    logs = CorrectionLog.objects.select_related("session__agent", "session__channel", "session__message")
    log = logs.filter(pk=delivery.object_id).first()
    if log is None:
        return Batch([], 0)
    session = log.session
    rows = _next_rows(
        log.dimension_results.all(),
        delivery,
        "dimension status score threshold passed judge proposition_id",
        texts="reasoning reason",
    )
    message = session.message
    place = _places_of([message]).get(message.pk) if message is not None else None
    records = []
    for row in rows:
        details: dict[str, Detail] = {
            "kind": "gate",
            "dimension": row.dimension,
            "gate.session": str(session.uuid),
            "gate.attempt": log.attempt,
            "gate.source": session.source,
            "gate.outcome": log.outcome,
            "gate.threshold": float(row.threshold),
            **_details_of_judge(row.judge or log.judge),
            **_details_of_weight(session.inclusion_weight),
        }
        if row.proposition_id:
            details["proposition"] = row.proposition_id
        is_scored = row.status == GateDimensionResult.Status.SCORED
        failed = row.status not in (*JUDGED, GateDimensionResult.Status.UNSCORED)
        records.append(
            ScoreRecord(
                id=_record_id(delivery, "attempt", row.pk),
                name=f"gate/{row.dimension}",
                label=_gate_label(row),
                value=row.score if is_scored else None,
                at=log.created_at,
                agent=session.agent,
                conversation=session.channel.slug if session.channel is not None else "",
                place=place,
                message_id=message.external_id if message is not None else "",
                error_type=row.status if failed else "",
                explanation=_explanation(row, "reasoning", "reason"),
                details=details,
            )
        )
    return _batch(records, rows)


JUDGED = (GateDimensionResult.Status.SCORED, GateDimensionResult.Status.TRIVIAL)


def _gate_label(result: GateDimensionResult) -> str:
    """Return ``pass`` or ``fail`` for what was scored; what could not be judged passes, which is no verdict."""
    if result.status == GateDimensionResult.Status.SCORED:
        return "pass" if result.passed else "fail"
    if result.status == GateDimensionResult.Status.TRIVIAL:
        return "trivial"
    return UNSCORED


def _changes(delivery: ScoreDelivery) -> Batch:
    rows = _next_rows(
        Change.objects.filter(pk__in=delivery.parts).select_related("agent", "evaluation_run"),
        delivery,
        "agent dimension proposition judge procedure verdict points low high baseline candidate n baseline_n baseline_run "
        "evaluation_run",
        further=("agent__slug", "agent__display_name", "evaluation_run__finished_at", "evaluation_run__created_at"),
    )
    records = []
    for row in rows:
        details: dict[str, Detail] = {
            "kind": "change",
            "dimension": row.dimension,
            "evaluation.id": row.evaluation_run_id,
            "baseline.id": row.baseline_run_id,
            "procedure": row.procedure,
            "n": row.n,
            "baseline_n": row.baseline_n,
            **_details_of_judge(row.judge),
        }
        if row.proposition:
            details["proposition"] = row.proposition
        for name in ("low", "high", "baseline", "candidate"):
            number = getattr(row, name)
            if number is not None:
                details[f"change.{name}"] = number
        key = f"{row.evaluation_run_id}/{row.baseline_run_id}/{row.dimension}/{row.proposition}"
        records.append(
            ScoreRecord(
                id=_record_id(delivery, "change", key),
                name="/".join(filter(None, ("change", row.dimension, row.proposition))),
                label=row.verdict,
                value=row.points,
                # The same when it is computed again: it is the same change.
                at=row.evaluation_run.finished_at or row.evaluation_run.created_at,
                agent=row.agent,
                details=details,
                is_change=True,
            )
        )
    return _batch(records, rows)


READERS: Mapping[str, Callable[[ScoreDelivery], Batch]] = {
    ScoreDelivery.Kind.EVALUATION: _judgements,
    ScoreDelivery.Kind.ATTEMPT: _attempts,
    ScoreDelivery.Kind.CHANGES: _changes,
}


def _next_rows(
    rows: QuerySet[Any], delivery: ScoreDelivery, columns: str, *, texts: str = "", further: Sequence[str] = ()
) -> list[Any]:
    """Read the next rows of a delivery, with these columns only.

    Args:
        texts: Columns that quote messages: they are read where explanations leave.
        further: Columns of related rows.
    """
    names = columns.split()
    if settings.SCORES_WITH_EXPLANATIONS:
        names += texts.split()
    return list(rows.filter(pk__gt=delivery.sent_through).order_by("pk").only(*names, *further)[:MOST_RECORDS])


def _batch(records: list[ScoreRecord], rows: Sequence[Any]) -> Batch:
    return Batch(records, rows[-1].pk if rows else 0)


def _places_of(messages: Iterable[Message | None]) -> dict[int | None, TracePlace]:
    """Return the spans in which messages were said, by message; without those that came in no span, or too long ago.

    The id of such a message is that of its span, a colon, and its number; its channel is that of the span's conversation.
    """
    keys: dict[int, tuple[str, str]] = {}
    for message in messages:
        if message is not None:
            span, separator, _ = message.external_id.rpartition(":")
            if separator:
                keys[message.pk] = (message.channel.slug, span)
    if not keys:
        return {}
    conversations = {conversation for conversation, _ in keys.values()}
    spans = {span for _, span in keys.values()}
    spans_known = TraceSpan.objects.filter(conversation__in=conversations, span__in=spans)
    traces: dict[tuple[str, str], str] = {}
    for conversation, span, trace in spans_known.values_list("conversation", "span", "trace"):
        traces[conversation, span] = trace
    place_by_message: dict[int | None, TracePlace] = {}
    for pk, key in keys.items():
        if key in traces:
            place_by_message[pk] = TracePlace(trace=traces[key], span=key[1])
    return place_by_message


def _record_id(delivery: ScoreDelivery, kind: str, key: object) -> str:
    """Return the id of a result, the same at every try and for every delivery to this receiver."""
    return str(uuid.uuid5(delivery.receiver.salt, f"{kind}/{key}"))


def _details_of_judge(judge: str) -> dict[str, Detail]:
    return {"judge": judge, "heuristic": is_heuristic(judge)}


def _details_of_weight(inclusion_weight: float) -> dict[str, Detail]:
    """Return for how many messages this one stands in means, where that is not itself alone."""
    if inclusion_weight == 1:
        return {}
    return {"inclusion_weight": inclusion_weight}


def _explanation(row: Any, *names: str) -> str:
    """Return the first of these texts that is not empty, where explanations leave; they may quote messages."""
    if not settings.SCORES_WITH_EXPLANATIONS:
        return ""
    for name in names:
        text = str(getattr(row, name))
        if text:
            return text[:LONGEST_EXPLANATION]
    return ""

"""Where evaluation keeps words: what judges said, ideas they listed, notes of people who label, and line-ups."""

from __future__ import annotations

from django.db.models import Q

from agents.models import LLMPayload
from agents.ops.erasure import NOTHING, Person, Place
from evaluation.models import EvaluationRun, EvaluationSchedule, EvaluationScore, Idea, LineUpRun, ScoreLabel


def _on_their_messages(person: Person) -> Q:
    own = person.own().order_by().values("pk")
    return Q(message__in=own) | Q(compared_with__in=own)


def _of_evaluations_there(person: Person) -> Q:
    there = EvaluationScore.objects.filter(
        Q(evaluation_run__channel__in=person.channels) | Q(message__channel__in=person.channels), call__isnull=False
    )
    return Q(call__in=there.order_by().values("call"))


def _their_labels(person: Person) -> Q:
    return NOTHING if person.user is None else Q(user=person.user.pk)


def _labels_by_name(person: Person) -> Q:
    """A username stays what it is, and with it the annotator's, unless the account is closed."""
    return _their_labels(person) if person.deactivate else NOTHING


PLACES = (
    Place(
        model=LLMPayload,
        columns=("request", "reply", "tool_calls"),
        agent=("call__agent",),
        whole=_of_evaluations_there,
        delete=True,
    ),
    Place(
        model=EvaluationScore,
        columns=("claim", "flaws", "reasoning", "justification", "recommendations", "reason", "context_snippet"),
        channel=("evaluation_run__channel", "message__channel"),
        agent=("evaluation_run__agent",),
        whole=_on_their_messages,
    ),
    Place(
        model=Idea,
        columns=("idea", "description"),
        channel=("part__evaluation_score__evaluation_run__channel",),
        agent=("part__evaluation_score__evaluation_run__agent",),
    ),
    Place(
        model=EvaluationRun,
        columns=("error", "additional_context", "figures", "where", "history_where"),
        channel=("channel",),
        agent=("agent",),
    ),
    Place(model=LineUpRun, columns=("result", "error", "where"), channel=("channel",)),
    Place(
        model=ScoreLabel,
        columns=("note",),
        channel=("evaluation_score__evaluation_run__channel", "evaluation_score__message__channel"),
        agent=("evaluation_score__evaluation_run__agent",),
        whole=_their_labels,
    ),
    Place(
        model=ScoreLabel,
        columns=("annotator",),
        named=_labels_by_name,
        rows=lambda person: ScoreLabel.objects.filter(_labels_by_name(person)),
    ),
    Place(model=EvaluationSchedule, columns=("name", "where", "last_outcome"), report_only=True),
)

"""Where correction keeps words: drafts, what was said of them, and interventions that were looked at."""

from __future__ import annotations

from django.db.models import Q

from agents.erasure import Person, Place
from agents.models import LLMPayload
from correction.models import CorrectionLog, GateDimensionResult, Intervention, InterventionLog, ObservedMessage


def _of_gates_there(person: Person) -> Q:
    results = GateDimensionResult.objects.filter(log__channel__in=person.channels, call__isnull=False).order_by()
    return Q(call__in=results.values("call"))


PLACES = (
    Place(
        model=LLMPayload,
        columns=("request", "reply", "tool_calls"),
        agent=("call__agent",),
        whole=_of_gates_there,
        delete=True,
    ),
    Place(
        model=CorrectionLog,
        columns=("speaker", "tags", "original_text", "judged_text", "payload", "feedback"),
        channel=("channel",),
    ),
    Place(
        model=GateDimensionResult,
        columns=("reasoning", "recommendations", "reason", "parts"),
        channel=("log__channel",),
    ),
    Place(model=InterventionLog, columns=("why", "preconditions", "nudge"), channel=("channel",)),
    Place(model=ObservedMessage, columns=("error",), channel=("message__channel",)),
    Place(
        model=Intervention,
        columns=("description", "textual_claim", "function_parameters", "proposition_claim", "nudge"),
        told_only=True,
    ),
)

"""Where correction keeps words: drafts, what was said of them, what was asked for, and interventions that were looked at."""

from __future__ import annotations

from django.db.models import Q

from agents.models import LLMPayload, Trait
from agents.ops.erasure import Person, Place
from correction.models import (
    AgentEvaluationConfig,
    BehaviorEffect,
    BehaviorRequest,
    CorrectionLog,
    GateDimensionResult,
    Intervention,
    InterventionLog,
    ObservedMessage,
)


def _of_gates_there(person: Person) -> Q:
    results = GateDimensionResult.objects.filter(log__channel__in=person.channels, call__isnull=False).order_by()
    return Q(call__in=results.values("call"))


def _of_requests_there(person: Person) -> Q:
    requests = BehaviorRequest.objects.filter(message__channel__in=person.channels).order_by()
    calls = Q()
    for call in ("gate_call", "extract_call", "map_call"):
        calls |= Q(call__in=requests.filter(**{f"{call}__isnull": False}).values(call))
    return calls


def _asked_by(person: Person) -> Q:
    """Requests read from their messages: what a model says of them need not quote them."""
    return Q(message__in=person.own().order_by().values("pk"))


def _asked_for_by(person: Person) -> Q:
    made = BehaviorRequest.objects.filter(_asked_by(person), trait__isnull=False).order_by()
    return Q(pk__in=made.values("trait"))


PLACES = (
    Place(
        model=LLMPayload,
        columns=("request", "reply", "tool_calls"),
        agent=("call__agent",),
        whole=lambda person: _of_gates_there(person) | _of_requests_there(person),
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
        model=BehaviorRequest,
        columns=("gate_result", "extract_result", "map_result", "why", "warnings", "error"),
        channel=("message__channel",),
        agent=("agent",),
        whole=_asked_by,
        emptied=("map_result",),
    ),
    # What was judged may stand in any of the agent's channels, and what the judge said of it quotes it.
    Place(model=BehaviorEffect, columns=("result", "error"), agent=("request__agent",)),
    # The persona has these by now, or had them: without them the change could not be undone.
    Place(
        model=BehaviorRequest,
        columns=("trait_name", "trait_before", "trait_after"),
        whole=lambda person: _asked_by(person) & ~Q(trait_name=""),
        told_only=True,
    ),
    # Made of what they asked for, whether or not it is in their words.
    Place(model=Trait, columns=("name",), whole=_asked_for_by, told_only=True),
    Place(
        model=AgentEvaluationConfig,
        columns=("behavior_named_requesters", "behavior_protected_traits"),
        told_only=True,
    ),
    Place(
        model=Intervention,
        columns=("description", "textual_claim", "function_parameters", "proposition_claim", "nudge"),
        told_only=True,
    ),
)

"""What seeding, retention and erasure need to know of the tables of correction; settings name these."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Exists, OuterRef, Q

from agents.models import Agent, LLMPayload, Trait
from agents.ops.erasure import Person, Place
from agents.ops.retention import Log
from correction.config.configure import ensure_rows
from correction.gate.statistics import GATE
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

# Marks of people are in no sums: a session with one stays, and with it the precision beside each threshold.
_MARKED = GateDimensionResult.objects.filter(log__session=OuterRef("session")).exclude(mark="")
# A cooldown is counted in messages from the last time it fired, however long ago that was.
_FIRED_LATER = InterventionLog.objects.filter(
    agent=OuterRef("agent"), channel=OuterRef("channel"), name=OuterRef("name"), fired=True, pk__gt=OuterRef("pk")
)

# What came to a decision stays: a version of a persona goes back to it, and it can still be taken back.
_WITHOUT_CHANGE = (
    BehaviorRequest.Status.NO_REQUEST,
    BehaviorRequest.Status.DETECTED,
    BehaviorRequest.Status.FAILED,
    BehaviorRequest.Status.ERRORED,
    BehaviorRequest.Status.CANCELLED,
)

# What was measured stays as long as its request does.
_NOT_MEASURED = (BehaviorEffect.Status.FAILED, BehaviorEffect.Status.ERRORED, BehaviorEffect.Status.CANCELLED)

LOGS = (
    Log(
        rows=lambda before: CorrectionLog.objects.filter(~Exists(_MARKED), created_at__lt=before),
        children=((GateDimensionResult, "log"),),
        rolled=GATE,
    ),
    Log(
        rows=lambda before: InterventionLog.objects.filter(
            Q(fired=False) | Q(agent=None) | Q(channel=None) | Exists(_FIRED_LATER), created_at__lt=before
        )
    ),
    Log(rows=lambda before: ObservedMessage.objects.filter(status__in=ObservedMessage.FINAL, finished_at__lt=before)),
    Log(rows=lambda before: BehaviorEffect.objects.filter(status__in=_NOT_MEASURED, finished_at__lt=before)),
    Log(rows=lambda before: BehaviorRequest.objects.filter(status__in=_WITHOUT_CHANGE, finished_at__lt=before)),
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
        report_only=True,
    ),
    # Made of what they asked for, whether or not it is in their words.
    Place(model=Trait, columns=("name",), whole=_asked_for_by, report_only=True),
    Place(
        model=AgentEvaluationConfig,
        columns=("behavior_named_requesters", "behavior_protected_traits"),
        report_only=True,
    ),
    Place(
        model=Intervention,
        columns=("description", "textual_claim", "function_parameters", "proposition_claim", "nudge"),
        report_only=True,
    ),
)


def seed_configs(agents: Sequence[Agent]) -> str:
    """The defaults row and a row per example agent, all empty: every mechanism is off (AC-7.3.2, AC-7.3.9).

    Returns:
        A sentence on what was done.
    """
    made = ensure_rows(agents=agents, reason="example data")
    return f"Correction: {made} configurations added, {len(agents) + 1 - made} there already."


def remove_logs(agents: Sequence[Agent]) -> dict[str, int]:
    """The gate sessions, interventions and behaviour requests of the examples, which would stay without a name.

    Returns:
        How many rows were removed, by what they are.
    """
    removed = {}
    for model in (CorrectionLog, InterventionLog, BehaviorRequest):
        rows = model._default_manager.filter(agent__in=agents)
        removed[str(model._meta.verbose_name_plural)] = rows.count()
        rows.delete()
    return removed

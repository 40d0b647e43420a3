"""The tables of correction as console, help, export, erasure and retention know them; see `agents.registry`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Exists, OuterRef, Prefetch, Q

from agents.models import LLMPayload, Trait
from agents.registry import Erase, Person, Prune, Table, export_of
from correction.config.settings import GATE_DIMENSIONS
from correction.gate.statistics import GATE
from correction.models import (
    AgentEvaluationConfig,
    AttemptHour,
    BehaviorEffect,
    BehaviorRequest,
    CorrectionLog,
    DimensionHour,
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


def _of_gates_and_requests_there(person: Person) -> Q:
    results = GateDimensionResult.objects.filter(log__channel__in=person.channels, call__isnull=False).order_by()
    requests = BehaviorRequest.objects.filter(message__channel__in=person.channels).order_by()
    calls = Q(call__in=results.values("call"))
    for call in ("gate_call", "extract_call", "map_call"):
        calls |= Q(call__in=requests.filter(**{f"{call}__isnull": False}).values(call))
    return calls


def _asked_by(person: Person) -> Q:
    """Requests read from their messages: what a model says of them need not quote them."""
    return Q(message__in=person.own_keys())


def _asked_for_by(person: Person) -> Q:
    made = BehaviorRequest.objects.filter(_asked_by(person), trait__isnull=False).order_by()
    return Q(pk__in=made.values("trait"))


_OF_DIMENSION: dict[str, Callable[[GateDimensionResult], Any]] = {
    "status": lambda result: result.status,
    "score": lambda result: result.score,
    "threshold": lambda result: float(result.threshold),
    "passed": lambda result: result.passed,
    "reasoning": lambda result: result.reasoning or result.reason,
    "mark": lambda result: result.mark,
}


def _of(dimension: str, read: Callable[[GateDimensionResult], Any]) -> Callable[[Any], Any]:
    def cell(log: Any) -> Any:
        own = next((result for result in log.fetched_results if result.dimension == dimension), None)
        return None if own is None else read(own)

    return cell


TABLES = (
    Table(
        model=AgentEvaluationConfig,
        editor="*",
        menu="Gate",
        icon="tune",
        title="Configuration",
        empty="Every agent inherits the defaults. Switch something on in the matrix, or run manage.py configure AGENT.",
        deleting="The agent inherits everything from the defaults from its next turn on. The history of changes is kept.",
        erase=(Erase(columns="behavior_named_requesters behavior_protected_traits", report_only=True),),
    ),
    Table(
        model=CorrectionLog,
        operator="add",
        menu="Gate",
        icon="rule",
        title="Log",
        columns="when who outcome_mark verdicts draft place",
        filters="session? message? outcome failed mark committed source judge agent tags,message__tags,channel__tags created_at",
        search="judged_text*",
        fields=(("As it is stored", "session draft_key"),),
        empty="Every draft the gate judges leaves one. Switch it on for an agent, best in observe mode first: manage.py configure AGENT "
        "gate_mode=observe gate_adherence_enabled=on.",
        start=(
            (
                "Configure the gate",
                "admin:correction_agentevaluationconfig_changelist",
                "correction.view_agentevaluationconfig",
            ),
        ),
        export=export_of(
            "id=pk created_at session attempt source agent=agent.slug speaker channel=channel.slug run=run_id message=message_id committed "
            "outcome original_text judged_text said=message.text feedback payload tags judge score_sum duration_ms "
            "persona_version=persona_version.number",
            special={
                f"{dimension}_{name}": _of(dimension, read)
                for dimension in GATE_DIMENSIONS
                for name, read in _OF_DIMENSION.items()
            },
            # A list: asked many times for each row.
            prefetch=(Prefetch("dimension_results", to_attr="fetched_results"),),
            texts=(
                *("original_text", "judged_text", "said", "feedback", "payload"),
                *(f"{dimension}_reasoning" for dimension in GATE_DIMENSIONS),
            ),
        ),
        erase=(
            Erase(columns="speaker tags original_text judged_text payload feedback", channel="channel"),
            Erase(
                model=LLMPayload,
                columns="request reply tool_calls",
                agent="call__agent",
                blank=_of_gates_and_requests_there,
                delete=True,
            ),
        ),
        no_speech="draft_key judge",
        prune=Prune(
            rows=lambda before: CorrectionLog.objects.filter(~Exists(_MARKED), created_at__lt=before),
            children=((GateDimensionResult, "log"),),
            rolled=GATE,
        ),
    ),
    Table(
        model=Intervention,
        editor="*",
        menu="Gate",
        icon="campaign",
        columns="slug=intervention is_enabled=enabled function textual_claim proposition_claim nudge_type nudge reach",
        filters="is_enabled dm_allowed",
        search="slug* description* textual_claim* proposition_claim*",
        empty="Add one to tell agents something when a conversation calls for it. Two are built in and are switched on per agent.",
        deleting="It no longer runs. What it did stays in the log under its name. To keep it, switch it off instead.",
        erase=(
            Erase(columns="description textual_claim function_parameters proposition_claim nudge", report_only=True),
        ),
        no_speech="slug function nudge_type",
    ),
    Table(
        model=InterventionLog,
        tab_of=Intervention,
        title="Log of interventions",
        empty="Every look at an intervention before a turn leaves one: switch one on in an agent's configuration, or add one of your own.",
        columns="created_at name agent fired_mark why nudge channel",
        filters="intervention? fired name judge agent channel__tags created_at",
        fields=(
            ("", "name fired_mark why conditions nudge_type nudge"),
            ("Where", "agent channel channel_position run intervention_link"),
            ("How it was judged", "judge duration_ms=milliseconds calls created_at"),
        ),
        export=export_of(
            "id=pk created_at name intervention=intervention.slug agent=agent.slug channel=channel.slug run=run_id channel_position fired "
            "why preconditions nudge_type nudge judge duration_ms work_id",
            texts=("why", "preconditions"),  # what a judge said of the conversation
        ),
        erase=(Erase(columns="why preconditions nudge", channel="channel"),),
        no_speech="name nudge_type judge",
        prune=Prune(
            rows=lambda before: InterventionLog.objects.filter(
                Q(fired=False) | Q(agent=None) | Q(channel=None) | Exists(_FIRED_LATER), created_at__lt=before
            )
        ),
    ),
    Table(
        model=ObservedMessage,
        tab_of=CorrectionLog,
        empty="Nothing waits. Where an agent's gate observes, the messages to be judged afterwards wait here until manage.py work has "
        "judged them.",
        columns="pk status message__agent message created_at finished_at",
        filters="status error message__agent created_at",
        fields=(
            (
                "",
                "status message__agent message dimensions session=verdicts error created_at started_at finished_at attempt lease_owner",
            ),
        ),
        export=export_of(
            "id=pk created_at agent=message.agent.slug message=message_id text=message.text session dimensions status error started_at "
            "finished_at attempt",
            texts=("text",),
        ),
        erase=(Erase(columns="error", channel="message__channel"),),
        no_speech="dimensions",
        prune=Prune(
            rows=lambda before: ObservedMessage.objects.filter(status__in=ObservedMessage.FINAL, finished_at__lt=before)
        ),
    ),
    Table(
        model=BehaviorRequest,
        editor="change",
        menu="Gate",
        icon="psychology_alt",
        title="Requests",
        columns="when agent state changed confidence said reason judge",
        filters="status operation confidence automatic judge agent created_at",
        search="trait_name*",
        fields=(
            (
                "As it is stored",
                "created_at started_at finished_at applied_at reviewed_at reverted_at attempt lease_owner automatic",
            ),
        ),
        empty="They come of what users write to an agent directly or by its @name, such as “be more concise”; manage.py work looks at it.",
        erase=(
            Erase(
                columns="gate_result extract_result map_result why warnings error",
                channel="message__channel",
                agent="agent",
                blank=_asked_by,
                emptied="map_result",
            ),
            # The persona has these by now, or had them: without them the change could not be undone.
            Erase(
                columns="trait_name trait_before trait_after",
                blank=lambda person: _asked_by(person) & ~Q(trait_name=""),
                report_only=True,
            ),
            # Made of what they asked for, whether or not it is in their words.
            Erase(model=Trait, columns="name", blank=_asked_for_by, report_only=True),
        ),
        no_speech="judge scope_key",
        prune=Prune(
            rows=lambda before: BehaviorRequest.objects.filter(status__in=_WITHOUT_CHANGE, finished_at__lt=before)
        ),
    ),
    # Without a page of their own.
    Table(
        model=GateDimensionResult,
        operator="change",
        erase=(Erase(columns="reasoning recommendations reason parts", channel="log__channel"),),
        no_speech="judge proposition_id",
    ),
    # What was judged may stand in any of the agent's channels, and what the judge said of it quotes it.
    Table(
        model=BehaviorEffect,
        erase=(Erase(columns="result error", agent="request__agent"),),
        no_speech="judge",
        prune=Prune(
            rows=lambda before: BehaviorEffect.objects.filter(status__in=_NOT_MEASURED, finished_at__lt=before)
        ),
    ),
    Table(model=AttemptHour, no_speech="outcome source"),
    Table(model=DimensionHour, no_speech="source judge"),
)

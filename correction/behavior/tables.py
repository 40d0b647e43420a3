"""The tables of requests to behave differently as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from django.db.models import Q

from agents.erasure import keys_said_by
from agents.kit.models import LLMPayload
from agents.kit.registry import Erase, Person, Prune, Table
from agents.models import Trait
from correction.behavior.models import BehaviorEffect, BehaviorRequest, DescriptionUpdate

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


def _asked_by(person: Person) -> Q:
    """Requests read from their messages: what a model says of them need not quote them."""
    return Q(message__in=keys_said_by(person))


def _asked_for_by(person: Person) -> Q:
    made = BehaviorRequest.objects.filter(_asked_by(person), trait__isnull=False).order_by()
    return Q(pk__in=made.values("trait"))


def _of_requests_there(person: Person) -> Q:
    requests = BehaviorRequest.objects.filter(message__channel__in=person.channels).order_by()
    calls = Q()
    for call in ("gate_call", "extract_call", "map_call"):
        calls |= Q(call__in=requests.filter(**{f"{call}__isnull": False}).values(call))
    return calls


TABLES = (
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
            Erase(
                model=LLMPayload,
                columns="request reply tool_calls",
                rows=lambda person: LLMPayload.objects.filter(_of_requests_there(person)),
                blank=lambda person: Q(pk__isnull=False),
                delete=True,
            ),
        ),
        no_speech="judge scope_key",
        prune=Prune(
            rows=lambda before: BehaviorRequest.objects.filter(status__in=_WITHOUT_CHANGE, finished_at__lt=before)
        ),
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
    Table(model=DescriptionUpdate, erase=(Erase(columns="error", agent="agent"),), no_speech="judge"),
)

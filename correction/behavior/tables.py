"""The tables of requests to behave differently as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from django.db.models import Q

from agents.erasure import keys_said_by, of_messages
from agents.kit.erasing import Erase, Person, matching, of_agents, there
from agents.kit.models import LLMPayload
from agents.kit.registry import Prune, Table
from agents.models import Trait
from correction.behavior.models import BehaviorEffect, BehaviorRequest, DescriptionUpdate
from correction.behavior.scope import holds_for_a_person, outsider_key, user_key

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


def _asked_for_themself(person: Person) -> Q:
    """Return the requests that hold towards this person alone, also where their message was deleted."""
    if person.user is not None:
        keys = [user_key(person.user.pk)]
    else:
        keys = [outsider_key(channel, name) for channel in person.first for name in person.names]
    return Q(scope_key__in=keys) | (Q(message__in=keys_said_by(person)) & holds_for_a_person())


def _asked_for_others_too(person: Person) -> Q:
    """Return this person's requests that hold in a channel or in the whole persona."""
    return Q(message__in=keys_said_by(person)) & ~holds_for_a_person()


def _asked_for_by(person: Person) -> Q:
    """Return the traits that this person's requests made or changed."""
    requests = BehaviorRequest.objects.filter(message__in=keys_said_by(person), trait__isnull=False).order_by()
    return Q(pk__in=requests.values("trait"))


def _calls_about_their_requests(person: Person) -> Q:
    """Return what was sent in the model calls about this person's requests."""
    requests = BehaviorRequest.objects.filter(message__in=keys_said_by(person)).order_by()
    calls = Q()
    for call in ("gate_call", "extract_call", "map_call"):
        calls |= Q(call__in=requests.filter(**{f"{call}__isnull": False}).values(call))
    return calls


TABLES = (
    Table(
        model=BehaviorRequest,
        editor="change",
        order=-1,
        tab_of="admin:review",
        title="All requests",
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
            # What a model said of a request need not quote it; of others' requests there it may quote them.
            Erase(
                columns="gate_result extract_result why warnings error",
                rows=(of_messages("message"), there("message__channel", at="finished_at")),
                keep="confidence",
            ),
            Erase(columns="map_result", rows=(of_messages("message"),), emptied="map_result"),
            Erase(
                model=LLMPayload,
                columns="request reply tool_calls",
                rows=(matching(_calls_about_their_requests),),
                delete=True,
            ),
            # The persona has these by now, or had them: without them the change could not be undone.
            Erase(
                columns="trait_name trait_before trait_after", rows=(matching(_asked_for_others_too),), report_only=True
            ),
            # Made of what they asked for.
            Erase(model=Trait, columns="name", rows=(matching(_asked_for_by),), report_only=True),
            # It holds towards them alone, and is of no use to others. Last: the rules above find rows by it.
            Erase(columns="trait_name trait_after", rows=(matching(_asked_for_themself),), delete=True),
        ),
        no_speech="judge scope_key",
        typed="trait_name trait_before trait_after",
        prune=Prune(
            rows=lambda before: BehaviorRequest.objects.filter(status__in=_WITHOUT_CHANGE, finished_at__lt=before)
        ),
    ),
    # What was judged may stand in any of the agent's channels, and what the judge said of it quotes it.
    Table(
        model=BehaviorEffect,
        erase=(
            Erase(
                columns="result error",
                rows=(of_messages("request__message"), of_agents("request__agent")),
                keep="agent sample verdict expected judge cost_usd actual_cost_usd",
            ),
        ),
        no_speech="judge",
        prune=Prune(
            rows=lambda before: BehaviorEffect.objects.filter(status__in=_NOT_MEASURED, finished_at__lt=before)
        ),
    ),
    Table(model=DescriptionUpdate, erase=(Erase(columns="error", rows=(of_agents("agent"),)),), no_speech="judge"),
)

"""Decide where a request holds: in the whole persona, in one channel, or towards one person.

A request of someone who may edit the persona changes it, as specification 002 says. From anyone else it holds where the setting
``behavior_scope`` says, by default towards that person alone; in a scratch chat, in that chat.

A request for the whole persona becomes a trait of the agent. A narrower one does not: as long as its row is applied, turns in that channel,
or that answer that person, show it in a section of the prompt. Persona, versions and baselines stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from agents.chat import is_chat
from agents.kit.text.fences import render_prompt, safe_and_cut
from agents.models import Agent, Message, Run
from agents.personas.persona import TraitValue, trait_lines
from agents.turn.pipeline import Turn
from correction.behavior.models import BehaviorRequest
from correction.behavior.signs import name_key
from correction.behavior.trait_change import as_value, stored_trait
from correction.config.settings import ResolvedConfig, Scope

EDITING = "agents.change_agent"  # who may edit a persona
PERSONA_KEY = ""  # the key of the whole persona
BY_ACCOUNT, BY_NAME = PERSON_KINDS = ("user:", "outsider:")  # how the keys of one person begin
MOST_DIGITS = 18  # of a database key
MOST_SHOWN = 40  # traits of a channel, and of a person, in a prompt: those changed last
_COLUMNS_SHOWN = ("scope_key", "trait_name", "trait_before", "trait_after", "applied_at")


def scope_for(user: User | None, config: ResolvedConfig) -> str:
    """Return where a request of this user holds, or of a person without an account (None)."""
    if user is not None and user.has_perm(EDITING):
        return Scope.PERSONA
    return str(config["behavior_scope"])


def key_of(message: Message, config: ResolvedConfig) -> str:
    """Return the scope of a request in a message, as `BehaviorRequest.scope_key` stores it; empty for the whole persona.

    In a scratch chat it is always the chat alone; else the writer and the settings decide (`scope_for`).

    A person without an account is known by name, within the channel: the name is what another program says, and is stored as a digest.
    """
    channel_key = f"channel:{message.channel_id}"
    if is_chat(message.channel):
        return channel_key
    scope = scope_for(message.user, config)
    if scope == Scope.CHANNEL:
        return channel_key
    if scope == Scope.PERSON:
        return _key_of_person(message)
    return PERSONA_KEY


def _key_of_person(message: Message) -> str:
    """Return the scope of the message's author: by account, else by name within the channel."""
    if message.user_id is not None:
        return user_key(message.user_id)
    return outsider_key(message.channel_id, message.outsider)


def user_key(user_id: int) -> str:
    """Return the scope of what a user asked for themself."""
    return f"{BY_ACCOUNT}{user_id}"


def outsider_key(channel_id: int, name: str) -> str:
    """Return the scope of what a person without an account asked for themself: they are known by name within the channel."""
    return f"{BY_NAME}{channel_id}:{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def holds_for_a_person() -> Q:
    """Return which requests hold towards one person alone."""
    condition = Q()
    for kind in PERSON_KINDS:
        condition |= Q(scope_key__startswith=kind)
    return condition


def person_of(request: BehaviorRequest) -> str:
    """Return the key of the person who asked, for `requests_of`; empty where neither scope nor message tells who that was."""
    if request.scope_key.startswith(PERSON_KINDS):
        return request.scope_key
    return "" if request.message is None else _key_of_person(request.message)


def requests_of(person: str) -> QuerySet[BehaviorRequest]:
    """Return what a person asked for, wherever it holds, newest first; what their messages did not ask for is left out.

    Args:
        person: A key of `person_of`, ``user:ID`` or ``outsider:CHANNEL:DIGEST``; of any other form: none.
    """
    requests = BehaviorRequest.objects.exclude(status__in=BehaviorRequest.WITHOUT_REQUEST).order_by(
        "-created_at", "-pk"
    )
    is_theirs = Q(scope_key=person)
    kind, _, rest = person.partition(":")
    number = rest.partition(":")[0]
    if f"{kind}:" not in PERSON_KINDS or not number.isdecimal() or len(number) > MOST_DIGITS:
        return requests.none()
    if kind == "user":
        return requests.filter(is_theirs | Q(message__user=int(number)))
    channel = int(number)
    own = requests.filter(is_theirs, message__isnull=False).select_related("message").first()
    if own is not None and own.message is not None:  # the key holds no name: one of their messages tells it
        return requests.filter(is_theirs | Q(message__channel=channel, message__outsider=own.message.outsider))
    asked_there = requests.filter(message__channel=channel).exclude(message__outsider="")
    for name in asked_there.order_by().values_list("message__outsider", flat=True).distinct():
        if outsider_key(channel, name) == person:
            is_theirs |= Q(message__channel=channel, message__outsider=name)
    return requests.filter(is_theirs)


def messages_within(request: BehaviorRequest) -> Q | None:
    """Return which messages of its agent a request acts on; None where the message that would tell the person was deleted.

    All of them for the whole persona, those of the channel, or those that answer the person.
    """
    kind, _, rest = request.scope_key.partition(":")
    if not kind:
        return Q()
    if kind == "channel":
        return Q(channel=int(rest))
    if kind == "user":
        return Q(run__trigger__user=int(rest))
    if request.message is None:
        return None
    return Q(channel=request.message.channel_id, run__trigger__outsider=request.message.outsider)


def holds_in(request: BehaviorRequest) -> str:
    """Return where the request holds, in words for people, such as ``only in #desk``; also where its message was deleted."""
    kind = request.scope_key.partition(":")[0]
    message = request.message
    if not kind:
        return "the whole persona"
    if kind == "channel":
        return f"only in {message.channel}" if message is not None else "the channel of a message that was deleted"
    if message is None:
        return "a person whose message was deleted"
    if kind == "outsider":
        return f"only towards {message.author_name} in {message.channel}"
    return f"only towards {message.author_name}"


def traits_in(agent: Agent, key: str) -> list[TraitValue]:
    """Return the agent's traits as they hold in a scope: those of the persona, and over them those applied there."""
    traits = {name_key(trait.name): as_value(trait) for trait in agent.traits.all()}
    if key == PERSONA_KEY:
        return list(traits.values())
    return list(_with_changes(traits, _applied_requests(agent, [key])).values())


def later_change(request: BehaviorRequest) -> BehaviorRequest | None:
    """Return the newest applied request that changed, in the same scope and after this one, the trait it made; None where there is none."""
    names = {name_key(request.trait_name)}  # of the trait, which later requests may have renamed
    newest = None
    for later in _applied_requests(request.agent, [request.scope_key]).filter(applied_at__gt=request.applied_at):
        before = stored_trait(later.trait_before)
        is_same_trait = name_key(later.trait_name) in names
        if before is not None and name_key(before.name) in names:
            is_same_trait = True
        if is_same_trait:
            names.add(name_key(later.trait_name))
            newest = later
    return newest


def neighbours_in_scope(request: BehaviorRequest) -> tuple[datetime | None, datetime | None]:
    """Return when requests in the same scope changed the trait last before an applied request, and first after it; None: never.

    Those that were reverted since count for the time in which they held.
    """
    before, after = stored_trait(request.trait_before), stored_trait(request.trait_after)
    names = {name_key(trait.name) for trait in (before, after) if trait is not None}
    others = BehaviorRequest.objects.filter(
        agent=request.agent_id, scope_key=request.scope_key, applied_at__isnull=False
    ).exclude(pk=request.pk)
    moments = []
    for other in others.only("trait_name", "trait_before", "applied_at", "reverted_at"):
        was = stored_trait(other.trait_before)
        other_names = {name_key(other.trait_name)} | ({name_key(was.name)} if was is not None else set())
        if names & other_names:
            moments += [moment for moment in (other.applied_at, other.reverted_at) if moment is not None]
    earlier = [moment for moment in moments if moment < request.applied_at]
    later = [moment for moment in moments if moment > request.applied_at]
    return max(earlier, default=None), min(later, default=None)


def prepare(turn: Turn) -> None:
    """Add to the prompt the traits that requests made for this channel alone, and for the person whose message it answers.

    At most 40 of each, those changed last. One query.
    """
    channel_key = f"channel:{turn.channel.pk}"
    keys = [channel_key]
    if turn.trigger is not None and turn.trigger.agent_id is None:
        keys.append(_key_of_person(turn.trigger))
    rows = list(_applied_requests(turn.agent, keys))
    if not rows:
        turn.skip("nothing was asked for in this channel or by this person alone")
        return
    in_channel = [row for row in rows if row.scope_key == channel_key]
    for_person = [row for row in rows if row.scope_key != channel_key]
    if in_channel:
        _add_section(turn, "Manner in this channel", in_channel, is_for_person=False)
    if for_person:
        _add_section(turn, "Manner towards the person you answer", for_person, is_for_person=True)


def manners_of(agent: Agent, messages: Collection[Message]) -> dict[int, str]:
    """Return what had been asked for in the channel of each message of the agent, or by whom it answers, as a prompt says it.

    By the ids of the messages; those are left out where nothing had. At most three queries.
    """
    ever_applied = [BehaviorRequest.Status.APPLIED, BehaviorRequest.Status.REVERTED]
    requests = BehaviorRequest.objects.filter(agent=agent, status__in=ever_applied).exclude(scope_key=PERSONA_KEY)
    if not requests.exists():
        return {}
    person_of_run = _people_answered(messages)
    keys = {_channel_key(message) for message in messages} | set(person_of_run.values())
    rows_of: dict[str, list[BehaviorRequest]] = {}
    in_order = requests.filter(scope_key__in=keys).order_by("applied_at", "pk").only(*_COLUMNS_SHOWN, "reverted_at")
    for row in in_order:
        rows_of.setdefault(row.scope_key, []).append(row)
    manners: dict[int, str] = {}
    for message in messages:
        in_channel = _held_at(message.said_at, rows_of.get(_channel_key(message), ()))
        for_person = _held_at(message.said_at, rows_of.get(person_of_run.get(message.run_id, ""), ()))
        parts = []
        if in_channel:
            parts.append(_render_manner(_traits_shown(in_channel), is_for_person=False))
        if for_person:
            parts.append(_render_manner(_traits_shown(for_person), is_for_person=True))
        if parts:
            manners[message.pk] = "\n\n".join(parts)
    return manners


def _channel_key(message: Message) -> str:
    return f"channel:{message.channel_id}"


def _held_at(moment: datetime, requests: Iterable[BehaviorRequest]) -> list[BehaviorRequest]:
    """Return those of the requests, applied and perhaps reverted since, that held at this moment."""
    in_effect = []
    for request in requests:
        was_applied = request.applied_at is not None and request.applied_at <= moment
        if was_applied and (request.reverted_at is None or request.reverted_at > moment):
            in_effect.append(request)
    return in_effect


def _people_answered(messages: Iterable[Message]) -> dict[int | None, str]:
    """Return the scopes of the people whom messages of agents answer, by their runs; a message said elsewhere has no run."""
    runs = Run.objects.filter(pk__in={message.run_id for message in messages if message.run_id is not None})
    by_people = runs.filter(trigger__isnull=False, trigger__agent=None).select_related("trigger")
    by_people = by_people.only("trigger__user_id", "trigger__channel_id", "trigger__outsider")
    return {run.pk: _key_of_person(run.trigger) for run in by_people if run.trigger is not None}


def _add_section(turn: Turn, heading: str, rows: Sequence[BehaviorRequest], *, is_for_person: bool) -> None:
    """Add the traits that these requests made to the prompt."""
    traits = _traits_shown(rows)
    turn.add_section(heading, _render_manner(traits, is_for_person=is_for_person))
    turn.count(traits=len(traits))


def _traits_shown(rows: Sequence[BehaviorRequest]) -> list[TraitValue]:
    """Return the traits that these requests made, at most 40, those changed last."""
    return list(_with_changes({}, rows).values())[-MOST_SHOWN:]


def _render_manner(traits: Sequence[TraitValue], *, is_for_person: bool) -> str:
    lines = safe_and_cut("\n\n".join(trait_lines(traits)), 10**6)
    return render_prompt("behavior/scoped", person=is_for_person, traits=lines)


def _applied_requests(agent: Agent | None, keys: Collection[str]) -> QuerySet[BehaviorRequest]:
    """Return the requests applied to the agent in these scopes, oldest first."""
    rows = BehaviorRequest.objects.filter(agent=agent, scope_key__in=keys, status=BehaviorRequest.Status.APPLIED)
    return rows.order_by("applied_at", "pk").only(*_COLUMNS_SHOWN)


def _with_changes(traits: dict[str, TraitValue], rows: Iterable[BehaviorRequest]) -> dict[str, TraitValue]:
    """Make the changes of these requests to the traits, by `name_key`, in their order, and return them: the same mapping, changed.

    A trait that was changed comes last; one that was stopped stays, at strength 0.
    """
    for row in rows:
        before, after = stored_trait(row.trait_before), stored_trait(row.trait_after)
        if before is not None:
            traits.pop(name_key(before.name), None)
        if after is not None:
            traits.pop(name_key(after.name), None)
            traits[name_key(after.name)] = after
    return traits

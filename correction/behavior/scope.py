"""Where a request holds: in the whole persona, in one channel, or towards one person.

A request of someone who may edit the persona changes it, as specification 002 says. From anyone else it holds where the setting
``behavior_scope`` says, by default towards that person alone; in a scratch chat, in that chat.

A request for the whole persona becomes a trait of the agent. A narrower one does not: as long as its row is applied, turns in that channel,
or that answer that person, show it in a section of the prompt. Persona, versions and baselines stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

from django.contrib.auth.models import User
from django.db.models import QuerySet

from agents.chat import is_chat
from agents.kit.text.fences import neutral, render_prompt
from agents.models import Agent, Message
from agents.personas.persona import TraitValue, trait_lines
from agents.turn.pipeline import Turn
from correction.behavior.models import BehaviorRequest
from correction.behavior.signs import name_key
from correction.behavior.trait_change import as_value, stored_trait
from correction.config.settings import ResolvedConfig, Scope

EDITING = "agents.change_agent"  # who may edit a persona
PERSONA = ""  # the key of the whole persona
MOST_SHOWN = 40  # traits of a channel, and of a person, in a prompt: those changed last


def scope_for(user: User | None, config: ResolvedConfig) -> str:
    """Where a request of this user holds, or of a person without an account (None)."""
    if user is not None and user.has_perm(EDITING):
        return Scope.PERSONA
    return str(config["behavior_scope"])


def key_of(message: Message, config: ResolvedConfig) -> str:
    """The scope of a request in a message, as `BehaviorRequest.scope_key` stores it.

    A person without an account is known by name, within the channel: the name is what another program says, and is stored as a digest.
    """
    scope = Scope.CHANNEL if is_chat(message.channel) else scope_for(message.user, config)
    if scope == Scope.CHANNEL:
        return f"channel:{message.channel_id}"
    return _person(message) if scope == Scope.PERSON else PERSONA


def _person(message: Message) -> str:
    if message.user_id is not None:
        return f"user:{message.user_id}"
    return f"outsider:{message.channel_id}:{hashlib.sha256(message.outsider.encode()).hexdigest()[:32]}"


def holds_in(request: BehaviorRequest) -> str:
    """Where it holds, in words for people."""
    kind, message = request.scope_key.partition(":")[0], request.message
    if not kind:
        return "the whole persona"
    if message is None:
        return (
            "the channel of a message that was deleted" if kind == "channel" else "a person whose message was deleted"
        )
    if kind == "channel":
        return f"only in {message.channel}"
    where = f" in {message.channel}" if kind == "outsider" else ""
    return f"only towards {message.author_name}{where}"


def traits_in(agent: Agent, key: str) -> list[TraitValue]:
    """The agent's traits as they hold in a scope: those of the persona, and over them what was applied there."""
    traits = {name_key(trait.name): as_value(trait) for trait in agent.traits.all()}
    return list(_over(traits, _applied(agent, [key])).values()) if key else list(traits.values())


def later_change(request: BehaviorRequest) -> BehaviorRequest | None:
    """The newest request that changed in the same scope, after this one, what it had made; None where there is none."""
    later = _applied(request.agent, [request.scope_key]).filter(applied_at__gt=request.applied_at)
    names = {name_key(request.trait_name)}
    newest = None
    for one in later:
        before = stored_trait(one.trait_before)
        if name_key(one.trait_name) in names or (before is not None and name_key(before.name) in names):
            names.add(name_key(one.trait_name))
            newest = one
    return newest


def prepare(turn: Turn) -> None:
    """Show the agent what was applied for this channel, and for the person whose message it answers. One query."""
    trigger = turn.trigger
    channel = f"channel:{turn.channel.pk}"
    person = _person(trigger) if trigger is not None and trigger.agent_id is None else PERSONA
    rows = list(_applied(turn.agent, [channel, person] if person else [channel]))
    if not rows:
        turn.skip("nothing was asked for in this channel or by this person alone")
        return
    if here := [row for row in rows if row.scope_key == channel]:
        _add(turn, "Manner in this channel", here, person=False)
    if person and (theirs := [row for row in rows if row.scope_key == person]):
        _add(turn, "Manner towards the person you answer", theirs, person=True)


def _add(turn: Turn, heading: str, rows: Sequence[BehaviorRequest], *, person: bool) -> None:
    shown = list(_over({}, rows).values())[-MOST_SHOWN:]
    lines = neutral("\n\n".join(trait_lines(shown)), 10**6)[0]
    turn.add_section(heading, render_prompt("behavior/scoped", person=person, traits=lines))
    turn.count(traits=len(shown))


def _applied(agent: Agent | None, keys: Collection[str]) -> QuerySet[BehaviorRequest]:
    rows = BehaviorRequest.objects.filter(agent=agent, scope_key__in=keys, status=BehaviorRequest.Status.APPLIED)
    return rows.order_by("applied_at", "pk").only(
        "scope_key", "trait_name", "trait_before", "trait_after", "applied_at"
    )


def _over(traits: dict[str, TraitValue], rows: Iterable[BehaviorRequest]) -> dict[str, TraitValue]:
    """The traits with the changes made to them, in the order in which they were made; what was changed last comes last."""
    for row in rows:
        before, after = stored_trait(row.trait_before), stored_trait(row.trait_after)
        for trait in filter(None, (before, after)):
            traits.pop(name_key(trait.name), None)
        if after is not None:
            traits[name_key(after.name)] = after
    return traits

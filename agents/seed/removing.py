"""Removing the example data: agents, conversations, and what was measured of them. What is the team's own stays, and is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.db import transaction
from django.db.models import ManyToManyRel, Q, QuerySet
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.models import Agent, Channel, Message
from agents.seed import Demo
from agents.seed.loader import conversations

DEMONSTRATION = r"^demo-[0-9]+(-picnic)?$"  # slugs of the channels of `manage.py demo`


@dataclass(slots=True)
class Removal:
    """What goes and what stays.

    Attributes:
        objections: Why nothing can be removed, a sentence each.
        removed: How many rows go, by what they are.
        kept: What stays of the examples or of their channels, and why, a sentence each.
    """

    objections: list[str] = field(default_factory=list)
    removed: Counter[str] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)


def remove_examples(*, dry_run: bool = False) -> Removal:
    """Remove the example agents and conversations, and what was measured of them; all of it or nothing.

    Messages of other agents and of people stay, with their channel. So does an example agent that spoke in a channel of the team's
    own. The ledger stays, without the agents' names.

    Args:
        dry_run: Say what would be removed, change nothing.
    """
    removal = Removal()
    with transaction.atomic():
        channels = list(_channels().order_by("slug"))
        agents = _agents(channels, removal)
        removal.objections = _objections(agents)
        if not removal.objections:
            _remove(agents, channels, removal)
        transaction.set_rollback(dry_run or bool(removal.objections))
    return removal


def _channels() -> QuerySet[Channel]:
    """The channels of the seed and of the demonstration, and those of simulations and debates with examples alone."""
    shipped = [conversation.channel.slug for conversation in conversations()]
    others = Agent.objects.exclude(origin=Agent.Origin.SEED)
    used, shared = Q(), Q()
    for path in ("messages__agent", *declared_list("seed_channel_agents")):
        used |= Q(pk__in=Channel.objects.filter(**{f"{path}__origin": Agent.Origin.SEED}).values("pk"))
        shared |= Q(pk__in=Channel.objects.filter(**{f"{path}__in": others}).values("pk"))
    return Channel.objects.filter(
        Q(slug__in=[*shipped, Demo.CHANNEL])
        | Q(synthetic=True, slug__regex=DEMONSTRATION)
        | (Q(synthetic=True) & used & ~shared)
    )


def _agents(channels: Sequence[Channel], removal: Removal) -> list[Agent]:
    """The examples, without those that spoke in a channel of the team's own, or take part in something there, such as a debate."""
    agents = Agent.objects.filter(origin=Agent.Origin.SEED).order_by("slug")
    elsewhere = Message.objects.filter(agent__in=agents).exclude(channel__in=channels).order_by()
    spoken = Counter(elsewhere.values_list("agent__slug", "channel__slug"))
    for (slug, channel), number in sorted(spoken.items()):
        removal.kept.append(f"the agent {slug} stays: it spoke in your channel {channel} (messages: {number})")
    staying = {slug for slug, _ in spoken}
    for path in declared_list("seed_removal_holds"):
        for slug, reason in import_string(path)(agents, channels).items():
            if slug not in staying:
                removal.kept.append(f"the agent {slug} stays: {reason}")
                staying.add(slug)
    return list(agents.exclude(slug__in=staying))


def _objections(agents: Sequence[Agent]) -> list[str]:
    """The rows that name these agents and no other: where none is named, every agent is meant."""
    objections = []
    for relation in Agent._meta.get_fields():
        if isinstance(relation, ManyToManyRel) and not getattr(relation.related_model, "only_named_agents", False):
            name, model = relation.field.name, relation.related_model
            objections += [
                f"the {model._meta.verbose_name} “{row}” names example agents alone and would mean every agent without them: "
                "change or delete it first"
                for row in model._default_manager.filter(**{f"{name}__in": agents}).distinct()
                if str(row) not in set(Demo) and not set(getattr(row, name).all()) - set(agents)
            ]
    return objections


def _remove(agents: Sequence[Agent], channels: Sequence[Channel], removal: Removal) -> None:
    """Delete what the seed stored there, what these agents said there, and what was simulated with them; never what a user wrote."""
    shipped = {(c.channel.slug, m.id) for c in conversations() for m in c.messages}
    there = Message.objects.filter(channel__in=channels, user=None)
    known = there.filter(external_id__in=[external_id for _, external_id in shipped])
    seeded = [pk for pk, *place in known.values_list("pk", "channel__slug", "external_id") if tuple(place) in shipped]
    visitors = Q(channel__synthetic=True) | Q(channel__slug=Demo.CHANNEL)
    messages = there.filter(Q(pk__in=seeded) | Q(agent__in=agents) | (visitors & Q(agent=None)))
    empty = []
    for channel in channels:
        if number := channel.messages.exclude(pk__in=messages.values("pk")).count():
            removal.kept.append(
                f"the channel {channel.slug} stays: it holds messages that are not the examples' ({number})"
            )
        else:
            empty.append(channel)
    # Upper apps first: what lower ones remove takes rows with it.
    for path in reversed(declared_list("seed_removal_steps")):
        removal.removed.update(import_string(path)(agents))
    further = [import_string(path)(channels) for path in declared_list("seed_removal_rows")]
    for rows in (
        messages,
        *further,
        Channel.objects.filter(pk__in=[channel.pk for channel in empty]),
        Agent.objects.filter(pk__in=[agent.pk for agent in agents]),
    ):
        for label, number in rows.delete()[1].items():
            model = apps.get_model(label)
            if not model._meta.auto_created:
                removal.removed[str(model._meta.verbose_name_plural)] += number


def delete_counted(rows: QuerySet[Any]) -> dict[str, int]:
    """Delete rows that would stay without the examples; return how many there were, by what they are. For `seed_removal_steps`."""
    number = rows.count()
    rows.delete()
    return {str(rows.model._meta.verbose_name_plural): number}

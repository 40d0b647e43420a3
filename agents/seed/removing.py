"""Remove the example data: agents, conversations, and what was measured of them. What is the team's own stays, and is named."""

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

DEMONSTRATION = r"^demo-([0-9]+(-picnic)?|gate)$"  # slugs of the channels of `manage.py demo`


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
        channels = list(_channels_of_examples().order_by("slug"))
        agents = _removable_agents(channels, removal)
        removal.objections = _objections(agents)
        if not removal.objections:
            _remove(agents, channels, removal)
        transaction.set_rollback(dry_run or bool(removal.objections))
    return removal


def _channels_of_examples() -> QuerySet[Channel]:
    """Return the channels of the seed and of the demonstration, and synthetic ones (simulations, debates) with examples alone.

    With examples alone: at least one example and no other agent spoke there, or takes part in what apps name in `seed_channel_agents`.
    """
    shipped = [conversation.channel.slug for conversation in conversations()]
    other_agents = Agent.objects.exclude(origin=Agent.Origin.SEED)
    has_examples = Q()
    has_others = Q()
    for path in ("messages__agent", *declared_list("seed_channel_agents")):
        with_examples = Channel.objects.filter(**{f"{path}__origin": Agent.Origin.SEED})
        with_others = Channel.objects.filter(**{f"{path}__in": other_agents})
        has_examples |= Q(pk__in=with_examples.values("pk"))
        has_others |= Q(pk__in=with_others.values("pk"))
    is_shipped = Q(slug__in=[*shipped, Demo.CHANNEL])
    is_demonstration = Q(synthetic=True, slug__regex=DEMONSTRATION)
    return Channel.objects.filter(is_shipped | is_demonstration | (Q(synthetic=True) & has_examples & ~has_others))


def _removable_agents(channels: Sequence[Channel], removal: Removal) -> list[Agent]:
    """Return the examples, without those that spoke in a channel of the team's own, or take part in something there, such as a debate.

    Each that stays is named in `removal.kept`, with the reason.

    Args:
        channels: Those of the examples; all others are the team's own.
    """
    agents = Agent.objects.filter(origin=Agent.Origin.SEED).order_by("slug")
    said_elsewhere = Message.objects.filter(agent__in=agents).exclude(channel__in=channels).order_by()
    counts = Counter(said_elsewhere.values_list("agent__slug", "channel__slug"))
    staying: set[str] = set()
    for (slug, channel), number in sorted(counts.items()):
        removal.kept.append(f"the agent {slug} stays: it spoke in your channel {channel} (messages: {number})")
        staying.add(slug)
    for path in declared_list("seed_removal_holds"):
        holds = import_string(path)
        for slug, reason in holds(agents, channels).items():
            if slug not in staying:
                removal.kept.append(f"the agent {slug} stays: {reason}")
                staying.add(slug)
    return list(agents.exclude(slug__in=staying))


def _objections(agents: Sequence[Agent]) -> list[str]:
    """Return a sentence on each row that names these agents and no other: where none is named, every agent is meant.

    So the row would apply to every agent once these are gone. Left out are rows of the demonstration, and kinds of rows for which no
    named agent means none (`only_named_agents`).
    """
    objections: list[str] = []
    for relation in Agent._meta.get_fields():
        if not isinstance(relation, ManyToManyRel) or getattr(relation.related_model, "only_named_agents", False):
            continue
        field_name = relation.field.name
        model = relation.related_model
        for row in model._default_manager.filter(**{f"{field_name}__in": agents}).distinct():
            is_of_demo = str(row) in set(Demo)
            names_others = set(getattr(row, field_name).all()) - set(agents)
            if not is_of_demo and not names_others:
                objections.append(
                    f"the {model._meta.verbose_name} “{row}” names example agents alone and would mean every agent without them: "
                    "change or delete it first"
                )
    return objections


def _remove(agents: Sequence[Agent], channels: Sequence[Channel], removal: Removal) -> None:
    """Delete what the seed stored, what these agents said, and what was simulated with them; never what a user wrote.

    Counts what goes in `removal.removed`, and names in `removal.kept` the channels that stay because others wrote in them.
    """
    messages = _removable_messages(agents, channels)
    empty_channels: list[int] = []
    for channel in channels:
        others = channel.messages.exclude(pk__in=messages.values("pk")).count()
        if others:
            removal.kept.append(
                f"the channel {channel.slug} stays: it holds messages that are not the examples' ({others})"
            )
        else:
            empty_channels.append(channel.pk)
    # Upper apps first: what lower ones remove takes rows with it.
    for path in reversed(declared_list("seed_removal_steps")):
        remove_rows = import_string(path)
        removal.removed.update(remove_rows(agents))
    removable: list[QuerySet[Any]] = [messages]
    for path in declared_list("seed_removal_rows"):
        rows_of = import_string(path)
        removable.append(rows_of(channels))
    removable.append(Channel.objects.filter(pk__in=empty_channels))
    removable.append(Agent.objects.filter(pk__in=[agent.pk for agent in agents]))
    for rows in removable:
        _, counts = rows.delete()
        for label, number in counts.items():
            model = apps.get_model(label)
            if not model._meta.auto_created:  # rows of many-to-many tables are not counted
                removal.removed[str(model._meta.verbose_name_plural)] += number


def _removable_messages(agents: Sequence[Agent], channels: Sequence[Channel]) -> QuerySet[Message]:
    """Return the messages of these channels that may go: shipped ones, those of these agents, and those of simulated visitors.

    Never one that a user wrote.
    """
    shipped: set[tuple[str, str]] = set()
    for conversation in conversations():
        shipped.update((conversation.channel.slug, message.id) for message in conversation.messages)
    in_channels = Message.objects.filter(channel__in=channels, user=None)
    may_be_shipped = in_channels.filter(external_id__in=[external_id for _, external_id in shipped])
    shipped_keys = [
        pk
        for pk, channel, external_id in may_be_shipped.values_list("pk", "channel__slug", "external_id")
        if (channel, external_id) in shipped
    ]
    # An outsider who is simulated, or plays a part in the demonstration; elsewhere an outsider may be a real person.
    is_of_visitor = (Q(channel__synthetic=True) | Q(channel__slug=Demo.CHANNEL)) & Q(agent=None)
    return in_channels.filter(Q(pk__in=shipped_keys) | Q(agent__in=agents) | is_of_visitor)


def delete_counted(rows: QuerySet[Any]) -> dict[str, int]:
    """Delete rows that would stay without the examples; return how many there were, by what they are. For `seed_removal_steps`."""
    number = rows.count()
    rows.delete()
    return {str(rows.model._meta.verbose_name_plural): number}

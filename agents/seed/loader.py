"""Load the example data: idempotent, never over a person's edits, dates relative to the day of seeding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import Annotated, Any, Literal

import yaml
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.module_loading import import_string
from pydantic import BaseModel, ConfigDict, Field

from agents.kit.capability import declared_list
from agents.models import Agent, Channel, ChannelMember, Message
from agents.personas.persona import Outcome, upsert_agent
from agents.personas.reader import read_personas
from agents.personas.shape import PersonaSpec
from agents.seed import FOLDER

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # both are safe; the C one is ten times faster
NOTE = "example data"


class _Strict(BaseModel):
    """Refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SeedChannel(_Strict):
    slug: str
    name: str
    kind: Literal["public", "private", "dm"]
    topic: str = ""


class SeedMessage(_Strict):
    """One message; `day` counts back from the day before seeding, so that a schedule over the last day finds none of them."""

    id: str
    author: str | None = None
    outsider: str = ""
    day: Annotated[int, Field(ge=-60, le=-1)]
    time: str
    build: str
    reply_to: str | None = None
    text: str

    def sent_at(self, now: datetime) -> datetime:
        """Return when it counts as sent, seeded at this moment."""
        day = timezone.localtime(now).date() + timedelta(days=self.day - 1)
        return timezone.make_aware(datetime.combine(day, time.fromisoformat(self.time)))


class SeedConversation(_Strict):
    channel: SeedChannel
    members: list[str]
    messages: list[SeedMessage]


@dataclass(slots=True)
class SeedReport:
    """What seeding did."""

    agents: Counter[str] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)
    channels: int = 0
    messages_created: int = 0
    messages_present: int = 0
    notes: list[str] = field(default_factory=list)


def personas() -> list[PersonaSpec]:
    """Return the example agents, as their files say."""
    return read_personas(FOLDER / "personas")


def conversations() -> Iterator[SeedConversation]:
    """Yield the conversation files, checked."""
    for path in sorted((FOLDER / "conversations").glob("*.yaml")):
        yield SeedConversation.model_validate(yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader))  # noqa: S506


def seed(*, reset: bool = False, now: datetime | None = None) -> SeedReport:
    """Load agents and conversations, and have other apps add theirs. Running it again adds what is missing.

    Personas that nobody edited become what the files say now; messages that are stored stay.

    Args:
        reset: Overwrite personas that a person edited since they were seeded.
        now: The moment of seeding, from which the days of messages count back; default now.
    """
    report = SeedReport()
    agents: dict[str, Agent] = {}
    for persona in personas():
        result = upsert_agent(values=persona, note=NOTE, reset=reset, source="seed")
        agents[persona.slug] = result.agent
        report.agents[result.outcome] += 1
        if result.outcome is Outcome.KEPT_EDITED:
            report.kept.append(persona.slug)
    for conversation in conversations():
        with transaction.atomic():
            _seed_conversation(conversation, agents, now or timezone.now(), report)
        report.channels += 1
    for path in declared_list("seed_steps"):  # what the apps above add; each takes the agents and returns a sentence
        add_examples = import_string(path)
        report.notes.append(add_examples(list(agents.values())))
    return report


def _seed_conversation(
    conversation: SeedConversation, agents: dict[str, Agent], now: datetime, report: SeedReport
) -> None:
    """Add what is missing of a conversation: channel, members, messages and their replies; what is stored stays as it is.

    Args:
        agents: By slug; all that the conversation names.
        report: Messages that were stored and made are counted in it.
    """
    info = conversation.channel
    channel, _ = Channel.objects.get_or_create(slug=info.slug, defaults=info.model_dump(exclude={"slug"}))
    for slug in conversation.members:
        ChannelMember.objects.get_or_create(channel=channel, agent=agents[slug])
    present = set(Message.objects.filter(channel=channel).values_list("external_id", flat=True))
    missing = [message for message in conversation.messages if message.id not in present]
    report.messages_present += len(conversation.messages) - len(missing)
    if not missing:
        return
    # Positions are taken in the database, under the row's lock: another writer in this channel gets other ones.
    Channel.objects.filter(pk=channel.pk).update(next_position=F("next_position") + len(missing))
    first_position = Channel.objects.values_list("next_position", flat=True).get(pk=channel.pk) - len(missing)
    rows: list[Message] = []
    for position, message in enumerate(missing, first_position):
        row = Message(
            channel=channel,
            position=position,
            external_id=message.id,
            agent=agents[message.author] if message.author else None,
            outsider=message.outsider,
            text=message.text,
            sent_at=message.sent_at(now),
            tags={"build": message.build},
        )
        rows.append(row)
    Message.objects.bulk_create(rows)
    report.messages_created += len(rows)
    _link_replies(channel, missing)


def _link_replies(channel: Channel, messages: Iterable[SeedMessage]) -> None:
    """Set the parents of those of these messages, all of them stored, that reply to others in the channel."""
    rows = {row.external_id: row for row in Message.objects.filter(channel=channel)}
    replies: list[Message] = []
    for message in messages:
        if message.reply_to:
            reply = rows[message.id]
            reply.parent = rows[message.reply_to]
            replies.append(reply)
    Message.objects.bulk_update(replies, ["parent"])

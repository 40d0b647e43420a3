"""Store messages that were sent elsewhere: once each, without answers of agents; only observing may follow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Annotated, Any, Self

from django.contrib.auth import get_user_model
from django.utils.module_loading import import_string
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator

from agents.kit.bodies import Anything, Body, Reads, Tags, fault
from agents.kit.capability import declared_list
from agents.kit.text.cleaner import TEXT_LIMIT
from agents.kit.text.fences import check_name
from agents.kit.text.moments import read_moment
from agents.models import Agent, Channel, Message
from agents.models.conversations import names_of_agents, outsider_name
from agents.transcripts.prepare import Author, Prepared, Target
from agents.transcripts.sampling import ConversationSampler, find_sampler, sample_messages
from agents.transcripts.store import Rights, check_rights, link_orphans, write_batch
from agents.turn.pipeline import pipeline

MOST_MESSAGES = 1_000  # per call: one transaction, in which SQLite lets no other process write
# Called with new messages inside the transaction that stores them; returns how many it will judge.
Observer = Callable[[Sequence[Message]], int]


class IngestRefused(ValueError):
    """Messages that are refused; nothing was stored. `errors` says per place, e.g. ``messages[3].agent``, what is wrong."""

    def __init__(self, errors: dict[str, str]) -> None:
        self.errors = errors
        super().__init__("; ".join(errors.values()))


Exact = Annotated[str, StringConstraints(strip_whitespace=False, pattern=r"\S", max_length=200)]
Slug = Annotated[str, StringConstraints(pattern="^[-a-zA-Z0-9_]+$", max_length=120)]
Moment = Annotated[datetime, Reads(read_moment, "a time such as 2026-11-22T14:30:00Z, or null", format="date-time")]
_AUTHORS = ("agent", "user", "outsider")


class Spoken(Body):
    """A message as it was said. Exactly one of `agent`, `user` and `outsider` says who."""

    external_id: Exact = Field(description="its id in its channel; the same again is the same message")
    text: Annotated[str, StringConstraints(strip_whitespace=False, max_length=TEXT_LIMIT)]
    channel: Slug = Field("", description="slug; default that of the request")
    agent: str = Field("", min_length=1, max_length=120, description="slug")
    user: str = Field("", min_length=1, max_length=150, description="name of a user")
    outsider: Annotated[str, AfterValidator(check_name)] = Field(
        "", min_length=1, max_length=200, description="name of a speaker who is neither agent nor user"
    )
    sent_at: Moment | None = Field(None, description="UTC where it says no zone")
    parent: Exact = Field("", description="external_id of the message whose thread it is in")
    tags: Tags = Field({})
    payload: Anything = Field({}, description="typed data beside the text")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _one_author(self) -> Self:
        authors = [name for name in _AUTHORS if getattr(self, name)]
        if len(authors) != 1:
            text = f"give exactly one of {', '.join(_AUTHORS)}; {' and '.join(authors) or 'none'} given"
            raise fault("agent", text)
        return self


class NewMessages(Body):
    """Messages of one or several channels, in the order in which they were said."""

    channel: Slug = Field("", description="slug, for messages that name none; made where there is none, by who may")
    tags: Tags = Field({}, description="put on every message, over its own")
    messages: list[Spoken] = Field(min_length=1, max_length=MOST_MESSAGES)

    @model_validator(mode="after")
    def _placed(self) -> Self:
        for number, message in enumerate(self.messages):
            message.channel = message.channel or self.channel
            message.tags = {**message.tags, **self.tags}
            if not message.channel:
                text = "channel is missing; allowed: a slug, here or for the whole request"
                raise fault(f"messages[{number}].channel", text)
        return self


class Ingested(BaseModel):
    """What became of a batch. ``received = imported + duplicates + sampled_out``."""

    received: int
    imported: int
    duplicates: int = Field(description="stored before, and left as they are")
    sampled_out: int = Field(
        description="left out on purpose: of new conversations that `ingest_keep` does not keep; `notes` say by which setting"
    )
    other_author: int = Field(description="duplicates that are stored under another author")
    observed: int = Field(description="of the imported, how many wait to be judged")
    replies_without_parent: int = Field(description="sent again after it, they are linked")
    notes: list[str] = Field(
        description="what will not be done with the imported ones, and the setting that decides it"
    )


def ingest_messages(batch: NewMessages, *, rights: Rights | None = None) -> Ingested:
    """Store messages that were said elsewhere, in the order given; those stored already stay as they are.

    New conversations may be sampled: `sample_messages`. What is left is one transaction: all of it or none. No agent sees the messages;
    only the `ingest_observers` are called, and the stages may add a note.

    Args:
        rights: What the sender may do; everything by default.

    Raises:
        NotEntitled: They need a channel or a member more than `rights` allow, or are another user's.
        IngestRefused: One names an agent or user that does not exist or a synthetic channel.
    """
    prepared = _prepared(batch.messages)
    check_rights(((message.target.slug, message.author) for message in prepared), rights or Rights())
    sampler = find_sampler()
    sampled = sample_messages(prepared, sampler)
    stored = store_ingested(sampled.kept, sampler=sampler)
    return stored.model_copy(
        update={
            "received": len(prepared),
            "sampled_out": sampled.number,
            "notes": [*sampled.notes, *stored.notes],
        }
    )


def store_ingested(
    prepared: Sequence[Prepared],
    *,
    rights: Rights | None = None,
    models: Collection[str] = (),
    sampler: ConversationSampler | None = None,
) -> Ingested:
    """Store messages that are ready, once each and all or none, and have the `ingest_observers` see the new ones.

    Args:
        prepared: The messages, in their order.
        rights: What the sender may do; everything by default.
        models: Names of outsiders that are models, no people: what they say is not shown to the stages, which add notes.
        sampler: What drew the conversations they are of; it counts those that have new messages.

    Raises:
        NotEntitled: They need a channel or a member more than `rights` allow, or are another user's.
    """
    check_rights(((message.target.slug, message.author) for message in prepared), rights or Rights())
    observers: list[Observer] = [import_string(path) for path in declared_list("ingest_observers")]
    stored: list[Message] = []
    observed_counts: list[int] = []

    def observe(new: Sequence[Message]) -> None:
        stored.extend(new)
        if sampler is not None:
            begun = {message.channel.slug for message in new if message.position == 1}
            sampler.count_kept({message.channel.slug for message in new}, begun=begun)
        observed_counts.extend(observer(new) for observer in observers)

    result = write_batch(prepared, on_new=observe)
    return Ingested(
        received=len(prepared),
        imported=result.imported,
        duplicates=result.duplicates,
        sampled_out=0,
        other_author=result.other_author,
        observed=sum(observed_counts),
        replies_without_parent=link_orphans(result.orphans) if result.orphans else 0,
        notes=pipeline().ingested([message for message in stored if message.outsider not in models]),
    )


def _prepared(messages: Sequence[Spoken]) -> list[Prepared]:
    """Return the messages as they are stored, in their order.

    Raises:
        IngestRefused: One names an agent or user that does not exist, or a synthetic channel; `errors` has all such messages.
    """
    agent_slugs = {message.agent for message in messages if message.agent}
    usernames = {message.user for message in messages if message.user}
    agents = dict(Agent.objects.filter(slug__in=agent_slugs).values_list("slug", "pk"))
    users: dict[str, int] = {}
    if usernames:
        users = dict(get_user_model().objects.filter(username__in=usernames).values_list("username", "pk"))
    targets = {message.channel: Target(slug=message.channel, name=message.channel) for message in messages}
    synthetic = set(Channel.objects.filter(slug__in=targets, synthetic=True).values_list("slug", flat=True))
    errors: dict[str, str] = {}
    for number, message in enumerate(messages):
        path = f"messages[{number}]"
        if message.agent and message.agent not in agents:
            errors[f"{path}.agent"] = f"there is no agent {message.agent!r}; make it first, or send `outsider`"
        if message.user and message.user not in users:
            errors[f"{path}.user"] = f"there is no user {message.user!r}; send `outsider` for a speaker who is none"
        if message.channel in synthetic:
            errors[f"{path}.channel"] = (
                f"channel {message.channel!r} is synthetic: real messages are never mixed with it"
            )
    if errors:
        raise IngestRefused(errors)
    names_taken = names_of_agents()
    prepared: list[Prepared] = []
    for message in messages:
        author = Author(
            agent_id=agents.get(message.agent),
            slug=message.agent,
            user_id=users.get(message.user),
            outsider=outsider_name(message.outsider, names_taken),
        )
        prepared.append(
            Prepared(
                target=targets[message.channel],
                key=message.external_id,
                author=author,
                text=message.text,
                sent_at=message.sent_at,
                parent_key=message.parent,
                tags=message.tags,
                payload=message.payload,
                synthetic=False,
                idempotency_key="",
            )
        )
    return prepared

"""What may be said at all, by whom, and where: the checks before any stage sees a draft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, Subquery

from agents.llm.extraction import storable
from agents.models import Agent, Channel, ChannelMember, Message, PersonaVersion
from agents.models.conversations import validate_tags

MAX_CHARACTERS = 100_000
KEY_CHARACTERS = 200


class SendRefused(ValueError):
    """The message cannot be said at all. Its text names what is wrong and what is allowed."""


class RequiredStageFailed(SendRefused):
    """A stage without which nothing may be said failed."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What one query says of a send: may this agent speak here, as which version, and was it said before."""

    is_active: bool
    is_member: bool
    persona_version_id: int | None
    earlier_id: int | None


def admit(agent: Agent, channel: Channel, key: str) -> Admission:
    """One query: the agent's state, its membership, its latest persona version, and the message an earlier send of this key made.

    Raises:
        SendRefused: The agent may not speak here.
    """
    version = PersonaVersion.objects.filter(agent=OuterRef("pk")).order_by("-number").values("pk")[:1]
    columns = {
        "member": Exists(ChannelMember.objects.filter(agent=OuterRef("pk"), channel=channel)),
        "version": Subquery(version),
    }
    if key:
        columns["earlier"] = Subquery(Message.objects.filter(idempotency_key=key).order_by().values("pk")[:1])
    row = Agent.objects.filter(pk=agent.pk).annotate(**columns).values("is_active", *columns).first()
    if row is None:
        raise SendRefused(f"agent {agent.slug!r} no longer exists")
    admission = Admission(row["is_active"], row["member"], row["version"], row.get("earlier"))
    if admission.earlier_id is None:
        if not admission.is_active:
            raise SendRefused(f"agent {agent.slug!r} is inactive; allowed: active agents")
        if not admission.is_member:
            joined = Channel.objects.filter(memberships__agent=agent).order_by("slug").values_list("slug", flat=True)
            allowed = ", ".join(joined[:30]) or "none, it has joined no channel"
            raise SendRefused(f"agent {agent.slug!r} is not a member of channel {channel.slug!r}; allowed: {allowed}")
    return admission


def fault_of(text: str) -> str | None:
    """What is wrong with a text as a message; None when it can be said and stored."""
    if not text.strip():
        return "the text is empty; allowed: 1 to 100,000 characters, not only white space"
    if len(text) > MAX_CHARACTERS:
        return f"the text has {len(text):,} characters; allowed: at most {MAX_CHARACTERS:,}"
    if storable(text) != text:
        return "the text holds a NUL character or half of a surrogate pair; allowed: any other Unicode text"
    return None


def check_extras(key: str, tags: Mapping[str, str] | None) -> None:
    """Whether idempotency key and tags can be stored.

    Raises:
        SendRefused: They cannot.
    """
    if len(key) > KEY_CHARACTERS or storable(key) != key:
        raise SendRefused(
            f"idempotency_key has {len(key)} characters; allowed: at most {KEY_CHARACTERS}, without NUL characters"
        )
    if tags:
        try:
            validate_tags(dict(tags))
        except ValidationError as error:
            raise SendRefused("tags: " + " ".join(error.messages)) from error

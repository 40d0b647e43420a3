"""Store what spans of OpenTelemetry say while it happens: each message once, however often its span or its history is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any

from django.db import transaction
from pydantic import BaseModel, Field

from agents.models import Agent, Channel, Message
from agents.transcripts.ingest import IngestRefused, store_ingested
from agents.transcripts.json_input import Row
from agents.transcripts.prepare import Preparer, Speakers, Targets, slug_of
from agents.transcripts.readers.otel import calls_in, named
from agents.transcripts.readers.traces import Call, conversations
from agents.transcripts.records import Cleaner, TranscriptError
from agents.transcripts.store import Rights

REMEMBERED = 200  # messages of a conversation that a call may send again
CHUNK = 500
MOST_SPANS = MOST_NEW = (
    5_000  # spans and new messages of a batch: one transaction, in which SQLite lets no other process write
)


class IngestedSpans(BaseModel):
    """What became of a batch of spans; `partialSuccess` is OTLP's, and empty: a batch is stored as a whole."""

    partialSuccess: dict[str, Any] = Field({}, description="empty: OTLP's way to say that nothing was rejected")
    spans: int
    imported: int = Field(description="messages")
    duplicates: int = Field(description="messages that were stored before")
    observed: int = Field(description="of the imported, how many wait to be judged")
    system_prompts: int
    skipped_by_reason: dict[str, int] = Field(description="what is no message, or was said before")
    notes: list[str] = Field(description="what will not be done with the imported ones, and whose agent is not clear")
    channels: dict[str, str] = Field({}, description="by slug, where to find them")


def ingest_spans(batch: dict[str, Any], *, rights: Rights | None = None) -> IngestedSpans:
    """Store the messages of a batch of spans, each conversation in the channel of its id; no agent answers.

    A span whose messages are stored already adds nothing. An agent is known by its slug or display name in ``gen_ai.agent.name``.

    Raises:
        TranscriptError: It is no batch of spans, or a too large one.
        NotEntitled: It needs a channel or a member more than `rights` allow.
        IngestRefused: A conversation has the name of a synthetic channel.
    """
    calls = named(list(calls_in(Row(batch, path="the body", line=0, what="the body"))))
    _check_size(len(calls), "spans", MOST_SPANS)
    slugs = _slugs({call.agent for call in calls})
    calls = [
        replace(call, conversation=_slug(call.conversation), agent=slugs.get(call.agent.casefold(), call.agent))
        for call in calls
    ]
    unclear: list[str] = []
    preparer = Preparer(
        path="the body",
        speakers=Speakers({}, on_unknown=lambda _name, why: unclear.append(f"stored as an outsider's: {why}")),
        targets=Targets(wished="", stem="spans"),
        tags={},
        zone=UTC,
    )
    with transaction.atomic():
        channels = Channel.objects.select_for_update().filter(slug__in={call.conversation for call in calls})
        for channel in channels:
            if channel.synthetic:
                text = (
                    f"the conversation {channel.slug!r} is a synthetic channel: real messages are never mixed with it"
                )
                raise IngestRefused({"resourceSpans": text})
        spoken = {channel.slug: _said_last(channel) for channel in channels}
        new = _new(calls)
        prepared = list(preparer.messages(conversations(new, spoken)))
        _check_size(len(prepared), "new messages", MOST_NEW)
        done = store_ingested(prepared, rights=rights)
    skipped = dict(preparer.tally.skipped)
    if again := len(calls) - len(new):
        skipped["span stored before"] = again
    return IngestedSpans(
        spans=len(calls),
        imported=done.imported,
        duplicates=done.duplicates,
        observed=done.observed,
        system_prompts=preparer.tally.system_prompts,
        skipped_by_reason=skipped,
        notes=[*done.notes, *unclear],
        channels=dict.fromkeys(preparer.tally.channels, ""),
    )


def _check_size(number: int, what: str, most: int) -> None:
    if number > most:
        text = (
            f"{number:,} {what} in one request; allowed: {most:,}, set your exporter's or collector's batch size lower"
        )
        raise TranscriptError("the body", 0, text)


def _slugs(names: set[str]) -> dict[str, str]:
    """The slug of the one agent that has this display name, whatever the case."""
    slugs: dict[str, list[str]] = {}
    for slug, name in Agent.objects.values_list("slug", "display_name"):
        slugs.setdefault(name.casefold(), []).append(slug)
    return {name.casefold(): slugs[name.casefold()][0] for name in names if len(slugs.get(name.casefold(), ())) == 1}


def _slug(conversation: str) -> str:
    """The slug of a conversation's channel: its id where that is one, else what is left of it with a few digits of the whole."""
    slug = slug_of(conversation)
    if slug and slug == conversation:
        return slug
    return f"{slug[:100] or 'conversation'}-{hashlib.sha256(conversation.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _said_last(channel: Channel) -> list[tuple[str, str]]:
    """The last messages of a channel as (speaker, text), an agent by its slug, in their order."""
    newest = channel.messages.select_related("agent", "user").order_by("-position")[:REMEMBERED]
    return [(row.agent.slug if row.agent else row.author_name, row.text) for row in newest][::-1]


def _new(calls: Sequence[Call]) -> list[Call]:
    """The calls of which no message is stored."""
    clean = Cleaner().text  # as ids are stored
    places = {
        clean(f"{call.id}:{n}"): call.id for call in calls if call.id for n in range(len(call.asked) + len(call.said))
    }
    keys, there = list(places), set[str]()
    for start in range(0, len(keys), CHUNK):
        part = Message.objects.filter(
            channel__slug__in={call.conversation for call in calls}, external_id__in=keys[start : start + CHUNK]
        )
        there |= {places[key] for key in part.values_list("external_id", flat=True)}
    return [call for call in calls if call.id not in there]

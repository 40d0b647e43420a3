"""Store what spans of OpenTelemetry say while it happens: each message once, however often its span or its history is sent."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any

from django.db import transaction
from django.utils.module_loading import import_string
from pydantic import BaseModel, Field

from agents.kit.capability import declared_list
from agents.kit.files.json_input import Row
from agents.kit.files.source import FileError
from agents.kit.models import TraceSpan
from agents.kit.text.cleaner import Cleaner
from agents.models import Agent, Channel, ChannelMember, Message
from agents.transcripts.ingest import IngestRefused, Observer, store_ingested
from agents.transcripts.prepare import Author, Preparer, Speakers, Targets, slug_of
from agents.transcripts.readers.otel import AGENT, calls_in, with_conversations
from agents.transcripts.readers.traces import ASSISTANT, Call, conversations
from agents.transcripts.records import SourceMessage
from agents.transcripts.store import Rights, check_rights

REMEMBERED = 200  # messages of a conversation that a call may send again
CHUNK = 500
LONGEST_ID = 64  # characters of the id of a span or a trace; of longer ones nothing is remembered
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
    attributed: int = Field(description="messages of earlier batches whose agent this one names")
    notes: list[str] = Field(description="what will not be done with the imported ones, and whose agent is not clear")
    channels: dict[str, str] = Field({}, description="by slug, where to find them")


def ingest_spans(batch: dict[str, Any], *, rights: Rights | None = None) -> IngestedSpans:
    """Store the messages of a batch of spans, each conversation in the channel of its id; no agent answers.

    A span whose messages are stored already adds nothing. An agent is known by its slug or display name in ``gen_ai.agent.name`` of the
    span, else of the nearest one around it in its trace, also when that one comes earlier or later.

    Raises:
        FileError: It is no batch of spans, or a too large one.
        NotEntitled: It needs a channel or a member more than `rights` allow.
        IngestRefused: A conversation has the name of a synthetic channel.
    """
    calls = with_conversations(list(calls_in(Row(batch, path="the body", line=0, what="the body"))))
    _check_size(len(calls), "spans", MOST_SPANS)
    clean = Cleaner().text
    calls = [
        replace(
            call,
            id=clean(call.id),
            trace=clean(call.trace),
            parent=clean(call.parent),
            agent=clean(call.agent),
            conversation=_slug(call.conversation),
        )
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
        rows = _remembered(calls)
        names = _agents(rows)
        calls = [replace(call, agent=call.agent or names.get((call.trace, call.id), "")) for call in calls]
        slugs = _slugs({call.agent for call in calls} | {*names.values(), *(row.stored_as for row in rows)})
        calls = [replace(call, agent=slugs.get(call.agent.casefold(), call.agent)) for call in calls]
        channels = Channel.objects.select_for_update().filter(slug__in={call.conversation for call in calls})
        for channel in channels:
            if channel.synthetic:
                text = (
                    f"the conversation {channel.slug!r} is a synthetic channel: real messages are never mixed with it"
                )
                raise IngestRefused({"resourceSpans": text})
        attributed, heard = _attribute(rows, names, slugs, preparer.speakers, rights or Rights())
        spoken = {channel.slug: _said_last(channel) for channel in channels}
        new = _new(calls)
        prepared = list(preparer.messages(conversations(new, spoken)))
        _check_size(len(prepared), "new messages", MOST_NEW)
        models = {ASSISTANT} | {call.agent for call in calls if call.agent}
        done = store_ingested(prepared, rights=rights, models=models)
        observers: list[Observer] = [import_string(path) for path in declared_list("ingest_observers")]
        observed = done.observed + sum(observer(heard) for observer in observers if heard)
    notes = list(done.notes)
    if unknown := Counter(message.author.outsider for message in prepared if message.author.outsider in models):
        shown = ", ".join(f"{count} of {name[:60]!r}" for name, count in unknown.most_common(5))
        notes.append(
            f"answers of no agent, which are not measured: {shown}. An agent is known by its slug or display name in {AGENT}, of the span "
            "or of one around it, which may come later"
        )
    skipped = dict(preparer.tally.skipped)
    if again := len(calls) - len(new):
        skipped["span stored before"] = again
    return IngestedSpans(
        spans=len(calls),
        imported=done.imported,
        duplicates=done.duplicates,
        observed=observed,
        system_prompts=preparer.tally.system_prompts,
        skipped_by_reason=skipped,
        attributed=attributed,
        notes=[*notes, *unclear],
        channels=dict.fromkeys(preparer.tally.channels, ""),
    )


def _remembered(calls: Sequence[Call]) -> list[TraceSpan]:
    """Store what joins the spans of their traces, and return all that came of these traces so far."""
    placed = [
        call
        for call in calls
        if call.trace and call.id and max(map(len, (call.trace, call.id, call.parent))) <= LONGEST_ID
    ]
    TraceSpan.objects.bulk_create(
        [
            TraceSpan(
                trace=call.trace,
                span=call.id,
                around=call.parent,
                agent=call.agent[:200],
                conversation=call.conversation,
                stored_as=call.agent[:200],
            )
            for call in placed
        ],
        ignore_conflicts=True,
        batch_size=CHUNK,
    )
    traces = sorted({call.trace for call in placed})
    parts = (traces[start : start + CHUNK] for start in range(0, len(traces), CHUNK))
    return [row for part in parts for row in TraceSpan.objects.filter(trace__in=part)]


def _agents(rows: Sequence[TraceSpan]) -> dict[tuple[str, str], str]:
    """The agent that a span or the nearest one around it names, by trace and span; without those that none is named for."""
    spans = {(row.trace, row.span): row for row in rows}
    agents: dict[tuple[str, str], str] = {}
    for key in spans:
        path: dict[tuple[str, str], None] = {}
        here, agent = key, ""
        while not agent and here in spans and here not in path:
            path[here] = None
            agent = agents.get(here) or spans[here].agent
            here = (here[0], spans[here].around)
        if agent:
            agents |= dict.fromkeys(path, agent)
    return agents


def _attribute(
    rows: Sequence[TraceSpan],
    names: Mapping[tuple[str, str], str],
    slugs: Mapping[str, str],
    speakers: Speakers,
    rights: Rights,
) -> tuple[int, list[Message]]:
    """Give the answers of earlier spans the agent that the nearest span around them names now.

    Returns:
        How many changed, and those that are an agent's and were none's before.

    Raises:
        NotEntitled: An agent would have to join a channel, which needs more than `rights`.
    """

    def author(name: str) -> Author:
        return speakers.author(SourceMessage(speaker=slugs.get(name.casefold(), name) or ASSISTANT, text="", line=0))

    late = [row for row in rows if not row.agent and names.get((row.trace, row.span), "") != row.stored_as]
    groups: dict[tuple[str, str], dict[str, str]] = {}  # conversation and name before: span to name now
    for row in late:
        groups.setdefault((row.conversation, row.stored_as), {})[row.span] = names[row.trace, row.span]
    since = min((row.created_at for row in late), default=None)
    changed, heard, authors = list[Message](), list[Message](), dict[tuple[str, Author], None]()
    for (conversation, was), now in groups.items():
        before = author(was)
        answers = Message.objects.filter(
            channel__slug=conversation,
            agent=before.agent_id,
            user=None,
            outsider=before.outsider,
            created_at__gte=since,
        )
        for message in answers:
            name = now.get(message.external_id.rpartition(":")[0])
            if name is None:
                continue
            after = author(name)
            message.agent_id, message.outsider = after.agent_id, after.outsider
            changed.append(message)
            authors[conversation, after] = None
            if not was and after.agent_id is not None:
                heard.append(message)
    for row in late:
        row.stored_as = names[row.trace, row.span]
    check_rights(authors, rights)
    Message.objects.bulk_update(changed, ["agent", "outsider"], batch_size=250)
    members = {(message.channel_id, message.agent_id) for message in changed if message.agent_id is not None}
    ChannelMember.objects.bulk_create(
        [ChannelMember(channel_id=channel, agent_id=agent) for channel, agent in members], ignore_conflicts=True
    )
    TraceSpan.objects.bulk_update(late, ["stored_as"], batch_size=250)
    return len(changed), heard


def _check_size(number: int, what: str, most: int) -> None:
    if number > most:
        text = (
            f"{number:,} {what} in one request; allowed: {most:,}, set your exporter's or collector's batch size lower"
        )
        raise FileError("the body", 0, text)


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
        clean(f"{call.id}:{n}"): call.id
        for call in calls
        if call.id
        for n in range(len(call.inputs) + len(call.outputs))
    }
    keys, there = list(places), set[str]()
    for start in range(0, len(keys), CHUNK):
        part = Message.objects.filter(
            channel__slug__in={call.conversation for call in calls}, external_id__in=keys[start : start + CHUNK]
        )
        there |= {places[key] for key in part.values_list("external_id", flat=True)}
    return [call for call in calls if call.id not in there]

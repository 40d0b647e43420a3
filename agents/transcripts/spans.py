"""Store what spans of OpenTelemetry say while it happens: each message once, however often its span or its history is sent."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from agents.transcripts.prepare import Author, Prepared, Preparer, Speakers, Targets, slug_of
from agents.transcripts.readers.otel import AGENT, calls_in, with_conversations
from agents.transcripts.readers.traces import ASSISTANT, Call, PastMessage, conversations
from agents.transcripts.records import SourceMessage
from agents.transcripts.sampling import ConversationSampler, Draw, Sampled, find_sampler, notes_on
from agents.transcripts.store import Rights, check_rights

REMEMBERED = 200  # messages of a conversation that a call may send again
CHUNK = 500
LONGEST_ID = 64  # characters of the id of a span or a trace; of longer ones nothing is remembered
MOST_SPANS = 5_000  # of a batch: one transaction, in which SQLite lets no other process write
MOST_NEW = 5_000  # messages of a batch, for the same reason


class IngestedSpans(BaseModel):
    """What became of a batch of spans; `partialSuccess` is OTLP's, and empty: a batch is stored as a whole."""

    partialSuccess: dict[str, Any] = Field({}, description="empty: OTLP's way to say that nothing was rejected")
    spans: int
    imported: int = Field(description="messages")
    duplicates: int = Field(description="messages that were stored before")
    sampled_out: int = Field(
        description="messages left out on purpose, each time they are sent: of new conversations that `ingest_keep` does not keep; `notes` "
        "say by which setting"
    )
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
    calls = _read_spans(batch)
    ambiguous: list[str] = []

    def note_ambiguous(_speaker: str, why: str) -> None:
        ambiguous.append(f"stored as an outsider's: {why}")

    preparer = Preparer(
        path="the body",
        speakers=Speakers({}, on_unknown=note_ambiguous),
        targets=Targets(wished="", stem="spans"),
        tags={},
        zone=UTC,
    )
    number_of_spans = len(calls)
    sampler = find_sampler()
    sampled = _sample_calls(calls, sampler)
    with transaction.atomic():
        spans = _remembered_spans(sampled.kept)
        agents = _agents_of(spans)
        calls = _with_agent_slugs(sampled.kept, agents)
        conversation_slugs = {call.conversation for call in calls}
        channels = list(Channel.objects.select_for_update().filter(slug__in=conversation_slugs))
        _refuse_synthetic(channels)
        attribution = _attribute(spans, agents, preparer.speakers, rights or Rights())
        new_calls = _without_stored(calls)
        spoken = {channel.slug: said_last(channel) for channel in channels}
        prepared = _with_probabilities(preparer.messages(conversations(new_calls, spoken)), sampled.draws)
        _check_size(len(prepared), "new messages", MOST_NEW)
        models = {ASSISTANT} | {call.agent for call in calls if call.agent}
        ingested = store_ingested(prepared, rights=rights, models=models, sampler=sampler)
        observed = ingested.observed + _observe(attribution.newly_agents)
    skipped = dict(preparer.counts.skipped)
    if len(new_calls) < len(calls):
        skipped["span stored before"] = len(calls) - len(new_calls)
    return IngestedSpans(
        spans=number_of_spans,
        imported=ingested.imported,
        duplicates=ingested.duplicates,
        sampled_out=sampled.number,
        observed=observed,
        system_prompts=preparer.counts.system_prompts,
        skipped_by_reason=skipped,
        attributed=attribution.changed,
        notes=[*sampled.notes, *ingested.notes, *_unmeasured_note(prepared, models), *ambiguous],
        channels=dict.fromkeys(preparer.counts.channels, ""),  # the view adds where to find them
    )


def _read_spans(batch: dict[str, Any]) -> list[Call]:
    """Return the spans of a batch with cleaned ids, each conversation by the slug of its channel.

    Raises:
        FileError: It is no batch of spans, or has too many.
    """
    calls = with_conversations(list(calls_in(Row(batch, path="the body", line=0, what="the body"))))
    _check_size(len(calls), "spans", MOST_SPANS)
    clean = Cleaner().text
    cleaned: list[Call] = []
    for call in calls:
        cleaned.append(
            replace(
                call,
                id=clean(call.id),
                trace=clean(call.trace),
                parent=clean(call.parent),
                agent=clean(call.agent),
                conversation=_channel_slug(call.conversation),
            )
        )
    return cleaned


def _sample_calls(calls: Sequence[Call], sampler: ConversationSampler | None) -> Sampled[Call]:
    """Leave out the spans of new conversations that are not drawn, by the agents that these spans and those around them name.

    Of what is left out nothing is stored, nor remembered of its traces. An agent that a span around it names later decides nothing.
    """
    if sampler is None:
        return Sampled(kept=calls)
    draws = sampler.draw(_agents_by_conversation(calls))
    kept = [call for call in calls if call.conversation not in draws or draws[call.conversation].kept]
    dropped = [call for call in calls if call.conversation in draws and not draws[call.conversation].kept]
    left_out: Counter[str] = Counter()
    for record in conversations(dropped, {}):
        if isinstance(record, SourceMessage) and record.kind != "system":
            left_out[record.channel] += 1
    return Sampled(kept=kept, draws=draws, left_out=left_out, notes=notes_on(left_out, draws))


def _agents_by_conversation(calls: Sequence[Call]) -> dict[str, set[int]]:
    """Return of each conversation the agents (pk) that its spans, or the nearest ones around them that are known so far, name."""
    rows = _span_rows(calls)
    row_by_span = {(row.trace, row.span): row for row in rows}
    for row in _spans_of_traces({row.trace for row in rows}):
        row_by_span[row.trace, row.span] = row
    agents = _agents_of(list(row_by_span.values()))
    slugs: dict[str, set[str]] = {}
    for call in _with_agent_slugs(calls, agents):
        slugs.setdefault(call.conversation, set()).add(call.agent)
    keys = dict(Agent.objects.filter(slug__in=set().union(*slugs.values())).values_list("slug", "pk"))
    return {
        conversation: {keys[slug] for slug in agent_slugs if slug in keys}
        for conversation, agent_slugs in slugs.items()
    }


def _with_probabilities(messages: Iterable[Prepared], draws: Mapping[str, Draw]) -> list[Prepared]:
    """Return the messages, those of conversations that were drawn with the chance of being kept."""
    prepared: list[Prepared] = []
    for message in messages:
        draw = draws.get(message.target.slug)
        if draw is not None:
            message.target.inclusion_probability = draw.probability  # all messages of the channel share its target
        prepared.append(message)
    return prepared


def _remembered_spans(calls: Sequence[Call]) -> list[TraceSpan]:
    """Store what joins the spans of their traces, and return all that came of these traces so far.

    A span that is stored already stays as it is.
    """
    rows = _span_rows(calls)
    TraceSpan.objects.bulk_create(rows, ignore_conflicts=True, batch_size=CHUNK)
    return _spans_of_traces({row.trace for row in rows})


def _span_rows(calls: Sequence[Call]) -> list[TraceSpan]:
    """Return what joins the spans of their traces, not stored yet; without those that have no trace or id, or a very long one."""
    rows: list[TraceSpan] = []
    for call in calls:
        longest = max(len(call.trace), len(call.id), len(call.parent))
        if call.trace and call.id and longest <= LONGEST_ID:
            agent = call.agent[:200]
            rows.append(
                TraceSpan(
                    trace=call.trace,
                    span=call.id,
                    around=call.parent,
                    agent=agent,
                    conversation=call.conversation,
                    stored_as=agent,
                )
            )
    return rows


def _spans_of_traces(traces: Collection[str]) -> list[TraceSpan]:
    """Return the spans of these traces that are remembered."""
    ordered = sorted(traces)
    remembered: list[TraceSpan] = []
    for start in range(0, len(ordered), CHUNK):
        remembered += TraceSpan.objects.filter(trace__in=ordered[start : start + CHUNK])
    return remembered


@dataclass(frozen=True, slots=True)
class AgentsOfSpans:
    """Which agents spans name.

    Attributes:
        names: By trace and span: what the span or the nearest one around it calls its agent; without those that none is named for.
        slugs: By folded display name: the slug of the one agent that has it.
    """

    names: Mapping[tuple[str, str], str]
    slugs: Mapping[str, str]

    def name_of(self, span: TraceSpan) -> str:
        """Return what a span's agent is called; empty where none is named."""
        return self.names.get((span.trace, span.span), "")

    def slug_of(self, name: str) -> str:
        """Return the slug of the agent with a display name; the name itself where no single agent has it."""
        return self.slugs.get(name.casefold(), name)


def _agents_of(spans: Sequence[TraceSpan]) -> AgentsOfSpans:
    """Find the agent that each span or the nearest one around it names, and the agents that are known by a display name.

    Each way outwards ends at a span that names an agent, at one whose answer is known, or where no span around it came yet.
    """
    by_key = {(span.trace, span.span): span for span in spans}
    names: dict[tuple[str, str], str] = {}
    for first_key in by_key:
        key = first_key
        path: dict[tuple[str, str], None] = {}  # a set that keeps the order; broken spans may stand in a circle
        name = ""
        while not name and key in by_key and key not in path:
            path[key] = None
            name = names.get(key) or by_key[key].agent
            key = (key[0], by_key[key].around)
        if name:
            names |= dict.fromkeys(path, name)
    slugs_by_name: dict[str, list[str]] = {}
    for slug, display_name in Agent.objects.values_list("slug", "display_name"):
        slugs_by_name.setdefault(display_name.casefold(), []).append(slug)
    unique_slugs = {name: slugs[0] for name, slugs in slugs_by_name.items() if len(slugs) == 1}
    return AgentsOfSpans(names, unique_slugs)


def _with_agent_slugs(calls: Sequence[Call], agents: AgentsOfSpans) -> list[Call]:
    """Return the calls with the slugs of their agents, those of spans around them where they name none."""
    with_slugs: list[Call] = []
    for call in calls:
        name = call.agent or agents.names.get((call.trace, call.id), "")
        with_slugs.append(replace(call, agent=agents.slug_of(name)))
    return with_slugs


def _refuse_synthetic(channels: Iterable[Channel]) -> None:
    for channel in channels:
        if channel.synthetic:
            why = f"the conversation {channel.slug!r} is a synthetic channel: real messages are never mixed with it"
            raise IngestRefused({"resourceSpans": why})


@dataclass(frozen=True, slots=True)
class Attribution:
    """Answers of earlier spans that got another author: how many changed, and those that are an agent's and were none's before."""

    changed: int
    newly_agents: list[Message]


def _attribute(spans: Sequence[TraceSpan], agents: AgentsOfSpans, speakers: Speakers, rights: Rights) -> Attribution:
    """Give the answers of earlier spans the agent that the nearest span around them names now, and store that.

    Only of spans that name no agent themselves and whose name is another than the one their answers were stored under. An answer that
    has another author than that name stands for was changed since, and stays.

    Raises:
        NotEntitled: An agent would have to join a channel, which needs more than `rights`.
    """
    renamed = [span for span in spans if not span.agent and agents.name_of(span) != span.stored_as]
    since = min((span.created_at for span in renamed), default=None)  # no answer is stored before its span
    changed: list[Message] = []
    newly_agents: list[Message] = []
    authors: dict[tuple[str, Author], None] = {}
    for (conversation, old_name), names_now in _by_conversation_and_name(renamed, agents).items():
        old_author = _author(old_name, agents, speakers)
        answers = Message.objects.filter(
            channel__slug=conversation,
            agent=old_author.agent_id,
            user=None,
            outsider=old_author.outsider,
            created_at__gte=since,
        )
        for message in answers:
            span_id = message.external_id.rpartition(":")[0]  # it is the span's id, a colon, and the message's number
            if span_id not in names_now:
                continue
            new_author = _author(names_now[span_id], agents, speakers)
            message.agent_id = new_author.agent_id
            message.outsider = new_author.outsider
            changed.append(message)
            authors[conversation, new_author] = None
            if not old_name and new_author.agent_id is not None:
                newly_agents.append(message)
    check_rights(authors, rights)
    _store_attribution(changed, renamed, agents)
    return Attribution(len(changed), newly_agents)


def _author(name: str, agents: AgentsOfSpans, speakers: Speakers) -> Author:
    """Return the author of answers whose agent has this name in spans; the assistant where none is named."""
    speaker = agents.slug_of(name) or ASSISTANT
    return speakers.author(SourceMessage(speaker=speaker, text="", line=0))


def _by_conversation_and_name(
    spans: Iterable[TraceSpan], agents: AgentsOfSpans
) -> dict[tuple[str, str], dict[str, str]]:
    """Return, by conversation and the name under which answers were stored, each span with the name of its agent now."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for span in spans:
        names_now = groups.setdefault((span.conversation, span.stored_as), {})
        names_now[span.span] = agents.name_of(span)
    return groups


def _store_attribution(changed: Sequence[Message], renamed: Sequence[TraceSpan], agents: AgentsOfSpans) -> None:
    """Store the new authors of messages, make them members, and remember under which name the spans are stored."""
    Message.objects.bulk_update(changed, ["agent", "outsider"], batch_size=250)
    members = {(message.channel_id, message.agent_id) for message in changed if message.agent_id is not None}
    ChannelMember.objects.bulk_create(
        [ChannelMember(channel_id=channel_id, agent_id=agent_id) for channel_id, agent_id in members],
        ignore_conflicts=True,
    )
    for span in renamed:
        span.stored_as = agents.name_of(span)
    TraceSpan.objects.bulk_update(renamed, ["stored_as"], batch_size=250)


def _observe(messages: Sequence[Message]) -> int:
    """Have the observers see messages that became an agent's; return how many they will judge."""
    if not messages:
        return 0
    messages = list(Message.objects.filter(pk__in=[message.pk for message in messages]).select_related("channel"))
    observers: list[Observer] = [import_string(path) for path in declared_list("ingest_observers")]
    return sum(observer(messages) for observer in observers)


def _unmeasured_note(prepared: Sequence[Prepared], models: Collection[str]) -> list[str]:
    """Return a note about answers whose agent is not known; none where all are."""
    answers = Counter(message.author.outsider for message in prepared if message.author.outsider in models)
    if not answers:
        return []
    listed = ", ".join(f"{count} of {name[:60]!r}" for name, count in answers.most_common(5))
    return [
        f"answers of no agent, which are not measured: {listed}. An agent is known by its slug or display name in {AGENT}, of the span "
        "or of one around it, which may come later"
    ]


def _check_size(number: int, what: str, most: int) -> None:
    if number > most:
        why = (
            f"{number:,} {what} in one request; allowed: {most:,}, set your exporter's or collector's batch size lower"
        )
        raise FileError("the body", 0, why)


def _channel_slug(conversation: str) -> str:
    """Return the slug of a conversation's channel: its id where that is one, else what is left of it with a few digits of the whole."""
    slug = slug_of(conversation)
    if slug and slug == conversation:
        return slug
    digest = hashlib.sha256(conversation.encode("utf-8", "replace")).hexdigest()
    return f"{slug[:100] or 'conversation'}-{digest[:8]}"


def said_last(channel: Channel) -> list[PastMessage]:
    """Return the last messages of a channel in their order, an agent by its slug."""
    newest = channel.messages.select_related("agent", "user").order_by("-position")[:REMEMBERED]
    messages = [PastMessage(row.agent.slug if row.agent else row.author_name, row.text) for row in newest]
    messages.reverse()
    return messages


def _without_stored(calls: Sequence[Call]) -> list[Call]:
    """Return the calls of which no message is stored, and those without an id, of which that is not known."""
    clean = Cleaner().text  # as ids are stored
    call_of_message: dict[str, str] = {}  # external id of a message: id of its call
    for call in calls:
        if call.id:
            for number in range(len(call.inputs) + len(call.outputs)):
                call_of_message[clean(f"{call.id}:{number}")] = call.id
    conversation_slugs = {call.conversation for call in calls}
    message_ids = list(call_of_message)
    stored_calls: set[str] = set()
    for start in range(0, len(message_ids), CHUNK):
        stored = Message.objects.filter(
            channel__slug__in=conversation_slugs, external_id__in=message_ids[start : start + CHUNK]
        )
        for message_id in stored.values_list("external_id", flat=True):
            stored_calls.add(call_of_message[message_id])
    return [call for call in calls if call.id not in stored_calls]

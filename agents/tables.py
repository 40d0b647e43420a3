"""The tables of agents and conversations as console, help, export, erasure and retention know them; see `agents.registry`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.utils import timezone

from agents.models import (
    Agent,
    Alert,
    ApiToken,
    Channel,
    ChannelMember,
    Chore,
    Debate,
    DebateRound,
    DebateSeat,
    DebateTurn,
    Delivery,
    DescriptionUpdate,
    DialogState,
    DialogSummary,
    IdempotentRequest,
    Import,
    ImportChunk,
    LastServed,
    LedgerHour,
    LLMBatch,
    LLMBatchRequest,
    LLMCall,
    LLMPayload,
    MemoryBlock,
    MemoryPassage,
    Message,
    ModelPrice,
    PersonaVersion,
    Reaction,
    Receiver,
    ReviewItem,
    Rollup,
    Run,
    RunMessage,
    RunStep,
    Swarm,
    SwarmPhase,
    SwarmTurn,
    TraceSpan,
    Trait,
    UserPreferences,
    WorkerHeartbeat,
)
from agents.ops.sums import LEDGER, TOKENS
from agents.registry import NO_ROWS, Erase, Person, Prune, Table, export_of


def _all(_person: Person) -> Q:
    return Q(pk__isnull=False)


def _prompts_of_ended_runs(person: Person) -> Q:
    """They have the conversation in them. Those of a run that goes on are what it goes on from: only quotes and name go."""
    roles = (RunMessage.Role.SYSTEM, RunMessage.Role.USER)
    return Q(run__channel__in=person.channels, run__status__in=Run.FINAL, role__in=roles)


def _entries(person: Person) -> Q:
    """Entries of the console's log about their messages, which it calls by author and text, and about their account."""
    theirs = NO_ROWS
    for name in (*person.names, person.label):
        theirs |= Q(
            content_type__app_label="agents", content_type__model="message", object_repr__startswith=f"{name}: "
        )
    if person.user is not None and person.deactivate:
        model = person.user._meta
        theirs |= Q(
            content_type__app_label=model.app_label, content_type__model=model.model_name, object_id=str(person.user.pk)
        )
    return theirs


def _their_requests(person: Person) -> Q:
    return NO_ROWS if person.user is None else Q(user=person.user.pk, status__isnull=False)


def _of_ended_runs(model: type[Model]) -> Callable[[datetime], QuerySet[Any]]:
    return lambda before: model._default_manager.filter(run__status__in=Run.FINAL, run__finished_at__lt=before)


def _ended_batches(before: datetime) -> QuerySet[LLMBatch]:
    """Answered or not: what the work they served has not read by then, it never does."""
    return LLMBatch.objects.filter(status__in=LLMBatch.FINAL, finished_at__lt=before)


def _ended_imports(before: datetime) -> QuerySet[Import]:
    return Import.objects.filter(
        Q(status__in=Import.FINAL, finished_at__lt=before) | Q(status=Import.WAITING, created_at__lt=before)
    )


def _where_they_spoke(person: Person) -> Q:
    return Q(channel__in=person.channels)


def _their_preferences(person: Person) -> Q:
    return Q(user=person.user.pk) if person.user is not None else Q(pk=None)


def _replaced_summaries(before: datetime) -> QuerySet[DialogSummary]:
    """The newest one of a conversation stays: it is shown."""
    completed = DialogSummary.objects.filter(status=DialogSummary.Status.COMPLETED)
    newer = completed.filter(
        agent=OuterRef("agent"), channel=OuterRef("channel"), to_position__gt=OuterRef("to_position")
    )
    return DialogSummary.objects.filter(Exists(newer), status__in=DialogSummary.FINAL, finished_at__lt=before)


def _old_swarm_turns(before: datetime) -> QuerySet[SwarmTurn]:
    return SwarmTurn.objects.filter(Q(run=None) | Q(run__status__in=Run.FINAL), created_at__lt=before)


def _seen_alerts(before: datetime) -> QuerySet[Alert]:
    """Once their deliveries are gone; those of drift stay with what they are about."""
    over = Alert.objects.filter(acknowledged_at__lt=before, ended_at__lt=before, deliveries=None)
    return over.exclude(kind=Alert.Kind.DRIFT)


def _took(run: Run) -> float | None:
    if run.started_at is None or run.finished_at is None:
        return None
    return round((run.finished_at - run.started_at).total_seconds(), 3)


TABLES = (
    Table(
        model=Agent,
        editor="*",
        menu="",
        icon="groups",
        empty="Import personas (Conversations, Imports, or manage.py import_agents FILE), load the examples with manage.py seed, or write "
        "one here.",
        start=(("Import personas", "admin:agents_import_add", "agents.add_agent"),),
        columns="who message_count persona_version",
        filters="is_active",
        search="display_name* slug* title*",
        deleting="The agent goes with its persona versions, traits, memory and configuration. To keep them, set it inactive instead. An "
        "agent that has said something cannot be deleted.",
        erase=(Erase(columns="aliases title description system_prompt sample_lines", report_only=True),),
        no_speech="slug display_name avatar_color model_id",
    ),
    Table(
        model=Channel,
        editor="*",
        menu="",
        icon="forum",
        entry="Conversations",
        empty="Importing a transcript makes its channels (Conversations, Imports, or manage.py import_transcript FILE); agents speak in "
        "those you make here.",
        start=(("Import a transcript", "admin:agents_import_add", "agents.add_message"),),
        columns="conversation kind_badge members message_count last_message tag_chips",
        filters="kind",
        search="name* slug* topic*",
        deleting="The channel goes with its members and what was measured of it. A channel in which something was said cannot be deleted; "
        "a person's words are erased with manage.py forget.",
        erase=(Erase(columns="name topic tags", channel="pk"),),
        no_speech="slug",
    ),
    Table(
        model=Message,
        operator="add",
        tab_of=Channel,
        empty="Import a transcript (Conversations, Imports; manage.py import_transcript FILE), or talk to an agent: manage.py chat AGENT.",
        start=(
            ("Import a transcript", "admin:agents_import_add", "agents.add_message"),
            ("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),
        ),
        columns="where author text=text sent_at tag_chips",
        filters="channel? agent outsider tags synthetic sent_at",
        search="text* outsider*",
        fields=(
            ("", "where author sent_at said payload parent=answers tag_chips"),
            ("Origin", "run persona_version synthetic external_id created_at=stored"),
        ),
        export=export_of(
            "id=pk channel=channel.slug position external_id author=author_name agent=agent.slug user=user.username outsider "
            "parent=parent_id text payload sent_at run=run_id persona_version=persona_version.number synthetic tags"
        ),
        erase=(
            Erase(
                columns="text payload tags",
                channel="channel",
                rows=lambda person: Message.objects.exclude(pk__in=person.own_keys()),
                last=True,
            ),
            Erase(columns="tags", channel="channel", rows=Person.own, last=True),
            Erase(columns="text payload", emptied="payload", blank=_all, rows=Person.own, last=True),
            Erase(columns="outsider", name_only=lambda person: ~Q(outsider=""), rows=Person.own, last=True),
        ),
        no_speech="external_id idempotency_key",
    ),
    Table(
        model=Debate,
        operator="add change",
        menu="",
        icon="balance",
        empty="Start one with the + above, or with manage.py debate QUESTION --agents michael,dwight.",
        columns="topic=question rules status rounds_asked=rounds exit_reason=ended_by created_by=started_by created_at=started",
        filters="status mode exit_reason created_at",
        search="topic*",
        export=export_of(
            "id=pk channel=channel.slug topic mode status exit_reason exit_details rounds_asked started_by=created_by.username created_at "
            "started_at finished_at error",
            texts=("error",),
        ),
        erase=(
            Erase(columns="topic", channel="channel", blank=lambda person: Q(pk__in=person.debates()), last=True),
            Erase(columns="error", channel="channel"),
            Erase(columns="settings", report_only=True),
        ),
        no_speech="mode exit_reason exit_details",
    ),
    Table(
        model=Swarm,
        editor="*",
        tab_of=Agent,
        empty="manage.py seed stores the default swarm. Add one of your own with the + above; it takes part once an agent has it.",
        columns="name intents tools enabled post_executor updated_at=changed",
        filters="enabled post_executor",
        search="name*",
        deleting="Its phases and their versions go with it; its agents answer as if they did not have it. What it did in turns stays. To "
        "keep it, clear enabled instead.",
        no_speech="name intents tools",
    ),
    Table(
        model=DialogState,
        operator="change",
        tab_of=Channel,
        empty="An agent with a swarm leaves one for each conversation with a person. Write to it, or use Chat on its page.",
        start=(("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),),
        columns="pk agent channel turn position dropped updated_at=changed",
        filters="agent updated_at",
        fields=(("", "agent channel turn position dropped updated_at=changed"),),
        # What people said stands there in other words, too: the next message begins a new one.
        erase=(
            Erase(
                columns="anchor goal facts assumptions decisions pending asked preferences last_tool removed",
                channel="channel",
                blank=_where_they_spoke,
                delete=True,
            ),
        ),
    ),
    Table(
        model=Import,
        tab_of=Channel,
        empty="Transcripts that are uploaded here, with the + above, are checked, shown, and then imported.",
        columns="pk name=file state stored=messages created_by=uploaded_by created_at=uploaded",
        filters="status",
        erase=(Erase(columns="name choices contents result error", near=True),),
        no_speech="doing",
        prune=Prune(rows=_ended_imports, children=((ImportChunk, "of"),)),
    ),
    Table(
        model=Alert,
        operator="change",
        menu="More",
        icon="notifications",
        empty="Raised when a score or the gate's pass rate fell, the judge is down, a budget is reached or an evaluation failed. None is "
        "good news while a worker runs.",
        columns="title=alert kind agent times created_at=raised state",
        filters="acknowledged_at kind agent created_at",
        search="title*",
        fields=(("", "kind agent times created_at=raised_at last_at=last_raised state deliveries_link"),),
        erase=(Erase(columns="title note", agent="agent", near=True),),
        no_speech="about page",
        prune=Prune(rows=_seen_alerts),
    ),
    Table(
        model=Receiver,
        editor="*",
        tab_of=Alert,
        title="Receivers",
        empty="Add one, and alerts are sent by e-mail or to a webhook. Until then they are here, under the bell, and nowhere else.",
        columns="name channel where_to kinds_wanted agents_wanted is_active failures=failed_in_a_row",
        filters="is_active channel",
        search="name*",
        deleting="Nothing is sent to it any more. The log of what was sent stays, without its name. To keep it, clear active instead.",
        erase=(Erase(columns="name address", report_only=True),),
        no_speech="kinds",
    ),
    Table(
        model=Delivery,
        tab_of=Alert,
        title="Deliveries",
        empty="Each alert that is sent to a receiver leaves one, with every try.",
        columns="pk alert receiver status error tries tried_at=last_try created_at=queued",
        filters="status receiver created_at",
        fields=(("", "alert receiver status error answer_code tries tried_at=last_try created_at=queued message_id"),),
        no_speech="error",
        prune=Prune(rows=lambda before: Delivery.objects.filter(status__in=Delivery.FINAL, finished_at__lt=before)),
    ),
    Table(
        model=Run,
        operator="add change",
        menu="More",
        icon="receipt_long",
        title="Turns",
        entry="Logs",
        empty="Ask an agent for a turn: Run a turn on its page, manage.py turn AGENT, or write to it. manage.py work carries it out.",
        start=(("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),),
        columns="pk agent channel status stop_reason answers started_at took",
        filters="status stop_reason error agent channel__tags,trigger__tags created_at",
        fields=(
            ("As it is stored", "created_at started_at finished_at attempt lease_owner idempotency_key overrides"),
        ),
        export=export_of(
            "id created_at started_at finished_at seconds agent=agent.slug channel=channel.slug trigger=trigger_id prompt depth status "
            "stop_reason error attempt overrides trace",
            special={"seconds": _took},
            texts=("trace",),
        ),
        erase=(Erase(columns="prompt error overrides trace", channel="channel"),),
        no_speech="idempotency_key",
    ),
    Table(
        model=SwarmTurn,
        tab_of=Run,
        empty="Each turn in which an agent with a swarm answers a person leaves one. Assign a swarm on its page.",
        columns="pk agent channel swarm intent outcome run created_at=time",
        filters="swarm intent heuristic agent created_at",
        search="intent",
        fields=(("", "agent channel swarm intent run created_at=time heuristic milliseconds"),),
        export=export_of(
            "id=pk created_at agent=agent.slug channel=channel.slug swarm=swarm.name run=run_id message=message_id intent heuristic "
            "milliseconds replaced calibration draft polished rejected",
            texts=("replaced", "calibration", "draft", "polished", "rejected"),
        ),
        erase=(
            Erase(columns="calibration", channel="channel", blank=_where_they_spoke, emptied="calibration"),
            Erase(columns="draft polished rejected replaced", channel="channel"),
        ),
        no_speech="intent milliseconds",
        prune=Prune(rows=_old_swarm_turns),
    ),
    Table(
        model=LLMCall,
        tab_of=Run,
        title="Model calls",
        empty="Every call of a model leaves one. Without a key (ANTHROPIC_API_KEY) everything runs offline, at no cost.",
        columns="created_at=time what status agent tokens cost latency_ms=milliseconds model_name",
        filters="status purpose role model dimension error work_id agent created_at",
        search="work_id request_digest request_id",
        fields=(
            ("", "created_at=time status error stop_reason"),
            ("What it was for", "role purpose mechanism dimension agent run work_id=work"),
            ("Model", "provider endpoint model served_model request_id request_digest"),
            ("What it used", "cost " + " ".join(TOKENS) + " latency_ms=milliseconds attempts batch"),
            ("How it was asked", "temperature temperature_applied"),
        ),
        export=export_of(
            "id created_at role purpose mechanism dimension agent=agent.slug run=run_id work_id provider endpoint model served_model "
            "status error stop_reason input_tokens output_tokens cache_read_tokens cache_write_tokens cost_usd latency_ms attempts batch "
            "temperature temperature_applied request_id request_digest"
        ),
        erase=(Erase(columns="error", channel="run__channel", agent="agent"),),
        no_speech="role purpose mechanism work_id provider endpoint model served_model stop_reason request_id",
        prune=Prune(
            rows=lambda before: LLMCall.objects.filter(created_at__lt=before),
            children=((LLMPayload, "call"),),
            rolled=LEDGER,
        ),
    ),
    Table(
        model=LLMBatch,
        tab_of=Run,
        title="Batches",
        empty="Evaluations at half the price make them: manage.py capture_baseline --batch, or a schedule that asks in batches.",
        start=(("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),),
        columns="pk batch_id status work_id=work model requests answered next_look_at=next_look expires_at created_at=queued",
        filters="status model error created_at",
        search="batch_id work_id",
        fields=(
            ("", "status error work_id=work round requests results"),
            ("At the server", "batch_id provider_status role model base_url expires_at"),
            ("Times", "created_at=queued looks next_look_at=next_look finished_at cancel_requested_at=asked_to_cancel"),
        ),
        no_speech="error work_id role model base_url batch_id not_ours provider_status",
        prune=Prune(rows=_ended_batches),
    ),
    Table(
        model=ModelPrice,
        editor="*",
        tab_of=Run,
        title="Prices",
        empty="manage.py migrate adds the shipped prices. Add one for each model the ledger calls unpriced.",
        deleting="Calls that are in the ledger keep what they cost. New calls are priced by the model's price of an earlier day, or are "
        "unpriced where there is none.",
        columns="model effective_from=since input_usd output_usd cache_write_usd cache_read_usd long_prompt_tokens source",
        search="model*",
        no_speech="model source",
    ),
    Table(
        model=WorkerHeartbeat,
        tab_of=Run,
        empty="No worker has run: manage.py work starts one.",
        columns="name kind state doing=in_hand done calls seen_at started_at",
        filters="kind host",
        search="name*",
        fields=(("", "name kind state queues doing=in_hand done calls seen_at started_at"),),
        no_speech="name host queues doing",
    ),
    Table(
        model=User,
        menu="More",
        icon="group",
        entry="Access",
        empty="manage.py createsuperuser makes the first account.",
        filters="is_staff is_superuser is_active groups",
        deleting="The account cannot sign in any more and its token is refused. To keep its name beside what it did, clear Active "
        "instead. A user who has written messages cannot be deleted.",
    ),
    Table(
        model=Group,
        tab_of=User,
        empty="manage.py migrate makes Viewer, Operator and Editor.",
        deleting="Its users stay and lose what only this group allowed them, at once. Viewer, Operator and Editor are made again by the "
        "next manage.py migrate.",
    ),
    Table(
        model=ApiToken,
        operator="add delete",
        menu="More",
        icon="vpn_key",
        title="API tokens",
        empty="A program needs one to use the API.",
        deleting="Programs that use this token are refused from now on. A new one has another key.",
        columns="name hint user created_at=made expires",
        fields=(("", "name hint user created_at=made expires"),),
        no_speech="name hint",
    ),
    # Without a page of their own.
    Table(model=DebateSeat, erase=(Erase(columns="perspective", report_only=True),), no_speech="role label model"),
    Table(
        model=DebateRound,
        erase=(Erase(columns="consensus", channel="debate__channel"),),
        no_speech="groupthink statistics exit",
    ),
    Table(model=DebateTurn, erase=(Erase(columns="violation error", channel="debate__channel"),)),
    Table(model=SwarmPhase, editor="*", no_speech="name prompt"),
    Table(
        model=DialogSummary,
        erase=(Erase(columns="text quotes error", channel="channel", blank=_where_they_spoke, delete=True),),
        prune=Prune(rows=_replaced_summaries),
    ),
    Table(
        model=UserPreferences,
        erase=(Erase(columns="tone units length learning_style", blank=_their_preferences, delete=True),),
    ),
    Table(model=PersonaVersion, erase=(Erase(columns="system_prompt traits note", report_only=True),)),
    Table(model=Trait, editor="*", erase=(Erase(columns="name description source", report_only=True),)),
    Table(model=DescriptionUpdate, erase=(Erase(columns="error", agent="agent"),), no_speech="judge"),
    Table(model=MemoryBlock, editor="*", erase=(Erase(columns="value", agent="agent"),), no_speech="label"),
    Table(model=MemoryPassage, editor="*", erase=(Erase(columns="text", agent="agent"),)),
    Table(model=ChannelMember, editor="*"),
    Table(model=Reaction, no_speech="emoji"),
    # Bytes of files in any format cannot be searched, and importing one again would bring the words back: all of them go.
    Table(model=ImportChunk, erase=(Erase(columns="number", blank=_all, delete=True),)),
    Table(
        model=RunMessage,
        erase=(Erase(columns="content", channel="run__channel", blank=_prompts_of_ended_runs),),
        no_speech="tool_name",
        prune=Prune(rows=_of_ended_runs(RunMessage)),
    ),
    Table(
        model=RunStep,
        erase=(Erase(columns="detail", channel="run__channel"),),
        no_speech="kind",
        prune=Prune(rows=_of_ended_runs(RunStep)),
    ),
    Table(
        model=LLMPayload,
        erase=(
            Erase(
                columns="request reply tool_calls",
                channel="call__run__channel",
                agent="call__agent",
                blank=lambda person: Q(call__run__channel__in=person.channels),
                delete=True,
            ),
        ),
    ),
    Table(
        model=LLMBatchRequest,
        erase=(Erase(columns="text error", near=True),),  # answers about channels are of no agent
        no_speech="custom_id work_id request_key label stop_reason served_model",
        prune=Prune(rows=lambda before: LLMBatchRequest.objects.filter(batch__in=_ended_batches(before))),
    ),
    Table(
        model=IdempotentRequest,
        erase=(Erase(columns="path answer headers", near=True, blank=_their_requests, delete=True),),
        no_speech="key method",
        # Their answers are not sent any more, however long the other logs are kept.
        prune=Prune(
            rows=lambda _before: IdempotentRequest.objects.filter(
                created_at__lt=timezone.now() - IdempotentRequest.KEPT
            )
        ),
    ),
    Table(
        model=TraceSpan,
        no_speech="trace span around agent conversation stored_as",
        # They only join spans of one trace, however long the other logs are kept.
        prune=Prune(rows=lambda _before: TraceSpan.objects.filter(created_at__lt=timezone.now() - TraceSpan.KEPT)),
    ),
    Table(
        model=ReviewItem,
        operator="change",
        no_speech="kind key",
        prune=Prune(rows=lambda before: ReviewItem.objects.filter(created_at__lt=before)),
    ),
    Table(model=LedgerHour, no_speech="purpose mechanism model role provider status"),
    Table(model=Rollup, no_speech="name"),
    Table(model=LastServed, no_speech="kind"),
    Table(model=Chore, no_speech="path last_outcome"),
    Table(model=LogEntry, erase=(Erase(columns="object_repr change_message", blank=_entries),), no_speech="object_id"),
)

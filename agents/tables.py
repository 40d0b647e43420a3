"""The tables of agents and conversations as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.db.models import CharField, Exists, Model, OuterRef, Q, QuerySet
from django.db.models.fields.reverse_related import ForeignObjectRel
from django.db.models.functions import Cast
from django.utils import timezone

from agents.erasure import keys_said_by, of_messages
from agents.kit.erasing import Erase, Person, every, matching, there
from agents.kit.registry import Prune, Table, export_of
from agents.models import (
    Agent,
    Channel,
    ChannelMember,
    Import,
    ImportChunk,
    MemoryBlock,
    MemoryPassage,
    Message,
    PersonaVersion,
    Reaction,
    Run,
    RunMessage,
    RunStep,
    Trait,
)


def _answers_to_them(person: Person) -> Q:
    """Select what agents answered to one of their messages: it says in other words what they said."""
    their_messages = keys_said_by(person)
    return Q(agent__isnull=False) & (Q(parent__in=their_messages) | Q(run__trigger__in=their_messages))


def _written_to_memory(person: Person) -> Q:
    """Select notes that turns wrote since the person first spoke to the agent: each turn rewrites a note from what it was."""
    return Q(agent__in=person.agents, run__isnull=False, updated_at__gte=person.since)


def _read_files(_person: Person) -> Q:
    """Select all imports that no worker has in hand."""
    return Q(status__in=[*Import.FINAL, Import.WAITING])


def _entries(person: Person) -> Q:
    """Select entries of the console's log about their messages, which it names by author and text, and about an account that is closed."""
    ids = keys_said_by(person).values(id_text=Cast("pk", CharField()))
    entries = Q(content_type__app_label="agents", content_type__model="message", object_id__in=ids)
    if person.user is not None and person.deactivate:
        model = person.user._meta
        entries |= Q(
            content_type__app_label=model.app_label, content_type__model=model.model_name, object_id=str(person.user.pk)
        )
    return entries


def _of_ended_runs(model: type[Model]) -> Callable[[datetime], QuerySet[Any]]:
    return lambda before: model._default_manager.filter(run__status__in=Run.FINAL, run__finished_at__lt=before)


def _ended_imports(before: datetime) -> QuerySet[Import]:
    """Return the imports that ended before this moment; those that no worker ever had, by when they were uploaded."""
    never_begun = Q(status=Import.WAITING) | Q(status=Import.Status.FAILED, finished_at=None)
    return Import.objects.filter(
        Q(status__in=Import.FINAL, finished_at__lt=before) | Q(never_begun, created_at__lt=before)
    )


def _old_conversations(before: datetime) -> QuerySet[Channel]:
    """Return the conversations that may go: all their messages were stored before this moment, and nothing else refers to them.

    None unless `MESSAGES_KEPT_DAYS` says how long messages are kept. Direct messages, debates and simulations stay, and conversations in
    which an agent took a turn here. So do those that are, or of which a message is, in an evaluation (and so in a baseline or under a
    label), in a request, or in a log that is kept: logs that are as old go first.
    """
    if not settings.MESSAGES_KEPT_DAYS:
        return Channel.objects.none()
    before = min(before, timezone.now() - timedelta(days=settings.MESSAGES_KEPT_DAYS))
    messages = Message.objects.filter(channel=OuterRef("pk"))
    old = Channel.objects.filter(
        Exists(messages),
        ~Exists(messages.filter(created_at__gte=before)),
        created_at__lt=before,
        synthetic=False,
        kind__in=[Channel.Kind.PUBLIC, Channel.Kind.PRIVATE],
    )
    for model, key in _keys_to(Channel):
        if model not in (ChannelMember, Message):
            old = old.filter(~Exists(model._default_manager.filter(**{key: OuterRef("pk")})))
    for model, key in _keys_to(Message):
        if model not in (Reaction, Message):
            old = old.filter(~Exists(model._default_manager.filter(**{f"{key}__channel": OuterRef("pk")})))
    return old


def _keys_to(model: type[Model]) -> list[tuple[type[Model], str]]:
    """Return the models that refer to this one, each with the name of its foreign key; also those without a name for the way back."""
    keys: list[tuple[type[Model], str]] = []
    for relation in model._meta.get_fields(include_hidden=True):
        if isinstance(relation, ForeignObjectRel):
            keys.append((relation.related_model, relation.field.name))
    return keys


def _took(run: Run) -> float | None:
    """Return how many seconds a turn took; None where it has not ended."""
    if run.started_at is None or run.finished_at is None:
        return None
    return round((run.finished_at - run.started_at).total_seconds(), 3)


TABLES = (
    Table(
        model=Agent,
        has_saved_views=True,
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
        no_speech="slug display_name avatar_color model_id",
        typed="aliases title description system_prompt sample_lines",
    ),
    Table(
        model=Channel,
        has_saved_views=True,
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
        no_speech="slug",
        typed="name topic tags",
        prune=Prune(
            rows=_old_conversations,
            children=((ChannelMember, "channel"), (Reaction, "message__channel"), (Message, "channel")),
        ),
    ),
    Table(
        model=Message,
        operator="add",
        tab_of="agents.Channel",
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
            # Without a text they are in no measurement and no prompt.
            Erase(columns="text payload", rows=(matching(_answers_to_them),), emptied="text payload"),
            Erase(columns="text payload tags", rows=(of_messages("pk"),), emptied="payload tags"),
            Erase(columns="outsider", rows=(of_messages("pk"),), name_only=True),
        ),
        no_speech="external_id idempotency_key",
    ),
    Table(
        model=Import,
        order=1,
        tab_of="agents.Channel",
        empty="Transcripts that are uploaded here, with the + above, are checked, shown, and then imported.",
        columns="pk name=file state stored=messages created_by=uploaded_by created_at=uploaded",
        filters="status",
        # No key says what is in a file of any format: all of them go, for importing one again would bring the words back.
        erase=(
            Erase(
                columns="name choices answers contents result error",
                rows=(matching(_read_files),),
                emptied="choices answers contents",
            ),
        ),
        no_speech="doing",
        prune=Prune(rows=_ended_imports, children=((ImportChunk, "of"),)),
    ),
    Table(
        model=Run,
        operator="add change",
        order=2,
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
        erase=(
            Erase(
                columns="prompt error trace",
                rows=(there("channel", at="finished_at", status__in=Run.FINAL),),
                keep="stage phase",
            ),
        ),
        no_speech="idempotency_key",
        typed="overrides",
    ),
    Table(model=PersonaVersion, typed="system_prompt traits note"),
    Table(model=Trait, editor="*", typed="name description source"),
    Table(
        model=MemoryBlock,
        editor="*",
        erase=(Erase(columns="value", rows=(matching(_written_to_memory),)),),
        no_speech="label",
    ),
    Table(model=MemoryPassage, editor="*", erase=(Erase(columns="text", rows=(there("run__channel"),)),)),
    Table(model=ChannelMember, editor="*"),
    Table(model=Reaction, no_speech="emoji"),
    Table(model=ImportChunk, erase=(Erase(columns="number", rows=(every,), delete=True),)),
    Table(
        model=RunMessage,
        erase=(Erase(columns="content", rows=(there("run__channel", run__status__in=Run.FINAL),)),),
        no_speech="tool_name",
        prune=Prune(rows=_of_ended_runs(RunMessage)),
    ),
    Table(
        model=RunStep,
        erase=(Erase(columns="detail", rows=(there("run__channel", run__status__in=Run.FINAL),)),),
        no_speech="kind",
        prune=Prune(rows=_of_ended_runs(RunStep)),
    ),
    Table(
        model=LogEntry,
        erase=(Erase(columns="object_repr change_message", rows=(matching(_entries),)),),
        no_speech="object_id",
    ),
)

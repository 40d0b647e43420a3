"""Where the ground floor keeps words: conversations, turns, memory, calls, answers of the API, and the console's own log."""

from __future__ import annotations

from django.contrib.admin.models import LogEntry
from django.db.models import Q

from agents.erasure.person import Person
from agents.erasure.place import NOTHING, Place
from agents.models import (
    Agent,
    Channel,
    DescriptionUpdate,
    IdempotentRequest,
    Import,
    ImportChunk,
    ImportFile,
    LLMBatchRequest,
    LLMCall,
    LLMPayload,
    MemoryBlock,
    MemoryPassage,
    Message,
    PersonaVersion,
    Run,
    RunMessage,
    RunStep,
    Trait,
)

Role = RunMessage.Role


def _prompts_of_ended_runs(person: Person) -> Q:
    """They have the conversation in them. Those of a run that goes on are what it goes on from: only quotes and name go."""
    roles = (Role.SYSTEM, Role.USER)
    return Q(run__channel__in=person.channels, run__status__in=Run.FINAL, role__in=roles)


def _entries(person: Person) -> Q:
    """Entries of the console's log about their messages, which it calls by author and text, and about their account."""
    theirs = NOTHING
    for name in (*person.names, person.label):
        theirs |= Q(
            content_type__app_label="agents", content_type__model="message", object_repr__startswith=f"{name}: "
        )
    if person.user is not None and person.deactivate:
        account = {"app_label": person.user._meta.app_label, "model": person.user._meta.model_name}
        theirs |= Q(
            **{f"content_type__{name}": value for name, value in account.items()}, object_id=str(person.user.pk)
        )
    return theirs


PLACES = (
    Place(
        model=LLMPayload,
        columns=("request", "reply", "tool_calls"),
        channel=("call__run__channel",),
        agent=("call__agent",),
        whole=lambda person: Q(call__run__channel__in=person.channels),
        delete=True,
    ),
    Place(model=LLMBatchRequest, columns=("text", "error"), near=True),  # answers about channels are of no agent
    Place(model=LLMCall, columns=("error",), channel=("run__channel",), agent=("agent",)),
    Place(
        model=RunMessage,
        columns=("content",),
        channel=("run__channel",),
        whole=_prompts_of_ended_runs,
    ),
    Place(model=RunStep, columns=("detail",), channel=("run__channel",)),
    Place(model=Run, columns=("prompt", "error", "overrides", "trace"), channel=("channel",)),
    Place(model=MemoryPassage, columns=("text",), agent=("agent",)),
    Place(model=MemoryBlock, columns=("value",), agent=("agent",)),
    Place(
        model=IdempotentRequest,
        columns=("path", "answer", "headers"),
        near=True,
        whole=lambda person: NOTHING if person.user is None else Q(user=person.user.pk, status__isnull=False),
        delete=True,
    ),
    # Bytes of files in any format cannot be searched, and importing one again would bring the words back: none of them is kept.
    Place(model=ImportChunk, columns=("number",), whole=lambda person: Q(pk__isnull=False), delete=True),
    Place(model=Import, columns=("choices", "found", "result", "error"), near=True),
    Place(model=ImportFile, columns=("name",), near=True),
    Place(model=LogEntry, columns=("object_repr", "change_message"), whole=_entries),
    Place(model=Agent, columns=("title", "description", "system_prompt", "sample_lines"), told_only=True),
    Place(model=DescriptionUpdate, columns=("error",), agent=("agent",)),  # of a call that failed
    Place(model=PersonaVersion, columns=("system_prompt", "traits", "note"), told_only=True),
    Place(model=Trait, columns=("name", "description", "source"), told_only=True),
    Place(model=Channel, columns=("name", "topic", "tags"), channel=("pk",)),
    Place(
        model=Message,
        columns=("text", "payload", "tags"),
        channel=("channel",),
        rows=lambda person: Message.objects.exclude(pk__in=person.own().order_by().values("pk")),
    ),
    # Last: by these the quotes above are found.
    Place(model=Message, columns=("tags",), channel=("channel",), rows=lambda person: person.own()),
    Place(
        model=Message,
        columns=("text", "payload"),
        emptied=("payload",),
        whole=lambda person: Q(pk__isnull=False),
        rows=lambda person: person.own(),
    ),
    Place(
        model=Message,
        columns=("outsider",),
        named=lambda person: ~Q(outsider=""),
        rows=lambda person: person.own(),
    ),
)

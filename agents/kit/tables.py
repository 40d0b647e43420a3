"""The tables of the kit as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.models import Group, User
from django.db.models import Q, QuerySet
from django.utils import timezone

from agents.kit.erasing import Erase, Person, matching, of_agents
from agents.kit.models import (
    ApiToken,
    Chore,
    IdempotentRequest,
    LastServed,
    LedgerHour,
    LLMBatch,
    LLMBatchRequest,
    LLMCall,
    LLMPayload,
    ModelPrice,
    ReviewItem,
    Rollup,
    SavedView,
    TraceSpan,
    WorkerHeartbeat,
)
from agents.kit.ops.sums import LEDGER, TOKENS
from agents.kit.registry import Prune, Table, export_of


def _their_requests(person: Person) -> Q:
    """Select the answered requests of the person's account."""
    return Q(user=person.user.pk if person.user is not None else None, status__isnull=False)


def _their_views(person: Person) -> Q:
    """Select the saved views of the person's account."""
    return Q(owner=person.user.pk if person.user is not None else None, owner__isnull=False)


def _answered_since(person: Person) -> Q:
    """Select answers to programs that were stored since the person first spoke: no key tells which of them show their words."""
    return Q(created_at__gte=person.since, status__isnull=False)


def _ended_batches(before: datetime) -> QuerySet[LLMBatch]:
    """Return batches that ended before then, also with results that nobody read: the work they served never does any more."""
    return LLMBatch.objects.filter(status__in=LLMBatch.FINAL, finished_at__lt=before)


TABLES = (
    Table(
        model=LLMCall,
        tab_of="agents.Run",
        title="Model calls",
        empty="Every call of a model leaves one. Without a model (JUDGE_MODEL, ACTOR_MODEL) everything runs offline, at no cost.",
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
        erase=(Erase(columns="error", rows=(of_agents("agent"),)),),
        no_speech="role purpose mechanism work_id provider endpoint model served_model stop_reason request_id",
        prune=Prune(
            rows=lambda before: LLMCall.objects.filter(created_at__lt=before),
            children=((LLMPayload, "call"),),
            sums=LEDGER,
        ),
    ),
    Table(
        model=LLMBatch,
        tab_of="agents.Run",
        title="Batches",
        empty="Evaluations at half the price make them: manage.py capture_baseline --batch, or a schedule that asks in batches; and "
        "observed messages of agents with observe_by_batches=on.",
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
        tab_of="agents.Run",
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
        tab_of="agents.Run",
        empty="No worker has run: manage.py work starts one.",
        columns="name kind state doing=in_hand done calls seen_at started_at",
        filters="kind host",
        search="name*",
        fields=(("", "name kind state queues doing=in_hand done calls seen_at started_at"),),
        no_speech="name host queues doing",
    ),
    Table(
        model=User,
        order=3,
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
        tab_of="auth.User",
        empty="manage.py migrate makes Viewer, Operator and Editor.",
        deleting="Its users stay and lose what only this group allowed them, at once. Viewer, Operator and Editor are made again by the "
        "next manage.py migrate.",
    ),
    Table(
        model=ApiToken,
        operator="add delete",
        tab_of="auth.User",
        title="API tokens",
        empty="A program needs one to use the API.",
        deleting="Programs that use this token are refused from now on. A new one has another key.",
        columns="name hint user created_at=made expires",
        fields=(("", "name hint user created_at=made expires"),),
        no_speech="name hint",
    ),
    Table(
        model=LLMPayload,
        erase=(
            # What is kept to look at is not worth telling apart: all that was asked about these agents since goes.
            Erase(
                columns="request reply tool_calls", rows=(of_agents("call__agent", at="call__created_at"),), delete=True
            ),
        ),
    ),
    Table(
        model=LLMBatchRequest,
        erase=(
            Erase(
                columns="text error",
                rows=(of_agents("batch__agent", at="batch__created_at", batch__status__in=LLMBatch.FINAL),),
            ),
        ),
        no_speech="custom_id work_id request_key label stop_reason served_model",
        prune=Prune(rows=lambda before: LLMBatchRequest.objects.filter(batch__in=_ended_batches(before))),
    ),
    Table(
        model=IdempotentRequest,
        erase=(
            Erase(columns="path answer headers", rows=(matching(_their_requests),), delete=True),
            Erase(columns="path answer headers", rows=(matching(_answered_since),), emptied="path answer headers"),
        ),
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
    Table(
        model=SavedView,
        operator="share",
        erase=(Erase(columns="name query", rows=(matching(_their_views),), delete=True),),
        typed="name query",
        no_speech="table",
    ),
    Table(model=LedgerHour, no_speech="purpose mechanism model role provider status"),
    Table(model=Rollup, no_speech="name"),
    Table(model=LastServed, no_speech="kind"),
    Table(model=Chore, no_speech="path last_outcome"),
)

"""The ledger of model calls, and the prices it is reckoned with."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from django.contrib import admin
from django.db.models import Count, Exists, F, OuterRef, QuerySet
from django.db.models.functions import Coalesce
from django.forms import ModelForm
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.columns import VALUE_DISPLAYS
from agents.kit.console.logs import LogAdmin
from agents.kit.console.site import ModelAdmin, ReadOnlyAdmin, ReadOnlyStackedInline
from agents.kit.llm.ledger import Totals, totals
from agents.kit.llm.prices import forget_prices
from agents.kit.models import LLMBatch, LLMBatchRequest, LLMCall, LLMPayload, ModelPrice, WorkerHeartbeat
from agents.kit.ops.sums import TOKENS
from agents.kit.work.worker import alive

VALUE_DISPLAYS["work_id"] = lambda work: display.link(
    display.list_url(LLMCall, work_id=work), str(work).replace("_", " ").replace(":", " "), "the calls of this work"
)
TOTALLED_ROWS = 5_000  # sums over more calls than this are not worth the wait of a page
ALL_TOKENS = reduce(add, (Coalesce(F(kind), 0) for kind in TOKENS))


def _totals_shown(sums: Totals | None) -> dict[str, Any]:
    """Return what the line above the list shows; None = there are more calls than are summed."""
    if sums is None:
        return {"limit": f"{TOTALLED_ROWS:,}"}
    tokens = sum(getattr(sums, kind) for kind in TOKENS)
    some_are_priced = sums.calls > sums.unpriced
    priced = sums.cost_usd if some_are_priced else None
    return {"calls": f"{sums.calls:,}", "tokens": f"{tokens:,}", "cost": display.money(priced, unpriced=sums.unpriced)}


class PayloadInline(ReadOnlyStackedInline[LLMPayload, LLMCall]):
    model = LLMPayload
    fields = ("exact_request", "raw_reply", "raw_tool_calls")
    readonly_fields = fields

    exact_request = display.column("request", lambda payload: display.json_block(payload.request))
    raw_reply = display.column("reply", lambda payload: display.block(payload.reply))
    raw_tool_calls = display.column("tool calls", lambda payload: display.json_block(payload.tool_calls))


@admin.register(LLMCall)
class LLMCallAdmin(LogAdmin[LLMCall]):
    inlines = (PayloadInline,)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Show the list with the sums over all calls that its filters leave, where these are at most `TOTALLED_ROWS`."""
        response: Any = super().changelist_view(request, extra_context)
        changelist = (getattr(response, "context_data", None) or {}).get("cl")
        if changelist is not None:  # no redirect
            # The keys are looked for once: that of a rare status may take a look at every row.
            keys = list(changelist.queryset.order_by("-pk").values_list("pk", flat=True)[: TOTALLED_ROWS + 1])
            sums = totals(LLMCall.objects.filter(pk__in=keys)) if len(keys) <= TOTALLED_ROWS else None
            response.context_data["totals"] = _totals_shown(sums)
        return response  # type: ignore[no-any-return]

    @admin.display(description="purpose")
    def what(self, call: LLMCall) -> SafeString:
        details = [text for text in (call.role, call.dimension) if text]
        return display.lines(display.visible(call.purpose), " · ".join(details))

    @admin.display(description="model", ordering="model")
    def model_name(self, call: LLMCall) -> SafeString:
        served = ""
        if call.served_model and call.served_model != call.model:
            served = f"served as {call.served_model}"
        return format_html('<span title="{}">{}</span>', display.marked(served), display.visible(call.model))

    @admin.display(description="tokens in / out")
    def tokens(self, call: LLMCall) -> SafeString:
        cached = f"{call.cache_read_tokens or 0:,} read from the cache, {call.cache_write_tokens or 0:,} written to it"
        return format_html(
            '<span class="pl-number" title="{}">{} / {}</span>',
            cached,
            display.count(call.input_tokens),
            display.count(call.output_tokens),
        )

    @admin.display(description="cost", ordering="cost_usd")
    def cost(self, call: LLMCall) -> SafeString:
        return display.money(call.cost_usd, unpriced=0 if call.cost_usd is not None else 1)


@admin.register(ModelPrice)
class ModelPriceAdmin(ModelAdmin[ModelPrice]):
    ordering = ("model", "-effective_from")

    def save_model(self, request: HttpRequest, obj: ModelPrice, form: ModelForm[ModelPrice], change: bool) -> None:
        super().save_model(request, obj, form, change)
        forget_prices()  # other processes notice within a minute


@admin.register(LLMBatch)
class LLMBatchAdmin(LogAdmin[LLMBatch]):
    @admin.display(description="results")
    def results(self, batch: LLMBatch) -> SafeString:
        counts = batch.rows.order_by("result").values_list("result").annotate(n=Count("pk"))
        labels = dict(LLMBatchRequest.Result.choices) | {"": "waiting"}
        number_and_label = ((f"{n:,}", labels.get(result, result)) for result, n in counts)
        return format_html_join(", ", "{} {}", number_and_label) or display.EMPTY


@admin.register(WorkerHeartbeat)
class WorkerAdmin(ReadOnlyAdmin[WorkerHeartbeat]):
    ordering = ("-seen_at", "-pk")

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkerHeartbeat]:
        lives = alive().filter(pk=OuterRef("pk"))
        return super().get_queryset(request).annotate(lives=Exists(lives))

    @admin.display(description="state")
    def state(self, worker: WorkerHeartbeat) -> str:
        if worker.stopped_at is not None:
            return "stopped"
        if getattr(worker, "lives", False):
            return "alive"
        return f"silent since {timezone.localtime(worker.seen_at):%H:%M}"

    calls = display.column("model calls in flight", lambda worker: f"{worker.slots_in_use} of {worker.slots}")

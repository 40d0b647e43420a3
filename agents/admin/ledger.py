"""The ledger of model calls, and the prices it is reckoned with."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce
from django.forms import ModelForm
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.exports import CALLS
from agents.admin.filters import DateRangeFilter, RecentValuesFilter, RecentWorkFilter
from agents.admin.ledger_chart import calls_chart
from agents.admin.log_filters import AgentFilter, ErrorFilter
from agents.admin.logs import LogAdmin
from agents.adminsite import ModelAdmin, ReadOnlyStackedInline
from agents.llm.ledger import Totals, totals
from agents.llm.prices import forget_prices
from agents.models import LLMCall, LLMPayload, ModelPrice

TOTALLED_ROWS = 20_000  # sums over more calls than this are not worth the wait of a page
ALL_TOKENS = (
    Coalesce(F("input_tokens"), 0)
    + Coalesce(F("output_tokens"), 0)
    + Coalesce(F("cache_read_tokens"), 0)
    + Coalesce(F("cache_write_tokens"), 0)
)


def bounded_totals(calls: QuerySet[LLMCall]) -> Totals | None:
    """Sums over `calls`; None when they are more than `TOTALLED_ROWS`. Reads no more rows than that."""
    if calls.order_by("-pk").values("pk")[TOTALLED_ROWS : TOTALLED_ROWS + 1]:
        return None
    return totals(LLMCall.objects.filter(pk__in=calls.order_by("-pk").values("pk")[:TOTALLED_ROWS]))


def totals_context(sums: Totals | None) -> dict[str, Any]:
    """What the line above the list shows."""
    if sums is None:
        return {"limit": f"{TOTALLED_ROWS:,}"}
    tokens = sums.input_tokens + sums.output_tokens + sums.cache_read_tokens + sums.cache_write_tokens
    priced = sums.cost_usd if sums.calls > sums.unpriced else None
    return {"calls": f"{sums.calls:,}", "tokens": f"{tokens:,}", "cost": display.money(priced, unpriced=sums.unpriced)}


class PayloadInline(ReadOnlyStackedInline[LLMPayload, LLMCall]):
    model = LLMPayload
    fields = ("exact_request", "raw_reply", "raw_tool_calls")
    readonly_fields = fields

    @admin.display(description="request")
    def exact_request(self, payload: LLMPayload) -> SafeString:
        return display.json_block(payload.request)

    @admin.display(description="reply")
    def raw_reply(self, payload: LLMPayload) -> SafeString:
        return display.block(payload.reply)

    @admin.display(description="tool calls")
    def raw_tool_calls(self, payload: LLMPayload) -> SafeString:
        return display.json_block(payload.tool_calls)


@admin.register(LLMCall)
class LLMCallAdmin(LogAdmin[LLMCall]):
    export = CALLS
    list_display = ("when", "what", "state", "who", "model_name", "tokens", "cost", "latency")
    list_display_links = ("when",)
    list_filter = (
        "status",
        ("purpose", RecentValuesFilter),
        ("role", RecentValuesFilter),
        ("model", RecentValuesFilter),
        ("dimension", RecentValuesFilter),
        ErrorFilter,
        ("work_id", RecentWorkFilter),
        ("agent", AgentFilter),
        ("created_at", DateRangeFilter),
    )
    list_select_related = ("agent",)
    search_fields = ("work_id__exact", "request_digest__exact", "request_id__exact")
    search_help_text = "work, request id or digest, exactly"
    inlines = (PayloadInline,)
    fieldsets = (
        (None, {"fields": ("when", "state", "error_text", "stop_reason")}),
        ("What it was for", {"fields": ("role", "purpose", "mechanism", "dimension", "who", "run", "work_id")}),
        ("Model", {"fields": ("provider", "endpoint", "model", "served_model", "request_id", "request_digest")}),
        (
            "What it used",
            {
                "fields": (
                    "cost",
                    "input_tokens",
                    "output_tokens",
                    "cache_read_tokens",
                    "cache_write_tokens",
                    "latency",
                    "attempts",
                    "batch",
                )
            },
        ),
    )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        response: Any = super().changelist_view(request, extra_context)
        changelist = (getattr(response, "context_data", None) or {}).get("cl")
        if changelist is not None:
            sums = bounded_totals(changelist.queryset)
            response.context_data["totals"] = totals_context(sums)
            response.context_data["chart"] = calls_chart(changelist.queryset, most=None if sums else TOTALLED_ROWS)
        return response  # type: ignore[no-any-return]

    @admin.display(description="time", ordering="pk")
    def when(self, call: LLMCall) -> SafeString:
        return display.moment(call.created_at)

    @admin.display(description="purpose")
    def what(self, call: LLMCall) -> SafeString:
        return display.lines(display.visible(call.purpose), " · ".join(filter(None, (call.role, call.dimension))))

    @admin.display(description="status", ordering="status")
    def state(self, call: LLMCall) -> SafeString:
        return display.status_badge(call)

    @admin.display(description="agent")
    def who(self, call: LLMCall) -> SafeString:
        return display.agent_chip(call.agent)

    @admin.display(description="model", ordering="model")
    def model_name(self, call: LLMCall) -> SafeString:
        served = f"served as {call.served_model}" if call.served_model and call.served_model != call.model else ""
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

    @admin.display(description="latency", ordering="latency_ms")
    def latency(self, call: LLMCall) -> str:
        return f"{call.latency_ms:,} ms"

    @admin.display(description="error")
    def error_text(self, call: LLMCall) -> SafeString:
        return display.block(call.error)


@admin.register(ModelPrice)
class ModelPriceAdmin(ModelAdmin[ModelPrice]):
    list_display = ("model", "since", "usd", "long_prompts", "where_read")
    search_fields = ("model",)
    ordering = ("model", "-effective_from")

    def save_model(self, request: HttpRequest, obj: ModelPrice, form: ModelForm[ModelPrice], change: bool) -> None:
        super().save_model(request, obj, form, change)
        forget_prices()  # other processes notice within a minute

    @admin.display(description="since", ordering="effective_from")
    def since(self, price: ModelPrice) -> SafeString:
        return display.day(price.effective_from)

    @admin.display(description="USD per million: in / out / cache write / cache read", ordering="input_usd")
    def usd(self, price: ModelPrice) -> str:
        rates = (price.input_usd, price.output_usd, price.cache_write_usd, price.cache_read_usd)
        return " / ".join(f"{rate.normalize():f}" for rate in rates)

    @admin.display(description="long prompts")
    def long_prompts(self, price: ModelPrice) -> str | SafeString:
        if price.long_prompt_tokens is None:
            return display.EMPTY
        return f"×{price.long_prompt_factor.normalize():f} above {price.long_prompt_tokens:,} tokens"

    @admin.display(description="source")
    def where_read(self, price: ModelPrice) -> SafeString:
        return display.folded(price.source, 50)

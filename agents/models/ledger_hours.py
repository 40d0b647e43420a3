"""Sums over the ledger by hour, day and month, so that no page has to scan `llm_calls`; they stay when its rows are pruned."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from agents.models.personas import Agent
from agents.models.rollups import Span


class LedgerSums(models.Model):
    """What is added up over calls. Means are sums divided by `calls`; percentiles cannot be added up and are not kept."""

    span = models.PositiveSmallIntegerField(choices=Span.choices)
    start = models.DateTimeField()
    calls = models.BigIntegerField()
    unpriced = models.BigIntegerField(help_text="calls without a price, not in cost_usd")
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    cache_read_tokens = models.BigIntegerField()
    cache_write_tokens = models.BigIntegerField()
    cost_usd = models.DecimalField(max_digits=20, decimal_places=8)
    latency_ms = models.BigIntegerField()

    class Meta:
        abstract = True


class ToldApart(LedgerSums):
    """The columns of a call by which sums are kept apart."""

    purpose = models.CharField(max_length=64)
    mechanism = models.CharField(max_length=64)
    dimension = models.CharField(max_length=32)
    model = models.CharField(max_length=200)
    role = models.CharField(max_length=12)
    provider = models.CharField(max_length=16)
    status = models.CharField(max_length=12)

    class Meta:
        abstract = True


class LedgerSum(ToldApart):
    """The calls of one agent (or of none) in an hour or a day."""

    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False)

    class Meta:
        db_table = "ledger_sums"
        indexes: ClassVar = [
            models.Index(fields=["span", "start"], name="ledger_sum_start"),
            models.Index(fields=["agent", "span", "start"], name="ledger_sum_agent"),
        ]

    def __str__(self) -> str:
        return f"{self.calls} calls of agent {self.agent_id} from {self.start} ({self.get_span_display()})"


class LedgerTotal(ToldApart):
    """The calls of everybody in an hour or a day."""

    class Meta:
        db_table = "ledger_totals"
        indexes: ClassVar = [models.Index(fields=["span", "start"], name="ledger_total_start")]

    def __str__(self) -> str:
        return f"{self.calls} calls from {self.start} ({self.get_span_display()})"


class LedgerAgentTotal(LedgerSums):
    """All calls of one agent (or of none) in a day or a month."""

    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False)

    class Meta:
        db_table = "ledger_agent_totals"
        indexes: ClassVar = [
            models.Index(fields=["span", "start"], name="ledger_agent_total_start"),
            models.Index(fields=["agent", "span", "start"], name="ledger_agent_total_agent"),
        ]

    def __str__(self) -> str:
        return f"{self.calls} calls of agent {self.agent_id} from {self.start} ({self.get_span_display()})"

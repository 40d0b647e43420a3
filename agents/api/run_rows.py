"""A turn as the API shows it on its own page, and its trace."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

from agents.api.message_rows import MessageRow, shown_message, shown_messages
from agents.api.prompts import StageFields
from agents.api.serializers import RunRow
from agents.llm.ledger import Totals
from agents.models import Run, RunMessage, RunStep
from agents.turn.timeline import spent


class UsageFields(serializers.Serializer[Any]):
    """Sums over model calls. `cost_usd` leaves out the unpriced ones."""

    calls = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cache_read_tokens = serializers.IntegerField()
    cache_write_tokens = serializers.IntegerField()
    cost_usd = serializers.DecimalField(max_digits=20, decimal_places=8)
    unpriced = serializers.IntegerField(help_text="calls whose price is not known")


class WholeRun(RunRow):
    """A turn with what was said in it and what it used. Of one run only: not for lists."""

    _known: tuple[Totals, Totals] | None = None

    steps = serializers.IntegerField(source="steps.count", read_only=True, help_text="how many it has taken so far")
    said = serializers.SerializerMethodField(help_text="what was said in it, in order")
    usage = serializers.SerializerMethodField(help_text="of the agent's own model calls")
    usage_with_stages = serializers.SerializerMethodField(help_text="of all model calls that the turn caused")
    overrides = serializers.DictField(child=serializers.JSONField(), read_only=True)
    calls_url = serializers.SerializerMethodField()

    class Meta:
        model = Run
        fields = (*RunRow.Meta.fields, "overrides", "steps", "said", "usage", "usage_with_stages", "calls_url")
        read_only_fields = fields

    @extend_schema_field(MessageRow(many=True))
    def get_said(self, run: Run) -> list[dict[str, Any]]:
        request = self.context["request"]
        return [shown_message(message, request) for message in shown_messages().filter(run=run).order_by("pk")]

    @extend_schema_field(UsageFields)
    def get_usage(self, run: Run) -> dict[str, Any]:
        return _usage(self._spent(run)[0])

    @extend_schema_field(UsageFields)
    def get_usage_with_stages(self, run: Run) -> dict[str, Any]:
        return _usage(self._spent(run)[1])

    def get_calls_url(self, run: Run) -> str:
        return f"{reverse('agents:llm-calls', request=self.context['request'])}?run={run.pk}"

    def _spent(self, run: Run) -> tuple[Totals, Totals]:
        if self._known is None:
            self._known = spent(run)
        return self._known


class StepFields(serializers.ModelSerializer[RunStep]):
    detail = serializers.JSONField(help_text="of a model call its status, model and tools; of a tool what became of it")
    call_url = serializers.SerializerMethodField()

    class Meta:
        model = RunStep
        fields = ("number", "kind", "detail", "duration_ms", "created_at", "call_url")
        read_only_fields = fields

    def get_call_url(self, step: RunStep) -> str | None:
        call = step.detail.get("call") if isinstance(step.detail, dict) else None
        if not isinstance(call, int):
            return None
        return str(reverse("agents:llm-call", [call], request=self.context["request"]))


class ExchangeFields(serializers.ModelSerializer[RunMessage]):
    """One entry of the exchange with the model."""

    step = serializers.IntegerField(source="step.number", default=None, allow_null=True, read_only=True)
    message = serializers.IntegerField(
        source="message_id", allow_null=True, read_only=True, help_text="id of what it said"
    )
    content = serializers.JSONField()

    class Meta:
        model = RunMessage
        fields = ("number", "role", "step", "tool_name", "content", "message", "created_at")
        read_only_fields = fields


class Trace(serializers.Serializer[Run]):
    """What happened in a turn."""

    run = serializers.IntegerField(source="pk")
    url = serializers.HyperlinkedIdentityField(view_name="agents:run")
    status = serializers.ChoiceField(Run.Status.choices)
    stages = StageFields(source="trace", many=True, help_text="what the stages did, in order")
    steps = serializers.SerializerMethodField(help_text="model calls and tools, in order")
    exchange = serializers.SerializerMethodField(help_text="all that passed between the turn and the model")

    @extend_schema_field(StepFields(many=True))
    def get_steps(self, run: Run) -> Any:
        return StepFields(run.steps.order_by("number"), many=True, context=self.context).data

    @extend_schema_field(ExchangeFields(many=True))
    def get_exchange(self, run: Run) -> Any:
        rows = RunMessage.objects.filter(run=run).select_related("step").order_by("number")
        return ExchangeFields(rows, many=True, context=self.context).data


def _usage(sums: Totals) -> dict[str, Any]:
    return dict(UsageFields(sums).data)

"""What the API shows of evaluations of a request's effect."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

from agents.api.bodies import StrictBody, Whole
from correction.models import BehaviorEffect, BehaviorRequest
from evaluation.change.before_after import MESSAGES, MOST_MESSAGES
from evaluation.models import is_heuristic

EXPECTED = ("more", "less", "otherwise")
VERDICTS = ("more", "less", "no change shown", "cannot tell")
STATUSES = ("scored", "trivial", "unscored")


class EffectEstimate(serializers.Serializer[Any]):
    """What judging would take; nothing for a judge on this machine."""

    calls = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cost_usd = serializers.CharField(allow_null=True, help_text="US dollars; null = the judge has no price")


class EffectPlan(serializers.Serializer[Any]):
    """The messages there are, what is missing, and what judging them would cost."""

    request = serializers.IntegerField()
    expected = serializers.ChoiceField(
        EXPECTED, help_text="of what the trait is about, after the request; otherwise = it was reworded"
    )
    agent = serializers.CharField()
    trait = serializers.CharField()
    claim = serializers.CharField(help_text="what is judged of each message")
    judge = serializers.CharField()
    wanted = serializers.IntegerField(min_value=1, help_text="messages of each side")
    before = serializers.IntegerField(
        help_text="messages there are before the change, as many as wanted at most; back to the last change of the trait"
    )
    after = serializers.IntegerField(help_text="the same after it, until it was reverted or the trait changed again")
    waits = serializers.CharField(allow_blank=True, help_text="what is missing, e.g. not yet: 3 of 10 messages since")
    estimate = EffectEstimate()


class JudgedMessage(serializers.Serializer[Any]):
    message = serializers.IntegerField(help_text="its id")
    side = serializers.ChoiceField(("before", "after"))
    status = serializers.ChoiceField(STATUSES)
    score = serializers.FloatField(allow_null=True, help_text="0 to 9: how much it shows the trait; null = not scored")
    reason = serializers.CharField(allow_blank=True, help_text="why it was not scored")
    justification = serializers.CharField(
        allow_blank=True,
        allow_null=True,
        help_text="the judge's; null = you may not read messages (agents.view_message)",
    )


class EffectResult(EffectPlan):
    """What came out. What was not scored is in no mean."""

    as_requested = serializers.BooleanField(allow_null=True, help_text="null = it cannot be told")
    verdict = serializers.ChoiceField(VERDICTS, help_text="of the 95 % interval of the difference")
    reason = serializers.CharField(allow_blank=True, help_text="why there is no difference, or no interval")
    mean_before = serializers.FloatField(allow_null=True, help_text="0 to 9")
    mean_after = serializers.FloatField(allow_null=True, help_text="0 to 9")
    difference = serializers.FloatField(allow_null=True, help_text="of the means, after less before")
    interval = serializers.ListField(
        child=serializers.FloatField(),
        min_length=2,
        max_length=2,
        allow_null=True,
        help_text="95 %: low, high; messages are taken as independent, and it is too narrow where neighbours are alike",
    )
    before_scored = serializers.IntegerField()
    before_trivial = serializers.IntegerField()
    before_unscored = serializers.IntegerField()
    after_scored = serializers.IntegerField()
    after_trivial = serializers.IntegerField()
    after_unscored = serializers.IntegerField()
    messages = JudgedMessage(many=True)
    actual_calls = serializers.IntegerField(help_text="those of interrupted attempts included")
    actual_unpriced_calls = serializers.IntegerField(help_text="of which nobody knows the cost")
    actual_cost_usd = serializers.CharField(
        allow_null=True, help_text="US dollars of the priced calls; null = none has a price"
    )


def with_name(shown: dict[str, Any], request: BehaviorRequest) -> dict[str, Any]:
    """The claim as the judge reads it: with the agent's name, where the agent is still there."""
    if request.agent is None:
        return shown
    return {**shown, "claim": shown["claim"].replace("{{agent_name}}", request.agent.display_name)}


class EffectRow(serializers.ModelSerializer[BehaviorEffect]):
    """One evaluation of whether a request changed anything."""

    heuristic = serializers.SerializerMethodField(help_text="asked of the offline judge, not of a model")
    requested_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)
    result = serializers.SerializerMethodField(help_text="null = not judged (yet)")
    calls_url = serializers.SerializerMethodField(help_text="the model calls it made")

    class Meta:
        model = BehaviorEffect
        fields = (
            *("id", "status", "messages", "judge", "heuristic", "requested_by", "error", "attempt"),
            *("created_at", "started_at", "finished_at", "result", "calls_url"),
        )
        read_only_fields = fields

    def get_heuristic(self, row: BehaviorEffect) -> bool:
        return is_heuristic(row.judge)

    @extend_schema_field(EffectResult(allow_null=True))
    def get_result(self, row: BehaviorEffect) -> dict[str, Any] | None:
        result = row.result
        if not isinstance(result, dict):
            return None
        result = with_name(result, row.request)
        if not self.context["request"].user.has_perm("agents.view_message"):
            judged = [{**message, "justification": None} for message in result.get("messages", ())]
            result = {**result, "messages": judged}
        return result

    def get_calls_url(self, row: BehaviorEffect) -> str:
        return f"{reverse('agents:llm-calls', request=self.context['request'])}?work_id={row.work_id}"


class EffectOfRequest(serializers.Serializer[Any]):
    """What could be judged, and what was."""

    plan = EffectPlan(allow_null=True, help_text="null = nothing was changed by the request, or its agent is gone")
    why_not = serializers.CharField(allow_blank=True, help_text="why it cannot be asked for now; empty = it can")
    effects = EffectRow(many=True, help_text="newest first")


class EffectBody(StrictBody):
    """How many messages of each side; nothing = 10."""

    messages = Whole(least=1, most=MOST_MESSAGES, required=False, help_text=f"of each side; left out = {MESSAGES}")

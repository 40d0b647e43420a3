"""The shapes of what correction answers with, for the schema: the services build the objects themselves."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from correction.config.fields import CONFIG_FIELDS, INHERIT, ConfigField
from correction.models.config import LONGEST_NAME, MOST_NAMES

_TYPES = {
    "toggle": "boolean",
    "choice": "string",
    "whole number": "integer",
    "number": "number",
    "list of names": "array",
}
_NAMES = {
    "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME},
    "maxItems": MOST_NAMES,
}


def _value(field: ConfigField) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": [_TYPES[field.kind], "null"]}
    if field.choices:
        shape["enum"] = [*field.choices, None]
    return shape | _NAMES if field.kind == "list of names" else shape


VALUES = {
    "type": "object",
    "properties": {name: _value(field) for name, field in CONFIG_FIELDS.items()},
    "required": list(CONFIG_FIELDS),
}
CHANGES = {
    "application/json": {
        "type": "object",
        "properties": {
            **{
                name: {**_value(field), "description": f"{field.description}; {field.allowed}; null = {INHERIT}"}
                for name, field in CONFIG_FIELDS.items()
            },
            "reason": {"type": "string", "maxLength": 100, "description": "why; stands in the history"},
        },
        "additionalProperties": False,
    }
}
PROVENANCE = {"type": "string", "enum": ["override", "agent", "defaults", "built-in"]}


@extend_schema_field(VALUES)
class Values(serializers.DictField):
    """Every field's value in effect."""


@extend_schema_field({"type": "object", "additionalProperties": PROVENANCE})
class WhereFrom(serializers.DictField):
    """Where each field's value comes from."""


class DefaultConfig(serializers.Serializer[Any]):
    """What holds for an agent that says nothing of its own."""

    config = Values()
    provenance = WhereFrom()
    notes = serializers.ListField(child=serializers.CharField(), help_text="settings that have no effect as they stand")


class AgentConfig(DefaultConfig):
    """The configuration in effect for one agent."""

    agent = serializers.CharField()
    display_name = serializers.CharField()
    url = serializers.URLField()


class FieldWords(serializers.Serializer[Any]):
    """What a field is, and what it may be set to."""

    kind = serializers.ChoiceField(list(_TYPES))
    allowed = serializers.CharField()
    description = serializers.CharField(allow_blank=True)


class WholeAgentConfig(AgentConfig):
    """The configuration in effect for one agent, with what may be set."""

    fields = serializers.DictField(child=FieldWords())  # type: ignore[assignment]  # a name of the answer


class ConfigPage(serializers.Serializer[Any]):
    """The configuration in effect for every agent, and the defaults."""

    count = serializers.IntegerField()
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = AgentConfig(many=True)
    defaults = DefaultConfig()


class Sums(serializers.Serializer[Any]):
    """Calls, tokens and US dollars; `cost_usd` leaves out the `unpriced` calls."""

    calls = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cache_read_tokens = serializers.IntegerField()
    cache_write_tokens = serializers.IntegerField()
    cost_usd = serializers.FloatField()
    unpriced = serializers.IntegerField()


class Asked(serializers.Serializer[Any]):
    """Of whom and when."""

    agent = serializers.CharField(allow_null=True, help_text="null = all")
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)


class CostRowShown(Sums):
    """Sums for one key of a grouping, which stands under the grouping's name; null = none was noted."""

    purpose = serializers.CharField(required=False, help_text="where a grouping tells purposes apart")
    mechanism = serializers.CharField(required=False, allow_null=True)
    dimension = serializers.CharField(required=False, allow_null=True)
    model = serializers.CharField(required=False, allow_null=True)
    day = serializers.DateField(required=False, allow_null=True)
    agent = serializers.CharField(required=False, allow_null=True)


class CostAnswer(Asked):
    total = Sums()
    correction = Sums(help_text="what was spent on messages about to be said")
    by = serializers.DictField(child=CostRowShown(many=True))


class JudgeMeansShown(serializers.Serializer[Any]):
    """Mean scores by one judge, 0 to 9; null where nothing was scored."""

    judge = serializers.CharField(allow_blank=True)
    heuristic = serializers.BooleanField()
    scored = serializers.IntegerField()
    mean = serializers.FloatField(allow_null=True)
    mean_first = serializers.FloatField(allow_null=True)
    mean_committed = serializers.FloatField(allow_null=True)


class DimensionShown(serializers.Serializer[Any]):
    checks = serializers.IntegerField()
    scored = serializers.IntegerField()
    failures = serializers.IntegerField()
    first_failures = serializers.IntegerField()
    unjudged = serializers.DictField(child=serializers.IntegerField(), help_text="by why it was not")
    by_judge = JudgeMeansShown(many=True)


class ChecksShown(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    passed = serializers.IntegerField()
    dimensions = serializers.DictField(child=DimensionShown())


class GateAnswer(Asked):
    total_actions = serializers.IntegerField(help_text="messages, each once however many drafts it took")
    judged_count = serializers.IntegerField(help_text="of them, those whose first draft was judged on some dimension")
    original_pass_count = serializers.IntegerField()
    original_success_rate = serializers.FloatField(
        allow_null=True, help_text="original_pass_count ÷ judged_count, 0 to 1; null where nothing was judged"
    )
    regeneration_count = serializers.IntegerField()
    passed_after_retry_count = serializers.IntegerField()
    forced_through_count = serializers.IntegerField()
    regeneration_failure_rate = serializers.FloatField(allow_null=True, help_text="0 to 1")
    abandoned = serializers.IntegerField()
    timeouts = serializers.IntegerField()
    overloads = serializers.IntegerField()
    errors = serializers.IntegerField()  # type: ignore[assignment]  # a name of the answer
    unscored = serializers.IntegerField()
    over_budget = serializers.IntegerField()
    dimensions = serializers.DictField(child=DimensionShown())
    observed = ChecksShown()
    external = ChecksShown()


class PrecisionShown(serializers.Serializer[Any]):
    dimension = serializers.CharField()
    threshold = serializers.FloatField()
    judge = serializers.CharField(allow_blank=True)
    heuristic = serializers.BooleanField()
    marked = serializers.IntegerField()
    right = serializers.IntegerField()
    false_alarms = serializers.IntegerField()
    precision = serializers.FloatField(help_text="0 to 1")
    low = serializers.FloatField()
    high = serializers.FloatField()


class PrecisionAnswer(Asked):
    results = PrecisionShown(many=True)


class MarkRequest(serializers.Serializer[Any]):
    mark = serializers.ChoiceField(["right", "false_alarm", ""], help_text="empty takes a mark back")

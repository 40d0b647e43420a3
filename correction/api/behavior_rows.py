"""Behaviour requests as the API shows them."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.reverse import reverse

from agents.api.bodies import Flag, NoBody, StrictBody, Text
from correction.models import BehaviorRequest

_ROW = (
    *("id", "url", "agent", "channel", "message", "message_url", "requester", "status", "confidence", "operation"),
    *("trait_name", "trait_before", "trait_after", "why", "warnings", "judge", "heuristic", "automatic"),
    *("reviewed_by", "created_at", "finished_at", "applied_at", "reviewed_at", "reverted_at"),
)
_TIERS = ("gate_result", "extract_result", "map_result")
_QUOTING = ("why", "warnings", "error", *_TIERS)  # what was made of the words may hold them
_UNREAD = "null = you may not read messages (agents.view_message)"


class RequestedTrait(serializers.Serializer[Any]):
    """A trait as it was, or is to be."""

    name = serializers.CharField()
    description = serializers.CharField()
    sentiment = serializers.FloatField(help_text="how the persona feels about it, -1 to 1")
    strength = serializers.FloatField(help_text="0 = stop doing this, 0.5 = usual, 1 = always")


class BehaviorRequestRow(serializers.ModelSerializer[BehaviorRequest]):
    """One look at one message for one agent: whether it asked for a change, for which, and what became of it."""

    url = serializers.HyperlinkedIdentityField(view_name="behavior:request")
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    channel = serializers.SerializerMethodField(help_text="the slug of where it was said; null = it was deleted since")
    message = serializers.IntegerField(source="message_id", read_only=True, allow_null=True)
    message_url = serializers.SerializerMethodField()
    why = serializers.SerializerMethodField(
        help_text=f"why it waits, why no change came of it, or what went wrong; {_UNREAD}"
    )
    requester = serializers.SerializerMethodField(help_text="name of the user or outsider who said it")
    trait_before = RequestedTrait(read_only=True, allow_null=True)
    trait_after = RequestedTrait(read_only=True, allow_null=True)
    warnings = serializers.ListField(
        child=serializers.CharField(), read_only=True, allow_null=True, help_text=f"what was odd about it; {_UNREAD}"
    )
    heuristic = serializers.SerializerMethodField(help_text="found by the offline detector, not by a model")
    reviewed_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    class Meta:
        model = BehaviorRequest
        fields: tuple[str, ...] = _ROW
        read_only_fields = fields

    def to_representation(self, row: BehaviorRequest) -> dict[str, Any]:
        shown: dict[str, Any] = super().to_representation(row)
        if not self.may_read:
            shown.update((name, None) for name in _QUOTING if name in shown)
        return shown

    @property
    def may_read(self) -> bool:
        return bool(self.context["request"].user.has_perm("agents.view_message"))

    def get_channel(self, row: BehaviorRequest) -> str | None:
        return row.message.channel.slug if row.message else None

    def get_message_url(self, row: BehaviorRequest) -> str | None:
        return self._link("agents:message", row.message_id) if row.message_id else None

    def get_why(self, row: BehaviorRequest) -> str | None:
        return row.why or row.error

    def get_requester(self, row: BehaviorRequest) -> str:
        return row.message.author_name if row.message else ""

    def get_heuristic(self, row: BehaviorRequest) -> bool:
        return row.judge.startswith("offline:")

    def _link(self, view: str, key: object) -> str:
        return str(reverse(view, [key], request=self.context["request"]))


class WholeBehaviorRequest(BehaviorRequestRow):
    """The same with what each tier said, why it failed, and the words it is about."""

    text = serializers.SerializerMethodField(
        help_text="the message; null where it was deleted, or may not be read by you (agents.view_message)"
    )
    gate_result, extract_result, map_result = (
        serializers.JSONField(read_only=True, allow_null=True, help_text=f"null = not asked yet; also {_UNREAD}")
        for _ in _TIERS
    )
    error = serializers.CharField(read_only=True, allow_null=True, help_text=f"why it failed or paused; {_UNREAD}")
    persona_version_before = serializers.IntegerField(
        source="persona_version_before.number", read_only=True, allow_null=True, default=None
    )
    persona_version = serializers.IntegerField(
        source="persona_version.number", read_only=True, allow_null=True, default=None
    )
    calls_url = serializers.SerializerMethodField(help_text="the model calls it made")

    class Meta:
        model = BehaviorRequest
        fields = (*_ROW, "text", *_TIERS, "error", "persona_version_before", "persona_version", "calls_url")
        read_only_fields = fields

    def get_text(self, row: BehaviorRequest) -> str | None:
        return row.message.text if row.message and self.may_read else None

    def get_calls_url(self, row: BehaviorRequest) -> str:
        return f"{reverse('agents:llm-calls', request=self.context['request'])}?work_id={row.work_id}"


class Between(serializers.FloatField):
    """A number within bounds; an error says which."""

    def to_internal_value(self, data: Any) -> float:
        allowed = f"a number from {self.min_value:g} to {self.max_value:g}"
        inside = isinstance(data, int | float) and not isinstance(data, bool)
        if not inside or not self.min_value <= data <= self.max_value:
            raise serializers.ValidationError([f"{self.field_name} {str(data)[:80]!r}: allowed: {allowed}"])
        return float(data)


class TraitBody(StrictBody):
    name = Text(most=120)
    description = Text(most=4000, required=False, allowed="a text of 1 to 4,000 characters; left out = as proposed")
    sentiment = Between(min_value=-1, max_value=1, required=False, help_text="left out = as proposed")
    strength = Between(min_value=0, max_value=1)


class ApplyBody(StrictBody):
    """Nothing, or the trait as it is to be instead of as it was proposed."""

    trait = TraitBody(required=False)


class RejectBody(StrictBody):
    why = Text(most=1000, required=False, allowed="a text of 1 to 1,000 characters; left out = none")


class RevertBody(StrictBody):
    anyway = Flag(required=False, help_text="also where the same trait was changed since")


class RetryBody(NoBody):
    pass


def shown_requests(rows: QuerySet[BehaviorRequest]) -> QuerySet[BehaviorRequest]:
    """With what their rows show, in one query, without the long texts of those who are named."""
    found = rows.select_related("agent", "message__channel", "message__user", "message__agent", "reviewed_by")
    return found.defer(
        *("agent__system_prompt", "agent__sample_lines", "agent__description"),
        *("message__channel__topic", "message__channel__tags", "message__payload", "message__text"),
        *("message__agent__system_prompt", "message__agent__sample_lines", "message__agent__description"),
    )

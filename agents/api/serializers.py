"""Agents, channels, runs and model calls as the API shows them. Lists leave out what is long."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.reverse import reverse

from agents.api.bodies import TraitFields
from agents.models import Agent, Channel, LLMCall, PersonaVersion, Run

_OF_AGENT = (
    *("slug", "url", "display_name", "title", "description", "avatar_color", "is_active", "model_id", "max_turns"),
    *("version", "created_at", "updated_at", "prompt_url", "turns_url", "versions_url"),
)
_OF_VERSION = ("id", "number", "url", "agent", "digest", "note", "created_by", "created_at")
_OF_RUN = (
    *("id", "url", "agent", "channel", "status", "stop_reason", "error", "trigger", "trigger_url", "prompt", "depth"),
    *("attempt", "cancel_requested", "created_at", "started_at", "finished_at", "trace_url", "cancel_url"),
)
_OF_CALL = (
    *("id", "url", "created_at", "role", "purpose", "mechanism", "dimension", "agent", "run", "work_id"),
    *("provider", "endpoint", "model", "served_model", "status", "error", "stop_reason", "input_tokens"),
    *("output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "latency_ms", "attempts", "batch"),
    *("request_id", "request_digest"),
)


def _link(view: str, **kwargs: Any) -> serializers.HyperlinkedIdentityField:
    return serializers.HyperlinkedIdentityField(view_name=f"agents:{view}", **kwargs)


def _of_agent(view: str) -> serializers.HyperlinkedIdentityField:
    return _link(view, lookup_field="slug")


def _slug_of(name: str = "slug") -> serializers.SlugRelatedField[Any]:
    return serializers.SlugRelatedField[Any](slug_field=name, read_only=True)


class AgentRow(serializers.ModelSerializer[Agent]):
    """An agent as lists show it, without its persona. Needs `version_number` annotated."""

    url = _of_agent("agent")
    version = serializers.IntegerField(
        source="version_number", allow_null=True, read_only=True, help_text="number of the persona as it is now"
    )
    prompt_url = _of_agent("agent-prompt")
    turns_url = _of_agent("agent-turns")
    versions_url = _of_agent("agent-versions")

    class Meta:
        model = Agent
        fields = _OF_AGENT
        read_only_fields = fields


class MemoryFields(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]  # a declared field is taken off the class
    value = serializers.CharField()


class WholeAgent(AgentRow):
    """An agent with its persona and its notes."""

    sample_lines = serializers.ListField(child=serializers.CharField(), read_only=True)
    traits = TraitFields(many=True, read_only=True)
    memory = MemoryFields(source="memory_blocks", many=True, read_only=True)

    class Meta:
        model = Agent
        fields = (*_OF_AGENT, "system_prompt", "sample_lines", "traits", "memory")
        read_only_fields = fields


class VersionRow(serializers.ModelSerializer[PersonaVersion]):
    """A saved state of a persona, without its texts."""

    url = serializers.SerializerMethodField()
    agent = _slug_of()
    created_by = serializers.SlugRelatedField[Any](slug_field="username", read_only=True, allow_null=True)

    class Meta:
        model = PersonaVersion
        fields = _OF_VERSION
        read_only_fields = fields

    def get_url(self, version: PersonaVersion) -> str:
        where = [version.agent.slug, version.number]
        return str(reverse("agents:agent-version", where, request=self.context["request"]))


class WholeVersion(VersionRow):
    traits = TraitFields(many=True, read_only=True)

    class Meta:
        model = PersonaVersion
        fields = (*_OF_VERSION, "system_prompt", "traits")
        read_only_fields = fields


class ChannelRow(serializers.ModelSerializer[Channel]):
    """A channel with who is in it. Needs `memberships` prefetched with their agent and user."""

    url = _of_agent("channel")
    tags = serializers.DictField(child=serializers.CharField(), read_only=True)
    agents = serializers.SerializerMethodField(help_text="slugs of the agents in it")
    users = serializers.SerializerMethodField(help_text="names of the users in it")
    last_position = serializers.SerializerMethodField(help_text="position of its newest message; 0 = none yet")
    messages_url = _of_agent("channel-messages")

    class Meta:
        model = Channel
        fields = (
            *("slug", "url", "name", "kind", "topic", "tags", "synthetic", "agents", "users", "last_position"),
            *("created_at", "messages_url"),
        )
        read_only_fields = fields

    def get_agents(self, channel: Channel) -> list[str]:
        return sorted(member.agent.slug for member in channel.memberships.all() if member.agent)

    def get_users(self, channel: Channel) -> list[str]:
        return sorted(member.user.get_username() for member in channel.memberships.all() if member.user)

    def get_last_position(self, channel: Channel) -> int:
        return channel.next_position - 1


class RunRow(serializers.ModelSerializer[Run]):
    """A turn of an agent, without what happened in it."""

    url = _link("run")
    agent = _slug_of()
    channel = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    trigger = serializers.IntegerField(
        source="trigger_id", read_only=True, allow_null=True, help_text="id of the message it answers"
    )
    trigger_url = serializers.SerializerMethodField()
    stop_reason = serializers.CharField(read_only=True, help_text=f"{', '.join(Run.StopReason.values)}, or empty")
    trace_url = _link("run-trace")
    cancel_url = _link("run-cancel")

    class Meta:
        model = Run
        fields = _OF_RUN
        read_only_fields = fields

    def get_trigger_url(self, run: Run) -> str | None:
        if run.trigger_id is None:
            return None
        return str(reverse("agents:message", [run.trigger_id], request=self.context["request"]))


class LLMCallRow(serializers.ModelSerializer[LLMCall]):
    """A call of a model: what it was for, what it used and cost. `cost_usd` null = unpriced, never free."""

    url = _link("llm-call")
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    run = serializers.IntegerField(source="run_id", read_only=True, allow_null=True)
    cost_usd = serializers.DecimalField(
        max_digits=14, decimal_places=8, read_only=True, allow_null=True, help_text="US dollars; null = unpriced"
    )

    class Meta:
        model = LLMCall
        fields = _OF_CALL
        read_only_fields = fields


class PayloadFields(serializers.Serializer[Any]):
    """The exact prompt and the raw reply."""

    request = serializers.JSONField()
    reply = serializers.CharField()
    tool_calls = serializers.ListField(child=serializers.JSONField())


class WholeLLMCall(LLMCallRow):
    """With the payload, where one is stored and the user may see it."""

    payload = serializers.SerializerMethodField(help_text="null = none is stored, or not yours to see")
    payload_stored = serializers.SerializerMethodField()

    class Meta:
        model = LLMCall
        fields = (*_OF_CALL, "payload_stored", "payload")
        read_only_fields = fields

    def get_payload_stored(self, call: LLMCall) -> bool:
        return getattr(call, "payload", None) is not None

    @extend_schema_field(PayloadFields(allow_null=True))
    def get_payload(self, call: LLMCall) -> dict[str, Any] | None:
        if not self.get_payload_stored(call) or not self.context["may_see_payload"]:
            return None
        return dict(PayloadFields(call.payload).data)

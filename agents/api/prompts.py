"""What an agent's model would be sent now."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import filters, parameters
from agents.api.lookups import named_message, the_agent
from agents.api.permissions import ModelPermissions
from agents.api.problems import Conflict, Unavailable
from agents.api.schema import documented, query
from agents.llm.endpoints import model_of
from agents.models import Agent, Channel, ChannelMember, Message
from agents.turn.pipeline import StageFailed
from agents.turn.prompt import PromptPreview, preview_prompt
from agents.turn.tools import tool_definitions


class MayReadMessages(BasePermission):
    """A prompt holds what was said in the channel."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return request.user.has_perm("agents.view_message")


class SectionFields(serializers.Serializer[Any]):
    heading = serializers.CharField(allow_blank=True)
    body = serializers.CharField(allow_blank=True)
    stage = serializers.CharField(allow_blank=True, help_text="who added it")


class ToolFields(serializers.Serializer[Any]):
    name = serializers.CharField()
    description = serializers.CharField()
    input_schema = serializers.JSONField()


class StageFields(serializers.Serializer[Any]):
    """What one stage did."""

    stage = serializers.CharField()
    phase = serializers.ChoiceField(["received", "prepare", "review", "committed", "finish"])
    status = serializers.ChoiceField(["ran", "skipped", "failed"])
    ms = serializers.FloatField()
    why = serializers.CharField(required=False)
    counters = serializers.DictField(child=serializers.IntegerField(), required=False)


class DraftFields(serializers.Serializer[Any]):
    text = serializers.CharField()
    payload = serializers.JSONField()


class PromptFields(serializers.Serializer[Any]):
    """What the model is sent at the beginning of a turn."""

    agent = serializers.CharField()
    channel = serializers.CharField()
    model = serializers.CharField()
    system = serializers.CharField(help_text="the whole system prompt")
    user = serializers.CharField(help_text="the first user turn, the conversation included")
    sections = SectionFields(many=True, help_text="the system prompt by its parts")
    transcript = serializers.ListField(child=serializers.CharField(), help_text="the conversation as it is shown")
    tools = ToolFields(many=True)
    draft = DraftFields(allow_null=True, help_text="what a stage would answer at once; null = the model is asked")
    trace = StageFields(many=True, help_text="what the stages did; `why` names what a turn would evaluate")


class Prompt(APIView):
    """Exactly what the agent's model would be sent if its turn began now: persona, memory, the stages' sections, conversation, tools.

    `channel` (slug) is where; without it, the channel where it spoke last, else its first one. `trigger` is the id of a message it
    would answer. No model is asked and nothing is written; so an intervention that needs a judge is named in `trace`, not evaluated.
    """

    queryset = Agent.objects.all()
    permission_classes = (ModelPermissions, MayReadMessages)

    @documented(
        PromptFields,
        parameters=(filters.CHANNEL, query("trigger", "the id of a message", type=int)),
        problems=(409, 503),
    )
    def get(self, request: Request, slug: str) -> Response:
        parameters.only(request, "channel", "trigger")
        agent = the_agent(slug)
        channel = filters.channel(request) or _usual_channel(agent)
        if not ChannelMember.objects.filter(agent=agent, channel=channel).exists():
            joined = Channel.objects.filter(memberships__agent=agent).order_by("slug").values_list("slug", flat=True)
            raise Conflict(
                f"agent {slug!r} is not a member of channel {channel.slug!r}; allowed: {', '.join(joined[:30])}"
            )
        number = filters.number(request, "trigger", allowed="the id of a message")
        trigger = named_message(number, "trigger", channel)
        try:
            shown = preview_prompt(agent=agent, channel=channel, trigger=trigger)
        except StageFailed as error:
            raise Unavailable(f"no turn could begin: a required stage failed ({error})") from None
        return Response(_as_json(agent, channel, shown))


def _usual_channel(agent: Agent) -> Channel:
    last = Message.objects.filter(agent=agent, synthetic=False).select_related("channel").order_by("-pk").first()
    if last is not None and last.channel.memberships.filter(agent=agent).exists():
        return last.channel
    first = Channel.objects.filter(memberships__agent=agent).order_by("synthetic", "slug").first()
    if first is None:
        raise Conflict(f"agent {agent.slug!r} has joined no channel: there is nothing it could be shown")
    return first


def _as_json(agent: Agent, channel: Channel, shown: PromptPreview) -> dict[str, Any]:
    draft = shown.draft
    return {
        "agent": agent.slug,
        "channel": channel.slug,
        "model": agent.model_id or model_of("actor"),
        "system": shown.system,
        "user": shown.user,
        "sections": [{"heading": s.heading, "body": s.body, "stage": s.stage} for s in shown.sections],
        "transcript": list(shown.transcript),
        "tools": [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in tool_definitions()
        ],
        "draft": {"text": draft.text, "payload": dict(draft.payload)} if draft is not None else None,
        "trace": [entry.as_json() for entry in shown.trace],
    }

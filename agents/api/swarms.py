"""Swarms: listed, made, changed and tried; and what an agent remembers of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Prefetch, QuerySet
from pydantic import BaseModel, Field
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import CharField, ListField, SerializerMethodField

from agents.api import filters
from agents.api.bodies import AgentSlug, Body
from agents.api.filters import Filters, the_agent, the_channel
from agents.api.headers import etag_of, located
from agents.api.requests import ReadsMessages
from agents.api.rows import Row
from agents.api.schema import answers
from agents.api.views import Editable, View, or_404
from agents.models import Agent, Channel, DialogState, Swarm, SwarmPhase
from agents.swarm.assign import Name, PhaseValues, SwarmRefused, SwarmValues, check_clashes, save_swarm
from agents.swarm.memory import newest_summary, text_of
from agents.swarm.state import KINDS, Entry, entries


class PhaseRow(Row):
    class Meta:
        model = SwarmPhase
        fields = ("name", "phase", "order", "prompt", "enabled", "temperature", "version", "updated_at")


class SwarmRow(Row):
    """A swarm with its phases, and the agents that have it."""

    intents = ListField(child=CharField())
    tools = ListField(child=CharField())
    agents = SerializerMethodField(help_text="slugs")
    phases = PhaseRow(many=True, read_only=True)

    class Meta:
        model = Swarm
        fields = (
            *("id", "url", "name", "intents", "tools", "enabled", "post_executor", "agents", "phases"),
            *("created_at", "updated_at"),
        )

    def get_agents(self, swarm: Swarm) -> list[str]:
        return sorted(agent.slug for agent in swarm.agents.all())


class PhaseBody(Body, PhaseValues):
    __doc__ = PhaseValues.__doc__


class SwarmBody(Body, SwarmValues):
    """A swarm as it is to be; `phases` and `agents` name all of them."""

    phases: list[PhaseBody] = Field([], max_length=50)  # type: ignore[assignment]
    agents: list[AgentSlug] = Field([], max_length=500, description="slugs of the agents that have it")


class SwarmChange(SwarmBody):
    """What may be changed of a swarm; `phases` and `agents` name all of them."""

    name: Name = ""
    intents: list[str] = Field([], min_length=1, max_length=100, description="of messages that it answers")


class SwarmFilters(Filters):
    search = filters.search("name")
    enabled = filters.flag()
    agent = filters.agent("agents")


class Swarms(Editable):
    """Swarms with their phases, by name.

    Filters: `search` (in the name), `enabled`, `agent` (has it).
    """

    queryset = Swarm.objects.order_by("name")
    serializer_class = SwarmRow
    lookup_field = "pk"
    lookup_value_converter = "int"
    filterset_class = SwarmFilters
    bodies: ClassVar = {"create": SwarmBody, "update": SwarmBody, "partial_update": SwarmChange}

    def get_queryset(self) -> QuerySet[Swarm]:
        return self.queryset.prefetch_related("phases", Prefetch("agents", Agent.objects.only("slug")))

    def create(self, request: Request) -> Response:
        """Make a swarm. It needs `name` and `intents`; 201 with the swarm. Without `agents` it takes part in no turn yet."""
        swarm = _saved(None, self.read_body().sent)
        self.kwargs["pk"] = swarm.pk
        return located(self.get_serializer(self.get_object()).data)

    def change(self, row: Swarm, fields: dict[str, Any]) -> None:
        _saved(row, fields)

    def etag_of_row(self, row: Swarm) -> str:
        agents = sorted(agent.slug for agent in row.agents.all())
        return etag_of([_values_of(row), agents])


def _values_of(swarm: Swarm) -> dict[str, Any]:
    """As `save_swarm` takes them."""
    fields = ("name", "intents", "tools", "enabled", "post_executor")
    columns = ("name", "phase", "order", "prompt", "enabled", "temperature")
    phases = [{name: getattr(phase, name) for name in columns} for phase in swarm.phases.all()]
    return {**{name: getattr(swarm, name) for name in fields}, "phases": phases}


def _saved(swarm: Swarm | None, sent: dict[str, Any]) -> Swarm:
    """The swarm with what was sent of it.

    Raises:
        ValidationError: By field what is not allowed; nothing is written.
    """
    agents: Sequence[Agent] | None = sent.pop("agents", None)
    if "phases" in sent:
        sent["phases"] = [phase.model_dump() for phase in sent["phases"]]
    try:
        with transaction.atomic():
            swarm = save_swarm({**(_values_of(swarm) if swarm else {}), **sent}, swarm=swarm)
            if agents is not None:
                for agent in sorted(agents, key=lambda one: one.pk):
                    check_clashes(agent, [*agent.swarms.exclude(pk=swarm.pk), swarm])
                swarm.agents.set(agents)
    except SwarmRefused as refused:
        raise ValidationError({refused.field: [str(refused)]}) from None
    return swarm


# -- what is remembered
class Dialog(BaseModel):
    """What an agent remembers of a conversation.

    Attributes:
        position: Of the last message that is taken into account; `turn`: how often the agent was asked.
        dropped: Entries that did not stand in the message they named.
        anchor, goal: At most one entry each.
        pending: The question that waits for its answer.
        summary: Of older messages; null while there is none.
    """

    agent: str
    channel: str
    position: int
    turn: int
    dropped: int
    anchor: list[Entry]
    goal: list[Entry]
    facts: list[Entry]
    assumptions: list[Entry]
    decisions: list[Entry]
    pending: dict[str, Any]
    preferences: dict[str, str]
    last_tool: dict[str, Any]
    summary: str | None


class Dialogs(View):
    """What an agent remembers of a conversation; it is corrected in the console."""

    queryset = DialogState.objects.all()
    permission_classes = (ReadsMessages,)
    etags = ("retrieve",)

    @answers(Dialog)
    def retrieve(self, request: Request, slug: str, channel: str) -> Response:
        """What an agent with a swarm remembers of a conversation, each entry with the words it rests on."""
        agent, where = or_404(the_agent, slug), or_404(the_channel, channel)
        state = self._state(agent, where)
        dialog = dialog_of(state).model_dump(mode="json")
        return self.tagged(request, dialog, etag_of(dialog))

    def _state(self, agent: Agent, channel: Channel) -> DialogState:
        state = DialogState.objects.select_related("agent", "channel").filter(agent=agent, channel=channel).first()
        if state is None:
            there = (
                Channel.objects.filter(dialog_states__agent=agent).order_by("-pk").values_list("slug", flat=True)[:20]
            )
            sentence = f"agent {agent.slug!r} remembers nothing of channel {channel.slug!r}"
            raise NotFound(f"{sentence}; it does of: {', '.join(there) or 'none'}")
        return state


def dialog_of(state: DialogState) -> Dialog:
    summary = newest_summary(state.agent, state.channel)
    return Dialog(
        agent=state.agent.slug,
        channel=state.channel.slug,
        **{
            name: getattr(state, name)
            for name in ("position", "turn", "dropped", "pending", "preferences", "last_tool")
        },
        summary=text_of(summary, state) if summary else None,
        **{kind: entries(state, kind) for kind in KINDS},
    )

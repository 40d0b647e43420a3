"""Swarms: listed, made and changed; and what an agent remembers of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from django.db import transaction
from django.db.models import Prefetch, QuerySet
from pydantic import BaseModel, ConfigDict, Field
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.filters import of_agent
from agents.bodies import AgentSlug, the_agent, the_channel
from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.headers import Changed, etag_of, located
from agents.kit.api.requests import ReadsMessages
from agents.kit.api.rows import Context, Row, shown
from agents.kit.api.schema import answers
from agents.kit.api.views import Editable, View, or_404
from agents.kit.bodies import ABSENT, Body
from agents.models import Agent, Channel
from agents.swarm.assign import Name, SwarmRequest, save_swarm
from agents.swarm.calibration import PREFERENCES
from agents.swarm.models import DialogEntry, DialogState, Swarm, SwarmPhase
from agents.swarm.state import KINDS, StateRefused, add, edit, entries, pin, remove, unpin, updating
from agents.swarm.summaries import (
    NOTE_CHARACTERS,
    newest_summary,
    several_people_talk,
    text_of,
    why_no_summary,
    write_summary,
)
from agents.swarm.talk import RefusedPolish, refused_polishes

MOST_ENTRIES = 100


class PhaseRow(
    Row,
    table=SwarmPhase,
    columns=("name", "phase", "order", "prompt", "enabled", "temperature", "version", "updated_at"),
):
    pass


def _agents(swarm: Swarm, context: Context) -> list[str]:
    return sorted(agent.slug for agent in swarm.agents.all())


class SwarmRow(
    Row,
    table=Swarm,
    columns=(
        *("id", "url", "name", "intents", "tools", "enabled", "post_executor", "agents", "phases"),
        *("created_at", "updated_at"),
    ),
):
    """A swarm with its phases, and the agents that have it."""

    intents: list[str]
    tools: list[str]
    agents: list[str] = shown(_agents, "slugs")
    phases: list[PhaseRow]


class NewSwarm(SwarmRequest):
    """A swarm as it is to be; `phases` and `agents` name all of them."""

    agents: list[AgentSlug] = Field([], max_length=500, description="slugs of the agents that have it")


class SwarmChange(NewSwarm):
    """What may be changed of a swarm; `phases` and `agents` name all of them."""

    name: Name = Field("", description=SwarmRequest.model_fields["name"].description)
    intents: list[str] = Field(
        [], min_length=1, max_length=100, description=SwarmRequest.model_fields["intents"].description
    )


class SwarmFilters(Filters):
    search = filters.search("name")
    enabled = filters.flag()
    agent = of_agent("agents")


class Swarms(Editable):
    """Swarms with their phases, by name.

    Filters: `search` (in the name), `enabled`, `agent` (has it).
    """

    queryset = Swarm.objects.order_by("name")
    answer_class = SwarmRow
    lookup_field = "pk"
    lookup_value_converter = "int"
    filterset_class = SwarmFilters
    bodies: ClassVar = {"create": NewSwarm, "update": NewSwarm, "partial_update": SwarmChange}

    def get_queryset(self) -> QuerySet[Swarm]:
        return self.queryset.prefetch_related("phases", Prefetch("agents", Agent.objects.only("slug")))

    def create(self, request: Request) -> Response:
        """Make a swarm. It needs `name` and `intents`; 201 with the swarm. Without `agents` it takes part in no turn yet."""
        swarm = _saved(None, self.read_body().sent)
        self.kwargs["pk"] = swarm.pk
        return located(self.shown(self.get_object()))

    def change(self, row: Swarm, fields: dict[str, Any]) -> None:
        _saved(row, fields)

    def etag_of_row(self, row: Swarm) -> str:
        agents = sorted(agent.slug for agent in row.agents.all())
        return etag_of([_values_of(row), agents])


def _values_of(swarm: Swarm) -> dict[str, Any]:
    """Return a swarm's values as `save_swarm` takes them."""
    fields = ("name", "intents", "tools", "enabled", "post_executor")
    columns = ("name", "phase", "order", "prompt", "enabled", "temperature")
    phases = [{name: getattr(phase, name) for name in columns} for phase in swarm.phases.all()]
    return {**{name: getattr(swarm, name) for name in fields}, "phases": phases}


def _saved(swarm: Swarm | None, sent: dict[str, Any]) -> Swarm:
    """Save a swarm with what was sent of it; the rest stays."""
    agents: Sequence[Agent] | None = sent.pop("agents", None)
    if "phases" in sent:
        sent["phases"] = [phase.model_dump() for phase in sent["phases"]]
    return save_swarm({**(_values_of(swarm) if swarm else {}), **sent}, swarm=swarm, agents=agents)


# -- what is remembered
class Remembered(BaseModel):
    """One thing that was said, with the words it rests on.

    Attributes:
        text: It in short.
        quote: The words of the message at `position`, which `author` said.
        pinned: It stays in every prompt.
        leaving: It was pinned and makes room for others; it stays until a summary holds it.
        by: Who entered it, wrote its text or pinned it: model, rule or person.
    """

    model_config = ConfigDict(from_attributes=True)

    id: int
    text: str
    quote: str
    position: int
    author: str
    pinned: bool
    leaving: bool
    by: Literal["model", "rule", "person"]


class Dialog(BaseModel):
    """What an agent remembers of a conversation.

    Attributes:
        position: Of the last message that is taken into account; `turn`: how often the agent was asked.
        dropped: Entries that did not stand in the message they named.
        anchor, goal: At most one entry each.
        pending: The question that waits for its answer.
        preferences: Of the person who talks here; `preferences_apply` is false while several do: then each is answered as their own
            account says.
        summary: Of older messages; null while there is none.
        summary_failed: Why the newest older messages are not summarised; empty when they are.
        refused_polishes: Of the last five turns that had one, the newest first.
    """

    agent: str
    channel: str
    position: int
    turn: int
    dropped: int
    anchor: list[Remembered]
    goal: list[Remembered]
    facts: list[Remembered]
    assumptions: list[Remembered]
    decisions: list[Remembered]
    pending: dict[str, Any]
    preferences: dict[str, str]
    preferences_apply: bool
    last_tool: dict[str, Any]
    summary: str | None
    summary_failed: str
    refused_polishes: list[RefusedPolish]


class EntryBody(Body):
    """An entry with the words it rests on; one that is there already is named by its `id`."""

    id: int = Field(ABSENT, ge=1, le=2**63 - 1, description="of an entry that stays; its quote stays as it is")
    text: str = Field(ABSENT, max_length=1000)
    position: int = Field(ABSENT, ge=1, le=2**63 - 1, description="of the message it stands in")
    quote: str = Field(ABSENT, max_length=1000, description="words of that message")
    pinned: bool = ABSENT


Single = Annotated[list[EntryBody], Field(max_length=1)]
Entries = Annotated[list[EntryBody], Field(max_length=MOST_ENTRIES)]


class DialogChange(Body):
    """What may be changed. A field that is given is replaced: entries that it does not name go."""

    anchor: Single = Field([])
    goal: Single = Field([])
    facts: Entries = Field([])
    assumptions: Entries = Field([])
    decisions: Entries = Field([])
    preferences: dict[str, str] = Field(
        {}, description="of the person who talks in this conversation; not applied while several do"
    )
    summary: str = Field("", max_length=NOTE_CHARACTERS, description="replaces the summary of older messages")


class Dialogs(View):
    """What an agent remembers of a conversation."""

    queryset = DialogState.objects.all()
    permission_classes = (ReadsMessages,)
    bodies: ClassVar = {"partial_update": DialogChange}
    etags = ("retrieve", "partial_update")

    @answers(Dialog)
    def retrieve(self, request: Request, slug: str, channel: str) -> Response:
        """Show what an agent with a swarm remembers of a conversation, each entry with the words it rests on."""
        agent, where = or_404(the_agent, slug), or_404(the_channel, channel)
        state = self._state(agent, where)
        return self.tagged(request, dialog_of(state))

    @answers(Dialog)
    def partial_update(self, request: Request, slug: str, channel: str) -> Response:
        """Change what it remembers. An entry without a quote from its message is a 400.

        With `If-Match`, the ETag of what you read, it is a 412 when it was changed since.
        """
        agent = or_404(the_agent, slug)
        where = or_404(the_channel, channel)
        body = self.read_body()
        expected = self.expected(request)
        self._state(agent, where)
        with transaction.atomic():
            with updating(agent, where) as state:
                etag = etag_of(dialog_of(state))
                if expected is not None and etag not in expected:
                    raise Changed(etag)
                for kind in (kind for kind in KINDS if kind in body.sent):
                    _replace(state, kind, getattr(body, kind))
                if "preferences" in body.sent:
                    state.preferences = _preferences(body.preferences)
            if "summary" in body.sent:
                write_summary(agent, where, body.summary)
        return self.tagged(request, dialog_of(self._state(agent, where)))

    def _state(self, agent: Agent, channel: Channel) -> DialogState:
        """Return the stored state with its entries.

        Raises:
            NotFound: There is none; names up to 20 channels for which there is one.
        """
        rows = DialogState.objects.select_related("agent", "channel").prefetch_related("entries")
        state = rows.filter(agent=agent, channel=channel).first()
        if state is None:
            slugs = (
                Channel.objects.filter(dialog_states__agent=agent).order_by("-pk").values_list("slug", flat=True)[:20]
            )
            sentence = f"agent {agent.slug!r} remembers nothing of channel {channel.slug!r}"
            raise NotFound(f"{sentence}; it does of: {', '.join(slugs) or 'none'}")
        return state


def dialog_of(state: DialogState) -> Dialog:
    """Return what is remembered as the API shows it: entries that were not removed, and the newest summary without removed words."""
    summary = newest_summary(state.agent, state.channel)
    return Dialog(
        agent=state.agent.slug,
        channel=state.channel.slug,
        **{
            name: getattr(state, name)
            for name in ("position", "turn", "dropped", "pending", "preferences", "last_tool")
        },
        preferences_apply=not (state.preferences and several_people_talk(state.channel)),
        summary=text_of(summary, state) if summary else None,
        summary_failed=why_no_summary(state.agent, state.channel),
        refused_polishes=refused_polishes(state.agent, state.channel),
        **{kind: [Remembered.model_validate(entry) for entry in entries(state, kind)] for kind in KINDS},
    )


def _replace(state: DialogState, kind: str, bodies: Sequence[EntryBody]) -> None:
    """Make the entries of a kind those given: one with an id stays and is changed, one without is new, and all others are removed.

    Raises:
        StateRefused: One is not allowed, or no entry of this kind has its id.
    """
    remembered = {entry.pk: entry for entry in entries(state, kind)}
    for number, body in enumerate(bodies):
        if body.id is not None and body.id not in remembered:
            allowed = ", ".join(map(str, remembered)) or "none, there are no entries"
            raise StateRefused(f"{kind}[{number}].id", f"{body.id}; allowed: {allowed}")
    kept_ids = {body.id for body in bodies}
    for entry_id in remembered.keys() - kept_ids:
        remove(state, entry_id)
    kept = [body for body in bodies if "id" in body.sent]
    added = [body for body in bodies if "id" not in body.sent]
    for body in kept:  # first: what is unpinned makes room for what is new
        _change_entry(state, remembered[body.id], body)
    for body in added:
        add(state, kind, {name: value for name, value in body.sent.items() if name != "id"})


def _change_entry(state: DialogState, entry: DialogEntry, body: EntryBody) -> None:
    """Change the text of an entry and whether it is pinned, as far as they are given."""
    if body.text is not None and body.text != entry.text:
        edit(state, entry.pk, body.text)
    if body.pinned is None or body.pinned == entry.pinned:
        return
    if body.pinned:
        pin(state, entry.pk)
    else:
        unpin(state, entry.pk)


def _preferences(values: Mapping[str, str]) -> dict[str, str]:
    """Return preferences of which each name and value is known.

    Raises:
        StateRefused: One is not.
    """
    for name, value in values.items():
        if name not in PREFERENCES:
            raise StateRefused(f"preferences.{name[:40]}", f"unknown; allowed: {', '.join(PREFERENCES)}")
        if value not in PREFERENCES[name]:
            raise StateRefused(f"preferences.{name}", f"{value[:80]!r}; allowed: {', '.join(PREFERENCES[name])}")
    return dict(values)

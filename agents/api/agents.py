"""Agents: listed, created, changed, with what their model is sent and the versions of their personas."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery
from pydantic import AfterValidator, Field, StringConstraints
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api.filters import of_channel
from agents.bodies import Traits, the_agent
from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.headers import etag_of, located
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict, Unavailable
from agents.kit.api.requests import ReadsMessages
from agents.kit.api.rows import Answer, Context, Row, Url, one_of, optional, shown
from agents.kit.api.schema import answers
from agents.kit.api.views import Editable, Rows, new_slug, or_404
from agents.kit.bodies import ABSENT, Body
from agents.kit.llm import Tool
from agents.kit.llm.endpoints import model_of, problem_of
from agents.kit.llm.providers import reads_files
from agents.kit.text.fences import check_name
from agents.models import Agent, Channel, ChannelMember, MemoryBlock, Message, PersonaVersion, Trait
from agents.models.conversations import no_agent
from agents.personas.persona import save_persona
from agents.personas.shape import Aliases, not_reserved
from agents.turn.pipeline import StageFailed
from agents.turn.prompt import preview_prompt
from agents.turn.tools import tool_definitions

WITHOUT_NOTE = "edited over the API"
_PERSON = Agent.DescriptionOrigin.PERSON
_EDITED = (
    *("slug", "display_name", "title", "description", "avatar_color", "is_active", "model_id", "max_turns"),
    *("aliases", "system_prompt", "sample_lines", "updated_at"),
)


class AgentRow(
    Row,
    table=Agent,
    columns=(
        *("slug", "url", "display_name", "title", "description", "avatar_color", "is_active", "model_id"),
        *("max_turns", "version", "created_at", "updated_at", "prompt_url", "turns_url", "versions_url"),
    ),
):
    """An agent as lists show it, without its persona. Needs `version_number` annotated."""

    version: int | None = shown("version_number", "number of the persona as it is now")


class MemoryAnswer(Answer):
    label: str
    value: str


class TraitAnswer(Answer):
    name: str
    description: str
    sentiment: float = Field(description="how the persona feels about it, -1 to 1")
    strength: float = Field(description="0 = stop doing this, 0.5 = usual, 1 = always")


class WholeAgent(AgentRow, columns=("aliases", "system_prompt", "sample_lines", "traits", "memory")):
    """One agent with its persona: system prompt, traits, sample lines, and the notes in its memory."""

    aliases: list[str] = Field(description="further names by which people call it")
    sample_lines: list[str]
    traits: list[TraitAnswer]
    memory: list[MemoryAnswer] = shown("memory_blocks")


def _callable_model(model: str) -> str:
    """Return the name of a model that can act as an agent; empty = ACTOR_MODEL.

    Raises:
        ValueError: It cannot be called here, or is a replay, which would read a file of this machine.
    """
    if not model:
        return model
    if reads_files(model):
        raise ValueError(f"model_id {model[:80]!r}: allowed: a model's name; empty = ACTOR_MODEL")
    problem = problem_of("actor", model)
    if problem:
        raise ValueError(f"model_id {model[:80]!r}: {problem}")
    return model


SampleLine = Annotated[str, StringConstraints(strip_whitespace=False, min_length=1, max_length=10_000)]


class AgentChange(Body):
    """What may be changed of an agent. Changed system prompt or traits make a new version of the persona."""

    display_name: Annotated[str, AfterValidator(check_name)] = Field("", min_length=1, max_length=120)
    aliases: Aliases = Field([], description='further names by which people call it, e.g. ["Mike"]')
    title: str = Field("", max_length=200, description="role or job, shown under the name")
    description: str = Field("", max_length=2_000)
    avatar_color: str = Field("", pattern=r"^#[0-9a-fA-F]{6}$", description="# and six hex digits")
    is_active: bool = True
    model_id: Annotated[str, AfterValidator(_callable_model)] = Field("", max_length=200)
    max_turns: int = Field(50, ge=1, le=10_000)
    system_prompt: str = Field("", min_length=1, max_length=200_000)
    sample_lines: list[SampleLine] = Field(
        [], max_length=500, description="lines in its voice; what the scripted actor says offline"
    )
    traits: Traits = Field(ABSENT, description="all of its traits: one that is left out is removed")
    note: str = Field("", max_length=150, description="what changed and why; stored with the version")


class AgentBody(AgentChange):
    """An agent and its persona as they are to be."""

    display_name: Annotated[str, AfterValidator(check_name)] = Field(min_length=1, max_length=120)
    system_prompt: str = Field(min_length=1, max_length=200_000)


class NewAgent(AgentBody):
    """An agent and its persona."""

    slug: Annotated[str, AfterValidator(not_reserved)] = Field(max_length=64, pattern="^[-a-zA-Z0-9_]+$")


class PromptFilters(Filters):
    channel = of_channel()
    trigger = filters.number(allowed="the id of a message")


class SectionAnswer(Answer):
    heading: str
    body: str
    stage: str = Field(description="who added it")


PHASES = ("received", "prepare", "review", "committed", "finish")
ENDS = ("ran", "skipped", "failed")


class StageAnswer(Answer):
    """What one stage did."""

    stage: str
    phase: Annotated[str, one_of((name, name) for name in PHASES)]
    status: Annotated[str, one_of((name, name) for name in ENDS)]
    ms: float
    why: str = optional()
    counters: dict[str, int] = optional()


class DraftAnswer(Answer):
    text: str
    payload: Any


class PromptAnswer(Answer):
    """What the model is sent at the beginning of a turn."""

    agent: str
    channel: str
    model: str
    system: str = Field(description="the whole system prompt")
    user: str = Field(description="the first user turn, the conversation included")
    sections: list[SectionAnswer] = Field(description="the system prompt by its parts")
    transcript: list[str] = Field(description="the conversation as it is shown")
    tools: list[Tool]
    draft: DraftAnswer | None = Field(description="what a stage would answer at once; null = the model is asked")
    trace: list[StageAnswer] = Field(description="what the stages did; `why` names what a turn would evaluate")


class AgentFilters(Filters):
    search = filters.search("slug", "display_name", "title")
    is_active = filters.flag()
    channel = of_channel("memberships__channel")
    ordering = filters.ordering(
        {
            "display_name": ("display_name", "slug"),
            "slug": ("slug",),
            "-created_at": ("-created_at", "-pk"),
            "-updated_at": ("-updated_at", "-pk"),
        }
    )


def agents_with_version() -> QuerySet[Agent]:
    """Return agents with the number of their persona's newest version."""
    newest = PersonaVersion.objects.filter(agent=OuterRef("pk")).order_by("-number").values("number")[:1]
    return Agent.objects.annotate(version_number=Subquery(newest)).order_by("display_name", "slug")


class Agents(Editable):
    """Agents, by name, without their personas.

    Filters: `search` (in slug, name and title), `is_active`, `channel` (is a member of it); `ordering`.
    """

    queryset = agents_with_version()
    row_class = AgentRow
    answer_class = WholeAgent
    bodies: ClassVar = {"create": NewAgent, "update": AgentBody, "partial_update": AgentChange}
    filterset_class = AgentFilters

    def missing(self, key: Any) -> str:
        return no_agent(key)

    def get_queryset(self) -> QuerySet[Agent]:
        if self.action == "list":
            return agents_with_version().filter(synthetic=False).defer("system_prompt", "sample_lines")
        traits = Prefetch("traits", Trait.objects.order_by("-strength", "name"))
        return agents_with_version().prefetch_related(
            traits, Prefetch("memory_blocks", MemoryBlock.objects.order_by("label"))
        )

    def etag_of_row(self, row: Agent) -> str:
        """Return the ETag of all that a person can change of an agent."""
        traits = [[trait.name, trait.description, trait.sentiment, trait.strength] for trait in row.traits.all()]
        blocks = [[block.label, block.value] for block in row.memory_blocks.all()]
        return etag_of([[getattr(row, name) for name in _EDITED], sorted(traits), sorted(blocks)])

    def create(self, request: Request) -> Response:
        """Create an agent. It needs `slug`, `display_name` and `system_prompt`; 201 with the agent."""
        fields = self.read_body().sent  # without those that are left out
        user = request.user
        traits = fields.pop("traits", None)
        note = fields.pop("note", "") or "created over the API"
        agent = Agent(**fields, description_origin=_PERSON if fields.get("description") else "")
        with new_slug(Agent.objects.all(), agent.slug):
            save_persona(agent=agent, traits=traits, note=note, source=user.get_username(), user=user)  # type: ignore[arg-type]  # no user is anonymous here
        self.kwargs["slug"] = agent.slug
        return located(self.shown(self.get_object()))

    def change(self, row: Agent, fields: dict[str, Any]) -> None:
        """Save changes, with a version when the persona changed."""
        user = self.request.user
        note = fields.pop("note", "")
        traits = fields.pop("traits", None)
        agent = Agent.objects.get(pk=row.pk)
        if fields.get("description", agent.description) != agent.description:
            agent.description_origin = _PERSON  # so that no generated one replaces it
        for name, value in fields.items():
            setattr(agent, name, value)
        version_note = f"edited: {note}" if note else WITHOUT_NOTE
        save_persona(agent=agent, traits=traits, note=version_note, source=user.get_username(), user=user)  # type: ignore[arg-type]  # no user is anonymous here

    @answers(PromptAnswer, 409, 503)
    @action(detail=True, permission_classes=(ReadsMessages,), filterset_class=PromptFilters)
    def prompt(self, request: Request, slug: str) -> Response:
        """Exactly what the agent's model would be sent if its turn began now: persona, memory, sections of the stages, conversation, tools.

        `channel` (slug) is where; without it, the channel where it spoke last, else its first one. `trigger` is the id of a message it
        would answer. No model is asked and nothing is written; so an intervention that needs a judge is named in `trace`, not evaluated.
        """
        agent: Agent = self.get_object()
        channel = self.query["channel"] or _channel_spoken_in_last(agent)
        if not ChannelMember.objects.filter(agent=agent, channel=channel).exists():
            joined = Channel.objects.filter(memberships__agent=agent).order_by("slug").values_list("slug", flat=True)
            raise Conflict(
                f"agent {slug!r} is not a member of channel {channel.slug!r}; allowed: {', '.join(joined[:30])}"
            )
        trigger = message_named_in_field(self.query["trigger"], field="trigger", channel=channel)
        try:
            prompt = preview_prompt(agent=agent, channel=channel, trigger=trigger)
        except StageFailed as error:
            raise Unavailable(f"no turn could begin: a required stage failed ({error})") from None
        answer = PromptAnswer(
            agent=agent.slug,
            channel=channel.slug,
            model=agent.model_id or model_of("actor"),
            system=prompt.system_text,
            user=prompt.user_text,
            sections=prompt.sections,
            transcript=prompt.transcript,
            tools=tool_definitions(prompt.wanted_answer),
            draft=prompt.draft,
            trace=[entry.as_json() for entry in prompt.trace],
        )
        return Response(answer)


def _channel_spoken_in_last(agent: Agent) -> Channel:
    """Return the channel where an agent spoke last (simulations aside), if it is a member still, else its first one by slug.

    Channels of simulations come after all others.

    Raises:
        Conflict: It has joined none.
    """
    last = Message.objects.filter(agent=agent, synthetic=False).select_related("channel").order_by("-pk").first()
    if last is not None and last.channel.memberships.filter(agent=agent).exists():
        return last.channel
    first = Channel.objects.filter(memberships__agent=agent).order_by("synthetic", "slug").first()
    if first is None:
        raise Conflict(f"agent {agent.slug!r} has joined no channel: there is nothing it could be shown")
    return first


def message_named_in_field(pk: int | None, *, field: str, channel: Channel) -> Message | None:
    """Return the message that a request names by its id; None when it names none.

    Raises:
        ValidationError: It is not in the channel, or there is none; of the field.
    """
    if pk is None:
        return None
    message = Message.objects.select_related("channel", "agent", "user").filter(pk=pk, channel=channel).first()
    if message is None:
        raise ValidationError({field: [f"{field} {pk}: allowed: the id of a message of channel {channel.slug!r}"]})
    return message


def _version_url(version: PersonaVersion, context: Context) -> str:
    return reverse("agent-version", [version.agent.slug, version.number], request=context["request"])


class VersionRow(
    Row,
    table=PersonaVersion,
    columns=("id", "number", "url", "agent", "digest", "note", "created_by", "created_at"),
):
    """A saved state of a persona, without its texts."""

    url: Url = shown(_version_url)


class WholeVersion(VersionRow, columns=("system_prompt", "traits")):
    """One version of an agent's persona with its system prompt and traits."""

    traits: list[TraitAnswer]


class VersionPages(Log):
    """Newest first."""

    orders = MappingProxyType({"-number": ("-number",)})


class Versions(Rows):
    """The versions of an agent's persona, newest first, without their texts; each version's own page has them."""

    queryset = PersonaVersion.objects.all()
    row_class = VersionRow
    answer_class = WholeVersion
    pagination_class = VersionPages
    lookup_field = "number"

    def get_queryset(self) -> QuerySet[PersonaVersion]:
        versions = PersonaVersion.objects.filter(agent=or_404(the_agent, self.kwargs["slug"]))
        versions = versions.select_related("agent", "created_by").defer("agent__system_prompt", "agent__sample_lines")
        if self.action == "list":
            return versions.defer("system_prompt", "traits")
        return versions

    def missing(self, key: Any) -> str:
        return f"agent {self.kwargs['slug']!r} has no version {str(key)[:30]}"

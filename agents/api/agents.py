"""Agents: listed, created, changed, with what their model is sent and the versions of their personas."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import OuterRef, Prefetch, QuerySet, Subquery
from drf_spectacular.utils import extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api import parameters
from agents.api.bodies import (
    Color,
    Flag,
    Note,
    Slug,
    StrictBody,
    Text,
    Texts,
    TraitFields,
    Traits,
    Whole,
    read_body,
    read_changes,
)
from agents.api.headers import Changed, Conditional, IdempotentPosts, etag_of, located
from agents.api.parameters import Log, by_slug, the_agent
from agents.api.schema import CHANNEL, SEARCH, documented, query
from agents.llm.endpoints import problem_of, provider_of
from agents.models import Agent, MemoryBlock, PersonaVersion, Trait
from agents.persona import TraitValue, save_persona
from agents.personas_io.shape import not_reserved

WITHOUT_NOTE = "edited over the API"
CREATED = "created over the API"
PROMPT_CHARACTERS = 200_000
MOST_TURNS = 10_000
_EDITED = (
    *("slug", "display_name", "title", "description", "avatar_color", "is_active", "model_id", "max_turns"),
    *("system_prompt", "sample_lines", "updated_at"),
)


class ModelName(Note):
    """The model that acts as an agent; not a file of this machine."""

    def to_internal_value(self, data: Any) -> str:
        model = super().to_internal_value(data)
        if model and provider_of(model) == "replay":
            raise ValidationError([f"{self.field_name} {model[:80]!r}: allowed: a model's name; empty = ACTOR_MODEL"])
        if model and (problem := problem_of("actor", model)):
            raise ValidationError([f"{self.field_name} {model[:80]!r}: {problem}"])
        return model


AGENT_FIELDS = (
    *("slug", "url", "display_name", "title", "description", "avatar_color", "is_active", "model_id", "max_turns"),
    *("version", "created_at", "updated_at", "prompt_url", "turns_url", "versions_url"),
)
_OF_VERSION = ("id", "number", "url", "agent", "digest", "note", "created_by", "created_at")


class AgentRow(serializers.ModelSerializer[Agent]):
    """An agent as lists show it, without its persona. Needs `version_number` annotated."""

    url = by_slug("agent")
    version = serializers.IntegerField(
        source="version_number", allow_null=True, read_only=True, help_text="number of the persona as it is now"
    )
    prompt_url = by_slug("agent-prompt")
    turns_url = by_slug("agent-turns")
    versions_url = by_slug("agent-versions")

    class Meta:
        model = Agent
        fields = AGENT_FIELDS
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
        fields = (*AGENT_FIELDS, "system_prompt", "sample_lines", "traits", "memory")
        read_only_fields = fields


class VersionRow(serializers.ModelSerializer[PersonaVersion]):
    """A saved state of a persona, without its texts."""

    url = serializers.SerializerMethodField()
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True)
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


class AgentChanges(StrictBody):
    """What is said is changed, the rest stays. Changed system prompt or traits make a new version of the persona."""

    display_name = Text(required=False, most=120)
    title = Note(required=False, help_text="role or job, shown under the name")
    description = Note(required=False, most=2_000, help_text="for people; never sent to a judge")
    avatar_color = Color(required=False, help_text="e.g. #1d4ed8")
    is_active = Flag(required=False, help_text="an inactive agent takes no turns")
    model_id = ModelName(required=False, help_text="model that acts as it; empty = ACTOR_MODEL")
    max_turns = Whole(required=False, least=1, most=MOST_TURNS, help_text="most model calls in one turn")
    system_prompt = Text(required=False, most=PROMPT_CHARACTERS, help_text="the persona, as the model reads it")
    sample_lines = Texts(
        required=False, each=10_000, help_text="lines in its voice; what the scripted actor says offline"
    )
    traits = Traits(required=False, help_text="all of its traits: one that is left out is removed")
    note = Note(required=False, most=150, help_text="what changed and why; stored with the version")


class NewAgent(AgentChanges):
    """An agent and its persona."""

    slug = Slug(most=64, help_text="its id in commands, files and the API; cannot be changed")
    display_name = Text(most=120)
    system_prompt = Text(most=PROMPT_CHARACTERS, help_text="the persona, as the model reads it")

    def validate_slug(self, slug: str) -> str:
        try:
            return not_reserved(slug)
        except ValueError as error:
            raise ValidationError(str(error)) from None


def create_agent(given: dict[str, Any], user: AbstractBaseUser) -> Agent:
    """Save a new agent with its first version.

    Raises:
        ValidationError: The slug is taken.
    """
    fields = dict(given)
    traits, note = _persona_parts(fields, CREATED)
    there = Agent.objects.filter(slug=fields["slug"])
    agent = Agent(**fields, description_origin=Agent.DescriptionOrigin.PERSON if fields.get("description") else "")
    try:
        if not there.exists():
            save_persona(agent=agent, traits=traits, note=note, source=user.get_username(), user=user)
            return agent
    except IntegrityError:  # another request was faster
        if not there.exists():
            raise
    text = f"slug {agent.slug!r}: there is an agent of that name already; allowed: another one"
    raise ValidationError({"slug": [text]})


def change_agent(
    slug: str, given: dict[str, Any], user: AbstractBaseUser, expected: tuple[str, ...] | None = None
) -> None:
    """Save changes of an agent, with a version when its persona changed. Two that change it at once wait for each other.

    Raises:
        Changed: The agent is none of the states `expected`.
    """
    fields = dict(given)
    traits, note = _persona_parts(fields, WITHOUT_NOTE)
    with transaction.atomic():
        agent = the_agent(slug, Agent.objects.select_for_update())
        if expected is not None and (etag := etag_of_agent(agent)) not in expected:
            raise Changed(etag)
        if fields.get("description", agent.description) != agent.description:
            agent.description_origin = Agent.DescriptionOrigin.PERSON
        for name, value in fields.items():
            setattr(agent, name, value)
        save_persona(agent=agent, traits=traits, note=note, source=user.get_username(), user=user)


def etag_of_agent(agent: Agent) -> str:
    """The ETag of all that a person can change of an agent."""
    traits = [[t.name, t.description, t.sentiment, t.strength] for t in agent.traits.all()]
    blocks = [[block.label, block.value] for block in agent.memory_blocks.all()]
    return etag_of([[getattr(agent, name) for name in _EDITED], sorted(traits), sorted(blocks)])


def _persona_parts(fields: dict[str, Any], otherwise: str) -> tuple[list[TraitValue] | None, str]:
    """Takes the traits (None = not given) and the note out of the fields."""
    note = fields.pop("note", "")
    return fields.pop("traits", None), f"edited: {note}" if note and otherwise == WITHOUT_NOTE else note or otherwise


ORDERS = {
    "display_name": ("display_name", "slug"),
    "slug": ("slug",),
    "-created_at": ("-created_at", "-pk"),
    "-updated_at": ("-updated_at", "-pk"),
}

AGENT_FILTERS = (
    *(SEARCH, query("is_active", enum=parameters.YES_NO), CHANNEL),
    query("ordering", "default display_name", enum=ORDERS),
)


def agents_with_version() -> QuerySet[Agent]:
    """Agents with the number of their persona's newest version."""
    newest = PersonaVersion.objects.filter(agent=OuterRef("pk")).order_by("-number").values("number")[:1]
    return Agent.objects.annotate(version_number=Subquery(newest))


def whole_agent(slug: str) -> Agent:
    traits = Prefetch("traits", Trait.objects.order_by("-strength", "name"))
    blocks = Prefetch("memory_blocks", MemoryBlock.objects.order_by("label"))
    return the_agent(slug, agents_with_version().prefetch_related(traits, blocks))


@extend_schema_view(get=documented({200: AgentRow(many=True)}, parameters=AGENT_FILTERS))
class Agents(IdempotentPosts, ListAPIView[Agent]):
    """Agents, by name; POST creates one.

    GET filters: `search` (in slug, name and title), `is_active`, `channel` (is a member of it); `ordering`. Personas are on each
    agent's own page. POST needs `slug`, `display_name` and `system_prompt`; 201 with the agent.
    """

    queryset = agents_with_version().defer("system_prompt", "sample_lines")

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return NewAgent if self.request.method == "POST" else AgentRow

    def filter_queryset(self, queryset: QuerySet[Agent, Any]) -> QuerySet[Agent, Any]:
        request = self.request
        parameters.only(request, "search", "is_active", "channel", "ordering")
        rows = parameters.narrowed(
            parameters.holding(request, queryset, "slug", "display_name", "title"),
            is_active=parameters.flag(request, "is_active"),
            memberships__channel=parameters.channel(request),
        )
        return rows.order_by(*ORDERS[parameters.choice(request, "ordering", ORDERS) or "display_name"])

    @documented({201: WholeAgent}, body=NewAgent, summary="Create an agent")
    def post(self, request: Request) -> Response:
        agent = create_agent(read_body(request, NewAgent), request.user)  # type: ignore[arg-type]  # no user is anonymous here
        return located(WholeAgent(whole_agent(agent.slug), context=self.get_serializer_context()).data)


class OneAgent(Conditional, GenericAPIView[Agent]):
    """One agent with its persona: system prompt, traits, sample lines, and the notes in its memory.

    PATCH changes the fields given, the others stay; `traits` replaces all of them. When system prompt or traits changed, that is a new
    version of the persona, and baselines captured before are stale. With `If-Match`, the ETag of what you read, it is a 412 when the agent
    was changed since.
    """

    queryset = Agent.objects.all()

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return AgentChanges if self.request.method == "PATCH" else WholeAgent

    @documented(WholeAgent)
    def get(self, request: Request, slug: str) -> Response:
        parameters.only(request)
        agent = whole_agent(slug)
        shown = WholeAgent(agent, context=self.get_serializer_context()).data
        return self.tagged(request, dict(shown), etag_of_agent(agent))

    @documented(WholeAgent, body=AgentChanges, summary="Change an agent")
    def patch(self, request: Request, slug: str) -> Response:
        the_agent(slug, Agent.objects.only("pk"))
        change_agent(slug, read_changes(request, AgentChanges), request.user, self.expected(request))  # type: ignore[arg-type]  # no user is anonymous here
        answer: Response = self.get(request, slug)
        return answer


class VersionPages(Log):
    """Newest first."""

    orders = MappingProxyType({"-number": ("-number",)})


@extend_schema_view(get=documented({200: VersionRow(many=True)}))
class Versions(ListAPIView[PersonaVersion]):
    """The versions of an agent's persona, newest first, without their texts; each version's own page has them."""

    queryset = PersonaVersion.objects.all()
    serializer_class = VersionRow
    pagination_class = VersionPages

    def filter_queryset(self, queryset: QuerySet[PersonaVersion, Any]) -> QuerySet[PersonaVersion, Any]:
        parameters.only(self.request)
        return _versions_of(self.kwargs["slug"]).defer("system_prompt", "traits")


class Version(GenericAPIView[PersonaVersion]):
    """One version of an agent's persona with its system prompt and traits."""

    queryset = PersonaVersion.objects.all()
    serializer_class = WholeVersion

    @documented(WholeVersion)
    def get(self, request: Request, slug: str, number: int) -> Response:
        parameters.only(request)
        version = _versions_of(slug).filter(number=number).first()
        if version is None:
            raise NotFound(f"agent {slug!r} has no version {str(number)[:30]}")
        return Response(self.get_serializer(version).data)


def _versions_of(slug: str) -> QuerySet[PersonaVersion]:
    agent = the_agent(slug, Agent.objects.only("pk", "slug"))
    versions = PersonaVersion.objects.filter(agent=agent).select_related("agent", "created_by")
    return versions.defer("agent__system_prompt", "agent__sample_lines")

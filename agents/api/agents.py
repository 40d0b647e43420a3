"""Agents: listed, created, changed, with what their model is sent and the versions of their personas."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from django.db.models import OuterRef, Prefetch, Q, QuerySet, Subquery
from drf_spectacular.utils import extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api import filters, parameters
from agents.api.conditional import Conditional
from agents.api.idempotency import IdempotentPosts
from agents.api.lookups import the_agent
from agents.api.pagination import Log
from agents.api.personas import AgentChanges, NewAgent, change_agent, create_agent, etag_of_agent
from agents.api.schema import documented, query
from agents.api.serializers import AgentRow, VersionRow, WholeAgent, WholeVersion
from agents.models import Agent, MemoryBlock, PersonaVersion, Trait

ORDERS = {
    "display_name": ("display_name", "slug"),
    "slug": ("slug",),
    "-created_at": ("-created_at", "-pk"),
    "-updated_at": ("-updated_at", "-pk"),
}

AGENT_FILTERS = (
    *(filters.SEARCH, query("is_active", enum=filters.YES_NO), filters.CHANNEL),
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

    queryset = Agent.objects.all()

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return NewAgent if self.request.method == "POST" else AgentRow

    def filter_queryset(self, queryset: QuerySet[Agent, Any]) -> QuerySet[Agent, Any]:
        request = self.request
        parameters.only(request, "search", "is_active", "channel", "ordering")
        found = agents_with_version().defer("system_prompt", "sample_lines")
        if words := parameters.text(request, "search"):
            found = found.filter(
                Q(slug__icontains=words) | Q(display_name__icontains=words) | Q(title__icontains=words)
            )
        if (is_active := filters.flag(request, "is_active")) is not None:
            found = found.filter(is_active=is_active)
        if channel := filters.channel(request):
            found = found.filter(memberships__channel=channel)
        return found.order_by(*ORDERS[parameters.choice(request, "ordering", ORDERS) or "display_name"])

    @documented({201: WholeAgent}, body=NewAgent, summary="Create an agent")
    def post(self, request: Request) -> Response:
        parameters.only(request)
        body = NewAgent(data=request.data)
        body.is_valid(raise_exception=True)
        agent = create_agent(body.validated_data, request.user)  # type: ignore[arg-type]  # nobody anonymous comes here
        shown = WholeAgent(whole_agent(agent.slug), context=self.get_serializer_context()).data
        return Response(shown, status=201, headers={"Location": str(shown["url"])})


class OneAgent(Conditional, GenericAPIView[Agent]):
    """One agent with its persona: system prompt, traits, sample lines, and the notes in its memory.

    PATCH changes the fields given, the others stay; `traits` replaces all of them. When system prompt or traits changed, that is a new
    version of the persona, and baselines captured before are stale. With `If-Match`, the ETag of what you read, it is a 412 when somebody
    else changed the agent since.
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
        parameters.only(request)
        the_agent(slug, Agent.objects.only("pk"))
        body = AgentChanges(data=request.data)
        body.is_valid(raise_exception=True)
        if not body.validated_data:
            raise ValidationError([f"nothing to change; allowed: {', '.join(body.fields)}"])
        change_agent(slug, body.validated_data, request.user, self.expected(request))  # type: ignore[arg-type]  # nobody anonymous comes here
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
        return _versions_of(self.kwargs).defer("system_prompt", "traits")


class Version(GenericAPIView[PersonaVersion]):
    """One version of an agent's persona with its system prompt and traits."""

    queryset = PersonaVersion.objects.all()
    serializer_class = WholeVersion

    @documented(WholeVersion)
    def get(self, request: Request, slug: str, number: int) -> Response:
        parameters.only(request)
        found = _versions_of(self.kwargs).filter(number=number).first()
        if found is None:
            raise NotFound(f"agent {slug!r} has no version {str(number)[:30]}")
        return Response(self.get_serializer(found).data)


def _versions_of(address: Mapping[str, Any]) -> QuerySet[PersonaVersion]:
    agent = the_agent(address["slug"], Agent.objects.only("pk", "slug"))
    versions = PersonaVersion.objects.filter(agent=agent).select_related("agent", "created_by")
    return versions.defer("agent__system_prompt", "agent__sample_lines")

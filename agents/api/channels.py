"""Channels: listed, made, changed, and what was said in each."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api import parameters
from agents.api.bodies import Note, OneOf, Slug, StrictBody, Tags, Text, Texts, read_body, read_changes
from agents.api.headers import Changed, Conditional, IdempotentPosts, etag_of, located
from agents.api.parameters import by_slug, the_channel
from agents.api.schema import AGENT, SEARCH, TAG, documented, query
from agents.finding import no_agent
from agents.models import Agent, Channel, ChannelMember

ORDERS = {"name": ("kind", "name", "pk"), "slug": ("slug",), "-created_at": ("-created_at", "-pk")}
CHANNEL_FILTERS = (
    *(SEARCH, query("kind", enum=Channel.Kind.values), AGENT, TAG),
    query("ordering", "default name", enum=ORDERS),
)
TOPIC_CHARACTERS = 10_000


class ChannelRow(serializers.ModelSerializer[Channel]):
    """A channel with who is in it. Needs `memberships` prefetched with their agent and user."""

    url = by_slug("channel")
    tags = serializers.DictField(child=serializers.CharField(), read_only=True)
    agents = serializers.SerializerMethodField(help_text="slugs of the agents in it")
    users = serializers.SerializerMethodField(help_text="names of the users in it")
    last_position = serializers.SerializerMethodField(help_text="position of its newest message; 0 = none yet")
    messages_url = by_slug("channel-messages")

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


class ChannelChanges(StrictBody):
    """What is said is changed, the rest stays; `agents` and `users` name all members of their kind."""

    name = Text(required=False, most=200)
    kind = OneOf(Channel.Kind.values, required=False, help_text="in a dm every message is for all of its agents")
    topic = Note(required=False, most=TOPIC_CHARACTERS)
    tags = Tags(required=False)
    agents = Texts(required=False, each=64, distinct=True, help_text="slugs of all agents in it")
    users = Texts(required=False, each=150, distinct=True, help_text="names of all users in it")


class NewChannel(ChannelChanges):
    """A channel; public unless `kind` says otherwise."""

    slug = Slug(most=120, help_text="its id in commands, files and the API; cannot be changed")
    name = Text(most=200)


def channels_with_members() -> QuerySet[Channel]:
    members = ChannelMember.objects.select_related("agent", "user").only("channel_id", "agent__slug", "user__username")
    return Channel.objects.prefetch_related(Prefetch("memberships", members))


@extend_schema_view(get=documented({200: ChannelRow(many=True)}, parameters=CHANNEL_FILTERS))
class Channels(IdempotentPosts, ListAPIView[Channel]):
    """Channels with their members, by kind and name; POST makes one.

    GET filters: `search` (in slug, name and topic), `kind`, `agent` (is a member), `tag` (`KEY=VALUE`); `ordering`. POST needs `slug`
    and `name`; 201 with the channel.
    """

    queryset = channels_with_members()

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return NewChannel if self.request.method == "POST" else ChannelRow

    def filter_queryset(self, queryset: QuerySet[Channel, Any]) -> QuerySet[Channel, Any]:
        request = self.request
        parameters.only(request, "search", "kind", "agent", "tag", "ordering")
        rows = parameters.narrowed(
            parameters.holding(request, parameters.having_tag(request, queryset), "slug", "name", "topic"),
            kind=parameters.choice(request, "kind", Channel.Kind.values),
            memberships__agent=parameters.agent(request),
        )
        return rows.order_by(*ORDERS[parameters.choice(request, "ordering", ORDERS) or "name"])

    @documented({201: ChannelRow}, body=NewChannel, summary="Make a channel")
    def post(self, request: Request) -> Response:
        slug = _make(read_body(request, NewChannel))
        channel = the_channel(slug, channels_with_members())
        return located(ChannelRow(channel, context=self.get_serializer_context()).data)


class OneChannel(Conditional, GenericAPIView[Channel]):
    """One channel with its members. PATCH changes the fields given; `agents` and `users` replace all members of their kind.

    With `If-Match`, the ETag of what you read, it is a 412 when the channel or its members were changed since.
    """

    queryset = Channel.objects.all()

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Any]]:
        return ChannelChanges if self.request.method == "PATCH" else ChannelRow

    @documented(ChannelRow)
    def get(self, request: Request, slug: str) -> Response:
        parameters.only(request)
        channel = the_channel(slug, channels_with_members())
        shown = ChannelRow(channel, context=self.get_serializer_context()).data
        return self.tagged(request, dict(shown), _etag(channel))

    @documented(ChannelRow, body=ChannelChanges, summary="Change a channel")
    def patch(self, request: Request, slug: str) -> Response:
        channel = the_channel(slug)
        _change(channel, read_changes(request, ChannelChanges), self.expected(request))
        answer: Response = self.get(request, slug)
        return answer


def _make(given: dict[str, Any]) -> str:
    fields = dict(given)
    members, slug = _members(fields), str(fields["slug"])
    there = Channel.objects.filter(slug=slug)
    try:
        if not there.exists():
            with transaction.atomic():
                _set_members(Channel.objects.create(**fields), members)
            return slug
    except IntegrityError:  # another request was faster
        if not there.exists():
            raise
    raise ValidationError({"slug": [f"slug {slug!r}: there is a channel of that name already; allowed: another one"]})


def _change(channel: Channel, given: dict[str, Any], expected: tuple[str, ...] | None) -> None:
    """Only the columns that are given: the counter of positions belongs to those who speak.

    Raises:
        Changed: It has none of the expected ETags any more.
    """
    fields = dict(given)
    members = _members(fields)
    with transaction.atomic():
        Channel.objects.select_for_update().get(pk=channel.pk)  # two that set the members wait for each other
        etag = _etag(the_channel(channel.slug, channels_with_members())) if expected is not None else ""
        if expected is not None and etag not in expected:
            raise Changed(etag)
        if fields:
            Channel.objects.filter(pk=channel.pk).update(**fields)
        _set_members(channel, members)


def _etag(channel: Channel) -> str:
    """Of what a change replaces, not of what is said there."""
    members = [
        (member.agent.slug if member.agent else None, member.user.get_username() if member.user else None)
        for member in channel.memberships.all()
    ]
    return etag_of([channel.name, channel.kind, channel.topic, channel.tags, sorted(members, key=str)])


def _members(fields: dict[str, Any]) -> dict[str, set[int]]:
    """Take the members out of the fields: of each kind that is given, all primary keys.

    Raises:
        ValidationError: A name is unknown.
    """

    def no_user(name: str) -> str:
        return f"there is no user {name[:80]!r}; allowed: names of users"

    members: dict[str, set[int]] = {}
    for field, column, rows, named_by, unknown in (
        ("agents", "agent_id", Agent.objects.all(), "slug", no_agent),
        ("users", "user_id", get_user_model()._default_manager.all(), "username", no_user),
    ):
        if (names := fields.pop(field, None)) is None:
            continue
        known = dict(rows.filter(**{f"{named_by}__in": names}).values_list(named_by, "pk"))
        for name in names:
            if name not in known:
                raise ValidationError({field: [f"{field}: {unknown(name)}"]})
        members[column] = set(known.values())
    return members


def _set_members(channel: Channel, members: dict[str, set[int]]) -> None:
    for column, wanted in members.items():
        mine = ChannelMember.objects.filter(channel=channel, **{f"{column}__isnull": False})
        present = set(mine.values_list(column, flat=True))
        mine.filter(**{f"{column}__in": present - wanted}).delete()
        new = [ChannelMember(channel=channel, **{column: pk}) for pk in sorted(wanted - present)]
        ChannelMember.objects.bulk_create(new, ignore_conflicts=True)

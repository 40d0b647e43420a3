"""Channels: listed, made, changed, and what was said in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from django.contrib.auth import get_user_model
from django.db.models import Prefetch, QuerySet
from pydantic import AfterValidator, Field
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api.filters import of_agent
from agents.bodies import no_channel
from agents.kit.api import filters
from agents.kit.api.filters import Filters
from agents.kit.api.headers import etag_of, located
from agents.kit.api.rows import Context, Row, shown
from agents.kit.api.views import Editable, new_slug
from agents.kit.bodies import Body, OneOf, Tags
from agents.kit.text.fences import check_name
from agents.models import Agent, Channel, ChannelMember
from agents.models.conversations import no_agent


def _agents(channel: Channel, context: Context) -> list[str]:
    return sorted(member.agent.slug for member in channel.memberships.all() if member.agent)


def _users(channel: Channel, context: Context) -> list[str]:
    return sorted(member.user.get_username() for member in channel.memberships.all() if member.user)


class ChannelRow(
    Row,
    table=Channel,
    columns=(
        *("slug", "url", "name", "kind", "topic", "tags", "synthetic", "agents", "users", "last_position"),
        *("inclusion_probability", "created_at", "messages_url"),
    ),
):
    """One channel with who is in it. Needs `memberships` prefetched with their agent and user."""

    tags: dict[str, str]
    agents: list[str] = shown(_agents, "slugs of the agents in it")
    users: list[str] = shown(_users, "names of the users in it")
    last_position: int = shown(
        lambda channel, context: channel.next_position - 1, "position of its newest message; 0 = none yet"
    )


class ChannelChange(Body):
    """What may be changed of a channel; `agents` and `users` name all members of their kind."""

    name: Annotated[str, AfterValidator(check_name)] = Field("", min_length=1, max_length=200)
    kind: Annotated[str, OneOf(*Channel.Kind.values)] = "public"
    topic: str = Field("", max_length=10_000)
    tags: Tags = Field({})
    agents: list[Annotated[str, Field(max_length=64)]] = Field(
        [], max_length=500, description="slugs of all agents in it"
    )
    users: list[Annotated[str, Field(max_length=150)]] = Field(
        [], max_length=500, description="names of all users in it"
    )


class ChannelBody(ChannelChange):
    """A channel as it is to be."""

    name: Annotated[str, AfterValidator(check_name)] = Field(min_length=1, max_length=200)


class NewChannel(ChannelBody):
    """A channel; public unless `kind` says otherwise. In a dm every message is for all of its agents."""

    slug: str = Field(max_length=120, pattern="^[-a-zA-Z0-9_]+$")


class ChannelFilters(Filters):
    search = filters.search("slug", "name", "topic")
    kind = filters.choice(Channel.Kind.values)
    agent = of_agent("memberships__agent")
    tag = filters.tag()
    ordering = filters.ordering(
        {"name": ("kind", "name", "pk"), "slug": ("slug",), "-created_at": ("-created_at", "-pk")}
    )


def channels_with_members() -> QuerySet[Channel]:
    """Return channels with their members, by kind and name."""
    members = ChannelMember.objects.select_related("agent", "user").only("channel_id", "agent__slug", "user__username")
    return Channel.objects.prefetch_related(Prefetch("memberships", members)).order_by("kind", "name", "pk")


class Channels(Editable):
    """Channels with their members, by kind and name.

    Filters: `search` (in slug, name and topic), `kind`, `agent` (is a member), `tag` (`KEY=VALUE`); `ordering`.
    """

    queryset = channels_with_members()
    answer_class = ChannelRow
    bodies: ClassVar = {"create": NewChannel, "update": ChannelBody, "partial_update": ChannelChange}
    filterset_class = ChannelFilters

    def missing(self, key: Any) -> str:
        return no_channel(key)

    def create(self, request: Request) -> Response:
        """Make a channel. It needs `slug` and `name`; 201 with the channel."""
        fields = self.read_body().sent
        members = _members(fields)
        self.kwargs["slug"] = fields["slug"]
        with new_slug(Channel.objects.all(), fields["slug"]):
            _set_members(Channel.objects.create(**fields), members)
        return located(self.shown(self.get_object()))

    def change(self, row: Channel, fields: dict[str, Any]) -> None:
        """Change only the columns that are given: the counter of positions belongs to those who speak."""
        members = _members(fields)
        if fields:
            Channel.objects.filter(pk=row.pk).update(**fields)
        _set_members(row, members)

    def etag_of_row(self, row: Channel) -> str:
        """Return the ETag of what a change replaces, not of what is said there."""
        members = []
        for member in row.memberships.all():
            slug = member.agent.slug if member.agent else None
            username = member.user.get_username() if member.user else None
            members.append((slug, username))
        return etag_of([row.name, row.kind, row.topic, row.tags, sorted(members, key=str)])


def _members(fields: dict[str, Any]) -> dict[str, set[int]]:
    """Take the members out of the fields: by column of `ChannelMember` the primary keys of all, for each kind that is given.

    A kind that is not given (`agents` or `users`) is not in the result: its members stay. An empty list removes them all.

    Raises:
        ValidationError: A name is unknown.
    """
    members: dict[str, set[int]] = {}
    slugs = fields.pop("agents", None)
    if slugs is not None:
        agents = Agent.objects.filter(slug__in=slugs).values_list("slug", "pk")
        members["agent_id"] = _keys_of(slugs, dict(agents), "agents", no_agent)
    names = fields.pop("users", None)
    if names is not None:
        users = get_user_model()._default_manager.filter(username__in=names).values_list("username", "pk")
        members["user_id"] = _keys_of(names, dict(users), "users", _no_user)
    return members


def _keys_of(names: list[str], key_by_name: dict[str, int], field: str, sentence: Callable[[str], str]) -> set[int]:
    """Return the primary keys of what is named; a ValidationError of the field with the sentence about an unknown name."""
    for name in names:
        if name not in key_by_name:
            raise ValidationError({field: [f"{field}: {sentence(name)}"]})
    return set(key_by_name.values())


def _no_user(name: str) -> str:
    return f"there is no user {name[:80]!r}; allowed: names of users"


def _set_members(channel: Channel, members: dict[str, set[int]]) -> None:
    """Make these the only members of the channel of each kind that is given."""
    for column, keys in members.items():
        of_this_kind = ChannelMember.objects.filter(channel=channel, **{f"{column}__isnull": False})
        present = set(of_this_kind.values_list(column, flat=True))
        of_this_kind.filter(**{f"{column}__in": present - keys}).delete()
        new = [ChannelMember(channel=channel, **{column: pk}) for pk in sorted(keys - present)]
        ChannelMember.objects.bulk_create(new, ignore_conflicts=True)

"""What handing in conversations needs besides adding messages: channels that are to be made, agents that are to join, users' words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, User

from agents.models import Channel, ChannelMember
from agents.transcripts.prepare import Prepared

MAKING, JOINING, SPEAKING = "agents.add_channel", "agents.add_channelmember", "agents.change_channel"
CHUNK = 500


class NotEntitled(Exception):
    """Nothing was stored. The sentence names the channel, who speaks there, and the permission that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What somebody may; unless anything is said everything, as who works at the machine itself may.

    Attributes:
        make_channels: Have channels made that are not there.
        add_members: Have agents join channels that are there, as whoever speaks in one does.
        speak_for_users: Hand in what users said; what `user` said always.
        user: Primary key of whose rights these are.
    """

    make_channels: bool = True
    add_members: bool = True
    speak_for_users: bool = True
    user: int | None = None


def rights_of(user: User | AnonymousUser) -> Rights:
    """Of a user of the API."""
    return Rights(
        make_channels=user.has_perm(MAKING),
        add_members=user.has_perm(JOINING),
        speak_for_users=user.has_perm(SPEAKING),
        user=user.pk,
    )


@dataclass(slots=True)
class Needs:
    """What messages need, as they come by."""

    _agents: dict[str, dict[int, str]] = field(default_factory=dict)  # by channel: primary key to slug
    _users: dict[int, str] = field(default_factory=dict)  # primary key to a channel

    def add(self, message: Prepared) -> None:
        speaking = self._agents.setdefault(message.target.slug, {})
        if message.author.agent_id is not None:
            speaking[message.author.agent_id] = message.author.slug or ""
        if message.author.user_id is not None:
            self._users.setdefault(message.author.user_id, message.target.slug)

    def check(self, rights: Rights) -> None:
        """Raises `NotEntitled` for the first that goes beyond these rights."""
        others = {pk: slug for pk, slug in self._users.items() if pk != rights.user}
        if others and not rights.speak_for_users:
            pk, slug = next(iter(others.items()))
            name = get_user_model()._default_manager.filter(pk=pk).values_list("username", flat=True).first()
            text = f"user {name!r} in channel {slug!r}: what other users said is only handed in with the permission {SPEAKING}"
            raise NotEntitled(text)
        if rights.make_channels and rights.add_members:
            return
        for channel, members in self._channels():
            self._check_channel(channel, members, rights)

    def _check_channel(self, channel: str, members: Mapping[int, object] | None, rights: Rights) -> None:
        if members is None:
            if not rights.make_channels:
                raise NotEntitled(
                    f"there is no channel {channel!r}, and it is only made for users with the permission {MAKING}; have it made "
                    "first, with its agents"
                )
            return
        strangers = sorted(slug for pk, slug in self._agents[channel].items() if pk not in members)
        if strangers and not rights.add_members:
            raise NotEntitled(
                f"agent {strangers[0]!r} is not a member of channel {channel!r}, and only joins it for users with the permission "
                f"{JOINING}"
            )

    def _channels(self) -> Iterator[tuple[str, Mapping[int, object] | None]]:
        """Each channel with its agents; None where there is none."""
        slugs = list(self._agents)
        for start in range(0, len(slugs), CHUNK):
            part = slugs[start : start + CHUNK]
            found: dict[str, dict[int, None]] = {
                slug: {} for slug in Channel.objects.filter(slug__in=part).values_list("slug", flat=True)
            }
            members = ChannelMember.objects.filter(channel__slug__in=part, agent__isnull=False)
            for slug, pk in members.values_list("channel__slug", "agent_id"):
                if slug in found and pk is not None:
                    found[slug][pk] = None
            yield from ((slug, found.get(slug)) for slug in part)

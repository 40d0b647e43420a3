"""Who is to be forgotten: an outsider by name, or a user; what they said, and where they have been."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import Q, QuerySet
from django.utils.crypto import salted_hmac

from agents.models import Channel, ChannelMember, Message

LISTED = 5


class Unknown(LookupError):
    """Nobody is called so; says who is called nearly so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody whose words are to go.

    Attributes:
        names: What they are called in texts.
        label: What stands in place of the name; the same whenever they are erased, and not to be guessed back.
        said: Which messages are theirs.
        channels, agents: Where they spoke or are members, and whose agents spoke there.
        user: Their account, where they have one.
        deactivate: Whether the account is closed, too.
    """

    names: tuple[str, ...]
    label: str
    said: Q
    channels: frozenset[int]
    agents: frozenset[int]
    user: AbstractBaseUser | None = None
    deactivate: bool = False

    def own(self) -> QuerySet[Message]:
        return Message.objects.filter(self.said)


def find_outsider(name: str, *, channels: Collection[str] = ()) -> Person:
    """The outsider of this name, also one that was erased in part or wholly.

    Args:
        name: As it stands in the messages, to the letter.
        channels: Slugs, where others elsewhere have the same name; empty = everywhere.

    Raises:
        Unknown: No message has this name, or no channel this slug.
    """
    if missing := set(channels) - set(Channel.objects.filter(slug__in=channels).values_list("slug", flat=True)):
        raise Unknown(f"channel {', '.join(sorted(missing))}: there is none; allowed: slugs of channels")
    label = f"erased-{salted_hmac('agents.erasure', name).hexdigest()[:8]}"
    said = Q(outsider__in=[name, label])
    if channels:
        said &= Q(channel__slug__in=channels)
    if not name or not Message.objects.filter(said).exists():
        like = Message.objects.filter(outsider__icontains=name).order_by("outsider").values_list("outsider", flat=True)
        others = ", ".join(map(repr, like.distinct()[:LISTED])) or "nobody is called nearly so"
        raise Unknown(f"outsider {name!r} said nothing here; allowed: a speaker's name to the letter ({others})")
    return _person(names=(name,), label=label, said=said)


def find_user(who: str, *, deactivate: bool = False) -> Person:
    """The user of this id or username.

    Raises:
        Unknown: There is none.
    """
    users: Any = get_user_model()._default_manager
    user = users.filter(username=who).first()
    if user is None and who.isdecimal():
        user = users.filter(pk=int(who)).first()
    if user is None:
        like = users.filter(username__icontains=who).order_by("username").values_list("username", flat=True)
        others = ", ".join(map(repr, like[:LISTED])) or "nobody is called nearly so"
        raise Unknown(f"user {who!r}: there is none; allowed: an id or a username ({others})")
    names = [user.get_full_name(), user.get_username()]
    return _person(
        names=tuple(name for name in names if name),
        label=f"erased-{salted_hmac('agents.erasure', f'user:{user.pk}').hexdigest()[:8]}",
        said=Q(user=user.pk),
        user=user,
        deactivate=deactivate,
    )


def _person(*, said: Q, user: AbstractBaseUser | None = None, **fields: Any) -> Person:
    channels = set(Message.objects.filter(said).order_by().values_list("channel", flat=True).distinct())
    if user is not None:
        channels |= set(ChannelMember.objects.filter(user_id=user.pk).values_list("channel", flat=True))
    there = Message.objects.filter(channel__in=channels, agent__isnull=False).order_by()
    agents = set(there.values_list("agent", flat=True).distinct())
    agents |= set(
        ChannelMember.objects.filter(channel__in=channels, agent__isnull=False).values_list("agent", flat=True)
    )
    return Person(
        said=said,
        user=user,
        channels=frozenset(channels),
        agents=frozenset(agent for agent in agents if agent is not None),
        **fields,
    )

"""What lists are narrowed by: channel, people, time, tags, numbers. A value that nothing can have is a 400."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from agents.api import parameters
from agents.api.schema import query
from agents.models import Channel
from agents.models.conversations import TAG_KEY

CHANNEL = query("channel", "the slug of a channel", type={"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"})
TAG = query(
    "tag", "a tag it must have, KEY=VALUE", type={"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_.-]{0,63}="}
)
SEARCH = query("search", "a text it must hold, whatever the case")
YES_NO = {"true": True, "false": False}


def no_channel(slug: str) -> str:
    """A sentence for a slug that is no channel's."""
    known = list(Channel.objects.order_by("slug").values_list("slug", flat=True)[:21])
    rest = " …" if len(known) > 20 else ""
    return f"there is no channel {slug[:80]!r}; channels: {', '.join(known[:20]) or 'none yet'}{rest}"


def channel(request: Request) -> Channel | None:
    """The channel of the slug in ``channel``; None when the parameter is not given."""
    slug = parameters.text(request, "channel")
    if not slug:
        return None
    found = Channel.objects.filter(slug=slug).first()
    if found is None:
        raise ValidationError({"channel": [no_channel(slug)]})
    return found


def user(request: Request) -> AbstractBaseUser | None:
    """The user of the name in ``user``; None when the parameter is not given."""
    name = parameters.text(request, "user")
    if not name:
        return None
    found = get_user_model()._default_manager.filter(username=name).first()
    if found is None:
        raise ValidationError({"user": [f"user {name[:80]!r}: allowed: the name of a user"]})
    return found


def flag(request: Request, name: str) -> bool | None:
    """true or false; None when the parameter is not given."""
    return YES_NO.get(parameters.choice(request, name, YES_NO))


def number(request: Request, name: str, *, allowed: str) -> int | None:
    """A primary key in the parameters; None when it is not given."""
    text = parameters.text(request, name)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ValidationError({name: [f"{name} {text[:60]!r}: allowed: {allowed}"]})
    return int(text)


def tag(request: Request, name: str = "tag") -> tuple[str, str] | None:
    """A tag's key and value, written ``build=41``; None when the parameter is not given."""
    text = parameters.text(request, name)
    if not text:
        return None
    key, equals, value = text.partition("=")
    if not equals or not TAG_KEY.fullmatch(key):
        raise ValidationError({name: [f"{name} {text[:80]!r}: allowed: KEY=VALUE, e.g. build=41"]})
    return key, value


def in_time(request: Request, rows: QuerySet[Any], column: str = "created_at") -> QuerySet[Any]:
    """Rows of ``since`` (included) to ``until`` (not)."""
    since, until = parameters.moment(request, "since"), parameters.moment(request, "until")
    if since:
        rows = rows.filter(**{f"{column}__gte": since})
    return rows.filter(**{f"{column}__lt": until}) if until else rows


def having_tag(rows: QuerySet[Any], key: str, value: str) -> QuerySet[Any]:
    """Rows whose ``tags`` say this, on every database."""
    said = Cast(KeyTextTransform(key, "tags"), TextField())  # the cast makes it a plain text to compare with
    found: QuerySet[Any] = rows.alias(_tag=said).filter(_tag=value)
    return found

"""Query parameters read strictly: an unknown name or a wrong value is a 400 that says what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils.dateparse import parse_date, parse_datetime
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.mixins import ListModelMixin
from rest_framework.pagination import Cursor, CursorPagination, PageNumberPagination
from rest_framework.request import Request

from agents.finding import no_agent
from agents.models import Agent, Channel, Message
from agents.models.conversations import TAG_KEY

MOMENT = "a date or time such as 2026-11-22 or 2026-11-22T14:30:00Z (UTC where it says no zone)"
YES_NO = {"true": True, "false": False}
ALWAYS_ALLOWED = ("format", "page", "page_size", "cursor")


def only(request: Request, *names: str) -> None:
    """Refuse unknown parameters: a mistyped filter must not answer with everything."""
    unknown = sorted(set(request.query_params) - {*names, *ALWAYS_ALLOWED})
    if not unknown:
        return
    view = (request.parser_context or {}).get("view")
    paginator = view.paginator if isinstance(view, ListModelMixin) and request.method == "GET" else None  # type: ignore[attr-defined]
    kinds = ("page_query_param", "cursor_query_param", "page_size_query_param")
    of_pages = [name for kind in kinds if (name := getattr(paginator, kind, None))]
    allowed = ", ".join((*names, *of_pages)) or "none"
    raise ValidationError({name: [f"there is no parameter {name!r}; allowed: {allowed}"] for name in unknown})


def text(request: Request, name: str) -> str:
    """The parameter's value; empty when it is not given."""
    value = request.query_params.get(name, "").strip()
    if "\x00" in value:
        raise ValidationError({name: [f"{name} holds a NUL character"]})
    return value


def choice(request: Request, name: str, allowed: Iterable[str]) -> str:
    """One of `allowed`, or empty when it is not given."""
    value, known = text(request, name), list(allowed)
    if value and value not in known:
        raise ValidationError({name: [f"{name} {value!r}: allowed: {', '.join(known)}"]})
    return value


def moment(request: Request, name: str) -> datetime | None:
    """A point in time; a date alone is its midnight UTC."""
    value = text(request, name)
    if not value:
        return None
    try:
        at: datetime | date | None = parse_datetime(value) or parse_date(value)
        if at is None:
            raise ValueError
        if not isinstance(at, datetime):
            at = datetime.combine(at, time())
        # In UTC, as databases compare it; a time outside the calendar there is refused.
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise ValidationError({name: [f"{name} {value!r}: allowed: {MOMENT}"]}) from None


def uuid(request: Request, name: str) -> UUID | None:
    """A UUID; None when it is not given."""
    value = text(request, name)
    try:
        return UUID(value) if value else None
    except ValueError:
        raise ValidationError({name: [f"{name} {value[:60]!r}: allowed: a UUID"]}) from None


def agent(request: Request, name: str = "agent") -> Agent | None:
    """The agent of this slug; None when the parameter is not given."""
    slug = text(request, name)
    return named_agent(slug, name) if slug else None


def the_agent(slug: str, among: QuerySet[Agent] | None = None) -> Agent:
    agent = (Agent.objects.all() if among is None else among).filter(slug=slug).first()
    if agent is None:
        raise NotFound(no_agent(slug))
    return agent


def the_channel(slug: str, among: QuerySet[Channel] | None = None) -> Channel:
    channel = (Channel.objects.all() if among is None else among).filter(slug=slug).first()
    if channel is None:
        raise NotFound(no_channel(slug))
    return channel


def the_row(rows: QuerySet[Any], pk: int, what: str) -> Any:
    """The row of this primary key; a number too large for the column is one that is not there."""
    row = rows.filter(pk=pk).first()
    if row is None:
        raise NotFound(f"there is no {what} {str(pk)[:30]}")
    return row


def named_agent(slug: str, name: str = "agent") -> Agent:
    """The agent that a parameter or a body's field names."""
    agent = Agent.objects.filter(slug=slug).first()
    if agent is None:
        raise ValidationError({name: [no_agent(slug)]})
    return agent


def named_channel(slug: str) -> Channel:
    """The channel that the parameter or a body's field ``channel`` names."""
    channel = Channel.objects.filter(slug=slug).first()
    if channel is None:
        raise ValidationError({"channel": [no_channel(slug)]})
    return channel


def named_message(pk: int | None, name: str, channel: Channel) -> Message | None:
    """The message that a body names by its id, which must stand in the channel; None when it names none."""
    if pk is None:
        return None
    message = Message.objects.select_related("channel", "agent", "user").filter(pk=pk, channel=channel).first()
    if message is None:
        raise ValidationError({name: [f"{name} {pk}: allowed: the id of a message of channel {channel.slug!r}"]})
    return message


def no_channel(slug: str) -> str:
    """A sentence for a slug that is no channel's."""
    known = list(Channel.objects.order_by("slug").values_list("slug", flat=True)[:21])
    rest = " …" if len(known) > 20 else ""
    return f"there is no channel {slug[:80]!r}; channels: {', '.join(known[:20]) or 'none yet'}{rest}"


def channel(request: Request) -> Channel | None:
    """The channel of the slug in ``channel``; None when the parameter is not given."""
    slug = text(request, "channel")
    return named_channel(slug) if slug else None


def user(request: Request) -> AbstractBaseUser | None:
    """The user of the name in ``user``; None when the parameter is not given."""
    name = text(request, "user")
    if not name:
        return None
    user = get_user_model()._default_manager.filter(username=name).first()
    if user is None:
        raise ValidationError({"user": [f"user {name[:80]!r}: allowed: the name of a user"]})
    return user


def flag(request: Request, name: str) -> bool | None:
    """true or false; None when the parameter is not given."""
    return YES_NO.get(choice(request, name, YES_NO))


def number(request: Request, name: str, *, allowed: str) -> int | None:
    """A primary key in the parameters; None when it is not given."""
    value = text(request, name)
    if not value:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) < 19):
        raise ValidationError({name: [f"{name} {value[:60]!r}: allowed: {allowed}"]})
    return int(value)


def tag(request: Request, name: str = "tag") -> tuple[str, str] | None:
    """A tag's key and value, written ``build=41``; None when the parameter is not given."""
    value = text(request, name)
    if not value:
        return None
    key, equals, tagged = value.partition("=")
    if not equals or not TAG_KEY.fullmatch(key):
        raise ValidationError({name: [f"{name} {value[:80]!r}: allowed: KEY=VALUE, e.g. build=41"]})
    return key, tagged


def narrowed(rows: QuerySet[Any], **lookups: Any) -> QuerySet[Any]:
    """Rows for which every lookup holds that has a value; None and an empty text are parameters that were not given."""
    return rows.filter(**{lookup: value for lookup, value in lookups.items() if value not in (None, "")})


def holding(request: Request, rows: QuerySet[Any], *columns: str) -> QuerySet[Any]:
    """Rows with the text of the parameter ``search`` in one of the columns, whatever the case."""
    words = text(request, "search")
    return rows.filter(reduce(or_, (Q(**{f"{column}__icontains": words}) for column in columns))) if words else rows


def in_time(request: Request, rows: QuerySet[Any], column: str = "created_at") -> QuerySet[Any]:
    """Rows of ``since`` (included) to ``until`` (not)."""
    since, until = moment(request, "since"), moment(request, "until")
    return narrowed(rows, **{f"{column}__gte": since, f"{column}__lt": until})


def having_tag(request: Request, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Rows with the tag that the parameter ``tag`` names, on every database."""
    if (wanted := tag(request)) is None:
        return rows
    key, value = wanted
    stored = Cast(KeyTextTransform(key, "tags"), TextField())  # the cast makes it a plain text to compare with
    tagged: QuerySet[Any] = rows.alias(_tag=stored).filter(_tag=value)
    return tagged


LARGEST_PAGE = 500
_URL = {"type": ["string", "null"], "format": "uri"}
_SIZE = {"name": "page_size", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE}}


class Pages(PageNumberPagination):
    """``?page=2&page_size=100``."""

    page_size_query_param = "page_size"
    max_page_size = LARGEST_PAGE

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return _answer({"count": {"type": "integer"}, "next": _URL, "previous": _URL, "results": schema})

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        page = {"name": "page", "in": "query", "schema": {"type": "integer", "minimum": 1}}
        return [{**page, "description": "which page; the first is 1"}, {**_SIZE, "description": "rows in a page"}]


class Log(CursorPagination):
    """``?cursor=…&page_size=50``, newest first. No count: counting a million rows costs more than a page of them.

    `orders` are what ``ordering`` may say, the first unless it does; views allow the parameter by `parameters.only`.
    """

    orders: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({"-id": ("-pk",), "id": ("pk",)})
    ordering = "-pk"
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = LARGEST_PAGE

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        return self.orders[choice(request, "ordering", self.orders) or next(iter(self.orders))]

    def decode_cursor(self, request: Request) -> Cursor | None:
        cursor: Cursor | None = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None and not self.is_position(str(cursor.position)):
            raise NotFound(self.invalid_cursor_message)
        return cursor

    def is_position(self, text: str) -> bool:
        """Whether a cursor of this order can have this in it: a number, or a time."""
        if not self.ordering[0].endswith("_at"):
            return text.isdecimal() and len(text) < 20
        try:
            at = parse_datetime(text)
            return at is not None and at.astimezone(UTC) is not None
        except (ValueError, OverflowError):  # no time, or one that is none in UTC
            return False

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return _answer({"next": _URL, "previous": _URL, "results": schema})

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        cursor = {"name": "cursor", "in": "query", "schema": {"type": "string"}}
        where = "as the `next` and `previous` of an answer have it"
        order = {"name": "ordering", "in": "query", "schema": {"type": "string", "enum": list(self.orders)}}
        return [
            *({**cursor, "description": where}, {**_SIZE, "description": "rows in a page"}),
            *([{**order, "description": f"default {next(iter(self.orders))}"}] if len(self.orders) > 1 else []),
        ]


class LogByTime(Log):
    """The same for logs that are asked for by time, whose indexes begin with what else is asked and end with ``created_at``.

    In the order of primary keys a page of last March would have to be looked for from today on backwards.
    """

    orders = MappingProxyType({"-created_at": ("-created_at", "-pk"), "created_at": ("created_at", "pk")})


class LogByTimeOf(LogByTime):
    """The same where only the index of one filter ends with ``created_at``; without that filter rows go by primary key, which
    is nearly the same order and needs no sorting."""

    filter: ClassVar[str] = "agent"

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        by_time = super().get_ordering(request, queryset, view)
        return by_time if text(request, self.filter) else by_time[1:]


def paged(row: type[serializers.BaseSerializer[Any]]) -> type[serializers.Serializer[Any]]:
    """A numbered page of such rows, for the schema of a view that is no ListAPIView."""
    fields = {
        "count": serializers.IntegerField(),
        "next": serializers.URLField(allow_null=True),
        "previous": serializers.URLField(allow_null=True),
        "results": row(many=True),
    }
    return type(f"Paged{row.__name__}", (serializers.Serializer,), fields)


def _answer(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def by_slug(view: str) -> serializers.HyperlinkedIdentityField:
    """The address of an agent's or a channel's route."""
    return serializers.HyperlinkedIdentityField(view_name=f"agents:{view}", lookup_field="slug")

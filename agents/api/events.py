"""Live progress over HTTP: a stream of server-sent events for who asks for one, else what is new at once, or within some seconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any

from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    PolymorphicProxySerializer,
    extend_schema_field,
    extend_schema_view,
)
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.renderers import BaseRenderer, BrowsableAPIRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.lookups import the_channel, the_row
from agents.api.message_rows import MessageRow, shown_message
from agents.api.problems import Unavailable
from agents.api.run_rows import StepFields
from agents.api.schema import documented, query
from agents.api.serializers import RunRow
from agents.events import Event, Feed, Full, Gone, Listener, Stream, WrongCursor, join
from agents.events.conversations import Conversation, Turn
from agents.events.topics import let_go
from agents.models import Channel, Message, Run

STREAM = "text/event-stream"
LONGEST_WAIT = 25  # seconds
COME_BACK = 10  # seconds, when there is no room


class EventStream(BaseRenderer):
    """For who asks for a stream; what is rendered then is never more than an error, which is JSON."""

    media_type = STREAM
    format = "stream"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return b""


class NoRoom(Unavailable):
    """As many streams are open here as may be."""

    wait = COME_BACK


class Events(APIView):
    """Base of the routes. `Accept: text/event-stream` opens a stream, everything else gets JSON."""

    renderer_classes = (JSONRenderer, EventStream, BrowsableAPIRenderer)

    def place(self, request: Request, **where: Any) -> tuple[Hashable, Callable[[], Feed]]:
        """A name for what is listened to, and what makes its feed."""
        raise NotImplementedError

    def shown(self, event: Event) -> Any:
        """An event's data."""
        raise NotImplementedError

    def get(self, request: Request, **where: Any) -> HttpResponseBase:
        parameters.only(request, "last_event_id", "wait")
        seconds = _wait(request)
        streamed = seconds is None and request.accepted_renderer.media_type == STREAM
        if not streamed and request.accepted_renderer.media_type == STREAM:
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
        key, feed = self.place(request, **where)
        try:
            return self._stream(request, key, feed) if streamed else self._list(request, key, feed, seconds or 0)
        except Full as error:
            raise NoRoom(f"{error}; come back in {COME_BACK} seconds, or ask with ?wait=0") from None
        except Gone:
            raise NotFound("it is not there any more") from None

    def _stream(self, request: Request, key: Hashable, feed: Callable[[], Feed]) -> HttpResponseBase:
        listener = join(key, feed, request.user.pk)
        try:
            _begin(request, listener)
            if listener.feed.is_over(listener.cursor):  # 204 ends the coming back of an EventSource
                listener.leave()
                nothing = HttpResponse(status=204)
                del nothing["Content-Type"]
                return nothing
        except BaseException:
            listener.leave()
            raise
        let_go()
        stream = Stream(listener, self.shown)
        headers = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            stream.close()
            return HttpResponse(content_type=STREAM, headers=headers)
        return StreamingHttpResponse(stream, content_type=STREAM, headers=headers)

    def _list(self, request: Request, key: Hashable, feed: Callable[[], Feed], seconds: int) -> Response:
        if not seconds:  # what is there now: asked for anew, and no place is taken
            found = feed()
            found.look()
            cursor = _cursor(request, found)
            return self._answer(found.since(cursor), found, cursor)
        listener = join(key, feed, request.user.pk)
        try:
            _begin(request, listener)
            events = listener.news()
            if not events and not listener.feed.is_over(listener.cursor):
                listener.wait(min(seconds, settings.EVENT_STREAM_SECONDS))
                events = listener.news()
            return self._answer(events, listener.feed, listener.cursor)
        finally:
            listener.leave()

    def _answer(self, events: Any, feed: Feed, cursor: str) -> Response:
        last = events[-1].id if events else cursor
        rows = [{"id": event.id, "event": event.kind, "data": self.shown(event)} for event in events]
        answer = {"events": rows, "last_event_id": last, "done": feed.is_over(last)}
        return Response(answer, headers={"Cache-Control": "no-store"})


def events_documented(name: str, kinds: str, data: serializers.Field[Any, Any, Any, Any], cursor: str) -> Any:
    """The schema of such a route: what its component is called, the names of its events, their data, and ids as they look."""
    fields = {
        "id": serializers.CharField(help_text="for `last_event_id`"),
        "event": serializers.ChoiceField(kinds.split()),
        "data": data,
    }
    answer = {
        "events": type(f"{name}Event", (serializers.Serializer,), fields)(many=True),
        "last_event_id": serializers.CharField(allow_blank=True, help_text="send it with the next request"),
        "done": serializers.BooleanField(help_text="nothing can follow"),
    }
    text = {"type": "string"}
    stream = {
        "type": "object",
        "description": "each server-sent event; `gone` when it was deleted meanwhile",
        "properties": {
            "id": text,
            "event": {"type": "string", "enum": [*kinds.split(), "gone"]},
            "data": {**text, "description": "JSON, as `data` of an event in JSON"},
        },
        "required": ["event", "data"],
    }
    seconds = {"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT}
    ids = f"the id of the last event you were told: {cursor}"
    get = documented(
        {
            (200, "application/json"): type(f"{name}Events", (serializers.Serializer,), answer),
            (200, STREAM): OpenApiResponse(stream, description="done"),
            204: OpenApiResponse(description="stream only: nothing can follow"),
        },
        parameters=(
            OpenApiParameter("Last-Event-ID", str, OpenApiParameter.HEADER, description="goes before the parameter"),
            query("last_event_id", ids),
            query("wait", "answer in JSON; how many seconds to wait for news", type=seconds),
        ),
        problems=(404, 503),
    )
    return extend_schema_view(get=get)


@extend_schema_field(PolymorphicProxySerializer("StepOrTurn", [StepFields, RunRow], resource_type_field_name=None))
class StepOrTurn(serializers.JSONField):
    """Of a `step` the step, of the `end` the turn."""


@events_documented("Channel", "message", MessageRow(), "a position, 0 = from the beginning; without, from now on")
class ChannelEvents(Events):
    """What is said in a channel, as it is said: `message` with the message as lists show it, its position as id."""

    queryset = Message.objects.all()

    def place(self, request: Request, **where: Any) -> tuple[Hashable, Callable[[], Feed]]:
        pk = the_channel(where["slug"], Channel.objects.only("pk")).pk
        return ("channel", pk), lambda: Conversation(pk)

    def shown(self, event: Event) -> Any:
        return shown_message(event.what, self.request)


@events_documented("Turn", "step end", StepOrTurn(), "the number of a step; without, from the first step on")
class TurnEvents(Events):
    """The steps of a turn, as they are done: `step` with the step as in its trace; `end` with the turn, when it has ended."""

    queryset = Run.objects.all()

    def place(self, request: Request, **where: Any) -> tuple[Hashable, Callable[[], Feed]]:
        pk = the_row(Run.objects.only("pk"), where["pk"], "run").pk
        return ("turn", pk), lambda: Turn(pk)

    def shown(self, event: Event) -> Any:
        shape = RunRow if event.last else StepFields
        return shape(event.what, context={"request": self.request}).data


def _begin(request: Request, listener: Listener) -> None:
    if not listener.wait(LONGEST_WAIT):
        raise Unavailable("the server is stopping, or its database does not answer in time")
    listener.cursor = _cursor(request, listener.feed)


def _cursor(request: Request, feed: Feed) -> str:
    """From where on: what an EventSource sends when it comes back goes before what was in its address from the beginning."""
    header = request.headers.get("Last-Event-ID", "").strip()
    given = header or parameters.text(request, "last_event_id")
    if not given:
        return feed.start()
    try:
        feed.check(given)
    except WrongCursor as error:
        name = "Last-Event-ID" if header else "last_event_id"
        raise ValidationError({name: [f"{name} {given[:60]!r}: allowed: {error}"]}) from None
    return given


def _wait(request: Request) -> int | None:
    text = parameters.text(request, "wait")
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,2}", text) or int(text) > LONGEST_WAIT:
        raise ValidationError({"wait": [f"wait {text[:60]!r}: allowed: 0 to {LONGEST_WAIT} seconds"]})
    return int(text)

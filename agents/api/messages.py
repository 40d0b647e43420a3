"""Messages: what was said, a person's message that comes in, an agent's draft through the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from django.db.models import QuerySet
from pydantic import Field
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api.agents import StageAnswer, message_named_in_field
from agents.api.filters import of_agent, of_channel
from agents.api.overrides import Deadline, Overrides, overrides_of
from agents.bodies import AgentSlug, ChannelSlug, the_channel
from agents.kit.api import filters, headers
from agents.kit.api.filters import Filters
from agents.kit.api.headers import located
from agents.kit.api.pagination import Log
from agents.kit.api.problems import Conflict, Unavailable
from agents.kit.api.requests import INGESTS, PAID, SENDS
from agents.kit.api.rows import Answer, Context, Row, Url, link, shown
from agents.kit.api.schema import answers
from agents.kit.api.views import Listed, Rows, or_404
from agents.kit.bodies import ABSENT, Anything, Body, Id, MessageText, Tags
from agents.models import Channel, Message
from agents.transcripts.ingest import Ingested, IngestRefused, NewMessages, ingest_messages
from agents.transcripts.store import NotEntitled, rights_of
from agents.turn.pipeline import SendResult
from agents.turn.receive import receive_message, why_nobody_is_called
from agents.turn.send_message import RequiredStageFailed, SendRefused, send_message

NARROWING = (
    "channel",
    "agent",
    "since",
)  # filters with an index, so that a search need not read every message there is


def shown_messages() -> QuerySet[Message]:
    """Return messages with what their rows show, without the long texts of those who said them."""
    return Message.objects.select_related("channel", "agent", "user").defer(
        *("agent__system_prompt", "agent__sample_lines", "agent__description"),
        *("channel__topic", "channel__tags", "user__password", "user__email"),
    )


class MessageRow(
    Row,
    table=Message,
    columns=(
        *("id", "url", "channel", "position", "external_id", "author", "agent", "user", "outsider"),
        *("parent", "text", "payload", "sent_at", "run", "run_url", "persona_version", "synthetic", "tags"),
    ),
):
    """What was really said, once."""

    url: Url = shown(link("message-detail"))
    author: str = shown("author_name", "the speaker's name as people read it")
    tags: dict[str, str]


class ReactionAnswer(Row):
    emoji: str
    agent: str | None = shown("agent.slug")
    user: str | None = shown("user.username")


def _turn_urls(message: Message, context: Context) -> list[str]:
    runs = message.triggered_runs.order_by("pk").values_list("pk", flat=True)
    return [reverse("run-detail", [pk], request=context["request"]) for pk in runs]


def _notes(message: Message, context: Context) -> list[str]:
    """Return why stages did nothing with a message, by agent that got it."""
    notes = []
    for slug, trace in message.triggered_runs.order_by("pk").values_list("agent__slug", "trace"):
        for entry in trace:
            if entry.get("phase") == "received" and entry.get("status") == "skipped":
                notes.append(f"{slug}: {entry['why']}")
    return notes


class Received(MessageRow):
    """A message with the turns that it called forth."""

    turns: list[str] = shown(_turn_urls, "the runs that answer it; a worker takes them")
    notes: list[str] = shown(
        _notes,
        "what a stage does not do with it, by agent, and the setting that decides it; when it is saved, also why it calls nobody",
    )


class WholeMessage(Received):
    """One message with the reactions to it and the turns that answer it."""

    reactions: list[ReactionAnswer] = shown(
        lambda message, context: ReactionAnswer.all_of(message.reactions.all(), context)
    )


class NewMessage(Body):
    """What a person said: the caller, or the outsider that is named."""

    channel: ChannelSlug
    text: MessageText
    outsider: str = Field(
        "", max_length=200, description="name of a speaker who is no user here; else it is you who speaks"
    )
    parent: Id = Field(ABSENT, description="id of the message whose thread it is said in")
    tags: Tags = Field({})


class NewDraft(Body):
    """What an agent is about to say."""

    agent: AgentSlug = Field(description="slug of who speaks; active, and a member of the channel")
    channel: ChannelSlug
    text: MessageText = Field(description="the draft")
    payload: Anything = Field(ABSENT, description="typed data beside the text")
    session: str = Field("", min_length=1, max_length=64, description="the session that a rejected draft came with")
    trigger: Id = Field(ABSENT, description="id of the message it answers")
    parent: Id = Field(ABSENT, description="id of the message whose thread it is said in")
    tags: Tags = Field({})
    deadline: Deadline = ABSENT
    overrides: Overrides = Overrides()


class SentAnswer(Answer):
    """What became of a draft."""

    committed: bool = Field(description="whether it was said")
    outcome: str = Field(
        description="the deciding stage's word for it, such as passed or corrected; sent = it was not judged"
    )
    text: str = Field(description="what was said; of a rejected draft, the draft")
    message: MessageRow | None = Field(description="null = not said")
    feedback: str = Field(description="for the agent, when the draft was sent back")
    session: str | None = Field(description="send the next attempt with it; null = nothing to continue")
    reports: dict[str, Any] = Field(
        description="by stage; that of `gate` has score, threshold and reasoning per dimension"
    )
    trace: list[StageAnswer]


class IngestAnswer(Ingested):
    """What became of them; `received` = `imported` + `duplicates` + `sampled_out`."""

    channels: dict[str, str] = Field(description="slug to URL")


class OfMessages(Filters):
    agent = of_agent()
    user = filters.user()
    outsider = filters.Parameter(about="the name of a speaker who is neither agent nor user")
    since = filters.since("sent_at")
    until = filters.until("sent_at")
    tag = filters.tag()
    search = filters.search("text")
    synthetic = filters.flag(about="from a simulation")


class MessageFilters(OfMessages):
    channel = of_channel()

    def filter_queryset(self, queryset: Any) -> Any:
        """Return the messages that are asked for; refuse a search in the texts of all: no index serves it."""
        filters = self.form.cleaned_data
        if filters["search"] and not any(filters[name] for name in NARROWING):
            raise ValidationError({"search": [f"search reads every text; allowed: with one of {', '.join(NARROWING)}"]})
        return super().filter_queryset(queryset)


class MessagePages(Log):
    """By the index that what is asked for has: in a channel by position, of an agent within a time by time, else by id."""

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        """Return the columns to order by, each with a - where the newest come first; an agent alone is served by id."""
        order = super().get_ordering(request, queryset, view)
        query = request.query_params
        sign = "-" if order[0].startswith("-") else ""
        if query.get("channel", "").strip():
            return (f"{sign}position",)
        is_within_time = query.get("since") or query.get("until")
        if query.get("agent") and is_within_time:
            return (f"{sign}sent_at", *order)
        return order


class Messages(Rows):
    """What was said, newest first.

    Filters: `channel`, `agent`, `user`, `outsider`, `since` and `until` (of when it was said), `tag` (`KEY=VALUE`), `search` (in the
    text; only with `channel`, `agent` or `since`), `synthetic`; `ordering=id` for the oldest first.
    """

    queryset = shown_messages()
    row_class = MessageRow
    answer_class = WholeMessage
    pagination_class = MessagePages
    filterset_class = MessageFilters
    throttle_scope = PAID
    bodies: ClassVar = {"create": NewMessage, "send": NewDraft, "ingest": NewMessages}

    @answers({201: Received})
    def create(self, request: Request) -> Response:
        """Say something as a person. The stages hear of it, and the turns of the agents it is addressed to are queued.

        Those are at most 50: in a direct message all of them, elsewhere those it names by `@slug` or name. 201 with the message and its
        `turns`; where it calls nobody, `notes` say why, and how to call an agent.
        """
        body = self.read_body()
        try:
            message = receive_message(
                channel=body.channel,
                user=None if body.outsider else request.user,  # type: ignore[arg-type]  # no user is anonymous here
                outsider=body.outsider,
                text=body.text,
                parent=message_named_in_field(body.parent, field="parent", channel=body.channel),
                idempotency_key=headers.idempotency_key_of(request, Message),
                tags=body.tags,
            )
        except SendRefused as error:
            raise Conflict(str(error)) from None
        answer = Received.of(message, self.row_context())
        if not answer.turns:
            why = why_nobody_is_called(message)
            if why:
                answer.notes.append(why)
        return located(answer)

    @answers({200: SentAnswer, 201: SentAnswer}, 503)
    @action(detail=False, methods=["post"], throttle_scope=SENDS)
    def send(self, request: Request) -> Response:
        """Send an agent's draft through the gate: 201 with the message when it was said, 200 with `committed` false when not.

        Write another draft with the `feedback` and send it with that `session`; when the attempts are spent, the best of them is said.
        The stages judge while you wait: at most `deadline` seconds, if you give one. An `Idempotency-Key` never says anything twice: use
        one for each draft. 409 when the agent may not speak there; 503 when a stage failed without which nothing may be said.
        """
        body = self.read_body()
        agent, channel = body.agent, body.channel
        chosen = overrides_of(request, body, agent=agent, channel=channel, session=body.session)
        try:
            result = send_message(
                agent=agent,
                channel=channel,
                text=body.text,
                payload=body.payload,
                session=body.session,
                idempotency_key=headers.idempotency_key_of(request, Message),
                trigger=message_named_in_field(body.trigger, field="trigger", channel=channel),
                parent=message_named_in_field(body.parent, field="parent", channel=channel),
                overrides=chosen,
                tags=body.tags,
            )
        except RequiredStageFailed as error:
            raise Unavailable(str(error)) from None
        except SendRefused as error:
            raise Conflict(str(error)) from None
        return self._sent(result)

    def _sent(self, result: SendResult) -> Response:
        """Return 201 with the message that was said, or 200 with the feedback, and the session to go on with where there is one."""
        message = MessageRow.of(result.message, self.row_context()) if result.message else None
        session = None
        if not result.committed and result.session:
            session = result.session
        answer = SentAnswer(
            committed=result.committed,
            outcome=str(result.outcome),
            text=result.text,
            message=message,
            feedback=result.feedback,
            session=session,
            reports={name: dict(report) for name, report in result.reports.items() if isinstance(report, Mapping)},
            trace=[entry.as_json() for entry in result.trace],
        )
        if message is None:
            return Response(answer)
        return located(answer, url=message.url)

    @answers(IngestAnswer)
    @action(detail=False, methods=["post"], throttle_scope=INGESTS, most_bytes=10 * 1024 * 1024)
    def ingest(self, request: Request) -> Response:
        """Store messages that were spoken elsewhere, at most 1,000: all of them, or none.

        A message is known by `external_id` in its channel: what is stored already stays as it is and is counted as a duplicate, so that
        a batch may be sent again. No agent answers, and nothing is read for behaviour requests (`notes` say so). Where an agent is
        observed, its sampled share waits to be judged. Of an agent whose `ingest_keep` is `rate` or `quota` only some new conversations
        are stored; messages of the others are counted in `sampled_out`.

        A channel that does not exist is made, an agent that is no member joins, and other users' words are accepted: from users who may add
        channels, add members, change channels. From others that is a 403 that names who, where, and the permission.
        """
        body: NewMessages = self.read_body()
        try:
            ingested = ingest_messages(body, rights=rights_of(request.user))
        except NotEntitled as error:
            raise PermissionDenied(str(error)) from None
        except IngestRefused as error:
            raise ValidationError({name: [text] for name, text in error.errors.items()}) from None
        slugs = dict.fromkeys(message.channel for message in body.messages)  # each once, in their order
        if ingested.sampled_out:
            existing = set(Channel.objects.filter(slug__in=slugs).values_list("slug", flat=True))
            slugs = {slug: None for slug in slugs if slug in existing}
        channels = {slug: reverse("channel-detail", [slug], request=request) for slug in slugs}
        return Response(IngestAnswer(**dict(ingested), channels=channels))


class PositionPages(Log):
    """Newest first, or oldest first with ``ordering=position``."""

    orders = MappingProxyType({"-position": ("-position",), "position": ("position",)})


class ChannelMessageFilters(OfMessages):
    after = filters.number(
        "position",
        "gt",
        allowed="a position, a number from 0",
        schema={"type": "integer", "minimum": 0},
        about="only messages above this position",
        most=10**9,
    )


class ChannelMessages(Listed):
    """What was said in one channel, newest first; from the beginning with `ordering=position`.

    `after=POSITION` leaves out what you have: messages are committed in the order of their positions, so none appears below it later.
    Filters: `agent`, `user`, `outsider`, `since` and `until`, `tag` (`KEY=VALUE`), `search` (in the text), `synthetic`.
    """

    queryset = shown_messages()
    answer_class = MessageRow
    pagination_class = PositionPages
    filterset_class = ChannelMessageFilters

    def get_queryset(self) -> QuerySet[Message]:
        return shown_messages().filter(channel=or_404(the_channel, self.kwargs["slug"]))

"""An agent's draft through the pipeline: said, or sent back with feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from agents.api import bodies, headers
from agents.api.bodies import Anything, Said, StrictBody, Tags, Text, Whole, read_body
from agents.api.headers import IdempotentPosts
from agents.api.messages import LARGEST_ID, MessageRow, shown_message
from agents.api.parameters import named_agent, named_channel, named_message
from agents.api.problems import Conflict, Unavailable
from agents.api.requests import Sends
from agents.api.runs import StageFields
from agents.api.schema import documented
from agents.models import Message
from agents.turn.pipeline import SendResult
from agents.turn.send_message import RequiredStageFailed, SendRefused, send_message


class NewDraft(StrictBody):
    """What an agent is about to say."""

    agent = Text(allowed="the slug of an agent", help_text="slug of who speaks; active, and a member of the channel")
    channel = Text(most=120, allowed="the slug of a channel", help_text="slug")
    text = Said(help_text="the draft")
    payload = Anything(required=False, help_text="typed data beside the text")
    session = Text(required=False, most=64, allowed="the session that a rejected draft came with")
    trigger = Whole(required=False, least=1, most=LARGEST_ID, help_text="id of the message it answers")
    parent = Whole(  # type: ignore[assignment]  # a declared field is taken off the class
        required=False, least=1, most=LARGEST_ID, help_text="id of the message whose thread it is said in"
    )
    tags = Tags(required=False)
    deadline = bodies.Deadline(required=False)
    overrides = bodies.Overrides(required=False)


class SentFields(serializers.Serializer[Any]):
    """What became of a draft."""

    committed = serializers.BooleanField(help_text="whether it was said")
    outcome = serializers.CharField(
        help_text="the deciding stage's word for it, such as passed or corrected; sent = it was not judged"
    )
    text = serializers.CharField(help_text="what was said; of a rejected draft, the draft")
    message = MessageRow(allow_null=True, help_text="null = not said")
    feedback = serializers.CharField(allow_blank=True, help_text="for the agent, when the draft was sent back")
    session = serializers.CharField(
        allow_null=True, help_text="send the next attempt with it; null = nothing to continue"
    )
    reports = serializers.DictField(
        child=serializers.JSONField(),
        help_text="by stage; that of `gate` has score, threshold and reasoning per dimension",
    )
    trace = StageFields(many=True)


class Send(IdempotentPosts, GenericAPIView[Message]):
    """POST an agent's draft: 201 with the message when it was said, 200 with `committed` false, `feedback` and `session` when not.

    Write another draft with the feedback in mind and send it with that `session`; when the attempts are spent, the best of them is said.
    The stages judge while you wait: at most `deadline` seconds, if you give one. An `Idempotency-Key` never says anything twice: use
    one for each draft. 409 when the agent may not speak there; 503 when a stage failed without which nothing may be said.
    """

    queryset = Message.objects.all()
    serializer_class = NewDraft
    throttle_classes = (Sends,)

    @documented(
        {200: SentFields, 201: SentFields},
        body=NewDraft,
        problems=(503,),
        summary="Send an agent's draft through the gate",
    )
    def post(self, request: Request) -> Response:
        given = read_body(request, NewDraft)
        agent, channel = named_agent(given["agent"]), named_channel(given["channel"])
        session = given.get("session", "")
        chosen = bodies.of_request(request, given, agent=agent, channel=channel, session=session)
        try:
            result = send_message(
                agent=agent,
                channel=channel,
                text=given["text"],
                payload=given.get("payload"),
                session=session,
                idempotency_key=headers.of(request, Message),
                trigger=named_message(given.get("trigger"), "trigger", channel),
                parent=named_message(given.get("parent"), "parent", channel),
                overrides=chosen,
                tags=given.get("tags"),
            )
        except RequiredStageFailed as error:
            raise Unavailable(str(error)) from None
        except SendRefused as error:
            raise Conflict(str(error)) from None
        return _answer(result, request)


def _answer(result: SendResult, request: Request) -> Response:
    message = shown_message(result.message, request) if result.message is not None else None
    shown = {
        "committed": result.committed,
        "outcome": str(result.outcome),
        "text": result.text,
        "message": message,
        "feedback": result.feedback,
        "session": (result.session or None) if not result.committed else None,
        "reports": {name: dict(report) for name, report in result.reports.items() if isinstance(report, Mapping)},
        "trace": [entry.as_json() for entry in result.trace],
    }
    if message is None:
        return Response(shown)
    return Response(shown, status=201, headers={"Location": str(message["url"])})

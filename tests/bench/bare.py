"""Floors: a bare create of the row that sending a message saves, with the same sign-in and permission, and nothing else.

And the same for a message through a gate: that row, three bare calls of the SDK, and the rows that the gate writes of them.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, ClassVar

from django.conf import settings
from django.db import transaction
from django.urls import include, path
from rest_framework.generics import CreateAPIView
from rest_framework.serializers import ModelSerializer

from agents.kit.models import LLMCall
from agents.models import Message
from correction.models import CorrectionLog, GateDimensionResult, GateSession


class BareMessage(ModelSerializer[Message]):
    class Meta:
        model = Message
        fields = (
            *("id", "channel", "position", "external_id", "agent", "user", "outsider", "parent", "text", "payload"),
            *("sent_at", "run", "persona_version", "synthetic", "tags"),
        )
        validators: ClassVar[list[Any]] = []


class Bare(CreateAPIView[Message]):
    queryset = Message.objects.all()
    serializer_class = BareMessage


DIMENSIONS = ("adherence", "consistency", "fluency")
SYSTEM, ASKED = "You judge characters in conversations. " * 38, "Judge this message. " * 25  # as long as the gate's
SCHEMA = {
    "type": "object",
    "properties": {"value": {"type": "integer"}},
    "required": ["value"],
    "additionalProperties": False,
}


@cache
def client() -> Any:
    from anthropic import Anthropic

    return Anthropic(base_url=settings.JUDGE_BASE_URL, api_key="bench")


class BareGated(Bare):
    def perform_create(self, serializer: Any) -> None:
        answers = [
            client().messages.create(
                model=settings.JUDGE_MODEL,
                max_tokens=1100,
                system=[{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
                messages=[{"role": "user", "content": [{"type": "text", "text": ASKED}]}],
                output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
            )
            for _ in DIMENSIONS
        ]
        scores = [json.loads(answer.content[-1].text)["value"] for answer in answers]
        with transaction.atomic():
            message = serializer.save()
            asked = {"agent": message.agent, "role": "judge", "purpose": "gate", "model": settings.JUDGE_MODEL}
            usage = [{"input_tokens": a.usage.input_tokens, "output_tokens": a.usage.output_tokens} for a in answers]
            LLMCall.objects.bulk_create(LLMCall(**asked, **tokens, status="ok") for tokens in usage)
            about = {"agent": message.agent, "channel": message.channel, "message": message}
            session = GateSession.objects.create(**about, outcome="passed", sent=1)
            texts = {"original_text": message.text, "judged_text": message.text}
            log = CorrectionLog.objects.create(session=session, **texts, attempt=1, outcome="passed")
            GateDimensionResult.objects.bulk_create(
                GateDimensionResult(log=log, dimension=name, status="scored", score=score, threshold=5, passed=True)
                for name, score in zip(DIMENSIONS, scores, strict=True)
            )


urlpatterns = [
    path("bare/", Bare.as_view()),
    path("bare-gated/", BareGated.as_view()),
    path("", include("project.urls")),
]

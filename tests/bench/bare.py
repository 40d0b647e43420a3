"""A bare create of the same row that sending a message saves, with the same sign-in and permission, and nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

from django.urls import include, path
from rest_framework.generics import CreateAPIView
from rest_framework.serializers import ModelSerializer

from agents.models import Message


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


urlpatterns = [path("bare/", Bare.as_view()), path("", include("project.urls"))]

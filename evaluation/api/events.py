"""An evaluation's progress, live."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.reverse import reverse

from agents.api.events import Events, events_documented
from agents.api.lookups import the_row
from agents.events import Event, Feed
from evaluation.live import Watched
from evaluation.models import EvaluationRun


class Judgements(serializers.Serializer[Any]):
    """How many judgements are in which state."""

    pending = serializers.IntegerField()
    scored = serializers.IntegerField()
    trivial = serializers.IntegerField()
    unscored = serializers.IntegerField()


class ProgressNow(serializers.Serializer[Any]):
    """How far an evaluation is."""

    id = serializers.IntegerField()
    url = serializers.URLField()
    status = serializers.ChoiceField(EvaluationRun.Status.choices)
    error = serializers.CharField(allow_blank=True, help_text="why it failed, crashed or paused")
    overall_score = serializers.FloatField(allow_null=True)
    settled = serializers.IntegerField()
    total = serializers.IntegerField(help_text="0 until it is planned")
    dimensions = serializers.DictField(child=Judgements())


@events_documented("Evaluation", "progress end", ProgressNow(), "16 hexadecimal digits; without, what is so far first")
class RunEvents(Events):
    """How far an evaluation is: `progress` whenever that changes, `end` when it has ended. Each says all; ids tell two apart."""

    queryset = EvaluationRun.objects.all()

    def place(self, request: Request, **where: Any) -> tuple[Hashable, Callable[[], Feed]]:
        pk = the_row(EvaluationRun.objects.only("pk"), where["pk"], "evaluation").pk
        return ("evaluation", pk), lambda: Watched(pk)

    def shown(self, event: Event) -> Any:
        return {**event.what, "url": reverse("evaluation:run", [event.what["id"]], request=self.request)}

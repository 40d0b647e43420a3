"""Interventions, and the log of every one that was looked at, over the API."""

from __future__ import annotations

from typing import Any

from django.db.models import Prefetch, Q, QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.api import parameters
from agents.api.parameters import LogByTime, the_row
from agents.api.schema import AGENT, SEARCH, SINCE, UNTIL, documented, query
from agents.models import Agent
from correction.models import Intervention, InterventionLog

_OF_LOG = (
    *("id", "url", "name", "intervention", "intervention_url", "agent", "channel", "channel_position"),
    *("run", "run_url", "fired", "why", "nudge_type", "judge", "duration_ms", "created_at"),
)
LOG_FILTERS = (
    *(AGENT, query("intervention", "its name: a slug, or a built-in one"), query("fired", enum=parameters.YES_NO)),
    *(query("run", "the id of a run", type=int), SINCE, UNTIL),
)


class InterventionRow(serializers.ModelSerializer[Intervention]):
    """An intervention that an operator wrote: all preconditions that are given must hold, then the nudge is shown to the agent."""

    url = serializers.HyperlinkedIdentityField(view_name="correction:intervention", lookup_field="slug")
    agents = serializers.SlugRelatedField[Any](
        slug_field="slug", many=True, read_only=True, help_text="slugs; empty = every agent"
    )
    proposition_threshold = serializers.FloatField(
        allow_null=True, read_only=True, help_text="fires when the score is below; null = when the claim holds"
    )
    function_parameters = serializers.DictField(child=serializers.JSONField(), read_only=True)
    logs_url = serializers.SerializerMethodField()

    class Meta:
        model = Intervention
        fields = (
            *("slug", "url", "description", "is_enabled", "agents", "dm_allowed", "window", "cooldown_messages"),
            *("textual_claim", "function", "function_parameters", "proposition_claim", "proposition_threshold"),
            *("nudge_type", "nudge", "updated_at", "logs_url"),
        )
        read_only_fields = fields

    def get_logs_url(self, row: Intervention) -> str:
        return f"{reverse('correction:intervention-logs', request=self.context['request'])}?intervention={row.slug}"


class BriefLog(serializers.ModelSerializer[InterventionLog]):
    """One evaluation of one intervention, without what its preconditions said."""

    url = serializers.HyperlinkedIdentityField(view_name="correction:intervention-log")
    intervention = serializers.SlugRelatedField[Any](
        slug_field="slug", read_only=True, allow_null=True, help_text="slug; null = built in, or deleted since"
    )
    intervention_url = serializers.SerializerMethodField()
    agent = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    channel = serializers.SlugRelatedField[Any](slug_field="slug", read_only=True, allow_null=True)
    run = serializers.IntegerField(source="run_id", read_only=True, allow_null=True)
    run_url = serializers.SerializerMethodField()

    class Meta:
        model = InterventionLog
        fields = _OF_LOG
        read_only_fields = fields

    def get_intervention_url(self, log: InterventionLog) -> str | None:
        return self._link("correction:intervention", log.intervention.slug) if log.intervention else None

    def get_run_url(self, log: InterventionLog) -> str | None:
        return self._link("agents:run", log.run_id) if log.run_id else None

    def _link(self, view: str, key: object) -> str:
        return str(reverse(view, [key], request=self.context["request"]))


class WholeLog(BriefLog):
    preconditions = serializers.ListField(
        child=serializers.JSONField(),
        read_only=True,
        help_text="each one's kind, what it said, whether it held (null = not asked or not judged), reasoning",
    )
    calls_url = serializers.SerializerMethodField(help_text="the model calls it made")

    class Meta:
        model = InterventionLog
        fields = (*_OF_LOG, "preconditions", "nudge", "calls_url")
        read_only_fields = fields

    def get_calls_url(self, log: InterventionLog) -> str:
        return f"{reverse('agents:llm-calls', request=self.context['request'])}?work_id={log.work_id}"


def shown_logs() -> QuerySet[InterventionLog]:
    logs = InterventionLog.objects.select_related("agent", "channel", "intervention")
    return logs.defer(
        *("agent__system_prompt", "agent__sample_lines", "agent__description", "channel__topic", "channel__tags"),
        *("intervention__nudge", "intervention__textual_claim", "intervention__proposition_claim"),
    )


@extend_schema_view(get=documented({200: BriefLog(many=True)}, parameters=LOG_FILTERS))
class InterventionLogs(ListAPIView[InterventionLog]):
    """Every evaluation of an intervention, newest first, whether it fired or not.

    Filters: `agent`, `intervention` (its name: a slug, or a built-in one such as `variety`), `fired`, `run` (id), `since`, `until`.
    `ordering=created_at` for the oldest first.
    """

    queryset = InterventionLog.objects.all()
    serializer_class = BriefLog
    pagination_class = LogByTime

    def filter_queryset(self, queryset: QuerySet[InterventionLog, Any]) -> QuerySet[InterventionLog, Any]:
        request, logs = self.request, shown_logs().defer("preconditions", "nudge")
        parameters.only(request, "agent", "intervention", "fired", "run", "since", "until", "ordering")
        if agent := parameters.agent(request):
            logs = logs.filter(agent=agent)
        if name := parameters.text(request, "intervention"):
            logs = logs.filter(name=name)
        if (fired := parameters.flag(request, "fired")) is not None:
            logs = logs.filter(fired=fired)
        if (run := parameters.number(request, "run", allowed="the id of a run")) is not None:
            logs = logs.filter(run_id=run)
        return parameters.in_time(request, logs)


class InterventionLogDetail(GenericAPIView[InterventionLog]):
    """One evaluation of an intervention with what each precondition said, and the nudge."""

    queryset = InterventionLog.objects.all()
    serializer_class = WholeLog

    @documented(WholeLog)
    def get(self, request: Request, pk: int) -> Response:
        parameters.only(request)
        log = the_row(shown_logs(), pk, "intervention log")
        return Response(self.get_serializer(log).data)


ORDERS = {"slug": ("slug",), "-updated_at": ("-updated_at", "-pk")}
_FILTERS = (
    *(SEARCH, query("is_enabled", enum=parameters.YES_NO), AGENT),
    query("ordering", "default slug", enum=ORDERS),
)


@extend_schema_view(get=documented({200: InterventionRow(many=True)}, parameters=_FILTERS))
class Interventions(ListAPIView[Intervention]):
    """The interventions that operators wrote, by slug.

    Filters: `search` (in slug and description), `is_enabled`, `agent` (those that hold for it); `ordering`.
    """

    queryset = Intervention.objects.all()
    serializer_class = InterventionRow

    def filter_queryset(self, queryset: QuerySet[Intervention, Any]) -> QuerySet[Intervention, Any]:
        request, rows = self.request, _interventions()
        parameters.only(request, "search", "is_enabled", "agent", "ordering")
        if words := parameters.text(request, "search"):
            rows = rows.filter(Q(slug__icontains=words) | Q(description__icontains=words))
        if (is_enabled := parameters.flag(request, "is_enabled")) is not None:
            rows = rows.filter(is_enabled=is_enabled)
        if agent := parameters.agent(request):
            rows = rows.filter(agents=None) | rows.filter(agents=agent)
        return rows.order_by(*ORDERS[parameters.choice(request, "ordering", ORDERS) or "slug"])


class InterventionDetail(GenericAPIView[Intervention]):
    """One intervention that an operator wrote."""

    queryset = Intervention.objects.all()
    serializer_class = InterventionRow

    @documented(InterventionRow)
    def get(self, request: Request, slug: str) -> Response:
        parameters.only(request)
        row = _interventions().filter(slug=slug).first()
        if row is None:
            raise NotFound(f"there is no intervention {slug[:80]!r}; built-in ones are fields of the configuration")
        return Response(self.get_serializer(row).data)


def _interventions() -> QuerySet[Intervention]:
    agents = Agent.objects.only("pk", "slug").order_by("slug")
    return Intervention.objects.prefetch_related(Prefetch("agents", agents)).order_by("slug")

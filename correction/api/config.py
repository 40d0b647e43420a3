"""Reading and changing configurations (AC-7.3.4). ETags keep two editors from overwriting each other."""

from __future__ import annotations

from typing import Any, get_args

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.headers import Changed, Conditional, etag_of
from agents.api.parameters import Pages
from agents.api.schema import PAGES, documented
from agents.finding import no_agent
from agents.models import Agent
from correction.config.configure import config_json, configure
from correction.config.fields import INHERIT, SETTINGS, ConfigError, Kind
from correction.config.settings import ResolvedConfig, resolve_all, resolve_config, resolve_defaults
from correction.models import AgentEvaluationConfig

VALUES = {
    "type": "object",
    "properties": {name: setting.schema for name, setting in SETTINGS.items()},
    "required": list(SETTINGS),
}
CHANGES = {
    "application/json": {
        "type": "object",
        "properties": {
            **{
                name: {**setting.schema, "description": f"{setting.help}; {setting.allowed}; null = {INHERIT}"}
                for name, setting in SETTINGS.items()
            },
            "reason": {"type": "string", "maxLength": 100, "description": "why; stands in the history"},
        },
        "additionalProperties": False,
    }
}
PROVENANCE = {"type": "string", "enum": ["override", "agent", "defaults", "built-in"]}


@extend_schema_field(VALUES)
class Values(serializers.DictField):
    """Every field's value in effect."""


@extend_schema_field({"type": "object", "additionalProperties": PROVENANCE})
class WhereFrom(serializers.DictField):
    """Where each field's value comes from."""


class DefaultConfig(serializers.Serializer[Any]):
    """What holds for an agent that says nothing of its own."""

    config = Values()
    provenance = WhereFrom()
    notes = serializers.ListField(child=serializers.CharField(), help_text="settings that have no effect as they stand")


class AgentConfig(DefaultConfig):
    """The configuration in effect for one agent."""

    agent = serializers.CharField()
    display_name = serializers.CharField()
    url = serializers.URLField()


class FieldWords(serializers.Serializer[Any]):
    """What a field is, and what it may be set to."""

    kind = serializers.ChoiceField(get_args(Kind))
    allowed = serializers.CharField()
    description = serializers.CharField(allow_blank=True)


class WholeAgentConfig(AgentConfig):
    """The configuration in effect for one agent, with what may be set."""

    fields = serializers.DictField(child=FieldWords())  # type: ignore[assignment]  # a name of the answer


class ConfigPage(serializers.Serializer[Any]):
    """The configuration in effect for every agent, and the defaults."""

    count = serializers.IntegerField()
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = AgentConfig(many=True)
    defaults = DefaultConfig()


EXAMPLE = {"gate_adherence_enabled": True, "gate_adherence_threshold": 5.0, "reason": "a trial"}
MOST_BYTES = 64 * 1024  # of a body: every field once, and a reason


class Config(Conditional, APIView):
    """The configuration in effect for every agent, and the defaults.

    GET lists agents by slug; `config` holds the values in effect, `provenance` where each comes from: `agent`, `defaults` or
    `built-in`. PUT changes the defaults: the fields given, the others stay; `null` resets a field; `reason` goes into the history.
    With `If-Match`, the ETag of what you read, it is a 412 when another user changed the defaults since.
    """

    queryset = AgentEvaluationConfig.objects.all()
    most_bytes = MOST_BYTES
    example = EXAMPLE

    @documented(ConfigPage, parameters=PAGES)
    def get(self, request: Request) -> Response:
        parameters.only(request)
        agents = Agent.objects.select_related("evaluation_config").order_by("slug")
        self.paginator = Pages()
        page = self.paginator.paginate_queryset(agents, request, view=self) or []
        shown = [_shown(request, agent, config) for agent, config in resolve_all(page)]
        response = self.paginator.get_paginated_response(shown)
        defaults = _shown(request, None, resolve_defaults())
        response.data["defaults"] = defaults
        return self.tagged(request, response.data, etag_of(defaults, around=response.data))

    @documented(DefaultConfig, body=CHANGES, summary="Change the defaults for all agents")
    def put(self, request: Request) -> Response:
        parameters.only(request)
        shown = _changed(request, None, self.expected(request))
        return self.tagged(request, shown, etag_of(shown))


class ConfigOfAgent(Conditional, APIView):
    """The configuration in effect for one agent.

    PATCH changes the fields given, the others stay; `null` makes a field inherit again; `reason` goes into the history. An unknown
    field or a value out of range is a 400 that says what is allowed; nothing is changed then. With `If-Match`, the ETag of what you
    read, it is a 412 when anything in effect for the agent changed since, its defaults included.
    """

    queryset = AgentEvaluationConfig.objects.all()
    most_bytes = MOST_BYTES
    example = EXAMPLE

    @documented(WholeAgentConfig)
    def get(self, request: Request, agent: str) -> Response:
        parameters.only(request)
        chosen = _agent(agent)
        shown = _shown(request, chosen, resolve_config(chosen))
        return self.tagged(request, shown | {"fields": FIELDS}, etag_of(shown))

    @documented(AgentConfig, body=CHANGES, summary="Change one agent's configuration")
    def patch(self, request: Request, agent: str) -> Response:
        parameters.only(request)
        chosen = _agent(agent)
        shown = _changed(request, chosen, self.expected(request))
        return self.tagged(request, shown, etag_of(shown))


FIELDS = {
    name: {"kind": setting.kind, "allowed": setting.allowed, "description": setting.help}
    for name, setting in SETTINGS.items()
}


def _agent(slug: str) -> Agent:
    agent = Agent.objects.filter(slug=slug).first()
    if agent is None:
        raise NotFound(no_agent(slug))
    return agent


def _changed(request: Request, agent: Agent | None, expected: tuple[str, ...] | None) -> dict[str, Any]:
    changes = request.data
    if not isinstance(changes, dict):
        raise ValidationError('send a JSON object of fields, e.g. {"gate_adherence_enabled": true}')
    changes = dict(changes)
    reason = changes.pop("reason", "")
    if not isinstance(reason, str):
        raise ValidationError({"reason": ["reason: a text"]})

    def is_as_read(config: ResolvedConfig) -> None:
        etag = etag_of(_shown(request, agent, config))
        if expected is not None and etag not in expected:
            raise Changed(etag)

    try:
        config = configure(agent=agent, changes=changes, user=request.user, reason=reason, check=is_as_read)  # type: ignore[arg-type]  # no anonymous user comes here
    except ConfigError as error:
        raise ValidationError({name: [text] for name, text in error.errors.items()}) from None
    return _shown(request, agent, config)


def _shown(request: Request, agent: Agent | None, config: ResolvedConfig) -> dict[str, Any]:
    of_agent = {} if agent is None else {
        "agent": agent.slug,
        "display_name": agent.display_name,
        "url": reverse("correction:config-of-agent", [agent.slug], request=request),
    }  # fmt: skip
    return {**of_agent, **config_json(config)}

"""Reading and changing configurations (AC-7.3.4)."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.pagination import Pages
from agents.finding import no_agent
from agents.models import Agent
from correction.config import ResolvedConfig, resolve_all, resolve_config, resolve_defaults
from correction.config_fields import CONFIG_FIELDS, ConfigError
from correction.configure import configure, notes_on, plain_values
from correction.models import AgentEvaluationConfig


class Config(APIView):
    """The configuration in effect for every agent, and the defaults.

    GET lists agents by slug; `config` holds the values in effect, `provenance` where each comes from: `agent`, `defaults` or
    `built-in`. PUT changes the defaults: the fields given, the others stay; `null` resets a field; `reason` goes into the history.
    """

    queryset = AgentEvaluationConfig.objects.all()

    def get(self, request: Request) -> Response:
        parameters.only(request)
        agents = Agent.objects.select_related("evaluation_config").order_by("slug")
        self.paginator = Pages()
        page = self.paginator.paginate_queryset(agents, request, view=self) or []
        shown = [_shown(request, agent, config) for agent, config in resolve_all(page)]
        response = self.paginator.get_paginated_response(shown)
        response.data["defaults"] = _shown(request, None, resolve_defaults())
        return response

    def put(self, request: Request) -> Response:
        return Response(_shown(request, None, _changed(request, None)))


class ConfigOfAgent(APIView):
    """The configuration in effect for one agent.

    PATCH changes the fields given, the others stay; `null` makes a field inherit again; `reason` goes into the history. An unknown
    field or a value out of range is a 400 that says what is allowed; nothing is changed then.
    """

    queryset = AgentEvaluationConfig.objects.all()

    def get(self, request: Request, agent: str) -> Response:
        parameters.only(request)
        found = _agent(agent)
        return Response(_shown(request, found, resolve_config(found)) | {"fields": FIELDS})

    def patch(self, request: Request, agent: str) -> Response:
        found = _agent(agent)
        return Response(_shown(request, found, _changed(request, found)))


FIELDS = {
    name: {"kind": field.kind, "allowed": field.allowed, "description": field.description}
    for name, field in CONFIG_FIELDS.items()
}


def _agent(slug: str) -> Agent:
    agent = Agent.objects.filter(slug=slug).first()
    if agent is None:
        raise NotFound(no_agent(slug))
    return agent


def _changed(request: Request, agent: Agent | None) -> ResolvedConfig:
    changes = request.data
    if not isinstance(changes, dict):
        raise ValidationError('send a JSON object of fields, e.g. {"gate_adherence_enabled": true}')
    changes = dict(changes)
    reason = changes.pop("reason", "")
    if not isinstance(reason, str):
        raise ValidationError({"reason": ["reason: a text"]})
    try:
        return configure(agent=agent, changes=changes, user=request.user, reason=reason)  # type: ignore[arg-type]  # nobody anonymous comes here
    except ConfigError as error:
        raise ValidationError({name: [text] for name, text in error.errors.items()}) from None


def _shown(request: Request, agent: Agent | None, config: ResolvedConfig) -> dict[str, Any]:
    of_agent = {} if agent is None else {
        "agent": agent.slug,
        "display_name": agent.display_name,
        "url": reverse("correction:config-of-agent", [agent.slug], request=request),
    }  # fmt: skip
    return {
        **of_agent,
        "config": plain_values(config),
        "provenance": dict(config.provenance),
        "notes": notes_on(config),
    }

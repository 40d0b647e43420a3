"""Reading and changing configurations (AC-7.3.4). With ETags, two editors do not overwrite each other."""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from agents.bodies import the_agent
from agents.kit.api.browsing import ETAG, FormFields, FormParser
from agents.kit.api.headers import Changed, etag_of
from agents.kit.api.pagination import PAGES
from agents.kit.api.requests import BoundedJSONParser
from agents.kit.api.rows import Answer, Url
from agents.kit.api.schema import answers
from agents.kit.api.views import View, or_404
from agents.models import Agent
from correction.config.configure import config_json, configure
from correction.config.settings import (
    INHERIT,
    SETTINGS,
    ConfigError,
    Kind,
    ResolvedConfig,
    resolve_all,
    resolve_config,
    resolve_defaults,
)
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


class DefaultConfig(Answer):
    """What holds for an agent that says nothing of its own."""

    config: Annotated[dict[str, Any], WithJsonSchema(VALUES)] = Field(description="every field's value in effect")
    provenance: dict[str, Literal["override", "agent", "defaults", "built-in"]]
    notes: list[str] = Field(description="settings that have no effect as they stand")


class AgentConfig(DefaultConfig):
    """The configuration in effect for one agent."""

    agent: str
    display_name: str
    url: Url


class FieldWords(Answer):
    """What a field is, and what it may be set to."""

    kind: Kind
    allowed: str
    description: str


class WholeAgentConfig(AgentConfig):
    """The configuration in effect for one agent, with what may be set."""

    fields: dict[str, FieldWords]


class ConfigPage(Answer):
    """The configuration in effect for every agent, and the defaults."""

    count: int
    next: str | None
    previous: str | None
    results: list[AgentConfig]
    defaults: DefaultConfig


class ConfigFormSerializer(serializers.Serializer[Any]):
    """Each setting as it is stored; an empty one inherits."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return a field for each setting, the reason, and the ETag of what was shown."""
        fields: dict[str, serializers.Field[Any, Any, Any, Any]] = {}
        for name, setting in SETTINGS.items():
            about: dict[str, Any] = {
                "label": name,
                "help_text": f"{setting.help}; {setting.allowed}",
                "required": False,
            }
            if setting.kind == "toggle":
                fields[name] = serializers.ChoiceField(choices=[("", INHERIT), "on", "off"], **about)
            elif setting.choices is not None:
                fields[name] = serializers.ChoiceField(choices=[("", INHERIT), *setting.choices.choices], **about)
            else:
                fields[name] = serializers.CharField(allow_blank=True, **about)
        fields["reason"] = serializers.CharField(allow_blank=True, help_text="why; stands in the history")
        fields[ETAG] = serializers.CharField(style={"template": "rest_framework/hidden.html"})
        return fields


class _Config(View):
    queryset = AgentEvaluationConfig.objects.all()
    parser_classes = (BoundedJSONParser, FormParser)
    most_bytes = 64 * 1024  # every field once, and a reason
    etags = ("retrieve", "update", "partial_update")
    bodies: ClassVar = {"update": CHANGES, "partial_update": CHANGES}

    @cached_property
    def stored(self) -> AgentEvaluationConfig | None:
        """Return the row that this route changes, for its forms; None while there is none."""
        return AgentEvaluationConfig.objects.filter(agent__slug=self.kwargs.get("agent")).first()

    def html_form(self, typed: FormFields | None, etag: str) -> ConfigFormSerializer:
        """Return the form of the page, with what was typed and refused, else (None) with what is stored; empty fields inherit."""
        if typed is not None:
            return ConfigFormSerializer(data={**typed, ETAG: typed.etag})
        row = self.stored
        texts = {"reason": "", ETAG: etag}
        for name, setting in SETTINGS.items():
            value = getattr(row, name, None)
            texts[name] = "" if value is None else setting.show(value)
        return ConfigFormSerializer(instance=texts)

    def example(self, stored: Any) -> dict[str, Any]:
        """Return what is stored. What inherits is left out: sent unchanged it would undo what another user has set meanwhile."""
        example: dict[str, Any] = {}
        for name in SETTINGS:
            value = getattr(self.stored, name, None)
            if isinstance(value, Decimal):
                example[name] = float(value)
            elif value is not None:
                example[name] = value
        return example


class Config(_Config):
    """The configuration in effect for every agent, and the defaults."""

    @answers(ConfigPage, parameters=[*PAGES])
    def retrieve(self, request: Request) -> Response:
        """The configuration in effect for every agent, and the defaults.

        Agents by slug; `config` holds the values in effect, `provenance` where each comes from: `agent`, `defaults` or `built-in`.
        """
        agents = Agent.objects.select_related("evaluation_config").order_by("slug")
        page = self.paginate_queryset(agents) or []
        answers = [_answer(request, agent, config) for agent, config in resolve_all(page)]
        defaults = _answer(request, None, resolve_defaults())
        answer = ConfigPage(**self.get_paginated_response(answers).data, defaults=defaults)
        return self.tagged(request, answer, etag_of(defaults, around=answer))

    @answers(DefaultConfig)
    def update(self, request: Request) -> Response:
        """Change the defaults for all agents: the fields given, the others stay.

        `null` resets a field; `reason` goes into the history. With `If-Match`, the ETag of what you read, it is a 412 when another user
        changed the defaults since.
        """
        return self.tagged(request, _changed(request, None, self.expected(request)))


class ConfigOfAgent(_Config):
    """The configuration in effect for one agent, and what each field may be set to."""

    @answers(WholeAgentConfig)
    def retrieve(self, request: Request, agent: str) -> Response:
        """The configuration in effect for one agent, and what each field may be set to."""
        chosen = or_404(the_agent, agent)
        answer = _answer(request, chosen, resolve_config(chosen))
        return self.tagged(request, WholeAgentConfig(**dict(answer), fields=FIELDS), etag_of(answer))

    @answers(AgentConfig)
    def partial_update(self, request: Request, agent: str) -> Response:
        """Change one agent's configuration: the fields given, the others stay.

        `null` makes a field inherit again; `reason` goes into the history. An unknown field or a value out of range is a 400 that says
        what is allowed; nothing is changed then. With `If-Match`, the ETag of what you read, it is a 412 when anything in effect for the
        agent changed since, its defaults included.
        """
        return self.tagged(request, _changed(request, or_404(the_agent, agent), self.expected(request)))

    @answers(AgentConfig)
    def update(self, request: Request, agent: str) -> Response:
        """The same as PATCH: the fields given, the others stay."""
        answer: Response = self.partial_update(request, agent)
        return answer


FIELDS = {
    name: FieldWords(kind=setting.kind, allowed=setting.allowed, description=setting.help)
    for name, setting in SETTINGS.items()
}


def _changed(request: Request, agent: Agent | None, expected: tuple[str, ...] | None) -> DefaultConfig:
    """Change a configuration as the request says; return it as it is then.

    Args:
        agent: Whose; None: the defaults.
        expected: The ETags of which the present one must be one; None: whatever it is.

    Raises:
        Changed: It is none of them.
        ValidationError: A field or value is not allowed.
    """
    changes = request.data
    if not isinstance(changes, dict):
        raise ValidationError('send a JSON object of fields, e.g. {"gate_adherence_enabled": true}')
    changes = dict(changes)
    reason = changes.pop("reason", "")
    if not isinstance(reason, str):
        raise ValidationError({"reason": ["reason: a text"]})

    def refuse_if_changed(config: ResolvedConfig) -> None:
        etag = etag_of(_answer(request, agent, config))
        if expected is not None and etag not in expected:
            raise Changed(etag)

    try:
        config = configure(agent=agent, changes=changes, user=request.user, reason=reason, check=refuse_if_changed)  # type: ignore[arg-type]  # no anonymous user comes here
    except ConfigError as error:
        raise ValidationError({name: [text] for name, text in error.errors.items()}) from None
    return _answer(request, agent, config)


def _answer(request: Request, agent: Agent | None, config: ResolvedConfig) -> DefaultConfig:
    """Return a configuration as the API answers it."""
    if agent is None:
        return DefaultConfig(**config_json(config))
    return AgentConfig(
        **config_json(config),
        agent=agent.slug,
        display_name=agent.display_name,
        url=reverse("config-of-agent", [agent.slug], request=request),
    )

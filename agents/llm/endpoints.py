"""Who answers a request, and what each endpoint turned out to be able to do."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings

from agents.llm.requests import LLMRequest, Role, Status

logger = logging.getLogger(__name__)

Provider = Literal["anthropic", "offline", "replay"]

ANTHROPIC_URL = "https://api.anthropic.com"
PLACEHOLDER_KEY = "no-key-configured"  # some local servers insist on a header, none reads it
OFFLINE_PREFIX = "offline:"
REPLAY_PREFIX = "replay:"
RESCUES_BEFORE_EXAMPLE_FIRST = 2
ANSWERS_BEFORE_WARNING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a request goes. Read from settings in the calling thread, then only passed along."""

    provider: Provider
    model: str
    base_url: str = ""
    endpoint: str = ""
    key: str = field(default="", repr=False)
    max_concurrency: int = 1
    gate_slots: int = 0
    problem: str = ""

    @property
    def is_default_endpoint(self) -> bool:
        return self.base_url == ANTHROPIC_URL

    @property
    def is_distant(self) -> bool:
        """Whether a request goes over the network."""
        return self.provider == "anthropic" and not self.problem


def provider_of(model: str) -> Provider:
    """The provider a model string names: ``offline:NAME``, ``replay:FILE``, else Anthropic's API or a server that speaks it."""
    if model.startswith(OFFLINE_PREFIX):
        return "offline"
    return "replay" if model.startswith(REPLAY_PREFIX) else "anthropic"


def model_of(role: Role) -> str:
    return str(settings.JUDGE_MODEL if role == "judge" else settings.ACTOR_MODEL)


def base_url_of(role: Role) -> str:
    return str(settings.JUDGE_BASE_URL if role == "judge" else settings.ACTOR_BASE_URL)


def replay_file(model: str) -> Path:
    return Path(model.removeprefix(REPLAY_PREFIX)).expanduser()


def problem_of(role: Role, model: str) -> str:
    """A sentence on what to set when `model` cannot be called for want of a usable key; empty when all is well."""
    key = settings.ANTHROPIC_API_KEY
    if provider_of(model) != "anthropic":
        return ""
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        return "ANTHROPIC_API_KEY holds a blank or a character that no key has: copy it again"
    name = role.upper()
    if base_url_of(role) and (fault := _url_fault(base_url_of(role))):
        return f"{name}_BASE_URL (or ANTHROPIC_BASE_URL) {fault}"
    if key or base_url_of(role):
        return ""
    offline = "offline:lexical-1" if role == "judge" else "offline:scripted-1"
    return (
        f"{name}_MODEL is {model!r} but no key is set: set ANTHROPIC_API_KEY, or {name}_BASE_URL to a server that "
        f"speaks the same API, or {name}_MODEL={offline} to work without a model"
    )


def _url_fault(url: str) -> str:
    """What is wrong with a base URL, without showing it: it may hold a password."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL: write http:// or https://, a host, and a port from 1 to 65535"
    if parts.scheme not in ("http", "https") or not host:
        return "must start with http:// or https:// and name a host"
    if "@" in url:
        return "holds a user name or password: leave it out and set ANTHROPIC_API_KEY"
    return ""


def route(request: LLMRequest) -> Route:
    """Who answers `request`, from its own model or its role's settings, read now."""
    return route_of(request.role, request.model)


def route_of(role: Role, model: str = "") -> Route:
    """Who answers for a role; `model` overrides the configured one."""
    model = model or model_of(role)
    provider = provider_of(model)
    if provider != "anthropic":
        return Route(provider=provider, model=model)
    configured = base_url_of(role).rstrip("/")
    base_url = configured or ANTHROPIC_URL
    return Route(
        provider=provider,
        model=model,
        base_url=base_url,
        endpoint=without_credentials(base_url),
        key=settings.ANTHROPIC_API_KEY or PLACEHOLDER_KEY,
        max_concurrency=max(1, settings.LLM_MAX_CONCURRENCY),
        gate_slots=max(0, settings.LLM_GATE_SLOTS),
        problem=problem_of(role, model),
    )


def without_credentials(url: str) -> str:
    """`url` without user, password, query and fragment; empty when it is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if not parts.netloc:
        return ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


@dataclass(slots=True)
class Ability:
    """What an endpoint's model was seen to do. Used in the loop thread only.

    Attributes:
        structured: False once the endpoint refused `output_config`.
        ignored: Answers in a row that did not fit the schema although it was sent.
        rescues: Times in a row that a worked example saved an answer which had failed without it.
    """

    structured: bool = True
    ignored: int = 0
    rescues: int = 0
    example_first: bool = False


_abilities: dict[tuple[str, str], Ability] = {}


def ability(route: Route) -> Ability:
    """What is known of this endpoint and model in this process."""
    return _abilities.setdefault((route.base_url, route.model), Ability())


def learn(route: Route, ability: Ability, statuses: list[Status]) -> None:
    """Remember how an endpoint took a request with a schema: the status of the first answer and, if asked again, of the second.

    Not called for Anthropic's own API, which enforces schemas: an example there would only colour the judge's answers.
    """
    first = statuses[0]
    if first is Status.OK:
        ability.ignored = 0
        if not ability.example_first:
            ability.rescues = 0
    elif first is Status.MALFORMED:
        ability.ignored += 1
        if ability.ignored == ANSWERS_BEFORE_WARNING:
            logger.warning("%s answers %s without keeping to the JSON schema", route.endpoint, route.model)
        if len(statuses) > 1 and statuses[-1] is Status.OK:
            ability.rescues += 1
            ability.example_first = ability.example_first or ability.rescues >= RESCUES_BEFORE_EXAMPLE_FIRST


def remember_no_schema(route: Route, ability: Ability, error: str) -> None:
    """The endpoint refused `output_config` and took the same request without it."""
    if ability.structured:
        ability.structured = False
        logger.warning(
            "%s does not take a JSON schema for %s (%s): sent without from now on", route.endpoint, route.model, error
        )


def forget() -> None:
    """Forget what endpoints can do, e.g. after a server was replaced by another at the same address."""
    _abilities.clear()

"""Where a request goes, by the settings, and what an endpoint turned out to be able to do."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from agents.kit.llm.providers import Provider, RemoteProvider, default_provider, provider_of, providers
from agents.kit.llm.providers.base import Route, without_credentials
from agents.kit.llm.requests import LLMRequest, Role, Status

logger = logging.getLogger(__name__)

RESCUES_BEFORE_EXAMPLE_FIRST = 2
GUESSES_BEFORE_FORGONE = 2


def model_of(role: Role) -> str:
    return str(settings.JUDGE_MODEL if role == "judge" else settings.ACTOR_MODEL)


def problem_of(role: Role, model: str) -> str:
    """Return a sentence on what to set or install when `model` cannot be called, such as a key; empty when it can."""
    provider = provider_of(model)
    return _problem(provider, role, model, _url_for(provider, role))


def _problem(provider: Provider, role: Role, model: str, url: str) -> str:
    """Return why a provider cannot call a model, as `Provider.problem` does; first what is wrong with the provider in the model's name."""
    prefix, colon, name = model.partition(":")
    if colon and provider.is_default:
        if prefix == provider.name:
            return f"{model!r} is not how a model of {prefix} is named: write {name!r}"
        if isinstance(provider, RemoteProvider) and provider.base_url(url) == provider.own_url:
            others = ", ".join(sorted(name for name in providers() if name != provider.name))
            setting = f"{role.upper()}_BASE_URL"
            return f"{model!r}: no provider is named {prefix!r}; there are: {others}. For a server's own model set {setting}"
    return provider.problem(role, model, url)


def route(request: LLMRequest) -> Route:
    """Return the route of `request`, from its own model or its role's settings, read now."""
    return route_of(request.role, request.model)


def route_of(role: Role, model: str = "") -> Route:
    """Return the route of a role, from the settings; `model` overrides the configured one.

    A route of a model that answers in this process (``offline:``, ``replay:``) has no address. One that cannot be called, e.g. for want
    of a key, says why in `problem`.
    """
    model = model or model_of(role)
    provider = provider_of(model)
    url = _url_for(provider, role)
    problem = _problem(provider, role, model, url)
    if not isinstance(provider, RemoteProvider):
        return Route(provider=provider, model=model, problem=problem)
    base_url = provider.base_url(url)
    return Route(
        provider=provider,
        model=model,
        base_url=base_url,
        endpoint=without_credentials(base_url),
        key=provider.key(),
        max_concurrency=max(1, settings.LLM_MAX_CONCURRENCY),
        gate_slots=max(0, settings.LLM_GATE_SLOTS),
        problem=problem,
    )


def _url_for(provider: Provider, role: Role) -> str:
    """Return the address that JUDGE_BASE_URL or ACTOR_BASE_URL names, without a slash at its end; empty where none does.

    It is that of the role's own model, or of the default provider where that model is asked over no network. A model of another provider
    is not asked there: the server would get a key that is not for it.
    """
    owner = provider_of(model_of(role))
    if not owner.is_remote:
        owner = default_provider()
    if provider is not owner:
        return ""
    url = settings.JUDGE_BASE_URL if role == "judge" else settings.ACTOR_BASE_URL
    return str(url).rstrip("/")


@dataclass(slots=True)
class Ability:
    """What an endpoint's model was seen to do. Used in the loop thread only.

    Attributes:
        forgone: What the endpoint refused, such as ``schema`` or ``temperature``: it is not sent again.
        suspicions: Times in a row that a request went through once something was left out that no error had named.
        rescues: Times in a row that a worked example saved an answer which had failed without it.
    """

    forgone: set[str] = field(default_factory=set)
    suspicions: Counter[str] = field(default_factory=Counter)
    rescues: int = 0

    @property
    def example_first(self) -> bool:
        return self.rescues >= RESCUES_BEFORE_EXAMPLE_FIRST

    def note(self, statuses: Sequence[Status]) -> None:
        """Remember how a request with a schema ended: the status of the first answer and, if asked again, of the second.

        Not called for a provider's own server, which enforces schemas: an example there would only colour the judge's answers.
        """
        if statuses[0] is Status.MALFORMED and statuses[-1] is Status.OK:
            self.rescues += 1
        elif statuses[0] is Status.OK and not self.example_first:  # where the example is shown first, it earns the OK
            self.rescues = 0

    def forgo(self, what: str, route: Route, error: str) -> None:
        """Remember that the endpoint refused something, such as ``schema``, with this error."""
        if what not in self.forgone:
            self.forgone.add(what)
            words = "%s takes no %s for %s (%s): sent without from now on"
            logger.warning(words, route.endpoint, what, route.model, error)

    def suspect(self, what: str, route: Route, error: str) -> None:
        """Note that a request went through without something that the error before did not name; forgo it when that happens again.

        Until then it may have been chance, such as a server that had not loaded its model yet.
        """
        self.suspicions[what] += 1
        if self.suspicions[what] >= GUESSES_BEFORE_FORGONE:
            self.forgo(what, route, error)

    def acquit(self, route: Route, body: Mapping[str, Any]) -> None:
        """Note that a body went through: nothing in it is refused."""
        for what in [*self.suspicions]:
            field_of_body = route.remote.schema_field if what == "schema" else what
            if field_of_body in body:
                del self.suspicions[what]


_abilities: dict[tuple[str, str], Ability] = {}


def ability(route: Route) -> Ability:
    """Return what is known of this endpoint and model in this process."""
    return _abilities.setdefault((route.base_url, route.model), Ability())


def forget() -> None:
    """Forget what endpoints can do, e.g. after a server was replaced by another at the same address."""
    _abilities.clear()

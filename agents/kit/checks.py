"""System checks of the settings: each says what to do. Some only speak on `manage.py check --deploy`.

Every command of Plumbline runs the checks tagged "plumbline", of all apps. Their modules are imported at every start, so each check
imports what it looks at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Warning, register

if TYPE_CHECKING:
    from agents.kit.llm.requests import Role

Numbers = Mapping[str, tuple[float, str]]  # settings: the least allowed, and what it is

NUMBERS: Numbers = {
    "LLM_MAX_CONCURRENCY": (1, "the number of calls that may be in flight"),
    "LLM_GATE_SLOTS": (0, "the number of further calls reserved for the gate"),
    "LLM_EVALUATION_DEADLINE": (1, "seconds for one judging call"),
    "LLM_EVALUATION_RETRIES": (0, "how often a call is tried again"),
}


@register("plumbline", deploy=True)  # a fact to know before going live; said on every command it would only be noise
def check_judge(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Tell that no LLM judges, where none does."""
    from agents.kit.llm.endpoints import model_of
    from agents.kit.llm.providers import is_heuristic

    if is_heuristic(model_of("judge")):
        yield Info(
            f"No LLM judges: JUDGE_MODEL is {model_of('judge')!r}. Scores come from rules and word lists and are "
            "marked heuristic.",
            hint="Set ANTHROPIC_API_KEY, or JUDGE_MODEL for another provider or a server of your own: docs/how-to/choose-a-provider.md.",
            id="agents.I001",
        )


@register("plumbline")
def check_models(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Refuse a role's model that cannot be called: for want of a key, of its file, or of an offline model of that name; then see
    `_check_prices`."""
    from agents.kit.llm.endpoints import model_of, problem_of
    from agents.kit.llm.providers import is_heuristic, reads_files
    from agents.kit.llm.providers.base import OFFLINE_MODELS
    from agents.kit.llm.providers.replay import replay_file
    from agents.kit.llm.requests import ROLES

    for role in ROLES:
        model = model_of(role)
        setting = f"{role.upper()}_MODEL"
        problem = problem_of(role, model)
        if problem:
            hint = problem[0].upper() + problem[1:] + "."
            yield Error(f"{setting} cannot be called.", hint=hint, id="agents.E001")
        elif reads_files(model) and not replay_file(model).is_file():
            hint = "Write one with `manage.py export_payloads --out FILE`, or correct the path after `replay:`."
            yield Error(f"{setting} is {model!r}, but there is no such file.", hint=hint, id="agents.E002")
        elif is_heuristic(model) and model not in OFFLINE_MODELS[role]:
            hint = f"Allowed: {', '.join(OFFLINE_MODELS[role])}, the name of a model, or replay:FILE."
            yield Error(f"{setting} is {model!r}: there is no such offline model.", hint=hint, id="agents.E005")
    yield from _check_prices()


def _check_prices() -> Iterator[CheckMessage]:
    """Warn once of each model that the shipped prices lack, whichever roles it has. No query: a check runs before any command."""
    from agents.kit.llm.endpoints import route_of
    from agents.kit.llm.prices import has_seed_price
    from agents.kit.llm.requests import ROLES

    roles: dict[str, list[Role]] = {}
    servers_of: dict[str, set[str]] = {}
    for role in ROLES:
        route = route_of(role)
        if not route.is_distant or has_seed_price(route.model):
            continue
        roles.setdefault(route.model, []).append(role)
        servers = servers_of.setdefault(route.model, set())
        if not route.remote.is_own_server(route):
            servers.add(route.endpoint)
    for model, having in roles.items():
        names = " and ".join(f"{role.upper()}_MODEL" for role in having)
        servers = servers_of[model]
        where = f" (served by {', '.join(sorted(servers))})" if servers else ""
        hint = (
            "Until it has one its calls are shown as unpriced. Add it in the console under More › Logs › Prices, "
            f"for the model {model}, 0 if it costs nothing. Then set SILENCED_SYSTEM_CHECKS=agents.W002 in the environment or "
            ".env: this check reads only the shipped prices, not the console's."
        )
        yield Warning(f"{names}: the price of {model!r}{where} is not known.", hint=hint, id="agents.W002")


@register("plumbline")
def check_llm_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Refuse numbers and choices for model calls that are out of range."""
    from agents.kit.llm.ledger import STORE_CHOICES

    if settings.LLM_STORE_PAYLOADS not in STORE_CHOICES:
        hint = f"Set it to one of: {', '.join(STORE_CHOICES)}."
        yield Error(f"LLM_STORE_PAYLOADS is {settings.LLM_STORE_PAYLOADS!r}.", hint=hint, id="agents.E003")
    yield from too_small(NUMBERS)


def too_small(numbers: Numbers) -> Iterator[CheckMessage]:
    """Name the settings that are less than the least allowed."""
    for name, (least, meaning) in numbers.items():
        if getattr(settings, name) < least:
            hint = f"Set it to {least} or more ({meaning})."
            yield Error(f"{name} is {getattr(settings, name)}.", hint=hint, id="agents.E004")


NEW_KEY = "python3 -c 'import secrets; print(secrets.token_urlsafe(64))'"


@register("plumbline", deploy=True)
def check_unset(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Warn of settings that a deployment needs and that are left to a default for a personal machine."""
    if "SECRET_KEY" in settings.NOT_SET:
        hint = f"Set it to a long random string, e.g. the output of: {NEW_KEY}"
        yield Warning("SECRET_KEY is not set: one made on this machine is used.", hint=hint, id="agents.W003")
    if not settings.PRODUCTION:
        hint = "Set it to the names under which people reach the server, e.g. ALLOWED_HOSTS=plumbline.example.org"
        names = ", ".join(settings.ALLOWED_HOSTS) or "nothing"
        text = f"This is not run as production: ALLOWED_HOSTS names {names}, or DEBUG or PRODUCTION says so."
        yield Warning(text, hint=hint, id="agents.W004")
    if "DATABASE_URL" in settings.NOT_SET:
        text = "DATABASE_URL is not set: what is stored goes to .local/plumbline.sqlite3 in the checkout."
        yield Warning(text, hint="Set it to postgres://USER:PASSWORD@HOST:PORT/NAME", id="agents.W005")


SHORTEST_KEY = 32  # characters


@register("plumbline")
def check_exposed(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Warn, with every command, of DEBUG and of a short SECRET_KEY where ALLOWED_HOSTS names more than this machine."""
    public = sorted(set(settings.ALLOWED_HOSTS) - {*settings.LOCAL_HOSTS, "testserver"})
    if not public:
        return
    if settings.DEBUG:
        text = f"DEBUG is on, and ALLOWED_HOSTS names {', '.join(public)}: an error page shows settings and source to any visitor."
        yield Warning(text, hint="Remove DEBUG, or the public names from ALLOWED_HOSTS.", id="agents.W006")
    if "SECRET_KEY" not in settings.NOT_SET and len(settings.SECRET_KEY) < SHORTEST_KEY:
        text = f"SECRET_KEY has {len(settings.SECRET_KEY)} characters; allowed: at least {SHORTEST_KEY}. Who guesses it can sign sessions."
        yield Warning(text, hint=f"Set it to a long random string, e.g. the output of: {NEW_KEY}", id="agents.W007")


@register("plumbline", deploy=True)
def check_choices(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Tell that a proxy needs TRUST_PROXY_HEADERS where requests are sent on to https: its own arrive as http."""
    if settings.SECURE_SSL_REDIRECT and not settings.SECURE_PROXY_SSL_HEADER:
        text = "TRUST_PROXY_HEADERS is not set: behind a proxy that ends TLS every request is sent to https again and again."
        hint = "Set TRUST_PROXY_HEADERS=true where a proxy sets X-Forwarded-Proto itself."
        yield Info(text, hint=hint, id="agents.I005")

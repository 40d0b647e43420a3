"""What `manage.py check --deploy` says of settings that production needs or would be better off with. No other command says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Info, Warning, register

NEW_KEY = "python3 -c 'import secrets; print(secrets.token_urlsafe(64))'"


@register(deploy=True)
def check_unset(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """What nobody can deploy without is set, and not left to a default meant for somebody's own machine."""
    found: list[CheckMessage] = []
    if "SECRET_KEY" in settings.NOT_SET:
        hint = f"Set it to a long random string, e.g. the output of: {NEW_KEY}"
        found.append(Warning("SECRET_KEY is not set: one made on this machine is used.", hint=hint, id="agents.W003"))
    if not settings.PRODUCTION:
        hint = "Set it to the names under which people reach the server, e.g. ALLOWED_HOSTS=plumbline.example.org"
        names = ", ".join(settings.ALLOWED_HOSTS) or "nothing"
        text = f"This is not run as production: ALLOWED_HOSTS names {names}, or DEBUG or PRODUCTION says so."
        found.append(Warning(text, hint=hint, id="agents.W004"))
    if "DATABASE_URL" in settings.NOT_SET:
        text = "DATABASE_URL is not set: what is stored goes to .local/plumbline.sqlite3 in the checkout."
        found.append(Warning(text, hint="Set it to postgres://USER:PASSWORD@HOST:PORT/NAME", id="agents.W005"))
    return found


@register(deploy=True)
def check_choices(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Choices that are sound, but worth knowing of before going live."""
    found: list[CheckMessage] = []
    if not settings.CELERY_BROKER_URL:
        text = "CELERY_BROKER_URL is not set: queued work waits for `manage.py work`, of which several may run, also elsewhere."
        found.append(Info(text, hint="Keep one running at least, or start Celery workers.", id="agents.I002"))
    if settings.DATABASES["default"]["ENGINE"].endswith(".sqlite3"):
        hint = "For several machines or many people set DATABASE_URL to postgres://USER:PASSWORD@HOST:PORT/NAME"
        found.append(Info("The database is SQLite: one file, one writer at a time.", hint=hint, id="agents.I003"))
    if not settings.METRICS_TOKEN:
        text = "METRICS_TOKEN is not set: there is no /metrics for Prometheus."
        found.append(Info(text, hint="Set it to a long random string to have it.", id="agents.I004"))
    if settings.SECURE_SSL_REDIRECT and not settings.SECURE_PROXY_SSL_HEADER:
        text = "TRUST_PROXY_HEADERS is not set: behind a proxy that ends TLS every request is sent to https again and again."
        hint = "Set TRUST_PROXY_HEADERS=true where a proxy sets X-Forwarded-Proto itself."
        found.append(Info(text, hint=hint, id="agents.I005"))
    return found

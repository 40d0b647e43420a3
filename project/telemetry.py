"""What leaves the process about itself: its log, and errors and traces for Sentry (no DSN, no Sentry)."""

import logging

from django.core.exceptions import ImproperlyConfigured

from project.environment import PRODUCTION, env, flag

LOG_FORMATS = {"plain": "agents.ops.telemetry.Plain", "json": "agents.ops.telemetry.Json"}
LOG_FORMAT = env.str("LOG_FORMAT", default="") or ("json" if PRODUCTION else "plain")
if LOG_FORMAT not in LOG_FORMATS:
    raise ImproperlyConfigured(f"LOG_FORMAT is {LOG_FORMAT!r}; allowed: {', '.join(LOG_FORMATS)}")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOG_LEVEL = env.str("LOG_LEVEL", default="WARNING").upper()
if LOG_LEVEL not in LOG_LEVELS:
    raise ImproperlyConfigured(f"LOG_LEVEL is {LOG_LEVEL!r}; allowed: {', '.join(LOG_LEVELS)}")
LOG_TEXTS = flag("LOG_TEXTS", default=False)
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"about": {"()": "agents.ops.telemetry.About"}, "refused": {"()": "agents.ops.telemetry.RefusedHost"}},
    "formatters": {"ours": {"()": LOG_FORMATS[LOG_FORMAT], "texts": LOG_TEXTS}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "ours", "filters": ["about"]}},
    "loggers": {
        "django": {"handlers": [], "level": max(LOG_LEVEL, "INFO", key=logging.getLevelNamesMapping().__getitem__)},
        "django.server": {"handlers": [], "level": "CRITICAL", "propagate": False},  # django.request says the same
        "django.security.DisallowedHost": {"filters": ["refused"]},
    },
    "root": {"handlers": ["console"], "level": LOG_LEVEL},
}

SENTRY_SEND_TEXTS = flag("SENTRY_SEND_TEXTS", default=False)
SENTRY_DSN = env.str("SENTRY_DSN", default="")
SENTRY_ENVIRONMENT = env.str("SENTRY_ENVIRONMENT", default="production" if PRODUCTION else "local")
SENTRY_TRACES_SAMPLE_RATE = env.float("SENTRY_TRACES_SAMPLE_RATE", default=0.1)
if SENTRY_DSN:
    import sentry_sdk
    from sentry_sdk.integrations.celery import CeleryIntegration
    from sentry_sdk.integrations.django import DjangoIntegration

    from agents.ops.telemetry import scrub_event, scrub_transaction

    sentry_sdk.init(
        dsn=SENTRY_DSN,
        # Named one by one: its own integration for model calls would report every failed call as an error.
        auto_enabling_integrations=False,
        integrations=[DjangoIntegration(), CeleryIntegration()],
        environment=SENTRY_ENVIRONMENT,
        traces_sample_rate=SENTRY_TRACES_SAMPLE_RATE,
        send_default_pii=False,
        include_local_variables=False,  # frames would carry message texts and personas
        max_request_body_size="never",
        before_send=None if SENTRY_SEND_TEXTS else scrub_event,
        before_send_transaction=None if SENTRY_SEND_TEXTS else scrub_transaction,
    )

"""Settings of how alerts leave the house: e-mail, webhooks, and the address of the console in them."""

import environ
from django.core.exceptions import ImproperlyConfigured

from project.environment import env, number

CONSOLE_URL = env.str("CONSOLE_URL", default="")
ALERT_SECONDS = number("ALERT_SECONDS", 10)  # that a receiver has to answer, from the look-up of its name on
WEBHOOK_PRIVATE_HOSTS = [name.strip() for name in env.list("WEBHOOK_PRIVATE_HOSTS", default=[])]
EMAIL_URL = env.str("EMAIL_URL", default="")  # empty: no e-mail is sent
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default="plumbline@localhost")
EMAIL_TIMEOUT = ALERT_SECONDS
try:
    _email = environ.Env.email_url_config(EMAIL_URL or "dummymail://")
except (ValueError, KeyError, ImproperlyConfigured):
    raise ImproperlyConfigured(
        "EMAIL_URL is not understood; allowed: smtp+tls://USER:PASSWORD@HOST:PORT, smtp+ssl://… or smtp://HOST:PORT"
    ) from None
EMAIL_BACKEND = _email["EMAIL_BACKEND"]
EMAIL_HOST, EMAIL_PORT = _email["EMAIL_HOST"] or "localhost", _email["EMAIL_PORT"] or 25
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _email["EMAIL_HOST_USER"] or "", _email["EMAIL_HOST_PASSWORD"] or ""
EMAIL_USE_TLS, EMAIL_USE_SSL = _email.get("EMAIL_USE_TLS", False), _email.get("EMAIL_USE_SSL", False)
EMAIL_FILE_PATH = _email["EMAIL_FILE_PATH"]

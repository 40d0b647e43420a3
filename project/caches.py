"""Settings of caches: what one process remembers, and what the web processes count together where there is a Redis."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from project.environment import env

# Where web processes count requests together: that of CELERY_BROKER_URL unless it is set; none = each on its own.
CACHE_URL = env.str("CACHE_URL", default="")
_REDIS = ("redis://", "rediss://", "unix://")
if CACHE_URL and not CACHE_URL.startswith(_REDIS):
    scheme = CACHE_URL.partition(":")[0]
    raise ImproperlyConfigured(f"CACHE_URL begins with {scheme!r}; allowed: redis://HOST:PORT/NUMBER")
_broker = env.str("CELERY_BROKER_URL", default="")
_shared_url = CACHE_URL or (_broker if _broker.startswith(_REDIS) else "")
_own: dict[str, Any] = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
_shared: dict[str, Any] = {
    "BACKEND": "django.core.cache.backends.redis.RedisCache",
    "LOCATION": _shared_url,
    "KEY_PREFIX": "plumbline",
    "OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5},  # seconds that a request may lose by it
}
CACHES = {"default": _own, "throttles": _shared if _shared_url else {**_own, "LOCATION": "throttles"}}

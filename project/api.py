"""Settings of the API: who may call it, how it answers, and what a user may spend in a minute."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from project.environment import env, flag, number

# POSTs a minute of one user
API_PAID_PER_MINUTE = int(number("API_PAID_PER_MINUTE", 60))  # evaluations, captures, turns: what may cost money
API_SENDS_PER_MINUTE = int(number("API_SENDS_PER_MINUTE", 6_000))  # drafts through the gate
API_INGESTS_PER_MINUTE = int(number("API_INGESTS_PER_MINUTE", 600))  # batches of up to 1,000 messages
API_TRANSCRIPTS_PER_MINUTE = int(number("API_TRANSCRIPTS_PER_MINUTE", 30))  # files of up to 10 MB
# Wrong passwords of one address and for one user name, and wrong tokens of one address
WRONG_SIGN_INS_PER_MINUTE = int(number("WRONG_SIGN_INS_PER_MINUTE", 10))
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
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "agents.api.requests.Tokens",  # first: it makes an anonymous request a 401, not a 403
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["agents.api.requests.ModelPermissions"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["agents.api.requests.BoundedJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "agents.api.pagination.Pages",
    "PAGE_SIZE": 100,
    "DEFAULT_FILTER_BACKENDS": ["agents.api.filters.Backend"],
    "DEFAULT_THROTTLE_CLASSES": ["agents.api.requests.Posts"],
    "DEFAULT_SCHEMA_CLASS": "agents.api.schema.Schema",
    "EXCEPTION_HANDLER": "agents.api.problems.as_problem",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    # Whose address counts: the last that X-Forwarded-For names, where a proxy sets it, else that of the connection.
    "NUM_PROXIES": 1 if flag("TRUST_PROXY_HEADERS", default=False) else 0,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Plumbline",
    "DESCRIPTION": "Measures how far an agent has drifted from its persona, corrects messages before they are said, and steers.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api",
    "SERVE_INCLUDE_SCHEMA": True,
    "COMPONENT_SPLIT_PATCH": False,  # the body of a PATCH is a model of its own
    # Not the hook that names enums: the names would change with every new field.
    "POSTPROCESSING_HOOKS": ["agents.api.schema.tidied"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "tryItOutEnabled": True, "docExpansion": "none", "validatorUrl": None},
    "ENABLE_DJANGO_DEPLOY_CHECK": False,  # a test holds the schema to having no warnings
}

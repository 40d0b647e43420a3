"""Settings of Plumbline, read from the environment (and ``.env``) through django-environ.

What each does is said in ``effective.yaml``, and its default in ``.env.example``. Safe by default: ``DEBUG`` is off, cookies are
secure and HSTS, TLS redirect and CSP are on unless ``DEBUG`` is set.
"""

import logging
import os
import secrets
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import environ
from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.templatetags.static import static

from project.environment import (  # noqa: F401
    ALLOWED_HOSTS,
    BASE_DIR,
    DEBUG,
    LOCAL_DIR,
    LOCAL_HOSTS,
    NOT_SET,
    PRODUCTION,
    env,
    flag,
    number,
)


def _local_secret_key() -> str:
    """Return the key kept in an ignored file for local use; made once, safe when two processes start together.

    A file that exists is never written to: it only appears when it is complete.
    """
    LOCAL_DIR.mkdir(exist_ok=True)
    path = LOCAL_DIR / "secret_key"
    if not path.exists():
        draft = LOCAL_DIR / f"secret_key.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(64))
        try:
            os.link(draft, path)  # atomic and exclusive: the first process wins, the others read its key
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text()


# --- Core ---------------------------------------------------------------------------------------------------------------
SECRET_KEY = env.str("SECRET_KEY", default="")
if not SECRET_KEY:
    if PRODUCTION:
        raise ImproperlyConfigured(
            "SECRET_KEY is required in production (ALLOWED_HOSTS names a public host). Set it to a long random string, e.g. "
            "the output of: python3 -c 'import secrets; print(secrets.token_urlsafe(64))'"
        )
    SECRET_KEY = _local_secret_key()
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "agents.kit.console.apps.ConsoleConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "csp",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "simple_history",
    # A capability is an app; lower ones first.
    "agents.kit",
    "agents",
    "agents.debates",
    "agents.swarm",
    "agents.alerts",
    "evaluation",
    "evaluation.calibration",
    "evaluation.change",
    "evaluation.experiments",
    "evaluation.drafting",
    "evaluation.ci",
    "correction",
    "correction.interventions",
    "correction.behavior",
    "correction.litellm",
    "correction.sending",
    "correction.demo",
]
MIDDLEWARE = [
    "agents.kit.ops.request_ids.RequestIds",
    "agents.kit.ops.health.Probes",  # /healthz, /readyz and /metrics, whatever host they are asked under
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "agents.kit.ops.compression.CompressPages",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "agents.kit.api.problems.SlowCharsets",  # before what reads a form
    "agents.kit.api.problems.UnknownRoutes",  # before what redirects to the path with a slash
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "agents.kit.api.problems.DatabaseOutages",  # after what names the user, before what asks who it is
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "simple_history.middleware.HistoryRequestMiddleware",  # who made a change of configuration
]
ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "admin:login"
SILENCED_SYSTEM_CHECKS = env.list("SILENCED_SYSTEM_CHECKS", default=[])
LOGIN_REDIRECT_URL = "admin:index"
LANGUAGE_CODE = "en"
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
if TIME_ZONE not in zoneinfo.available_timezones():
    raise ImproperlyConfigured(f"TIME_ZONE is {TIME_ZONE!r}; allowed: names such as UTC or Europe/Berlin")
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = (
    "project.formats"  # dates as `agents.kit.text.wording` writes them; a language's formats win over DATE_FORMAT
)
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# --- Database -----------------------------------------------------------------------------------------------------------
# No ATOMIC_REQUESTS: a model call inside an open transaction would block every other writer for its whole length.
_database_url = env.str("DATABASE_URL", default="") or f"sqlite:///{LOCAL_DIR / 'plumbline.sqlite3'}"
try:
    DATABASES = {"default": environ.Env.db_url_config(_database_url)}
except (ValueError, KeyError, ImproperlyConfigured):
    DATABASES = {"default": {}}
if not DATABASES["default"].get("ENGINE", "").endswith((".sqlite3", ".postgresql")):
    raise ImproperlyConfigured(
        "DATABASE_URL is not understood; allowed: sqlite:///FILE or postgres://USER:PASSWORD@HOST:PORT/NAME"
    )
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    LOCAL_DIR.mkdir(exist_ok=True)
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        transaction_mode="IMMEDIATE",
        timeout=20,
        init_command="PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    )
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    # A pooler in transaction mode gives each transaction another connection, so that no cursor outlives one.
    DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = flag("DATABASE_POOLER", default=False)
    if most_connections := int(number("DATABASE_POOL", 0)):  # of one process; a thread waits until one is free
        pool = {"min_size": 1, "max_size": most_connections, "timeout": 30}
        DATABASES["default"].setdefault("OPTIONS", {})["pool"] = pool
    else:
        DATABASES["default"]["CONN_MAX_AGE"] = 60

MESSAGES_KEPT_DAYS = int(number("MESSAGES_KEPT_DAYS", 0))  # by `prune_logs`; 0: for ever

# --- Static files -------------------------------------------------------------------------------------------------------
STATIC_URL = "static/"
STATIC_ROOT = env.str("STATIC_ROOT", default=str(BASE_DIR / "staticfiles"))
if not PRODUCTION:
    Path(STATIC_ROOT).mkdir(exist_ok=True)  # whitenoise warns when it is missing; collectstatic is for production
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}
WHITENOISE_USE_FINDERS = True  # a checkout works before collectstatic was run
WHITENOISE_AUTOREFRESH = DEBUG

# --- Measuring ----------------------------------------------------------------------------------------------------------
PROPOSITIONS_DIR = BASE_DIR / "propositions"
IDEAS_PART_CHARACTERS = 24_000  # of a conversation read in one call
SCORE_MIN_JUDGEMENTS = int(number("SCORE_MIN_JUDGEMENTS", 8))  # scored, in a dimension judged message by message
SCORE_MIN_COVERAGE = number("SCORE_MIN_COVERAGE", 0.15)  # share scored of what the judge can score there
JUDGE_LEAST_KAPPA = number("JUDGE_LEAST_KAPPA", 0.6)  # of a judge and people, for its passport
TRAIT_PROPOSITIONS = flag("TRAIT_PROPOSITIONS", default=True)  # one for each trait that no file speaks of
_proposition_dirs = env.list("PROPOSITION_DIRS", default=None)
if _proposition_dirs is None and not PRODUCTION:
    (LOCAL_DIR / "propositions").mkdir(parents=True, exist_ok=True)
    _proposition_dirs = [LOCAL_DIR / "propositions"]  # so that what is drafted here is read here
PROPOSITION_DIRS = [Path(path).expanduser() for path in _proposition_dirs or []]
# Dotted paths of a team's functions that propositions may name as their precondition.
PROPOSITION_PRECONDITIONS = env.list("PROPOSITION_PRECONDITIONS", default=[])
NUDGE_DIRS = [Path(path).expanduser() for path in env.list("NUDGE_DIRS", default=[])]  # what interventions tell whom
# Dotted paths of a team's functions: preconditions that rows may name, and functions that return an `InterventionBatch`.
INTERVENTION_FUNCTIONS = env.list("INTERVENTION_FUNCTIONS", default=[])
INTERVENTION_BATCHES = env.list("INTERVENTION_BATCHES", default=[])

# --- Turns (agents/turn) ------------------------------------------------------------------------------------------------
# The stages a turn passes; order is meaning. Dotted paths, so that `agents` imports no app above it.
TURN_PIPELINE = [
    "correction.behavior.stages.Requests",  # received: only queued, a worker looks at it
    "agents.debates.stages.Mode",  # prepare, review; required
    "agents.swarm.stages.Calibration",  # prepare: may answer with a question
    "correction.stages.RepetitionSuppression",  # prepare
    "correction.interventions.stages.Nudges",  # prepare
    "agents.swarm.stages.Polish",  # review: may rewrite the draft
    "correction.stages.ActionGate",  # review: sees what would really be said
]
TURN_MAX_REVISIONS = 12
TURN_STEP_DEADLINE = number("TURN_STEP_DEADLINE", 60)
TURN_MAX_REPLY_DEPTH = int(number("TURN_MAX_REPLY_DEPTH", 3))
TURN_HISTORY_MESSAGES = 20
SWARM_WINDOW = int(number("SWARM_WINDOW", 12))
SWARM_SUMMARY_EVERY = int(number("SWARM_SUMMARY_EVERY", 4))
TURN_SWARM_ENABLED = flag("TURN_SWARM_ENABLED", default=True)
TURN_SWARM_POST = env.str("TURN_SWARM_POST", default="")
TURN_SWARM_PRE_DEADLINE = number("TURN_SWARM_PRE_DEADLINE", 8)
TURN_SWARM_POST_DEADLINE = number("TURN_SWARM_POST_DEADLINE", 12)

# --- Web security: on unless DEBUG ------------------------------------------------------------------------------------
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = not DEBUG
SESSION_COOKIE_HTTPONLY = True
SECURE_SSL_REDIRECT = flag("SECURE_SSL_REDIRECT", default=not DEBUG)
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=0 if DEBUG else 31_536_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = not DEBUG
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if flag("TRUST_PROXY_HEADERS", default=False) else None
_directives = {
    "default-src": [SELF],
    "script-src": [SELF, UNSAFE_EVAL],  # the admin theme's Alpine evaluates attributes
    "style-src": [SELF, UNSAFE_INLINE],
    "img-src": [SELF, "data:"],
    "object-src": [NONE],
    "base-uri": [SELF],
    "form-action": [SELF],
    "frame-ancestors": [NONE],
}
CONTENT_SECURITY_POLICY = {} if DEBUG else {"DIRECTIVES": _directives}

# --- API: who may call it, and what a user may spend in a minute ------------------------------------------------------
# POSTs a minute of one user
API_PAID_PER_MINUTE = int(number("API_PAID_PER_MINUTE", 60))  # evaluations, captures, turns: what may cost money
API_SENDS_PER_MINUTE = 6_000  # drafts through the gate
API_INGESTS_PER_MINUTE = 600  # batches of up to 1,000 messages
API_TRANSCRIPTS_PER_MINUTE = 30  # files of up to 10 MB
# Wrong passwords of one address and for one user name, and wrong tokens of one address
WRONG_SIGN_INS_PER_MINUTE = 10
# Web processes count requests together in the broker's Redis; without one each counts on its own.
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default="")
_shared_url = CELERY_BROKER_URL if CELERY_BROKER_URL.startswith(("redis://", "rediss://", "unix://")) else ""
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
        "agents.kit.api.requests.Tokens",  # first: it makes an anonymous request a 401, not a 403
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["agents.kit.api.requests.ModelPermissions"],
    "DEFAULT_RENDERER_CLASSES": [
        "rest_framework.renderers.JSONRenderer",  # first: what a program gets that asks for nothing in particular
        "agents.kit.api.browsing.BrowsablePages",
    ],
    "DEFAULT_PARSER_CLASSES": ["agents.kit.api.requests.BoundedJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "agents.kit.api.pagination.Pages",
    "PAGE_SIZE": 100,
    "DEFAULT_FILTER_BACKENDS": ["agents.kit.api.filters.Backend"],
    "DEFAULT_THROTTLE_CLASSES": ["agents.kit.api.requests.Posts"],
    "DEFAULT_SCHEMA_CLASS": "agents.kit.api.schema.Schema",
    "EXCEPTION_HANDLER": "agents.kit.api.problems.as_problem",
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
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_PATCH": False,  # the body of a PATCH is a model of its own
    # Not the hook that names enums: the names would change with every new field.
    "POSTPROCESSING_HOOKS": ["agents.kit.api.schema.tidied"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "tryItOutEnabled": True, "docExpansion": "none", "validatorUrl": None},
    "ENABLE_DJANGO_DEPLOY_CHECK": False,  # a test holds the schema to having no warnings
}

# --- Console: its sidebar and its theme -------------------------------------------------------------------------------
Page = tuple[str, str, str, str]  # URL name, icon of Material Symbols, title, permission ("" = everyone)

# The sidebar: its groups, each with the pages before and after its tables. The apps register the tables, and which of them are tabs of
# another entry (`agents.kit.registry`: menu, tab_of); what a user may not view is left out.
CONSOLE_MENU: list[tuple[str, list[Page], list[Page]]] = [
    (
        "",
        [
            ("admin:index", "home", "Home", ""),
            ("admin:review", "inbox", "To review", "kit.change_reviewitem"),
        ],
        [],
    ),
    ("Quality", [("admin:evaluation_drift_overview", "trending_down", "Overview", "change.view_baseline")], []),
    ("Gate", [], []),
    (
        "More",
        [],
        [
            ("admin:help", "help", "Help", ""),
        ],
    ),
]
# Pages that are tabs of an entry, a page or a table: the entry, URL name, title, permission.
CONSOLE_TABS: list[tuple[str, str, str, str]] = [
    ("admin:help", "admin:glossary", "Glossary", ""),
    ("admin:help", "docs", "API reference", ""),
    ("auth.User", "admin:settings", "Settings", "auth.view_user"),
]
# Every setting in effect, for the page "Settings": dotted path of a callable.
EFFECTIVE_SETTINGS = "project.effective.groups"


def _static(name: str) -> Callable[[HttpRequest], str]:
    return lambda request: static(f"kit/{name}")


UNFOLD = {
    "SITE_TITLE": "Plumbline",
    "SITE_HEADER": "Plumbline",
    "SITE_SUBHEADER": "Keeping personas in character",
    "SITE_SYMBOL": "straighten",
    "SITE_URL": None,
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SIDEBAR": {"show_search": True, "command_search": True},
    "DASHBOARD_CALLBACK": "agents.kit.console.home.dashboard",
    "STYLES": [_static("console.css")],
    "SCRIPTS": [
        _static(name) for name in ("names.js", "keys.js", "copy.js", "search.js", "parts.js", "charts.js")
    ],  # after Chart.js, before the theme draws
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _static("favicon.svg")}],
}

# --- Imports over the console -----------------------------------------------------------------------------------------
IMPORT_MOST_BYTES = int(number("IMPORT_MOST_MB", 100) * 1024 * 1024)  # of all files of one import together
IMPORT_KEEP_DAYS = 7  # that a file which is not imported yet is kept
# A form with more bytes of files than may be imported is read to its end and keeps none of them: the page can say why.
FILE_UPLOAD_HANDLERS = [
    "agents.transcripts.imports.uploads.LimitedUploads",
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "django.core.files.uploadhandler.TemporaryFileUploadHandler",
]
DATA_UPLOAD_MAX_NUMBER_FILES = 500  # personas of one import

# --- Alerts: e-mail, webhooks, and the address of the console in them -------------------------------------------------
CONSOLE_URL = env.str("CONSOLE_URL", default="")
ALERT_SECONDS = number("ALERT_SECONDS", 10)  # that a receiver has to answer, from the look-up of its name on
WEBHOOK_PRIVATE_HOSTS = env.list("WEBHOOK_PRIVATE_HOSTS", default=[])
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

# --- Scores out (correction/sending): OpenTelemetry's logs over HTTP, and Langfuse ---------------------------------------
SCORES_OTLP_ENDPOINT = env.str("SCORES_OTLP_ENDPOINT", default="")
SCORES_OTLP_HEADERS = env.str("SCORES_OTLP_HEADERS", default="")
LANGFUSE_BASE_URL = env.str("LANGFUSE_BASE_URL", default="")
LANGFUSE_PUBLIC_KEY = env.str("LANGFUSE_PUBLIC_KEY", default="")
LANGFUSE_SECRET_KEY = env.str("LANGFUSE_SECRET_KEY", default="")
SCORES_WITH_EXPLANATIONS = flag("SCORES_WITH_EXPLANATIONS", default=False)  # a judge's reasoning quotes messages
SCORES_SECONDS = number("SCORES_SECONDS", 10)  # that a receiver has to answer one request

# --- Models: which judge and act, where they are served, and how many calls run at once (agents/kit/llm) ------------------
ANTHROPIC_API_KEY = env.str("ANTHROPIC_API_KEY", default="")
ANTHROPIC_BASE_URL = env.str("ANTHROPIC_BASE_URL", default="")
OPENAI_API_KEY = env.str("OPENAI_API_KEY", default="")
AWS_REGION = env.str("AWS_REGION", default="")
AWS_BEARER_TOKEN_BEDROCK = env.str("AWS_BEARER_TOKEN_BEDROCK", default="")
ANTHROPIC_BEDROCK_BASE_URL = env.str("ANTHROPIC_BEDROCK_BASE_URL", default="")
CLOUD_ML_REGION = env.str("CLOUD_ML_REGION", default="")
ANTHROPIC_VERTEX_PROJECT_ID = env.str("ANTHROPIC_VERTEX_PROJECT_ID", default="")
ANTHROPIC_VERTEX_BASE_URL = env.str("ANTHROPIC_VERTEX_BASE_URL", default="")
ANTHROPIC_FOUNDRY_RESOURCE = env.str("ANTHROPIC_FOUNDRY_RESOURCE", default="")
ANTHROPIC_FOUNDRY_API_KEY = env.str("ANTHROPIC_FOUNDRY_API_KEY", default="")
ANTHROPIC_FOUNDRY_BASE_URL = env.str("ANTHROPIC_FOUNDRY_BASE_URL", default="")
JUDGE_BASE_URL = env.str("JUDGE_BASE_URL", default="")
ACTOR_BASE_URL = env.str("ACTOR_BASE_URL", default="")
DEFAULT_LLM_MODEL = "claude-haiku-5-5"
JUDGE_MODEL = env.str("JUDGE_MODEL", default="") or (
    DEFAULT_LLM_MODEL if ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL or JUDGE_BASE_URL else "offline:lexical-1"
)
ACTOR_MODEL = env.str("ACTOR_MODEL", default="") or (
    DEFAULT_LLM_MODEL if ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL or ACTOR_BASE_URL else "offline:scripted-1"
)
GATE_REWRITE_MODELS = env.list(
    "GATE_REWRITE_MODELS", default=[]
)  # that a gateway's token may have called, beside ACTOR_MODEL
LLM_MAX_CONCURRENCY = int(number("LLM_MAX_CONCURRENCY", 20))
LLM_GATE_SLOTS = int(number("LLM_GATE_SLOTS", 4))
LLM_STORE_PAYLOADS = env.str("LLM_STORE_PAYLOADS", default="none")
LLM_EVALUATION_DEADLINE = number("LLM_EVALUATION_DEADLINE", 60)
LLM_EVALUATION_RETRIES = int(number("LLM_EVALUATION_RETRIES", 2))
LLM_BATCH_POLL_SECONDS = number("LLM_BATCH_POLL_SECONDS", 60)
# --- Workers: queues, processes, Celery -------------------------------------------------------------------------------
# Those that a person waits for: looked at first; one thread, or a Celery queue of its own, does nothing else.
INTERACTIVE_QUEUES = ["turns"]
# Workers look at queues in this order, short work before long; then at those that are not named here.
QUEUE_ORDER = [
    *("turns", "behavior requests", "observed messages", "gated replies", "behavior effects", "schedules", "sentinels"),
    *("batches", "evaluations", "calibration", "jobs", "debates", "experiments", "summaries", "imports", "alerts"),
    *("scores", "descriptions"),
]
ROLLUP_LAG_MINUTES = 10  # after an hour's end its rows are summed: transactions may end late
WORKER_THREADS = int(number("WORKER_THREADS", 4))
WORKER_GRACE = number("WORKER_GRACE", 8)
WORKER_PATIENCE = number("WORKER_PATIENCE", 60)
WORKER_MOST_LOSSES = int(number("WORKER_MOST_LOSSES", 5))
WORKER_SLICE = number("WORKER_SLICE", 900)
WORKER_SWEEP = number("WORKER_SWEEP", 30)
CELERY_TASK_QUEUES: dict[str, dict[str, str]] = {"interactive": {}, "bulk": {}}
CELERY_TASK_DEFAULT_QUEUE = "bulk"
CELERY_TASK_IGNORE_RESULT = CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_POOL = "threads"  # the threads of a process share the stop flag and the client of the judge
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = (
    False  # the rows are the truth; a doubled message does no harm
)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker waits for its broker for as long as it takes
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # Redis does not keep a second copy of messages that are being worked on. Giving them back over a lost connection makes a worker
    # end when Redis is restarted, and what they announced is a row: the sweep finds it.
    "ack_emulation": False,
    "visibility_timeout": WORKER_SLICE + 300,  # longer than any task, for a transport that keeps a copy all the same
    "socket_connect_timeout": 2,
    # Of a web request that queues work; workers have retries of their own.
    "connect_retries_timeout": 1,
    "interval_start": 0.2,
    "socket_timeout": 20,
    "socket_keepalive": True,
    "health_check_interval": 10,
}
# For leases of dead workers and lost messages. Workers that it wakes up find the schedules and chores that are due.
CELERY_BEAT_SCHEDULE = {"sweep": {"task": "agents.kit.work.tasks.sweep", "schedule": WORKER_SWEEP}}

# --- Metrics ------------------------------------------------------------------------------------------------------------
READY_WITHOUT = env.list(
    "READY_WITHOUT", default=[]
)  # checks of /readyz that fail nothing: database, migrations, broker, judge
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")

# --- What leaves the process about itself: log and Sentry -------------------------------------------------------------
LOG_FORMATS = {"plain": "agents.kit.ops.telemetry.Plain", "json": "agents.kit.ops.telemetry.Json"}
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
    "filters": {
        "about": {"()": "agents.kit.ops.telemetry.About"},
        "refused": {"()": "agents.kit.ops.telemetry.RefusedHost"},
    },
    "formatters": {"ours": {"()": LOG_FORMATS[LOG_FORMAT], "texts": LOG_TEXTS}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "ours", "filters": ["about"]}},
    "loggers": {
        "django": {"handlers": [], "level": max(LOG_LEVEL, "INFO", key=logging.getLevelNamesMapping().__getitem__)},
        "django.server": {"handlers": [], "level": "CRITICAL", "propagate": False},  # django.request says the same
        "django.security.DisallowedHost": {"filters": ["refused"]},
        # Both log addresses that hold tokens. What Apprise warns of is read from its answer (agents/alerts/services.py).
        "apprise": {"handlers": [], "level": "WARNING", "propagate": False},
        "urllib3": {"handlers": [], "level": "CRITICAL", "propagate": False},
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

    from agents.kit.ops.telemetry import scrub_event, scrub_transaction

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

if CELERY_BROKER_URL:
    import project.celery  # noqa: F401 (binds shared tasks to our app)

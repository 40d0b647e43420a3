"""Settings of Plumbline, read from the environment (and ``.env``) through django-environ.

Every setting, its default and a line on what it does stand in ``.env.example``. Safe by default: ``DEBUG`` is off, cookies are
secure and HSTS, TLS redirect and CSP are on unless ``DEBUG`` is set.
"""

import os
import secrets
import zoneinfo
from pathlib import Path

import environ
from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.core.exceptions import ImproperlyConfigured

from project.console import CONSOLE_MENU, UNFOLD  # noqa: F401 (settings like the others)

BASE_DIR = Path(__file__).resolve().parent.parent
LOCAL_DIR = BASE_DIR / ".local"

env = environ.Env()
env.smart_cast = False
if (BASE_DIR / ".env").is_file():
    env.read_env(str(BASE_DIR / ".env"))


def _number(name: str, default: float) -> float:
    """A number from the environment, or a sentence that names it."""
    raw = env.str(name, default="")
    try:
        return float(raw) if raw else default
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {raw!r}; allowed: a number (default {default:g})") from None


def _local_secret_key() -> str:
    """The key kept in an ignored file for local use; made once, safe when two processes start together."""
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
DEBUG = env.bool("DEBUG", default=False)
LOCAL_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=LOCAL_HOSTS)
PRODUCTION = env.bool("PRODUCTION", default=not DEBUG and bool(set(ALLOWED_HOSTS) - {*LOCAL_HOSTS, "testserver"}))
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
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "csp",
    "rest_framework",
    "rest_framework.authtoken",
    "simple_history",
    "agents",
    "evaluation",
    "correction",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
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
LOGIN_REDIRECT_URL = "admin:index"
LANGUAGE_CODE = "en"
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
if TIME_ZONE not in zoneinfo.available_timezones():
    raise ImproperlyConfigured(f"TIME_ZONE is {TIME_ZONE!r}; allowed: names such as UTC or Europe/Berlin")
USE_TZ = True
USE_I18N = False
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
    DATABASES["default"]["CONN_MAX_AGE"] = int(_number("CONN_MAX_AGE", 60))
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True

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

# --- Security -----------------------------------------------------------------------------------------------------------
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = not DEBUG
SESSION_COOKIE_HTTPONLY = True
SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=not DEBUG)
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=0 if DEBUG else 31_536_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = not DEBUG
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
if env.bool("TRUST_PROXY_HEADERS", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
if not DEBUG:
    CONTENT_SECURITY_POLICY = {
        "DIRECTIVES": {
            "default-src": [SELF],
            "script-src": [SELF, UNSAFE_EVAL],  # the admin theme's Alpine evaluates attributes
            "style-src": [SELF, UNSAFE_INLINE],
            "img-src": [SELF, "data:"],
            "object-src": [NONE],
            "base-uri": [SELF],
            "form-action": [SELF],
            "frame-ancestors": [NONE],
        }
    }

# --- Models (agents/llm) ------------------------------------------------------------------------------------------------
ANTHROPIC_API_KEY = env.str("ANTHROPIC_API_KEY", default="")
ANTHROPIC_BASE_URL = env.str("ANTHROPIC_BASE_URL", default="")
JUDGE_BASE_URL = env.str("JUDGE_BASE_URL", default="") or ANTHROPIC_BASE_URL
ACTOR_BASE_URL = env.str("ACTOR_BASE_URL", default="") or ANTHROPIC_BASE_URL
DEFAULT_LLM_MODEL = "claude-haiku-5-5"
JUDGE_MODEL = env.str("JUDGE_MODEL", default="") or (
    DEFAULT_LLM_MODEL if ANTHROPIC_API_KEY or JUDGE_BASE_URL else "offline:lexical-1"
)
ACTOR_MODEL = env.str("ACTOR_MODEL", default="") or (
    DEFAULT_LLM_MODEL if ANTHROPIC_API_KEY or ACTOR_BASE_URL else "offline:scripted-1"
)
LLM_MAX_CONCURRENCY = int(_number("LLM_MAX_CONCURRENCY", 20))
LLM_GATE_SLOTS = int(_number("LLM_GATE_SLOTS", 4))
LLM_STORE_PAYLOADS = env.str("LLM_STORE_PAYLOADS", default="none")
LLM_EVALUATION_DEADLINE = _number("LLM_EVALUATION_DEADLINE", 60)
LLM_EVALUATION_RETRIES = int(_number("LLM_EVALUATION_RETRIES", 2))
OFFLINE_RESPONDERS = {
    "score": "evaluation.offline.score",
    "check": "evaluation.offline.check",
    "ideas": "evaluation.offline_ideas.list_ideas",
    "collapse": "evaluation.offline_ideas.collapse",
    "draft": "evaluation.drafting.offline.draft",
    "turn": "agents.turn.scripted.answer",
}

# --- Measuring ----------------------------------------------------------------------------------------------------------
PROPOSITIONS_DIR = BASE_DIR / "propositions"
IDEAS_PART_CHARACTERS = int(_number("IDEAS_PART_CHARACTERS", 24_000))  # of a conversation read in one call
_proposition_dirs = env.list("PROPOSITION_DIRS", default=None)
if _proposition_dirs is None and not PRODUCTION:
    (LOCAL_DIR / "propositions").mkdir(parents=True, exist_ok=True)
    _proposition_dirs = [LOCAL_DIR / "propositions"]  # so that what is drafted here is read here
PROPOSITION_DIRS = [Path(path).expanduser() for path in _proposition_dirs or []]
NUDGE_DIRS = [Path(path).expanduser() for path in env.list("NUDGE_DIRS", default=[])]  # what interventions tell whom
# Asked before an evaluation asks its judge: takes agent and judge, returns why to pause, or nothing. Empty = never pauses.
EVALUATION_BUDGET = "correction.costs.evaluation_over_budget"
# What `manage.py seed` does besides: callables that take the example agents and return a sentence.
SEED_STEPS = ["correction.seed.seed_configs"]

# --- Turns (agents/turn) ------------------------------------------------------------------------------------------------
# The stages a turn passes; order is meaning. Dotted paths, so that no floor imports one above it.
TURN_PIPELINE = [
    "correction.stages.RepetitionSuppression",  # prepare
    "correction.stages.Interventions",  # prepare
    "correction.stages.ActionGate",  # review: sees what would really be said
]
TURN_MAX_REVISIONS = int(
    _number("TURN_MAX_REVISIONS", 12)
)  # most times one message is sent back, whatever the stages say
TURN_STEP_DEADLINE = _number("TURN_STEP_DEADLINE", 60)  # seconds for one model call of an agent
TURN_MAX_REPLY_DEPTH = int(
    _number("TURN_MAX_REPLY_DEPTH", 3)
)  # replies of agents to agents in a direct message, in a row
TURN_HISTORY_MESSAGES = int(_number("TURN_HISTORY_MESSAGES", 20))  # recent messages an agent is shown

# --- Workers ------------------------------------------------------------------------------------------------------------
# What `manage.py work` and the Celery workers claim, in turn: callables that take ``owner`` and return whether they did something.
WORK_QUEUES = [
    "agents.turn.orchestrator.work_one",
    "correction.observe.work_one",
    "evaluation.schedules.work_one",
    "evaluation.runs.work_one",
    "evaluation.calibration.stored.work_one",
    "evaluation.lineup_runs.work_one",
]
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default="")
if CELERY_BROKER_URL:
    import project.celery  # noqa: F401 (binds shared tasks to our app; half a second that nobody without a broker should pay)
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_IGNORE_RESULT = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULE = {
    "sweep": {"task": "agents.tasks.work", "schedule": 60.0}
}  # picks up lost claims and lost messages

# --- API ----------------------------------------------------------------------------------------------------------------
API_PAID_PER_MINUTE = int(_number("API_PAID_PER_MINUTE", 60))  # requests of one user that may cost money
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.TokenAuthentication",  # first: it makes an anonymous request a 401, not a 403
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["agents.api.permissions.ModelPermissions"],
    "DEFAULT_RENDERER_CLASSES": [
        "rest_framework.renderers.JSONRenderer",
        "rest_framework.renderers.BrowsableAPIRenderer",
    ],
    "DEFAULT_PARSER_CLASSES": ["agents.api.parsers.BoundedJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "agents.api.pagination.Pages",
    "PAGE_SIZE": 100,
    "EXCEPTION_HANDLER": "agents.api.problems.as_problem",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}

# --- Sentry -------------------------------------------------------------------------------------------------------------
SENTRY_DSN = env.str("SENTRY_DSN", default="")
if SENTRY_DSN:
    import sentry_sdk
    from sentry_sdk.integrations.celery import CeleryIntegration
    from sentry_sdk.integrations.django import DjangoIntegration

    sentry_sdk.init(
        dsn=SENTRY_DSN,
        # Named one by one: its own integration for model calls would report every failed call as an error.
        auto_enabling_integrations=False,
        integrations=[DjangoIntegration(), CeleryIntegration()],
        environment=env.str("SENTRY_ENVIRONMENT", default="production" if PRODUCTION else "local"),
        traces_sample_rate=env.float("SENTRY_TRACES_SAMPLE_RATE", default=0.1),
        send_default_pii=False,
        include_local_variables=False,  # frames would carry message texts and personas
        max_request_body_size="never",
    )

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "{asctime} {levelname} {name} {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {"django.server": {"handlers": ["console"], "level": "WARNING", "propagate": False}},
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="WARNING")},
}

"""Settings of Plumbline, read from the environment (and ``.env``) through django-environ.

Every setting, its default and a line on what it does stand in ``.env.example``. Safe by default: ``DEBUG`` is off, cookies are
secure and HSTS, TLS redirect and CSP are on unless ``DEBUG`` is set.
"""

import os
import secrets
import zoneinfo
from pathlib import Path

import environ
from django.core.exceptions import ImproperlyConfigured

# Settings like the others, by subject.
from project.alerts import (  # noqa: F401
    ALERT_SECONDS,
    CONSOLE_URL,
    DEFAULT_FROM_EMAIL,
    EMAIL_BACKEND,
    EMAIL_FILE_PATH,
    EMAIL_HOST,
    EMAIL_HOST_PASSWORD,
    EMAIL_HOST_USER,
    EMAIL_PORT,
    EMAIL_TIMEOUT,
    EMAIL_URL,
    EMAIL_USE_SSL,
    EMAIL_USE_TLS,
    WEBHOOK_PRIVATE_HOSTS,
)
from project.api import (  # noqa: F401
    API_INGESTS_PER_MINUTE,
    API_PAID_PER_MINUTE,
    API_SENDS_PER_MINUTE,
    API_TRANSCRIPTS_PER_MINUTE,
    CACHES,
    REST_FRAMEWORK,
    SPECTACULAR_SETTINGS,
    WRONG_SIGN_INS_PER_MINUTE,
)
from project.console import CONSOLE_MENU, EFFECTIVE_SETTINGS, UNFOLD  # noqa: F401
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
from project.imports import (  # noqa: F401
    DATA_UPLOAD_MAX_NUMBER_FILES,
    FILE_UPLOAD_HANDLERS,
    IMPORT_KEEP_DAYS,
    IMPORT_MOST_BYTES,
)
from project.llm import (  # noqa: F401
    ACTOR_BASE_URL,
    ACTOR_MODEL,
    ANTHROPIC_API_KEY,
    ANTHROPIC_BASE_URL,
    DEFAULT_LLM_MODEL,
    JUDGE_BASE_URL,
    JUDGE_MODEL,
    LLM_BATCH_POLL_SECONDS,
    LLM_EVALUATION_DEADLINE,
    LLM_EVALUATION_RETRIES,
    LLM_GATE_SLOTS,
    LLM_MAX_CONCURRENCY,
    LLM_STORE_PAYLOADS,
    OFFLINE_RESPONDERS,
)
from project.security import (  # noqa: F401
    CONTENT_SECURITY_POLICY,
    CSRF_COOKIE_SECURE,
    CSRF_TRUSTED_ORIGINS,
    SECURE_HSTS_INCLUDE_SUBDOMAINS,
    SECURE_HSTS_PRELOAD,
    SECURE_HSTS_SECONDS,
    SECURE_PROXY_SSL_HEADER,
    SECURE_REFERRER_POLICY,
    SECURE_SSL_REDIRECT,
    SESSION_COOKIE_HTTPONLY,
    SESSION_COOKIE_SECURE,
    X_FRAME_OPTIONS,
)
from project.telemetry import LOG_FORMAT, LOG_TEXTS, LOGGING, SENTRY_DSN, SENTRY_SEND_TEXTS  # noqa: F401
from project.workers import (  # noqa: F401
    CELERY_BROKER_URL,
    CHORES,
    INTERACTIVE_QUEUES,
    METRICS_COLLECTORS,
    METRICS_DIR,
    METRICS_TOKEN,
    READY_WITHOUT,
    ROLLUP_LAG_MINUTES,
    ROLLUPS,
    WORK_QUEUES,
    WORKER_GRACE,
    WORKER_MOST_DEATHS,
    WORKER_PATIENCE,
    WORKER_SLICE,
    WORKER_SWEEP,
    WORKER_THREADS,
)


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
    "agents.console.apps.ConsoleConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "simple_history",
    "agents",
    "evaluation",
    "correction",
]
MIDDLEWARE = [
    "agents.ops.request_ids.RequestIds",
    "agents.ops.health.Probes",  # /healthz, /readyz and /metrics, whatever host they are asked under
    "agents.ops.metrics.CountRequests",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "agents.ops.compression.CompressPages",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "agents.api.problems.UnknownRoutes",  # before what redirects to the path with a slash
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "agents.api.problems.DatabaseOutages",  # after what names the user, before what asks who it is
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
SILENCED_SYSTEM_CHECKS = [name.strip() for name in env.list("SILENCED_SYSTEM_CHECKS", default=[])]
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
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    if most_connections := int(number("DATABASE_POOL", 0)):  # of one process; a thread waits until one is free
        pool = {"min_size": 1, "max_size": most_connections, "timeout": 30}
        DATABASES["default"].setdefault("OPTIONS", {})["pool"] = pool
    else:
        DATABASES["default"]["CONN_MAX_AGE"] = int(number("CONN_MAX_AGE", 60))

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
IDEAS_PART_CHARACTERS = int(number("IDEAS_PART_CHARACTERS", 24_000))  # of a conversation read in one call
SCORE_MIN_JUDGEMENTS = int(number("SCORE_MIN_JUDGEMENTS", 8))  # scored, in a dimension judged message by message
SCORE_MIN_COVERAGE = number("SCORE_MIN_COVERAGE", 0.15)  # share scored of what the judge can score there
TRAIT_PROPOSITIONS = flag("TRAIT_PROPOSITIONS", default=True)  # one for each trait that no file speaks of
_proposition_dirs = env.list("PROPOSITION_DIRS", default=None)
if _proposition_dirs is None and not PRODUCTION:
    (LOCAL_DIR / "propositions").mkdir(parents=True, exist_ok=True)
    _proposition_dirs = [LOCAL_DIR / "propositions"]  # so that what is drafted here is read here
PROPOSITION_DIRS = [Path(path).expanduser() for path in _proposition_dirs or []]
NUDGE_DIRS = [Path(path).expanduser() for path in env.list("NUDGE_DIRS", default=[])]  # what interventions tell whom
# Dotted paths of a team's functions: preconditions that rows may name, and functions that return an `InterventionBatch`.
INTERVENTION_FUNCTIONS = env.list("INTERVENTION_FUNCTIONS", default=[])
INTERVENTION_BATCHES = env.list("INTERVENTION_BATCHES", default=[])
# Asked before an evaluation asks its judge: takes agent and judge, returns why to pause, or nothing. Empty = never pauses.
EVALUATION_BUDGET = "correction.costs.evaluation_over_budget"
# Told of versions of personas, says which request made them: dotted paths of callables that take keys of versions.
PERSONA_CHANGE_ORIGINS = ["correction.behavior.applying.origins_of"]
# What `manage.py seed` does besides: callables that take the example agents and return a sentence.
SEED_STEPS = ["correction.lifecycle.seed_configs", "agents.swarm.phases.seed_swarm"]
# What `manage.py seed --remove` does besides: callables that take the agents that go and return how many rows of what they removed.
SEED_REMOVAL_STEPS = ["correction.lifecycle.remove_logs"]

# --- Turns (agents/turn) ------------------------------------------------------------------------------------------------
# The stages a turn passes; order is meaning. Dotted paths, so that no floor imports one above it.
TURN_PIPELINE = [
    "correction.stages.BehaviorRequests",  # received: only queued, a worker looks at it
    "agents.debates.stages.Mode",  # prepare, review; required
    "agents.swarm.stages.Calibration",  # prepare: may answer with a question
    "correction.stages.RepetitionSuppression",  # prepare
    "correction.stages.Interventions",  # prepare
    "agents.swarm.stages.Polish",  # review: may rewrite the draft
    "correction.stages.ActionGate",  # review: sees what would really be said
]
TURN_TOOLS = {  # further tools that a stage may offer, by name; those of the example of a role swarm
    "look_up": "agents.swarm.food.LookUp",
    "log": "agents.swarm.food.Log",
    "undo": "agents.swarm.food.Undo",
    "day": "agents.swarm.food.Day",
}
TURN_ANSWERS = {  # typed answers that a stage may ask for, by name: the fields `send_message` takes besides
    "position": "agents.debates.answers.Position",
    "stanced position": "agents.debates.answers.StancedPosition",
}
INGEST_OBSERVERS = ["correction.gate.observe.queue_ingested"]  # called with messages that were spoken elsewhere
TURN_MAX_REVISIONS = int(
    number("TURN_MAX_REVISIONS", 12)
)  # most times one message is sent back, whatever the stages say
TURN_STEP_DEADLINE = number("TURN_STEP_DEADLINE", 60)  # seconds for one model call of an agent
TURN_MAX_REPLY_DEPTH = int(
    number("TURN_MAX_REPLY_DEPTH", 3)
)  # replies of agents to agents in a direct message, in a row
TURN_HISTORY_MESSAGES = int(number("TURN_HISTORY_MESSAGES", 20))  # recent messages an agent is shown
SWARM_WINDOW = int(number("SWARM_WINDOW", 12))  # last messages that an agent with a swarm is shown in full
SWARM_SUMMARY_EVERY = int(number("SWARM_SUMMARY_EVERY", 4))  # turns after which older messages are summarised
TURN_SWARM_ENABLED = flag("TURN_SWARM_ENABLED", default=True)  # false: every agent answers as if it had no swarm
TURN_SWARM_POST = env.str(
    "TURN_SWARM_POST", default=""
)  # combined, sequential or off for all swarms; empty = each its own
TURN_SWARM_PRE_DEADLINE = number("TURN_SWARM_PRE_DEADLINE", 8)  # seconds that calibration may add to a reply
TURN_SWARM_POST_DEADLINE = number("TURN_SWARM_POST_DEADLINE", 12)  # seconds that all polishers together may add
SWARM_GUARDS = ["evaluation.propositions.offline.rules_of"]  # what a polish must keep: functions from agent to rules
TURN_REQUEST_CHECK = "correction.api.turn_requests.problems"  # what the floors above say of overrides and sessions
TURN_OVERRIDES_NEED = "correction.change_agentevaluationconfig"  # and agents.change_agent, to override the gate
TURN_DEADLINES = "correction.api.turn_requests.deadlines"  # the overrides that a request's deadline stands for

if CELERY_BROKER_URL:
    import project.celery  # noqa: F401 (binds shared tasks to our app)

"""Settings of what works: the queues, the worker processes, and Celery for those who have a broker."""

import os
import tempfile

from project.environment import env, number

# What `manage.py work` and the Celery workers claim: callables that take ``owner`` and return whether they did something.
WORK_QUEUES = [
    "agents.turn.orchestrator.work_one",
    "correction.behavior.work_one",
    "correction.gate.observe.work_one",
    "correction.behavior.effects.work_one",
    "evaluation.schedules.work_one",
    "agents.llm.batch_work.work_one",
    "evaluation.runs.work_one",
    "evaluation.calibration.stored.work_one",
    "evaluation.lineup_runs.work_one",
    "agents.imports.work_one",
    "correction.behavior.description.work_one",
]
# Those that somebody waits for: looked at before the others, and a Celery queue of their own.
INTERACTIVE_QUEUES = ["agents.turn.orchestrator.work_one"]
# What is to be done every so often, by one worker: dotted path of a callable, and seconds between two times.
CHORES: dict[str, float] = {
    "agents.work.queues.release_lost_leases": 30,
    "agents.ops.sums.sum_up": 60,
    "agents.imports.uploads.drop_old": 3600,
    "correction.behavior.resume_paused": 60,
    "correction.behavior.description.resume_paused": 60,
    "correction.behavior.effects.resume_paused": 60,
}
# Raw rows that are summed by hour, and minutes after an hour's end when that is done: transactions may end late.
ROLLUPS = ["agents.ops.sums.LEDGER", "correction.rollup.GATE"]
ROLLUP_LAG_MINUTES = 10
# What `manage.py prune_logs` deletes when it is old, in this order: dotted paths of sequences of `agents.retention.Log`.
RETENTION = ["correction.retention.LOGS", "agents.retention.LOGS"]
# Where `manage.py forget` looks for somebody's words, in this order: dotted paths of sequences of `agents.erasure.Place`.
ERASURE = ["correction.erasure.PLACES", "evaluation.erasure.PLACES", "agents.erasure.places.PLACES"]
WORKER_GRACE = number("WORKER_GRACE", 8)  # seconds to finish what is in hand after SIGTERM; then it is handed back
WORKER_PATIENCE = number("WORKER_PATIENCE", 60)  # seconds a piece of work waits for a database that went away
WORKER_MOST_DEATHS = int(
    number("WORKER_MOST_DEATHS", 5)
)  # workers that one piece of work may cost in a row; then it ends
WORKER_SLICE = number("WORKER_SLICE", 900)  # seconds after which bulk work is handed back for another turn

# --- Celery -------------------------------------------------------------------------------------------------------------
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default="")
if CELERY_BROKER_URL:
    import project.celery  # noqa: F401 (binds shared tasks to our app; half a second that nobody without a broker should pay)

# --- Being watched ------------------------------------------------------------------------------------------------------
READY_WITHOUT = env.list(
    "READY_WITHOUT", default=[]
)  # checks of /readyz that fail nothing: database, migrations, broker, judge
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")  # empty: no /metrics
# Shared by the processes of one server, whose master is the parent of all of them; may be a tmpfs.
METRICS_DIR = (
    env.str("METRICS_DIR", default="") or f"{tempfile.gettempdir()}/plumbline-metrics-{os.getuid()}-{os.getppid()}"
)
if METRICS_TOKEN:
    os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", METRICS_DIR)  # read by Prometheus' client when it is imported
METRICS_COLLECTORS = ["agents.metrics.work.collect", "agents.metrics.calls.collect", "correction.metrics.collect"]

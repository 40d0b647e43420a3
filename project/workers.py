"""Settings of what works: the queues, the worker processes, and Celery for those who have a broker."""

import os
import tempfile

from project.environment import env, number

# The queues of work by name: callables that take ``owner``, do one piece of work and return whether there was one.
WORK_QUEUES = {
    "turns": "agents.turn.orchestrator.work_one",
    "behavior requests": "correction.behavior.work.work_one",
    "observed messages": "correction.gate.observe.work_one",
    "behavior effects": "correction.behavior.effects.work_one",
    "schedules": "evaluation.schedules.work_one",
    "batches": "agents.llm.batches.work_one",
    "evaluations": "evaluation.runs.execute.work_one",
    "calibration": "evaluation.calibration.agreement.work_one",
    "line-ups": "evaluation.lineup.work_one",
    "jobs": "evaluation.jobs.work_one",
    "debates": "agents.debates.debate.work_one",
    "experiments": "evaluation.experiments.play.work_one",
    "summaries": "agents.swarm.memory.work_one",
    "imports": "agents.imports.work_one",
    "alerts": "agents.alerts.delivery.work_one",
    "descriptions": "correction.behavior.description.work_one",
}
# Those that a person waits for: looked at first; one thread, or a Celery queue of its own, does nothing else.
INTERACTIVE_QUEUES = ["turns"]
# What one worker does at regular times: dotted path of a callable, and seconds between two times.
CHORES: dict[str, float] = {
    "agents.work.queues.release_lost_leases": 30,
    "agents.ops.sums.sum_up": 60,
    "agents.imports.uploads.drop_old": 3600,
    "agents.alerts.judge.look": 60,
    "correction.alerts.look": 120,
    "correction.behavior.postponing.resume_paused": 60,
}
# Raw rows that are summed by hour, and minutes after an hour's end when that is done: transactions may end late.
ROLLUPS = ["agents.ops.sums.LEDGER", "correction.gate.statistics.GATE"]
ROLLUP_LAG_MINUTES = 10
WORKER_THREADS = int(
    number("WORKER_THREADS", 4)
)  # of `manage.py work`, one of which only does turns, and of commands that measure
WORKER_GRACE = number(
    "WORKER_GRACE", 8
)  # seconds to finish the work in hand after SIGTERM; then it goes back to the queue
WORKER_PATIENCE = number("WORKER_PATIENCE", 60)  # seconds a piece of work waits for a database that went away
WORKER_MOST_DEATHS = int(
    number("WORKER_MOST_DEATHS", 5)
)  # workers that one piece of work may cost in a row; then it ends
WORKER_SLICE = number("WORKER_SLICE", 900)  # seconds after which bulk work goes back to the queue for another turn

# --- Celery -------------------------------------------------------------------------------------------------------------
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default="")
WORKER_SWEEP = number("WORKER_SWEEP", 30)  # seconds between two messages of beat

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
METRICS_COLLECTORS = [
    "agents.ops.metrics.collect_work",
    "agents.ops.metrics.collect_calls",
    "correction.gate.statistics.collect",
]

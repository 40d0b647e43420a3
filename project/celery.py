"""The Celery application: ``celery -A project worker -c 8``. It needs CELERY_BROKER_URL; `manage.py work` needs no broker."""

import os

from celery import Celery
from celery.signals import setup_logging
from kombu.transport.virtual import QoS

from project.workers import CELERY_BROKER_URL, WORKER_SLICE, WORKER_SWEEP

if not CELERY_BROKER_URL:  # Celery would try a broker on this machine, and again, for ever
    raise SystemExit(
        "CELERY_BROKER_URL is not set, so Celery has no broker: set it, e.g. to redis://127.0.0.1:6379/0, or run "
        "`manage.py work`, which needs none."
    )
# A message that was received is not put back when its connection is lost: see `ack_emulation` below.
QoS.restore_at_shutdown = False

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")


@setup_logging.connect
def log_as_settings_say(**kwargs: object) -> None:
    """Nothing: Django has set the log up. Without a receiver Celery would replace our handlers, and what they hide would be shown."""


app = Celery("plumbline")
app.conf.update(
    broker_url=CELERY_BROKER_URL,
    task_queues={"interactive": {}, "bulk": {}},
    task_default_queue="bulk",
    task_ignore_result=True,
    task_acks_late=True,
    worker_pool="threads",  # the threads of a process share the stop flag and the client of the judge
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=False,  # the rows are the truth; a doubled message does no harm
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,  # a worker waits for its broker for as long as it takes
    broker_transport_options={
        # Redis does not keep a second copy of messages that are being worked on. Giving them back over a lost connection makes a worker
        # end when Redis is restarted, and what they announced is a row: the sweep finds it.
        "ack_emulation": False,
        "visibility_timeout": WORKER_SLICE
        + 300,  # longer than any task, for a transport that keeps a copy all the same
        "socket_connect_timeout": 2,
        # Of a web request that queues work; workers have retries of their own.
        "connect_retries_timeout": 1,
        "interval_start": 0.2,
        "socket_timeout": 20,
        "socket_keepalive": True,
        "health_check_interval": 10,
    },
    # For leases of dead workers and lost messages. Workers that it wakes up find the schedules and chores that are due.
    beat_schedule={"sweep": {"task": "agents.work.tasks.sweep", "schedule": WORKER_SWEEP}},
)
app.autodiscover_tasks(["agents.work"])

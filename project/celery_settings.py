"""Celery's own settings, for those who have a broker; read by project/celery.py when Celery is first used."""

from project.environment import number
from project.workers import CELERY_BROKER_URL, WORKER_SLICE

broker_url = CELERY_BROKER_URL
task_queues: dict[str, dict[str, str]] = {"interactive": {}, "bulk": {}}
task_default_queue = "bulk"
task_ignore_result = True
task_acks_late = True
worker_pool = "threads"  # the stop flag and the client of the judge are shared by the threads of a process
worker_prefetch_multiplier = 1
worker_cancel_long_running_tasks_on_connection_loss = False  # the rows are the truth; a doubled message does no harm
broker_connection_retry_on_startup = True
broker_connection_max_retries = None  # a worker waits for its broker for as long as it takes
broker_transport_options = {
    # Messages that are being worked on are not kept in Redis as well. Giving them back over a connection that is lost makes a worker
    # end when Redis is restarted, and what they announced is a row: the sweep finds it.
    "ack_emulation": False,
    "visibility_timeout": WORKER_SLICE + 300,  # longer than any task, for a transport that keeps them all the same
    "socket_connect_timeout": 2,
    # Of who queues something in a web request; workers have retries of their own.
    "connect_retries_timeout": 1,
    "interval_start": 0.2,
    "socket_timeout": 20,
    "socket_keepalive": True,
    "health_check_interval": 10,
}
beat_schedule = {
    # For leases of dead workers and lost messages. Workers that it wakes up find the schedules and chores that are due.
    "sweep": {"task": "agents.work.tasks.sweep", "schedule": number("WORKER_SWEEP", 30)},
}

"""How gunicorn serves Plumbline: ``gunicorn -c python:project.gunicorn project.wsgi``. Sizes: docs/how-to/deploy.md.

Threads, because requests wait for a judge in the gate. One thread is one of these.
"""

import os
import tempfile
from typing import Any

from project.environment import env, number
from project.settings import LOGGING

bind = env.str("WEB_BIND", default="") or "127.0.0.1:8000"
worker_class = "gthread"
workers = int(number("WEB_PROCESSES", min(2 * (os.cpu_count() or 1) + 1, 9)))
threads = int(number("WEB_THREADS", 16))
timeout = 60  # a process that does not answer its master for so long is replaced
graceful_timeout = 30
keepalive = 5
# Each process that is replaced leaves its files of figures until the server restarts: as few as will do against leaks.
max_requests = 200_000
max_requests_jitter = 20_000
limit_request_line = 8_190
worker_tmp_dir = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()  # noqa: S108 (heartbeats need no disk)
control_socket_disable = True  # nothing is written beside /tmp
logconfig_dict = {
    **LOGGING,
    "loggers": {
        **LOGGING["loggers"],  # type: ignore[dict-item]
        "gunicorn.error": {"handlers": ["console"], "level": "INFO", "propagate": False},
        # agents.kit.ops.request_ids logs requests
        "gunicorn.access": {"handlers": [], "level": "CRITICAL", "propagate": False},
    },
}


def post_worker_init(worker: Any) -> None:
    """Load the routes and make the client of the judge now: it takes a second or two, which the first request should not wait for."""
    from django.db import connection
    from django.urls import get_resolver

    from agents.kit.llm import warm_up

    if connection.vendor == "sqlite":
        # Kept open, for the last connection that closes removes the shared-memory file: on a full disk nobody could read then.
        connection.ensure_connection()
    get_resolver().url_patterns  # noqa: B018
    warm_up("judge")

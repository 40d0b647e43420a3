"""What an orchestrator asks: does this process live (``/healthz``), and can it serve (``/readyz``)? And ``/metrics`` for Prometheus.

They are answered before anything else of a request is looked at: a prober knows a container by its address, speaks plain http and
has no session.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import Error as DatabaseError
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import F, Q
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.utils import timezone

from agents.kit.llm.endpoints import route_of
from agents.kit.llm.ledger import write_delayed_rows
from agents.kit.llm.requests import Role
from agents.kit.models import LLMCall
from agents.kit.ops.metrics import CONTENT_TYPE, exposition
from agents.kit.ops.sums import LEDGER, read

logger = logging.getLogger(__name__)

PROBE_SECONDS = 1.0  # for broker and judge each
FRESH_SECONDS = 15.0  # an answer about broker and judge holds so long: frequent probes must not connect there each time
WRITE_SECONDS = 1.0  # the same for a write that worked: anyone may ask, and each time costs the disk a little
WRITTEN_CHARACTERS = 8_000  # more than a page holds, and not to be compressed: is there room for new pages?
Probe = Callable[[], str]  # what is wrong; empty when all is well


class Probes:
    """Middleware that answers the three paths; only what names the request may come before it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = PATHS.get(request.path_info)
        if answer is None:
            return self._get_response(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        response = answer(request)
        response["Cache-Control"] = "no-store"
        return response


def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that the process lives. Nothing else is looked at: a database that is away is no reason to restart every process."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> HttpResponse:
    """Answer whether this process can serve: 200, or 503 where a check failed.

    Everyone sees which check failed; its message needs the token of ``/metrics``. What `READY_WITHOUT` names is reported and fails
    nothing. For example ``{"status": "not ready", "checks": {"database": "failed", "migrations": "ok", …}}``.
    """
    problems = {name: _problem_found_by(name, probe) for name, probe in CHECKS.items()}
    failed = [name for name, problem in problems.items() if problem and name not in settings.READY_WITHOUT]
    in_words = may_see_metrics(request)
    checks = dict.fromkeys(problems, "ok")
    checks |= {name: problem if in_words else "failed" for name, problem in problems.items() if problem}
    return JsonResponse({"status": "not ready" if failed else "ready", "checks": checks}, status=503 if failed else 200)


def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with figures for Prometheus; 404 unless `METRICS_TOKEN` is set, 401 without it in ``Authorization: Bearer``."""
    if not settings.METRICS_TOKEN:
        return HttpResponse("METRICS_TOKEN is not set\n", status=404, content_type="text/plain")
    if not may_see_metrics(request):
        refused = HttpResponse(
            "Send the token: Authorization: Bearer METRICS_TOKEN\n", status=401, content_type="text/plain"
        )
        refused["WWW-Authenticate"] = "Bearer"
        return refused
    return HttpResponse(exposition(), content_type=CONTENT_TYPE)


def may_see_metrics(request: HttpRequest) -> bool:
    """Return whether a request carries the token; compared in constant time."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    expected = settings.METRICS_TOKEN
    matches = hmac.compare_digest(token.strip().encode(), expected.encode())
    return bool(expected) and scheme.lower() == "bearer" and matches


PATHS: dict[str, Callable[[HttpRequest], HttpResponse]] = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}


# -- checks
_migrated = False  # once the database is as this code needs it, it stays so
_latest: dict[str, tuple[float, str]] = {}
_probing = ThreadPoolExecutor(max_workers=4, thread_name_prefix="readyz")


def _problem_found_by(name: str, probe: Probe) -> str:
    """Return what a check says is wrong; empty when all is well, the exception's kind when the check itself crashed, which is logged."""
    try:
        return probe()
    except Exception as error:  # noqa: BLE001 (a check that crashes is a check that failed)
        logger.warning("readyz: %s: %r", name, error)
        return type(error).__name__


def _database() -> str:
    """Return why the database cannot be read or written; empty where it can. It is written to once in WRITE_SECONDS.

    A write that worked is also the moment to write the ledger rows that an outage delayed.
    """
    if not connection.in_atomic_block:  # a transaction is open in tests only
        connection.close_if_unusable_or_obsolete()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        if time.monotonic() - _latest.get("write", (-WRITE_SECONDS, ""))[0] >= WRITE_SECONDS:
            _write()
            _latest["write"] = time.monotonic(), ""
            write_delayed_rows()
    except DatabaseError as error:
        connection.close()
        return str(error).strip().partition("\n")[0][:200]
    return ""


def _write() -> None:
    """Store something and delete it again, and commit: only that finds a full disk, a lock and a database that is read-only."""
    row = Session(session_key=f"readyz-{secrets.token_hex(8)}", session_data=secrets.token_hex(WRITTEN_CHARACTERS // 2))
    row.expire_date = timezone.now()
    with _waiting_briefly(), transaction.atomic():
        row.save(force_insert=True)
        row.delete()


@contextmanager
def _waiting_briefly() -> Iterator[None]:
    """Wait inside for SQLite's lock no longer than for the other checks, as a prober gives up after a few seconds; then as long as before.

    Other databases, and SQLite inside a transaction, wait as they are set.
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        yield
        return
    with connection.cursor() as cursor:
        before = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
        cursor.execute(f"PRAGMA busy_timeout = {PROBE_SECONDS * 1000:.0f}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {before}")


def _migrations() -> str:
    """Return how many migrations are not applied; empty where all are, which is then not looked up again in this process."""
    global _migrated
    if _migrated:
        return ""
    try:
        executor = MigrationExecutor(connection)
        left = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return "not known: the database does not answer"
    _migrated = not left
    return f"{len(left)} not applied: run manage.py migrate" if left else ""


def broker_problem() -> str:
    """Return why the broker cannot be reached; empty where it can, or there is none."""
    if not settings.CELERY_BROKER_URL:
        return ""
    return _recent_result("broker", lambda: _ping_broker(settings.CELERY_BROKER_URL))


def _judge() -> str:
    """Return why the judge's server cannot be reached; empty where it can, or the judge answers in this process."""
    destination = route_of("judge")
    if not destination.provider.is_remote:
        return ""
    if destination.problem:
        return "not configured: see manage.py check"
    return _recent_result(f"judge {destination.base_url}", lambda: _connect(destination.base_url))


CHECKS: dict[str, Probe] = {"database": _database, "migrations": _migrations, "broker": broker_problem, "judge": _judge}


def _recent_result(key: str, probe: Probe) -> str:
    """Return what a probe over the network said in the last FRESH_SECONDS (empty: all is well), else ask it in another thread.

    It has half a second more than PROBE_SECONDS, name lookup included; one that takes longer is not waited for, which is a problem, too.
    """
    if key in _latest and time.monotonic() - _latest[key][0] < FRESH_SECONDS:
        return _latest[key][1]
    answer: Future[str] = _probing.submit(probe)
    try:
        problem = answer.result(timeout=PROBE_SECONDS + 0.5)
    except TimeoutError:
        problem = f"no answer within {PROBE_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 (whatever the network does is the answer)
        problem = f"not reached: {type(error).__name__}"
    _latest[key] = time.monotonic(), problem
    return problem


def _ping_broker(url: str) -> str:
    """Ping the Redis at `url`; empty where it answers, else what Redis raises."""
    import redis

    client = redis.Redis.from_url(url, socket_timeout=PROBE_SECONDS, socket_connect_timeout=PROBE_SECONDS)
    try:
        client.ping()
    finally:
        client.close()
    return ""


def _connect(base_url: str) -> str:
    """Open a connection to where the judge's requests go, a proxy where one is set, and close it: nothing is asked, nothing is paid.

    Returns:
        Empty; raises OSError where it cannot be reached.
    """
    parts = urlsplit(base_url)
    proxy = urllib.request.getproxies().get(parts.scheme, "")
    if proxy and parts.hostname and not urllib.request.proxy_bypass(parts.hostname):
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    socket.create_connection((parts.hostname or "", port), timeout=PROBE_SECONDS).close()
    return ""


# -- model calls
@dataclass(frozen=True, slots=True, kw_only=True)
class CallHealth:
    """Calls since a moment.

    Attributes:
        failed: By status, those that did not end ``ok``.
        mean_ms: Mean milliseconds of all of them; None when there were none.
        last_failure: The newest call that failed; None when none did.
    """

    ok: int
    failed: dict[str, int]
    mean_ms: float | None
    last_failure: LLMCall | None

    @property
    def calls(self) -> int:
        return self.ok + sum(self.failed.values())


def call_health(*, role: Role, since: datetime, end: datetime | None = None) -> CallHealth:
    """Return what became of the calls of a role since then, up to `end` (None: now); a second query only when some failed.

    The last failure is looked for among the rows of the ledger, whatever `end` is; it is None where it was pruned.
    """
    of_role = Q(role=role)
    by_status = {"status": F("status")}
    calls: Counter[str] = Counter()
    milliseconds = 0
    for row in read(
        LEDGER,
        LEDGER.tables[0],
        start=since,
        end=end,
        raw_keys=by_status,
        keys=by_status,
        columns=("calls", "latency_ms"),
        raw_where=of_role,
        where=of_role,
    ):
        calls[row["k_status"]] += row["s_calls"]  # `read` gives a key the prefix k_, a sum s_
        milliseconds += row["s_latency_ms"]
    number = calls.total()
    ok = calls.pop(LLMCall.Status.OK, 0)  # the failed ones are left
    failed = {status: count for status, count in calls.most_common() if count}
    last = None
    if failed:
        rows = LLMCall.objects.filter(of_role, created_at__gte=since).exclude(status=LLMCall.Status.OK)
        last = rows.order_by("-created_at").first()
    return CallHealth(ok=ok, failed=failed, mean_ms=milliseconds / number if number else None, last_failure=last)

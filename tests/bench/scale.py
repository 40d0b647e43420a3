"""A large installation on PostgreSQL: summaries, statistics and pages of logs over millions of rows, with their plans.

``DATABASE_URL=postgres://… make bench ARGS="--only scale"``. Makes a database of its own on that server and drops it. The plans go to
the file that BENCH_PLANS names; BENCH_DATABASE names a database that an earlier trial filled, to be measured again and left.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

REPEATS = 7
SUMMARY, STATISTICS, PAGE = 300, 300, 150  # milliseconds
NO_POSTGRESQL = (
    "bench scale: needs PostgreSQL: set DATABASE_URL to postgres://USER:PASSWORD@HOST:PORT/NAME; a database of its own is made there "
    "and dropped (about 6 GB, ten to thirty minutes)"
)


def measure_scale() -> None:
    """Fill a database, measure, print."""
    from rich.console import Console
    from rich.table import Table

    console, kept = Console(width=150), os.environ.get("BENCH_DATABASE", "")
    with throwaway_database(os.environ.get("DATABASE_URL", ""), kept) as url:
        os.environ.update(DATABASE_URL=url, DJANGO_SETTINGS_MODULE="project.settings", PROPOSITION_DIRS="")
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connections

        if not kept:
            call_command("migrate", verbosity=0)
        table = Table("What", "Measured", "Floor", title="Measured", title_justify="left")
        plans = os.environ.get("BENCH_PLANS")
        for row in scaling(console.print, filled=bool(kept), plans=Path(plans) if plans else None):
            table.add_row(*row)
            console.print(*row[:2], sep=": ")
        connections.close_all()
    console.print(table)
    console.print(
        f"Median of {REPEATS} after a warm-up, least and most in brackets; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}."
    )


@contextmanager
def throwaway_database(url: str, keep: str = "") -> Iterator[str]:
    """The URL of a new database on the server of `url`, dropped at the end; or of the one named `keep`, if there is, and left.

    Raises:
        SystemExit: `url` names no PostgreSQL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise SystemExit(NO_POSTGRESQL)
    import psycopg

    if keep:
        yield parts._replace(path=f"/{keep}").geturl()
        return
    name = f"plumbline_bench_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f'create database "{name}"')
        try:
            yield parts._replace(path=f"/{name}").geturl()
        finally:
            server.execute(f'drop database "{name}" with (force)')


@dataclass
class Case:
    """Something to be measured: what it is called, what to do, the most milliseconds it may take, whether its plan is shown."""

    name: str
    work: Callable[[], Any]
    floor: int
    plan: bool = False
    taken: list[float] = field(default_factory=list)

    def measure(self) -> None:
        for _ in range(REPEATS + 1):  # the first one warms up
            begun = time.perf_counter()
            self.work()
            self.taken.append((time.perf_counter() - begun) * 1000)
        self.taken = sorted(self.taken[1:])

    def row(self) -> tuple[str, str, str]:
        median = self.taken[REPEATS // 2]
        return (
            self.name,
            f"{median:.0f} ms ({self.taken[0]:.0f} to {self.taken[-1]:.0f}){'' if median <= self.floor else ' TOO SLOW'}",
            f"<= {self.floor} ms",
        )


def scaling(say: Callable[[str], None], *, filled: bool, plans: Path | None) -> Iterator[tuple[str, str, str]]:
    """Rows for the table; the plan of each case's slowest statement goes to the file `plans`."""
    from django.db import connection

    from tests.bench.scale_rows import make_rows

    if not filled:
        make_rows(say)
    yield from _sizes()
    with connection.cursor() as cursor:
        cursor.execute("select version(), current_setting('fsync'), current_setting('shared_buffers')")
        told = "{}; fsync {}, shared_buffers {}".format(*cursor.fetchone())
    shown = [f'Plans of the slowest statement of each case of `make bench ARGS="--only scale"`.\n{told}']
    for case in (*_summaries(), *_statistics(), *_pages()):
        case.measure()
        yield case.row()
        if case.plan:
            shown.append(f"## {case.name}: {case.row()[1]}\n\n{_slowest_plan(case.work)}")
    if plans is not None:
        plans.write_text("\n\n".join(shown) + "\n", encoding="utf-8")


def _summaries() -> Iterator[Case]:
    from agents.models import Agent
    from correction.costs import GROUPINGS, get_cost_summary

    one = Agent.objects.get(slug="agent-7")
    get = _client()
    for window in ("30d", "all"):
        for grouping in GROUPINGS:
            work = partial(get_cost_summary, window=window, by=[grouping])
            yield Case(
                f"costs of all agents by {grouping}, {window}", work, SUMMARY, window == "all" or grouping == "agent"
            )
        work = partial(get_cost_summary, window=window)
        yield Case(f"costs of all agents, all five groupings, {window}", work, SUMMARY)
        work = partial(get_cost_summary, agent=one, window=window)
        yield Case(f"costs of one agent, all five groupings, {window}", work, SUMMARY, window == "all")
        yield Case(f"GET costs/?window={window}", partial(get, f"/api/evaluations/costs/?window={window}"), SUMMARY)


def _statistics() -> Iterator[Case]:
    from agents.models import Agent
    from correction.gate.statistics import get_gate_statistics

    one = Agent.objects.get(slug="agent-7")
    url = "/api/evaluations/gate-statistics/?window=all"
    for window in ("24h", "30d", "all"):
        for agent, whose in ((None, "all agents"), (one, "one agent")):
            work = partial(get_gate_statistics, agent, window)
            yield Case(f"gate statistics of {whose}, {window}", work, STATISTICS, window == "all")
    yield Case("GET gate-statistics/?window=all", partial(_client(), url), STATISTICS)


def _pages() -> Iterator[Case]:
    from datetime import timedelta
    from urllib.parse import quote

    from django.utils import timezone

    get = _client()
    logs = "/api/evaluations/correction-logs/"
    ago = {n: quote((timezone.now() - timedelta(days=n)).isoformat()) for n in (1, 30, 59, 60)}
    queries = {
        "first page": "",
        "of one agent": "agent=agent-7",
        "of one agent, sent back": "agent=agent-7&outcome=corrected",
        "sent back": "outcome=corrected",
        "forced through (1 in 5,000)": "outcome=forced_through",
        "of an outcome that never was": "outcome=error_passed",
        "observed": "source=observe",
        "external (there is none)": "source=external",
        "fluency": "dimension=fluency",
        "the last day": f"since={ago[1]}",
        "of a day two months ago": f"since={ago[60]}&until={ago[59]}",
        "until a month ago": f"until={ago[30]}",
        "one agent, a day two months ago": f"agent=agent-7&since={ago[60]}&until={ago[59]}",
        "page at a cursor 500,000 rows deep": f"cursor={_cursor_before(500_000)}",
    }
    for name, query in queries.items():
        yield Case(f"log list, {name}", partial(get, f"{logs}?{query}"), PAGE, plan=True)


def _cursor_before(rows: int) -> str:
    from base64 import b64encode
    from urllib.parse import urlencode

    from correction.models import CorrectionLog

    position = CorrectionLog.objects.order_by("-pk").values_list("created_at", flat=True)[rows]
    return b64encode(urlencode({"p": str(position)}).encode()).decode()


def _client() -> Callable[[str], Any]:
    from django.contrib.auth import get_user_model
    from rest_framework.test import APIClient

    user, _ = get_user_model().objects.get_or_create(username="bench", is_superuser=True, is_staff=True)
    client = APIClient(SERVER_NAME="localhost")
    client.force_authenticate(user)

    def get(url: str) -> Any:
        answer = client.get(url, secure=True)
        if answer.status_code != 200:
            raise SystemExit(f"{url}: {answer.status_code} {answer.content[:300]!r}")
        return answer

    return get


def _slowest_plan(work: Callable[[], Any]) -> str:
    """The statement of `work` that takes longest, and how PostgreSQL does it."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as seen:
        work()
    slowest = max(seen.captured_queries, key=lambda query: float(query["time"]))["sql"]
    with connection.cursor() as cursor:
        cursor.execute(f"explain (analyze, costs off, summary on) {slowest}".replace("%", "%%"), [])
        return "\n".join(line for (line,) in cursor.fetchall())


def _sizes() -> Iterator[tuple[str, str, str]]:
    """Rows and bytes per row of the tables that grow, indexes and all."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "select relname, greatest(reltuples, 0)::bigint, pg_relation_size(c.oid), pg_indexes_size(c.oid) from pg_class c "
            "where relkind = 'r' and reltuples > 10000 and relnamespace = 'public'::regnamespace order by relname"
        )
        for name, rows, heap, indexes in cursor.fetchall():
            yield f"{name}: {rows:,} rows", f"{heap / rows:.0f} bytes + {indexes / rows:.0f} of indexes per row", "-"

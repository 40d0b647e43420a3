"""A large installation's rows, made by PostgreSQL itself: half a year of 1,000 agents."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

AGENTS = 1_000
ROLLED_UP = 10_000_000
RAW = 1_000_000
LOGS = 1_000_000
ROLLED_DAYS, RAW_DAYS, LOG_DAYS = 180, 30, 90
STATEMENTS = Path(__file__).with_suffix(".sql")
Say = Callable[[str], None]


def make_rows(say: Say) -> None:
    """Fill an empty, migrated database, and sum up."""
    from django.db import connection

    from agents.kit.models import LLMCall, Rollup
    from agents.kit.ops.sums import roll_up
    from agents.models import Agent, Channel
    from correction.gate.statistics import GATE
    from correction.models import CorrectionLog, GateDimensionResult, GateSession

    statements = dict(part.split("\n", 1) for part in STATEMENTS.read_text(encoding="utf-8").split("-- name: ")[1:])
    now = datetime.now(UTC)
    hour = now.replace(minute=0, second=0, microsecond=0)
    closed = hour - timedelta(hours=1)
    hours = ROLLED_DAYS * 24
    since = closed - timedelta(hours=hours)
    Agent.objects.bulk_create(Agent(slug=f"agent-{n}", display_name=f"Agent {n}") for n in range(AGENTS))
    Channel.objects.bulk_create(Channel(slug=f"channel-{n}", synthetic=n % 50 == 0) for n in range(AGENTS))
    with connection.cursor() as cursor:
        cursor.execute(
            "set session_replication_role = replica"
        )  # no foreign keys are looked up: the rows are right as made

        for model in (LLMCall, GateSession, CorrectionLog, GateDimensionResult):
            _defaults(cursor, model)

        def run(what: str, **values: Any) -> None:
            begun = time.perf_counter()
            cursor.execute(statements[what], {"agents": AGENTS, **values})
            say(f"{what}: {cursor.rowcount:,} rows in {time.perf_counter() - begun:.0f} s")

        run("sums of hours", start=since, hourly=-(-ROLLED_UP // hours), rows=ROLLED_UP)
        begin = now - timedelta(days=RAW_DAYS)
        run("calls", start=begin, days=RAW_DAYS, rows=RAW)
        logged = {"start": now - timedelta(days=LOG_DAYS), "days": LOG_DAYS, "rows": LOGS}
        run("sessions", **logged)
        run("logs", **logged)
        run("verdicts")
        cursor.execute("set session_replication_role = origin")
        cursor.execute("analyze")
    Rollup.objects.create(name="ledger", closed_before=closed)
    begun = time.perf_counter()
    done = roll_up(GATE)
    say(f"the gate summed up by the service: {done:,} hours in {time.perf_counter() - begun:.0f} s")
    with connection.cursor() as cursor:
        cursor.execute("vacuum analyze")


def _defaults(cursor: Any, model: Any) -> None:
    """Let the database know the defaults of columns, so that the statements name only those they are about."""
    from django.db import connection

    for field in model._meta.concrete_fields:
        if field.has_default() and not field.null:
            value = field.get_db_prep_save(field.get_default(), connection)
            cursor.execute(f'alter table {model._meta.db_table} alter column "{field.column}" set default %s', [value])

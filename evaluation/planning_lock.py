"""One plan at a time: two processes that ask for the same at once must find each other's run."""

from __future__ import annotations

from django.db import connection

_PLANNING = 0x504C414E  # the lock's number among those of the database


def wait_for_other_plans() -> None:
    """Wait until no other transaction makes evaluation runs; until this one ends the others wait.

    SQLite lets one writer in anyhow. A lock of the target's row would hold up what is said there, and two plans (or a plan and a
    message) that take an agent and its channels in another order would end each other.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_PLANNING])

"""Whose work comes next, found without looking at all that waits."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.db.models import QuerySet

# One step per agent, from one to the next in an index, and its oldest row. Beside them the oldest of all, so that several workers that
# look at once find something each where few agents have work; and what was lost, where that comes first.
_LOOK = """
WITH RECURSIVE agent (whose) AS (
    SELECT MIN(r.for_whom) FROM ({rows}) r
    UNION ALL
    SELECT (SELECT MIN(r.for_whom) FROM ({rows}) r WHERE r.for_whom > agent.whose) FROM agent WHERE agent.whose IS NOT NULL
), first AS (
    SELECT whose, (SELECT r.id FROM ({rows}) r WHERE r.for_whom = agent.whose ORDER BY r.created_at, r.id LIMIT 1) AS id
    FROM agent WHERE whose IS NOT NULL
)
SELECT id FROM (
    SELECT work.id AS id, 1 AS place, served.at AS served, work.created_at AS created_at
    FROM first JOIN {table} work ON work.id = first.id
    LEFT JOIN work_last_served served ON served.kind = %s AND served.whose = first.whose
    UNION ALL
    SELECT o.id, 2, NULL, o.created_at
    FROM (SELECT r.id, r.created_at FROM ({pending}) r ORDER BY r.created_at, r.id LIMIT %s) o
    UNION ALL
    SELECT l.id, 0, NULL, l.created_at
    FROM (SELECT r.id, r.created_at FROM ({lost}) r ORDER BY r.created_at, r.id LIMIT %s) l
) found ORDER BY place, served NULLS FIRST, created_at, id LIMIT %s
"""


def next_in_turn(free: QuerySet[Any], *, whose: Any, most: int, lost_first: bool) -> list[int]:
    """Primary keys of rows that may be claimed: each agent's oldest, who was served longest ago first; then the oldest of all.

    Args:
        free: The rows that may be claimed, of one table.
        whose: An expression for the agent; never null. With `created_at` and the primary key it wants an index of the open rows.
        most: Rows to find at most.
        lost_first: Whether rows whose owner is gone come before all others.
    """
    model = free.model
    rows = free.filter(status__in=model.OPEN).order_by().annotate(for_whom=whose).values("id", "created_at", "for_whom")
    sql, params = rows.query.sql_with_params()
    pending, pending_params = rows.filter(status=model.Status.PENDING).query.sql_with_params()
    lost, lost_params = rows.filter(status=model.Status.RUNNING).query.sql_with_params()
    table = connection.ops.quote_name(model._meta.db_table)
    look = _LOOK.format(rows=sql, pending=pending, lost=lost, table=table)
    values = (*params, *params, *params, model._meta.db_table, *pending_params, most, *lost_params)
    with connection.cursor() as cursor:
        cursor.execute(look, [*values, most if lost_first else 0, 2 * most])
        found = [pk for (pk,) in cursor.fetchall()]
    return list(dict.fromkeys(found))[:most]

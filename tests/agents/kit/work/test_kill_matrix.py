"""What the lease promises of a worker that is killed before each statement of its work."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from typing import Any

import pytest
from django.conf import settings

from tests import zygote

pytestmark = pytest.mark.slow

STEPS = 3
# Forks a worker for each statement of one piece of work and kills it there; another worker then does what is left. The work is a list
# of steps; each is done in a transaction with the row that says so, as the items of an evaluation or the replies of a debate are.
KILL_AT_EACH_STATEMENT = """
import json, os, signal, sys, django; django.setup()
from datetime import timedelta
from django.db import connection, transaction
from django.db.backends.signals import connection_created
from agents.kit.models import Chore
from agents.kit.models.lease import LeaseLost, owner_name
from agents.kit.work.queues import do_next, release_lost_leases
from agents.models import Import
STEPS = int(sys.argv[1])
LEASE = timedelta(seconds=300)

def work(row, owner):
    for step in range(STEPS):
        if Chore.objects.filter(path=f"{row.pk} {step}").exists():
            continue
        if not row.extend_lease(owner=owner, lease=LEASE):
            raise LeaseLost
        with transaction.atomic():
            Chore.objects.create(path=f"{row.pk} {step}", next_at=row.created_at, last_outcome=owner)
    return {"status": row.Status.COMPLETED}

def do_one(owner):
    return do_next(Import, lambda row: work(row, owner), owner=owner, lease=LEASE)

def killed_before(number):
    connection.close()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    statements = 0
    def count(execute, sql, params, many, context):
        nonlocal statements
        statements += 1
        if statements == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(sql, params, many, context)
    connection_created.connect(lambda connection, **_: connection.execute_wrappers.append(count), weak=False)
    try:
        do_one(owner_name())
    finally:
        os._exit(0)

outcomes, number = [], 0
while True:
    number += 1
    row = Import.objects.create(status=Import.Status.PENDING)
    code = killed_before(number)
    row.refresh_from_db()
    left = {"status": row.status, "steps": Chore.objects.filter(path__startswith=f"{row.pk} ").count()}
    released = release_lost_leases()
    found = do_one("another worker")
    row.refresh_from_db()
    outcomes.append({
        "signal": os.WTERMSIG(code) if os.WIFSIGNALED(code) else 0,
        "left": left,
        "released": released,
        "found": found,
        "status": row.status,
        "owner": row.lease_owner,
        "attempt": row.attempt,
        "steps": sorted(Chore.objects.filter(path__startswith=f"{row.pk} ").values_list("path", flat=True)),
    })
    if not os.WIFSIGNALED(code):
        break
print(json.dumps(outcomes))
"""


def test_work_of_a_killed_worker_is_finished_once_wherever_it_died(database_url: str) -> None:
    done = zygote.run(
        [sys.executable, "-c", KILL_AT_EACH_STATEMENT, str(STEPS)],
        env=_environment(database_url),
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outcomes: list[dict[str, Any]] = json.loads(done.stdout)

    *died, undisturbed = outcomes
    assert undisturbed["signal"] == 0
    assert (undisturbed["found"], undisturbed["attempt"]) == (False, 1)
    assert {outcome["signal"] for outcome in died} == {signal.SIGKILL}
    for outcome in outcomes:
        assert (outcome["status"], outcome["owner"], len(outcome["steps"])) == ("completed", "", STEPS), outcome
        held = outcome["left"]["status"] == "running"
        assert outcome["released"] == held, "only what the dead one held goes back to the queue"
        assert outcome["attempt"] == 1 + held
    moments = Counter((outcome["left"]["status"], outcome["left"]["steps"]) for outcome in died)
    assert moments.keys() >= {("pending", 0), *(("running", step) for step in range(STEPS + 1))}, moments


def _environment(database_url: str) -> dict[str, str]:
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings", "DATABASE_URL": database_url}

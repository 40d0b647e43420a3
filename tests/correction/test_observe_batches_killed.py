"""What a worker that is killed leaves of an observed message judged in a batch, before each change of the database."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import pytest
from django.conf import settings

from tests import zygote

pytestmark = pytest.mark.slow

# Forks a worker for each change between a message that waits and its verdict, and kills it there; another one does what is left.
KILL_AT_EACH_STATEMENT = """
import json, os, signal, django; django.setup()
from datetime import timedelta
from django.conf import settings
from django.db import connection
from django.db.backends.signals import connection_created
from django.utils import timezone
from agents.kit.llm import warm_up
from agents.kit.models import LLMBatch, LLMCall
from agents.kit.models.lease import owner_name
from agents.kit.work import batches
from agents.kit.work.queues import release_lost_leases
from correction.gate.observe import work_one
from correction.gate.observe_batches import submit_waiting
from correction.models import CorrectionLog, ObservedMessage
from tests.batch_server import BatchServer
from tests.correction.gating import gated, judge, send

class Prompt(BatchServer):
    # Ends each batch when it is looked at.
    def _batches(self, method, path, text):
        if method == "GET":
            self.end()
        return super()._batches(method, path, text)

def resume():
    owner = owner_name()
    submit_waiting()
    batches.work_one(owner=owner)
    submit_waiting()
    work_one(owner=owner)

def killed_before(number):
    connection.close()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    statements = 0
    def count(execute, sql, params, many, context):
        nonlocal statements
        statements += not sql.startswith(("SELECT", "WITH"))  # reading changes nothing: one moment before each change is enough
        if statements == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(sql, params, many, context)
    connection_created.connect(lambda connection, **_: connection.execute_wrappers.append(count), weak=False)
    try:
        resume()
    finally:
        os._exit(0)

outcomes, number = [], 0
with Prompt() as server:
    settings.JUDGE_BASE_URL, settings.JUDGE_MODEL, settings.ANTHROPIC_API_KEY = server.url, "test-model", "sk-test-secret"
    settings.LLM_BATCH_POLL_SECONDS = 0
    server.respond = judge({"fluency": 8})
    agent, channel = gated("fluency", gate_mode="observe", observe_by_batches=True)
    warm_up("judge")
    while True:
        number += 1
        made = server.made()
        message = send(agent, channel, f"Message {number}.").message
        row = ObservedMessage.objects.get(message=message)
        ObservedMessage.objects.filter(pk=row.pk).update(waits_since=timezone.now() - timedelta(hours=2))
        code = killed_before(number)
        row.refresh_from_db()
        left = [row.status, server.made() - made, row.batch is not None and bool(row.batch.batch_id),
                LLMCall.objects.filter(work_id=row.work_id).count(),
                CorrectionLog.objects.filter(session__uuid=row.session).count()]
        release_lost_leases()
        for _ in range(4):
            LLMBatch.objects.filter(status="pending").update(next_look_at=timezone.now())  # as after a minute
            resume()
            row.refresh_from_db()
            if row.status == "completed":
                break
        calls = LLMCall.objects.filter(work_id=row.work_id)
        outcomes.append({
            "signal": os.WTERMSIG(code) if os.WIFSIGNALED(code) else 0,
            "left": left,
            "status": row.status,
            "verdicts": CorrectionLog.objects.filter(session__uuid=row.session).count(),
            "calls": [calls.count(), calls.filter(batch=True, status="ok").count()],
            "submitted": server.made() - made,
            "live": server.live(),
        })
        if not os.WIFSIGNALED(code):
            break
print(json.dumps(outcomes))
"""


def test_a_worker_killed_at_any_moment_neither_loses_nor_doubles_a_judgement(database_url: str) -> None:
    done = zygote.run(
        [sys.executable, "-c", KILL_AT_EACH_STATEMENT],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings", "DATABASE_URL": database_url},
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outcomes: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])

    *died, undisturbed = outcomes
    assert undisturbed["signal"] == 0
    assert {outcome["signal"] for outcome in died} == {signal.SIGKILL}
    for outcome in outcomes:
        assert (outcome["status"], outcome["verdicts"], outcome["submitted"], outcome["live"]) == (
            "completed",
            1,
            1,
            0,
        ), outcome
        assert outcome["calls"] == [1, 1], outcome
    # Where they died: status, batches at the server, whether its name was noted, calls in the ledger, verdicts.
    moments = {tuple(outcome["left"]) for outcome in died}
    assert moments >= {
        ("pending", 0, False, 0, 0),  # before it was submitted
        ("pending", 1, False, 0, 0),  # submitted, its name not noted
        ("pending", 1, True, 0, 0),  # its name noted, its results not read
        ("pending", 1, True, 1, 0),  # its results read
        ("running", 1, True, 1, 0),  # before it was logged
        ("running", 1, True, 1, 1),  # logged, its end not stored
    }, moments

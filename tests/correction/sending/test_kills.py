"""Scores leave once each through workers that are killed between sending and noting it, and through an outage of their receiver."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.correction.sending.receiving import (
    PUBLIC_KEY,
    SECRET_KEY,
    LangfuseServer,
    LogsServer,
    ScoreServer,
    listening,
)
from tests.machinery import Plumbline, kill_at_once

pytestmark = pytest.mark.slow

JUDGEMENTS = 950  # ten requests
REQUEST = 100  # judgements at most
KILLS = 3

COMPLETED = f"""
import django
django.setup()
from django.utils import timezone
from agents.models import Agent
from correction.sending.queueing import queue_judgements
from evaluation.models import EvaluationRun, EvaluationScore
agent = Agent.objects.create(slug="ada", display_name="Ada", system_prompt="You are Ada.")
run = EvaluationRun.objects.create(agent=agent, dimensions=["adherence"], judge="m", status="completed")
EvaluationScore.objects.bulk_create(
    EvaluationScore(
        evaluation_run=run, dimension="adherence", proposition_id=f"p{{n}}", claim="c", status="scored", score=n % 10,
        judged_at=timezone.now(),
    )
    for n in range({JUDGEMENTS})
)
queue_judgements(run)
"""
LATER = """
import django
django.setup()
from correction.sending.models import ScoreDelivery, ScoreReceiver
ScoreDelivery.objects.filter(status="pending").update(lease_expires_at=None)
ScoreReceiver.objects.update(retry_at=None)
"""
STATES = """
import django
django.setup()
from correction.sending.models import ScoreDelivery
print(sorted(ScoreDelivery.objects.values_list("receiver__name", "status", "sent")))
"""


def settings_of(server: ScoreServer) -> dict[str, str]:
    if isinstance(server, LogsServer):
        return {"SCORES_OTLP_ENDPOINT": server.url}
    return {"LANGFUSE_BASE_URL": server.url, "LANGFUSE_PUBLIC_KEY": PUBLIC_KEY, "LANGFUSE_SECRET_KEY": SECRET_KEY}


@pytest.mark.parametrize("kind", [LogsServer, LangfuseServer])
def test_each_judgement_arrives_through_three_kills_and_an_outage(
    kind: type[LogsServer | LangfuseServer], database_url: str, tmp_path: Path
) -> None:
    with listening(kind()) as server:
        environment = {"DATABASE_URL": database_url, "SCORES_SECONDS": "60", **settings_of(server)}
        plumbline = Plumbline(tmp_path, environment)
        try:
            plumbline.start_and_wait("complete", "-c", COMPLETED)
            for number in range(KILLS):
                kill_while_sending(plumbline, server, number)
            server.status = 503
            plumbline.manage("work", "--once", "--skip-checks")
            arrived_before_outage_ended = len(set(server.ids))
            server.status = 0
            plumbline.start_and_wait("later", "-c", LATER)
            for _ in range(2):
                plumbline.manage("work", "--once", "--skip-checks")
            plumbline.start_and_wait("states", "-c", STATES)
            states = plumbline.log_of("states")
        finally:
            plumbline.stop()

    times = Counter(server.ids)
    twice = [id for id, number in times.items() if number == 2]
    assert arrived_before_outage_ended < JUDGEMENTS
    assert len(times) == JUDGEMENTS
    assert len(twice) == KILLS * REQUEST, "what was in flight at each kill, and no more"
    assert max(times.values()) == 2
    assert f"'completed', {JUDGEMENTS})" in states


def kill_while_sending(plumbline: Plumbline, server: ScoreServer, number: int) -> None:
    """Kill a worker after the receiver took the third request from now on, and before it answers."""
    server.holds = {len(server.requests) + 3}
    server.came.clear()
    worker = plumbline.start(f"worker-{number}", "manage.py", "work", "--poll", "0.1", "--skip-checks")
    assert server.came.wait(120), plumbline.log_of(f"worker-{number}")
    kill_at_once(worker)
    server.holds = set()

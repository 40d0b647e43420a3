"""Two Celery workers, a Redis and a PostgreSQL that do what they do in real life: die, and come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.database_file import make_tables
from tests.evaluation.judging import answers
from tests.llm_server import LLMServer
from tests.machinery import Plumbline, Postgres, Redis, kill_at_once, running, wait_until

pytestmark = pytest.mark.service

AGENTS, RUNS_OF_EACH, LINES_OF_EACH = 10, 50, 8
RUNS = AGENTS * RUNS_OF_EACH
OBSERVED = AGENTS * LINES_OF_EACH
PATIENCE = 240  # seconds; only a machine that is very busy needs a fraction of it
# In a process of its own: agents with a few lines each, all to be observed, and their evaluations, which differ in their seeds.
QUEUE = f"""
from evaluation.runs.planning import create_run, make_plan
from evaluation.propositions.files import load_all
from evaluation.runs.planning import RunSpec
from correction.models import AgentEvaluationConfig
from correction.gate.observe import queue_ingested
from tests.factories import make_agent, make_channel, talk
files = load_all()
for number in range({AGENTS}):
    agent = make_agent(f"agent-{{number}}")
    AgentEvaluationConfig.objects.create(agent=agent, gate_mode="observe", observe_sample_rate=1, gate_adherence_enabled=True)
    lines = [f"line {{n}} of {{number}}" for n in range({LINES_OF_EACH})]
    queue_ingested(talk(agent, lines, channel=make_channel(f"room-{{number}}")))
    for seed in range({RUNS_OF_EACH}):
        spec = RunSpec(agent=agent, dimensions=("adherence",), samples=2, seed=seed)
        create_run(make_plan(spec, files=files))
"""
# The sums of all hours, the present one included.
SUM_UP = """
from datetime import timedelta
from django.utils import timezone
from agents.ops.sums import roll_up, rollups
for rolled in rollups():
    assert roll_up(rolled, now=timezone.now() + timedelta(hours=2))
"""
# Every judgement that is written over another one leaves a trace.
WATCH = """
create table stored_again (score bigint);
create function note_stored_again() returns trigger language plpgsql as $$
begin insert into stored_again values (old.id); return new; end $$;
create trigger stored_again before update on evaluation_scores for each row
  when (old.status <> 'pending') execute function note_stored_again();
"""


class Ledger:
    """Looks into the database from outside, each time with a connection of its own."""

    def __init__(self, postgres: Postgres) -> None:
        self._url = postgres.url.replace("postgres://", "postgresql://")

    def execute(self, statement: str) -> None:
        with psycopg.connect(self._url, connect_timeout=5) as connection:
            connection.execute(statement)

    def number(self, query: str) -> int:
        with psycopg.connect(self._url, connect_timeout=5) as connection:
            row = connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    def completed(self) -> int:
        return self.number("select count(*) from evaluation_runs where status = 'completed'")

    def observed(self) -> int:
        return self.number("select count(*) from observed_messages where status = 'completed'")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    with running(server):
        yield server


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    server = Redis(tmp_path_factory.mktemp("redis"))
    with running(server):
        yield server


@pytest.fixture
def judge() -> Iterator[LLMServer]:
    with LLMServer() as server:
        answer = answers(lambda claim: 7)
        server.respond = lambda body: {**answer(body), "latency": 0.05}
        yield server


@pytest.fixture
def plumbline(postgres: Postgres, redis: Redis, judge: LLMServer, tmp_path: Path) -> Iterator[Plumbline]:
    environment = {
        "DATABASE_URL": postgres.url,
        "CELERY_BROKER_URL": redis.url,
        "JUDGE_BASE_URL": judge.url,
        "JUDGE_MODEL": "test-model",
        "PROPOSITION_DIRS": "",
        "SENTRY_DSN": "",
        "LOG_LEVEL": "WARNING",
        "WORKER_SWEEP": "2",
        "WORKER_GRACE": "1",
    }
    installation = Plumbline(tmp_path, environment)
    ledger = Ledger(postgres)
    ledger.execute("drop schema public cascade; create schema public")
    make_tables(postgres.url)
    yield installation
    installation.stop()


@pytest.fixture
def ledger(postgres: Postgres) -> Ledger:
    return Ledger(postgres)


def test_nothing_is_lost_or_stored_twice_when_worker_broker_and_database_die(
    plumbline: Plumbline, ledger: Ledger, postgres: Postgres, redis: Redis
) -> None:
    plumbline.start_and_wait("queue", "-c", "import django\ndjango.setup()\n" + QUEUE)
    ledger.execute(WATCH)
    assert ledger.number("select count(*) from evaluation_runs where status = 'pending'") == RUNS
    assert ledger.number("select count(*) from observed_messages where status = 'pending'") == OBSERVED
    judgements = ledger.number("select count(*) from evaluation_scores")

    plumbline.celery("beat", "beat", "--schedule", str(plumbline.folder / "schedule"))
    first, _ = (
        plumbline.celery(name, "worker", "--concurrency", "2", "--hostname", f"{name}@%h") for name in ("a", "b")
    )
    wait_until(lambda: ledger.completed() > RUNS * 0.1, timeout=PATIENCE, what="a tenth is done")
    kill_at_once(first)
    wait_until(lambda: ledger.completed() > RUNS * 0.2, timeout=PATIENCE, what="the other worker goes on alone")
    redis.stop()
    redis.start()
    wait_until(lambda: ledger.completed() > RUNS * 0.4, timeout=PATIENCE, what="it finds its broker again")
    postgres.stop()
    time.sleep(1)  # it is away for a moment, not only restarted
    postgres.start()
    wait_until(lambda: ledger.completed() == RUNS, timeout=PATIENCE, what="every run is done")
    wait_until(lambda: ledger.observed() == OBSERVED, timeout=PATIENCE, what="every message is observed")

    assert ledger.number("select count(*) from correction_logs where outcome = 'observed'") == OBSERVED
    assert ledger.number(OBSERVED_ONCE) == OBSERVED
    assert ledger.number(VERDICTS_OF_OTHERS) == 0
    assert ledger.number("select count(*) from evaluation_scores") == judgements
    assert ledger.number("select count(*) from evaluation_scores where status = 'pending'") == 0
    assert ledger.number("select count(*) from evaluation_scores where status = 'unscored'") == 0
    assert ledger.number("select count(*) from stored_again") == 0
    assert ledger.number(CALLS_MISSING) == 0
    assert ledger.number(CALLS_OF_OTHERS) == 0
    # What was asked twice is what a process had in flight when it was killed, or a database that was away took with it.
    assert ledger.number(ASKED_TWICE) <= 4 * 20

    plumbline.start_and_wait("sums", "-c", "import django\ndjango.setup()\n" + SUM_UP)
    assert ledger.number(NOT_SUMMED) == 0


# Calls of closed hours that their sums lack.
NOT_SUMMED = """
select (select count(*) from llm_calls where created_at < (select closed_before from rollups where name = 'ledger'))
    - (select coalesce(sum(calls), 0) from ledger_hours)
"""
# Judgements of the judge that no call in the ledger accounts for.
CALLS_MISSING = """
select count(*) from evaluation_scores where judge = 'test-model' and status = 'scored' and call_id is null
"""
# Judgements whose call served other work, or brought no answer.
CALLS_OF_OTHERS = """
select count(*) from evaluation_scores s join llm_calls c on c.id = s.call_id
where c.work_id <> 'evaluation_run:' || s.evaluation_run_id or c.status <> 'ok'
"""
ASKED_TWICE = """
select count(*) from llm_calls c where status = 'ok' and not exists (select 1 from evaluation_scores s where s.call_id = c.id)
and not exists (select 1 from correction_dimension_results r where r.call_id = c.id)
"""
# Messages with a log of their own observation, and a verdict in it.
OBSERVED_ONCE = """
select count(distinct l.message_id) from correction_logs l join observed_messages o on o.session = l.session and o.message_id = l.message_id
join correction_dimension_results r on r.log_id = l.id and r.status = 'scored'
"""
# Verdicts whose call served another message.
VERDICTS_OF_OTHERS = """
select count(*) from correction_dimension_results r join correction_logs l on l.id = r.log_id join llm_calls c on c.id = r.call_id
where c.work_id <> 'gate_session:' || l.session
"""

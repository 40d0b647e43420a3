"""``make chaos``: mixed load while everything that can fail does, then the invariants. ``python -m tests.chaos --seconds 300 --seed 1``.

PostgreSQL, Redis, two Celery workers with a beat and a model server run here. Agents take turns, people ask for other behaviour, agents
debate, swarms summarise, experiments are played, evaluations are judged live and in batches, messages are observed. Meanwhile the model
server limits, is overloaded, hangs, answers nonsense and drops connections; workers are killed, and some have a clock that is an hour and
a half off; Redis and PostgreSQL are restarted, and PostgreSQL says that its disk is full. Then the faults end, the work that is left is
done, and nothing may be lost, said twice or made up.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.batch_server import BatchServer
from tests.database_file import make_tables
from tests.llm_server import example_of
from tests.machinery import Plumbline, Postgres, Redis, kill_at_once, running

DRAIN = 240  # seconds that the rest of the work may take when the faults are over
FAULTS: tuple[tuple[float, dict[str, Any]], ...] = (  # of a call: its share, and what the server does
    (0.04, {"status": 429, "headers": {"retry-after": "0"}}),
    (0.04, {"status": 529}),
    (0.03, {"text": "I would rather not answer in JSON."}),
    (0.02, {"drop": True}),
    (0.01, {"hang": True}),
)
DJANGO = "import django; django.setup()\n"
SET_UP = (
    DJANGO
    + """
from django.core.management import call_command
from agents.kit.llm.prices import seed_prices
from agents.models import ChannelMember
from agents.swarm.assign import assign_swarms
from agents.swarm.phases import ensure_default_swarm
from correction.models import AgentEvaluationConfig
from tests.factories import make_agent, make_channel, talk
agents = [make_agent(f"agent-{n}") for n in range(6)]
for n, agent in enumerate(agents):
    room, dm = make_channel(f"room-{n}"), make_channel(f"dm-{n}", kind="dm")
    talk(agent, [f"line {i} of {agent.slug}, about drawer {i * 7}" for i in range(12)], channel=room)
    ChannelMember.objects.bulk_create(ChannelMember(channel=channel, agent=agent) for channel in (room, dm))
    AgentEvaluationConfig.objects.create(
        agent=agent, gate_mode=("observe", "enforce")[n % 2], observe_sample_rate=1, gate_adherence_enabled=True,
        behavior_requesters="anyone",
    )
assign_swarms(agent=agents[5], swarms=[ensure_default_swarm()])
"""
)
WAVE = (
    DJANGO
    + """
import sys
from django.db import transaction
from agents.debates.debate import ask_rounds
from agents.debates.starting import start_debate
from agents.models import Agent, Channel
from agents.turn.receive import receive_message
from agents.turn.send_message import append, start_turn
from correction.gate.observe import queue_ingested
from evaluation.experiments.starting import start_experiment
from evaluation.experiments.scenario import Scenario
from evaluation.propositions.files import load_all
from evaluation.runs.planning import RunSpec, create_run, make_plan
wave, files = int(sys.argv[1]), load_all()
agents = list(Agent.objects.filter(slug__startswith="agent-").order_by("slug"))
for n, agent in enumerate(agents):
    room, dm = Channel.objects.get(slug=f"room-{n}"), Channel.objects.get(slug=f"dm-{n}")
    start_turn(agent=agent, channel=room, idempotency_key=f"turn-{wave}-{n}")
    receive_message(channel=dm, outsider="Bob", text=f"Could you be a bit shorter? ({wave})", idempotency_key=f"ask-{wave}-{n}")
    receive_message(channel=dm, outsider="Bob", text=f"I keep my keys in drawer {wave}.", idempotency_key=f"say-{wave}-{n}")
    with transaction.atomic():
        if not room.messages.filter(text=f"line {wave} of the day").exists():
            queue_ingested([append(channel=room, agent=agent, text=f"line {wave} of the day")])
    create_run(make_plan(RunSpec(agent=agent, dimensions=("adherence",), samples=3, seed=wave, batch=n == 0), files=files))
if wave % 3 == 0:
    ask_rounds(start_debate(topic=f"Should drawer {wave} be painted?", mode="delphi", agents=["agent-0", "agent-1", "agent-2"], rounds=1))
if wave % 5 == 0:
    start_experiment(Scenario.model_validate({
        "name": f"wave-{wave}", "cast": ["agent-3", "agent-4"], "environments": 1, "agents": 2, "facilitator": "Robin",
        "steps": [{"says": "Where are the keys?"}],
        "arms": [{"name": "without", "overrides": {"stages": []}}, {"name": "with", "overrides": {"stages": ["gate"]}}],
        "dimensions": [{"id": "adherence"}],
    }))
"""
)
SUM_UP = (
    DJANGO
    + """
from datetime import timedelta
from django.utils import timezone
from agents.kit.ops.sums import roll_up, rollups
for summed_rows in rollups():
    roll_up(summed_rows, now=timezone.now() + timedelta(hours=2))
"""
)
WAITING = (
    DJANGO
    + """
from agents.kit.work.queues import work_models
for model in work_models():
    rows = model._default_manager.filter(status__in=[model.Status.PENDING, model.Status.RUNNING])
    if n := rows.count():
        print(model.__name__, n, *rows.values_list("pk", flat=True)[:3])
"""
)
CLOCK = """
import runpy, sys, time_machine
from datetime import datetime, timedelta
time_machine.travel(datetime.now() + timedelta(hours={}), tick=True).start()
sys.argv = {!r}
runpy.run_module("celery", run_name="__main__")
"""
WATCH = """
create table stored_again (score bigint);
create function note_stored_again() returns trigger language plpgsql as $$
begin insert into stored_again values (old.id); return new; end $$;
create trigger stored_again before update on evaluation_scores for each row
  when (old.status <> 'pending') execute function note_stored_again();
create function disk_full() returns trigger language plpgsql as $$
begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
"""
FULL = ("messages", "evaluation_scores", "llm_calls", "runs", "run_steps")
AGENTS = 6
# What each wave asks for: how many for each agent, and how many there are. (Debates and experiments come with some waves.)
ASKED: dict[str, tuple[float, str]] = {
    "turns": (1, "select count(*) from runs where idempotency_key like 'turn-%'"),
    "evaluations": (
        1,
        "select count(distinct (agent_id, seed)) from evaluation_runs where status = 'completed' and agent_id is not null",
    ),
    "observations": (
        0.5,  # of every other agent: the gate of the rest enforces
        "select count(*) from observed_messages o join messages m on m.id = o.message_id where m.text like 'line % of the day'",
    ),
    "requests": (2, "select count(*) from behavior_requests"),
}
# What must be 0 at the end, by what it would mean.
TWICE = "select count(*) from (select {columns} from {table} group by {columns} having count(*) > 1) x"
CRASHED = "select count(*) from {} where status = 'errored'"
INVARIANTS = {
    "judgements that were stored twice": "select count(*) from stored_again",
    "judgements still to come in a completed evaluation": """select count(*) from evaluation_scores s
        join evaluation_runs r on r.id = s.evaluation_run_id where s.status = 'pending' and r.status = 'completed'""",
    "scores of the model without an answer in the ledger": """select count(*) from evaluation_scores
        where judge = 'test-model' and status = 'scored' and call_id is null""",
    "scores whose call served other work, or failed": """select count(*) from evaluation_scores s join llm_calls c on c.id = s.call_id
        where c.work_id <> 'evaluation_run:' || s.evaluation_run_id or (s.status = 'scored' and c.status <> 'ok')""",
    "verdicts of the gate whose call served another message": """select count(*) from correction_dimension_results r
        join correction_logs l on l.id = r.log_id join gate_sessions s on s.id = l.session_id join llm_calls c on c.id = r.call_id
        where c.work_id <> 'gate_session:' || s.uuid""",
    "scores outside 0 to 9": "select count(*) from evaluation_scores where score not between 0 and 9",
    "conversations with a place taken twice or left empty": """select count(*) from (select channel_id, count(*) n,
        count(distinct position) d, max(position) - min(position) + 1 w from messages group by 1) x where n <> d or n <> w""",
    "gate sessions that said something other than one of their attempts": """select count(*) from gate_sessions s where s.sent is not null
        and not exists (select 1 from correction_logs l where l.session_id = s.id and l.attempt = s.sent)""",
    "messages observed twice": TWICE.format(table="observed_messages", columns="message_id"),
    "requests read twice": TWICE.format(table="behavior_requests", columns="message_id, agent_id"),
    "traits of one name at one agent": TWICE.format(table="traits", columns="agent_id, lower(name)"),
    "seats of a debate asked twice in a round": TWICE.format(table="debate_turns", columns="debate_id, round, seat_id"),
    "turns that crashed": CRASHED.format("runs"),
    "evaluations that crashed": CRASHED.format("evaluation_runs"),
    "requests that crashed": CRASHED.format("behavior_requests"),
    "debates that crashed": CRASHED.format("debates"),
    "experiments that crashed": CRASHED.format("experiments"),
    "calls that the sums of hours lack": """select
        (select count(*) from llm_calls where created_at < (select closed_before from rollups where name = 'ledger'))
        - (select coalesce(sum(calls), 0) from ledger_hours)""",
}


class Chaos:
    """The installation, and everything that is done to it. Random choices come from `seed`."""

    def __init__(self, folder: Path, postgres: Postgres, redis: Redis, server: BatchServer, seed: int) -> None:
        self.postgres, self.redis, self.server, self.random = postgres, redis, server, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.faulty = True
        self.draws = random.Random(seed + 1)
        server.respond = self.respond
        self.plumbline = Plumbline(
            folder,
            {
                "DATABASE_URL": postgres.url,
                "CELERY_BROKER_URL": redis.url,
                "ANTHROPIC_BASE_URL": server.url,
                "ANTHROPIC_API_KEY": "sk-test",
                "JUDGE_MODEL": "test-model",
                "ACTOR_MODEL": "test-model",
                "PROPOSITION_DIRS": "",
                "SENTRY_DSN": "",
                "LOG_LEVEL": "ERROR",
                "WORKER_SWEEP": "2",
                "WORKER_GRACE": "1",
                "WORKER_THREADS": "4",
                "LLM_BATCH_POLL_SECONDS": "2",
                "LLM_EVALUATION_DEADLINE": "5",
                "TURN_STEP_DEADLINE": "5",
            },
        )
        self.workers: dict[str, Any] = {}

    def respond(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """A fault now and then, else an answer that fits: an agent speaks once, a judge gives what the schema allows."""
        if self.faulty and threading.current_thread() is not threading.main_thread():  # which ends batches
            draw = self.draws.random()
            for share, fault in FAULTS:
                if draw < share:
                    return fault
                draw -= share
        if "tools" in body:
            text = str(body["messages"])
            speak = next((tool for tool in body["tools"] if tool["name"] == "send_message"), None)
            if speak is None or "tool_result" in text:
                return {"text": "I am done."}
            said = example_of(speak["input_schema"])
            channel = re.findall(r"(?:room|dm|talk|debate|chat)-[\w-]+", text)
            said |= {"text": f"Drawer {self.draws.randrange(10_000)}."} | (
                {"channel": channel[-1]} if "channel" in said and channel else {}
            )
            return {"tool_calls": [("send_message", said)], "latency": 0.05}
        return None

    # -- what happens
    def start_worker(self, name: str, *, hours: float = 0) -> None:
        words = f"celery -A project worker --concurrency 3 --hostname {name}@%h --loglevel error".split()
        if hours:
            self.workers[name] = self.plumbline.start(name, "-c", CLOCK.format(hours, words))
        else:
            self.workers[name] = self.plumbline.start(name, "-m", *words)

    def kill_worker(self) -> None:
        name = self.random.choice(list(self.workers))
        kill_at_once(self.workers[name])
        self.start_worker(name, hours=self.random.choice([0, 0, 1.5, -1.5]))

    def restart_redis(self) -> None:
        self.redis.stop()
        time.sleep(self.random.random())
        self.redis.start()

    def restart_postgres(self) -> None:
        self.postgres.stop()
        time.sleep(2 * self.random.random())
        self.postgres.start()

    def fill_disk(self) -> None:
        for table in FULL:
            self.execute(
                f"create trigger full_disk before insert on {table} for each statement execute function disk_full()"
            )
        time.sleep(3 * self.random.random())
        for table in FULL:
            self.execute(f"drop trigger full_disk on {table}")

    def end_batches(self) -> None:
        self.server.end()

    def wave(self, number: int) -> None:
        """More work; where the database is away just now it is asked for again, under the same keys."""
        for _ in range(20):
            process = self.plumbline.start(f"wave-{number}", "-c", WAVE, str(number))
            if process.wait(120) == 0:
                return
            time.sleep(1)
        raise AssertionError(self.plumbline.log_of(f"wave-{number}"))

    # -- looking
    def execute(self, statement: str) -> None:
        with psycopg.connect(self.postgres.url, connect_timeout=5) as connection:
            connection.execute(statement)

    def number(self, query: str) -> int:
        with psycopg.connect(self.postgres.url, connect_timeout=5) as connection:
            row = connection.execute(query).fetchone()
        return int(row[0]) if row and row[0] is not None else 0

    def waiting(self) -> str:
        (self.plumbline.folder / "waiting.log").write_text("")
        self.plumbline.start_and_wait("waiting", "-c", WAITING)
        return self.plumbline.log_of("waiting").strip()

    def play(self, seconds: float, say: Callable[[str], None]) -> dict[str, int]:
        """Return the invariants that do not hold, with how often, after so many seconds of load and faults, each at least once.

        They are looked at when nothing waits any more.
        """
        self.execute("drop schema public cascade; create schema public")
        make_tables(self.postgres.url)
        self.plumbline.start_and_wait("set-up", "-c", SET_UP)
        self.execute(WATCH)
        self.plumbline.celery("beat", "beat", "--schedule", str(self.plumbline.folder / "schedule"))
        for name in ("a", "b"):
            self.start_worker(name)
        stop = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            load = thread.submit(self._load, stop)
            try:
                self._break_things(seconds, say)
            finally:
                stop.set()
            load.result()
        self.faulty = False
        say("no more faults; the rest of the work is done")
        self._drain(say)
        self.plumbline.start_and_wait("sums", "-c", SUM_UP)
        asked = AGENTS * self.done["waves of work"]
        lost = {f"{name} lost": round(share * asked) - self.number(query) for name, (share, query) in ASKED.items()}
        return {
            name: n
            for name, n in {**lost, **{name: self.number(query) for name, query in INVARIANTS.items()}}.items()
            if n
        }

    def _break_things(self, seconds: float, say: Callable[[str], None]) -> None:
        happenings = [self.kill_worker, self.restart_redis, self.restart_postgres, self.fill_disk, self.end_batches]
        until = time.monotonic() + seconds
        first = self.random.sample(happenings, len(happenings))
        while first or time.monotonic() < until:
            happening = first.pop() if first else self.random.choice([self.kill_worker, *happenings])
            say(f"{max(0, until - time.monotonic()):4.0f} s left: {happening.__name__.replace('_', ' ')}")
            happening()
            self.done[happening.__name__] += 1
            time.sleep(self.random.uniform(1, max(2, seconds / 25)))

    def _load(self, stop: threading.Event) -> None:
        wave = 0
        while not stop.is_set():
            self.wave(wave)
            self.done["waves of work"] += 1
            wave += 1
            stop.wait(2)

    def _drain(self, say: Callable[[str], None]) -> None:
        for name in list(self.workers):  # with the right time, and no death that is still to be noticed
            kill_at_once(self.workers[name])
            self.start_worker(name)
        until = time.monotonic() + DRAIN
        while left := self.waiting():
            assert time.monotonic() < until, f"still waiting after {DRAIN} s:\n{left}"
            self.end_batches()
            self.execute(
                "update llm_batches set next_look_at = now() where status = 'pending'"
            )  # they need not wait ten minutes
            for table in ("behavior_requests", "behavior_effects", "description_updates"):  # nor these up to thirty
                later = "status = 'pending' and lease_expires_at is not null"
                self.execute(f"update {table} set lease_expires_at = now() where {later}")  # noqa: S608 (ours)
            time.sleep(2)
        say("nothing waits")

    def figures(self) -> Iterator[str]:
        for what, table in (
            ("messages said", "messages"),
            ("turns", "runs"),
            ("evaluations", "evaluation_runs"),
            ("judgements", "evaluation_scores"),
            ("messages observed", "observed_messages"),
            ("gate attempts", "correction_logs"),
            ("behaviour requests", "behavior_requests"),
            ("debates", "debates"),
            ("experiments", "experiments"),
            ("summaries", "dialog_summaries"),
            ("batches", "llm_batches"),
            ("model calls", "llm_calls"),
        ):
            yield f"{self.number(f'select count(*) from {table}'):7,} {what}"  # noqa: S608 (ours)
        unanswered = self.number("select count(*) from llm_calls where status <> 'ok'")
        yield f"{unanswered:7,} of them without an answer"


@contextmanager
def installed(folder: Path, seed: int) -> Iterator[Chaos]:
    postgres, redis = Postgres(), Redis(folder)
    with running(postgres), running(redis), BatchServer() as server:
        chaos = Chaos(folder, postgres, redis, server, seed)
        try:
            yield chaos
        finally:
            chaos.plumbline.stop()


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    os.environ.setdefault("DEBUG", "1")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300, help="of load and faults (default: 300)")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of the order of faults (default: another each time)"
    )
    given = parser.parse_args()

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    say(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder, installed(Path(folder), given.seed) as chaos:
        broken = chaos.play(given.seconds, say)
        say("")
        for line in chaos.figures():
            say(line)
        say("")
        say(", ".join(f"{n} × {name.replace('_', ' ')}" for name, n in sorted(chaos.done.items())))
        for name in INVARIANTS:
            say(f"{'✗' if name in broken else '✓'} {broken.get(name, 0):5,} {name}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()

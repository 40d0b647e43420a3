"""Every list of the console with 100,000 rows, on PostgreSQL: milliseconds in the server, CPU and statements per page.

``DATABASE_URL=postgres://… make bench ARGS="--only lists"``. Makes a database of its own on that server and drops it; BENCH_DATABASE
names one that an earlier trial filled, to be measured again and left. BENCH_LISTS names some of the lists. On a machine that does
other work, too, the CPU of this process says what a page takes by itself, beside what PostgreSQL takes.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.bench.scale import throwaway_database

ROWS, AGENTS = 100_000, 100
REPEATS = 5
FLOOR = 300  # milliseconds
PAGES = ("", "?p=3")  # besides the searches and filters below
ABOUT = "about"  # in BENCH_LISTS: the pages about one thing
DAYS = 60  # over which the rows of the logs are spread
SPREAD = (
    *("llm_calls", "gate_sessions", "correction_logs", "intervention_logs", "runs", "evaluation_runs"),
    *("behavior_requests", "drift_alerts", "label_sets", "observed_messages"),
)
FILTERED = {
    "auth.user": ("?q=user777",),
    "agents.agent": ("?q=agent%207", "?q=nobody"),
    "agents.channel": ("?q=room-777",),
    "agents.message": ("?agent__id__exact={agent}", "?q=people", "?tag=build%3D42"),
    "kit.llmcall": ("?agent__id__exact={agent}", "?status__exact=timeout"),
    "agents.run": ("?agent__id__exact={agent}", "?status__exact=errored"),
    "evaluation.evaluationrun": ("?agent__id__exact={agent}", "?dimension=fluency"),
    "evaluation.evaluationscore": ("?run={run}",),
    "change.baseline": ("?agent__id__exact={agent}",),
    "change.change": ("?agent__id__exact={agent}", "?verdict__exact=drifted", "?current__exact=1"),
    "change.driftalert": ("?agent__id__exact={agent}",),
    "correction.agentevaluationconfig": ("?q=agent-777",),
    "correction.correctionlog": (
        "?session__agent__id__exact={agent}",
        "?outcome=corrected",
        "?failed=any",
        "?mark=none",
    ),
    "behavior.behaviorrequest": ("?status__exact=rejected", "?agent__id__exact={agent}"),
    "interventions.interventionlog": ("?agent__id__exact={agent}",),
}
OTHERS = {  # pages that list or sum up without being the list of a table
    "home": "index",
    "review": "review",
    "overview": "evaluation_drift_overview",
    "propositions": "evaluation_proposition_changelist",
    "import": "agents_import_add",
    "compare": "evaluation_evaluationrun_compare",
    "start an experiment": "experiments_experiment_add",
    "start a debate": "debates_debate_add",
}
ABOUT_AN_AGENT = {  # pages of the agent with the first id, by what they are called with
    "pk": (
        "agents_agent_change",
        "agents_channel_chats",
        "correction_agentevaluationconfig_gate",
        "evaluation_agent_evaluate",
    ),
    "slug": ("evaluation_proposition_change", "evaluation_proposition_new"),
}
ABOUT_A_ROW = {  # pages of the newest row of a table
    "alerts.alert": ("alerts_alert_change",),
    "agents.channel": ("agents_channel_transcript",),
    "agents.import": ("agents_import_change",),
    "agents.message": ("evaluation_ci_test",),
    "agents.run": ("agents_run_change",),
    "behavior.behaviorrequest": ("behavior_behaviorrequest_change",),
    "change.driftalert": ("change_driftalert_change",),
    "correction.correctionlog": ("correction_correctionlog_change",),
    "debates.debate": ("debates_debate_change",),
    "evaluation.evaluationrun": ("evaluation_evaluationrun_change",),
    "experiments.experiment": ("experiments_experiment_change",),
    "swarm.dialogstate": ("swarm_dialogstate_change",),
    "swarm.swarm": ("swarm_swarm_change",),
}


def measure_lists() -> None:
    """Fill a database, measure, print."""
    from rich.console import Console
    from rich.table import Table

    console, kept = Console(width=150), os.environ.get("BENCH_DATABASE", "")
    with throwaway_database(os.environ.get("DATABASE_URL", ""), kept) as url:
        os.environ.update(
            DATABASE_URL=url,
            DJANGO_SETTINGS_MODULE="project.settings",
            PROPOSITION_DIRS="",
            SECURE_SSL_REDIRECT="false",
            ALLOWED_HOSTS="testserver",
        )
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connection, connections

        if not kept:
            call_command("migrate", verbosity=0)
            _fill(console.print)
            with connection.cursor() as cursor:
                cursor.execute("vacuum analyze")
        table = Table(
            "Page",
            "Milliseconds in the server",
            "CPU of it",
            "Statements",
            "Floor",
            title=f"{ROWS:,} rows each",
            title_justify="left",
        )
        for row in _pages():
            table.add_row(*row)
            console.print(*row[:3], sep=": ")
        connections.close_all()
    console.print(table)
    console.print(
        f"Median of {REPEATS} after a warm-up, least and most in brackets; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}."
    )


def _fill(say: Callable[[str], None]) -> None:
    from tests.listed_rows import MAKERS, people

    cast = people(AGENTS)
    for label, make in MAKERS.items():
        begun = time.perf_counter()
        make(cast, 0, ROWS)
        say(f"{label}: {ROWS:,} rows in {time.perf_counter() - begun:.0f} s")
    spread(say)


def spread(say: Callable[[str], None]) -> None:
    """Let the rows of the logs be of the last `DAYS` days instead of now, and sum up, as workers do."""
    from django.db import connection

    from agents.kit.ops.sums import LEDGER, roll_up
    from correction.gate.statistics import GATE

    begun = time.perf_counter()
    with connection.cursor() as cursor:
        for table in SPREAD:
            newest = f"(select max(id) from {table})"  # noqa: S608 (the names are ours)
            apart = f"(interval '{DAYS} days' / greatest(1, (select count(*) from {table})))"  # noqa: S608
            cursor.execute(f"update {table} set created_at = now() - ({newest} - id) * {apart}")  # noqa: S608
    hours = sum(roll_up(summed_rows) for summed_rows in (LEDGER, GATE))
    say(f"logs spread over {DAYS} days, {hours:,} hours summed up in {time.perf_counter() - begun:.0f} s")


def _pages() -> Iterator[tuple[str, ...]]:
    from django.apps import apps
    from django.urls import reverse

    from agents.kit.models import WorkerHeartbeat
    from agents.models import Agent
    from evaluation.models import EvaluationRun
    from tests.console import signed_in, superuser
    from tests.listed_rows import MAKERS

    now = datetime.now(UTC)
    alive = {"host": "bench", "pid": 1, "kind": "work", "started_at": now, "seen_at": now + timedelta(hours=1)}
    WorkerHeartbeat.objects.update_or_create(name="bench", defaults=alive)
    client = signed_in(superuser(f"root{time.time_ns()}"))
    ids = {"agent": Agent.objects.earliest("pk").pk, "run": EvaluationRun.objects.latest("pk").pk}
    some = os.environ.get("BENCH_LISTS", "")
    for label in some.split(",") if some else (*MAKERS, *OTHERS, ABOUT):
        if label == ABOUT:
            for url in _pages_about(Agent.objects.get(pk=ids["agent"])):
                yield _measured(client, url)
            continue
        if label in OTHERS:
            yield _measured(client, reverse(f"admin:{OTHERS[label]}"))
            continue
        model = apps.get_model(label)
        url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for query in (*PAGES, *FILTERED.get(label, ())):
            yield _measured(client, url + query.format(**ids))


def _pages_about(agent: Any) -> Iterator[str]:
    """Yield the addresses of pages about one thing: an agent, a person, the newest row of a table."""
    from django.apps import apps
    from django.urls import reverse

    from agents.chat import begin_chat
    from correction.behavior.models import BehaviorRequest
    from correction.behavior.scope import person_of

    yield reverse("admin:agents_channel_chat", args=[begin_chat(agent).pk])
    for field, names in ABOUT_AN_AGENT.items():
        for name in names:
            yield reverse(f"admin:{name}", args=[getattr(agent, field)])
    person = BehaviorRequest.objects.latest("pk")
    yield reverse("admin:behavior_behaviorrequest_person", args=[person_of(person)])
    for label, names in ABOUT_A_ROW.items():
        row = apps.get_model(label)._default_manager.latest("pk")
        for name in names:
            yield reverse(f"admin:{name}", args=[row.pk])


def _measured(client: Any, url: str) -> tuple[str, ...]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured:
        answer = client.get(url)
    if answer.status_code != 200:
        return url, f"answered {answer.status_code}", "", "", ""
    taken, worked = [], []
    for _ in range(REPEATS):
        begun, cpu = time.perf_counter(), time.process_time()
        client.get(url)
        taken.append((time.perf_counter() - begun) * 1000)
        worked.append((time.process_time() - cpu) * 1000)
    median = statistics.median(taken)
    told = f"{median:.0f} ({min(taken):.0f} to {max(taken):.0f}){'' if median <= FLOOR else ' TOO SLOW'}"
    return url, told, f"{statistics.median(worked):.0f}", str(len(captured)), f"<= {FLOOR} ms"

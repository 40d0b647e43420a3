"""What is measured on the two machines: throughput with more workers, an upgrade while they serve, a backup that is restored."""

# ruff: noqa: S608 (the statements are ours)
from __future__ import annotations

import json
import os
import re
import signal
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.hosts.installation import CLONE, Say, on, page_blocks
from tests.hosts.machines import PYTHON, Machine, run
from tests.machinery import wait_until

AGENTS, SAMPLES, LINES = 12, 25, 30  # messages judged of each, and there
AGENTS_OF_SCALE = 48  # a worker has four evaluations in hand: four workers have three times that to do
WORKERS = {1: (1, 0), 2: (1, 1), 4: (2, 2)}  # processes on one and on two
MAKE_AGENTS = """
from agents.models import Agent
from tests.factories import make_agent, make_channel, talk
there = Agent.objects.filter(slug__startswith="agent-").count()
if not there:
    make_channel("office"), make_channel("load")
for n in range(there, {agents}):
    talk(make_agent(f"agent-{{n}}"), [f"Line {{i}} of agent {{n}}, about drawer {{i * 7}}." for i in range({lines})],
         channel=make_channel(f"room-{{n}}"))
"""
MAKE_TOKEN = """
from django.contrib.auth.models import User
from agents.kit.models import ApiToken
print("token", ApiToken.make(user=User.objects.get(username="ada"), name="trial", expires_at=None)[1])
"""
EVALUATE = """
from django.db import transaction
from agents.models import Agent
from evaluation.propositions.files import load_all
from evaluation.runs.planning import RunSpec, create_run, make_plan
files = load_all()
with transaction.atomic():  # workers see all of them at once
    for agent in Agent.objects.filter(slug__startswith="agent-").order_by("slug"):
        create_run(make_plan(RunSpec(agent=agent, dimensions=("adherence",), samples={samples}, seed={seed}), files=files))
"""
UNFINISHED = "select count(*) from evaluation_runs where status in ('pending', 'running')"


def shell(machine: Machine, code: str) -> str:
    """Run Python code in the installation."""
    (machine.root / "root/code.py").write_text(code)
    return machine.run('plumbline shell --verbosity 0 --command "$(cat /root/code.py)"')


def query(machine: Machine, statement: str) -> str:
    (machine.root / "root/query.sql").write_text(statement)
    return machine.run("runuser -u postgres -- psql -qAt -d plumbline < /root/query.sql").strip()


def wait_for_evaluations(one: Machine) -> None:
    wait_until(lambda: query(one, UNFINISHED) == "0", timeout=600, what="all evaluations have ended")


# -- scale
def scale(one: Machine, two: Machine, *, rounds: int, in_flight: int, say: Say) -> None:
    """Judge the same work with 1, 2 and 4 worker processes, and say how many calls a second each makes."""
    shell(one, MAKE_AGENTS.format(agents=AGENTS_OF_SCALE, lines=LINES))
    for machine in (one, two):
        machine.run(f"echo LLM_MAX_CONCURRENCY={in_flight} >> /etc/plumbline.env")
        machine.run("systemctl stop plumbline-turns 'plumbline-worker@*' plumbline-web.socket plumbline-web")
    rates: dict[int, list[Rates]] = {count: [] for count in WORKERS}
    for seed in range(rounds):
        for count, processes in WORKERS.items():
            found = rates_with(one, two, processes, seed=10 * seed + count)
            rates[count].append(found)
            say(f"{count} worker processes: {found.steady:.1f} calls a second, {found.whole:.1f} with begin and end")
    for title in ("steady", "whole"):
        medians = {count: statistics.median(getattr(found, title) for found in rates[count]) for count in WORKERS}
        for count, median in medians.items():
            say(f"{title}, {count}: {median:.1f} calls a second (median of {rounds}), {median / medians[1]:.2f} ×")


class Rates(NamedTuple):
    """Calls a second: while every worker has work (from a tenth of the calls to seven tenths), and from the first to the last."""

    steady: float
    whole: float


def rates_with(one: Machine, two: Machine, processes: tuple[int, int], *, seed: int) -> Rates:
    for machine, count in zip((one, two), processes, strict=True):
        names = " ".join(f"plumbline-worker@{number}" for number in range(1, count + 1))
        machine.run(f"[ -z '{names}' ] || systemctl start {names} || true")  # or systemd tries again
    wait_until(lambda: workers_alive(one) == sum(processes), timeout=300, what="the workers are ready")
    before = int(query(one, "select coalesce(max(id), 0) from llm_calls"))
    shell(one, EVALUATE.format(samples=SAMPLES, seed=seed))
    wait_for_evaluations(one)
    for machine in (one, two):
        machine.run("systemctl stop 'plumbline-worker@*'")
    found = query(one, f"select extract(epoch from created_at) from llm_calls where id > {before} order by created_at")
    at = [float(moment) for moment in found.split()]
    first, last = len(at) // 10, len(at) * 7 // 10
    return Rates(steady=(last - first) / (at[last] - at[first]), whole=len(at) / (at[-1] - at[0]))


def workers_alive(one: Machine) -> int:
    recent = "seen_at > now() - interval '30 seconds' and stopped_at is null"
    return int(query(one, f"select count(*) from worker_heartbeats where {recent}"))


# -- upgrade
NEXT_FIELD = "    trial_note = models.TextField(null=True, blank=True, editable=False)\n\n    class Meta:\n"
NEXT_MIGRATION = """
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("agents", "{before}")]
    operations = [
        migrations.AddField("message", "trial_note", models.TextField(null=True, blank=True, editable=False)),
        AddIndexConcurrently("message", models.Index(fields=["trial_note"], name="message_trial_note")),
    ]
"""


def publish_next_version(*machines: Machine) -> None:
    """Add the version v2 to each machine's repository: a column more in `messages`, and an index of it."""
    with tempfile.TemporaryDirectory() as folder:
        run("git", "clone", "--quiet", "--branch", "v1", str(machines[0].root) + CLONE, f"{folder}/next")
        source = Path(folder, "next/agents/models/conversations.py")
        head, message, rest = source.read_text().partition("class Message(")
        source.write_text(head + message + rest.replace("    class Meta:\n", NEXT_FIELD, 1))
        migrations = Path(folder, "next/agents/migrations")
        before = max(path.stem for path in migrations.glob("0*.py"))
        (migrations / "0099_trial.py").write_text(NEXT_MIGRATION.format(before=before))
        git = ["git", "-C", f"{folder}/next", "-c", "user.name=Trial", "-c", "user.email=trial@example.org"]
        run(*git, "add", "--all")
        run(*git, "commit", "--quiet", "--message", "Add a column for a trial")
        run(*git, "tag", "v2")
        for machine in machines:
            run(*git, "push", "--quiet", str(machine.root) + CLONE, "v2")


def upgrade(one: Machine, two: Machine, *, rate: float, say: Say) -> None:
    """Follow the page's upgrade while requests come in and evaluations are judged; say what failed, waited and was lost."""
    publish_next_version(one, two)
    shell(one, MAKE_AGENTS.format(agents=AGENTS, lines=LINES))
    token = shell(one, MAKE_TOKEN).split()[-1]
    with requests(one, token, rate) as sent:
        time.sleep(20)
        shell(one, EVALUATE.format(samples=SAMPLES, seed=1))
        begun = time.time()
        for title, script in page_blocks("upgrade"):
            for machine in {"one": [one], "two": [two], "every machine": [one, two]}[title]:
                at = time.time()
                machine.run(on(machine, script))
                say(f"upgrade, {title}: on {machine.name}, {time.time() - at:.0f} s")
        upgraded = time.time()
        shell(one, EVALUATE.format(samples=SAMPLES, seed=2))
        time.sleep(20)
    wait_for_evaluations(one)
    report_upgrade(one, two, sent.read_text(), begun, upgraded, say)


def report_upgrade(one: Machine, two: Machine, sent: str, begun: float, upgraded: float, say: Say) -> None:
    report_requests(sent, begun, upgraded, say)
    stored = int(query(one, "select count(*) from messages where external_id like 'load-%'"))
    accepted = sum(
        kind == "ingest" and 200 <= status < 300 for _, kind, status, _ in map(json.loads, sent.splitlines())
    )
    say(f"messages accepted {accepted}, stored {stored}")
    say(
        "evaluations by status: "
        + query(one, "select status, count(*) from evaluation_runs group by 1").replace("\n", ", ")
    )
    say(
        "judgements by status: "
        + query(one, "select status, count(*) from evaluation_scores group by 1").replace("\n", ", ")
    )
    say(
        "calls: "
        + query(one, "select status, count(*) from llm_calls where purpose = 'evaluation' group by 1").replace(
            "\n", ", "
        )
    )
    say(
        "columns of messages: "
        + query(one, "select count(*) from information_schema.columns where column_name = 'trial_note'")
    )
    for machine in (one, two):
        folders = machine.run(
            "for unit in web turns worker@1; do readlink /proc/$(systemctl show -p MainPID --value plumbline-$unit)/cwd; done"
        )
        say(f"{machine.name} runs in {sorted(set(folders.split()))}")


class requests:
    """Requests to nginx on a machine, from another process there, while the block lasts; their lines are in the file it returns."""

    def __init__(self, machine: Machine, token: str, rate: float) -> None:
        self.machine, self.output = machine, machine.folder / "requests"
        self.script = f"cd /opt/judge && exec {PYTHON} -m tests.hosts.load http://127.0.0.1:8080 {token} {rate:g}"

    def __enter__(self) -> Path:
        self.process = self.machine.start(self.script, self.output)
        return self.output

    def __exit__(self, *error: object) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(10)
        wait_until(lambda: not self.is_running(), timeout=150, what="the last requests are answered")

    def is_running(self) -> bool:
        return self.machine.run("pgrep -f '[t]ests.hosts.load' || true").strip() != ""


def report_requests(lines: str, begun: float, ended: float, say: Say) -> None:
    sent = [json.loads(line) for line in lines.splitlines() if line.startswith("[")]
    for line in lines.splitlines():
        if not line.startswith("["):
            say(line)
    for name, chosen in (
        ("before", [one for one in sent if one[0] < begun]),
        ("during", [one for one in sent if begun <= one[0] < ended]),
        ("after", [one for one in sent if one[0] >= ended]),
    ):
        if not chosen:
            continue
        seconds = sorted(one[3] for one in chosen)
        failed = [one for one in chosen if one[2] == 0 or one[2] >= 400]
        length = max(one[0] for one in chosen) - min(one[0] for one in chosen) or 1
        say(
            f"{name}: {len(chosen)} requests in {length:.0f} s ({len(chosen) / length:.1f} a second), {len(failed)} failed; "
            f"median {statistics.median(seconds):.2f} s, 95 % within {seconds[int(0.95 * len(seconds))]:.2f} s, "
            f"slowest {seconds[-1]:.1f} s; "
            f"{dict(Counter(re.sub(':.*', '', one[1]) for one in chosen))}"
        )
        for one in failed[:10]:
            say(f"  failed: {one}")


# -- backup and restore
MESSAGES = 1_000_000
FILL = """
from django.db import connection
from agents.alerts.models import Receiver
from agents.models import Channel, Message
from tests.bench.scale_rows import _defaults
from tests.factories import make_agent
for n in range(100):
    make_agent(f"support-{{n}}")
with connection.cursor() as cursor:
    for model in (Channel, Message):
        _defaults(cursor, model)
    cursor.execute("insert into channels (slug, name, topic, tags, next_position, created_at) "
        "select 'talk-' || n, 'Talk ' || n, '', '{{}}', 10, now() from generate_series(1, {messages} / 10) n")
    cursor.execute("insert into messages "
        "(channel_id, position, external_id, agent_id, outsider, text, payload, tags, said_at, created_at) "
        "select c.id, p, 'm-' || c.id || '-' || p, case when p % 2 = 1 then a.ids[1 + c.id % 100] end, "
        "case when p % 2 = 0 then 'Customer' else '' end, "
        "md5(c.id::text || p) || ' ' || repeat('some words as people write them ', 3) || md5(p || '-' || c.id), "
        "'{{}}', '{{}}', now(), now() "
        "from channels c, generate_series(0, 9) p, (select array_agg(id order by id) ids from agents) a where c.slug like 'talk-%'")
Receiver.objects.create(name="pager", channel="webhook", address="http://10.77.0.1:{port}/hook")
"""
ALERT = """
from agents.alerts.raising import raise_alert
raise_alert(kind="budget", about="{about}", title="The budget of {about} is reached")
"""
HOOK = """
import http.server, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        open("/root/hooks", "a").write(self.headers["webhook-id"] + chr(10))
        self.send_response(204); self.end_headers()
http.server.ThreadingHTTPServer(("10.77.0.1", {port}), Hook).serve_forever()
"""
HOOK_PORT = 9100
# A line for each table: its name, its rows, and a sum over the text of every row.
DIGESTS = """
create or replace function pg_temp.digests() returns table (name text, rows bigint, digest numeric) language plpgsql as $$
declare t text; begin
  for t in select tablename from pg_tables where schemaname = 'public' order by 1 loop
    return query execute format('select %L, count(*), coalesce(sum(hashtextextended(x::text, 0)::numeric), 0) from %I x', t, t);
  end loop;
end $$;
select * from pg_temp.digests();
"""
SERVICES = "plumbline-web.socket plumbline-web plumbline-turns 'plumbline-worker@*' plumbline-beat"


def restore(one: Machine, two: Machine, *, say: Say) -> None:
    """Back up a database of a million messages, restore it into an empty server, and say what is the same and what goes on."""
    (one.root / "root/hook.py").write_text(HOOK.format(port=HOOK_PORT))
    one.run("touch /root/hooks")
    one.start("exec python3 /root/hook.py", one.folder / "hook.log")
    for machine in (one, two):
        machine.run(
            "echo WEBHOOK_PRIVATE_HOSTS=10.77.0.0/24 >> /etc/plumbline.env && systemctl restart plumbline-turns 'plumbline-worker@*'"
        )
    begun = time.monotonic()
    shell(one, FILL.format(messages=MESSAGES, port=HOOK_PORT))
    query(one, "vacuum analyze")
    size = query(one, "select pg_size_pretty(pg_database_size('plumbline'))")
    say(f"filled in {time.monotonic() - begun:.0f} s: {query(one, 'select count(*) from messages')} messages, {size}")
    shell(one, ALERT.format(about="sent before"))
    wait_until(lambda: len(hooks(one)) == 1, timeout=240, what="the first alert arrives")
    for machine in (one, two):
        machine.run(f"systemctl stop {SERVICES} || true")
    agents = MAKE_AGENTS.format(agents=AGENTS, lines=LINES)
    shell(one, agents + EVALUATE.format(samples=SAMPLES, seed=1) + ALERT.format(about="waiting"))
    before = query(one, DIGESTS)
    timed_blocks(one, "backup", say)
    say(one.run("ls -l --block-size=1 /var/backups/plumbline").strip())
    start_services(one, two)
    wait_until(lambda: len(hooks(one)) == 2, timeout=240, what="the second alert arrives")
    say(f"webhooks before the loss: {hooks(one)}")
    for machine in (one, two):
        machine.run(f"systemctl stop {SERVICES} || true")
    one.run(
        "pg_dropcluster --stop 15 main && pg_createcluster 15 main --start && tar -xzf /var/backups/plumbline/settings.tgz -C /"
    )
    one.run("systemctl restart postgresql")
    begun = time.monotonic()
    timed_blocks(one, "restore", say)
    after = query(one, DIGESTS)
    differing = set(before.splitlines()) ^ set(after.splitlines())
    say(f"{len(after.splitlines())} tables, rows and digests the same: {not differing} {sorted(differing)[:4]}")
    start_services(one, two)
    wait_for_evaluations(one)
    say(f"from the first command to all evaluations judged: {time.monotonic() - begun:.0f} s")
    say("evaluations: " + query(one, "select status, count(*) from evaluation_runs group by 1"))
    say(
        one.run(
            "curl -s -o /dev/null -w 'sign-in page %{http_code}' -H 'Host: plumbline.example.org' -H 'X-Forwarded-Proto: https' http://127.0.0.1:8080/admin/login/"
        )
    )
    say(f"webhooks at the end: {hooks(one)}")


def hooks(one: Machine) -> list[str]:
    return (one.root / "root/hooks").read_text().split()


def timed_blocks(one: Machine, part: str, say: Say) -> None:
    for _, script in page_blocks(part):
        for line in script.replace("\\\n", " ").splitlines():
            begun = time.monotonic()
            one.run(f"cd /var/backups/plumbline 2> /dev/null || true\n{line}")
            say(f"{time.monotonic() - begun:6.1f} s  {line}")


def start_services(one: Machine, two: Machine) -> None:
    one.run("systemctl start plumbline-web.socket plumbline-web plumbline-turns plumbline-worker@1 plumbline-beat")
    two.run("systemctl start plumbline-web.socket plumbline-web plumbline-turns plumbline-worker@1 plumbline-worker@2")

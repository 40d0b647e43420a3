"""Conversations are sampled at the door: decided once, before anything of them is stored, alike on every machine."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from agents.kit.models import TraceSpan
from agents.models import Agent, Channel
from agents.transcripts.ingest import Ingested, NewMessages, ingest_messages
from agents.transcripts.sampling import conversation_fraction
from correction.config.configure import configure
from correction.models import SampledDay
from correction.sampling import KEEPING, Sampler
from evaluation.statistics.bootstrap import Observation, bootstrap_mean
from tests.agents.api.test_spans import URL as SPANS
from tests.agents.api.test_spans import call
from tests.agents.transcripts.test_exports import batch
from tests.api_client import Program, program
from tests.console import superuser
from tests.factories import MONDAY, make_agent

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
KEY = "a key that machines share"


@pytest.fixture(autouse=True)
def draws_like_everywhere(settings: Settings) -> None:
    """Conversations are drawn by a key, which each installation has its own of."""
    settings.SECRET_KEY = KEY


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def set_up(agent: Agent | None, **changes: Any) -> None:
    configure(agent=agent, changes=changes, user=None, reason="")


def spoken(channel: str, number: int = 1, agent: str = "ada") -> dict[str, Any]:
    who = {"agent": agent} if agent else {"outsider": "Customer"}
    return {"external_id": f"m-{number}", "channel": channel, "text": "Good morning.", **who}


def send(*messages: dict[str, Any]) -> Ingested:
    return ingest_messages(NewMessages.model_validate({"messages": list(messages)}))


def talks(number: int, prefix: str = "talk") -> list[str]:
    return [f"{prefix}-{n}" for n in range(number)]


def stored() -> set[str]:
    return set(Channel.objects.values_list("slug", flat=True))


def below(slugs: list[str], rate: float) -> set[str]:
    return {slug for slug in slugs if conversation_fraction(slug, KEEPING) < rate}


def test_a_share_of_conversations_is_kept_whole_with_its_chance(ada: Agent) -> None:
    set_up(ada, ingest_keep="rate", ingest_rate="0.25")
    slugs = talks(200)

    answer = send(*[spoken(slug, number) for slug in slugs for number in (1, 2, 3)])

    assert stored() == below(slugs, 0.25)
    assert 30 < len(stored()) < 70
    assert set(Channel.objects.values_list("inclusion_probability", flat=True)) == {0.25}
    assert (answer.received, answer.imported) == (600, 3 * len(stored()))
    assert answer.sampled_out == 600 - answer.imported
    assert "ingest_keep of ada is rate: 0.25" in answer.notes[0]


def test_what_was_left_out_stays_out_and_what_was_begun_goes_on(ada: Agent) -> None:
    set_up(ada, ingest_keep="rate", ingest_rate="0.5")
    slugs = talks(40)
    first = send(*[spoken(slug) for slug in slugs])

    assert send(*[spoken(slug) for slug in slugs]).duplicates == first.imported
    assert send(*[spoken(slug, 2) for slug in slugs]).imported == first.imported
    set_up(ada, ingest_rate="0.00001")
    assert send(*[spoken(slug, 3) for slug in slugs]).imported == first.imported


def test_nothing_is_left_out_where_no_setting_says_so(ada: Agent) -> None:
    answer = send(*[spoken(slug) for slug in talks(20)])
    assert (answer.imported, answer.sampled_out) == (20, 0)
    assert set(Channel.objects.values_list("inclusion_probability", flat=True)) == {1.0}


@pytest.mark.parametrize(
    ("agents", "rate"),
    [(["ada"], 0.1), (["bob"], 0.6), (["ada", "bob"], 0.6), (["ada", "carl"], 1.0), ([""], 0.3), (["", "ada"], 0.1)],
)
def test_of_several_agents_the_largest_rate_decides(ada: Agent, agents: list[str], rate: float) -> None:
    set_up(ada, ingest_keep="rate", ingest_rate="0.1")
    set_up(make_agent("bob"), ingest_keep="rate", ingest_rate="0.6")
    set_up(make_agent("carl"), ingest_keep="all")
    set_up(None, ingest_keep="rate", ingest_rate="0.3")
    slugs = talks(100)

    send(*[spoken(slug, number, agent) for slug in slugs for number, agent in enumerate(agents)])

    assert stored() == below(slugs, rate)
    assert set(Channel.objects.values_list("inclusion_probability", flat=True)) == {rate}


def test_a_quota_takes_its_rate_from_the_days_before(ada: Agent) -> None:
    set_up(ada, ingest_keep="quota", ingest_quota=50)
    with time_machine.travel(MONDAY, tick=False):
        send(*[spoken(slug) for slug in talks(400, "monday")])
    with time_machine.travel(MONDAY + DAY, tick=False):
        tuesday = talks(400, "tuesday")
        answer = send(*[spoken(slug) for slug in tuesday[:300]])
        again = send(*[spoken(slug, 2) for slug in tuesday])  # those left out count no second time
    with time_machine.travel(MONDAY + 2 * DAY, tick=False):
        send(spoken("wednesday"))

    days = list(SampledDay.objects.order_by("day"))
    assert [day.rate for day in days[:2]] == [1.0, 0.125]
    kept = len(below(tuesday, 0.125))
    assert 35 < kept < 70
    assert (days[0].kept, days[0].seen) == (400, 400.0)
    assert (days[1].kept, days[1].seen) == (kept, 8.0 * kept)
    assert days[2].rate == 50 / max(400.0, 8.0 * kept)  # of the fuller day
    assert answer.imported < again.imported == kept
    assert "quota: 50 a day, today's rate 0.125" in again.notes[0]


def test_who_chooses_a_conversation_s_id_does_not_choose_whether_it_is_kept(settings: Settings) -> None:
    slugs = talks(200)
    kept = below(slugs, 0.5)
    settings.SECRET_KEY = "another key"
    assert 60 < len(kept - below(slugs, 0.5)) + len(below(slugs, 0.5) - kept) < 140


def quota_days() -> list[SampledDay]:
    return list(SampledDay.objects.order_by("day"))


def test_a_quota_counts_conversations_that_last_once_each_day(ada: Agent) -> None:
    set_up(ada, ingest_keep="quota", ingest_quota=20, ingest_rate="0.05")
    users = talks(400, "user")
    for number in range(5):
        with time_machine.travel(MONDAY + number * DAY, tick=False):
            send(*[spoken(user, 3 * number, "") for user in users])  # a person's words come first, by themselves
            send(*[spoken(user, 3 * number + 1) for user in users])
            send(*[spoken(user, 3 * number + 2) for user in users])
    kept = Channel.objects.count()
    assert 10 < kept < 35
    assert sum(day.kept for day in quota_days()) == kept
    for day in quota_days():
        assert day.rate == pytest.approx(0.05, rel=0.5)
        assert day.seen == pytest.approx(400, rel=0.5)


def test_a_quiet_day_does_not_open_the_next(ada: Agent) -> None:
    set_up(ada, ingest_keep="quota", ingest_quota=20)
    conversations = {0: 900, 4: 900, 5: 3, 6: 3, 7: 900}
    for number, count in conversations.items():
        with time_machine.travel(MONDAY + number * DAY, tick=False):
            answer = send(*[spoken(slug) for slug in talks(count, f"day-{number}")])
    assert answer.imported < 60
    assert quota_days()[-1].rate == pytest.approx(20 / 900, rel=0.7)


def test_a_flood_is_kept_at_a_falling_rate_that_each_conversation_stores(ada: Agent) -> None:
    set_up(ada, ingest_keep="quota", ingest_quota=20, ingest_rate="0.5")
    for number in range(100):
        send(*[spoken(slug) for slug in talks(100, f"flood-{number}")])
    assert Channel.objects.count() < 900  # 5,000 at the day's rate
    assert Channel.objects.values("inclusion_probability").distinct().count() > 4
    assert sum(channel.inclusion_weight for channel in Channel.objects.all()) == pytest.approx(10_000, rel=0.3)


def test_a_machine_whose_clock_is_ahead_changes_no_other_s_rate(ada: Agent) -> None:
    set_up(ada, ingest_keep="quota", ingest_rate="0.02")
    SampledDay.objects.create(agent=ada, day=(MONDAY + DAY).date(), rate=1.0)
    with time_machine.travel(MONDAY, tick=False):
        answer = send(*[spoken(slug) for slug in talks(200)])
    assert answer.imported < 20


def test_what_begins_late_by_a_larger_rate_keeps_the_mean_right(ada: Agent) -> None:
    set_up(ada, ingest_keep="rate", ingest_rate="0.1")
    send(*[spoken(slug) for slug in talks(900)])
    before = stored()
    set_up(ada, ingest_rate="0.5")
    send(*[spoken(slug, 2) for slug in talks(900)])
    assert before < stored()
    assert set(Channel.objects.values_list("inclusion_probability", flat=True)) == {0.5}
    assert sum(channel.inclusion_weight for channel in Channel.objects.all()) == pytest.approx(900, rel=0.2)
    set_up(ada, ingest_rate="0.2")
    send(*[spoken(slug, 3) for slug in talks(900)])
    assert set(Channel.objects.values_list("inclusion_probability", flat=True)) == {0.5}


@pytest.mark.parametrize(("first", "then"), [("ada", ""), ("", "ada")])
def test_a_person_s_message_lets_no_conversation_in_that_the_agent_s_rate_leaves_out(
    ada: Agent, first: str, then: str
) -> None:
    set_up(ada, ingest_keep="rate", ingest_rate="0.1")
    set_up(make_agent("bob"), ingest_keep="rate", ingest_rate="0.4")
    slugs = talks(100)
    send(*[spoken(slug, 1, first) for slug in slugs])
    answer = send(*[spoken(slug, 2, then) for slug in slugs])
    assert stored() == below(slugs, 0.1)
    assert "ada is rate: 0.1" in answer.notes[0]


def test_an_agent_that_is_kept_whole_keeps_a_person_s_words_where_the_defaults_say_so(ada: Agent) -> None:
    set_up(ada, ingest_keep="rate", ingest_rate="0.1")
    set_up(None, ingest_keep="all")
    assert send(*[spoken(slug, 1, "") for slug in talks(50)]).sampled_out == 0


def test_a_file_makes_its_conversations_certain(ada: Agent, tmp_path: Path) -> None:
    set_up(ada, ingest_keep="rate", ingest_rate="0.2")
    slugs = talks(60)
    send(*[spoken(slug) for slug in slugs])
    assert 0 < len(stored()) < 60
    lines = [json.dumps({"channel": slug, "agent": "ada", "text": "Good evening.", "id": "m-2"}) for slug in slugs]
    file = tmp_path / "log.jsonl"
    sampled = min(stored())
    file.write_text(json.dumps({"channel": sampled, "agent": "ada", "text": "Good morning.", "id": "m-1"}))  # an export
    call_command("import_transcript", str(file))
    assert Channel.objects.get(slug=sampled).inclusion_probability == 0.2
    file.write_text("\n".join(lines))
    call_command("import_transcript", str(file))
    assert stored() == set(slugs)
    assert set(Channel.objects.values_list("inclusion_probability", flat=True)) == {1.0}


def test_pruning_leaves_the_days_that_fix_a_rate(ada: Agent) -> None:
    today = timezone.now().date()
    for age in (1, 7, 40):
        SampledDay.objects.create(agent=ada, day=today - age * DAY, rate=0.5)
    call_command("prune_logs", "--older-than", "1d")
    assert {today - day.day for day in quota_days()} == {DAY, 7 * DAY}


def test_a_day_without_a_kept_conversation_does_not_stop_a_quota(ada: Agent) -> None:
    set_up(ada, ingest_keep="quota", ingest_quota=2)
    SampledDay.objects.create(agent=ada, day=MONDAY.date(), rate=0.001)
    with time_machine.travel(MONDAY + DAY, tick=False):
        send(spoken("tuesday"))
    assert SampledDay.objects.get(day=(MONDAY + DAY).date()).rate == 0.004


def test_the_day_keeps_the_rate_that_its_first_conversation_fixed(ada: Agent) -> None:
    set_up(ada, ingest_keep="quota", ingest_rate="0.5")
    send(spoken("first"))
    set_up(ada, ingest_rate="1")
    slugs = talks(50)
    send(*[spoken(slug) for slug in slugs])
    assert stored() - {"first"} == below(slugs, 0.5)


def test_the_answer_names_only_channels_that_are_there(client: Program, ada: Agent) -> None:
    set_up(ada, ingest_keep="rate", ingest_rate="0.5")
    answer = client.post("/api/messages/ingest/", {"messages": [spoken(slug) for slug in talks(20)]}).json()
    assert set(answer["channels"]) == stored()
    assert answer["sampled_out"] == 20 - len(stored())


def test_spans_that_are_left_out_leave_nothing_behind(client: Program, ada: Agent) -> None:
    set_up(ada, ingest_keep="rate", ingest_rate="0.5")
    slugs = talks(40)
    spans = [
        {**call(number, ("user", "Late?"), answer="A bit.", gen_ai__conversation__id=slug), "traceId": f"t{number}"}
        for number, slug in enumerate(slugs)
    ]

    answer = client.post(SPANS, batch(*spans)).json()

    assert stored() == below(slugs, 0.5)
    assert set(answer["channels"]) == stored()
    assert set(TraceSpan.objects.values_list("conversation", flat=True)) <= stored()
    assert set(Channel.objects.values_list("inclusion_probability", flat=True)) == {0.5}
    assert (answer["spans"], answer["imported"]) == (40, 2 * len(stored()))
    assert answer["sampled_out"] == 80 - answer["imported"]


@pytest.mark.parametrize("keep", ["all", "rate", "quota"])
def test_the_door_costs_as_many_queries_for_a_thousand_as_for_one(ada: Agent, keep: str) -> None:
    def cost(slugs: list[str]) -> list[str]:
        with CaptureQueriesContext(connection) as seen:
            send(*[spoken(slug) for slug in slugs])
        return [
            query["sql"]
            for query in seen.captured_queries
            if any(table in query["sql"] for table in ("agent_evaluation_config", "sampled_days"))
        ]

    set_up(ada, ingest_keep=keep)
    send(spoken("first"))
    few, many = cost(talks(1, "few")), cost(talks(900, "many"))
    assert len(few) == len(many) == {"all": 3, "rate": 5, "quota": 7}[keep]


MACHINE = """
import sys, django; django.setup()
from agents.transcripts.ingest import NewMessages, ingest_messages
from agents.models import Agent
from correction.config.configure import configure
if sys.argv[1] == "0":
    ada = Agent.objects.create(slug="ada", display_name="Ada", system_prompt="You are Ada.")
    configure(agent=ada, changes={"ingest_keep": "quota", "ingest_rate": "0.4"})
print("ready", flush=True); sys.stdin.readline()
for n in range(20):
    messages = [
        {"external_id": f"{sys.argv[1]}-{n}", "channel": f"talk-{n}-{i}", "agent": "ada", "text": "Good morning."} for i in range(10)
    ]
    ingest_messages(NewMessages.model_validate({"messages": messages}))
print("done")
"""


@pytest.mark.slow
def test_two_processes_keep_the_same_conversations_and_count_each_once(database_file: Path) -> None:
    environment = os.environ | {
        "DATABASE_URL": f"sqlite:///{database_file}",
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "SECRET_KEY": KEY,
    }
    machines = []
    for number in ("0", "1"):
        machine = subprocess.Popen(
            [sys.executable, "-c", MACHINE, number],
            env=environment | {"PYTHONHASHSEED": number},  # Python's own hash differs between them
            cwd=settings.BASE_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert machine.stdout is not None
        assert machine.stdout.readline() == "ready\n"
        machines.append(machine)
    for machine in machines:
        assert machine.stdin is not None
        machine.stdin.write("\n")
        machine.stdin.flush()
    for machine in machines:
        assert machine.communicate(timeout=120)[0] == "done\n"
    with closing(sqlite3.connect(database_file)) as database:
        talks_by_sender = []
        for sender in ("0", "1"):
            rows = database.execute(
                "SELECT slug FROM messages JOIN channels ON channels.id = channel_id WHERE external_id LIKE ?",
                [f"{sender}-%"],
            )
            talks_by_sender.append({slug for (slug,) in rows})
        days = database.execute("SELECT rate, kept FROM sampled_days").fetchall()
    slugs = [f"talk-{n}-{i}" for n in range(20) for i in range(10)]
    assert talks_by_sender[0] == talks_by_sender[1] == below(slugs, 0.4)
    assert days == [(0.4, len(talks_by_sender[0]))]


def day_of_talks(seed: int) -> dict[str, list[int]]:
    """2,000 conversations of 1 to 12 messages with scores that lie near each other; those named both are worse, and longer."""
    rng = random.Random(seed)
    day = {}
    for number in range(2_000):
        is_of_both = number % 4 == 0
        middle = rng.gauss(4.5 if is_of_both else 7, 1.5)
        length = rng.randint(1, 12) + 4 * is_of_both
        name = f"{'both' if is_of_both else 'ada'}-{seed}-{number}"
        day[name] = [min(9, max(0, round(rng.gauss(middle, 1)))) for _ in range(length)]
    return day


@pytest.mark.slow
def test_a_quota_s_95_percent_interval_holds_the_day_s_mean(ada: Agent) -> None:
    bob = make_agent("bob")
    set_up(ada, ingest_keep="quota", ingest_quota=150)
    set_up(bob, ingest_keep="quota", ingest_quota=150)
    held, kept, misses = 0, 0, []
    for seed in range(200):
        SampledDay.objects.all().delete()
        yesterday = (timezone.now() - DAY).date()
        for agent, seen in ((ada, 2_000), (bob, 500)):  # so bob's rate is larger, and decides where both speak
            SampledDay.objects.create(agent=agent, day=yesterday, rate=1.0, kept=seen, seen=seen)
        day = day_of_talks(seed)
        speakers = {slug: [ada.pk, bob.pk] if slug.startswith("both") else [ada.pk] for slug in day}
        draws = Sampler().draw(speakers)
        sample = [
            Observation(float(score), 1 / draw.probability, slug)
            for slug, draw in draws.items()
            if draw.kept
            for score in day[slug]
        ]
        estimate = bootstrap_mean(sample)
        assert estimate.interval is not None
        assert estimate.value is not None
        truth = fmean(score for scores in day.values() for score in scores)
        kept += estimate.n
        held += estimate.interval.low <= truth <= estimate.interval.high
        misses.append(estimate.value - truth)
    print(f"held {held} of 200, {kept / 200:.0f} conversations a day, bias {fmean(misses):+.3f}")  # noqa: T201
    assert 186 <= held <= 194  # 93 to 97 %
    assert abs(fmean(misses)) < 0.03

"""Conversations are sampled at the door: decided once, before anything of them is stored, alike on every machine."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.kit.models import TraceSpan
from agents.models import Agent, Channel
from agents.transcripts.ingest import Ingested, NewMessages, ingest_messages
from agents.transcripts.sampling import conversation_fraction
from correction.config.configure import configure
from correction.models import SampledDay
from correction.sampling import KEEPING
from tests.agents.api.test_spans import URL as SPANS
from tests.agents.api.test_spans import batch, call
from tests.api_client import Program, program
from tests.console import superuser
from tests.factories import MONDAY, make_agent

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


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


def test_a_quota_takes_its_rate_from_the_day_before(ada: Agent) -> None:
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
    assert days[2].rate == min(1.0, 50 / (8.0 * kept))
    assert answer.imported < again.imported == kept
    assert "quota: 50 a day, today's rate 0.125" in again.notes[0]


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


SCRIPT = """
import json, sys
from agents.transcripts.sampling import conversation_fraction
print(json.dumps([s for s in json.load(sys.stdin) if conversation_fraction(s, "keep") < 0.3]))
"""


def test_two_machines_keep_the_same_conversations() -> None:
    slugs = [*talks(300), "Straße", "x" * 120]
    code = "import os, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'project.settings'; django.setup()" + SCRIPT
    kept = []
    for seed in ("0", "1"):  # of Python's own hash, which differs between processes
        ran = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(slugs),
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "DEBUG": "1"},
        )
        kept.append(json.loads(ran.stdout))
    assert kept[0] == kept[1] == [slug for slug in slugs if conversation_fraction(slug, KEEPING) < 0.3]

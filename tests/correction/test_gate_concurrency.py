"""A hundred gated drafts of twenty agents at once on PostgreSQL: no deadlock, nothing lost, nothing said or logged twice."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.models import Agent, Channel, Message
from agents.turn.pipeline import SendResult
from correction.config.configure import ConfigConflict, config_history
from correction.config.configure import configure as save
from correction.config.settings import resolve_config
from correction.models import CorrectionLog
from tests.correction.gating import DIMENSIONS, configure, join, judge, logs, send
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.service, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names no PostgreSQL: threads cannot share an in-memory SQLite")


def one_message(job: tuple[Agent, Channel, str]) -> SendResult:
    """A draft that fails, and its retry in the same session."""
    agent, channel, key = job
    try:
        first = send(agent, channel, f"bad {key}", idempotency_key=f"{key}-1")
        if first.committed:
            return first
        return send(agent, channel, f"good {key}", session=first.session, idempotency_key=f"{key}-2")
    finally:
        connection.close()


def test_a_hundred_messages_of_twenty_agents(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY = 100
    llm_server.respond = judge(lambda d, tail: 2 if d == "fluency" and "bad " in tail else 8)
    channels = [make_channel(name) for name in ("office", "attic", "kitchen")]
    agents = [make_agent(f"agent-{n}") for n in range(20)]
    for agent in agents:
        configure(agent, *DIMENSIONS, gate_deadline_seconds=30, gate_total_deadline_seconds=60)
        for channel in channels:
            join(agent, channel)
    jobs = [(agents[n % 20], channels[n % 3], f"k{n}") for n in range(100)]

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(one_message, jobs))

    assert Counter(r.outcome for r in results) == {"passed_after_retry": 100}
    assert sorted(Message.objects.values_list("text", flat=True)) == sorted(f"good k{n}" for n in range(100))
    assert Counter((log.attempt, log.outcome, log.committed) for log in logs()) == {
        (1, "corrected", False): 100,
        (2, "passed_after_retry", True): 100,
    }
    assert LLMCall.objects.count() == llm_server.calls == 600
    for channel in channels:
        positions = Message.objects.filter(channel=channel).order_by("position").values_list("position", flat=True)
        assert list(positions) == list(range(1, len(positions) + 1))


def test_twenty_that_continue_one_session_at_once_all_get_a_clear_result(llm_server: LLMServer) -> None:
    agent, channel = make_agent(), make_channel()
    join(agent, channel)
    configure(agent, "fluency", max_correction_attempts=10, gate_deadline_seconds=30, gate_total_deadline_seconds=60)
    llm_server.respond = judge({"fluency": 2})
    session = send(agent, channel, "first").session

    def again(number: int) -> SendResult:
        try:
            return send(agent, channel, f"draft {number}", session=session)
        finally:
            connection.close()

    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(again, range(10)))

    assert {r.outcome for r in results} <= {"corrected", "forced_through"}
    assert all(entry.status == "ran" for r in results for entry in r.trace if entry.stage == "gate")
    logged = CorrectionLog.objects.order_by("attempt").filter(session__uuid=session)
    assert list(logged.values_list("attempt", flat=True)) == list(range(1, len(logged) + 1))
    assert CorrectionLog.objects.count() == 11


def test_of_eight_who_save_the_same_page_one_wins() -> None:
    ada = make_agent()

    def decide(number: int) -> str:
        try:
            save(agent=ada, changes={"max_correction_attempts": number}, seen={"max_correction_attempts": None})
        except ConfigConflict as conflict:
            return str(conflict)
        finally:
            connection.close()
        return "saved"

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(decide, range(3, 11)))

    assert said.count("saved") == 1
    kept = resolve_config(ada)["max_correction_attempts"]
    assert said[kept - 3] == "saved"
    assert all(f"was set to {kept}" in one for one in said if one != "saved")


def test_two_writers_of_different_fields_do_not_overwrite_each_other() -> None:
    ada, names = make_agent(), ("gate_adherence_threshold", "max_correction_attempts")

    def write(name: str) -> None:
        try:
            for number in range(10):
                save(agent=ada, changes={name: number})
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, names))

    config = resolve_config(ada)
    assert [config[name] for name in names] == [9, 9]
    assert len(config_history(ada)) == 21, "an entry for the row and for each change"

"""The console's first page as a whole: how many statements it takes."""

from __future__ import annotations

import re

import pytest

from agents.models import Agent, Run
from correction.config.configure import configure
from evaluation.calibration.models import JudgeCalibration
from tests.agents.test_admin_home import HOME, worker
from tests.console import plain, queries, read, signed_in, superuser
from tests.correction.judged_drafts import make_log
from tests.evaluation.change.measured import flattened
from tests.evaluation.judged import LLM
from tests.evaluation.test_admin_home import alert, judged
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
MOST = 20


def add_agents(number: int) -> None:
    """Add agents that drifted, each with an alert, a model call, a checked draft and a turn that waits."""
    for _ in range(number):
        agent = make_agent(f"agent-{Agent.objects.count()}")
        flattened(agent)
        alert(agent)
        judged(agent=agent)
        make_log(agent)
        Run.objects.create(agent=agent, status="pending")


def test_the_first_page_takes_at_most_twenty_statements_however_many_agents() -> None:
    client = signed_in(superuser())
    worker()
    JudgeCalibration.objects.create(judge=LLM, procedure="plumbline", dimension="adherence", labels=40, kappa=0.7)
    add_agents(2)
    with_two = queries(client, HOME)
    add_agents(14)
    with_sixteen = queries(client, HOME)

    assert 'data-drifted="16" data-agents="16"' in read(client, HOME)
    assert len(with_sixteen) == len(with_two), "\n".join(with_sixteen)
    assert len(with_sixteen) <= MOST, "\n".join(with_sixteen)


def test_the_first_page_reads_no_scores_and_no_messages_so_their_number_is_no_matter() -> None:
    client = signed_in(superuser())
    worker()
    add_agents(2)
    read_tables = set()
    for sql in queries(client, HOME):
        read_tables |= set(re.findall(r'(?:FROM|JOIN) "(\w+)"', sql))

    assert "changes" in read_tables
    assert read_tables.isdisjoint({"evaluation_scores", "messages"})


def test_what_went_wrong_costs_the_first_page_no_more_for_many_rows() -> None:
    client = signed_in(superuser())
    add_agents(2)
    agents = list(Agent.objects.all())

    def fail(number: int) -> None:
        for n in range(number):
            agent = agents[n % 2]
            Run.objects.create(agent=agent, status="failed", error="no answer")
            judged("timeout", agent=agent)
            make_log(agent, source="external")
            configure(agent=agent, changes={"budget_enabled": True, "daily_budget_usd": f"{n + 1}"})

    fail(2)
    few = queries(client, HOME)
    fail(4)
    many = queries(client, HOME)

    assert "6 failures to look at" in plain(read(client, HOME))
    assert len(many) == len(few), "\n".join(many)
    assert len(many) <= MOST, "\n".join(many)

"""Evaluations are asked for while agents speak, on PostgreSQL: nobody ends the other's transaction, and nothing is planned twice."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from agents.models import Agent, Channel, Message
from agents.turn.send_message import send_message
from evaluation.models import EvaluationRun
from evaluation.runs.control import queue_run
from evaluation.runs.spec import RunSpec
from tests.agents.turn.playing import join
from tests.evaluation.conftest import PropositionFolder
from tests.factories import make_agent, make_channel, talk

pytestmark = [pytest.mark.service, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names no PostgreSQL: threads cannot share an in-memory SQLite")


@pytest.fixture
def rooms(propositions: PropositionFolder) -> list[Channel]:
    """Four agents in four channels; each said most in another one, so that each has them in an order of its own."""
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    apart = "target_type: environment\ninclude_personas: false\npropositions: [{id: apart, claim: apart}]\n"
    propositions.write("convergence/_default.yaml", apart)
    found = [make_channel(f"room-{n}") for n in range(4)]
    agents = [make_agent(f"agent-{n}") for n in range(4)]
    for room in found:
        join(room, *agents)
    for number, agent in enumerate(agents):
        for place, room in enumerate([*found[number:], *found[:number]]):
            talk(agent, [f"line {n}" for n in range(6 - place)], channel=room)
    return found


def closing(work: Callable[[], object]) -> object:
    """What a thread does, and then its connection is closed."""
    try:
        return work()
    finally:
        connection.close()


def test_plans_and_messages_do_not_end_each_other(rooms: list[Channel]) -> None:
    agents = list(Agent.objects.order_by("slug"))
    before = Message.objects.count()

    def plan(agent: Agent, seed: int) -> None:
        queue_run(RunSpec(agent=agent, dimensions=("adherence", "convergence"), seed=seed))

    def speak(agent: Agent, number: int) -> None:
        send_message(agent=agent, channel=rooms[number % 4], text=f"line {number}")

    jobs = [
        job
        for number in range(12)
        for agent in agents
        for job in (
            lambda a=agent, n=number: plan(a, n),
            *(lambda a=agent, n=number + k: speak(a, n) for k in range(3)),
        )
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(closing, jobs))

    assert EvaluationRun.objects.filter(agent__isnull=False).count() == 48
    assert EvaluationRun.objects.filter(channel__isnull=False).count() == 48, "a channel's run serves all its agents"
    assert Message.objects.count() == before + 144


def test_the_same_asked_for_by_many_at_once_is_planned_once(rooms: list[Channel]) -> None:
    wanted = RunSpec(agent=Agent.objects.get(slug="agent-0"), dimensions=("adherence", "convergence"))

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(closing, [lambda: queue_run(wanted)[1]] * 16))

    assert made.count(False) == 1, "one made it, the others took it up"
    assert EvaluationRun.objects.filter(agent__isnull=False).count() == 1
    assert EvaluationRun.objects.filter(channel__isnull=False).count() == 4

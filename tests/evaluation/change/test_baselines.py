"""Baselines: one current per agent, judge and dimension, replaced only by a capture that scored (S-6.5)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from agents.models import Agent
from agents.models.conversations import UnknownAgent, agents_named, find_agents
from evaluation.change.evidence import get_baseline
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from evaluation.runs.control import cancel_run, queue_run, resume_run
from evaluation.runs.execute import Captured, capture, existing, work_one
from evaluation.runs.spec import RunSpec
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(settings: Settings, propositions: PropositionFolder) -> Agent:
    settings.LLM_EVALUATION_RETRIES = 0
    propositions.claims("adherence/_default.yaml", "voice")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")
    agent = make_agent("ada")
    talk(agent, ["No.", "Never."])
    return agent


def captured(agent: Agent, **fields: Any) -> Captured:
    return capture([RunSpec(agent=agent, is_baseline=True, **fields)])[0]


def scores(llm_server: LLMServer, *, voice: int, varied: int) -> None:
    llm_server.respond = answers(lambda claim: voice if "voice" in claim else varied)


def test_a_capture_is_the_baseline_of_each_dimension_ac_6_5_1(llm_server: LLMServer, ada: Agent) -> None:
    scores(llm_server, voice=8, varied=4)

    run = captured(ada).summary.run

    assert run.is_baseline
    found = get_baseline(agent=ada, judge="test-model")
    assert {name: b.score for name, b in found.items()} == {"adherence": 8.0, "fluency": 4.0}
    assert {b.evaluation_run for b in found.values()} == {run}
    assert {b.persona_digest for b in found.values()} == {run.persona_digest}


def test_an_ordinary_run_is_no_baseline_ac_6_5_3(llm_server: LLMServer, ada: Agent) -> None:
    (found,) = capture([RunSpec(agent=ada)])

    assert not found.summary.run.is_baseline
    assert not Baseline.objects.exists()


def test_capturing_again_replaces_the_baseline_and_keeps_one_ac_6_5_7(llm_server: LLMServer, ada: Agent) -> None:
    scores(llm_server, voice=8, varied=4)
    captured(ada)
    scores(llm_server, voice=2, varied=3)

    second = captured(ada).summary.run

    assert Baseline.objects.count() == 2
    assert {b.score for b in Baseline.objects.all()} == {2.0, 3.0}
    assert set(Baseline.objects.values_list("evaluation_run", flat=True)) == {second.pk}
    assert EvaluationRun.objects.count() == 2, "the earlier run stays in the log"


def test_an_older_capture_that_ends_later_does_not_replace_a_newer_one(llm_server: LLMServer, ada: Agent) -> None:
    scores(llm_server, voice=8, varied=4)
    wanted = RunSpec(agent=ada, is_baseline=True)
    older = cancel_run(queue_run(wanted)[0])
    newer = captured(ada, dimensions=("adherence",)).summary.run
    scores(llm_server, voice=2, varied=3)

    resume_run(older)
    assert work_one(owner="worker:1:x")

    older.refresh_from_db()
    assert older.status == "completed"
    found = get_baseline(agent=ada, judge="test-model")
    assert (found["adherence"].score, found["adherence"].evaluation_run) == (8.0, newer)
    assert (found["fluency"].score, found["fluency"].evaluation_run) == (3.0, older), "of this there is no newer one"


def test_a_dimension_that_could_not_be_scored_keeps_its_baseline(llm_server: LLMServer, ada: Agent) -> None:
    scores(llm_server, voice=8, varied=4)
    first = captured(ada).summary.run
    good = answers(lambda claim: 2)
    llm_server.respond = lambda body: good(body) if "voice" in str(body) else {"status": 401}

    second = captured(ada).summary

    assert (second.run.status, second.dimensions["fluency"].score) == ("completed", None)
    found = get_baseline(agent=ada, judge="test-model")
    assert (found["adherence"].evaluation_run, found["fluency"].evaluation_run) == (second.run, first)


def test_there_is_one_current_baseline_in_the_database_itself(llm_server: LLMServer, ada: Agent) -> None:
    run = captured(ada).summary.run

    with pytest.raises(IntegrityError), transaction.atomic():
        Baseline.objects.create(
            agent=ada,
            judge="test-model",
            dimension="adherence",
            evaluation_run=run,
            score=1,
            captured_at=timezone.now(),
        )


# -- which agents
def test_agents_are_chosen_by_slug_or_name_ac_6_5_6() -> None:
    ada, bob = make_agent("ada"), make_agent("bob", display_name="Bob Vance")
    make_agent("gone", is_active=False)

    assert find_agents("all") == [ada, bob]
    assert find_agents(" bob vance , ADA, ada") == [bob, ada]
    assert [a.slug for a in find_agents("gone")] == ["gone"], "an inactive agent is measured when it is named"


def test_naming_many_agents_takes_as_many_statements_as_naming_one(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(5):
        make_agent(f"agent-{number}", display_name=f"Agent {number}")

    with django_assert_num_queries(2):
        agents = agents_named(["agent-0", "AGENT-1", "agent 2", "Agent 3", "nobody", "no-one"])

    assert [(name, agent.slug) for name, agent in agents.items()] == [
        ("agent-0", "agent-0"),
        ("AGENT-1", "agent-1"),
        ("agent 2", "agent-2"),
        ("Agent 3", "agent-3"),
    ]


def test_no_agent_is_not_all_agents() -> None:
    """An empty variable in a script must not measure, and pay for, everybody."""
    make_agent("ada")

    with pytest.raises(UnknownAgent, match="no agent named"):
        find_agents(" , ")


# -- a demo that was run before
def test_what_was_captured_before_is_found_as_long_as_nothing_changed(
    llm_server: LLMServer, ada: Agent, propositions: PropositionFolder
) -> None:
    spec = RunSpec(agent=ada, is_baseline=True)
    assert existing([spec]) is None
    run = captured(ada).summary.run

    found = existing([spec])

    assert found is not None
    assert [f.summary.run for f in found] == [run]
    propositions.claims("adherence/ada.yaml", "terse")
    assert existing([spec]) is None

"""The runs of a capture are made while the judge reads the first questions: what begins when, and what an end in between costs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agents.models import Agent
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from evaluation.runs.execute import capture
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers
from tests.evaluation.measuring import spec, statuses
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

SLUGS = ("ada", "bob", "cid")
MESSAGES = 8


@pytest.fixture
def three(propositions: PropositionFolder) -> list[Agent]:
    """Agents with eight messages each, in channels of their own, and one claim about them."""
    propositions.claims("adherence/_default.yaml", "voice")
    agents = [make_agent(slug) for slug in SLUGS]
    for agent in agents:
        talk(agent, [f"{agent.slug} says {n}" for n in range(MESSAGES)], channel=make_channel(agent.slug))
    return agents


def test_each_run_is_announced_once_before_anything_of_it_is_asked(llm_server: LLMServer, three: list[Agent]) -> None:
    announced: list[str] = []
    llm_server.respond = answers(lambda claim: 5)

    def prepared(runs: Sequence[EvaluationRun]) -> None:
        for run in runs:
            assert run.agent is not None
            announced.append(run.agent.slug)
            assert not any(f"{run.agent.slug} says" in str(body) for body in llm_server.bodies)
            assert run.scores.filter(status="pending").count() == MESSAGES

    capture([spec(agent) for agent in three], prepared=prepared)

    assert announced == list(SLUGS)


def test_an_interruption_while_runs_are_made_loses_nothing(llm_server: LLMServer, three: list[Agent]) -> None:
    llm_server.respond = answers(lambda claim: 5)

    def interrupted(runs: Sequence[EvaluationRun]) -> None:
        if any(run.agent == three[1] for run in runs):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture([spec(agent) for agent in three], prepared=interrupted)
    assert not EvaluationRun.objects.filter(agent=three[2]).exists()
    assert not EvaluationRun.objects.filter(status="running").exists()

    found = capture([spec(agent) for agent in three])

    assert [f.resumed for f in found] == [True, True, False]
    assert statuses() == {"scored": len(three) * MESSAGES}
    assert EvaluationRun.objects.count() == Baseline.objects.count() == len(three)

"""The runs of a capture are made while the judge reads the first questions: what begins when, and what an end in between costs."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agents.models import Agent, Channel
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from evaluation.propositions.files import PropositionError
from evaluation.runs.execute import capture
from tests import zygote
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers
from tests.evaluation.measuring import spec, statuses
from tests.evaluation.test_resume import ROOT, environment, script
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

SLUGS = ("ada", "bob", "cid")
MESSAGES = 8

THREE_AGENTS = f"""
from tests.factories import make_agent, make_channel, talk
for slug in {SLUGS}:
    talk(make_agent(slug), [f"line {{n}}" for n in range({MESSAGES})], channel=make_channel(slug))
"""
KILLED_WHILE_THE_SECOND_IS_MADE = """
import os, signal
from agents.models import Agent
from evaluation.runs.execute import capture
from evaluation.runs.planning import RunSpec
def prepared(runs):
    if any(run.agent.slug == "bob" for run in runs):
        os.kill(os.getpid(), signal.SIGKILL)
agents = Agent.objects.order_by("slug")
capture([RunSpec(agent=a, dimensions=("adherence",), is_baseline=True) for a in agents], prepared=prepared)
"""


@pytest.fixture
def three(propositions: PropositionFolder) -> list[Agent]:
    """Agents with eight messages each, in channels of their own, and one claim about them."""
    propositions.claims("adherence/_default.yaml", "voice")
    agents = [make_agent(slug) for slug in SLUGS]
    for agent in agents:
        talk(agent, [f"{agent.slug} says {n}" for n in range(MESSAGES)], channel=make_channel(agent.slug))
    return agents


@pytest.mark.django_db
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


@pytest.mark.django_db
def test_what_cannot_be_planned_is_refused_before_anything_is_asked(
    llm_server: LLMServer, three: list[Agent], propositions: PropositionFolder
) -> None:
    propositions.write("adherence/cid.yaml", "propositions:\n  - {id: odd, claim: odd, weight: heavy}\n")

    with pytest.raises(PropositionError, match="weight"):
        capture([spec(agent) for agent in three])

    assert not llm_server.calls
    assert not EvaluationRun.objects.exists()


@pytest.mark.django_db
def test_a_claim_edited_after_a_capture_is_asked_by_the_next_one_of_the_same_process(
    llm_server: LLMServer, three: list[Agent], propositions: PropositionFolder
) -> None:
    llm_server.respond = answers(lambda claim: 5)
    capture([spec(agent) for agent in three])
    before = llm_server.calls
    propositions.claims("adherence/_default.yaml", "moods")
    propositions.claims("adherence/cid.yaml", "own")

    capture([spec(agent) for agent in three])

    later = [str(body) for body in llm_server.bodies[before:]]
    assert len(later) == len(three) * MESSAGES
    assert all("claim moods of" in body and "claim voice of" not in body for body in later)
    assert sum("claim own of" in body for body in later) == MESSAGES


@pytest.mark.django_db
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


@pytest.mark.django_db
def test_a_judge_that_is_down_fails_the_runs_that_were_not_made_yet_too(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    agents = [make_agent(f"agent-{n}") for n in range(40)]
    for agent in agents:
        talk(agent, [f"line {n}" for n in range(20)], channel=Channel.objects.create(slug=agent.slug))
    llm_server.always(status=401)

    found = capture([spec(agent) for agent in agents])

    assert len(found) == len(agents)
    assert {f.summary.run.status for f in found} == {"failed"}
    assert all("answered none" in f.summary.run.error for f in found)
    assert llm_server.calls < 20 * len(agents) / 4, "the rest was not tried"


def test_a_capture_killed_while_runs_are_made_is_taken_up(migrated_file: Path, tmp_path: Path) -> None:
    database = tmp_path / "db.sqlite3"
    database.write_bytes(migrated_file.read_bytes())

    def run(code: str, server: LLMServer | None) -> subprocess.CompletedProcess[str]:
        return zygote.run(
            [sys.executable, *script(code)],
            cwd=ROOT,
            env=environment(database, server),
            capture_output=True,
            text=True,
            timeout=120,
        )

    with LLMServer() as server:
        server.respond = answers(lambda claim: 5)
        assert run(THREE_AGENTS, None).returncode == 0
        assert run(KILLED_WHILE_THE_SECOND_IS_MADE, server).returncode == -9
        with sqlite3.connect(database) as connection:
            assert connection.execute("select count(*) from evaluation_runs").fetchone() == (2,)

        done = run(KILLED_WHILE_THE_SECOND_IS_MADE.replace("SIGKILL", "SIGCONT"), server)

    assert done.returncode == 0, done.stderr
    with sqlite3.connect(database) as connection:
        runs = connection.execute("select status, count(*) from evaluation_runs group by 1").fetchall()
        left = connection.execute("select count(*) from evaluation_scores where status = 'pending'").fetchone()
        baselines = connection.execute("select count(distinct agent_id) from baselines").fetchone()
    assert (runs, left, baselines) == ([("completed", 3)], (0,), (3,))

"""Traces of evaluations: caught by a transport where Sentry's would send them.

AC-6.0.18, AC-6.1.9, AC-6.2.8, AC-6.3.9, AC-6.4.10, AC-6.5.9, AC-6.6.7.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pytest_django import Settings

from agents.models import Agent
from evaluation.models import EvaluationRun
from evaluation.runs.execute import capture, work_one
from evaluation.runs.spec import RunSpec
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.conversing import DRY, LOUD, diverse
from tests.evaluation.judging import prompt_of
from tests.evaluation.measuring import queue_baseline
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer
from tests.tracing import Caught, tree

pytestmark = pytest.mark.django_db

SECRETS = ("the raccoon is in the annex", "keeper of the stamp drawer", "claim voice", "sk-test-secret")


@pytest.fixture
def ada(settings: Settings, propositions: PropositionFolder) -> Agent:
    settings.LLM_EVALUATION_RETRIES = 0
    propositions.claims("adherence/_default.yaml", "voice")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")
    agent = make_agent("ada", system_prompt="You are Ada, keeper of the stamp drawer.")
    talk(agent, ["the raccoon is in the annex", "Never."])
    return agent


def test_a_baseline_is_one_trace_with_a_span_per_dimension_and_call_ac_6_0_18_ac_6_1_9_ac_6_3_9_ac_6_5_9(
    sentry: Caught, llm_server: LLMServer, ada: Agent
) -> None:
    """The run and its calls (AC-6.0.18), adherence (AC-6.1.9), fluency (AC-6.3.9), the whole capture (AC-6.5.9)."""
    capture([RunSpec(agent=ada, is_baseline=True)])

    (transaction,) = sentry.of_type("transaction")
    assert (transaction["transaction"], transaction["contexts"]["trace"]["op"]) == (
        "capture baselines",
        "evaluation.baseline",
    )
    assert tree(transaction) == Counter(
        {
            ("evaluation.run", "evaluation.baseline"): 1,
            ("evaluation.adherence", "evaluation.run"): 1,
            ("correction.config", "evaluation.adherence"): 1,  # whether the agent has a budget
            ("evaluation.fluency", "evaluation.run"): 1,
            ("llm.call", "evaluation.adherence"): 2,
            ("llm.call", "evaluation.fluency"): 1,
        }
    )
    assert transaction["contexts"]["trace"]["data"]["agents"] == ["ada"]


def test_pairs_conversations_and_ideas_have_spans_of_their_own_ac_6_2_8_ac_6_4_10_ac_6_6_7(
    sentry: Caught, llm_server: LLMServer, settings: Settings
) -> None:
    settings.PROPOSITIONS_DIR = settings.BASE_DIR / "propositions"
    diverse()
    llm_server.respond = lambda body: {"json": {"ideas": []}} if "What to list" in prompt_of(body) else None

    capture([RunSpec(agent=Agent.objects.get(slug="ada"), dimensions=("consistency", "convergence", "ideas_quantity"))])

    found = tree(sentry.of_type("transaction")[0])
    for dimension in ("consistency", "convergence", "ideas_quantity"):
        assert found[f"evaluation.{dimension}", "evaluation.run"] == 1
        assert found["llm.call", f"evaluation.{dimension}"] >= 1
    assert not any(text in sentry.text for text in (DRY[1], LOUD[2], "You are Ada"))


def test_spans_say_which_run_which_model_and_how_it_went(sentry: Caught, llm_server: LLMServer, ada: Agent) -> None:
    llm_server.reply(status=500)

    capture([RunSpec(agent=ada, dimensions=("adherence",))])

    spans = {span["op"]: span for span in sentry.of_type("transaction")[0]["spans"]}
    calls = [span for span in sentry.of_type("transaction")[0]["spans"] if span["op"] == "llm.call"]
    assert spans["evaluation.run"]["data"]["evaluation_runs"] == [EvaluationRun.objects.get().pk]
    assert (spans["evaluation.adherence"]["data"]["answered_calls"], len(calls)) == (2, 3)
    assert sorted(call["status"] for call in calls) == ["internal_error", "ok", "ok"]
    assert {call["data"]["llm.model"] for call in calls} == {"test-model"}
    assert {call["data"]["llm.dimension"] for call in calls} == {"adherence"}
    assert all(call["start_timestamp"] <= call["timestamp"] for call in calls)


def test_a_worker_traces_its_runs_too(sentry: Caught, llm_server: LLMServer, ada: Agent) -> None:
    queue_baseline(agents=[ada])

    assert work_one(owner="me:1:x")

    (transaction,) = sentry.of_type("transaction")
    assert transaction["contexts"]["trace"]["op"] == "evaluation.work"
    assert {op for op, _ in tree(transaction)} == {
        "evaluation.run",
        "evaluation.adherence",
        "evaluation.fluency",
        "correction.config",
        "llm.call",
    }


def test_a_crash_is_reported_with_its_run_marked(sentry: Caught, llm_server: LLMServer, ada: Agent) -> None:
    def crash(run: EvaluationRun, done: int) -> None:
        raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError):
        capture([RunSpec(agent=ada)], progress=crash)

    (event,) = sentry.of_type("event")
    assert event["exception"]["values"][-1]["value"] == "the terminal is gone"
    assert EvaluationRun.objects.get().status == "errored"
    assert not any(secret in sentry.text for secret in SECRETS)


def test_no_text_of_messages_personas_or_claims_is_sent(sentry: Caught, llm_server: LLMServer, ada: Agent) -> None:
    capture([RunSpec(agent=ada)])

    assert "evaluation.adherence" in sentry.text
    assert not any(secret in sentry.text for secret in SECRETS)

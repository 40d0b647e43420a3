"""Observe mode: said at once, judged afterwards, nothing held back."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pytest_django import Settings

from agents.kit.models import LLMCall
from correction.gate.observe import work_one
from correction.models import ObservedMessage
from correction.sampling import is_observed
from tests.correction.gating import DIMENSIONS, configure, gated, judge, logs, scores, send
from tests.evaluation.judging import prompt_of
from tests.factories import say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

BAD = {"adherence": 1, "consistency": 2, "fluency": 8}


def test_a_message_is_said_at_once_and_judged_by_a_worker(llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS, gate_mode="observe")
    say(channel, "Bob", "Where is it?")
    result = send(agent, channel, "Leverage the synergy!")
    assert (result.committed, result.outcome) == (True, "sent")
    assert llm_server.calls == 0
    assert logs() == []
    say(channel, "Bob", "said afterwards")
    llm_server.respond = judge(BAD)
    assert work_one(owner="w")
    assert not work_one(owner="w")
    (log,) = logs()
    assert (log.outcome, log.session.source, log.committed, log.session.message) == (
        "observed",
        "observe",
        True,
        result.message,
    )
    assert scores(log) == BAD
    assert [r.passed for r in log.dimension_results.order_by("dimension")] == [False, False, True]
    assert log.session.uuid == ObservedMessage.objects.get().session
    assert ObservedMessage.objects.get().status == "completed"
    prompts = [prompt_of(body) for body in llm_server.bodies]
    assert all("Where is it?" in p and "said afterwards" not in p for p in prompts)
    assert all(p.count("Leverage the synergy!") == 1 for p in prompts)
    assert {c.work_id for c in LLMCall.objects.all()} == {log.session.work_id}


def test_only_a_share_is_observed_and_always_the_same(llm_server: LLMServer) -> None:
    slugs = [f"talk-{n}" for n in range(2_000)]
    sampled = {slug for slug in slugs if is_observed(slug, Decimal("0.25"))}
    assert 400 < len(sampled) < 600
    assert sampled <= {slug for slug in slugs if is_observed(slug, 0.5)}
    assert not any(is_observed(slug, 0) for slug in slugs)
    assert all(is_observed(slug, 1) for slug in slugs)
    agent, channel = gated("fluency", gate_mode="observe", observe_sample_rate=Decimal(0))
    send(agent, channel, "Hello.")
    assert ObservedMessage.objects.count() == 0


def test_a_gate_switched_off_meanwhile_judges_nothing(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency", gate_mode="observe")
    send(agent, channel, "Hello.")
    configure(agent, gate_mode="off")
    assert work_one(owner="w")
    assert llm_server.calls == 0
    observed = ObservedMessage.objects.get()
    assert (observed.status, observed.error) == (
        "cancelled", "the gate was switched off before the message was judged",
    )  # fmt: skip


def test_a_judge_that_is_down_is_logged_as_such(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_EVALUATION_RETRIES = 0
    agent, channel = gated("fluency", gate_mode="observe")
    send(agent, channel, "Hello.")
    llm_server.always(status=529)
    assert work_one(owner="w")
    assert [r.status for r in logs()[0].dimension_results.all()] == ["error"]


def test_observing_leaves_the_gates_slots_alone(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 1, 4
    agent, channel = gated(*DIMENSIONS, gate_mode="observe")
    send(agent, channel, "Hello.")
    llm_server.respond = judge(BAD)
    assert work_one(owner="w")
    assert (llm_server.calls, llm_server.peak_inflight) == (3, 1)


def test_an_observation_a_worker_lost_is_logged_once(llm_server: LLMServer) -> None:
    agent, channel = gated("fluency", gate_mode="observe")
    send(agent, channel, "Hello.")
    llm_server.respond = judge(BAD)
    work_one(owner="w")
    ObservedMessage.objects.update(status="pending")
    work_one(owner="v")
    assert len(logs()) == 1
    assert ObservedMessage.objects.get().status == "completed"

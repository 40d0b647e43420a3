"""Observed messages that are judged in batches: half the price, each judged once, whatever becomes of the batch."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone
from pytest_django import Settings

from agents.kit.models import LLMBatch, LLMBatchRequest, LLMCall, ModelPrice
from agents.kit.work import batches
from agents.models import Agent, Channel
from correction.config.configure import configure
from correction.config.settings import ConfigError
from correction.gate.observe import BATCH_WAIT, judge_later, work_one
from correction.models import CorrectionLog, ObservedMessage
from tests.batch_server import BatchServer
from tests.correction.gating import gated, judge, logs, scores, send
from tests.evaluation.runs.batches.conftest import price, server  # noqa: F401 (fixtures)
from tests.factories import make_agent

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]

VALUES = {"adherence": 7, "fluency": 3}


@pytest.fixture
def observed(server: BatchServer, settings: Settings) -> tuple[Agent, Channel]:  # noqa: F811
    settings.LLM_EVALUATION_RETRIES = 0
    server.respond = judge(VALUES)
    return gated("adherence", "fluency", gate_mode="observe", observe_by_batches=True)


def say(observed: tuple[Agent, Channel], *texts: str) -> None:
    agent, channel = observed
    for text in texts:
        assert send(agent, channel, text).outcome == "sent"


def work() -> int:
    """Do all that is due; return how much it was."""
    done = 0
    while work_one(owner="test"):
        done += 1
    return done


def later() -> None:
    """As if the messages had been said so long ago that they wait for no others."""
    ObservedMessage.objects.update(created_at=timezone.now() - BATCH_WAIT - timedelta(seconds=1))
    ObservedMessage.objects.filter(status="pending").update(lease_expires_at=None)


def look() -> None:
    LLMBatch.objects.filter(status__in=LLMBatch.OPEN).update(next_look_at=timezone.now())
    while batches.work_one(owner="test"):
        pass


def statuses() -> list[str]:
    return list(ObservedMessage.objects.order_by("pk").values_list("status", flat=True))


def test_messages_of_an_agent_are_judged_together_at_half_the_price(
    observed: tuple[Agent, Channel],
    server: BatchServer,  # noqa: F811
    price: ModelPrice,  # noqa: F811
) -> None:
    say(observed, "One.", "Two.", "Three.")
    work()
    assert (server.made(), server.live(), CorrectionLog.objects.count()) == (0, 0, 0), "others may come"
    later()
    work()
    assert (server.made(), LLMBatch.objects.get().requests) == (1, 6)
    assert work() == 0, "they wait for the batch"
    server.end()
    look()
    assert work() == 3

    assert statuses() == ["completed"] * 3
    assert [scores(log) for log in logs()] == [VALUES] * 3
    assert {log.judged_text for log in logs()} == {"One.", "Two.", "Three."}
    assert server.live() == 0
    for log in logs():
        calls = LLMCall.objects.filter(work_id=log.session.work_id)
        assert {call.batch for call in calls} == {True}
        assert {call.cost_usd for call in calls} == {Decimal("0.00006")}, "(100 + 2 · 10) / 1,000,000 / 2"
    assert not LLMBatchRequest.objects.exists(), "what was answered is in the log"


def test_what_a_batch_brought_no_answer_to_is_asked_at_once(
    observed: tuple[Agent, Channel],
    server: BatchServer,  # noqa: F811
) -> None:
    say(observed, "One.", "Two.")
    later()
    work()
    server.end(errored={0}, expired={3})
    look()
    work()

    assert [scores(log) for log in logs()] == [VALUES] * 2
    assert server.live() == 2


def test_a_server_without_batches_costs_no_verdict(
    observed: tuple[Agent, Channel],
    server: BatchServer,  # noqa: F811
) -> None:
    server.fail = lambda method, path: 404 if "batches" in path else None
    say(observed, "One.", "Two.")
    later()
    work()

    assert statuses() == ["completed"] * 2
    assert [scores(log) for log in logs()] == [VALUES] * 2


def test_a_worker_that_died_after_it_submitted_a_batch_costs_no_second_one(
    observed: tuple[Agent, Channel],
    server: BatchServer,  # noqa: F811
) -> None:
    server.forget_name = True  # the process ends before it knows the batch's name
    say(observed, "One.", "Two.")
    later()
    work()
    held = {"status": "running", "lease_owner": "dead", "lease_expires_at": timezone.now() - timedelta(seconds=1)}
    ObservedMessage.objects.update(**held)
    assert work() == 0, "it is looked for first"
    look()
    server.end()
    look()
    work()

    assert [scores(log) for log in logs()] == [VALUES] * 2
    assert (server.made(), server.live()) == (1, 0)


def test_what_a_person_asks_for_waits_for_no_batch(
    observed: tuple[Agent, Channel],
    server: BatchServer,  # noqa: F811
) -> None:
    agent, channel = observed
    message = send(agent, channel, "One.").message
    assert message is not None
    ObservedMessage.objects.update(status="completed")
    judge_later(messages=[message], dimensions=["fluency"])
    work()

    assert (server.made(), server.live(), len(logs())) == (0, 1, 1)


def test_answers_of_another_judge_are_asked_for_again(
    observed: tuple[Agent, Channel],
    server: BatchServer,  # noqa: F811
    settings: Settings,
) -> None:
    say(observed, "One.")
    later()
    work()
    server.end()
    look()
    settings.JUDGE_MODEL = "newer-model"
    work()

    (log,) = logs()
    assert (log.judge, server.live()) == ("newer-model", 2)


def test_batches_are_refused_where_the_judge_takes_none(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    with pytest.raises(ConfigError, match="takes no batches") as refused:
        configure(agent=make_agent("ada"), changes={"observe_by_batches": True})

    assert set(refused.value.errors) == {"observe_by_batches"}
    configure(agent=make_agent("bob"), changes={"observe_by_batches": False})

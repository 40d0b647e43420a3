"""Observed messages judged in batches: the same verdicts at half the price, once each, whatever happens on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from agents.kit.llm import ledger, prices
from agents.kit.models import LLMBatch, LLMBatchRequest, LLMCall, ModelPrice
from agents.kit.work import batches
from agents.models import Agent, Channel
from correction.admin.matrix import gate_url
from correction.config.configure import configure, notes_on
from correction.config.settings import ConfigError, resolve_config
from correction.costs import over_budget
from correction.gate.observe import estimate_check, judge_later, queue_ingested, work_one
from correction.gate.observe_batches import submit_waiting
from correction.models import ObservedMessage
from tests.api_client import program
from tests.batch_server import BatchServer
from tests.console import list_of, plain, read, signed_in, superuser
from tests.correction.config_page import save
from tests.correction.gating import DIMENSIONS, gated, judge, logs, scores, send
from tests.factories import say

pytestmark = pytest.mark.django_db
JUDGED = {"adherence": 1, "consistency": 2, "fluency": 8}
OWNER = "test"


@pytest.fixture
def server(settings: Settings) -> Iterator[BatchServer]:
    """A judge that takes batches."""
    with BatchServer() as running:
        settings.JUDGE_BASE_URL, settings.JUDGE_MODEL = running.url, "test-model"
        settings.ANTHROPIC_API_KEY = "sk-test-secret"
        settings.LLM_BATCH_POLL_SECONDS = 0
        running.respond = judge(JUDGED)
        yield running


@pytest.fixture
def price() -> None:
    """The judge's: a dollar for a million tokens in, two for a million out."""
    day = date(2026, 1, 1)
    columns = dict.fromkeys(("input_usd", "cache_write_usd", "cache_read_usd"), 1)
    ModelPrice.objects.create(model="test-model", effective_from=day, output_usd=2, **columns)
    prices.forget_prices()


def observing(*dimensions: str, slug: str = "ada", **config: Any) -> tuple[Agent, Channel]:
    fields = {"gate_mode": "observe", "observe_by_batches": True, **config}
    return gated(*(dimensions or DIMENSIONS), slug=slug, **fields)


def said(*texts: str, agent: Agent, channel: Channel) -> None:
    for text in texts:
        assert send(agent, channel, text).committed


def grow_old(by: timedelta = timedelta(hours=2)) -> None:
    ObservedMessage.objects.filter(waits_since__isnull=False).update(waits_since=timezone.now() - by)


def submitted(*texts: str, **config: Any) -> Agent:
    """An agent whose messages are in a batch."""
    agent, channel = observing(**config)
    said(*texts, agent=agent, channel=channel)
    grow_old()
    submit_waiting()
    return agent


def check_batches() -> None:
    """Have a worker look at the batches whose turn it is."""
    assert batches.work_one(owner=OWNER)


def work() -> int:
    """Have a worker judge what waits for no batch; return how many messages."""
    submit_waiting()  # also says of which messages the batch has ended
    judged = 0
    while work_one(owner=OWNER):
        judged += 1
    return judged


def answered() -> int:
    check_batches()
    return work()


def statuses() -> list[str]:
    return list(ObservedMessage.objects.order_by("pk").values_list("status", flat=True))


def nobody_holds_it() -> None:
    """As when the leases of a dead process are released."""
    LLMBatch.objects.filter(status__in=LLMBatch.OPEN).update(
        status="pending", lease_owner="", lease_expires_at=None, next_look_at=timezone.now()
    )


# -- the way through
def test_a_batch_gives_the_verdicts_of_judging_at_once_at_half_the_price(server: BatchServer, price: None) -> None:
    agent, channel = observing(observe_by_batches=False)
    said("Judged at once.", agent=agent, channel=channel)
    work()
    configure(agent=agent, changes={"observe_by_batches": True})
    asked_at_once = server.live()
    said("Leverage the synergy!", "And again.", agent=agent, channel=channel)
    assert (work(), server.made()) == (0, 0), "they wait for more"

    grow_old()
    assert submit_waiting() == "2 messages submitted in 1 batch"
    assert (work(), server.made(), len(server.batches["msgbatch_01"].requests)) == (0, 1, 6)
    server.end()
    assert answered() == 2

    assert server.live() == asked_at_once, "no call at once"
    at_once, first, second = logs()
    assert scores(at_once) == scores(first) == scores(second) == JUDGED
    assert (first.outcome, first.session.source, first.original_text, first.judge) == (
        "observed", "observe", "Leverage the synergy!", "test-model",
    )  # fmt: skip
    costs = {log.pk: ledger.totals(work_id=log.session.work_id).cost_usd for log in logs()}
    assert costs[first.pk] == costs[second.pk] == costs[at_once.pk] / 2 > 0
    calls = LLMCall.objects.filter(work_id=first.session.work_id)
    assert set(calls.values_list("purpose", "mechanism", "agent", "batch", "status")) == {
        ("gate", "gate", agent.pk, True, "ok")
    }
    assert {result.call_id for result in first.dimension_results.all()} == set(calls.values_list("pk", flat=True))
    assert not LLMBatchRequest.objects.exists(), "what was said is in its own tables now"
    assert statuses() == ["completed"] * 3


def test_a_full_batch_is_submitted_before_its_time(server: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("correction.gate.observe_batches.MOST_MESSAGES", 2)
    agent, channel = observing("fluency")
    said("one", "two", "three", agent=agent, channel=channel)
    assert submit_waiting() == "2 messages submitted in 1 batch"
    assert submit_waiting() == "", "the third waits for another"


def test_each_agent_has_a_batch_of_its_own(server: BatchServer) -> None:
    for slug in ("ada", "bob"):
        agent, channel = observing("fluency", slug=slug)
        said(f"I am {slug}.", agent=agent, channel=channel)
    grow_old()
    assert submit_waiting() == "2 messages submitted in 2 batches"
    assert LLMBatch.objects.values("agent").distinct().count() == 2


def test_messages_reported_from_elsewhere_wait_for_a_batch_too(server: BatchServer) -> None:
    agent, channel = observing("fluency")
    assert queue_ingested([say(channel, agent, "Said elsewhere.")]) == 1
    grow_old()
    assert submit_waiting() == "1 message submitted in 1 batch"


def test_a_verdict_of_a_batch_weighs_as_its_conversation_was_sampled(server: BatchServer) -> None:
    agent, channel = observing("fluency")
    Channel.objects.filter(pk=channel.pk).update(inclusion_probability=0.25)
    channel.refresh_from_db()
    assert queue_ingested([say(channel, agent, "Said elsewhere.")]) == 1
    grow_old()
    submit_waiting()
    server.end()
    assert answered() == 1
    assert (logs()[0].session.inclusion_weight, server.live()) == (4, 0)


# -- what a batch did not answer
def test_a_mixed_batch_judges_each_message_once(server: BatchServer, price: None) -> None:
    """Refused and expired questions are asked at once, cancelled ones in the next batch."""
    submitted("one", "two", "three", "four")
    server.end(errored={1}, expired={3}, canceled={6, 7, 8})
    assert answered() == 4
    assert (len(logs()), server.made(), server.live()) == (3, 1, 2)
    grow_old()
    submit_waiting()
    assert len(server.batches["msgbatch_02"].requests) == 3
    server.end()
    assert answered() == 1
    assert (len(logs()), server.made(), server.live()) == (4, 2, 2)
    assert all(scores(log) == JUDGED for log in logs())
    assert statuses() == ["completed"] * 4


def test_a_malformed_answer_is_asked_for_again_in_the_next_batch(server: BatchServer) -> None:
    submitted("one", gate_adherence_enabled=False, gate_consistency_enabled=False)
    server.reply(text="no JSON at all")
    server.end()
    assert answered() == 1
    grow_old()
    submit_waiting()
    server.end()
    assert answered() == 1
    assert (server.made(), server.live(), scores(logs()[0])["fluency"]) == (2, 0, 8)


def test_after_three_batches_a_message_is_judged_at_once(server: BatchServer) -> None:
    submitted("one")
    for _ in range(3):
        server.end(canceled={0, 1, 2})
        check_batches()
        work()
        grow_old()
        submit_waiting()
    assert (server.made(), server.live(), len(logs())) == (3, 3, 1)


def test_a_server_without_batches_has_messages_judged_at_once(server: BatchServer) -> None:
    server.fail = lambda method, path: 404 if path.endswith("/batches") else None
    submitted("one", "two")
    assert (work(), server.made(), server.live()) == (2, 0, 6)


# -- kills
def test_a_batch_whose_name_was_lost_in_a_kill_is_not_submitted_twice(server: BatchServer) -> None:
    server.forget_name = True
    submitted("one", "two")
    assert LLMBatch.objects.get().batch_id == ""
    grow_old()
    assert (work(), server.made()) == (0, 1), "the messages wait for that batch"
    nobody_holds_it()
    check_batches()
    server.end()
    assert answered() == 2
    assert (len(logs()), server.made(), server.live()) == (2, 1, 0)


def test_results_that_broke_off_are_read_again_and_judged_once(
    server: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.kit.llm.batch_api.RESULTS_AT_ONCE", 1)
    submitted("one", "two")
    server.end()
    server.cut_results = 4
    assert answered() == 0
    server.cut_results = None
    nobody_holds_it()
    assert answered() == 2
    assert (len(logs()), server.made(), server.live(), LLMCall.objects.count()) == (2, 1, 0, 6)


def test_a_message_that_was_logged_before_a_kill_is_not_asked_about_again(server: BatchServer) -> None:
    submitted("one")
    server.end()
    answered()
    ObservedMessage.objects.update(status="pending")  # as if its worker had not come to store its end
    assert work() == 1
    assert (len(logs()), server.made(), server.live(), statuses()) == (1, 1, 0, ["completed"])


def test_of_two_processes_that_collect_the_same_messages_one_submits(server: BatchServer) -> None:
    agent, channel = observing("fluency")
    said("one", agent=agent, channel=channel)
    grow_old()
    by_the_other: list[str] = []

    def other_is_faster(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if "llm_batch_requests" in sql and not by_the_other:
            by_the_other.append("it begins")
            by_the_other.append(submit_waiting())
        return execute(sql, params, many, context)

    with connection.execute_wrapper(other_is_faster):
        assert submit_waiting() == ""
    assert by_the_other == ["it begins", "1 message submitted in 1 batch"]
    assert (server.made(), ObservedMessage.objects.get().batches) == (1, 1)


# -- what changes meanwhile
def test_a_gate_switched_off_meanwhile_cancels_batch_and_messages(server: BatchServer) -> None:
    agent = submitted("one")
    configure(agent=agent, changes={"gate_mode": "off"})
    submit_waiting()
    check_batches()
    assert server.batches["msgbatch_01"].status == "canceling"
    server.end(canceled={0, 1, 2})
    assert answered() == 1
    assert (statuses(), len(logs())) == (["cancelled"], 0)
    assert not LLMBatchRequest.objects.filter(result="succeeded").exists()


def test_messages_wait_no_more_once_batches_are_switched_off(server: BatchServer) -> None:
    agent, channel = observing()
    said("one", agent=agent, channel=channel)
    configure(agent=agent, changes={"observe_by_batches": False})
    assert (work(), server.made(), server.live()) == (1, 0, 3)


def test_a_judge_without_batches_judges_at_once_and_the_page_says_so(server: BatchServer, settings: Settings) -> None:
    agent, channel = observing("fluency")
    said("before", agent=agent, channel=channel)
    settings.JUDGE_MODEL = "offline:lexical-1"
    said("after", agent=agent, channel=channel)
    assert (work(), len(logs()), server.made()) == (2, 2, 0)
    assert any("observe_by_batches" in note and "offline:lexical-1" in note for note in notes_on(resolve_config(agent)))


def test_a_verdict_names_the_judge_that_its_batch_asked(server: BatchServer, settings: Settings) -> None:
    submitted("one")
    server.end()
    settings.JUDGE_MODEL = "another-model"
    assert answered() == 1
    assert (logs()[0].judge, scores(logs()[0]), server.live()) == ("test-model", JUDGED, 0)


def test_a_message_deleted_meanwhile_leaves_nothing(server: BatchServer) -> None:
    submitted("one", "two")
    ObservedMessage.objects.latest("pk").message.delete()
    server.end()
    assert answered() == 1
    assert (len(logs()), statuses()) == (1, ["completed"])


def test_a_person_who_asks_need_not_wait_for_a_batch(server: BatchServer) -> None:
    agent, channel = observing("fluency")
    said("one", agent=agent, channel=channel)
    judge_later(messages=[ObservedMessage.objects.get().message], dimensions=("fluency",))
    assert (work(), server.live()) == (1, 1)


# -- budgets
def test_messages_wait_while_the_budget_has_no_room_for_them(server: BatchServer, price: None) -> None:
    agent, channel = observing("fluency", budget_enabled=True, daily_budget_usd="0.0001")
    said("one", agent=agent, channel=channel)
    grow_old()
    assert (submit_waiting(), work(), server.made()) == ("", 0, 0)
    configure(agent=agent, changes={"daily_budget_usd": "1"})
    assert submit_waiting() == "1 message submitted in 1 batch"


def test_what_a_batch_will_cost_counts_against_the_budget_while_it_is_open(server: BatchServer, price: None) -> None:
    agent = submitted("one", "two")
    planned = LLMBatch.objects.get().planned_usd
    assert 0 < planned < Decimal("0.1")
    configure(agent=agent, changes={"budget_enabled": True, "daily_budget_usd": round(planned, 4) - Decimal("0.0001")})
    assert over_budget(agent, resolve_config(agent))
    server.end()
    check_batches()
    assert not over_budget(agent, resolve_config(agent)), "it cost less than was expected"


def test_answers_that_came_are_kept_where_the_budget_is_used_up(server: BatchServer, price: None) -> None:
    agent = submitted("one")
    server.end(errored={0})
    check_batches()
    configure(agent=agent, changes={"budget_enabled": True, "daily_budget_usd": "0"})
    assert work() == 1
    found = {result.dimension: result.status for result in logs()[0].dimension_results.all()}
    assert (sorted(found.values()), server.live()) == (["budget", "scored", "scored"], 0)


def test_a_batch_takes_as_many_messages_as_the_budget_has_room_for(server: BatchServer, price: None) -> None:
    agent = submitted("one")
    room = LLMBatch.objects.get().planned_usd * Decimal("1.5")
    server.end()
    answered()
    channel = ObservedMessage.objects.get().message.channel
    said("two", "three", agent=agent, channel=channel)
    grow_old(timedelta(days=2))
    configure(agent=agent, changes={"budget_enabled": True, "daily_budget_usd": round(room, 4)})
    assert submit_waiting() == "1 message submitted in 1 batch"
    assert list(ObservedMessage.objects.order_by("pk").values_list("batches", flat=True)) == [1, 1, 0]


def test_a_message_without_room_for_a_day_is_logged_as_not_judged(server: BatchServer, price: None) -> None:
    agent, channel = observing("fluency", budget_enabled=True, daily_budget_usd="0")
    said("one", agent=agent, channel=channel)
    grow_old(timedelta(days=2))
    submit_waiting()
    assert work() == 1
    assert [result.status for result in logs()[0].dimension_results.all()] == ["budget"]


# -- doors
REFUSED = r"observe_by_batches on: (offline:lexical-1|openai:m|bedrock:m) .*allowed: off"
REFUSED_IN_CONSOLE = REFUSED.replace("observe_by_batches", "observe by batches")


@pytest.mark.parametrize("refusal", [400, 413])
def test_a_batch_that_is_refused_is_halved_until_it_is_taken(server: BatchServer, refusal: int) -> None:
    refusals = [refusal, refusal]
    server.fail = lambda method, path: refusals.pop() if refusals and path.endswith("/batches") else None

    submitted("One.", "Two.", "Three.", "Four.")
    assert [len(batch.requests) for batch in server.batches.values()] == [3], "one message in three dimensions"
    submit_waiting()
    server.end()
    assert answered() + answered() == 4
    assert (len(logs()), server.live()) == (4, 0), "nothing is asked at full price"


def test_where_the_key_is_refused_messages_wait_for_a_batch(server: BatchServer) -> None:
    server.fail = lambda method, path: 401 if path.endswith("/batches") else None
    submitted("One.", "Two.")

    assert (work(), server.live(), statuses()) == (0, 0, ["pending", "pending"])

    server.fail = lambda method, path: None
    grow_old()
    submit_waiting()
    server.end()
    answered()
    assert (len(logs()), server.live()) == (2, 0)


@pytest.mark.parametrize("model", ["offline:lexical-1", "openai:m", "bedrock:m"])
def test_the_setting_is_refused_for_a_judge_without_batches(settings: Settings, model: str) -> None:
    settings.JUDGE_MODEL = model
    agent, _ = gated("fluency", gate_mode="observe")
    with pytest.raises(ConfigError, match=REFUSED):
        configure(agent=agent, changes={"observe_by_batches": True})
    with pytest.raises(CommandError, match=REFUSED):
        call_command("configure", agent.slug, "observe_by_batches=on")
    person = superuser()
    answer = program(person).patch(f"/api/evaluations/config/{agent.slug}/", {"observe_by_batches": True})
    assert (answer.status_code, bool(re.search(REFUSED, str(answer.json())))) == (400, True)
    page = save(signed_in(person), agent, observe_by_batches="on", reason="cheaper")
    assert re.search(REFUSED_IN_CONSOLE, page.content.decode())
    assert resolve_config(agent)["observe_by_batches"] is False
    configure(agent=agent, changes={"observe_by_batches": False})


def test_the_list_says_which_messages_wait_for_a_batch(server: BatchServer) -> None:
    submitted("in a batch")
    agent, channel = observing("fluency", slug="bob")
    said("in none yet", agent=agent, channel=channel)
    client = signed_in(superuser())
    assert read(client, list_of(ObservedMessage)).count("waits for a batch") == 2
    assert "1 of them waits for a batch" in plain(read(client, gate_url(agent)))


def test_a_configuration_with_it_on_can_still_be_changed(server: BatchServer, settings: Settings) -> None:
    agent, _ = observing("fluency")
    settings.JUDGE_MODEL = "offline:lexical-1"
    configure(agent=agent, changes={"observe_by_batches": True, "gate_fluency_threshold": 4})
    assert resolve_config(agent).threshold("fluency") == 4


def test_the_time_of_a_batch_is_no_time_of_a_check(server: BatchServer) -> None:
    agent = submitted("one")
    server.end()
    answered()
    message = ObservedMessage.objects.get().message
    assert estimate_check(message=message, agent=agent, dimensions=("fluency",)).seconds is None

"""Judging in batches: the same scores as live, at half the price, each stored once."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agents.kit.models import LLMBatch, LLMBatchRequest, LLMCall, ModelPrice
from agents.models import Agent
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from evaluation.runs.execute import capture
from evaluation.runs.summary import waiting_words
from tests.batch_server import BatchServer
from tests.evaluation.judging import entry
from tests.evaluation.measuring import spec, statuses
from tests.evaluation.runs.batches.working import check_batches, handed_in, only_batch, scores, work

pytestmark = pytest.mark.django_db


def test_scores_are_those_of_live_judging_at_half_the_price(ada: Agent, server: BatchServer, price: ModelPrice) -> None:
    live = capture([spec(ada, seed=1)])[0].summary.run
    asked = server.live()
    run = handed_in(ada)
    assert (run.status, server.made(), server.live()) == ("pending", 1, asked)
    server.end()
    check_batches()
    done = work(run)
    assert (done.status, server.live()) == ("completed", asked)
    assert scores(done) == scores(live)
    assert Baseline.objects.filter(evaluation_run=done).exists()
    calls = LLMCall.objects.filter(work_id=run.work_id)
    assert set(calls.values_list("batch", "status", "cost_usd")) == {(True, "ok", Decimal("0.00006"))}
    assert set(LLMCall.objects.filter(work_id=live.work_id).values_list("batch", "cost_usd")) == {
        (False, Decimal("0.00012"))
    }
    assert calls.count() == asked == 3
    assert not LLMBatchRequest.objects.exists()  # what was said is in its own tables now


def test_custom_ids_are_allowed_and_prompts_keep_cache_marks(ada: Agent, server: BatchServer) -> None:
    handed_in(ada)
    (batch,) = server.batches.values()
    names = [request["custom_id"] for request in batch.requests]
    assert len(names) == len(set(names)) == 3
    assert all(len(name) <= 64 and name.replace("-", "").isalnum() for name in names)
    assert all("cache_control" in str(request["params"]["system"]) for request in batch.requests)


def test_a_run_that_waits_says_for_what_and_is_not_asked_again(ada: Agent, server: BatchServer) -> None:
    run = handed_in(ada)
    assert waiting_words([run]) == {run.pk: "waiting for batch msgbatch_01: 0 of 3 answered"}
    check_batches()
    again = handed_in_nothing(run)
    assert (again.status, server.made(), server.live()) == ("pending", 1, 0)


def handed_in_nothing(run: EvaluationRun) -> EvaluationRun:
    from evaluation.runs.execute import execute

    execute([run], owner="somebody who asks for it by name")
    return work(run)


def test_what_the_server_refuses_is_asked_once_more_live(ada: Agent, server: BatchServer, price: ModelPrice) -> None:
    run = handed_in(ada)
    server.end(errored={1})
    check_batches()
    assert work(run).status == "completed"
    assert (statuses(run), server.live()) == ({"scored": 6}, 1)
    found = LLMCall.objects.filter(work_id=run.work_id).values_list("batch", "status", "cost_usd").order_by("pk")
    assert sorted(found) == [
        (False, "ok", Decimal("0.00012")),
        (True, "ok", Decimal("0.00006")),
        (True, "ok", Decimal("0.00006")),
        (True, "rejected", Decimal(0)),
    ]


def test_what_expired_is_asked_once_more_live(ada: Agent, server: BatchServer) -> None:
    run = handed_in(ada)
    server.end(expired={0, 1, 2})
    check_batches()
    assert work(run).status == "completed"
    assert (statuses(run), server.live(), server.made()) == ({"scored": 6}, 3, 1)
    assert LLMCall.objects.filter(work_id=run.work_id, status="timeout", attempts=0).count() == 3


def test_a_malformed_answer_is_asked_again_in_the_next_batch(ada: Agent, server: BatchServer) -> None:
    run = handed_in(ada)
    server.reply(text="no JSON at all")
    server.end()
    check_batches()
    assert (work(run).status, server.made()) == ("pending", 2)
    assert statuses(run) == {"scored": 4, "pending": 2}
    (again,) = server.batches["msgbatch_02"].requests
    assert [turn["role"] for turn in again["params"]["messages"]] == ["user", "assistant", "user"]
    server.end()
    check_batches()
    assert (work(run).status, statuses(run), server.live()) == ("completed", {"scored": 6}, 0)
    assert LLMCall.objects.filter(work_id=run.work_id, status="malformed").count() == 1


def test_an_answer_that_stays_malformed_is_unscored_and_asked_no_third_time(ada: Agent, server: BatchServer) -> None:
    run = handed_in(ada)
    for _ in range(2):
        server.respond = lambda body: {"json": entry(42)}
        server.end()
        check_batches()
        work(run)

    assert (run.status, statuses(run)) == ("completed", {"unscored": 6})
    assert (server.made(), server.live()) == (2, 0)


def test_a_double_check_takes_a_second_batch(ada: Agent, server: BatchServer) -> None:
    server.respond = None  # whatever fits the schema
    run = handed_in(ada, double_check=True)
    server.end()
    check_batches()
    assert (work(run).status, server.made(), server.live()) == ("pending", 2, 0)
    server.end()
    check_batches()
    assert (work(run).status, statuses(run)) == ("completed", {"scored": 6})


def test_ideas_are_counted_in_batches(server: BatchServer, propositions) -> None:  # type: ignore[no-untyped-def]
    from evaluation.runs.control import queue_run
    from evaluation.runs.execute import work_one
    from evaluation.runs.spec import RunSpec
    from tests.factories import make_agent, make_channel, talk

    propositions.write(
        "ideas_quantity/_default.yaml",
        """
        dimension: ideas_quantity
        target_type: environment
        propositions:
          - {id: ideas, claim: Ideas are put forward}
        """,
    )
    channel = make_channel("storm")
    for name in ("ada", "bob"):
        talk(make_agent(name), [f"{name} has idea {n}." for n in range(3)], channel=channel)
    server.respond = None
    run, _ = queue_run(RunSpec(channel=channel, dimensions=("ideas_quantity",), batch=True))
    for _ in range(4):
        work_one(owner="test")
        server.end()
        if LLMBatch.objects.filter(status="pending").exists():
            check_batches()
    run.refresh_from_db()
    assert (run.status, server.live()) == ("completed", 0)
    assert server.made() >= 1


def test_a_large_run_is_handed_in_in_parts(ada: Agent, server: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from agents.kit.work import batches

    monkeypatch.setattr(batches, "MOST_REQUESTS", 2)
    run = handed_in(ada)
    assert [len(batch.requests) for batch in server.batches.values()] == [2, 1]
    server.end()
    check_batches()
    assert work(run).status == "pending"  # the other part is still to be collected
    check_batches()
    assert (work(run).status, statuses(run)) == ("completed", {"scored": 6})


def test_a_server_without_batches_is_said_to_be_one(ada: Agent, server: BatchServer) -> None:
    server.fail = lambda method, path: 404 if "batches" in path else None
    run = handed_in(ada)
    assert run.status == "failed"
    assert "has no Message Batches" in run.error
    assert only_batch().status == "failed"
    assert server.live() == 0

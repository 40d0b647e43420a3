"""The row of a call: what it says, what it costs, and that it never costs the caller the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries, Settings

from agents.kit.llm import Label, Status, complete, complete_many, complete_together, ledger
from agents.kit.models import LLMCall, LLMPayload, ModelPrice
from agents.models import Agent
from tests.agents.kit.llm.asking import act_request, asking, judge_request, row_of, text_request, word_of
from tests.agents.kit.llm.conftest import Wire
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def priced(wire: Wire) -> None:
    ModelPrice.objects.create(
        model=wire.model("test-model"),
        effective_from=date(2026, 1, 1),
        input_usd=Decimal(1),
        output_usd=Decimal(5),
        cache_write_usd=Decimal("1.25"),
        cache_read_usd=Decimal("0.1"),
    )


def test_a_row_says_what_the_call_was_for_and_how_it_went(llm_server: LLMServer, wire: Wire) -> None:
    agent = Agent.objects.create(slug="ada", display_name="Ada", system_prompt="You are Ada.")
    label = Label(
        purpose="gate", mechanism="action_gate", dimension="fluency", agent_id=agent.pk, work_id="gate_session:5"
    )
    llm_server.reply(json={"score": 7, "reason": "calm"}, model="served")

    reply = complete(judge_request(label=label))

    row = row_of(reply)
    assert (row.role, row.purpose, row.mechanism, row.dimension) == ("judge", "gate", "action_gate", "fluency")
    assert (row.agent, row.run, row.work_id) == (agent, None, "gate_session:5")
    assert (row.provider, row.endpoint, row.model, row.served_model) == (
        wire.name,
        wire.url(llm_server),
        wire.model("test-model"),
        "served",
    )
    assert (row.status, row.error, row.stop_reason) == ("ok", "", "end_turn")
    assert (row.input_tokens, row.output_tokens, row.cache_read_tokens) == (100, 10, None)
    assert (row.request_id, row.request_digest, row.attempts) == ("req_1", reply.request_digest, 1)
    assert row.latency_ms == reply.latency_ms


def test_totals_sum_in_one_query_and_count_what_is_unpriced(
    llm_server: LLMServer, wire: Wire, priced: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 4,
    }
    llm_server.always(text="hello", usage=usage)
    list(complete_many([text_request(), text_request(), text_request(model=wire.model("unheard-of"))], deadline=5))
    complete(text_request(label=Label(purpose="gate", work_id="gate_session:1")))

    with django_assert_num_queries(1):
        result = ledger.totals(work_id="evaluation_run:1")

    assert (result.calls, result.unpriced) == (3, 1)
    assert (result.input_tokens, result.output_tokens) == (300, 30)
    assert (result.cache_read_tokens, result.cache_write_tokens) == (90, 12)
    assert result.cost_usd == 2 * Decimal("0.000158")
    assert ledger.totals(LLMCall.objects.filter(purpose="gate")).calls == 1
    assert ledger.totals().calls == 4


def test_an_estimate_uses_the_price_of_today(priced: None, wire: Wire) -> None:
    assert ledger.estimate_cost(wire.model("test-model"), 1_000_000, 100_000) == Decimal("1.5")
    assert ledger.estimate_cost(wire.model("unheard-of"), 1, 1) is None
    assert ledger.estimate_cost("offline:lexical-1", 1_000_000, 1) == 0


@pytest.mark.parametrize(("store", "roles"), [("none", []), ("judge", ["judge"]), ("all", ["actor", "judge"])])
def test_payloads_are_kept_as_configured(
    llm_server: LLMServer, settings: Settings, store: str, roles: list[str]
) -> None:
    settings.LLM_STORE_PAYLOADS = store
    complete(judge_request())
    complete(text_request())

    assert sorted(LLMPayload.objects.values_list("call__role", flat=True)) == roles


def test_a_payload_is_what_was_sent_and_what_came_without_the_key(
    llm_server: LLMServer, open_wire: Wire, settings: Settings
) -> None:
    settings.LLM_STORE_PAYLOADS = "all"
    llm_server.reply(text="```json\n{}```")
    llm_server.reply(text="Well.", tool_calls=[("send_message", '{"text": "Hello."}')])

    reply, acting = complete(judge_request()), complete(act_request())

    payload = LLMPayload.objects.get(call=row_of(reply))
    assert payload.request == llm_server.bodies[0]
    assert payload.request[open_wire.schema_field] == json.loads(json.dumps(open_wire.schema_form))
    assert payload.reply == "```json\n{}```"
    assert "sk-test-secret" not in json.dumps(payload.request)
    called = LLMPayload.objects.get(call=row_of(acting))
    assert called.reply == "Well."
    assert called.tool_calls == [{"id": "toolu_2_1", "name": "send_message", "input": '{"text": "Hello."}'}]


# -- The rows of calls made together: one insert, and none of them costs another, or the answer
LONG = 30.0


def echo(body: dict[str, Any]) -> dict[str, Any]:
    return {"text": f"echo {word_of(body)}"}


def inserts(queries: CaptureQueriesContext, table: str) -> int:
    return sum(query["sql"].startswith(f'INSERT INTO "{table}"') for query in queries.captured_queries)


def test_an_overlong_error_is_cut_to_its_column(llm_server: LLMServer) -> None:
    llm_server.reply(status=400, message="x" * 5000)

    reply = complete(text_request())

    assert row_of(reply).error == reply.error
    assert len(reply.error) <= 500


def test_a_reask_has_a_row_of_its_own(llm_server: LLMServer) -> None:
    llm_server.respond = lambda body: {"text": "seven"} if len(body["messages"]) < 3 else None

    twice, once = complete_together([judge_request(reask=True), judge_request()], deadline=LONG)

    assert (twice.status, [earlier.status for earlier in twice.earlier]) == (Status.OK, [Status.MALFORMED])
    assert (once.status, once.earlier) == (Status.MALFORMED, ())
    assert [row_of(reply).status for reply in (*twice.earlier, twice, once)] == ["malformed", "ok", "malformed"]
    assert LLMCall.objects.count() == 3


def test_all_rows_are_one_insert_and_their_payloads_another(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_STORE_PAYLOADS = "all"
    llm_server.respond = echo
    words = ("adherence", "fluency", "consistency")
    with CaptureQueriesContext(connection) as queries:
        replies = complete_together([asking(word) for word in words], deadline=LONG)

    assert inserts(queries, "llm_calls") == 1
    assert [row_of(reply).dimension for reply in replies] == list(words)
    assert inserts(queries, "llm_payloads") == 1
    payloads = [LLMPayload.objects.get(call=row_of(reply)) for reply in replies]
    assert [payload.reply for payload in payloads] == [f"echo {word}" for word in words]


@pytest.mark.django_db(transaction=True)
def test_an_agent_deleted_meanwhile_costs_no_row(llm_server: LLMServer) -> None:
    ada = Agent.objects.create(slug="ada", display_name="Ada", system_prompt="You are Ada.")
    bob = Agent.objects.create(slug="bob", display_name="Bob", system_prompt="You are Bob.")
    requests = [asking(agent.slug, label={"agent_id": agent.pk}) for agent in (ada, bob)]
    bob.delete()

    replies = complete_together(requests, deadline=LONG)

    assert [reply.status for reply in replies] == [Status.OK] * 2
    assert [row_of(reply).agent_id for reply in replies] == [ada.pk, None]
    assert LLMCall.objects.count() == 2


def refusing(table: str) -> Callable[..., Any]:
    def refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT") and table in sql:
            raise DatabaseError("disk full")
        return execute(sql, params, many, context)

    return refuse


def test_rows_that_cannot_be_written_cost_neither_answers_nor_the_callers_transaction(
    llm_server: LLMServer, caplog: pytest.LogCaptureFixture
) -> None:
    with transaction.atomic():
        with connection.execute_wrapper(refusing("llm_calls")):
            replies = complete_together([asking("one"), asking("two")], deadline=LONG)
        Agent.objects.create(slug="ada", display_name="Ada", system_prompt="You are Ada.")

    assert [(reply.status, reply.call_id) for reply in replies] == [(Status.OK, None)] * 2
    assert caplog.text.count("the ledger row of a gate call (ok) could not be written") == 2
    assert Agent.objects.exists()


def test_payloads_that_cannot_be_stored_cost_no_row(
    llm_server: LLMServer, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.LLM_STORE_PAYLOADS = "all"

    with connection.execute_wrapper(refusing("llm_payloads")):
        replies = complete_together([asking("one"), asking("two")], deadline=LONG)

    keys = ", ".join(str(row_of(reply).pk) for reply in replies)
    assert f"the payloads of model calls {keys} could not be stored" in caplog.text

"""The rows of calls made together: one insert, and none of them costs another, or the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agents.llm import Status, complete_together
from agents.models import Agent, LLMCall, LLMPayload
from tests.agents.llm.asking import asking, judge_request, row_of, word_of
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

LONG = 30.0


def echo(body: dict[str, Any]) -> dict[str, Any]:
    return {"text": f"echo {word_of(body)}"}


def inserts(queries: CaptureQueriesContext, table: str) -> int:
    return sum(query["sql"].startswith(f'INSERT INTO "{table}"') for query in queries.captured_queries)


def test_a_reask_has_a_row_of_its_own(llm_server: LLMServer) -> None:
    llm_server.respond = lambda body: {"text": "seven"} if len(body["messages"]) == 1 else None

    twice, once = complete_together([judge_request(reask=True), judge_request()], deadline=LONG)

    assert (twice.status, [earlier.status for earlier in twice.earlier]) == (Status.OK, [Status.MALFORMED])
    assert (once.status, once.earlier) == (Status.MALFORMED, ())
    assert [row_of(reply).status for reply in (*twice.earlier, twice, once)] == ["malformed", "ok", "malformed"]
    assert LLMCall.objects.count() == 3


@pytest.mark.parametrize("store", ["none", "all"])
def test_all_rows_are_one_insert(llm_server: LLMServer, settings: Settings, store: str) -> None:
    settings.LLM_STORE_PAYLOADS = store
    llm_server.respond = echo
    words = ("adherence", "fluency", "consistency")
    with CaptureQueriesContext(connection) as queries:
        replies = complete_together([asking(word) for word in words], deadline=LONG)

    assert inserts(queries, "llm_calls") == 1
    assert [row_of(reply).dimension for reply in replies] == list(words)
    if store == "none":
        assert inserts(queries, "llm_payloads") == LLMPayload.objects.count() == 0
    else:
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

    for reply in replies:
        assert f"the payload of model call {row_of(reply).pk} could not be stored" in caplog.text

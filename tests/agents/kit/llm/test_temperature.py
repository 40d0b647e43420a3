"""A temperature: sent only where it is taken, and shown as applied or not."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.kit.llm import complete, request_digest
from agents.kit.llm.endpoints import forget, route_of
from agents.kit.llm.requests import ROLES
from tests.agents.kit.llm.asking import judge_request, row_of, text_request
from tests.agents.kit.llm.conftest import Wire
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
LOCAL = "llama3.2"


@pytest.fixture(autouse=True)
def _unknown_servers() -> None:
    forget()


def test_a_temperature_counts_for_the_digest_where_one_is_set() -> None:
    plain, cold, warm = (request_digest(text_request(temperature=t)) for t in (None, 0.4, 0.55))

    assert len({plain, cold, warm}) == 3
    assert plain == request_digest(text_request())


@pytest.mark.parametrize(
    ("model", "wished", "sent"),
    [
        (LOCAL, 0.0, True),
        (LOCAL, None, False),
        ("anthropic/claude-opus-5", 0.4, False),
    ],
)
def test_only_models_that_take_it_get_it_and_the_ledger_says_so(
    llm_server: LLMServer, open_wire: Wire, model: str, wished: float | None, sent: bool
) -> None:
    llm_server.reply(text="Fine.")

    reply = complete(text_request(model=open_wire.model(model), temperature=wished))

    assert reply.ok
    assert llm_server.bodies[0].get("temperature") == (wished if sent else None)
    assert reply.temperature_applied is sent
    row = row_of(reply)
    assert (row.temperature, row.temperature_applied) == (wished, None if wished is None else sent)


def test_anthropics_own_api_never_gets_one(settings: Settings) -> None:
    settings.ACTOR_BASE_URL, settings.ANTHROPIC_API_KEY = "", "a-key"
    settings.JUDGE_BASE_URL = "https://api.anthropic.com/"

    for role in ROLES:
        route = route_of(role, "some-model")
        assert not route.remote.takes_temperature(route)


def test_a_server_that_refuses_it_is_asked_without_and_not_bothered_again(
    llm_server: LLMServer, open_wire: Wire
) -> None:
    llm_server.reply(status=400, message="temperature is not supported by this model")
    llm_server.reply(text="Fine.")
    llm_server.reply(text="Fine again.")

    first = complete(text_request(model=open_wire.model(LOCAL), temperature=0.4))
    second = complete(text_request(model=open_wire.model(LOCAL), temperature=0.4))

    assert (first.ok, second.ok) == (True, True)
    assert [body.get("temperature") for body in llm_server.bodies] == [0.4, None, None]
    assert [row_of(reply).temperature_applied for reply in (first, second)] == [False, False]


def test_a_server_that_refuses_both_temperature_and_schema_is_asked_without_either(
    llm_server: LLMServer, open_wire: Wire
) -> None:
    llm_server.reply(status=400, message="unknown field temperature")
    llm_server.reply(status=400, message=f"unknown field {open_wire.schema_field}")
    llm_server.reply(json={"score": 7, "reason": "calm"})

    reply = complete(judge_request(model=open_wire.model(LOCAL), temperature=0.4))

    assert reply.ok
    assert [{"temperature", open_wire.schema_field} & set(body) for body in llm_server.bodies] == [
        {open_wire.schema_field, "temperature"},
        {open_wire.schema_field},
        set(),
    ]


def test_offline_it_is_not_applied(settings: Settings) -> None:
    reply = complete(text_request(model="offline:scripted-1", temperature=0.4, task="nothing"))

    assert (row_of(reply).temperature, row_of(reply).temperature_applied) == (0.4, False)

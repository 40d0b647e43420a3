"""Replies on their way: what passes is sent, sentence by sentence, and nothing else."""

from __future__ import annotations

import pytest

from tests.api_client import Program
from tests.correction.gating import by_text, gated
from tests.correction.litellm.gateway import ROUTE, call, chunks_of, judging
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

TEXT = "I filed it.  It is in cabinet 3.5, e.g. under F!\n\n* See Dr. Who\n* Bye…"


@pytest.mark.parametrize("size", [1, 4, 30, 0])
@pytest.mark.parametrize("rate", [1, 5])
def test_a_reply_that_passes_arrives_byte_by_byte_equal(
    client: Program, llm_server: LLMServer, size: int, rate: int
) -> None:
    gated("adherence")
    llm_server.respond = by_text(MESSAGE=8)

    assert call(client, agent="ada").stream(chunks_of(TEXT, size), rate=rate) == TEXT


def test_a_sentence_that_fails_is_written_again_from_there(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, default=8, actor=["Hooray again. So.", "It is in F. Bye."])

    got = call(client, agent="ada").stream(chunks_of("I filed it.\n\nHooray! The rest.", 3))

    assert got == "I filed it.\n\nIt is in F. Bye."


def test_the_token_may_come_as_litellm_sends_its_api_key(client: Program) -> None:
    token = client._credentials.pop("HTTP_AUTHORIZATION").removeprefix("Token ")  # type: ignore[attr-defined]

    assert client.post(ROUTE, {"input_type": "request"}, headers={"x-api-key": token}).status_code == 200
    assert client.post(ROUTE, {"input_type": "request"}, headers={"x-api-key": "pl_wrong"}).status_code == 401
    assert client.post(ROUTE, {"input_type": "request"}).status_code == 401

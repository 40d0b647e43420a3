"""Replies through the real LiteLLM: what the judge sends back never reaches the client, and all else does as it was said."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic, APIError

from tests.gateway.model_server import CHUNKINGS, StreamedReply, tokens
from tests.gateway.planted import MARK, PlantedReply, replies
from tests.gateway.play import asking, play
from tests.gateway.product import AGENT, PERSONA
from tests.gateway.proxy import KEY
from tests.gateway.stack import Gateway

pytestmark = [pytest.mark.service, pytest.mark.slow]

CLEAN = "Your file is in cabinet 7. It weighs 3.5 kg. Nobody has opened it since then."
CHEERING = "Your file is in cabinet 7. Hooray, that makes me so happy! It weighs 3.5 kg."
CORRECTED = "Your file is in cabinet 7. It is in the second cabinet."  # what the model says when it is asked again


@pytest.fixture(autouse=True)
def _judge_at_once(gateway: Gateway) -> Iterator[None]:
    yield
    gateway.judge.latency, gateway.judge.hangs = 0.0, False


@pytest.mark.parametrize("chunking", CHUNKINGS)
def test_no_planted_sentence_reaches_the_client_however_it_is_cut(gateway: Gateway, chunking: str) -> None:
    played = play(gateway.proxy, gateway.model, replies(12, planted=10, seed=3), CHUNKINGS[chunking])

    assert (played.leaked, played.wrong, played.errors) == (0, 0, []), played.examples


def test_a_reply_that_is_not_streamed_is_gated_as_well(gateway: Gateway) -> None:
    played = play(gateway.proxy, gateway.model, replies(12, planted=10, seed=4), tokens, stream=False)

    assert (played.leaked, played.wrong, played.errors) == (0, 0, []), played.examples


@pytest.mark.parametrize(
    ("model", "stream"), [("angela", False), ("angela-messages", False), ("angela-messages", True)]
)
def test_clients_of_anthropics_messages_get_what_passed(gateway: Gateway, model: str, stream: bool) -> None:
    for number, (said, received) in enumerate([(CHEERING, CORRECTED), (CLEAN, CLEAN)]):
        question = f"Messages {model} {stream} {number}?"
        gateway.model.replies[question] = StreamedReply(texts=[tokens(said)])

        assert said_over_messages(gateway, model, question, stream=stream) == received


def test_a_stream_of_messages_that_cannot_be_changed_ends_where_it_fails(gateway: Gateway) -> None:
    gateway.model.replies["Not held?"] = StreamedReply(texts=[tokens(f"{CHEERING} {CLEAN}")], pause=0.02)
    gateway.model.replies["Not held, clean?"] = StreamedReply(texts=[tokens(CLEAN)], pause=0.02)

    with pytest.raises(APIError):
        said_over_messages(gateway, "angela", "Not held?", stream=True)
    assert said_over_messages(gateway, "angela", "Not held, clean?", stream=True) == CLEAN


def said_over_messages(gateway: Gateway, model: str, question: str, *, stream: bool) -> str:
    client = Anthropic(base_url=gateway.proxy.url, api_key=KEY, max_retries=0)
    words: dict[str, Any] = {"model": model, "max_tokens": 500, "system": PERSONA}
    words["messages"] = [{"role": "user", "content": question}]
    if stream:
        with client.messages.stream(**words) as events:
            return events.get_final_text()
    return "".join(block.text for block in client.messages.create(**words).content)


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call_arrives_and_the_words_before_it_are_gated(gateway: Gateway, stream: bool) -> None:
    question = f"With a tool {stream}?"
    gateway.model.replies[question] = StreamedReply(texts=[tokens(CHEERING)], calls_tool=True)

    [received] = gateway.proxy.ask([asking(question, stream=stream)])

    assert received["error"] == ""
    assert received["texts"] == {"0": CORRECTED}
    assert received["tool_calls"] == ["find_file"]


def test_of_several_choices_each_is_gated_alone(gateway: Gateway) -> None:
    gateway.model.replies["Two?"] = StreamedReply(texts=[tokens(CLEAN), tokens(CHEERING)])

    [received] = gateway.proxy.ask([asking("Two?", stream=True, n=2)])

    assert received["error"] == ""
    assert received["texts"] == {"0": CLEAN, "1": CORRECTED}


def test_usage_still_arrives_at_the_end_of_a_gated_stream(gateway: Gateway) -> None:
    gateway.model.replies["Usage?"] = StreamedReply(texts=[tokens(CLEAN)])

    [received] = gateway.proxy.ask([asking("Usage?", stream=True, stream_options={"include_usage": True})])

    assert received["texts"] == {"0": CLEAN}
    assert received["usage"]["total_tokens"] == 110


def test_a_hanging_judge_delays_a_stream_by_its_deadline_and_no_longer(gateway: Gateway) -> None:
    gateway.model.replies["Hangs?"] = StreamedReply(texts=[tokens(CLEAN)], pause=0.01)
    gateway.judge.hangs = True

    # gate_deadline_seconds is 5, gate_total_deadline_seconds is 12
    [received] = gateway.proxy.ask([asking("Hangs?", stream=True)])

    assert received["texts"] == {"0": CLEAN}
    assert received["seconds"] < 12 + 8  # the rest is what a busy machine needs


def test_a_call_id_that_a_client_uses_again_begins_a_new_reply(gateway: Gateway) -> None:
    gateway.model.replies["First?"] = StreamedReply(texts=[tokens(CHEERING)])
    gateway.model.replies["Second?"] = StreamedReply(texts=[tokens(CLEAN)])
    headers = {"x-litellm-call-id": "mine-7"}

    received = gateway.proxy.ask([asking("First?", stream=True, headers=headers)])
    received += gateway.proxy.ask([asking("Second?", stream=True, headers=headers)])

    assert [one["error"] for one in received] == ["", ""]
    assert [one["texts"] for one in received] == [{"0": CORRECTED}, {"0": CLEAN}]


def test_a_stream_that_the_model_breaks_off_leaks_nothing(gateway: Gateway) -> None:
    for breaks_after in range(5, 20, 4):
        question = f"Broken after {breaks_after}?"
        gateway.model.replies[question] = StreamedReply(texts=[tokens(CHEERING)], breaks_after=breaks_after)

        [received] = gateway.proxy.ask([asking(question, stream=True)])

        assert MARK not in received["texts"].get("0", "")


def test_a_conversation_is_stored_once_though_each_call_brings_its_history(gateway: Gateway) -> None:
    gateway.model.replies["Where is it?"] = StreamedReply(texts=[tokens(CHEERING)])
    gateway.model.replies["And the other?"] = StreamedReply(texts=[tokens(CLEAN)])
    first = asking("Where is it?", stream=True, headers={"x-litellm-session-id": "shop-1"})
    second = asking("And the other?", stream=True, headers={"x-litellm-session-id": "shop-1"})
    second["messages"][1:1] = [first["messages"][1], {"role": "assistant", "content": CORRECTED}]

    for request in (first, second):
        gateway.proxy.ask([request])

    stored = [row for row in gateway.product.store_replies() if "shop-1" in row["channel__slug"]]
    said = ["Where is it?", CORRECTED, "And the other?", CLEAN]
    assert [row["text"] for row in stored] == said
    assert [row["agent__slug"] for row in stored] == [None, AGENT, None, AGENT]


def test_fifty_streams_at_once_are_all_right(gateway: Gateway) -> None:
    gateway.judge.latency = 0.1
    played = play(gateway.proxy, gateway.model, replies(50, planted=25, seed=5), tokens, pause=0.02, at_once=50)

    assert (played.leaked, played.wrong, played.errors) == (0, 0, []), played.examples


def test_a_process_killed_in_the_middle_never_doubles_text(gateway: Gateway) -> None:
    """What it had not answered is let through unchecked (fail_open): that may leak a sentence, but none is said twice."""
    said = []
    for number in range(8):
        text = f"{CLEAN} That was reply {number}."
        said.append(PlantedReply(text=text, clean_start=text, planted=0))
    rounds = gateway.judge.calls

    def kill() -> None:
        gateway.judge.wait_until(lambda: gateway.judge.calls > rounds + 4)
        gateway.product.kill_workers()

    killing = threading.Thread(target=kill)
    killing.start()
    played = play(gateway.proxy, gateway.model, said, tokens, pause=0.05, at_once=4)
    killing.join()

    assert (played.wrong, played.errors) == (0, []), played.examples


def test_while_plumbline_is_away_replies_arrive_unchecked(migrated_file: Path, tmp_path: Path) -> None:
    database = shutil.copy(migrated_file, tmp_path / "db.sqlite3")
    with Gateway(tmp_path, f"sqlite:///{database}") as gateway:
        gateway.model.replies["Away?"] = StreamedReply(texts=[tokens(CHEERING)])
        gateway.product.plumbline.stop()

        since = time.monotonic()
        [received] = gateway.proxy.ask([asking("Away?", stream=True)])

        assert received["texts"] == {"0": CHEERING}
        assert time.monotonic() - since < 20

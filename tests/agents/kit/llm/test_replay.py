"""A run stored and run again with no key and no server."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from agents.kit.llm import Block, Label, LLMRequest, Reply, Status, ToolCall, ToolResult, Turn, complete
from agents.kit.models import LLMCall, LLMPayload
from tests.agents.kit.llm.asking import Score, act_request, judge_request, row_of
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


@pytest.fixture(autouse=True)
def stored(settings: Settings) -> None:
    settings.LLM_STORE_PAYLOADS = "all"


def question(text: str, nonce: str = "", **changes: Any) -> LLMRequest:
    return judge_request(turns=(Turn("user", (Block(f"{nonce} {text}"),)),), nonce=nonce, **changes)


def export(out: Path, *options: str) -> list[dict[str, Any]]:
    call_command("export_payloads", "--out", str(out), *options, stdout=StringIO())
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def replayed(answers: Path, request: LLMRequest, settings: Settings) -> Reply:
    settings.ANTHROPIC_API_KEY = settings.JUDGE_BASE_URL = ""
    settings.JUDGE_MODEL = f"replay:{answers}"
    return complete(request)


def test_a_stored_run_gives_the_same_answers_again(llm_server: LLMServer, settings: Settings, answers: Path) -> None:
    llm_server.reply(text='```json\n{"score": 4, "reason": "schön 😀"}\n```', model="served")
    llm_server.reply(stop_reason="refusal", text="no")
    first = complete(question("one", nonce="abc"))
    second = complete(question("two"))
    export(answers)

    again = replayed(answers, question("one", nonce="xyz"), settings)

    assert (again.status, again.value, again.text) == (first.status, first.value, first.text)
    assert (again.provider, again.served_model, again.attempts) == ("replay", "served", 0)
    assert again.request_digest == first.request_digest
    assert row_of(again).cost_usd == 0
    assert replayed(answers, question("two"), settings).status is second.status is Status.REFUSED
    assert llm_server.calls == 2


def test_a_question_that_was_never_asked_is_rejected(llm_server: LLMServer, settings: Settings, answers: Path) -> None:
    complete(question("one"))
    export(answers)

    reply = replayed(answers, question("three"), settings)

    assert (reply.status, reply.error) == (Status.REJECTED, f"no stored answer for this request in {answers}")


@pytest.mark.parametrize("line", ["not json", "[]", '{"text": "no digest"}'])
def test_a_broken_file_is_rejected_with_the_line(settings: Settings, answers: Path, line: str) -> None:
    answers.write_text('{"digest": "d", "text": "t"}\n\n' + line + "\n", encoding="utf-8")

    reply = replayed(answers, question("one"), settings)

    assert reply.status is Status.REJECTED
    assert reply.error == f"cannot read {answers}: line 3 is not a JSON object with a digest"


def test_a_changed_file_is_read_again(llm_server: LLMServer, settings: Settings, answers: Path) -> None:
    llm_server.always(json={"score": 4, "reason": "a"})
    digest = complete(question("one")).request_digest
    (row,) = export(answers)
    assert replayed(answers, question("one"), settings).value == Score(score=4, reason="a")

    answers.write_text(json.dumps(row | {"digest": digest, "text": '{"score": 5, "reason": "b"}'}), encoding="utf-8")

    assert replayed(answers, question("one"), settings).value == Score(score=5, reason="b")


def test_the_newest_good_answer_of_a_question_is_exported(llm_server: LLMServer, answers: Path) -> None:
    for text in ('{"score": 1, "reason": "a"}', '{"score": 2, "reason": "b"}', "seven"):
        llm_server.reply(text=text)
        complete(question("one"))

    (row,) = export(answers)

    assert row["text"] == '{"score": 2, "reason": "b"}'
    assert set(row) == {"digest", "model", "served_model", "stop_reason", "text"}


def test_an_export_can_be_limited_to_a_work_or_a_time(llm_server: LLMServer, answers: Path) -> None:
    old = complete(question("one", label=Label(purpose="evaluation", work_id="evaluation_run:1")))
    new = complete(question("two", label=Label(purpose="evaluation", work_id="evaluation_run:2")))
    LLMCall.objects.filter(pk=row_of(old).pk).update(created_at=timezone.now() - timedelta(days=30))
    yesterday = (timezone.localdate() - timedelta(days=1)).isoformat()

    assert [row["digest"] for row in export(answers, "--since", yesterday)] == [new.request_digest]
    assert [row["digest"] for row in export(answers, "--work-id", "evaluation_run:1")] == [old.request_digest]
    assert len(export(answers)) == 2


def test_an_export_of_nothing_says_why_and_leaves_the_old_file(answers: Path) -> None:
    answers.write_text("old", encoding="utf-8")
    assert not LLMPayload.objects.exists()

    with pytest.raises(CommandError, match="LLM_STORE_PAYLOADS must be 'judge' or 'all'"):
        export(answers)
    assert answers.read_text(encoding="utf-8") == "old"


def play_turn() -> list[Reply]:
    """An actor's turn: ask, answer the tools it wants, ask again, until it wants none."""
    turns: tuple[Turn, ...] = (Turn("user", (Block("Your turn."),)),)
    replies: list[Reply] = []
    while not replies or replies[-1].tool_calls:
        replies.append(complete(act_request(turns=turns)))
        calls = replies[-1].tool_calls
        results = tuple(ToolResult(call.id, f"{call.name}: done") for call in calls)
        turns += (
            Turn("assistant", (Block(replies[-1].text),), tool_calls=calls),
            Turn("user", tool_results=results),
        )
    return replies


def test_a_turn_with_tools_is_replayed_step_by_step(llm_server: LLMServer, settings: Settings, answers: Path) -> None:
    llm_server.reply(text="Who is here?", tool_calls=[("look_around", {}), ("send_message", {"text": "Grüß Gott 😀"})])
    llm_server.reply(tool_calls=[{"type": "tool_use", "name": "send_message", "input": '{"text": "Bye."}'}])
    llm_server.reply(text="That is all.")
    first = play_turn()
    export(answers)

    settings.ACTOR_MODEL = f"replay:{answers}"
    again = play_turn()

    assert [(r.text, r.tool_calls, r.stop_reason) for r in again] == [
        (r.text, r.tool_calls, r.stop_reason) for r in first
    ]
    assert again[0].tool_calls[1] == ToolCall("toolu_1_2", "send_message", {"text": "Grüß Gott 😀"})
    assert again[1].tool_calls == (ToolCall("call_1", "send_message", {"text": "Bye."}),)
    assert {reply.provider for reply in again} == {"replay"}
    assert llm_server.calls == 3


def test_a_tool_call_that_was_not_carried_out_is_not_in_replays(
    llm_server: LLMServer, settings: Settings, answers: Path
) -> None:
    llm_server.reply(tool_calls=[("send_message", "I would")])
    first = complete(act_request())
    export(answers)

    settings.ACTOR_MODEL = f"replay:{answers}"
    again = complete(act_request())

    assert again.status is first.status is Status.MALFORMED
    assert (again.error, again.tool_calls) == (first.error, ())


def test_a_file_whose_tool_calls_are_none_is_rejected(llm_server: LLMServer, settings: Settings, answers: Path) -> None:
    digest = complete(act_request()).request_digest
    answers.write_text(json.dumps({"digest": digest, "tool_calls": "send_message"}), encoding="utf-8")
    settings.ACTOR_MODEL = f"replay:{answers}"

    reply = complete(act_request())

    assert (reply.status, reply.tool_calls) == (Status.REJECTED, ())
    assert reply.error.startswith(f"cannot read {answers}: the tool_calls of an answer")

"""A sentence that fails is written again from there, with the gate's feedback, and logged as any draft."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.kit.text.fences import render_prompt
from agents.models import Message
from correction.config.configure import configure
from correction.gate.statistics import get_gate_statistics
from correction.models import CorrectionLog, GateSession
from tests.api_client import Program
from tests.correction.gating import gated, logs
from tests.correction.ledger import price
from tests.correction.litellm.gateway import ASKED, call, chunks_of, end_replies, judging
from tests.evaluation.judging import prompt_of
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
TEXT = "I filed it. Hooray! The rest."


def actor_calls(server: LLMServer) -> list[dict[str, Any]]:
    return [body for body in server.bodies if "output_config" not in body]


def test_the_model_goes_on_behind_the_words_that_are_out(
    client: Program, llm_server: LLMServer, settings: Settings
) -> None:
    settings.GATE_REWRITE_MODELS = ["other"]
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["It is in F."])

    got = call(client, agent="ada", rewrite_model="other").stream(chunks_of(TEXT, 4))

    assert got == "I filed it. It is in F."
    (body,) = actor_calls(llm_server)
    assert body["model"] == "other"
    assert body["system"][0]["text"] == ASKED[0]["content"]
    asked, begun, note = body["messages"]
    assert (asked["role"], asked["content"][0]["text"]) == ("user", "Well?")
    assert (begun["role"], begun["content"][0]["text"]) == ("assistant", "I filed it.")
    assert "> I filed it. Hooray!" in note["content"][0]["text"]
    marks = [headers.get("x-litellm-plumbline-rewrite") for headers in llm_server.headers]
    assert len([mark for mark in marks if mark]) == 1


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "from_the_start"])
def test_the_note_to_the_model_reads_as_its_snapshot(begun: bool) -> None:
    path = Path(__file__).with_name("snapshots") / f"continue_{'begun' if begun else 'from_the_start'}.txt"
    found = render_prompt("litellm/continue", begun=begun, feedback="THE FEEDBACK") + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(found, encoding="utf-8")

    assert found == path.read_text(encoding="utf-8")


def test_what_the_model_repeats_of_the_words_that_are_out_is_left_out(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["I filed it. It is in F."])

    assert call(client, agent="ada").stream(chunks_of(TEXT, 4)) == "I filed it. It is in F."


def test_the_model_is_shown_what_tools_answered_and_the_judge_is_not(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["It is in F."])
    called = {"id": "1", "type": "function", "function": {"name": "find_file", "arguments": "{}"}}
    messages = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [called]}]
    messages.append({"role": "tool", "tool_call_id": "1", "content": "cabinet F"})
    call(client, agent="ada", messages=messages).stream(chunks_of(TEXT, 4))
    end_replies()

    (body,) = actor_calls(llm_server)
    assert "cabinet F" in str(body["messages"])
    assert not [judged for judged in llm_server.bodies if judged is not body and "cabinet F" in str(judged)]
    assert not Message.objects.filter(text__contains="cabinet F").exists()


def test_attempts_are_logged_and_counted_as_those_of_any_draft(client: Program, llm_server: LLMServer) -> None:
    price()
    ada, _ = gated("adherence")
    llm_server.respond = judging(Hooray=1, Hurrah=3, actor=["In the attic. Hurrah!", "Bye."])

    got = call(client, agent="ada").stream(chunks_of(TEXT, 4))
    end_replies()

    assert got == "I filed it. In the attic. Bye."
    first, second, third = logs()
    assert [log.outcome for log in (first, second, third)] == ["corrected", "corrected", "passed_after_retry"]
    assert [log.judged_text for log in (first, second, third)] == [
        "I filed it. Hooray!", "I filed it. In the attic. Hurrah!", "I filed it. In the attic. Bye.",
    ]  # fmt: skip
    session = GateSession.objects.get()
    message = Message.objects.get(agent=ada)
    assert (session.source, session.outcome, session.sent, session.message) == (
        "gate",
        "passed_after_retry",
        3,
        message,
    )
    assert (session.agent, session.channel, message.text) == (ada, message.channel, got)
    assert "This is the second time" in second.feedback
    assert {row.score for row in third.dimension_results.all()} == {8}
    figures = get_gate_statistics()
    assert (figures.total_actions, figures.regeneration_count) == (1, 2)
    assert {work for (work,) in LLMCall.objects.values_list("work_id")} == {session.work_id}
    assert not LLMCall.objects.filter(cost_usd=None).exists()


@pytest.mark.parametrize(
    ("actor", "scores", "said", "outcome", "sent"),
    [
        (["Hurrah!", "Hoorah!"], {"Hurrah": 4, "Hoorah": 3, "Hooray": 1}, "I filed it. Hurrah!", "forced_through", 2),
        (["Hurrah!", "Hoorah!"], {"Hurrah": 2, "Hoorah": 3, "Hooray": 4}, TEXT, "forced_through", 1),
        ([{"status": 529}], {"Hooray": 1}, TEXT, "forced_through", 1),
    ],
    ids=["best of the rewritten", "the model's own", "no rewriting"],
)
def test_where_all_attempts_fail_the_best_one_is_said(
    client: Program, llm_server: LLMServer, actor: Any, scores: Any, said: str, outcome: str, sent: int
) -> None:
    gated("adherence")
    llm_server.respond = judging(actor=actor, **scores)

    got = call(client, agent="ada").stream(chunks_of(TEXT, 4))
    end_replies()

    assert got == said
    session = GateSession.objects.get()
    assert (session.outcome, session.sent, session.message and session.message.text) == (outcome, sent, said)


def test_a_model_that_says_no_more_ends_the_reply(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=[""])

    got = call(client, agent="ada").stream(chunks_of(TEXT, 4))
    end_replies()

    assert got == "I filed it."
    session = GateSession.objects.get()
    assert (session.outcome, session.sent, session.message and session.message.text) == ("corrected", None, got)


def test_the_operators_sentence_is_said_where_all_attempts_fail(client: Program, llm_server: LLMServer) -> None:
    gated("adherence", max_correction_attempts=1)
    llm_server.respond = judging(Hooray=1, Hurrah=4, actor=["Hurrah!"])

    got = call(client, agent="ada", fallback_text="Please call us.").stream(chunks_of(TEXT, 4))
    end_replies()

    assert got == "I filed it. Please call us."
    session = GateSession.objects.get()
    assert (session.outcome, session.sent, session.message and session.message.text) == ("corrected", None, got)
    assert [log.outcome for log in logs()] == ["corrected", "corrected"]


def test_only_a_mark_of_ours_spares_a_call_the_gate(client: Program, llm_server: LLMServer) -> None:
    gated("adherence", max_correction_attempts=1)
    llm_server.respond = judging(Hooray=1, actor=["It is in F."] * 4)
    call(client, agent="ada").stream(chunks_of(TEXT, 4))
    mark = next(found for h in llm_server.headers if (found := h.get("x-litellm-plumbline-rewrite")))

    headers = {"x-litellm-plumbline-rewrite": mark}
    marked = call(client, agent="ada", headers=headers, model="test-model")
    marked.model = "test-model-20260101"  # as the server names it
    calls = llm_server.calls
    assert marked.stream([TEXT]) == TEXT
    assert llm_server.calls == calls

    configure(agent=make_agent("bob"), changes={"gate_adherence_enabled": True, "max_correction_attempts": 1})
    forged_headers = {"x-litellm-plumbline-rewrite": mark[:-1] + "~"}
    forged = call(client, agent="ada", headers=forged_headers, model="test-model")
    other_model = call(client, agent="ada", headers=headers, model="ada")
    other_agent = call(client, agent="bob", headers=headers, model="test-model")
    for guarded in (forged, other_model, other_agent):
        assert guarded.stream([TEXT]) == "I filed it. It is in F."


def test_without_a_network_the_agents_own_lines_go_on(client: Program, settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.ACTOR_MODEL = "offline:lexical-1", "offline:scripted-1"
    agent, _ = gated("adherence", slug="michael", origin="seed")
    agent.sample_lines = ["Listen to me, people! As your boss I have decided: this is the best day ever!"]
    agent.save()

    got = call(client, agent="michael").stream(chunks_of("Noted. The report will be submitted as planned.", 4))

    assert got == agent.sample_lines[0]


def test_a_speaker_who_is_no_agent_speaks_by_the_system_message(client: Program, llm_server: LLMServer) -> None:
    configure(agent=None, changes={"gate_adherence_enabled": True})
    llm_server.respond = judging(Hooray=1, actor=["It is in F."])

    got = call(client, speaker="Ada").stream(chunks_of(TEXT, 4))
    end_replies()

    assert got == "I filed it. It is in F."
    assert "You are Ada, a dry and careful clerk." in prompt_of(llm_server.bodies[0])
    session = GateSession.objects.get()
    assert (session.source, session.speaker, session.agent, session.outcome) == (
        "external", "Ada", None, "passed_after_retry",
    )  # fmt: skip
    assert CorrectionLog.objects.count() == 2
    assert not Message.objects.exists()


def test_what_follows_a_sentence_that_was_let_through_is_judged(client: Program, llm_server: LLMServer) -> None:
    ada, _ = gated("adherence", max_correction_attempts=1)
    llm_server.respond = judging(Hooray=2, Worst=1, Hurrah=0, actor=["Hurrah."])
    text = "One. Hooray! Two. Worst thing ever. Three."

    got = call(client, agent="ada").stream(chunks_of(text, 5))
    end_replies()

    assert got == text
    assert [log.outcome for log in logs()] == ["corrected", "corrected", "forced_through"]
    assert logs()[-1].dimension_results.get().score == 1
    session = GateSession.objects.get()
    assert (session.outcome, session.sent) == ("forced_through", 3)
    assert session.message == Message.objects.get(agent=ada)
    assert len(actor_calls(llm_server)) == 1


def test_an_end_that_was_kept_back_is_logged(client: Program, llm_server: LLMServer) -> None:
    ada, _ = gated("adherence")
    llm_server.respond = judging(Hooray=1)

    got = call(client, agent="ada").stream(chunks_of("I filed it. Hooray", 6), rate=2)
    end_replies()

    assert got == "I filed it."
    assert [(log.outcome, log.judged_text) for log in logs()] == [("corrected", "I filed it. Hooray")]
    session = GateSession.objects.get()
    assert (session.outcome, session.sent, session.message) == ("corrected", None, Message.objects.get(agent=ada))


def test_what_was_cut_is_said_up_to_its_last_whole_sentence(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=[{"text": "It is upstairs. And mo", "stop_reason": "max_tokens"}])

    assert call(client, agent="ada").stream(chunks_of(TEXT, 4)) == "I filed it. It is upstairs."

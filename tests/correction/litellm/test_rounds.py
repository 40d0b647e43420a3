"""Replies on their way: what passes is sent, sentence by sentence, and nothing else."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from agents.kit.llm import LLMRequest
from agents.kit.models import owner_name
from agents.models import Agent, Message
from correction.config.configure import configure as settle
from correction.gate.statistics import get_gate_statistics
from correction.litellm.ending import work_one
from correction.litellm.models import GatedReply
from correction.models import GateSession
from evaluation.propositions.rules import Rule, rule_while_growing
from tests.api_client import Program, refused
from tests.correction.gating import by_text, configure, gated, logs, outcomes, statements, team_file
from tests.correction.litellm.gateway import ASKED, ROUTE, Ended, asked_judge, call, chunks_of, end_replies, judging
from tests.declaring import declare
from tests.evaluation.judging import entry, tail_of
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


# -- what is checked, and how often
def judged_texts(server: LLMServer) -> list[str]:
    """What the judge was asked about, in its order."""
    found = []
    for body in server.bodies:
        if "output_config" in body:
            found.append(tail_of(body).partition("Ada acts: ")[2].partition("\n<<<END")[0].replace("\n    | ", "\n"))
    return found


@pytest.mark.parametrize("rate", [1, 3])
def test_each_beginning_is_judged_once(client: Program, llm_server: LLMServer, rate: int) -> None:
    gated("adherence")
    llm_server.respond = judging()
    stream = call(client, agent="ada")

    for _ in range(2):  # every round comes twice
        text = ""
        for number, chunk in enumerate(chunks_of("I filed it. It is upstairs. Bye", 4), 1):
            text += chunk
            if number % rate == 0:
                stream.response(text)
                stream.response(text)
    stream.response(text, is_last=True)

    texts = judged_texts(llm_server)
    assert len(texts) == len(set(texts))
    assert {"I filed it.", "I filed it. It is upstairs.", "I filed it. It is upstairs. Bye"} <= set(texts)
    assert all("It is still being written" in tail_of(body) for body in llm_server.bodies)


def test_a_sentence_goes_out_when_the_next_one_begins(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    stream = call(client, agent="ada")

    stream.response("I file")
    assert stream.sent[0] == ""
    stream.response("I filed it.")
    assert stream.sent[0] == "I filed it."
    stream.response("I filed it. It is in 3.")
    assert stream.sent[0] == "I filed it."
    stream.response("I filed it. It is in 3.5 now. See")
    assert stream.sent[0] == "I filed it. It is in 3.5 now."


def test_a_long_round_is_judged_in_few_parts(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["It is upstairs."])
    sentences = [f"Line {number} ends." for number in range(1, 41)]

    assert call(client, agent="ada").stream([" ".join(sentences)]) == " ".join(sentences)
    assert llm_server.calls == 8
    sentences[22] = "Hooray!"
    assert call(client, agent="ada").stream([" ".join(sentences)]) == " ".join([*sentences[:20], "It is upstairs."])


def test_an_unfinished_rest_that_fails_waits_until_it_is_finished(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = by_text(**{"upstairs": 8, "It is up": 1, "MESSAGE": 8})
    stream = call(client, agent="ada")

    stream.response("I filed it.")
    stream.response("I filed it. It is up")
    assert (stream.answers[-1]["texts"], stream.sent[0]) == (["I filed it."], "I filed it.")
    stream.response("I filed it. It is upstairs.", is_last=True)
    assert stream.sent[0] == "I filed it. It is upstairs."


@pytest.mark.parametrize(
    ("text", "rate", "expected"),
    [
        ("Hooray", 5, "Ours."),  # nothing else would be said
        ("I filed it. Hooray", 1, "I filed it. Ours."),  # the last round brings the same text again
        ("I filed it. Hooray", 100, "I filed it. Ours."),  # the only round: a whole reply
        ("I filed it. Hooray", 2, "I filed it."),
    ],
)
def test_a_reply_that_breaks_off_in_a_failed_sentence_ends_without_it(
    client: Program, llm_server: LLMServer, text: str, rate: int, expected: str
) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Ours."])

    assert call(client, agent="ada").stream(chunks_of(text, 6), rate=rate) == expected


RULES = [  # rule, reply, what must have arrived
    ("{max_sentences: 2}", "One. Two. Three.", "One. Two. Ours."),
    ("{contains_none: [hooray]}", "One. Hooray! Three.", "One. Ours."),
    ("{not_matches: 'hoo+ray'}", "One. Hooray! Three.", "One. Ours."),
    ("{no_emoji: true}", "One. Two 🎉 Three.", "One. Ours."),
    ("{min_sentences: 3}", "One. Two. Three.", "One. Two. Three."),
    ("{min_sentences: 3}", "One. Two.", "One. Two."),
    ("{matches: 'right\\?$'}", "One. Two. Right?", "One. Two. Right?"),
    ("{not_matches: '\\?$'}", "One? Two.", "One? Two."),
    ("{contains_any: [three]}", "One. Two. Three.", "One. Two. Three."),
    ("{max_words: 4, contains_all: [four]}", "One. Two three. Four.", "One. Two three. Four."),
]


@pytest.mark.parametrize(("rule", "text", "expected"), RULES)
def test_rules_are_checked_where_more_text_cannot_mend_what_is_broken(
    client: Program, llm_server: LLMServer, settings: Settings, tmp_path: Path, rule: str, text: str, expected: str
) -> None:
    team_file(settings, tmp_path, "adherence/ada.yaml", f"rule: {rule}")
    agent, _ = gated("fluency", max_correction_attempts=1)
    configure(agent, "fluency", gate_rules_enabled=True, max_correction_attempts=1)
    llm_server.respond = judging(actor=["Ours."])
    settings.JUDGE_MODEL = "offline:lexical-1"

    assert call(client, agent="ada", fallback_text="Ours.").stream(chunks_of(text, 3)) == expected


@pytest.mark.parametrize("rule", ["{contains_none: [cat]}", r"{not_matches: '\bcat\b'}"])
def test_half_of_a_word_is_not_written_again_for_a_rule(
    client: Program, llm_server: LLMServer, settings: Settings, tmp_path: Path, rule: str
) -> None:
    team_file(settings, tmp_path, "adherence/ada.yaml", f"rule: {rule}")
    agent, _ = gated("fluency")
    configure(agent, "fluency", gate_rules_enabled=True)
    llm_server.respond = judging(actor=["Ours.", "Ours."])

    text = "It is in the category of files."
    assert call(client, agent="ada").stream(["It is in the ", "cat", "egory of files."]) == text
    cut = call(client, agent="ada")
    cut.response("It is in the ")
    cut.response("It is in the cat", is_last=True)
    assert cut.sent[0] == "It is in the "


def test_what_must_not_be_is_checked_only_where_it_stays(client: Program) -> None:
    assert rule_while_growing(Rule(contains_any=["hooray"]), inverted=True) == Rule(contains_any=["hooray"])
    assert rule_while_growing(Rule(max_words=3), inverted=True) is None
    assert rule_while_growing(Rule(matches="now$"), inverted=True) is None
    assert rule_while_growing(Rule(not_matches=r"now\B"), inverted=False) is None


SENTENCES = st.lists(
    st.sampled_from(
        ["I filed it.", "See Dr. Who!", "Really?", "12.5 percent…", "* a point\n", "Hooray!", "Ça va, e.g. 字。", " "]
    ),
    max_size=6,
)


@given(sentences=SENTENCES, sizes=st.lists(st.integers(1, 9), min_size=1), rate=st.integers(1, 4))
def test_a_planted_sentence_never_goes_out_and_every_other_text_does(
    client: Program, llm_server: LLMServer, sentences: list[str], sizes: list[int], rate: int
) -> None:
    agent = Agent.objects.filter(slug="ada").first()
    if agent is None:
        gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Ours."])
    text = " ".join(sentences)
    chunks: list[str] = []
    while len(got := "".join(chunks)) < len(text):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(text[len(got) : len(got) + size])

    said = call(client, agent="ada").stream(chunks, rate=rate) if chunks else ""

    assert "Hooray" not in said
    before, planted, _ = text.partition("Hooray!")
    if planted:
        assert said == before + "Ours."
    else:
        assert said == text


# -- several choices, tools, other modes
def test_choices_are_told_apart_by_their_texts(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Ours."])
    stream = call(client, agent="ada")

    for round_ in (["One. Hoo"], ["Two. ", "One. Hooray! "], ["Two. More", "One. Hooray! So"]):  # choice 1 began first
        answer = stream.round("response", texts=round_)

    assert answer["texts"] == ["Two. More", "One. Ours."]
    assert answer["stream_holdback_chars"] == [len(" More"), 0]
    sessions = [reply["session"] for reply in GatedReply.objects.get().replies]
    assert len(set(sessions)) == 2


def test_calls_of_tools_alone_need_no_answer(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    stream = call(client, agent="ada")

    tool_call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}, "index": 0}
    for texts in ([], [""]):
        assert stream.round("response", texts=texts, tool_calls=[tool_call])["action"] == "NONE"
    assert llm_server.calls == 0


def test_a_round_of_a_call_that_was_not_announced_is_checked(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Ours."])
    stream = call(client, agent="ada")
    stream.call_id = "unknown"

    assert stream.stream(["Hooray!"]) == "Ours."


def test_a_stream_that_cannot_be_changed_is_stopped(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Ours.", "Ours."])
    headers = {"anthropic-version": "[present]"}

    held = call(client, agent="ada", headers=headers)
    assert held.stream(["One. Hooray!"]) == "One. Ours."
    flowing = call(client, agent="ada", headers=headers)
    flowing.response("One. ")
    calls = llm_server.calls
    for text in ("One. Hooray! ", "One. Hooray! Two."):
        with pytest.raises(Ended):
            flowing.response(text)
    assert llm_server.calls == calls + 1, "one check, and nothing written that nobody would get"
    end_replies()
    assert [log.outcome for log in logs()][-1] == "corrected"
    assert Message.objects.latest("pk").text == "One."


@pytest.mark.parametrize(
    ("mode", "kind", "most"),
    [
        ("off", "request", 1), ("off", "response", 1),
        ("observe", "request", 4), ("observe", "response", 3),
        ("enforce", "request", 4), ("enforce", "response", 7),
    ],
)  # fmt: skip
def test_a_round_takes_few_statements_beside_signing_in(
    client: Program, llm_server: LLMServer, mode: str, kind: str, most: int
) -> None:
    gated("adherence", gate_mode=mode)
    llm_server.respond = judging()
    stream = call(client, agent="ada")
    stream.response("I")

    with statements() as got:
        stream.round(kind, texts=["I filed it."], structured_messages=ASKED)

    beside = [sql for sql in got if "api_tokens" not in sql and "auth_permission" not in sql]
    assert len(beside) <= most, "\n".join(beside)
    assert GatedReply.objects.exists() == (mode != "off")


# -- faults
@pytest.mark.slow
def test_while_the_judge_hangs_the_stream_goes_on_within_the_deadline(client: Program, llm_server: LLMServer) -> None:
    gated("adherence", gate_deadline_seconds=1, gate_total_deadline_seconds=2)
    llm_server.always(hang=True)
    text = "I filed it. It is upstairs. Bye. So. And. Then."
    started = time.monotonic()

    assert call(client, agent="ada").stream(chunks_of(text, 6)) == text
    assert time.monotonic() - started < 8, "two seconds of waiting, and what a busy machine takes"
    end_replies()
    assert outcomes() == ["timeout_passed"]


@pytest.mark.slow
def test_a_slow_judge_holds_a_reply_up_no_longer_than_its_length_allows(client: Program, llm_server: LLMServer) -> None:
    gated("adherence", gate_deadline_seconds=1, gate_total_deadline_seconds=1)
    llm_server.always(json=entry(8), latency=0.4)
    sentences = [f"Line {number} ends here. " for number in range(10, 20)]
    text = "".join(sentences)

    assert call(client, agent="ada").stream(sentences) == text
    assert llm_server.calls <= 4, "a second of waiting"
    end_replies()
    assert outcomes() == ["timeout_passed"]

    long_sentence = f"{'The files are here and ' * 22}there. "
    before = llm_server.calls
    call(client, agent="ada").stream([long_sentence] * 5)
    assert llm_server.calls - before >= 5, "another second for every 500 characters"


def test_where_the_judge_fails_text_passes_and_the_log_says_so(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = by_text(upstairs={"status": 529}, MESSAGE=8)

    assert call(client, agent="ada").stream(["I filed it. ", "It is upstairs."]) == "I filed it. It is upstairs."
    end_replies()
    assert outcomes() == ["error_passed"]


@pytest.mark.databases_differ
def test_of_two_rounds_at_once_both_get_the_same_text(
    client: Program, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """The actor of one round is overtaken by another round of the same call."""
    settings.JUDGE_MODEL, settings.ACTOR_MODEL = "offline:lexical-1", "offline:scripted-1"
    gated("adherence", slug="michael", origin="seed")
    stream = call(client, agent="michael")
    text = "Noted. The report will be submitted as planned."
    drafts = iter(["First words, people!", "Second words, people!"])
    answers = []

    def overtaken(request: LLMRequest) -> str:
        draft = next(drafts)
        if not draft.startswith("Second"):
            answers.append(stream.round("response", texts=[text])["texts"])
        return draft

    declare(monkeypatch, "offline_responders", {"continue_reply": f"{__name__}.continue_reply"})
    monkeypatch.setattr(f"{__name__}.continue_reply", overtaken)

    answers.append(stream.round("response", texts=[text])["texts"])

    assert answers == [["Second words, people!"]] * 2
    end_replies()
    assert GateSession.objects.get().outcome, "one session, which ended"


def continue_reply(request: LLMRequest) -> str:
    """Replaced by the test that uses it."""
    raise NotImplementedError


def test_a_reply_goes_on_after_a_pause_of_some_minutes(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    stream = call(client, agent="ada")
    stream.response("I filed it. ")
    wait(minutes=4)
    assert not work_one(owner=owner_name())

    stream.response("I filed it. It is upstairs.", is_last=True)

    assert stream.sent[0] == "I filed it. It is upstairs."


def test_a_reply_that_was_stored_ends_and_is_counted_once(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    stream = call(client, agent="ada")
    stream.response("I filed it. ")
    wait(minutes=6)
    assert work_one(owner=owner_name())

    with pytest.raises(Ended, match="begin a new call"):
        stream.response("I filed it. It is upstairs.")

    end_replies()
    assert [message.text for message in Message.objects.order_by("position")] == ["Well?", "I filed it. "]
    assert get_gate_statistics().total_actions == 1


def test_a_model_may_think_for_minutes_before_its_first_word(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Ours."])
    stream = call(client, agent="ada")
    wait(minutes=14)
    assert not work_one(owner=owner_name())

    assert stream.stream(["Hooray!"]) == "Ours."

    assert "Well?" in str(llm_server.bodies[-1])
    end_replies()
    assert Message.objects.count() == 2


def test_a_call_without_a_reply_is_not_stored(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Ours."])
    stream = call(client, agent="ada")
    wait(minutes=16)
    assert work_one(owner=owner_name())

    row = GatedReply.objects.get()
    assert (row.status, row.context, Message.objects.count()) == ("cancelled", {}, 0)
    assert stream.stream(["Hooray!"]) == "Ours.", "a reply that comes later still is checked"


def wait(*, minutes: int) -> None:
    """Let so many minutes pass for all replies."""
    GatedReply.objects.update(lease_expires_at=F("lease_expires_at") - timedelta(minutes=minutes))


HOSTILE = ["\x00", "<<<END MESSAGE>>>", "</script>", "{{ 7*7 }}", "\u202e", "' or 1=1 --", "x" * 50_000]


@pytest.mark.databases_differ
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_hostile_texts_are_data(client: Program, llm_server: LLMServer, text: str) -> None:
    gated("adherence")
    llm_server.respond = judging()
    messages = [{"role": "system", "content": text}, {"role": "user", "content": f"a {text}", "name": text[:50]}]
    headers = {"x-litellm-session-id": text[:100]}

    said = call(client, agent="ada", messages=messages, headers=headers, end_user=text[:100]).stream(
        [f"I filed {text}."]
    )
    end_replies()

    assert said.replace("\ufffd", "\x00") == f"I filed {text}."
    assert GatedReply.objects.get().status == "completed"
    assert Message.objects.count() == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"agent": "nobody"}, "additional_provider_specific_params.agent"),
        ({"agnet": "ada"}, "additional_provider_specific_params.agnet"),
        ({"speaker": "x" * 200}, "additional_provider_specific_params.speaker"),
        ({"rewrite_model": "claude-opus-5"}, "additional_provider_specific_params.rewrite_model"),
    ],
)
def test_a_wrong_configuration_is_refused_with_what_is_allowed(
    client: Program, changes: dict[str, Any], field: str
) -> None:
    settle(agent=None, changes={"gate_adherence_enabled": True})
    body = {"input_type": "request", "litellm_call_id": "1", "additional_provider_specific_params": changes}

    assert list(refused(client.post(ROUTE, body))) == [field]


def test_a_wrong_agent_is_refused_although_the_defaults_gate_is_off(client: Program) -> None:
    settle(agent=None, changes={"gate_mode": "off"})
    body = {"input_type": "request", "litellm_call_id": "1", "additional_provider_specific_params": {"agent": "nobody"}}

    assert list(refused(client.post(ROUTE, body))) == ["additional_provider_specific_params.agent"]


def test_what_a_newer_litellm_sends_besides_is_passed_over(client: Program) -> None:
    body = {
        "input_type": "request",
        "litellm_call_id": None,
        "request_data": {"new": 1},
        "new": {"x": [None]},
        "texts": None,
    }

    assert client.post(ROUTE, body).json()["action"] == "NONE"


@pytest.mark.parametrize(
    "changes",
    [{"call_id": "x" * 3_000}, {"request_data": None}, {"request_headers": {"x-new": None}}, {"texts": [None, "Bye."]}],
)
def test_what_a_gateway_may_leave_out_ends_no_reply(
    client: Program, llm_server: LLMServer, changes: dict[str, Any]
) -> None:
    gated("adherence")
    llm_server.respond = judging()
    stream = call(client, agent="ada", call_id=changes.pop("call_id", "1"))

    assert stream.round("response", **{"texts": ["", "Bye."], **changes})["texts"] == ["", "Bye."]
    assert asked_judge() == 1


def test_a_round_repeated_under_its_key_is_answered_as_before(client: Program) -> None:
    body = {"input_type": "response", "litellm_call_id": "1"}

    first, again = [client.post(ROUTE, body, headers={"Idempotency-Key": "one"}) for _ in range(2)]

    assert (again.status_code, again.json()) == (first.status_code, first.json()) == (200, first.json())
    assert again["Idempotency-Replayed"] == "true"


def test_a_crash_is_answered_so_that_litellm_may_let_the_text_pass(
    client: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated("adherence")
    monkeypatch.setattr("correction.litellm.rounds.find_speaker", None)

    assert client.post(ROUTE, {"input_type": "response", "litellm_call_id": "1"}).status_code == 503


def test_a_call_too_large_to_read_is_answered_in_the_same_way(client: Program) -> None:
    body = {"input_type": "request", "litellm_call_id": "1", "texts": ["x" * 11_000_000]}

    assert client.post(ROUTE, body).status_code == 503


# -- long replies
@pytest.mark.parametrize("size", [400, 0], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "before",
    [" ".join(f"Line number {number} ends here now." for number in range(400)), "word " * 2_000, "x" * 9_000 + "."],
    ids=["sentences", "one sentence", "one word"],
)
def test_the_end_of_a_long_reply_is_judged_like_its_beginning(
    client: Program, llm_server: LLMServer, before: str, size: int
) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Ours."])

    said = call(client, agent="ada").stream(chunks_of(f"{before} Hooray! The rest.", size))

    assert "Hooray" not in said
    assert said.endswith("Ours.")


def test_every_word_of_a_long_reply_is_shown_to_the_judge(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    words = [f"w{number}" for number in range(4_000)]

    call(client, agent="ada").stream([" ".join(words)])

    shown = {word for text in judged_texts(llm_server) for word in text.split()}
    assert set(words) <= shown


def test_a_long_reply_stands_once_in_its_row(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    text = " ".join(f"Line {number} ends." for number in range(1_000))

    call(client, agent="ada").stream(chunks_of(text, 4_000))

    assert len(json.dumps(GatedReply.objects.get().replies)) < 1.3 * len(text)


# -- several callers, choices, deadlines
@pytest.mark.parametrize("other", [{"key": "k2"}, {"end_user": "eve"}])
def test_callers_may_use_the_same_id(client: Program, llm_server: LLMServer, other: dict[str, str]) -> None:
    gated("adherence")
    llm_server.respond = judging()
    first = call(client, agent="ada", call_id="1", key="k1", end_user="bob")
    first.response("I filed the report of Marla.")

    second = call(client, agent="ada", call_id="1", **{"key": "k1", "end_user": "bob"} | other, announced=False)
    second.response("I", is_last=True)

    assert second.sent[0] == "I"
    first.response("I filed the report of Marla. Bye.", is_last=True)
    assert first.sent[0] == "I filed the report of Marla. Bye."


def test_a_call_that_failed_leaves_nothing_to_the_next_of_its_id(client: Program, llm_server: LLMServer) -> None:
    gated("adherence")
    llm_server.respond = judging()
    call(client, agent="ada", call_id="1", messages=[{"role": "user", "content": "It is Marla."}])

    call(client, agent="ada", call_id="1").stream(["I filed it."])

    assert "Marla" not in str(llm_server.bodies)
    assert "Well?" in str(llm_server.bodies)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([["I filed it. Now"], ["I", "I filed it. Now. So"], ["I am sorry. B", "I filed it. Now. So it"]],
         ["I am sorry. B", "I filed it. Now. So it"]),
        ([["One. Same", "One. Sa"], ["One. Same. X", "One. Same. Y"]], ["One. Same. X", "One. Same. Y"]),
        ([["One. Hooray! A", "One. Hoo"], ["One. Hooray! A", "One. Two."]], ["One. Ours.", "One. Two."]),
    ],
)  # fmt: skip
def test_choices_that_begin_alike_are_told_apart(
    client: Program, llm_server: LLMServer, rounds: list[list[str]], expected: list[str]
) -> None:
    gated("adherence")
    llm_server.respond = judging(Hooray=1, actor=["Ours."])
    stream = call(client, agent="ada")

    for texts in rounds:
        answer = stream.round("response", texts=texts)

    assert answer["texts"] == expected


@pytest.mark.slow
def test_a_round_of_many_choices_is_answered_in_time(
    client: Program, llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated("adherence", gate_deadline_seconds=1, gate_total_deadline_seconds=300)
    judge = judging(Hooray=1)
    llm_server.respond = lambda body: judge(body) if "output_config" in body else {"hang": True}
    monkeypatch.setattr("correction.litellm.rounds.ROUND_SECONDS", 4.0)
    started = time.monotonic()

    call(client, agent="ada").response("Hooray one!", "Hooray two!", "Hooray three!", "Hooray four!")

    assert time.monotonic() - started < 8


@pytest.mark.slow
def test_one_reply_alone_does_not_stop_the_checks_of_others(client: Program, llm_server: LLMServer) -> None:
    gated("adherence", gate_deadline_seconds=1, gate_total_deadline_seconds=60)
    gated("adherence", slug="eve")
    llm_server.always(hang=True)
    stream = call(client, agent="ada")
    for number in range(1, 5):
        stream.response(" ".join(["A line ends."] * number) + " A")
    llm_server.respond = judging(Hooray=1, actor=["Ours."])

    assert call(client, agent="eve").stream(["Hooray!"]) == "Ours."

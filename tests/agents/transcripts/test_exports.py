"""Exports of other programs: what becomes a message, of whom, in which conversation, and what is counted as skipped."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Channel, Message
from tests.agents.transcripts.helpers import make_agent, run_json, said, write

pytestmark = pytest.mark.django_db


def imported(folder: Path, value: Any, name: str = "file.json", **options: Any) -> dict[str, Any]:
    """Import a value as pretty JSON; the counts must add up."""
    report = run_json("import_transcript", write(folder, name, json.dumps(value, indent=1)), **options)
    assert report["read"] == report["imported"] + report["duplicates"] + report["skipped"] + report["system_prompts"]
    return report


def lines(folder: Path, values: list[Any], name: str = "file.jsonl", **options: Any) -> dict[str, Any]:
    return run_json("import_transcript", write(folder, name, "\n".join(map(json.dumps, values)) + "\n"), **options)


def parents() -> dict[str, str | None]:
    return dict(Message.objects.values_list("text", "parent__text"))


# -- ChatGPT
def node(name: str, parent: str | None, role: str = "", text: str = "", **fields: Any) -> dict[str, Any]:
    content = {"content_type": fields.pop("kind", "text"), "parts": [text]}
    message = {"id": f"m-{name}", "author": {"role": role}, "content": content, **fields} if role else None
    return {"id": name, "parent": parent, "children": [], "message": message}


def tree(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"title": "A talk", "mapping": {one["id"]: one for one in nodes}, **fields}


TALK = (
    node("root", None),
    node("s", "root", "system", "Be kind."),
    node("a", "s", "user", "Which ferry?", create_time=1767225600.5),
    node("b1", "a", "assistant", "The red one.", metadata={"model_slug": "old"}, create_time=1767225601),
    node("b2", "a", "assistant", "The blue one.", metadata={"model_slug": "new"}, create_time=1767225602),
    node("c", "b2", "user", "Thanks."),
    node("t", "c", "assistant", "search()", recipient="browser"),
    node("r", "t", "tool", "results"),
    node("k", "r", "assistant", "Hm.", kind="thoughts"),
    node("h", "k", "user", "unseen", metadata={"is_visually_hidden_from_conversation": True}),
    node("d", "h", "assistant", "Welcome."),
)


def test_of_a_chatgpt_conversation_the_branch_last_shown_is_read(tmp_path: Path) -> None:
    make_agent("guide", "Guide")
    report = imported(tmp_path, [tree(*TALK, current_node="d", conversation_id="c-1")], map=["assistant=guide"])
    assert report["format"] == "chatgpt"
    assert said("c-1") == [
        ("user", "Which ferry?"),
        ("Guide", "The blue one."),
        ("user", "Thanks."),
        ("Guide", "Welcome."),
    ]
    assert report["skipped_by_reason"] == {
        "tool call": 1, "tool result": 1, "thinking": 1, "hidden message": 1, "another branch": 1,
    }  # fmt: skip
    assert report["system_prompts"] == 1
    assert Message.objects.get(text="The blue one.").tags == {"model": "new"}
    assert report["first_sent_at"] == "2026-01-01T00:00:00.500000Z"
    assert report["undated"] == 2
    assert Channel.objects.get().name == "A talk"


@pytest.mark.parametrize(("last", "read"), [("b1", "The red one."), ("gone", "The blue one."), (None, "The blue one.")])
def test_the_branch_is_of_the_current_node_or_newest_leaf(tmp_path: Path, last: str | None, read: str) -> None:
    imported(tmp_path, [tree(*TALK[:5], current_node=last)])
    assert said()[-1] == ("assistant", read)
    assert Message.objects.count() == 2


def test_each_chatgpt_conversation_is_a_channel_and_a_circle_ends(tmp_path: Path) -> None:
    circle = tree(node("x", "y", "user", "one"), node("y", "x", "user", "two"), current_node="y", id="round")
    report = imported(tmp_path, [tree(*TALK, current_node="d", id="c-1"), circle])
    assert report["channels"] == ["c-1", "round"]
    assert [text for _, text in said("round")] == ["one", "two"]


def test_what_was_spoken_to_chatgpt_is_speech(tmp_path: Path) -> None:
    heard = {"content_type": "audio_transcription", "text": "Which ferry?", "direction": "in", "decoding_id": None}
    sound = {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://file-1", "format": "wav"}
    asked = node("a", None, "user", kind="multimodal_text")
    asked["message"]["content"]["parts"] = [sound, heard]
    silent = node("b", "a", "user", kind="multimodal_text")
    silent["message"]["content"]["parts"] = [sound]
    report = imported(tmp_path, [tree(asked, silent, current_node="b", id="c-1"), tree(node("r", None), id="c-2")])
    assert said() == [("user", "Which ferry?")]
    assert report["skipped_by_reason"] == {"audio_asset_pointer": 1}
    assert report["channels"] == list(Channel.objects.values_list("slug", flat=True)) == ["c-1"]


def test_marks_of_citations_in_chatgpt_are_no_text(tmp_path: Path) -> None:
    text = "Oats \ue200cite\ue202turn0search1\ue201. Fog\u30104:0\u2020source\u3011 and"
    imported(tmp_path, [tree(node("a", None, "assistant", text), current_node="a")])
    assert said() == [("assistant", "Oats. Fog and")]


# -- SillyTavern
CHAT = [
    {"user_name": "Pat", "character_name": "Guide", "create_date": "2026-03-01 @09h 12m 00s", "chat_metadata": {}},
    {"name": "Guide", "is_user": False, "send_date": "2026-3-1 @9h 12m 3s 40ms", "mes": "Ahoy.", "swipes": ["Hi.", "Ahoy."], "swipe_id": 1},
    {"name": "Pat", "is_user": True, "is_system": True, "send_date": "March 1, 2026 9:13am", "mes": "hidden, but said"},
    {"name": "SillyTavern System", "is_system": True, "send_date": 1772356380000, "mes": "Help"},
    {"name": "Note", "is_system": True, "send_date": "", "mes": "a comment", "extra": {"type": "comment"}},
    {"name": "Guide", "is_user": False, "send_date": "1. März 2026 09:14", "mes": "Fog.", "extra": {"model": "m-1"}},
    {"name": "Guide", "is_user": False, "mes": ""},
]  # fmt: skip


def test_a_sillytavern_chat_has_the_answers_that_were_chosen(tmp_path: Path) -> None:
    make_agent("guide", "Guide")
    report = lines(tmp_path, CHAT)
    assert report["format"] == "sillytavern"
    assert said() == [("Guide", "Ahoy."), ("Pat", "hidden, but said"), ("Guide", "Fog.")]
    assert report["skipped_by_reason"] == {"answer not chosen": 1, "note of SillyTavern": 2, "empty message": 1}
    first, second, third = Message.objects.order_by("position")
    assert first.sent_at == datetime(2026, 3, 1, 9, 12, 3, 40_000, tzinfo=UTC)
    assert (second.sent_at, second.payload) == (datetime(2026, 3, 1, 9, 13, tzinfo=UTC), {"hidden": True})
    assert (third.sent_at, third.payload, third.tags) == (None, {"time": "1. März 2026 09:14"}, {"model": "m-1"})


def test_a_group_chat_of_sillytavern_has_a_speaker_for_each_character(tmp_path: Path) -> None:
    group = [
        {"chat_metadata": {}},
        *({"name": name, "is_user": False, "mes": text} for name, text in (("A", "x"), ("B", "y"))),
    ]
    assert lines(tmp_path, group)["format"] == "sillytavern"
    assert said() == [("A", "x"), ("B", "y")]


# -- Character.AI
def test_histories_of_character_ai_are_conversations(tmp_path: Path) -> None:
    spoken = [{"src": {"name": name, "is_human": name == "Pat"}, "text": f"{name}!"} for name in ("Pat", "Guide")]
    dump = {"info": {"name": "Guide"}, "histories": {"histories": [{"msgs": spoken}, {"msgs": spoken[:1]}]}}
    report = imported(tmp_path, dump, name="dump.json")
    assert (report["format"], report["channels"]) == ("character_ai", ["dump", "dump-2"])
    assert said("dump") == [("Pat", "Pat!"), ("Guide", "Guide!")]


def test_of_candidates_of_character_ai_the_chosen_one_is_read(tmp_path: Path) -> None:
    candidates = [{"candidate_id": name, "raw_content": name} for name in ("one", "two")]
    turns = [
        {
            "turn_key": {"chat_id": "chat", "turn_id": "t1"}, "author": {"name": "Guide"}, "create_time": "2026-03-01T09:12:00.5Z",
            "candidates": candidates, "primary_candidate_id": "two",
        },
    ]  # fmt: skip
    report = imported(tmp_path, {"turns": turns})
    assert said("chat") == [("Guide", "two")]
    assert report["skipped_by_reason"] == {"answer not chosen": 1}


def test_character_ai_s_newest_first_turns_are_read_from_the_oldest(tmp_path: Path) -> None:
    turns = [
        {"turn_key": {"chat_id": "chat", "turn_id": str(n)}, "author": {"name": "Guide"}, "create_time": f"2026-03-01T09:12:0{n}Z",
         "candidates": [{"raw_content": str(n)}]}
        for n in (3, 2, 1)
    ]  # fmt: skip
    imported(tmp_path, {"turns": turns})
    assert said("chat") == [("Guide", "1"), ("Guide", "2"), ("Guide", "3")]


# -- Slack
USERS = [
    {"id": "U1", "name": "pat.b", "real_name": "Pat Bo", "profile": {"display_name": "Pat"}},
    {"id": "U2", "name": "guide", "real_name": "Guide", "profile": {"bot_id": "B2"}},
]


def entry(second: float, text: str, user: str = "U1", **fields: Any) -> dict[str, Any]:
    return {"type": "message", "user": user, "text": text, "ts": f"{1767225600 + second:.6f}", **fields}


THREAD = entry(0, "")["ts"]
DAY_1: list[dict[str, Any]] = [
    entry(0, "Late, <@U2>? &lt;see <https://x.org|the plan>&gt;", thread_ts=THREAD),
    entry(1, "set the topic", subtype="channel_topic"),
    entry(2, "Twenty minutes.", user="", bot_id="B2", thread_ts=THREAD, edited={"ts": "1"}),
    entry(3, "old words"),
    entry(4, "oops"),
    entry(5, "", files=[{"id": "F1"}]),
]
DAY_2: list[dict[str, Any]] = [
    entry(86400, "", subtype="message_changed", message=entry(3, "new words")),
    entry(86401, "", subtype="message_deleted", deleted_ts=entry(4, "")["ts"]),
    entry(86402, "This message was deleted.", subtype="tombstone", user="USLACKBOT"),
    entry(86403, "waves", subtype="me_message"),
    entry(86404, "", user="", subtype="bot_message", username="Tide", bot_id="B9", attachments=[{"fallback": "High"}]),
]


def slack_zip(folder: Path, **more: str) -> Path:
    files = {
        "users.json": json.dumps(USERS),
        "channels.json": json.dumps(
            [{"id": "C1", "name": "quay", "topic": {"value": "Ferries"}, "purpose": {"value": ""}}]
        ),
        "dms.json": json.dumps([{"id": "D1", "members": ["U1", "U2"]}]),
        "quay/2026-01-02.json": json.dumps(DAY_2),
        "quay/2026-01-01.json": json.dumps(DAY_1, indent=4),
        "D1/2026-01-01.json": json.dumps(DAY_1[:1]),
        "__MACOSX/quay/2026-01-01.json": "{",
        **more,
    }
    path = folder / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_a_slack_export_has_names_threads_edits_and_deletions(tmp_path: Path) -> None:
    make_agent("guide", "Guide")
    report = run_json("import_transcript", slack_zip(tmp_path))
    assert (report["format"], report["channels"]) == ("slack", ["D1", "quay"])
    assert said("quay") == [
        ("Pat", "Late, @Guide? <see the plan (https://x.org)>"), ("Guide", "Twenty minutes."), ("Pat", "new words"), ("Pat", "waves"),
        ("Tide", "High"),
    ]  # fmt: skip
    assert parents()["Twenty minutes."] == "Late, @Guide? <see the plan (https://x.org)>"
    assert report["skipped_by_reason"] == {
        "notice channel_topic": 1, "deleted message": 2, "file": 1, "notice message_changed": 1, "notice message_deleted": 1,
    }  # fmt: skip
    assert report["read"] == len(DAY_1) + len(DAY_2) + 1
    quay = Channel.objects.get(slug="quay")
    assert (quay.kind, quay.topic) == ("public", "Ferries")
    assert Channel.objects.get(slug="D1").kind == "dm"
    assert Message.objects.get(text="Twenty minutes.").payload == {"bot": True, "edited": True}
    assert run_json("import_transcript", slack_zip(tmp_path))["imported"] == 0


def test_a_slack_message_without_a_text_says_what_its_blocks_say(tmp_path: Path) -> None:
    rich = [{"type": "text", "text": "Late & <odd>, "}, {"type": "user", "user_id": "U2"}, {"type": "emoji", "name": "fog"},
            {"type": "link", "url": "https://x.org?a=1&b=2"}]  # fmt: skip
    listed = {
        "type": "rich_text_list",
        "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": n}]} for n in "ab"],
    }
    blocks: list[Any] = [
        {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": rich}, listed]},
        {"type": "section", "text": {"type": "mrkdwn", "text": "*Fog* &amp; <https://x.org|tide>"}, "fields": 5},
        {"type": "divider"},
        {"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "OK"}}]},
    ]
    imported(tmp_path, [entry(0, "", blocks=blocks), entry(1, "", blocks=blocks[2:]), entry(2, "text", blocks=blocks)])
    assert [text for _, text in said()] == [
        "Late & <odd>, @U2:fog:https://x.org?a=1&b=2\na\nb\n*Fog* & tide (https://x.org)",
        "text",
    ]


def test_a_day_file_of_slack_finds_the_users_beside_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "quay"
    folder.mkdir()
    day = write(folder, "2026-01-01.json", json.dumps(DAY_1))
    assert run_json("import_transcript", day, channel="alone")["speakers"].keys() == {"U1", "B2"}
    write(tmp_path, "users.json", json.dumps(USERS))
    report = run_json("import_transcript", day, map=["B2="])
    assert (report["channels"], report["speakers"].keys()) == (["quay"], {"Pat", "Guide"})


def test_a_last_text_without_its_message_is_read_from_the_edit(tmp_path: Path) -> None:
    imported(tmp_path, [*DAY_2[:1], *DAY_1[:1]])
    assert [text for _, text in said()] == ["new words", "Late, @U2? <see the plan (https://x.org)>"]


def test_a_zip_that_unpacks_to_hundreds_of_times_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("users.json", "[" + "{}," * 6_000_000 + "{}]")
        archive.writestr("quay/2026-01-01.json", "[]")
    with pytest.raises(CommandError, match="allowed for its size"):
        call_command("import_transcript", path)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("quay/2026-01-03.json", "[{]", "export.zip, quay/2026-01-03.json, line 1: not valid JSON"),
        ("quay/2026-01-03.json", "[5]", "an entry must be a JSON object, got 5"),
        ("quay/2026-01-03.json", '[{"type": "message", "ts": "1", "text": "x"}]', "neither 'user' nor 'bot_id' nor 'username'"),
        ("users.json", '[{"id": "U1", "profile": 5}]', "'profile' must be an object"),
    ],
)  # fmt: skip
def test_a_broken_file_of_a_slack_export_is_named(tmp_path: Path, name: str, text: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", slack_zip(tmp_path, **{name: text}))
    assert not Message.objects.exists()


# -- Discord
def discord(*messages: dict[str, Any], **channel: Any) -> dict[str, Any]:
    return {
        "guild": {"id": "1", "name": "Harbour"},
        "channel": {"id": "2", "type": "GuildTextChat", "name": "quay", "topic": "Ferries", **channel},
        "messages": [
            {
                "id": str(number), "type": "Default", "timestamp": f"2026-03-01T09:{number:02}:00.1+00:00", "content": "",
                "author": {"id": "7", "name": "pat", "nickname": "Pat", "isBot": False}, "attachments": [], "embeds": [], **message,
            }
            for number, message in enumerate(messages)
        ],
        "messageCount": len(messages),
    }  # fmt: skip


BOT = {"id": "8", "name": "guidebot", "nickname": None, "isBot": True}


def test_a_discord_export_has_replies_and_leaves_out_notices(tmp_path: Path) -> None:
    make_agent("guide", "Guide")
    report = imported(
        tmp_path,
        discord(
            {"content": "Late?"},
            {"type": "GuildMemberJoin", "content": "Joined the server."},
            {"type": "Reply", "content": "Twenty minutes.", "reference": {"messageId": "0"}, "author": BOT},
            {"type": "20", "content": "", "embeds": [{"title": "Tide", "description": "High"}], "author": BOT},
            {"attachments": [{"id": "5"}]},
            {"forwardedMessage": {"content": "another's"}},
        ),
        map=["guidebot=guide"],
    )
    assert (report["format"], report["channels"]) == ("discord", ["harbour-quay"])
    assert said() == [("Pat", "Late?"), ("Guide", "Twenty minutes."), ("Guide", "Tide\nHigh")]
    assert parents()["Twenty minutes."] == "Late?"
    assert report["skipped_by_reason"] == {"notice GuildMemberJoin": 1, "file": 1, "forwarded message": 1}
    assert Channel.objects.get().topic == "Ferries"
    assert report["first_sent_at"] == "2026-03-01T09:00:00.100000Z"


def test_a_discord_export_in_reverse_is_read_from_the_oldest_message(tmp_path: Path) -> None:
    export = discord({"content": "Late?"}, {"type": "Reply", "content": "No.", "reference": {"messageId": "0"}})
    imported(tmp_path, export | {"messages": export["messages"][::-1]})
    assert said() == [("Pat", "Late?"), ("Pat", "No.")]
    assert parents()["No."] == "Late?"


def test_a_direct_message_of_discord_is_a_dm(tmp_path: Path) -> None:
    imported(tmp_path, discord({"content": "Hi"}, type="DirectTextChat"))
    assert Channel.objects.get().kind == "dm"


# -- Traces
def chat(*messages: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in messages]


def observation(number: int, asked: Any, said: Any, kind: str = "GENERATION", **fields: Any) -> dict[str, Any]:
    started = f"2026-03-01T09:{number:02}:00Z"
    return {
        "id": f"o{number}",
        "type": kind,
        "startTime": started,
        "endTime": started.replace(":00Z", ":05Z"),
        "input": asked,
        "output": said,
        **fields,
    }


SYSTEM = ("system", "Be kind.")
FIRST = chat(SYSTEM, ("user", "Late?"))
SECOND = chat(SYSTEM, ("user", "Late?"), ("assistant", "A bit."), ("user", "ok"))


def test_a_session_of_langfuse_is_one_conversation_and_says_nothing_twice(tmp_path: Path) -> None:
    make_agent("guide", "Guide")
    call = [{"id": "t", "type": "function"}]
    traces = [
        {"id": "t1", "timestamp": "2026-03-01T09:00:00Z", "sessionId": "s", "input": "Late?", "output": "A bit.", "observations": [
            observation(1, FIRST, {"role": "assistant", "content": None, "tool_calls": call}),
            observation(2, [*FIRST, {"role": "tool", "content": "fog"}], {"role": "assistant", "content": "A bit."}, model="m-1"),
            observation(3, {"query": "x"}, {"documents": []}, kind="RETRIEVER"),
        ]},
        {"id": "t2", "timestamp": "2026-03-01T10:00:00Z", "sessionId": "s", "observations": [observation(4, SECOND, "ok")]},
    ]  # fmt: skip
    report = imported(tmp_path, traces[::-1], map=["assistant=guide"])
    assert (report["format"], report["channels"]) == ("langfuse", ["s"])
    assert said("s") == [("user", "Late?"), ("Guide", "A bit."), ("user", "ok"), ("Guide", "ok")]
    assert report["skipped_by_reason"] == {
        "step around a model's call": 1, "step without messages": 2, "tool call": 1, "tool result": 1, "sent again": 5,
    }  # fmt: skip
    assert (report["system_prompts"], report["first_sent_at"]) == (1, "2026-03-01T09:01:00Z")
    assert Message.objects.get(text="A bit.").tags == {"model": "m-1"}


@pytest.mark.parametrize("asked", ["Late?", '{"messages": [{"role": "user", "content": "Late?"}]}', {"input": "Late?"}])
def test_a_trace_without_a_call_of_a_model_is_read_from_outside(tmp_path: Path, asked: Any) -> None:
    inner = observation(1, "rewritten", "draft", kind="SPAN")
    trace = {
        "id": "t",
        "timestamp": "2026-03-01T09:00:00Z",
        "input": asked,
        "output": {"answer": "A bit."},
        "observations": [inner],
    }
    imported(tmp_path, {"trace": trace, "observations": [inner]})
    assert said() == [("user", "Late?"), ("assistant", "A bit.")]


def test_what_a_call_was_asked_that_is_no_chat_is_counted(tmp_path: Path) -> None:
    report = imported(tmp_path, [observation(1, {"city": "Rome", "days": 3}, "Sunny.", traceId="t")])
    assert report["skipped_by_reason"] == {"input that is no chat": 1}
    runs = [run(1, "llm", {"city": "Rome"}, {"text": "Rain."})]
    assert lines(tmp_path, runs)["skipped_by_reason"] == {"input that is no chat": 1}


def test_observations_alone_make_a_conversation_of_their_trace(tmp_path: Path) -> None:
    rows = [observation(n, chat(("user", f"q{n}")), f"a{n}", traceId="t-9") for n in (2, 1)]
    agent = observation(0, None, None, kind="AGENT", traceId="t-9", name="Guide")
    rows[0]["parentObservationId"] = agent["id"]
    assert lines(tmp_path, [*rows, agent])["channels"] == ["t-9"]
    assert said() == [("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("Guide", "a2")]


def lc(kind: str, text: str) -> dict[str, Any]:
    return {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", kind],
        "kwargs": {"content": text},
    }


def run(number: int, kind: str, inputs: Any, outputs: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"r{number}",
        "trace_id": "r0",
        "run_type": kind,
        "start_time": f"2026-03-01T09:{number:02}:00",
        "inputs": inputs,
        "outputs": outputs,
        **fields,
    }


def test_runs_of_langsmith_are_read_as_libraries_write_them(tmp_path: Path) -> None:
    thread = {"extra": {"metadata": {"thread_id": "th", "ls_model_name": "m-2"}}, "session_id": "project"}
    state = [{"type": "human", "content": "Late?"}, {"type": "ai", "content": "A bit."}]
    runs = [
        run(0, "chain", {"messages": state[:1]}, {"messages": state}, **thread),
        run(1, "llm", {"messages": [[lc("SystemMessage", "s"), lc("HumanMessage", "Late?")]]},
            {"generations": [[{"text": "A bit.", "message": lc("AIMessage", "A bit.")}, {"message": lc("AIMessage", "No.")}]]},
            parent_run_id="r0"),
        run(2, "llm", {"messages": chat(("user", "Late?"), ("assistant", "A bit."), ("user", "Why?"))},
            {"choices": [{"message": {"role": "assistant", "content": "Fog."}}]}, parent_run_id="r0"),
        run(3, "tool", {"input": "x"}, {"output": "y"}, parent_run_id="r0"),
    ]  # fmt: skip
    report = lines(tmp_path, runs)
    assert (report["format"], report["channels"]) == ("langsmith", ["th"])
    assert said() == [("user", "Late?"), ("assistant", "A bit."), ("user", "Why?"), ("assistant", "Fog.")]
    assert report["skipped_by_reason"] == {
        "step around a model's call": 1, "step without messages": 1, "answer not chosen": 1, "sent again": 2,
    }  # fmt: skip
    again = imported(
        tmp_path, {"runs": [{**runs[0], "child_runs": [{**one, "parent_run_id": None} for one in runs[1:]]}]}
    )
    assert again["duplicates"] == 4


def test_a_chain_that_answers_with_its_whole_state_says_it_once(tmp_path: Path) -> None:
    state = [{"type": "human", "content": "Late?"}, {"type": "ai", "content": "A bit."}]
    imported(tmp_path, [run(0, "chain", {"messages": state[:1]}, {"messages": state})])
    assert said() == [("user", "Late?"), ("assistant", "A bit.")]


def attribute(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}


def span(number: int, **attributes: Any) -> dict[str, Any]:
    nano = 1767225600_000000000 + number * 10**9
    return {
        "traceId": "t" * 32, "spanId": f"s{number}", "startTimeUnixNano": str(nano), "endTimeUnixNano": str(nano + 5 * 10**8),
        "attributes": [attribute(key.replace("__", "."), value) for key, value in attributes.items()],
    }  # fmt: skip


def batch(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def parts(*messages: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in messages]


def test_two_agents_in_spans_of_opentelemetry_hear_each_other_once(tmp_path: Path) -> None:
    make_agent("ann", "Ann")
    common = {"gen_ai__operation__name": "chat", "gen_ai__conversation__id": "room"}
    ann = span(1, **common, gen_ai__agent__name="Ann", gen_ai__input__messages=parts(("user", "Go.")),
               gen_ai__output__messages=parts(("assistant", "Hello, Bo.")),
               gen_ai__system_instructions=[{"type": "text", "content": "Be Ann."}])  # fmt: skip
    heard = parts(("user", "Go."), ("user", "Hello, Bo."))
    bo = span(2, **common, gen_ai__input__messages=heard, gen_ai__output__messages=parts(("assistant", "Hello, Ann.")))
    around = span(3, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="Bo", gen_ai__input__messages=heard)
    bo["parentSpanId"] = around["spanId"]
    structured = span(4)
    part = {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "More."}}]}}
    message = {"kvlistValue": {"values": [
        {"key": "role", "value": {"stringValue": "user"}}, {"key": "parts", "value": {"arrayValue": {"values": [part]}}},
    ]}}  # fmt: skip
    structured["attributes"] = [
        {"key": "gen_ai.input.messages", "value": {"arrayValue": {"values": [message]}}},
        attribute("session.id", "room"),
    ]
    report = lines(tmp_path, [batch(around, bo, ann), batch(structured, span(5, http__method="GET"))])
    assert (report["format"], report["channels"]) == ("otel", ["room"])
    assert said() == [("user", "Go."), ("Ann", "Hello, Bo."), ("Bo", "Hello, Ann."), ("user", "More.")]
    assert report["skipped_by_reason"] == {"step around a model's call": 1, "sent again": 2, "span without messages": 1}
    assert (report["system_prompts"], report["last_sent_at"]) == (1, "2026-01-01T00:00:04Z")


def test_older_spans_have_their_messages_as_events_or_as_numbered_attributes(tmp_path: Path) -> None:
    events = span(1)
    events["events"] = [
        {"name": "gen_ai.user.message", "attributes": [attribute("content", "Late?")]},
        {"name": "gen_ai.choice", "attributes": [attribute("message", {"content": "A bit."})]},
    ]
    numbered = span(
        2,
        **{
            "gen_ai__prompt__0__role": "user",
            "gen_ai__prompt__0__content": "Why?",
            "gen_ai__completion__0__content": "Fog.",
        },
    )
    inference = span(
        3, **{"llm__input_messages__0__message__role": "user", "llm__input_messages__0__message__content": "Oh?"}
    )
    lines(tmp_path, [batch(events, numbered, inference)])
    assert said() == [
        ("user", "Late?"),
        ("assistant", "A bit."),
        ("user", "Why?"),
        ("assistant", "Fog."),
        ("user", "Oh?"),
    ]


def test_the_same_answer_twice_is_two_messages_where_each_was_asked_for(tmp_path: Path) -> None:
    calls = [observation(n, chat(("user", "ping")), "pong", traceId="t") for n in (1, 2)]
    lines(tmp_path, calls)
    assert said() == [("user", "ping"), ("assistant", "pong")] * 2

"""Chats as model APIs and data sets have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Channel, Message
from tests.agents.transcripts.helpers import make_agent, run_json, said, write

pytestmark = pytest.mark.django_db


def test_openai_chat_maps_roles_and_leaves_out_what_was_not_said(tmp_path: Path) -> None:
    make_agent("support", "Support")
    chat = {
        "id": "conv 1",
        "model": "gpt-x",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "name": "Ann", "content": "Look:", "created_at": 1767225600},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is"},
                    {"type": "image_url"},
                    {"type": "text", "text": "this?"},
                ],
            },
            {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]},
            {"role": "tool", "tool_call_id": "t", "content": "a cat"},
            {"role": "assistant", "content": "A cat."},
            {"role": "assistant", "content": ""},
        ],
    }
    report = run_json("import_transcript", write(tmp_path, "chat.json", json.dumps(chat)), map=["assistant=support"])
    assert said("conv-1") == [("Ann", "Look:"), ("user", "What is\nthis?"), ("Support", "A cat.")]
    rows = list(Message.objects.order_by("position").values_list("tags", "payload"))
    assert rows == [({}, {}), ({}, {"left_out": ["image_url"]}), ({"model": "gpt-x"}, {})]
    assert Message.objects.order_by("position")[0].sent_at is not None
    assert report["system_prompts"] == 1
    assert report["skipped_by_reason"] == {"tool call": 1, "tool result": 1, "empty message": 1}
    assert (
        report["read"] == report["imported"] + report["duplicates"] + report["skipped"] + report["system_prompts"] == 7
    )


def test_anthropic_messages_keep_text_blocks_only(tmp_path: Path) -> None:
    chat: dict[str, Any] = {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "1"}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "rain"}]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "ok"}, {"type": "text", "text": "Rain."}],
            },
        ],
    }
    report = run_json("import_transcript", write(tmp_path, "talk.jsonl", json.dumps(chat) + "\n"))
    assert report["format"] == "anthropic"
    assert said("talk") == [("user", "Weather?"), ("assistant", "Rain.")]
    assert Message.objects.get(text="Rain.").payload == {"left_out": ["thinking"]}
    assert (report["system_prompts"], report["skipped_by_reason"]) == (1, {"thinking": 1, "tool result": 1})


def test_each_conversation_gets_a_channel_of_its_own(tmp_path: Path) -> None:
    chats = [{"messages": [{"role": "user", "content": f"talk {n}"}]} for n in range(3)]
    array = write(tmp_path, "many.json", json.dumps(chats, indent=2))
    lines = write(tmp_path, "lines.jsonl", "\n".join(map(json.dumps, chats)))
    assert run_json("import_transcript", array)["channels"] == ["many", "many-2", "many-3"]
    assert run_json("import_transcript", lines, channel="Help desk")["channels"] == [
        "help-desk",
        "help-desk-2",
        "help-desk-3",
    ]
    assert said("help-desk-3") == [("user", "talk 2")]
    assert list(Channel.objects.filter(slug__startswith="help").order_by("pk").values_list("name", flat=True)) == [
        "Help desk", "Help desk 2", "Help desk 3",
    ]  # fmt: skip


def test_conversation_ids_name_the_channels_and_cannot_escape(tmp_path: Path) -> None:
    chats = [
        {"id": name, "messages": [{"role": "user", "content": "x"}]}
        for name in ("../../etc/passwd", "Ä b", "a b", "日本", "a-b")
    ]
    report = run_json("import_transcript", write(tmp_path, "ids.json", json.dumps(chats)))
    assert report["channels"] == ["etcpasswd", "a-b", "a-b-2", "ids", "a-b-3"]


def test_inspect_logs_are_read_with_their_message_ids(tmp_path: Path) -> None:
    log = {
        "samples": [
            {"id": 7, "epoch": e, "messages": [{"id": "m", "role": "user", "content": f"e{e}"}]} for e in (1, 2)
        ]
    }
    report = run_json("import_transcript", write(tmp_path, "log.json", json.dumps(log)))
    assert report["channels"] == ["log-7-epoch-1", "log-7-epoch-2"]
    assert set(Message.objects.values_list("external_id", "text")) == {("m", "e1"), ("m", "e2")}


def test_sharegpt_speakers_can_be_mapped_as_written_or_by_role(tmp_path: Path) -> None:
    make_agent("bot")
    talk = [
        {"from": "system", "value": "s"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"},
        {"from": "observation", "value": "o"},
    ]  # fmt: skip
    path = write(
        tmp_path, "s.json", json.dumps([{"id": "one", "conversations": talk}, {"id": "two", "conversations": talk}])
    )
    report = run_json("import_transcript", path, map=["assistant=bot"])
    assert said("two") == [("human", "q"), ("Bot", "a")]
    assert report["system_prompts"] == 2
    assert run_json("import_transcript", path, map=["gpt=bot"], dry_run=True)["duplicates"] == 4


def test_of_preference_pairs_the_chosen_dialogue_is_read(tmp_path: Path) -> None:
    row = {
        "chosen": "\n\nHuman: Hi: there\n\nAssistant: Hello.\n\nSecond line.\n\nHuman: ok\n\nAssistant:",
        "rejected": "\n\nHuman: Hi",
    }
    report = run_json("import_transcript", write(tmp_path, "hh.jsonl", json.dumps(row) + "\n"))
    assert said("hh") == [("Human", "Hi: there"), ("Assistant", "Hello.\n\nSecond line."), ("Human", "ok")]
    assert report["skipped_by_reason"] == {"rejected alternative": 1, "empty message": 1}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (
            "a.json",
            '{"messages": [{"role": "user", "content": 5}]}',
            "line 1: 'content' must be a text or a list of parts, got 5",
        ),
        (
            "a.json",
            '[{"messages": [{"role": "user", "content": "x"}]},\n {"messages": "x"}]',
            "line 2: 'messages' must be a list",
        ),
        ("a.json", '[{"messages": []},\n {"messages": [{"content": "x"}]}]', "line 2: message 1 has no 'role'"),
        (
            "a.json",
            '[{"messages": []},\n {"messages": []}',
            "line 2: expected ',' or '\\]' in the JSON array, found the end",
        ),
        ("a.json", '[{"messages": []},\n', "line 2: the JSON array ends too early"),
        ("a.json", '[{"messages": []}]\nand more', "line 2: text after the end"),
        ("a.json", '[{"messages": []} {"messages": []}]', "expected ',' or '\\]' in the JSON array, found '{'"),
        ("a.jsonl", '{"messages": []}\n{"messages": [}\n', "line 2: not valid JSON"),
        ("a.json", '{\n "messages": [\n  {"role": "user" "content": "x"}\n ]\n}', "line 3: not valid JSON"),
        ("a.jsonl", '{"chosen": "\\n\\nHuman: x"}\n{"chosen": "no dialogue"}\n', "line 2: no dialogue"),
        ("a.jsonl", '{"chosen": "first Human: x"}\n', "line 1: the dialogue must begin with 'Human:' or 'Assistant:'"),
        ("a.json", '[{"conversations": [{"value": "x"}]}]', "line 1: turn 1 has no 'from'"),
        ("a.json", "[" * 200_000, "JSON nested too deep"),
        ("a.json", '{"messages": ' + "[" * 200_000, "JSON nested too deep"),
    ],
)
def test_malformed_files_name_line_and_reason(tmp_path: Path, name: str, text: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", write(tmp_path, name, text))
    assert not Message.objects.exists()

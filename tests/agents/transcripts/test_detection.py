"""Which format a file is taken for."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from agents.kit.files.source import FileError, Source
from agents.transcripts.readers import detect
from tests.agents.transcripts.helpers import write

SAMPLES = {
    "jsonl header": ("jsonl", '{"plumbline": "transcript", "version": 1}\n{"agent": "a", "text": "x"}\n'),
    "jsonl lenient": ("jsonl", '{"channel": "c", "agent": "A", "role": "agent", "text": "x"}\n'),
    "openai object": ("openai", '{\n "model": "m",\n "messages": [{"role": "user", "content": "x"}]\n}'),
    "openai list": ("openai", '[{"messages": [{"role": "user", "content": "x"}]}]'),
    "openai bare messages": (
        "openai",
        '[\n {"role": "user", "content": "x"},\n {"role": "assistant", "content": "y"}\n]',
    ),
    "openai lines": ("openai", '{"messages": [{"role": "user", "content": "x"}]}\n{"messages": []}\n'),
    "openai lines of messages": ("openai", '{"role": "user", "content": "x"}\n{"role": "assistant", "content": "y"}\n'),
    "openai with the prompt of a dialogue": (
        "openai",
        '{"prompt": "\\n\\nHuman: x\\n\\nAssistant:", "messages": [{"role": "user", "content": "x"}]}',
    ),
    "openai beside sharegpt": (
        "openai",
        '{"conversations": [{"from": "human", "value": "x"}], "messages": [{"role": "user", "content": "x"}]}',
    ),
    "inspect log": ("openai", '{"version": 2, "samples": [{"id": 1, "messages": []}]}'),
    "anthropic system": ("openai", '{"system": "s", "messages": [{"role": "user", "content": "x"}]}'),
    "anthropic blocks": ("openai", '{"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}'),
    "sharegpt": ("sharegpt", '[{"id": "1", "conversations": [{"from": "human", "value": "x"}]}]'),
    "sharegpt lines": ("sharegpt", '{"conversations": [{"from": "human", "value": "x"}]}\n'),
    "hh": ("hh", '{"chosen": "\\n\\nHuman: x\\n\\nAssistant: y", "rejected": "z"}\n'),
    "csv": ("csv", "who,when,text\nAnn,2026-01-01,Hi\n"),
    "csv semicolons": ("csv", '"Author";"Message"\n"Ann";"Hi; you"\n'),
    "csv with a colon": ("csv", "at: utc,speaker,text\n1: 5,Ann,Hi\n2: 6,Bo,Ho\n"),
    "names": ("chat", "Ann: Hi.\nBo: Hello!\nand more\nAnn: Bye\n"),
    "irc": ("chat", "[12:03] <ann> hi\n[12:04] <bo> hello\n"),
    "nicks": ("chat", "<ann> hi\n<bo> hello\n"),
    "messenger": ("chat", "31/12/2025, 22:15 - Ann: Hi\n31/12/2025, 22:16 - Bo: Hello\n"),
    "tinytroupe": ("tinytroupe", "INFO starting\nUSER --> Ann: [CONVERSATION]\n     > Hi\n"),
    "tinytroupe colours": ("tinytroupe", "\x1b[1;32m\x1b[4mAnn\x1b[0m\x1b[1;32m acts: [TALK]\x1b[0m \n     > Hi\n"),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_formats_are_recognised_in_every_encoding(tmp_path: Path, name: str, encoding: str) -> None:
    expected, text = SAMPLES[name]
    assert detect(Source(write(tmp_path, "file", text.encode(encoding)))) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        ("  \n", "the file is empty"),
        ("Once upon a time there was a file.\nIt had no speakers.\n", "not recognised as a transcript"),
        ('{"colour": "red"}', r"JSON, but no transcript format that is known \(its keys: colour\)"),
        ('{"messages": [', "line 1: not valid JSON"),
        ('{"agent": "a", "text": x}\n{"agent": "a", "text": "y"}\n', "line 1: not valid JSON"),
        ('{"type": "TinyPerson", "persona": {"name": "A"}}', "this is a persona, not a transcript"),
        ("[]", "no transcript format that is known .its keys: no object"),
        ('["a"]', "no transcript format"),
        (
            '{"name": "Quay", "type": "private_group", "id": 1, "messages": [{"id": 1, "type": "message"}]}',
            "this is Telegram's export, which is not read; convert it",
        ),
        ('{"resourceLogs": []}', "OpenTelemetry's logs; export spans"),
        ('[{"uuid": "u", "name": "n", "chat_messages": []}]', "this is Claude's export, which is not read; convert it"),
        ('{"participants": [], "messages": [{"sender_name": "A"}]}', "an export of Messenger or Instagram"),
        ('[{"id": "U1", "team_id": "T1", "profile": {}}]', "Slack's list of users; import the zip"),
        ("<!DOCTYPE html>\n<html></html>", "this is a page of HTML or XML; export the chat as JSON"),
        (
            "2026-03-01 09:11:58\t-->\tann (~ann@quay) has joined\n2026-03-01 09:12:03\tann\tLate: why?\n",
            "this is a log of WeeChat",
        ),
        (
            "**** BEGIN LOGGING AT Thu Dec 31 23:50:00 2026\n\nDec 31 23:51:00 *\tNow talking on #quay\nDec 31 23:53:00 <ann>\tLate?\n",
            "this is a log of HexChat, which is not read; convert it",
        ),
        ("text:hi\tlabels:ho\tepisode_done:True\n", "this is a log of ParlAI"),
        (
            '{"dialog": [[{"id": "human", "text": "Hi."}]], "context": []}',
            "this is a conversation of ParlAI, which is not read",
        ),
    ],
)
def test_what_is_not_recognised_is_an_error_with_a_reason(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(FileError, match=reason):
        detect(Source(write(tmp_path, "file", text)))


def test_other_files_are_named_as_far_as_they_are_known(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("_chat.txt", "")
    for content, words in (
        (b"%PDF-1.7", "a PDF document"),
        (b"PK\x03\x04 damaged", "not a zip that can be read"),
        ((tmp_path / "a.zip").read_bytes(), "a zip, but no export of Slack; unpack it"),
    ):
        with pytest.raises(FileError, match=words):
            detect(Source(write(tmp_path, "file", content)))

"""The importer as a whole: mapping, encodings, hostile input, batches."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.kit.files import source
from agents.kit.files.source import FileError
from agents.kit.text import cleaner
from agents.models import Channel, Message
from agents.transcripts.importer import ReadOptions, import_transcript
from tests.agents.transcripts.helpers import make_agent, run_json, said, write

pytestmark = pytest.mark.django_db


def lines(*texts: str, speaker: str = "Ann") -> str:
    return "".join(json.dumps({"speaker": speaker, "text": text}) + "\n" for text in texts)


def test_a_mapping_overrides_names_and_an_empty_slug_keeps_an_outsider(tmp_path: Path) -> None:
    make_agent("mara", "Ann")
    make_agent("bo")
    path = write(tmp_path, "t.jsonl", lines("x") + lines("y", speaker="Z = z"))
    run_json("import_transcript", path, channel="a", map=["ann=", "Z = z=BO"])
    assert list(Message.objects.order_by("position").values_list("agent__slug", "outsider")) == [
        (None, "Ann (outsider)"),
        ("bo", ""),
    ]


def test_importing_again_with_another_mapping_says_that_authors_differ(tmp_path: Path) -> None:
    path = write(tmp_path, "t.jsonl", lines("x", "y"))
    run_json("import_transcript", path)
    make_agent("ann")
    report = run_json("import_transcript", path)
    assert (report["imported"], report["duplicates"], report["other_author"]) == (0, 2, 2)
    assert list(Message.objects.values_list("outsider", flat=True)) == ["Ann (outsider)", "Ann (outsider)"]


def test_a_dry_run_counts_and_stores_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "t.jsonl", lines("x", "y"))
    report = run_json("import_transcript", path, dry_run=True)
    assert (report["imported"], report["duplicates"], report["dry_run"]) == (2, 0, True)
    assert not Channel.objects.exists()
    run_json("import_transcript", path)
    report = run_json("import_transcript", path, dry_run=True)
    assert (report["imported"], report["duplicates"]) == (0, 2)


def test_of_a_conversation_without_an_agent_the_command_says_what_to_do(tmp_path: Path) -> None:
    make_agent("guide", "Harbour Guide")
    path = write(tmp_path, "t.jsonl", lines("Is it late?", speaker="Pat") + lines("No.", speaker="Assistant"))
    out = io.StringIO()
    call_command("import_transcript", path, stdout=out)
    assert "nothing in it can be measured" in out.getvalue()
    assert "--map SPEAKER=SLUG, and another --channel" in out.getvalue()

    assert run_json("import_transcript", path, map=["Assistant=guide"], channel="other")["imported"] == 2
    assert Message.objects.filter(agent__slug="guide").count() == 1


def test_what_no_database_keeps_is_replaced_and_counted(tmp_path: Path) -> None:
    row = (
        '{"id": "i\\u0000", "speaker": "A\\ud800", "text": "a\\u0000b\\udfffc\\ud83d\\ude00", '
        '"tags": {"k": "v\\u0000"}, "payload": {"p": ["\\u0000"]}}\n'
    )
    report = run_json("import_transcript", write(tmp_path, "t.jsonl", row))
    message = Message.objects.get()
    assert (message.external_id, message.outsider, message.text) == ("i\ufffd", "A\ufffd", "a\ufffdb\ufffdc\U0001f600")
    assert (message.tags, message.payload) == ({"k": "v\ufffd"}, {"p": ["\ufffd"]})
    assert report["replaced_characters"] == 6
    assert run_json("import_transcript", tmp_path / "t.jsonl")["imported"] == 0


def test_a_text_beyond_the_limit_is_cut_visibly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner, "TEXT_LIMIT", 10)
    report = run_json("import_transcript", write(tmp_path, "t.jsonl", lines("0123456789", "0123456789abcde")))
    assert [text for _, text in said()] == ["0123456789", "0123456789\n[cut on import: 5 of 15 characters left out]"]
    assert report["cut_texts"] == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_utf8_is_read_with_and_without_a_mark(tmp_path: Path, encoding: str) -> None:
    text = '{"speaker": "Zoë", "text": "naïve 😀"}\r\n{"speaker": "Zoë", "text": "ja"}'
    run_json("import_transcript", write(tmp_path, "t.jsonl", text.encode(encoding)))
    assert said() == [("Zoë", "naïve 😀"), ("Zoë", "ja")]


def test_names_in_a_file_print_nothing_but_their_characters(tmp_path: Path) -> None:
    row = json.dumps({"speaker": "Bob", "text": "Hi.", "\x1b]0;title\x07when\n::error::": "10:00"})
    (tmp_path / "t.csv").write_text('speaker,text,"\x1b[2Jwhen\n::error::"\nBob,Hi.,10:00\n')
    jsonl, table, printed = write(tmp_path, "t.jsonl", row), tmp_path / "t.csv", io.StringIO()

    call_command("import_transcript", jsonl, stdout=io.StringIO(), stderr=printed)
    call_command("import_transcript", table, stdout=io.StringIO(), stderr=printed)
    for path in (jsonl, table):
        with pytest.raises(CommandError) as refused:
            call_command("import_transcript", path, columns=["text=no_such"])
        printed.write(f"{refused.value}\n")

    assert printed.getvalue().count("when ::error::") == 4
    assert "\x1b" not in printed.getvalue()


@pytest.mark.parametrize("name", ["t.jsonl", "t.txt"])
def test_invalid_utf8_names_the_line(tmp_path: Path, name: str) -> None:
    text = lines(*["x" * 200] * 100) if name == "t.jsonl" else "Ann: hello there\n" * 100
    path = write(tmp_path, name, text.encode() + b"Ann: caf\xe9\n")
    with pytest.raises(CommandError, match=r"line 101: not valid UTF-8 \(byte 0xe9 at column 9\)"):
        call_command("import_transcript", path)


def test_a_table_as_excel_saves_it_is_read_and_the_encoding_is_said(tmp_path: Path) -> None:
    table = "speaker;text\n" + "Ann;plain\n" * 10_000 + "J\u00f6rg;sch\u00f6n, 5 \u20ac\n"

    report = run_json("import_transcript", write(tmp_path, "t.csv", table.encode("cp1252")))

    assert said("t")[-1] == ("Jörg", "schön, 5 €")
    [warning] = report["warnings"]
    assert "Windows-1252" in warning
    assert "Jörg, schön" in warning
    again = run_json("import_transcript", write(tmp_path, "t.csv", table))
    assert (again["duplicates"], again["warnings"]) == (10_001, [])


@pytest.mark.parametrize(
    "broken",
    [b"Ann;sch\xc3\xb6n\nAnn;caf\xe9\n", b"Ann;caf\xe9 \x81\n", b"\xef\xbb\xbfAnn;caf\xe9\n"],
    ids=["partly UTF-8", "no letter of Windows-1252", "with the mark of UTF-8"],
)
def test_a_table_that_is_neither_utf8_nor_of_windows_is_refused(tmp_path: Path, broken: bytes) -> None:
    bom = broken[:3] if broken.startswith(b"\xef\xbb\xbf") else b""
    with pytest.raises(CommandError, match=r"not valid UTF-8 \(byte 0xe9"):
        call_command(
            "import_transcript",
            write(tmp_path, "t.csv", bom + b"speaker;text\n" + broken.removeprefix(bom)),
        )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_a_table_in_utf16_is_refused_as_what_is_not_utf8(tmp_path: Path, encoding: str) -> None:
    table = "speaker;text\nAnn;Grüße\n".encode(encoding)
    with pytest.raises(CommandError, match="save the file as UTF-8"):
        call_command("import_transcript", write(tmp_path, "t.csv", table))


def test_a_line_beyond_the_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_LINE", 1000)
    with pytest.raises(CommandError, match="line 2: longer than 1,000 bytes"):
        call_command("import_transcript", write(tmp_path, "t.jsonl", lines("x", "y" * 2000)))


def test_a_file_that_changes_while_it_is_read_is_not_imported(tmp_path: Path) -> None:
    path = write(tmp_path, "t.jsonl", lines("x"))

    def append(_what: str, _done: int, _total: int) -> None:
        with path.open("a") as file:
            file.write(lines("y"))

    with pytest.raises(FileError, match="the file changed while it was being read"):
        import_transcript(path, ReadOptions(), progress=append)
    assert not Message.objects.exists()


def test_the_number_of_queries_does_not_grow_with_the_messages(tmp_path: Path) -> None:
    make_agent("ann")
    rows = [
        {"id": str(n), "speaker": "Ann", "text": f"t{n}", "reply_to": str(n - 1) if n % 50 == 1 else None}
        for n in range(500)
    ]
    path = write(tmp_path, "t.jsonl", "\n".join(map(json.dumps, rows)))
    with CaptureQueriesContext(connection) as queries:
        import_transcript(path, ReadOptions())
    inserts = [q for q in queries if q["sql"].startswith('INSERT INTO "messages"')]
    assert len(queries) - len(inserts) <= 30
    assert len(inserts) <= 10  # SQLite takes 66 rows a statement, PostgreSQL all
    assert list(Message.objects.order_by("position").values_list("position", flat=True)) == list(range(1, 501))
    with CaptureQueriesContext(connection) as queries:
        import_transcript(path, ReadOptions())
    assert len(queries) <= 20


def test_many_small_conversations_are_stored_in_few_statements(tmp_path: Path) -> None:
    chats = [{"messages": [{"role": "user", "content": f"{n} {m}"} for m in range(1 + n % 3)]} for n in range(60)]
    with CaptureQueriesContext(connection) as queries:
        report = run_json("import_transcript", write(tmp_path, "c.jsonl", "\n".join(map(json.dumps, chats))))
    assert (report["imported"], len(report["channels"])) == (120, 60)
    assert len(queries) <= 40
    assert all(c.next_position == c.messages.count() + 1 for c in Channel.objects.all())


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({"map": ["nothing"]}, "write it as SPEAKER=SLUG"),
        ({"tag": ["1st=a"]}, "--tag: tag key '1st'; allowed: a letter, then"),
        ({"timezone": "Mars/Base"}, "unknown time zone 'Mars/Base'"),
        ({"map": ["Ann=benjamin-hal"]}, "--map Ann=benjamin-hal: no agent 'benjamin-hal'; nearest: benjamin-hall"),
        ({"map": ["Anne=zoe"]}, r"--map 'Anne': no such speaker or role in .*; its speakers: 'Ann'"),
    ],
)
def test_an_option_that_cannot_be_followed_is_named(tmp_path: Path, option: dict[str, object], reason: str) -> None:
    make_agent("benjamin-hall", "Benjamin Hall")
    make_agent("zoe")
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", write(tmp_path, "t.jsonl", lines("x")), **option)
    assert not Channel.objects.exists()


def test_a_persona_is_not_imported_as_a_conversation(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"manage\.py import_agents"):
        call_command("import_transcript", write(tmp_path, "ada.yaml", "slug: ada\nsystem_prompt: You are Ada.\n"))
    assert not Channel.objects.exists()


def test_a_message_without_a_time_stands_between_its_neighbours(tmp_path: Path) -> None:
    ada = make_agent("ada", "Ada")
    table = "who,text,time\nada,first,\nada,second,2026-01-05T10:00:00Z\nada,third,\nada,fourth,2026-01-05T11:00:00Z\n"
    run_json("import_transcript", write(tmp_path, "dated.csv", table))
    run_json("import_transcript", write(tmp_path, "later.txt", "Ada: undated\nAda: too\n"))
    run_json("import_transcript", write(tmp_path, "older.csv", "who,text,time\nada,older,2025-01-05T10:00:00Z\n"))

    said_in_order = list(ada.messages.order_by("said_at", "pk").values_list("text", flat=True))

    assert said_in_order == ["older", "first", "second", "third", "fourth", "undated", "too"]
    assert ada.messages.get(text="third").sent_at is None

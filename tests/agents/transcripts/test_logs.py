"""Logs of IRC clients and messengers: nothing of a program's own is speech, no line is glued to another."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Message
from tests.agents.transcripts.helpers import run_json, said, write

pytestmark = pytest.mark.django_db


def imported(folder: Path, text: str, name: str = "log.txt", **options: Any) -> dict[str, Any]:
    report = run_json("import_transcript", write(folder, name, text), **options)
    assert report["read"] == report["imported"] + report["duplicates"] + report["skipped"] + report["system_prompts"]
    return report


# -- IRC
@pytest.mark.parametrize("stamp", ["[12:03] ", "12:03 ", ""])
def test_what_an_irc_log_says_itself_is_not_glued_to_a_message(tmp_path: Path, stamp: str) -> None:
    log = (
        f"--- Log opened Mon Jan 05 09:00:00 2026\n{stamp}<ann> hi\n=== bo is now known as bo_away\n{stamp}<bo> ho\n"
        f"{stamp}=== bo_away is now known as bo\n{stamp}-NickServ- identify\n{stamp}* cy waves\n--- Log closed Mon Jan 05 10:00:00 2026\n"
    )
    report = imported(tmp_path, log)
    assert said() == [("ann", "hi"), ("bo", "ho"), ("cy", "waves")]
    assert report["skipped_by_reason"] == {"notice": 3}


def test_headers_of_mirc_are_no_speakers(tmp_path: Path) -> None:
    imported(
        tmp_path,
        "Session Start: Mon Jan 05 09:00:00 2026\nSession Ident: #quay\n[09:12] <ann> hi\nSession Close: Mon Jan 05 10:00:00 2026\n",
    )
    assert said() == [("ann", "hi")]
    assert Message.objects.get().sent_at == datetime(2026, 1, 5, 9, 12, tzinfo=UTC)


def test_a_log_with_times_of_its_own_is_read_without_a_wrong_speaker(tmp_path: Path) -> None:
    log = (
        "**** BEGIN LOGGING AT Mon Jan  5 09:00:00 2026\n\n[09:12:00] <ann>\tIs it late: the ferry?\n[09:13:00] *\tbo waves\n"
        "[09:14:00] ann\tcolumns: of another client\n[09:15:00] <ann>\tBye\n[09:16:00] <ann>\tBye\n[09:17:00] <bo>\tBye\n"
    )
    report = imported(tmp_path, log)
    assert report["speakers"].keys() == {"ann", "bo"}
    assert report["skipped_by_reason"] == {"line not understood": 1}
    assert report["first_sent_at"] == "2026-01-05T09:12:00Z"


def test_a_list_of_our_messages_may_be_pretty_json(tmp_path: Path) -> None:
    imported(
        tmp_path,
        json.dumps([{"agent": "Ann", "text": "one"}, {"speaker": "Bo", "text": "two"}], indent=2),
        name="talk.json",
    )
    assert said() == [("Ann", "one"), ("Bo", "two")]


# -- what is not understood
def stamped(good: int, bad: int) -> str:
    lines = [f"2026-03-01 09:{n:02}:00 ann: line {n}" for n in range(good)] + [
        f"2026-03-01 10:{n:02}:00 what {n}" for n in range(bad)
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("good", "bad", "warned"), [(50, 1, False), (49, 1, False), (48, 2, True), (40, 10, True)])
def test_lines_that_are_not_understood_are_counted_and_warned_of(
    tmp_path: Path, good: int, bad: int, warned: bool
) -> None:
    out, errors = io.StringIO(), io.StringIO()
    call_command(
        "import_transcript", write(tmp_path, "log.txt", stamped(good, bad)), json=True, stdout=out, stderr=errors
    )
    report = json.loads(out.getvalue())
    assert report["skipped_by_reason"] == {"line not understood": bad}
    assert bool(report["warnings"]) == warned
    assert ("'what 0'" in errors.getvalue()) == warned


def test_a_file_of_which_a_fifth_is_not_understood_is_refused_with_the_first_three_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "log.txt", stamped(30, 10))
    with pytest.raises(
        CommandError,
        match=r"10 of 40 entries .25 %. were not understood, the first: line 31: 'what 0'; .*'what 2'\. Is",
    ):
        call_command("import_transcript", path)
    assert not Message.objects.exists()


def test_the_command_says_messages_speakers_times_and_what_was_skipped(tmp_path: Path) -> None:
    out = io.StringIO()
    log = "[12:03] <ann> hi\n[12:04] -!- bo has joined\n[12:05] <bo> ho\n"
    call_command("import_transcript", write(tmp_path, "log.txt", log), stdout=out)
    call_command(
        "import_transcript", write(tmp_path, "dated.csv", "who,text,time\nann,hi,2026-03-01T09:00:00Z\n"), stdout=out
    )
    said_of = " ".join(out.getvalue().split())
    for words in (
        "imported 2 into log",
        "skipped: 1 × notice",
        "2 messages without a time",
        "2026-03-01T09:00:00Z to 2026-03-01T09:00:00Z",
    ):
        assert words in said_of


# -- WhatsApp
ANDROID = """\
31/12/2025, 22:14 - Messages and calls are end-to-end encrypted. No one outside of this chat, not even WhatsApp, can read or listen to them.
31/12/2025, 22:14 - Ann created group "Ferries: late"
31/12/2025, 22:15 - Ann changed the subject from "A" to "Ferries: late"
31/12/2025, 22:15 - Ann: Is it late?
And why?
31/12/2025, 22:16 - +49 171 1234567: <Media omitted>
31/12/2025, 22:17 - Ann: IMG-20251231-WA0001.jpg (file attached)
Look at this
31/12/2025, 22:18 - Ann: This message was deleted
31/12/2025, 22:18 - Ann: You deleted this message.
31/12/2025, 22:19 - ~\u202fBo: I see 2 < 3 and <html> <This message was edited>
31/12/2025, 22:20 - Ann:
"""
IOS = """\
\ufeff[31.12.25, 22:14:01] Quay: \u200eNachrichten und Anrufe sind Ende-zu-Ende-verschlüsselt. Niemand sonst kann sie lesen.
[31.12.25, 22:15:01] Ann: Kommt sie?
Warum nicht: wer weiß?
\u200e[31.12.25, 22:15:30] Ann: \u200eBild weggelassen
[31.12.25, 22:15:40] Ann: schau \u200e<Anhang: 00001-PHOTO-2025.jpg>
[31.12.25, 22:16:01] ~\u00a0Bo: \u200eDiese Nachricht wurde gelöscht.
\u200e[31.12.25, 22:16:30] Bo: \u200eFahrplan.pdf • \u200e3 Seiten \u200eDokument weggelassen
[31.12.25, 22:17:01] Bo: Gleich. \u200e<Diese Nachricht wurde bearbeitet.>
"""


def test_what_whatsapp_writes_itself_on_android_is_not_speech(tmp_path: Path) -> None:
    report = imported(tmp_path, ANDROID)
    assert said() == [("Ann", "Is it late?\nAnd why?"), ("Ann", "Look at this"), ("Bo", "I see 2 < 3 and <html>")]
    assert report["skipped_by_reason"] == {"notice": 3, "media": 1, "deleted message": 2, "empty message": 1}
    assert report["warnings"] == []


def test_a_line_of_a_message_in_brackets_is_speech_where_it_is_not_the_first(tmp_path: Path) -> None:
    imported(tmp_path, "31/12/2025, 22:14 - Ann: So?\n<shrugs at Bo>\n31/12/2025, 22:15 - Bo: Well.\n")
    assert said() == [("Ann", "So?\n<shrugs at Bo>"), ("Bo", "Well.")]


def test_what_whatsapp_writes_itself_on_ios_is_not_speech(tmp_path: Path) -> None:
    report = imported(tmp_path, IOS)
    assert said() == [("Ann", "Kommt sie?\nWarum nicht: wer weiß?"), ("Ann", "schau"), ("Bo", "Gleich.")]
    assert report["skipped_by_reason"] == {"notice": 4}


@pytest.mark.parametrize(
    "stamp",
    ["31/12/2025, 22:15 - ", "31.12.25, 22:15 - ", "12/31/25, 10:15\u202fPM - ", "2025-12-31 22:15 - ", "31/12/2025 22.15 - ",
     "31/12/2025, 10:15 p.\u00a0m. - ", "31/12/2025 à 22:15 - ", "2025. 12. 31. 22:15 - ", "[31/12/2025, 22:15:00] "],
)  # fmt: skip
def test_messages_and_own_texts_of_whatsapp_are_told_apart_whatever_the_form_of_time(
    tmp_path: Path, stamp: str
) -> None:
    own = (
        "<Media omitted>",
        "<Médias omis>",
        "You deleted this message",
        "Missed voice call, tap to call back",
        "null",
    )
    spoken = ("Gut <This message was edited>", "Hallo", "null, she said")
    report = imported(tmp_path, "".join(f"{stamp}Ann: {text}\n" for text in (*own, *spoken)))
    assert said() == [("Ann", "Gut"), ("Ann", "Hallo"), ("Ann", "null, she said")]
    assert report["skipped_by_reason"] == {"media": 2, "deleted message": 1, "notice": 2}
    assert report["first_sent_at"] == "2025-12-31T22:15:00Z"


def test_a_notice_to_a_channel_is_no_message_of_irssi(tmp_path: Path) -> None:
    for number, stamp in enumerate(("21:58 ", "21:58:01 ", "[21:58] ", "")):
        log = f"{stamp}<ann> hi\n{stamp}-Bo:#quay- late\n{stamp}-bo- psst\n{stamp}-Bo:@#quay-ops- ops\n{stamp}<bo> ho\n"
        report = imported(tmp_path, log, name=f"{number}.txt")
        assert report["skipped_by_reason"] == {"notice": 3}


# -- CSV with dialogues
@pytest.mark.parametrize(
    ("header", "options", "warned"),
    [
        ("Who,Text,Uhrzeit", {}, True),
        ("Who,Text,Uhrzeit", {"columns": "sent_at=Uhrzeit"}, False),
        ("Who,Text,Sent", {}, False),
    ],
)
def test_a_table_without_a_known_column_of_times_says_what_was_read_and_what_not(
    tmp_path: Path, header: str, options: dict[str, str], warned: bool
) -> None:
    report = imported(tmp_path, f"{header}\nann,hi,2026-03-01 09:00\n", name="talk.csv", **options)
    assert report["undated"] == warned
    assert [all(name in text for name in ("speaker=Who", "text=Text", "Uhrzeit", "--columns sent_at=")) for text in report["warnings"]] == (
        [True] * warned
    )  # fmt: skip


def test_each_dialogue_of_a_table_is_a_channel(tmp_path: Path) -> None:
    table = (
        "Sr No.,Utterance,Speaker,Emotion,Dialogue_ID,Utterance_ID,Season\n"
        + "".join(f"{n},Line {n},{'Ann' if n % 2 else 'Bo'},neutral,{n // 2},{n % 2},1\n" for n in range(6))
    )  # fmt: skip
    report = imported(tmp_path, table, name="meld.csv")
    assert report["channels"] == ["meld-0", "meld-1", "meld-2"]
    assert said("meld-1") == [("Bo", "Line 2"), ("Ann", "Line 3")]

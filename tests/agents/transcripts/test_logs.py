"""Logs of IRC clients and messengers, and sessions of TinyTroupe: nothing of a program's own is speech, no line is glued to another."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Message
from tests.agents.transcripts.helpers import make_agent, run_json, said, write

pytestmark = pytest.mark.django_db


def imported(folder: Path, text: str, name: str = "log.txt", **options: Any) -> dict[str, Any]:
    report = run_json("import_transcript", write(folder, name, text), **options)
    assert report["read"] == report["imported"] + report["duplicates"] + report["skipped"] + report["system_prompts"]
    return report


# -- IRC
@pytest.mark.parametrize("stamp", ["[12:03] ", ""])
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


def test_a_log_with_stamps_has_no_wrong_speaker(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("good", "bad", "warned"), [(49, 1, False), (48, 2, True), (40, 10, True)])
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


def test_a_file_that_is_mostly_not_understood_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "log.txt", stamped(30, 10))
    with pytest.raises(
        CommandError,
        match=r"10 of 40 entries .25 %. were not understood, the first: line 31: 'what 0'; .*'what 2'; if",
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
        "1 Mar 2026, 09:00",
    ):
        assert words in said_of


def test_what_is_counted_once_is_said_in_the_singular(tmp_path: Path) -> None:
    out = io.StringIO()
    log = '{"role": "system", "text": "You are Ann."}\n{"speaker": "ann", "text": "hi"}\n'

    call_command("import_transcript", write(tmp_path, "log.jsonl", log), stdout=out)

    assert "1 message without a time" in out.getvalue()
    assert "1 system prompt," in out.getvalue()


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


def test_a_bracketed_line_is_speech_unless_it_is_the_first(tmp_path: Path) -> None:
    imported(tmp_path, "31/12/2025, 22:14 - Ann: So?\n<shrugs at Bo>\n31/12/2025, 22:15 - Bo: Well.\n")
    assert said() == [("Ann", "So?\n<shrugs at Bo>"), ("Bo", "Well.")]


def test_what_whatsapp_writes_itself_on_ios_is_not_speech(tmp_path: Path) -> None:
    report = imported(tmp_path, IOS)
    assert said() == [("Ann", "Kommt sie?\nWarum nicht: wer weiß?"), ("Ann", "schau"), ("Bo", "Gleich.")]
    assert report["skipped_by_reason"] == {"notice": 1, "media": 2, "deleted message": 1}


def test_whatsapp_s_own_texts_are_known_in_several_languages(tmp_path: Path) -> None:
    own = [
        ("<Media omitted>", "You deleted this message", "<This message was edited>"),
        ("<Medien ausgeschlossen>", "Du hast diese Nachricht gelöscht.", "<Diese Nachricht wurde bearbeitet.>"),
        ("<Multimedia omitido>", "Se eliminó este mensaje.", "<Se editó este mensaje.>"),
        ("<Médias omis>", "Ce message a été supprimé", "<Ce message a été modifié>"),
        ("<Mídia oculta>", "Mensagem apagada", "<Mensagem editada>"),
        ("<Media omessi>", "Questo messaggio è stato eliminato", "<Messaggio modificato>"),
        ("<Media weggelaten>", "Dit bericht is verwijderd", "<Dit bericht is bewerkt>"),
        ("<Без медиафайлов>", "Данное сообщение удалено", "<Сообщение изменено>"),
        ("<pominięto multimedia>", "Usunięto tę wiadomość", "<This message was edited>"),
        ("<Medya dahil edilmedi>", "Bu mesaj silindi", "<Bu mesaj düzenlendi>"),
        ("<メディアは含まれていません>", "Pesan ini telah dihapus", "<Pesan ini diedit>"),
    ]
    said_by_ann = [text for omitted, deleted, edited in own for text in (omitted, deleted, f"Gut {edited}", "Hallo")]

    report = imported(tmp_path, "".join(f"31/12/2025, 22:15 - Ann: {text}\n" for text in said_by_ann))

    assert said() == [("Ann", "Gut"), ("Ann", "Hallo")] * len(own)
    assert report["skipped_by_reason"] == {"media": len(own), "deleted message": len(own)}


@pytest.mark.parametrize(
    "stamp",
    [
        "31.12.25, 22:15 - ",
        "12/31/25, 10:15\u202fPM - ",
        "2025-12-31 22:15 - ",
        "31/12/2025 22.15 - ",
        "31/12/2025, 10:15 p.\u00a0m. - ",
    ],
)
def test_an_export_of_android_is_known_by_its_times(tmp_path: Path, stamp: str) -> None:
    report = imported(tmp_path, f"{stamp}Ann: <Media omitted>\n{stamp}Ann: Hallo\n")

    assert said() == [("Ann", "Hallo")]
    assert report["skipped_by_reason"] == {"media": 1}
    assert report["first_sent_at"] == "2025-12-31T22:15:00Z"


@pytest.mark.parametrize(
    "stamp",
    ["05/01/2026 21:58:01",    "2026. 1. 5. 오후 9:58:01",
      "2026/1/5 下午9:58:01", "5.1.2026 um 21:58:01"],
)  # fmt: skip
def test_an_export_of_ios_is_known_by_its_marks(tmp_path: Path, stamp: str) -> None:
    log = (
        f"[{stamp}] Quay: \u200eLes messages et les appels sont chiffrés de bout en bout.\n[{stamp}] Ann: Elle vient ?\n"
        f"\u200e[{stamp}] Pat: \u200eimage absente\n[{stamp}] Pat: Oui. \u200e<Ce message a été modifié>\n[{stamp}] Pat: \u200eunbekannt\n"
    )
    report = imported(tmp_path, log, dates="day-first")
    assert said() == [("Ann", "Elle vient ?"), ("Pat", "Oui.")]
    assert report["skipped_by_reason"] == {"notice": 2, "media": 1}
    assert report["first_sent_at"] == "2026-01-05T21:58:01Z"


@pytest.mark.parametrize("stamp", ["05/01/2026 à 21:58 - ", "2026. 1. 5. 오후 9:58 - "])
def test_words_between_date_and_time_are_no_hindrance(tmp_path: Path, stamp: str) -> None:
    report = imported(tmp_path, f"{stamp}Ann: one\n{stamp}Ann a quitté\n{stamp}Bo: two\n", dates="day-first")
    assert said() == [("Ann", "one"), ("Bo", "two")]
    assert report["first_sent_at"] == "2026-01-05T21:58:00Z"


@pytest.mark.parametrize("stamp", ["13/01/2026, 21:58 - ", "[13/01/2026, 21:58:01] "])
def test_more_texts_of_whatsapp_are_not_speech(tmp_path: Path, stamp: str) -> None:
    own = [
        *("null", "Missed voice call, tap to call back", "Missed video call", "live location shared"),
        *("<View once voice message omitted>", "Waiting for this message. This may take a while."),
    ]
    imported(tmp_path, "".join(f"{stamp}Ann: {text}\n{stamp}Ann: {text}, she said\n" for text in own))
    assert said() == [("Ann", f"{text}, she said") for text in own]


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
        ("Who,Text,Uhrzeit", {"columns": ["sent_at=Uhrzeit"]}, False),
        ("Who,Text,Sent", {}, False),
    ],
)
def test_a_table_without_times_says_which_columns_were_read(
    tmp_path: Path, header: str, options: dict[str, list[str]], warned: bool
) -> None:
    report = imported(tmp_path, f"{header}\nann,hi,2026-03-01 09:00\n", name="talk.csv", **options)
    assert report["undated"] == warned
    assert [all(name in text for name in ("speaker=Who", "text=Text", "Uhrzeit", "--columns sent_at=")) for text in report["warnings"]] == (
        [True] * warned
    )  # fmt: skip


@pytest.mark.parametrize(
    ("message", "options", "warned"),
    [
        ({"speaker": "ann", "text": "hi", "Uhrzeit": "2026-03-01 09:00"}, {}, ("speaker=speaker", "text=text")),
        ({"Who": "ann", "Said": "hi", "Uhrzeit": "2026-03-01 09:00"}, {"columns": ["speaker=Who,text=Said"]}, ("speaker=Who", "text=Said")),
        ({"speaker": "ann", "text": "hi", "Uhrzeit": "2026-03-01 09:00"}, {"columns": ["sent_at=Uhrzeit"]}, ()),
        ({"speaker": "ann", "text": "hi"}, {}, ()),
    ],
)  # fmt: skip
def test_json_without_times_says_which_keys_were_read(
    tmp_path: Path, message: dict[str, str], options: dict[str, list[str]], warned: tuple[str, ...]
) -> None:
    report = imported(tmp_path, json.dumps(message), name="talk.jsonl", **options)

    assert len(report["warnings"]) == bool(warned)
    for warning in report["warnings"]:
        assert all(words in warning for words in (*warned, "not used: Uhrzeit", "--columns sent_at=KEY"))


def test_each_dialogue_of_a_table_is_a_channel(tmp_path: Path) -> None:
    table = (
        "Sr No.,Utterance,Speaker,Emotion,Dialogue_ID,Utterance_ID,Season\n"
        + "".join(f"{n},Line {n},{'Ann' if n % 2 else 'Bo'},neutral,{n // 2},{n % 2},1\n" for n in range(6))
    )  # fmt: skip
    report = imported(tmp_path, table, name="meld.csv")
    assert report["channels"] == ["meld-0", "meld-1", "meld-2"]
    assert said("meld-1") == [("Bo", "Line 2"), ("Ann", "Line 3")]


# -- TinyTroupe
def told(who: str, text: str, more: str = "") -> str:
    return f"USER --> {who}: [CONVERSATION]\n     > {text}\n" + (f"     + --> {more}\n" if more else "")


def says(who: str, text: str) -> str:
    return f"{who} acts: [THINK]\n     > Hm.\n{who} acts: [TALK]\n     > {text}\n{who} acts: [DONE]\n"


def notebook(*outputs: str) -> str:
    cells = [{"cell_type": "code", "outputs": [{"output_type": "stream", "text": text}]} for text in outputs]
    return json.dumps({"nbformat": 4, "cells": cells})


QUESTIONS = ("Who are you?", "What do you buy?", "Why?")


def test_each_session_of_a_notebook_is_a_conversation(tmp_path: Path) -> None:
    make_agent("ann", "Ann")
    sessions = ["".join(told(name, q) + says(name, f"{q} {name}") for q in QUESTIONS) for name in ("Ann", "Bo", "Cy")]
    report = imported(tmp_path, notebook(*sessions), name="run.ipynb")
    assert report["channels"] == ["run", "run-2", "run-3"]
    for number, name in enumerate(("Ann", "Bo", "Cy"), start=1):
        channel = "run" if number == 1 else f"run-{number}"
        assert said(channel) == [line for q in QUESTIONS for line in (("USER", q), (name, f"{q} {name}"))]
    assert run_json("import_transcript", tmp_path / "run.ipynb")["imported"] == 0


def test_an_interview_over_several_cells_is_one_conversation(tmp_path: Path) -> None:
    report = imported(
        tmp_path,
        notebook(told("Ann", "One?"), says("Ann", "1"), told("Ann", "Two?") + says("Ann", "2")),
        name="run.ipynb",
    )
    assert report["channels"] == ["run"]
    assert said() == [("USER", "One?"), ("Ann", "1"), ("USER", "Two?"), ("Ann", "2")]


RULE = "─" * 20


def world(name: str, *people: str) -> str:
    asked = told(people[0], "Ideas?") + told(people[1], "Ideas?", people[-1])
    heard = f"{people[0]} --> {people[1]}: [CONVERSATION]\n     > Mine.\n"
    return asked + f"{RULE} {name} step 1 of 1 {RULE}\n" + says(people[0], "Mine.") + heard + says(people[1], "Yours.")


@pytest.mark.parametrize(
    "worlds",
    [(("One", "Ann", "Bo", "Cy"), ("Two", "Ann", "Bo", "Cy")), (("Group", "Ann", "Bo"), ("Group", "Di", "Ed"))],
    ids=["the same people in two environments", "other people in environments of one name"],
)
def test_environments_are_conversations_of_their_own(tmp_path: Path, worlds: tuple[tuple[str, ...], ...]) -> None:
    report = imported(tmp_path, notebook(*(world(*one) for one in worlds)), name="run.ipynb")
    assert report["channels"] == ["run", "run-2"]
    for channel, (_, first, second, *_) in zip(report["channels"], worlds, strict=True):
        assert said(channel) == [("USER", "Ideas?"), (first, "Mine."), (second, "Yours.")]


def test_an_environment_that_runs_again_goes_on(tmp_path: Path) -> None:
    again = told("Ann", "More?") + told("Bo", "More?") + f"{RULE} One step 1 of 1 {RULE}\n" + says("Bo", "No.")
    report = imported(tmp_path, world("One", "Ann", "Bo") + again, name="run.log")
    assert report["channels"] == ["run"]
    assert said()[-2:] == [("USER", "More?"), ("Bo", "No.")]


def test_who_acts_without_having_been_asked_acts_in_the_session_there_is(tmp_path: Path) -> None:
    heard = "Ann --> Bo: [CONVERSATION]\n     > Hello.\n"
    report = imported(
        tmp_path, told("Ann", "Talk to Bo.") + says("Bo", "Hm.") + says("Ann", "Hello.") + heard, name="run.log"
    )
    assert report["channels"] == ["run"]
    assert said() == [("USER", "Talk to Bo."), ("Bo", "Hm."), ("Ann", "Hello.")]

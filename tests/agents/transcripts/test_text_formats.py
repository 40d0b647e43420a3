"""CSV, chat logs and console logs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from agents.models import Message
from tests.agents.transcripts.helpers import make_agent, run_json, said, write

pytestmark = pytest.mark.django_db


def times() -> list[datetime | None]:
    return list(Message.objects.order_by("position").values_list("sent_at", flat=True))


def test_csv_finds_columns_by_their_usual_names(tmp_path: Path) -> None:
    table = 'ID;Author;Timestamp;Message\n1;Ann;2026-01-05 10:00;"Hi; you\r\nthere"\n\n2;Bo;2026-01-05T11:00:00Z;"say ""no"""\n3;Bo;;\n'
    report = run_json("import_transcript", write(tmp_path, "t.csv", table), timezone="Europe/Berlin")
    assert said("t") == [("Ann", "Hi; you\r\nthere"), ("Bo", 'say "no"')]
    assert times() == [datetime(2026, 1, 5, 9, tzinfo=UTC), datetime(2026, 1, 5, 11, tzinfo=UTC)]
    assert list(Message.objects.order_by("position").values_list("external_id", flat=True)) == ["1", "2"]
    assert report["skipped_by_reason"] == {"empty message": 1}


def test_csv_takes_a_column_map_also_for_tags(tmp_path: Path) -> None:
    table = "who said it,body,text,Release\nAnn,real words,noise,41\n"
    path = write(tmp_path, "t.csv", table)
    run_json(
        "import_transcript", path, columns="speaker=who said it,text=body,tags.build=release", tag=["locale=en,site=a"]
    )
    assert said("t") == [("Ann", "real words")]
    assert Message.objects.get().tags == {"build": "41", "locale": "en", "site": "a"}


@pytest.mark.parametrize(
    ("table", "columns", "reason"),
    [
        ("a,b\nx,y\n", "text=b", "no column for 'speaker' among a, b; say which: --columns speaker=COLUMN"),
        ("speaker,text\nx\n", "", "line 2: 1 columns where the header has 2"),
        ('speaker,text\nx,"open\n', "", "line 2: not valid CSV"),
        ("speaker,text\n,y\n", "", "line 2: the row has a text but no speaker"),
        ("speaker,text,time\na,b,soon\n", "", "line 2: 'sent_at': 'soon' is no time"),
        ("speaker,text\na,b\n", "text=nope", "--columns: no column 'nope'; the file has: speaker, text"),
        ("speaker,text\na,b\n", "mood=text", "--columns: unknown field 'mood'; allowed: speaker, text"),
    ],
)
def test_bad_csv_names_line_column_and_what_is_allowed(tmp_path: Path, table: str, columns: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", write(tmp_path, "t.csv", table), format="csv", columns=columns)


def test_names_with_continuation_lines(tmp_path: Path) -> None:
    make_agent("mara", "Mara Lind")
    log = (
        "\nMara Lind: Hello: all.\nSecond line,\n\nthird http://x.org/a: see\n**Bo:** bold name\nAnn:\nbelow\nEmpty:\n"
    )
    report = run_json("import_transcript", write(tmp_path, "log.txt", log))
    assert said("log") == [
        ("Mara Lind", "Hello: all.\nSecond line,\n\nthird http://x.org/a: see"),
        ("Bo", "bold name"),
        ("Ann", "below"),
    ]
    assert report["skipped_by_reason"] == {"empty message": 1}
    assert report["speakers"]["Mara Lind"]["agent"] == "mara"


def test_irc_lines_with_actions_notices_and_a_clock(tmp_path: Path) -> None:
    log = (
        "--- Log opened Mon Jan 05 09:00:00 2026\n09:01 -!- ann [a@b] has joined #x\n09:02 <@ann> hi 12:30 ok: yes\n09:03  * bo waves\n"
        "--- Day changed Tue Jan 06 2026\n00:01 < bo> late\n"
    )
    report = run_json("import_transcript", write(tmp_path, "irc.log", log))
    assert said("irc") == [("ann", "hi 12:30 ok: yes"), ("bo", "waves"), ("bo", "late")]
    assert times() == [datetime(2026, 1, d, h, m, tzinfo=UTC) for d, h, m in ((5, 9, 2), (5, 9, 3), (6, 0, 1))]
    assert Message.objects.get(text="waves").payload == {"action": True}
    assert report["skipped_by_reason"] == {"notice": 1}


@pytest.mark.parametrize(
    ("line", "moment"),
    [
        ("2024-01-02 12:03:04 Ann: x", (2024, 1, 2, 12, 3, 4)),
        ("2024-01-02T12:03:04.250Z Ann: x", (2024, 1, 2, 12, 3, 4, 250000)),
        ("[2024-01-02 12:03] Ann: x", (2024, 1, 2, 12, 3)),
        ("[2024-01-02 12:03:04+02:00] Ann: x", (2024, 1, 2, 10, 3, 4)),
        ("(2024/1/2 12:03) <Ann> x", (2024, 1, 2, 12, 3)),
        ("2024-01-02 12:03:04 - Ann: x", (2024, 1, 2, 12, 3, 4)),
        ("02/01/2024, 12:03 - Ann: x", (2024, 1, 2, 12, 3)),
        ("1/2/24, 12:03 AM - Ann: x", (2024, 1, 2, 0, 3)),
        ("1/2/24, 9:03\u202fPM - Ann: x", (2024, 1, 2, 21, 3)),
        ("\u200e[31.12.23, 22:15:03] Ann: x", (2023, 12, 31, 22, 15, 3)),
        ("02.01.24, 12:03 - Ann: x", (2024, 1, 2, 12, 3)),
    ],
)
def test_time_stamps_of_many_kinds(tmp_path: Path, line: str, moment: tuple[int, ...]) -> None:
    run_json("import_transcript", write(tmp_path, "log.txt", line + "\n"))
    assert said() == [("Ann", "x")]
    assert times() == [datetime(*moment, tzinfo=UTC)]  # type: ignore[misc, arg-type]


def test_one_date_decides_the_order_of_day_and_month_for_the_file(tmp_path: Path) -> None:
    log = (
        "1/2/24, 9:03 pm - Ann: x\n13/2/24, 9:03 pm - Ann: y\n13/2/24, 9:04 pm - Ann added Bo\n"
        "13/2/24, 9:05 pm - Bo: 10:30 works:\nfine\n"
    )
    report = run_json("import_transcript", write(tmp_path, "log.txt", log))
    assert times()[:2] == [datetime(2024, 2, 1, 21, 3, tzinfo=UTC), datetime(2024, 2, 13, 21, 3, tzinfo=UTC)]
    assert said() == [("Ann", "x"), ("Ann", "y"), ("Bo", "10:30 works:\nfine")]
    assert report["skipped_by_reason"] == {"notice": 1}


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("no speaker here\nAnn: x\n", "line 1: no speaker"),
        ("2024-01-02 12:03 Ann: x\n2024-13-02 12:03 Ann: y\n", "line 2: '2024-13-02 12:03' is no time"),
        ("\n\n", "the file is empty"),
    ],
)
def test_bad_chat_logs_name_the_line(tmp_path: Path, log: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", write(tmp_path, "log.txt", log), format="chat")


CONSOLE = """\
────────────── Focus group step 1 of 2 ──────────────
USER --> Ann Lee: [CONVERSATION]
          > Tell us about mornings, and please take
          > your time.
USER --> Bo: [CONVERSATION]
          > Tell us about mornings, and please take your
          > time.
          + --> Cy
Ann Lee acts: [THINK]
          > I had rather not.
Ann Lee acts: [TALK]
          > Mornings are long. I get up at six and I walk
          > the dog.
Ann Lee acts: [DONE]

Ann Lee --> Bo: [CONVERSATION]
          > Mornings are long. I get up at six and I walk the
          > dog.
Bo acts: [TALK]
          > Mine are short.
USER --> Bo: [CONVERSATION]
          > Go on.
USER --> Bo: [CONVERSATION]
          > Go on.
USER --> Ann Lee: [SOCIAL]
          > You can see Bo.
"""


@pytest.mark.parametrize("coloured", [False, True])
def test_console_logs_give_speech_and_each_stimulus_once(tmp_path: Path, coloured: bool) -> None:
    make_agent("ann", "Ann Lee")
    text = CONSOLE
    if coloured:
        text = text.replace("Ann Lee acts: [", "\x1b[1;32m\x1b[4mAnn Lee\x1b[0m\x1b[1;32m acts: [").replace(
            "]\n", "]\x1b[0m \n"
        )
        text = text.replace("          > ", "\x1b[38;5;51m          > ").replace(
            "USER -->", "\x1b[4;35mUSER\x1b[0m -->"
        )
    report = run_json("import_transcript", write(tmp_path, "run.log", text))
    assert said("run") == [
        ("USER", "Tell us about mornings, and please take your time."),
        ("Ann Lee", "Mornings are long. I get up at six and I walk the dog."),
        ("Bo", "Mine are short."),
        ("USER", "Go on."),
        ("USER", "Go on."),
    ]
    assert report["skipped_by_reason"] == {
        "other console output": 1, "shown before": 2, "action THINK": 1, "action DONE": 1, "stimulus SOCIAL": 1,
    }  # fmt: skip
    assert report["speakers"]["Ann Lee"] == {"agent": "ann", "messages": 1}
    assert set(times()) == {None}


def test_console_markup_that_was_not_rendered_is_taken_off(tmp_path: Path) -> None:
    log = "[bold cyan1][underline]Ann[/] acts: [TALK][/]\n          > Hello\n          > you.[/]\n"
    run_json("import_transcript", write(tmp_path, "run.log", log))
    assert said() == [("Ann", "Hello you.")]


def test_console_output_kept_in_a_notebook_is_read(tmp_path: Path) -> None:
    colour, end = "\x1b[1;3;38;5;51m", "\x1b[0m"
    stimulus = [
        f"\x1b[4;38;5;51mUSER{end}{colour} --> {end}{colour}Ann Lee{end}: [{end}CONVERSATION{end}] \n",
        f"{colour}     > Hello{end}\n",
    ]
    notebook = {
        "nbformat": 4,
        "cells": [
            {"cell_type": "markdown", "source": "USER --> Ann Lee: [CONVERSATION]"},
            {
                "cell_type": "code",
                "outputs": [{"output_type": "display_data", "data": {"text/html": ["<b>"], "text/plain": stimulus}}],
            },
            {
                "cell_type": "code",
                "outputs": [
                    {"output_type": "stream", "text": "Ann Lee acts: [TALK] \n     > Hi.\n"},
                    {"data": None},
                    5,
                ],
            },
        ],
    }
    report = run_json("import_transcript", write(tmp_path, "chat.ipynb", json.dumps(notebook, indent=1)))
    assert report["format"] == "tinytroupe"
    assert said("chat") == [("USER", "Hello"), ("Ann Lee", "Hi.")]


def test_interactions_that_are_printed_again_add_nothing_and_alone_give_everything(tmp_path: Path) -> None:
    when = ">>>>>>>>> Date and time of events: 2025-06-01T10:00:00\n"
    live = (
        "USER --> Ann: [CONVERSATION]\n  > Go.\nAnn acts: [TALK]\n  > Yes.\nAnn --> Bo: [CONVERSATION]\n  > Yes.\n"
        "Bo acts: [TALK]\n  > No.\nBo --> Ann: [CONVERSATION]\n  > No.\nAnn acts: [TALK]\n  > Yes.\n─── step 2 ───\n"
    )
    ann = [
        "USER --> Ann: [CONVERSATION]\n  > Go.\n", "Ann acts: [TALK]\n  > Yes.\n", "Bo --> Ann: [CONVERSATION]\n  > No.\n",
        "Ann acts: [TALK]\n  > Yes.\n",
    ]  # fmt: skip
    bo = [
        "Ann --> Bo: [CONVERSATION]\n  > Yes.\n",
        "Bo acts: [TALK]\n  > No.\n",
        "Ann --> Bo: [CONVERSATION]\n  > Yes.\n",
    ]
    again = "".join(when + block for block in ann) + "done\n" + "".join(when + block for block in bo)
    conversation = [("USER", "Go."), ("Ann", "Yes."), ("Bo", "No."), ("Ann", "Yes.")]
    run_json("import_transcript", write(tmp_path, "both.log", live + again))
    run_json("import_transcript", write(tmp_path, "alone.log", again))
    assert said("both") == conversation
    assert said("alone") == conversation
    assert set(times()) == {None, datetime(2025, 6, 1, 10, tzinfo=UTC)}

"""CSV, chat logs, console logs, chats of model APIs, and our own JSON Lines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Channel, Message
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
        "import_transcript",
        path,
        columns=["speaker=who said it,text=body", "tags.build=release"],
        tag=["locale=en,site=a"],
    )
    assert said("t") == [("Ann", "real words")]
    assert Message.objects.get().tags == {"build": "41", "locale": "en", "site": "a"}


def tickets(column: str, values: list[str]) -> str:
    rows = [f"{value},{who},line {n}" for n, value in enumerate(values) for who in ("Ann", "Bo")]
    return "\n".join([f"{column},author,message", *rows])


@pytest.mark.parametrize(
    "column",
    ["ticket", "Ticket Nr.", "Vorgangsnummer", "Fall-ID"],
)
def test_csv_takes_a_column_of_tickets_as_conversations_and_says_so(tmp_path: Path, column: str) -> None:
    path = write(tmp_path, "t.csv", tickets(column, [f"T{n}" for n in range(3)]))

    report = run_json("import_transcript", path)

    assert len(report["channels"]) == 3
    assert any(f"column {column!r} is read as a conversation" in warning for warning in report["warnings"])


@pytest.mark.parametrize(
    ("column", "values", "options"),
    [
        ("call", ["yes", "no", "yes", "no"], {}),  # is no name
        ("case", ["only", "only"], {}),
        ("session_start", ["a", "b"], {}),
        ("ticket", ["T1", "T2"], {"columns": ["channel="]}),  # as it was asked for
    ],
)
def test_csv_takes_no_other_column_for_conversations(
    tmp_path: Path, column: str, values: list[str], options: dict[str, Any]
) -> None:
    report = run_json("import_transcript", write(tmp_path, "t.csv", tickets(column, values)), **options)

    assert report["channels"] == ["t"]


@pytest.mark.parametrize(
    "message",
    [{"speaker": "Ann", "text": "Hi."}, {"role": "user", "content": "Hi."}],
)
@pytest.mark.parametrize(
    ("key", "values", "channels"),
    [
        ("conversation_id", ["c1", "c2"], ["c1", "c2"]),
        ("session_id", [7, 8], ["t-7", "t-8"]),
        ("channel", ["a", "b"], ["a", "b"]),
        ("thread", ["x", "y"], ["x", "y"]),
        ("threadId", ["x", "y"], ["x", "y"]),
        ("thread", ["only", "only"], ["t"]),
        ("call", [True, False], ["t"]),
        ("thread", [{"id": 1}, {"id": 2}], ["t"]),
    ],
)
def test_messages_a_line_each_are_in_the_conversation_that_a_usual_key_names(
    tmp_path: Path, message: dict[str, str], key: str, values: list[Any], channels: list[str]
) -> None:
    lines = [json.dumps({**message, key: value}) for value in values for _ in range(2)]

    report = run_json("import_transcript", write(tmp_path, "t.jsonl", "\n".join(lines)))

    assert report["channels"] == channels
    is_guess = len(channels) > 1 and "thread" in key
    assert any(f"key {key!r} is read as a conversation" in warning for warning in report["warnings"]) == is_guess


def test_json_keeps_conversations_together_when_that_is_asked_for(tmp_path: Path) -> None:
    lines = [json.dumps({"speaker": "Ann", "text": "Hi.", "thread": thread}) for thread in "xxyy"]

    report = run_json("import_transcript", write(tmp_path, "t.jsonl", "\n".join(lines)), columns=["channel="])

    assert report["channels"] == ["t"]


def test_csv_knows_german_headers(tmp_path: Path) -> None:
    table = (
        "Gespräch;Sprecher;Zeit;Nachricht\nA;Anna;24.12.2025 18:30;Guten Abend\nA;Bo;24.12.2025, 18:31;Hallo\n"
        "B;Anna;25.12.2025;Frohes Fest\n"
    )

    report = run_json("import_transcript", write(tmp_path, "t.csv", table), timezone="UTC")

    assert len(report["channels"]) == 2
    assert sorted(filter(None, times())) == [
        datetime(2025, 12, 24, 18, 30, tzinfo=UTC),
        datetime(2025, 12, 24, 18, 31, tzinfo=UTC),
        datetime(2025, 12, 25, tzinfo=UTC),
    ]
    assert report["speakers"].keys() == {"Anna", "Bo"}


@pytest.mark.parametrize(
    ("table", "columns", "reason"),
    [
        ("a,b\nx,y\n", "text=b", "no column for 'speaker' among a, b; say which: --columns speaker=COLUMN"),
        ("speaker,text\nx\n", "", "line 2: 1 columns where the header has 2"),
        ("speaker,text\n,y\n", "", "line 2: the row has a text but no speaker"),
        ("speaker,text,time\na,b,soon\n", "", "line 2: 'sent_at': 'soon' is no time"),
        ("speaker,text\na,b\n", "text=nope", "--columns: no column 'nope'; the file has: speaker, text"),
        ("speaker,text\na,b\n", "mood=text", "--columns: unknown field 'mood'; allowed: speaker, text"),
    ],
)
def test_bad_csv_names_line_column_and_what_is_allowed(tmp_path: Path, table: str, columns: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", write(tmp_path, "t.csv", table), format="csv", columns=[columns])


OWN_KEYS = [
    {"who": "Ann", "body": "Hi.", "ts": 1767607200, "ver": 7, "user": "u-1", "tags": ["vip"]},
    {"who": "Bo", "body": "Hello.", "ts": 1767607260, "ver": 8, "user": "u-2"},
    {"who": "Bo", "event": "typing"},
]


def own_keys(*, as_lines: bool) -> str:
    return "\n".join(map(json.dumps, OWN_KEYS)) if as_lines else json.dumps(OWN_KEYS)


@pytest.mark.parametrize("as_lines", [True, False])
def test_json_with_keys_of_its_own_is_read_once_they_are_named(tmp_path: Path, as_lines: bool) -> None:
    path = write(tmp_path, "t.json", own_keys(as_lines=as_lines))

    report = run_json("import_transcript", path, columns=["text=body,speaker=who,sent_at=ts", "tags.build=ver"])

    assert said("t") == [("Ann", "Hi."), ("Bo", "Hello.")]
    assert times() == [datetime(2026, 1, 5, 10, tzinfo=UTC), datetime(2026, 1, 5, 10, 1, tzinfo=UTC)]
    assert [message.tags["build"] for message in Message.objects.order_by("position")] == ["7", "8"]
    assert (report["format"], report["skipped_by_reason"]) == ("jsonl", {"empty message": 1})


def test_a_key_inside_an_object_is_named_by_its_path(tmp_path: Path) -> None:
    log = '{"author": {"name": "Ann"}, "body": "Hi.", "meta": {"release": "2.3"}}\n{"author": {"name": "Bo"}, "body": "Oh."}\n'

    run_json(
        "import_transcript",
        write(tmp_path, "t.jsonl", log),
        columns=["text=body,speaker=author.name,tags.build=meta.release"],
    )

    assert said("t") == [("Ann", "Hi."), ("Bo", "Oh.")]
    assert [message.tags for message in Message.objects.order_by("position")] == [{"build": "2.3"}, {}]


@pytest.mark.parametrize("columns", [[], ["text=body,speaker=who"]])
def test_messages_in_a_list_inside_an_object_are_refused_with_the_key_of_the_list(
    tmp_path: Path, columns: list[str]
) -> None:
    path = write(tmp_path, "t.json", json.dumps({"version": 1, "rows": OWN_KEYS}))

    with pytest.raises(CommandError, match="seem to be the list 'rows': save that list as a file of its own"):
        call_command("import_transcript", path, columns=columns)


def test_a_named_key_adds_to_what_our_own_keys_say(tmp_path: Path) -> None:
    make_agent("mara", "Mara Lind")
    log = '{"agent": "mara", "text": "Hi.", "tags": {"site": "a"}, "ver": "7"}\n{"speaker": "Ann", "text": "Oh."}\n'

    run_json("import_transcript", write(tmp_path, "t.jsonl", log), columns=["tags.build=ver"])

    assert said("t") == [("Mara Lind", "Hi."), ("Ann", "Oh.")]
    assert [message.tags for message in Message.objects.order_by("position")] == [{"site": "a", "build": "7"}, {}]


def test_true_and_false_can_be_tags(tmp_path: Path) -> None:
    log = '{"speaker": "Ann", "text": "Hi.", "vip": true}\n{"speaker": "Bo", "text": "Oh.", "vip": false}\n'

    run_json("import_transcript", write(tmp_path, "t.jsonl", log), columns=["tags.vip=vip"])

    assert [message.tags for message in Message.objects.order_by("position")] == [{"vip": "true"}, {"vip": "false"}]


def test_a_message_without_the_named_speaker_has_its_role_as_speaker(tmp_path: Path) -> None:
    log = '{"name": "Ann", "role": "user", "body": "Hi."}\n{"name": null, "role": "assistant", "body": "Oh."}\n'

    run_json("import_transcript", write(tmp_path, "t.jsonl", log), columns=["text=body,speaker=name"])

    assert said("t") == [("Ann", "Hi."), ("assistant", "Oh.")]


def test_keys_of_ours_that_mean_something_else_in_a_log_keep_no_file_out(tmp_path: Path) -> None:
    log = '{"id": 17, "who": "Pat", "body": "Hi.", "channel": 4, "tags": {"n": 3}, "synthetic": "no", "role": 2}\n'

    run_json("import_transcript", write(tmp_path, "t.jsonl", log), columns=["text=body,speaker=who"])

    (message,) = Message.objects.all()
    assert (message.external_id, message.channel.slug, message.outsider, message.tags) == ("17", "4", "Pat", {})


@pytest.mark.parametrize(
    ("log", "columns", "reason"),
    [
        ('{"user": "ann", "content": "Hi."}', "", "its keys: user, content.*'speaker' and 'text'.*--columns"),
        (
            '{"user": "ann", "content": "Hi."}',
            "text=body",
            "no key 'body'; the objects of the file have: user, content",
        ),
        ('{"user": "ann", "content": "Hi."}', "speaker=user", "no key for 'text' among user, content"),
        (
            '{"who": "ann", "content": "Hi."}',
            "text=content",
            "line 1: a message needs a speaker.*--columns speaker=KEY",
        ),
        (
            '{"who": "ann", "content": {}}',
            "text=content,speaker=who",
            "line 1: 'content' must be a text, got an object",
        ),
        ('{"who": "ann", "text": "Hi."}', "mood=who,speaker=who", "unknown field 'mood'; allowed: speaker, text"),
        (
            '{"messages": [{"role": "user", "content": "Hi."}]}',
            "tags.build=ver",
            "CSV and JSON Lines; .* read as openai",
        ),
        ('{"plumbline": "transcript", "version": 1, "channel": "quay"}', "text=body", "no key 'body'|keys are fixed"),
    ],
)
def test_json_that_does_not_fit_the_columns_names_the_key_and_the_keys_that_are_there(
    tmp_path: Path, log: str, columns: str, reason: str
) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", write(tmp_path, "t.jsonl", log + "\n"), columns=[columns])
    assert not Message.objects.exists()


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
        ("2024-01-02T12:03:04.250Z Ann: x", (2024, 1, 2, 12, 3, 4, 250000)),
        ("[2024-01-02 12:03:04+02:00] Ann: x", (2024, 1, 2, 10, 3, 4)),
        ("(2024/1/2 12:03) <Ann> x", (2024, 1, 2, 12, 3)),
        ("2024-01-02 12:03:04 - Ann: x", (2024, 1, 2, 12, 3, 4)),
        ("02/01/2024, 12:03 - Ann: x", (2024, 1, 2, 12, 3)),
        ("1/2/24, 12:03 AM - Ann: x", (2024, 1, 2, 0, 3)),
        ("1/2/24, 9:03\u202fPM - Ann: x", (2024, 1, 2, 21, 3)),
        ("\u200e[31.12.23, 22:15:03] Ann: x", (2023, 12, 31, 22, 15, 3)),
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


# -- Chats as model APIs and data sets have them
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
    assert report["format"] == "openai"
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
        ("a.json", '[{"messages": []},\n {"messages": [{"content": "x"}]}]', "line 2: message 1 has no 'role'"),
        (
            "a.json",
            '[{"messages": []},\n {"messages": []}',
            "line 2: expected ',' or '\\]' in the JSON array, found the end",
        ),
        ("a.json", '[{"messages": []}]\nand more', "line 2: text after the end"),
        ("a.json", '{\n "messages": [\n  {"role": "user" "content": "x"}\n ]\n}', "line 3: not valid JSON"),
        ("a.jsonl", '{"chosen": "first Human: x"}\n', "line 1: the dialogue must begin with 'Human:' or 'Assistant:'"),
        ("a.json", '[{"conversations": [{"value": "x"}]}]', "line 1: turn 1 has no 'from'"),
        ("a.json", "[" * 200_000, "JSON nested too deep"),
        ("a.json", '[{"messages": []},\n', "line 2: the JSON array ends too early"),
        ("a.jsonl", '{"chosen": "\\n\\nHuman: x"}\n{"chosen": "no dialogue"}\n', "line 2: no dialogue"),
    ],
)
def test_malformed_files_name_line_and_reason(tmp_path: Path, name: str, text: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", write(tmp_path, name, text))
    assert not Message.objects.exists()


# -- Our own JSON Lines, with a header line and without
HEADER = '{"plumbline": "transcript", "version": 1, "channel": "sales", "name": "Sales floor", "kind": "private"'


def test_messages_get_their_author_channel_and_order(tmp_path: Path) -> None:
    mara = make_agent("mara", "Mara Lind")
    path = write(
        tmp_path,
        "talk.jsonl",
        '{"channel": "lobby", "agent": "Mara Lind", "role": "agent", "text": "Morning."}\n'
        '{"channel": "lobby", "agent": "USER", "role": "stimulus", "text": "Who is there?"}\n'
        '{"channel": "lobby", "agent": "MARA", "role": "agent", "text": "Only me."}\n',
    )
    report = run_json("import_transcript", path)
    assert said("lobby") == [("Mara Lind", "Morning."), ("USER", "Who is there?"), ("Mara Lind", "Only me.")]
    assert list(Message.objects.order_by("position").values_list("position", "agent")) == [
        (1, mara.pk),
        (2, None),
        (3, mara.pk),
    ]
    assert Channel.objects.get().next_position == 4
    assert report["format"] == "jsonl"
    assert (report["read"], report["imported"], report["duplicates"], report["skipped"]) == (3, 3, 0, 0)
    assert report["speakers"]["USER"] == {"agent": None, "messages": 1}
    assert report["speakers"]["Mara Lind"] == {"agent": "mara", "messages": 1}


def test_a_header_makes_the_channel_as_it_was(tmp_path: Path) -> None:
    make_agent("mara")
    make_agent("quiet")
    path = write(
        tmp_path,
        "talk.jsonl",
        HEADER + ', "topic": "Deals", "tags": {"team": "north"}, "members": ["quiet", "mara"]}\n'
        '{"id": "m1", "agent": "mara", "text": "Sold."}\n',
    )
    run_json("import_transcript", path)
    channel = Channel.objects.get()
    assert (channel.slug, channel.name, channel.kind, channel.topic) == ("sales", "Sales floor", "private", "Deals")
    assert channel.tags == {"team": "north"}
    assert sorted(channel.memberships.values_list("agent__slug", flat=True)) == ["mara", "quiet"]


def test_importing_again_adds_only_what_is_new(tmp_path: Path) -> None:
    one, two = '{"id": "a", "speaker": "Ann", "text": "One."}\n', '{"speaker": "Ann", "text": "Yes."}\n'
    for text, counts in ((one + two, (2, 0)), (one + two, (0, 2)), (one + two * 3, (2, 2))):
        report = run_json("import_transcript", write(tmp_path, "talk.jsonl", text))
        assert (report["imported"], report["duplicates"]) == counts
    assert said() == [("Ann", "One."), *[("Ann", "Yes.")] * 3]


def test_replies_find_their_parent_also_when_it_comes_later(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "talk.jsonl",
        '{"id": "1", "speaker": "A", "text": "first", "reply_to": "2"}\n{"id": "2", "speaker": "B", "text": "second"}\n'
        '{"id": "3", "speaker": "A", "text": "third", "reply_to": "2"}\n{"id": "4", "speaker": "A", "text": "x", "reply_to": "gone"}\n',
    )
    report = run_json("import_transcript", path)
    parents = dict(Message.objects.values_list("external_id", "parent__external_id"))
    assert parents == {"1": "2", "2": None, "3": "2", "4": None}
    assert report["replies_without_parent"] == 1


def test_replies_that_a_killed_import_left_are_linked_by_the_next(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "talk.jsonl",
        '{"id": "1", "speaker": "A", "text": "x", "reply_to": "2"}\n{"id": "2", "speaker": "B", "text": "y"}\n',
    )
    run_json("import_transcript", path)
    Message.objects.update(parent=None)
    report = run_json("import_transcript", path)
    assert (report["imported"], report["replies_without_parent"]) == (0, 0)
    assert Message.objects.get(external_id="1").parent == Message.objects.get(external_id="2")


def test_users_are_found_by_username_and_outsiders_stay_outsiders(tmp_path: Path, django_user_model: type) -> None:
    django_user_model.objects.create_user("ines")  # type: ignore[attr-defined]
    make_agent("mara")
    rows = (
        '{"user": "ines", "text": "Hi."}\n{"user": "nobody", "text": "Ho."}\n{"outsider": "Mara", "text": "Another."}\n'
    )
    run_json("import_transcript", write(tmp_path, "talk.jsonl", rows))
    authors = Message.objects.order_by("position").values("user__username", "outsider", "agent")
    assert [tuple(row.values()) for row in authors] == [
        ("ines", "", None),
        (None, "nobody", None),
        (None, "Mara (outsider)", None),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"agent": "mara", "text": "x"', "not valid JSON"),
        ('{"agent": "mara"}', "a message has no 'text'"),
        ('{"agent": "mara", "text": "x", "mood": "good"}', "unknown key 'mood'; allowed: agent, channel"),
        ('{"agent": "mara", "user": "u", "text": "x"}', "a message has one author, but 'agent' and 'user' are given"),
        ('{"agent": "marra", "text": "x"}', "no agent 'marra'; nearest: mara"),
        ('{"agent": "mara", "text": "x", "sent_at": "yesterday"}', "'sent_at': 'yesterday' is no time"),
        ('{"agent": "mara", "text": "x", "tags": {"build": 41}}', "'tags': the value of 'build' must be a text"),
        ('{"agent": "mara", "text": "x", "tags": {"a b": "41"}}', "'tags': tag key 'a b'; allowed: a letter"),
        ('{"agent": "mara", "text": "x", "payload": {"n": NaN}}', "NaN is not JSON"),
        ('{"agent": "mara", "text": "x", "payload": {"n": 1e999}}', "the number 1e999 is too large"),
        ('{"agent": "mara", "text": "x", "payload": ' + '{"a":' * 70 + "1" + "}" * 71, "nested deeper than 64 levels"),
        ('{"agent": "mara", "text": "x", "payload": ' + "[" * 100_000, "JSON nested too deep"),
        ('{"id": "ok", "agent": "mara", "text": "other words"}', "the id 'ok' was used before for another message"),
        ('{"outsider": "' + "n" * 201 + '", "text": "x"}', "a speaker's name of more than 200 characters"),
        ('{"agent": "mara", "text": "x", "synthetic": "yes"}', "'synthetic' must be true or false, got 'yes'"),
        ("[1]", "a message must be a JSON object, got a list"),
        ('{"agent": "mara", "text": "x", "sent_at": "0001-01-01T00:00:00+14:00"}', "out of range"),
        ('{"id": "' + "n" * 201 + '", "agent": "mara", "text": "x"}', "an id of more than 200 characters"),
    ],
)
def test_one_bad_line_is_named_and_nothing_is_imported(tmp_path: Path, line: str, reason: str) -> None:
    make_agent("mara")
    path = write(tmp_path, "talk.jsonl", HEADER + '}\n{"id": "ok", "agent": "mara", "text": "fine"}\n\n' + line + "\n")
    with pytest.raises(CommandError) as error:
        call_command("import_transcript", path)
    assert f"{path}, line 4: " in str(error.value)
    assert reason in str(error.value)
    assert "Nothing was imported." in str(error.value)
    assert not Message.objects.exists()
    assert not Channel.objects.exists()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ('"version": 2', "'version' must be 1, got 2"),
        (
            '"version": 1, "kind": "secret"',
            "'kind' must be one of public, private, dm, debate, experiment, got 'secret'",
        ),
    ],
)
def test_an_unknown_version_or_channel_kind_is_refused(tmp_path: Path, header: str, reason: str) -> None:
    with pytest.raises(CommandError, match=reason):
        call_command("import_transcript", write(tmp_path, "t.jsonl", f'{{"plumbline": "transcript", {header}}}\n'))


def test_a_copy_of_a_channel_does_not_steal_idempotency_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "talk.jsonl", '{"id": "1", "speaker": "A", "text": "x", "idempotency_key": "k1"}\n')
    run_json("import_transcript", path, channel="one")
    run_json("import_transcript", path, channel="two")
    assert dict(Message.objects.values_list("channel__slug", "idempotency_key")) == {"one": "k1", "two": None}

"""One form for every kind of file; of an uploaded file only what is not certain is asked, one question at a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents.models import Agent, Import, Message
from agents.transcripts.imports.jobs import PREVIEWED
from agents.transcripts.imports.questions import open_question, questions_of
from tests.agents.transcripts.imports.uploading import (
    ADD,
    PERSONA,
    file,
    held,
    lines,
    somebody,
    support_log,
    upload,
    work,
)
from tests.console import page_of, plain, read, signed_in
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

TALK = lines(("Ada", "No."), ("Pat", "Is the ferry late?"))
OPENAI = json.dumps(
    {
        "messages": [
            {"role": "system", "content": "You are Nora, a calm voice."},
            {"role": "user", "content": "Where is my parcel?"},
            {"role": "assistant", "content": "On its way."},
        ]
    }
)

BOTS = [("Pat", "user"), ("Ben", "agent"), ("Cleopatra", "agent"), ("Dora", "agent")]


@pytest.fixture
def olga() -> User:
    return somebody()


@pytest.fixture
def console(olga: User) -> Client:
    return signed_in(olga)


def answer(client: Client, job: Import, question: str, *answers: str) -> str:
    """Answer a question of an import's page; returns the page that follows."""
    given = {"question": question, "answer": list(answers)}
    html = client.post(page_of(job).replace("change", "answer"), given, follow=True).content.decode()
    job.refresh_from_db()
    return html


def press_import(client: Client, job: Import) -> None:
    client.post(page_of(job).replace("change", "answer"), {"import": "1"})
    assert work()
    job.refresh_from_db()


def asked(job: Import) -> str:
    """The id of the question that is asked now; empty when there is none."""
    question = open_question(questions_of(job))
    return question.id if question else ""


def guess(job: Import, question_id: str) -> list[str]:
    return next(question.chosen for question in questions_of(job) if question.id == question_id)


def test_an_ordinary_file_is_imported_without_a_question(console: Client) -> None:
    make_agent()
    job = upload(console, file(TALK))

    assert asked(job) == ""
    press_import(console, job)

    assert list(Message.objects.order_by("position").values_list("agent__slug", "outsider")) == [
        ("ada", ""),
        (None, "Pat"),
    ]


def test_a_log_is_asked_about_step_by_step_with_the_best_guess_chosen(console: Client) -> None:
    make_agent("nora-support", display_name="Nora (support)")
    job = upload(console, file(support_log(), "chat.csv"))
    html = read(console, page_of(job))
    assert "52 messages, 26 conversations, 27 speakers in chat.csv" in plain(html)
    assert "26 more speakers" in plain(html)
    assert "It left this morning." in html, "examples are beside the options"
    assert 'name="import"' not in html, "nothing can be imported before what is uncertain is answered"

    steps = []
    while question := open_question(questions_of(job)):
        steps.append((question.id, question.chosen))
        answer(console, job, question.id, *question.chosen)

    assert steps == [
        ("bot", ["nora"]),
        ("agent.nora", ["nora-support"]),
        ("channel", ["ticket"]),
        ("tags", ["build"]),
        ("time_zone", ["UTC"]),
    ]
    press_import(console, job)
    assert Message.objects.filter(agent__slug="nora-support").count() == 26
    assert Message.objects.filter(channel__slug="T3", tags__build="41").count() == 2


def test_answers_can_be_changed_and_others_stay(console: Client) -> None:
    make_agent("nora")
    job = upload(console, file(support_log(4), "chat.csv"))
    answer(console, job, "channel", "ticket")
    answer(console, job, "tags")
    answer(console, job, "time_zone", "Europe/Berlin")

    html = read(console, f"{page_of(job)}?question=channel")
    assert 'name="question" value="channel"' in html
    answer(console, job, "channel", "")

    assert asked(job) == ""
    assert [name for name, _ in job.contents["channels"]] == ["chat"]
    assert job.choices["columns"] == {"channel": ""}
    press_import(console, job)
    first = Message.objects.earliest("position")
    assert (first.sent_at, first.tags) == (datetime(2026, 11, 1, 7, tzinfo=UTC), {})


def test_each_of_several_bots_is_asked_for(console: Client) -> None:
    make_agent("ben", display_name="Ben")
    make_agent("cleo")
    said = [{"speaker": who, "role": role, "text": "Hello."} for who, role in BOTS]
    job = upload(console, file("".join(json.dumps(message) + "\n" for message in said)))
    assert (guess(job, "bot"), asked(job)) == (["Ben", "Cleopatra", "Dora"], "agent.Cleopatra")

    answer(console, job, "agent.Cleopatra", "cleo")
    assert asked(job) == "agent.Dora"
    answer(console, job, "agent.Dora", "")

    assert asked(job) == ""
    assert {row["name"]: row["slug"] for row in job.contents["speakers"]} == {
        "Ben": "ben",
        "Cleopatra": "cleo",
        "Dora": "",
        "Pat": "",
    }


def test_a_build_inside_an_object_is_offered_as_a_tag(console: Client) -> None:
    make_agent()
    said = [{"who": who, "body": "Hm.", "meta": {"build": str(7 + n // 2)}} for n, who in enumerate(["Pat", "Ada"] * 2)]
    job = upload(console, file(json.dumps(said), "own.json"))

    assert guess(job, "tags") == ["meta.build"]
    answer(console, job, "tags", "meta.build")
    press_import(console, job)

    assert [message.tags["build"] for message in Message.objects.order_by("position")] == ["7", "7", "8", "8"]


@pytest.mark.parametrize(("speaker", "expected"), [("Portier-Bot", ["Portier-Bot"]), ("Portier", [])])
def test_a_bot_is_guessed_by_its_name_and_nobody_is_where_nothing_says_so(
    console: Client, speaker: str, expected: list[str]
) -> None:
    make_agent()
    job = upload(console, file(lines(("Gast", "A sandwich?"), (speaker, "No, sir."))))

    assert (asked(job), guess(job, "bot")) == ("bot", expected)


def test_another_bot_and_no_agent_at_all_can_be_answered(console: Client) -> None:
    make_agent("nora")
    make_agent("guide")
    job = upload(console, file(support_log(3), "chat.csv"))
    assert guess(job, "bot") == ["nora"]

    answer(console, job, "bot", "customer 1")
    assert asked(job) == "agent.customer 1"
    answer(console, job, "agent.customer 1", "guide")
    assert {row["name"]: row["slug"] for row in job.contents["speakers"]} == {
        "nora": "",
        "customer 0": "",
        "customer 1": "guide",
        "customer 2": "",
    }

    answer(console, job, "bot")
    assert asked(job) == "channel"
    assert {row["slug"] for row in job.contents["speakers"]} == {""}


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("Kunde;Was;Nr\nPat;Is anybody there?;1\nAda;No.;2\nPat;Really;3\n", "wer.csv"),
        (
            '{"Kunde": "Pat", "Was": "Is anybody there?"}\n{"Kunde": "Ada", "Was": "No."}\n{"Kunde": "Pat", "Was": "Oh"}',
            "wer.jsonl",
        ),
    ],
)
def test_unknown_columns_and_keys_are_asked_for(console: Client, content: str, name: str) -> None:
    job = upload(console, file(content, name))
    assert (asked(job), guess(job, "column.text")) == ("column.text", ["Was"])
    answer(console, job, "column.text", "Was")
    assert (asked(job), guess(job, "column.speaker")) == ("column.speaker", ["Kunde"])
    answer(console, job, "column.speaker", "Kunde")

    assert (job.status, job.contents["messages"]) == ("waiting", 3)
    assert asked(job) == "bot"


def test_a_column_of_dates_with_any_name_is_offered_as_the_times_of_messages(console: Client) -> None:
    make_agent()
    content = "speaker,text,moment\nPat,Is anybody there?,2026-11-24 09:12\nAda,No.,2026-11-24 09:14\n"
    job = upload(console, file(content, "talk.csv"))
    assert (asked(job), guess(job, "column.sent_at")) == ("column.sent_at", ["moment"])

    answer(console, job, "column.sent_at", "moment")
    assert (asked(job), job.contents["undated"]) == ("time_zone", 0)
    html = answer(console, job, "column.sent_at", "")

    assert (asked(job), job.contents["undated"]) == ("", 2)
    assert "No column holds the time" not in html


def test_a_conversation_beyond_the_columns_that_are_shown_and_a_key_with_a_blank_are_offered(console: Client) -> None:
    make_agent()
    many = ",".join(f"c{number}" for number in range(70))
    rows = [f"{who},Line {number},{many},T{number // 2}" for number, who in enumerate(("Pat", "Ada") * 2)]
    table = "\n".join([f"speaker,text,{many},ticket", *rows])
    keys = "\n".join(json.dumps({"author": who, "body": "Oh", "conversation ": "A"}) for who in ("Pat", "Ada", "Pat"))
    for content, name in ((table, "wide.csv"), (keys, "keys.jsonl")):
        job = upload(console, file(content, name))
        assert read(console, page_of(job)), name


def test_versions_and_addresses_are_not_offered_as_times(console: Client) -> None:
    make_agent()
    content = "speaker,text,app_version,ip\nPat,Is anybody there?,2.14.0,10.1.2.3\nAda,No.,2.14.0,10.1.2.4\n"
    job = upload(console, file(content, "talk.csv"))
    assert "column.sent_at" not in {question.id for question in questions_of(job)}


def test_the_order_of_day_and_month_is_asked_where_the_dates_leave_it_open(console: Client) -> None:
    make_agent()
    log = "\n".join(f"[0{day}/0{day + 1}/2026, 10:00] {'Ada' if day % 2 else 'Pat'}: Line {day}" for day in range(1, 8))
    job = upload(console, file(log, "log.txt"))
    assert (asked(job), guess(job, "dates")) == ("dates", ["day-first"])

    answer(console, job, "dates", "month-first")
    answer(console, job, "time_zone", "UTC")

    assert job.contents["first_sent_at"].startswith("2026-01-02")


@pytest.mark.parametrize(
    ("question", "answers"),
    [("bot", ["nobody"]), ("channel", ["ticket", "build"]), ("time_zone", ["Mars/Base"]), ("shoe_size", ["43"])],
)
def test_an_answer_that_there_is_not_changes_nothing(console: Client, question: str, answers: list[str]) -> None:
    job = upload(console, file(support_log(3), "chat.csv"))
    before = (job.choices, job.answers)

    assert "Nothing was done" in answer(console, job, question, *answers)

    assert (job.choices, job.answers) == before


def test_names_of_any_characters_can_be_chosen(console: Client) -> None:
    make_agent("guide")
    name = 'Zoë <b>&"+% a/b?'
    job = upload(console, file(lines((name, "Fog."), ("Pat", "Late?"))))
    html = read(console, page_of(job))
    assert "<b>" not in html.split('class="pl-config"')[1]

    answer(console, job, "bot", "Zo%C3%AB%20%3Cb%3E%26%22%2B%25%20a/b%3F")

    assert guess(job, "bot") == [name]
    assert asked(job) == f"agent.{name}"


def test_files_of_every_kind_are_taken_together(console: Client) -> None:
    persona = "slug: nora\ndisplay_name: Nora\nsystem_prompt: You are Nora.\n"
    card = '{"spec": "chara_card_v2", "data": {"name": "Wraith", "description": "Speaks of weather."}}'
    make_agent("ben")
    files = [
        file(OPENAI, "openai.json"),
        file(persona, "nora.yaml"),
        file(support_log(3), "chat.csv"),
        file(card, "card.json"),
        file("# The Ghost\nYou are a ghost.", "The Ghost.md"),
        file(TALK),
    ]
    page = console.post(ADD, {"files": files}).content.decode()
    assert list(Import.objects.order_by("pk").values_list("name", flat=True)) == [
        "openai.json",
        "chat.csv",
        "talk.jsonl",
    ]
    assert not Agent.objects.filter(slug="nora").exists()

    following = console.post(ADD, {"personas": "1", **held(page)})

    assert set(Agent.objects.values_list("slug", flat=True)) == {"ben", "nora", "wraith", "the-ghost"}
    first, log, talk = Import.objects.order_by("pk")
    assert following["Location"] == page_of(first)
    assert guess(first, "agent.assistant") == ["nora"], "the system prompt of the file names it"
    assert guess(log, "bot") == ["nora"]
    assert asked(log) == "channel", "the new agent is recognised"
    html = read(console, page_of(first))
    assert page_of(log) in html
    assert page_of(talk) in html


def test_what_is_recognised_wrongly_can_be_said_to_be_otherwise(console: Client) -> None:
    script = "Ada: Good morning.\nPat: Is the ferry late?\nAda: Twenty minutes.\nPat: Oh.\n"
    upload(console, file(script, "talk.txt"))

    page = console.post(ADD, {"files": [file(script, "talk.txt")], "read_as": "persona"}).content.decode()

    assert "Is the ferry late?" in page
    assert Import.objects.count() == 1
    assert held(page)["name"] == ["talk.txt"]


def test_a_bad_persona_stores_nothing_of_what_came_with_it(console: Client) -> None:
    html = console.post(ADD, {"files": [file(TALK), file("slug: [", "guide.yaml")]}).content.decode()

    assert "Nothing was stored: guide.yaml" in html
    assert not Import.objects.exists()


def test_a_persona_that_is_missing_can_be_imported_on_the_way(console: Client) -> None:
    job = upload(console, file(lines(("Harbour Guide", "Fog."), ("Pat", "Late?"))))
    answer(console, job, "bot", "Harbour%20Guide")
    assert f"{ADD}?import={job.pk}" in read(console, page_of(job))

    page = console.post(ADD, {"files": [file(PERSONA, "guide.yaml")], "import": job.pk}).content.decode()
    following = console.post(ADD, {"personas": "1", **held(page)})

    job.refresh_from_db()
    assert following["Location"] == page_of(job)
    assert asked(job) == ""
    assert [row["slug"] for row in job.contents["speakers"]] == ["guide", ""]


def test_imports_of_others_are_not_gone_on_with(console: Client) -> None:
    other = somebody(username="other")
    theirs = upload(signed_in(other), file(TALK))

    page = console.post(ADD, {"files": [file(PERSONA, "guide.yaml")], "import": theirs.pk}).content.decode()

    assert held(page)["import"] == []


def test_skipped_entries_are_named_with_their_lines_afterwards(console: Client) -> None:
    make_agent()
    job = upload(console, file("speaker,text\nAda,No.\nPat,\nAda,Yes.\nPat,\n", "t.csv"))
    press_import(console, job)

    html = plain(read(console, page_of(job)))

    assert "2 messages in 1 conversation stored" in html
    assert "2 skipped: empty message (lines 3, 5)" in html


def test_an_agent_that_is_found_only_behind_the_preview_is_asked_for(console: Client) -> None:
    make_agent()
    talk = (
        '{"plumbline": "transcript", "version": 1, "channel": "q"}\n' + '{"agent": "ada", "text": "Yes."}\n' * PREVIEWED
    )
    job = upload(console, file(talk + '{"agent": "guide", "text": "Fog."}\n'))
    answer(console, job, "bot", "ada")
    press_import(console, job)
    assert (job.status, asked(job)) == ("failed", "agent.guide")

    answer(console, job, "agent.guide", "")
    press_import(console, job)

    assert job.status == "completed"


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("Grüße".encode("latin-1"), "chat.csv"),
        (b"\xff\xfe" + "speaker,text\n".encode("utf-16-le"), "prompt.md"),
        (b"\x89PNG\r\n\x1a\n", "picture.jsonl"),
        (b"[" * 5_000, "deep.json"),
        (b'{"display_name": "X"', "half.json"),
        (b"speaker,text\nAda,a,b\n", "<img src=x onerror=alert(1)>.csv"),
    ],
)
def test_a_file_that_cannot_be_read_says_why_and_offers_no_import(console: Client, content: bytes, name: str) -> None:
    job = upload(console, file(content, name))

    html = read(console, page_of(job))

    assert (job.status, bool(job.error)) == ("failed", True)
    assert "<img" not in html.split('class="pl-config"')[1]
    assert 'name="import"' not in html

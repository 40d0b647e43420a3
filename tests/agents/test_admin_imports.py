"""The pages of an import: who may see and do what, what they show, and that texts of strangers stay texts."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from agents.kit.models import owner_name
from agents.models import Agent, Import, Message
from agents.transcripts.imports.jobs import LEASE, MOST_UNFINISHED
from agents.transcripts.imports.questions import open_question, questions_of
from tests.agents.test_admin_import_questions import answer
from tests.agents.transcripts.imports.uploading import (
    ADD,
    file,
    filled_in,
    lines,
    somebody,
    submit,
    upload,
    uploaded,
    work,
)
from tests.console import HOSTILE, list_of, page_of, plain, queries, read, signed_in
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

TALK = lines(("Ada", "No."), ("Pat", "Is the ferry late?"))


@pytest.fixture
def olga() -> User:
    return somebody()


@pytest.fixture
def console(olga: User) -> Client:
    return signed_in(olga)


def choose(client: Client, job: Import, **given: str) -> str:
    """Press a button of the form with the choices as they stand, but for those given."""
    url = page_of(job).replace("change", "choose")
    answer = client.post(url, {**filled_in(read(client, page_of(job)), url), **given}, follow=True)
    assert answer.status_code == 200
    job.refresh_from_db()
    return answer.content.decode()


def import_it(client: Client, job: Import) -> str:
    """Press Import; returns the page that follows."""
    answer = client.post(page_of(job).replace("change", "answer"), {"import": "1"}, follow=True)
    job.refresh_from_db()
    return answer.content.decode()


def test_a_transcript_goes_all_the_way(console: Client) -> None:
    make_agent()
    job = upload(console, file(TALK, "harbour talk.jsonl"))
    assert [name for name, _ in job.contents["channels"]] == ["harbour-talk"]
    html = plain(read(console, page_of(job)))
    assert "2 messages, 1 conversation, 2 speakers in talk.jsonl".replace("talk", "harbour talk") in html
    assert "Read as JSON Lines" in html
    assert "Is the ferry late?" in html

    waits = plain(import_it(console, job))
    assert "none is running: manage.py work" in waits
    assert work()

    done = read(console, page_of(job))
    assert "2 messages in 1 conversation stored" in plain(done)
    assert page_of(Agent.objects.get()) in done
    assert "/transcript/" in done
    assert "Import 2 messages" not in done


def test_choices_count_at_once_and_the_preview_shows_them(console: Client) -> None:
    job = upload(console, file(TALK))
    html = choose(console, job, channel="quay", tags="build=41")
    assert 'value="build=41"' in html
    assert (job.status, job.choices["channel"], job.contents["channels"]) == ("waiting", "quay", [["quay", 2]])

    choose(console, job, tags="build=42")
    import_it(console, job)
    assert work()
    assert Message.objects.filter(channel__slug="quay", tags__build="42").count() == 2


def test_speakers_are_chosen_and_an_import_is_undone_on_its_page(console: Client) -> None:
    make_agent("guide")
    job = upload(console, file(TALK))
    choose(console, job, **{"s0-who": "agent", "s0-agent": "guide", "s1-who": "outsider"})
    import_it(console, job)
    assert job.choices["speaker_map"] == {"Ada": "guide", "Pat": ""}
    assert work()
    assert list(Message.objects.order_by("position").values_list("agent__slug", "outsider")) == [
        ("guide", ""),
        (None, "Pat"),
    ]

    html = console.post(page_of(job).replace("change", "undo"), follow=True).content.decode()
    assert "being undone" in html
    assert work()
    assert "undone" in read(console, page_of(job))
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"s0-who": "agent", "s0-agent": "nobody"}, "there is no agent &#x27;nobody&#x27;; allowed:"),
        ({"s0-who": "somebody"}, "Select a valid choice"),
        ({"tags": "build"}, "write tags as key=value"),
        ({"time_zone": "Mars/Base"}, "unknown time zone &#x27;Mars/Base&#x27;"),
        ({"format": "word"}, "Select a valid choice"),
    ],
)
def test_a_choice_that_cannot_be_carried_out_is_named_and_nothing_changes(
    console: Client, given: dict[str, str], says: str
) -> None:
    make_agent("ben")
    job = upload(console, file(TALK))
    before = job.choices

    html = choose(console, job, **given)
    assert says in html
    assert "Nothing was changed" in html.partition("pl-config")[0], "at the top: the form is below the questions"
    assert (job.choices, job.status) == (before, "waiting")


def test_csv_columns_are_chosen_among_those_of_the_file(console: Client) -> None:
    job = upload(console, file("Wer,Was,Build\nPat,Hello,7.1\n", "t.csv"))
    assert '<option value="Wer">' in read(console, page_of(job))

    choose(console, job, column_speaker="Wer", column_text="Was", tag_columns="Build")

    assert job.status == "waiting"
    assert job.choices["columns"] == {"speaker": "Wer", "text": "Was", "tags.build": "Build"}


def test_a_table_without_a_column_of_times_is_not_asked_again_for_it(console: Client) -> None:
    make_agent()
    job = upload(console, file("speaker,text,moment\nPat,Hello,2026-11-24\nAda,No.,2026-11-25\n", "t.csv"))
    answer(console, job, "column.sent_at", "")
    assert open_question(questions_of(job)) is None

    choose(console, job, tags="build=41")

    assert open_question(questions_of(job)) is None
    assert (job.choices["columns"], job.contents["undated"]) == ({"sent_at": ""}, 2)


def test_texts_of_strangers_stay_texts(console: Client) -> None:
    text = lines((HOSTILE, HOSTILE), ("a\u202eb", "\u202egnp.exe"), channel=HOSTILE)
    job = upload(console, file(text, f"{HOSTILE}.jsonl"))
    for page in (page_of(job), list_of(Import)):
        assert HOSTILE not in read(console, page)
        assert "\u202e" not in read(console, page)
    import_it(console, job)
    assert work()
    assert HOSTILE not in read(console, page_of(job))
    broken = upload(console, file(f'{{"text": "{HOSTILE}"', f"{HOSTILE}.jsonl"))
    assert HOSTILE not in read(console, page_of(broken))


def test_uploads_of_none_empty_several_or_too_large_files_are_refused(console: Client, settings: Settings) -> None:
    settings.IMPORT_MOST_BYTES = 100_000
    for files, says in (
        ([], "choose at least one file"),
        ([file("", "empty.jsonl")], "choose at least one file"),
        ([file(TALK) for _ in range(MOST_UNFINISHED + 1)], "more than 10"),
        ([file(b"x" * 90_000, "a.md"), file(b"x" * 90_000, "b.md")], "larger than 97.7\xa0KB together"),
    ):
        assert says in console.post(ADD, {"files": files}).content.decode()
    assert not Import.objects.exists()


@pytest.mark.parametrize("text", ["hello world", "{broken", "5", "[1, 2]"])
def test_a_file_that_is_called_json_and_is_none_says_so_on_its_page(console: Client, text: str) -> None:
    job = upload(console, file(text, "notes.json"))

    assert "cannot be read" in plain(read(console, page_of(job)))


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        ("Wer,Was\nPat,Hello\n", "t.csv", "no column for 'text' among Wer, Was"),
        ("speaker,text,sooner\nPat,Hello,later\n", "t.csv", "not used: sooner"),
        ("What is this?\n", "t.jsonl", "not recognised as a transcript"),
        ('{"who": "Pat"}', "t.json", "no key for 'text' among who"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_options_of_the_command(
    console: Client, content: str, name: str, says: str
) -> None:
    job = upload(console, file(content, name))

    said = job.error or job.contents["warnings"][0]
    assert says in said
    assert says in plain(read(console, page_of(job)))
    assert "--" not in said


def test_a_form_without_its_token_does_nothing(olga: User) -> None:
    client = Client(enforce_csrf_checks=True, SERVER_PROTOCOL="HTTP/1.1", headers={"host": "localhost"})
    client.force_login(olga)
    job = uploaded(file(TALK), user=olga)

    for url in (
        ADD,
        *(page_of(job).replace("change", name) for name in ("choose", "cancel", "undo", "discard")),
    ):
        assert client.post(url, secure=True).status_code == 403
    assert job.status == "waiting"


def test_progress_says_when_something_happened_and_when_it_is_over(console: Client, olga: User) -> None:
    job = uploaded(file(TALK), user=olga)
    submit(job)
    assert job.acquire(owner=owner_name(), lease=LEASE)
    Import.objects.update(doing="Importing", done=1000, total=4000)
    url = page_of(job).replace("change", "progress")
    html = read(console, page_of(job))
    assert "1,000 of 4,000 messages" in plain(html)
    assert f'data-live="{url}"' in html

    first = console.get(url).json()
    again = console.get(url).json()
    Import.objects.update(status="completed")
    over = console.get(url).json()

    assert first == again
    assert (over["status"], over["done"]) == ("completed", 1000)
    assert "data-live" not in read(console, page_of(job))


def test_discarding_says_what_it_does_and_how_to_go_on(console: Client) -> None:
    job = upload(console, file(TALK))
    assert "upload it again" in read(console, page_of(job))
    html = console.post(page_of(job).replace("change", "discard"), follow=True).content.decode()

    assert "its file is deleted" in html
    assert "Upload it again" in html
    assert console.get(page_of(job)).status_code == 200


def test_what_is_not_there_is_not_there(console: Client) -> None:
    for url in (
        "/admin/agents/import/99/change/",
        "/admin/agents/import/99/progress/",
        "/admin/agents/import/x/change/",
    ):
        assert console.get(url).status_code in (403, 404)


def test_list_and_page_cost_the_same_however_much_there_is(console: Client, olga: User) -> None:
    job = uploaded(file(TALK), user=olga)
    few, few_page = queries(console, list_of(Import)), queries(console, page_of(job))
    for n in range(5):
        agents = [make_agent(f"a{n}-{m}") for m in range(4)]
        other = uploaded(file(lines(*((a.slug, f"{n}") for a in agents), (f"s{n}", "x")), f"{n}.jsonl"), user=olga)

    assert len(queries(console, list_of(Import))) == len(few)
    assert len(queries(console, page_of(other))) == len(few_page)

"""The pages of an import: who may see and do what, what they show, and that texts of strangers stay texts."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from agents.imports.jobs import LEASE, preview
from agents.imports.reading import Choices
from agents.models import Agent, Import, Message, owner_name
from tests.agents.imports.uploading import (
    ADD,
    PERSONA,
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


def test_a_transcript_goes_all_the_way(console: Client) -> None:
    make_agent()
    job = upload(console, file(TALK, "harbour talk.jsonl"))
    assert [name for name, _ in job.contents["channels"]] == ["harbour-talk"]
    html = plain(read(console, page_of(job)))
    assert "2 new messages by 2 speakers into 1 channel" in html
    assert "Read as JSON Lines" in html
    assert "Is the ferry late?" in html

    waits = plain(choose(console, job, **{"import": "1"}))
    assert "none is running: manage.py work" in waits
    assert work()

    done = read(console, page_of(job))
    assert "2 messages stored" in plain(done)
    assert page_of(Agent.objects.get()) in done
    assert "/transcript/" in done
    assert "Import 2 messages" not in done


def test_choices_count_at_once_and_the_preview_shows_them(console: Client) -> None:
    job = upload(console, file(TALK))
    html = choose(console, job, channel="quay", tags="build=41")
    assert 'value="build=41"' in html
    assert (job.status, job.choices["channel"], job.contents["channels"]) == ("waiting", "quay", [["quay", 2]])

    choose(console, job, tags="build=42", without_agents="on", **{"import": "1"})
    assert work()
    assert Message.objects.filter(channel__slug="quay", tags__build="42").count() == 2


def test_an_import_is_corrected_and_undone_on_its_page(console: Client) -> None:
    make_agent("guide")
    job = upload(console, file(TALK))
    choose(console, job, without_agents="on", **{"import": "1"})
    assert work()
    author = page_of(job).replace("change", "author")
    form = filled_in(read(console, page_of(job)), author)
    assert "there is no agent" in console.post(author, {**form, "agent": "x"}, follow=True).content.decode()
    assert (
        "1 messages are by guide now" in console.post(author, {**form, "agent": "guide"}, follow=True).content.decode()
    )
    assert Message.objects.filter(agent__slug="guide").count() == 1

    html = console.post(page_of(job).replace("change", "undo"), follow=True).content.decode()
    assert "being undone" in html
    assert work()
    assert "undone" in read(console, page_of(job))
    assert not Message.objects.exists()


def test_a_speaker_becomes_a_new_agent_with_the_persona_that_was_typed(console: Client) -> None:
    job = upload(console, file(TALK))
    choose(console, job, **{"s0-who": "new", "s0-slug": "ada", "s0-persona": "You are Ada,\r\na clerk."})
    assert "new agent ada" in plain(read(console, page_of(job)))
    choose(console, job, **{"import": "1"})
    assert job.status == "pending"
    assert work()

    assert Agent.objects.get().system_prompt == "You are Ada,\na clerk."
    assert Message.objects.get(agent__slug="ada").text == "No."


@pytest.mark.parametrize(
    ("agents", "speaker", "proposed"),
    [
        ([("guide", "Harbour Guide")], "Assistant", "guide"),
        ([("guide", "Harbour Guide")], "HarbourBot", "guide"),
        ([("guide", "Harbour Guide"), ("ben", "Ben Hal")], "Harbour guide (web)", "guide"),
        ([("guide", "Harbour Guide"), ("ben", "Ben Hal")], "Harbor Guide", "guide"),
        ([("guide", "Harbour Guide"), ("ben", "Ben Hal")], "harbour", "guide"),
        ([("guide", "Harbour Guide")], "Zed", "guide"),  # it always answers
        ([("guide", "Harbour Guide"), ("ben", "Ben Hal")], "Assistant", ""),  # one of the two
    ],
)
def test_a_conversation_without_an_agent_is_refused_with_a_proposal(
    console: Client, agents: list[tuple[str, str]], speaker: str, proposed: str
) -> None:
    for slug, name in agents:
        make_agent(slug, display_name=name)
    talk = lines(*[("Pat", "Is the ferry late?"), (speaker, "Twenty minutes.")] * 3)
    job = upload(console, file(talk))
    html = read(console, page_of(job))
    choose(console, job, **{"import": "1", "s0-who": "auto", "s1-who": "auto"})

    assert "No speaker is one of your agents" in plain(html)
    assert job.status == "waiting"
    form = filled_in(html, page_of(job).replace("change", "choose"))
    speakers = [row["name"] for row in job.contents["speakers"]]
    assert form[f"s{speakers.index(speaker)}-agent"] == proposed
    assert form[f"s{speakers.index('Pat')}-who"] == "auto"
    choose(console, job, **{"import": "1"})
    assert work() == bool(proposed), "without an agent to propose the form asks for one"
    if proposed:
        assert Message.objects.filter(agent__slug=proposed).count() == 3


def test_a_conversation_without_an_agent_is_imported_when_that_is_confirmed(console: Client) -> None:
    """The page then says how it can still be measured, and that works."""
    make_agent("guide", display_name="Harbour Guide")
    talk = lines(*[("Pat", "Is the ferry late?"), ("Assistant", "Twenty minutes.")] * 3)
    first = upload(console, file(talk))
    choose(console, first, **{"import": "1", "s0-who": "auto", "s1-who": "auto"})
    assert first.status == "waiting", "nothing was confirmed"
    choose(console, first, without_agents="on", **{"import": "1"})
    assert work()
    assert not Message.objects.filter(agent__isnull=False).exists()
    assert "Say below which speaker is an agent" in plain(read(console, page_of(first)))

    again = upload(console, file(talk))
    choose(console, again, channel="once more", **{"import": "1"})
    assert work()
    assert Message.objects.filter(agent__slug="guide").count() == 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"s0-who": "agent", "s0-agent": "nobody"}, "there is no agent &#x27;nobody&#x27;; allowed:"),
        ({"s0-who": "new", "s0-slug": "ben"}, "there is an agent &#x27;ben&#x27; already"),
        ({"s0-who": "new", "s0-slug": "a b"}, "is no id; allowed: letters, digits"),
        ({"s0-who": "new", "s0-slug": "_default"}, "cannot begin with an underscore"),
        ({"s0-who": "new", "s0-slug": "new", "s0-persona": " "}, "an agent needs a persona"),
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

    assert says in choose(console, job, **given)
    assert (job.choices, job.status) == (before, "waiting")


def test_a_bad_line_is_shown_with_its_neighbours(console: Client) -> None:
    job = upload(console, file(TALK + '{"speaker": "Pat", "text"\n'))
    html = read(console, page_of(job))

    assert "talk.jsonl, line 3: not valid JSON" in plain(html)
    assert '<li class="pl-excerpt-bad"><span class="pl-number">3</span>' in html
    assert 'name="import"' not in html


def test_csv_columns_are_chosen_among_those_of_the_file(console: Client) -> None:
    job = upload(console, file("Wer,Was\nPat,Hello\n", "t.csv"))
    assert '<option value="Wer">' in read(console, page_of(job))

    choose(console, job, column_speaker="Wer", column_text="Was")

    assert job.status == "waiting"
    assert job.choices["columns"] == {"speaker": "Wer", "text": "Was"}


def test_personas_are_shown_with_what_they_would_change(console: Client) -> None:
    job = upload(console, file(PERSONA, "guide.yaml"), file("# The Ghost\nYou are a ghost.", "ghost.md"))
    html = read(console, page_of(job))
    assert "2 personas in 2 files" in html
    assert "Import 2 personas" in html

    choose(console, job, **{"import": "1"})
    assert work()
    assert page_of(Agent.objects.get(slug="guide")) in read(console, page_of(job))


def test_texts_of_strangers_stay_texts(console: Client) -> None:
    text = lines((HOSTILE, HOSTILE), ("a\u202eb", "\u202egnp.exe"), channel=HOSTILE)
    job = upload(console, file(text, f"{HOSTILE}.jsonl"))
    for page in (page_of(job), list_of(Import)):
        assert HOSTILE not in read(console, page)
        assert "\u202e" not in read(console, page)
    choose(console, job, without_agents="on", **{"import": "1"})
    assert work()
    assert HOSTILE not in read(console, page_of(job))
    broken = upload(console, file(f'{{"text": "{HOSTILE}"', f"{HOSTILE}.jsonl"))
    assert HOSTILE not in read(console, page_of(broken))


def test_no_file_an_empty_one_and_files_that_are_too_large_are_refused(console: Client, settings: Settings) -> None:
    settings.IMPORT_MOST_BYTES = 100_000
    large = [file(b"x" * 90_000, "a.md"), file(b"x" * 90_000, "b.md")]
    for files, says in (
        ([], "Choose at least one file"),
        ([file("", "empty.jsonl")], "Choose at least one file"),
        (large, "larger than 97.7\xa0KB together and were not stored"),
    ):
        assert says in console.post(ADD, {"files": files}).content.decode()
    assert not Import.objects.exists()


def test_a_form_without_its_token_does_nothing(olga: User) -> None:
    client = Client(enforce_csrf_checks=True, SERVER_PROTOCOL="HTTP/1.1", headers={"host": "localhost"})
    client.force_login(olga)
    job = uploaded(file(TALK), user=olga)

    for url in (
        ADD,
        *(page_of(job).replace("change", name) for name in ("choose", "cancel", "undo", "author", "discard")),
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


def test_discarding_says_what_it_does_and_the_page_says_how_to_go_on(console: Client) -> None:
    job = upload(console, file(TALK))
    assert "upload them again" in read(console, page_of(job))
    html = console.post(page_of(job).replace("change", "discard"), follow=True).content.decode()

    assert "its files are deleted" in html
    assert "Upload them again" in html
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


def test_the_choice_of_personas_for_a_transcript_is_possible_and_back(console: Client) -> None:
    job = upload(console, file("You are a ghost.\n", "ghost.txt"))
    assert job.kind == "personas"
    preview(job, Choices(format="chat"))
    assert job.status == "failed"
    choose(console, job, format="personas")
    assert (job.kind, job.status) == ("personas", "waiting")

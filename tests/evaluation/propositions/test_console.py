"""The page of an agent's propositions: what is asked of it, suggestions beside the persona's words, and who may decide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from evaluation.drafting.admin.propositions import page_url, propositions_url
from evaluation.models import Proposition
from evaluation.propositions.files import load_file, propositions_for
from tests.console import list_of, plain, read
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import make_ada

pytestmark = pytest.mark.django_db

FILE = """\
# ours
propositions:
  - id: ada-talk   # keep
    active: false
    claim: "{{agent_name}} avoids sales talk"
    cues: {supports: ["to be fair"], contradicts: ["<script>alert('x')</script>"]}
    source: "sales talk  makes you wince"
  - id: ada-emoji
    active: false
    claim: "{{agent_name}} uses no emoji"
    rule: {no_emoji: true}
    source: "You never use emoji"
"""
URL = propositions_url("ada")


@pytest.fixture
def file(propositions: PropositionFolder) -> Path:
    make_ada()
    return propositions.write("adherence/ada.suggestions.yaml", FILE)


def press(client: Client, button: str, name: str) -> str:
    """Press a button of a proposition's card and return the page that follows."""
    html = read(client, URL)
    card = html.split(f'id="proposition-{name}"')[1].split("</section>")[0]
    mark = re.search(rf'name="{button}" value="([^"]*)"', card)
    assert mark is not None, f"{name} has no button {button}"
    return after(client, {button: mark[1]})


def after(client: Client, data: dict[str, str]) -> str:
    return str(client.post(URL, data, follow=True).content.decode())


def test_the_list_says_which_agents_have_suggestions(root: Client, file: Path, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "x", extra="active: false")
    propositions.claims("adherence/gone.yaml", "y", extra="active: false, rejected: true")
    html = read(root, list_of(Proposition))

    assert "Ada Lund 2 0 0" in plain(html)
    assert "every agent 1 0 0" in plain(html)
    assert "gone 0 0 1" in plain(html)
    assert URL in html
    assert f'href="{list_of(Proposition)}"' in read(root, reverse("admin:index")), "it stands in the sidebar"


def test_a_suggestion_is_shown_with_its_words_marked_in_the_persona(root: Client, file: Path) -> None:
    html = read(root, URL)
    text = plain(html)

    assert "<mark>Sales talk makes you wince</mark>" in html
    assert "You never use emoji or exclamation marks. Sales talk makes you wince . ## People" in text.replace("\n", " ")
    assert "an exact rule no_emoji: true" in text
    assert "for it: to be fair" in text
    assert f"manage.py try_proposition {file}:ada-talk --agent ada" in text
    assert "adherence/ada.suggestions.yaml:3" in text
    assert "<script>alert" not in html


def test_accepting_edits_one_word_of_the_file_and_leaves_a_log_entry(root: Client, file: Path) -> None:
    html = press(root, "accept", "ada-emoji")

    assert "ada-emoji is accepted: it is judged from the next evaluation on." in plain(html)
    head, _, tail = FILE.partition("ada-emoji\n    active: false")
    assert file.read_text() == f"{head}ada-emoji\n    active: true{tail}"
    assert [p.id for p in propositions_for(agent_slug="ada", dimension="adherence")] == ["ada-emoji"]
    entry = LogEntry.objects.get()
    assert (entry.user.get_username(), entry.object_id, entry.object_repr) == ("root", "ada", "ada-emoji")
    assert entry.get_change_message().startswith("accept: {{agent_name}} uses no emoji")
    assert entry.get_admin_url() == URL
    assert "accept: {{agent_name}} uses no emoji" in plain(read(root, URL.replace("/change/", "/history/")))
    press(root, "undo", "ada-emoji")
    assert file.read_text() == FILE
    assert "will not be suggested again" in plain(press(root, "reject", "ada-talk"))
    assert LogEntry.objects.count() == 3


def test_two_people_at_once_do_not_undo_each_other(root: Client, file: Path) -> None:
    html = read(root, URL)
    seen = re.findall(r'name="accept" value="([^"]*)"', html)
    file.write_text(FILE.replace("avoids sales talk", "hates sales talk"))
    refused = after(root, {"accept": seen[0]})
    accepted = after(root, {"accept": seen[1]})

    assert "It was changed or removed since the page was opened." in plain(refused)
    assert "ada-emoji is accepted" in plain(accepted)
    assert "hates sales talk" in file.read_text()
    assert [p.id for p in load_file(file).propositions] == ["ada-emoji"]
    again = after(root, {"accept": seen[1]})
    assert "It was changed or removed" in plain(again)
    assert LogEntry.objects.count() == 1, "what was refused is not logged as done"


def test_broken_files_are_shown_with_what_is_wrong(root: Client, file: Path) -> None:
    file.write_text("propositions: [")

    for url in (list_of(Proposition), URL):
        assert "Proposition files cannot be used" in plain(read(root, url))
    assert "Proposition files cannot be used" in plain(after(root, {"accept": "x"}))


def test_it_says_how_to_get_propositions_with_and_without_a_model(
    root: Client, propositions: PropositionFolder, settings: Settings
) -> None:
    make_ada()
    settings.JUDGE_MODEL = "offline:lexical-1"
    without = read(root, list_of(Proposition)) + read(root, URL)
    settings.JUDGE_MODEL = "claude-haiku-5-5"
    with_model = read(root, list_of(Proposition)), read(root, URL)

    assert page_url("new", "ada") in without
    assert "draft_propositions" not in without
    assert all(reverse("admin:evaluation_job_suggest") in page for page in with_model)
    assert root.get(propositions_url("nobody")).status_code == 404


# -- everything asked of an agent
def test_the_page_shows_all_that_is_asked_and_where_it_comes_from(
    root: Client, team: PropositionFolder, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    team.claims("adherence/ada.yaml", "dry")
    team.claims("adherence/ada.suggestions.yaml", "waits", extra="active: false")
    team.claims("adherence/ada.yml", "mood", extra="active: false, retired: true")
    text = plain(read(root, propositions_url("ada")))

    assert "claim dry of Ada Lund in use" in text
    assert "claim waits of Ada Lund suggested" in text
    assert "claim mood of Ada Lund retired" in text
    assert "1 from traits" in text
    assert "concise" in text
    assert "1 asked of every agent" in text
    assert "claim voice of {{agent_name}}" in text
    narrowed = plain(read(root, propositions_url("ada") + "?show=suggested"))
    assert "claim waits" in narrowed
    assert "claim dry" not in narrowed


def test_agents_without_propositions_are_found(root: Client, team: PropositionFolder) -> None:
    make_ada("bob", display_name="Bob")
    overview = list_of(Proposition)

    assert propositions_url("bob") in read(root, overview)
    assert propositions_url("bob") not in read(root, f"{overview}?q=lund")
    assert "No agent is named like that." in plain(read(root, f"{overview}?q=nobody"))
    assert page_url("new", "bob") in read(root, overview)


def test_an_unwritable_file_is_a_message_and_no_log_entry(root: Client, file: Path) -> None:
    (file.parent / f".{file.name}.new").mkdir()
    html = press(root, "accept", "ada-talk")

    assert "cannot be written: Is a directory" in plain(html)
    assert file.read_text() == FILE
    assert not LogEntry.objects.exists()

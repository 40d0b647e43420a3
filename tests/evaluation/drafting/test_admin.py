"""Proposition drafts in the console: seen beside the persona's words, accepted, rejected, taken back; by whom, and by whom not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from agents.persona import save_persona
from evaluation.admin.drafts import drafts_url
from evaluation.models import PropositionDraft
from evaluation.propositions.files import load_file, propositions_for
from tests.console import Browser, list_of, plain, queries, read, signed_in, staff, superuser, viewer
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
URL = drafts_url("ada")


@pytest.fixture
def file(propositions: PropositionFolder) -> Path:
    make_ada()
    return propositions.write("adherence/ada.drafts.yaml", FILE)


def press(client: Client, button: str, name: str) -> str:
    """Press a button of a draft's card and return the page that follows."""
    html = read(client, URL)
    card = html.split(f'id="draft-{name}"')[1].split("</section>")[0]
    mark = re.search(rf'name="{button}" value="([^"]*)"', card)
    assert mark is not None, f"{name} has no button {button}"
    return after(client, {button: mark[1]})


def after(client: Client, data: dict[str, str]) -> str:
    return str(client.post(URL, data, follow=True).content.decode())


def test_the_list_says_who_has_drafts_and_how_many_wait(
    root: Client, file: Path, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "x", extra="active: false")
    propositions.claims("adherence/gone.yaml", "y", extra="active: false, rejected: true")
    html = read(root, list_of(PropositionDraft))

    assert "Ada Lund 2 0 0" in plain(html)
    assert "every agent 1 0 0" in plain(html)
    assert "gone 0 0 1" in plain(html)
    assert URL in html
    assert f'href="{list_of(PropositionDraft)}"' in read(root, reverse("admin:index")), "it stands in the sidebar"


def test_a_draft_is_shown_with_its_words_marked_in_the_persona(root: Client, file: Path) -> None:
    html = read(root, URL)
    text = plain(html)

    assert "<mark>Sales talk makes you wince</mark>" in html
    assert "You never use emoji or exclamation marks. Sales talk makes you wince . ## People" in text.replace("\n", " ")
    assert "an exact rule no_emoji: true" in text
    assert "for it: to be fair" in text
    assert f"manage.py try_proposition {file}:ada-talk --agent ada" in text
    assert "adherence/ada.drafts.yaml:3" in text
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
    assert "ada-emoji" in read(root, reverse("admin:index")), "recent actions show it"


def test_rejecting_is_kept_and_can_be_taken_back_to_the_byte(root: Client, file: Path) -> None:
    assert "will not be proposed again" in plain(press(root, "reject", "ada-talk"))
    assert load_file(file).drafts[0].rejected
    press(root, "undo", "ada-talk")

    assert file.read_text() == FILE
    press(root, "accept", "ada-talk")
    press(root, "undo", "ada-talk")
    assert file.read_text() == FILE
    assert LogEntry.objects.count() == 4


def test_two_people_at_once_do_not_undo_each_other(root: Client, file: Path) -> None:
    html = read(root, URL)
    seen = re.findall(r'name="accept" value="([^"]*)"', html)
    file.write_text(FILE.replace("avoids sales talk", "hates sales talk"))
    refused = after(root, {"accept": seen[0]})
    accepted = after(root, {"accept": seen[1]})

    assert "This draft was changed, decided or taken out since the page was opened." in plain(refused)
    assert "ada-emoji is accepted" in plain(accepted)
    assert "hates sales talk" in file.read_text()
    assert [p.id for p in load_file(file).propositions] == ["ada-emoji"]
    again = after(root, {"accept": seen[1]})
    assert "was changed, decided or taken out" in plain(again)
    assert LogEntry.objects.count() == 1, "what was refused is not logged as done"


def test_a_file_that_cannot_be_written_is_a_message_and_no_log_entry(root: Client, file: Path) -> None:
    (file.parent / f".{file.name}.new").write_text("somebody is writing")
    html = press(root, "accept", "ada-talk")

    assert "Nothing was changed:" in plain(html)
    assert "is being written by somebody else just now" in plain(html)
    assert file.read_text() == FILE
    assert not LogEntry.objects.exists()


def test_who_may_only_view_sees_no_buttons_and_cannot_post(file: Path) -> None:
    looking = signed_in(viewer())
    html = read(looking, URL)
    mark = re.search(r'name="accept" value="([^"]*)"', read(signed_in(superuser()), URL))

    assert mark is not None
    assert "avoids sales talk" in html
    assert 'name="accept"' not in html
    assert looking.post(URL, {"accept": mark[1]}).status_code == 403
    assert file.read_text() == FILE


def test_who_may_not_view_sees_nothing(file: Path) -> None:
    stranger = signed_in(staff("evaluation.view_evaluationrun"))

    for url in (list_of(PropositionDraft), URL, URL.replace("/change/", "/history/")):
        assert stranger.get(url).status_code == 403
    assert stranger.post(URL, {"accept": "x"}).status_code == 403


def test_the_right_to_change_is_enough_to_decide(file: Path) -> None:
    editor = signed_in(staff("evaluation.view_propositiondraft", "evaluation.change_propositiondraft"))
    press(editor, "accept", "ada-talk")

    assert [p.id for p in load_file(file).propositions] == ["ada-talk"]


def test_a_form_from_elsewhere_is_refused(file: Path) -> None:
    client = Browser(enforce_csrf_checks=True)
    client.force_login(superuser())

    assert client.post(URL, {"accept": "x"}).status_code == 403
    assert file.read_text() == FILE


def test_nothing_can_be_added_or_deleted(root: Client, file: Path) -> None:
    assert root.get(list_of(PropositionDraft) + "add/").status_code == 403
    assert root.post(URL.replace("/change/", "/delete/"), {"post": "yes"}).status_code in (302, 403, 404)
    assert file.read_text() == FILE


@pytest.mark.parametrize("data", [{}, {"accept": "x", "reject": "x"}])
def test_a_button_that_is_none_is_not_found(root: Client, file: Path, data: dict[str, str]) -> None:
    assert root.post(URL, data).status_code == 404


def test_words_that_left_the_persona_are_said_to_be_gone(root: Client, file: Path) -> None:
    agent = make_ada("bob", display_name="Bob")
    save_persona(agent=agent, note="x")
    agent = type(agent).objects.get(slug="ada")
    agent.system_prompt = "You are somebody else."
    save_persona(agent=agent, note="edit")

    assert "not in the persona now" in plain(read(root, URL))


def test_broken_files_are_shown_with_what_is_wrong(root: Client, file: Path) -> None:
    file.write_text("propositions: [")

    for url in (list_of(PropositionDraft), URL):
        assert "Proposition files cannot be used" in plain(read(root, url))
    assert "Proposition files cannot be used" in plain(after(root, {"accept": "x"}))


def test_without_drafts_it_says_how_to_get_some(root: Client, propositions: PropositionFolder) -> None:
    assert "manage.py draft_propositions --agents all" in read(root, list_of(PropositionDraft))
    assert root.get(drafts_url("nobody")).status_code == 404


def test_the_number_of_queries_does_not_grow_with_the_drafts(root: Client, propositions: PropositionFolder) -> None:
    make_ada()
    propositions.claims("adherence/ada.drafts.yaml", "a", extra="active: false")
    few = [len(queries(root, url)) for url in (list_of(PropositionDraft), URL)]
    for n in range(10):
        make_ada(f"ada{n}", display_name=f"Ada {n}")
        propositions.claims(f"adherence/ada{n}.drafts.yaml", f"a{n}", extra="active: false")
    propositions.claims("adherence/ada.drafts.yaml", *(f"a-{n}" for n in range(20)), extra="active: false")

    assert [len(queries(root, url)) for url in (list_of(PropositionDraft), URL)] == few


def test_there_are_rights_but_no_rows() -> None:
    assert PropositionDraft.objects.count() == 0

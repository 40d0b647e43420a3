"""The page of an agent's propositions: everything that is asked of it, where it comes from, and the buttons."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client

from evaluation.admin.drafts import drafts_url
from evaluation.models import PropositionDraft
from evaluation.propositions.files import load_file
from tests.console import HOSTILE, list_of, plain, read
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.editing import asked, change, url_of
from tests.evaluation.drafting.proposing import make_ada

pytestmark = pytest.mark.django_db


def test_the_page_shows_all_that_is_asked_and_where_it_comes_from(
    root: Client, team: PropositionFolder, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    team.claims("adherence/ada.yaml", "dry")
    team.claims("adherence/ada.drafts.yaml", "waits", extra="active: false")
    team.claims("adherence/ada.yml", "mood", extra="active: false, retired: true")
    text = plain(read(root, drafts_url("ada")))

    assert "claim dry of Ada Lund in use" in text
    assert "claim waits of Ada Lund waiting" in text
    assert "claim mood of Ada Lund retired" in text
    assert "1 from traits" in text
    assert "concise" in text
    assert "1 asked of every agent" in text
    assert "claim voice of {{agent_name}}" in text
    narrowed = plain(read(root, drafts_url("ada") + "?show=waiting"))
    assert "claim waits" in narrowed
    assert "claim dry" not in narrowed


def test_retiring_and_asking_again(root: Client, team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "dry", "kind")
    for button, wanted in (("retire", ["kind"]), ("restore", ["dry", "kind"])):
        card = read(root, drafts_url("ada")).split('id="draft-dry"')[1].split("</section>")[0]
        mark = re.search(rf'name="{button}" value="([^"]*)"', card)
        assert mark is not None
        root.post(drafts_url("ada"), {button: mark[1]})
        assert list(asked()) == wanted
    assert LogEntry.objects.count() == 2


def test_hostile_texts_stay_texts(root: Client, team: PropositionFolder) -> None:
    change(root, url_of("new"), "_draft", claim=HOSTILE, id="bad", contains_any=HOSTILE, source=HOSTILE)
    pages = [drafts_url("ada"), url_of("edit", name="bad"), url_of("try", name="bad")]

    assert all("<script>alert" not in read(root, page) for page in pages)
    assert "alert" in read(root, pages[0])


def test_agents_without_propositions_are_found(root: Client, team: PropositionFolder) -> None:
    make_ada("bob", display_name="Bob")
    overview = list_of(PropositionDraft)

    assert drafts_url("bob") in read(root, overview)
    assert drafts_url("bob") not in read(root, f"{overview}?q=lund")
    assert "No agent is named like that." in plain(read(root, f"{overview}?q=nobody"))
    assert "manage.py draft_propositions --agents bob" in read(root, drafts_url("bob"))


def test_an_export_can_be_loaded(root: Client, team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "dry")
    url = f"{url_of('export')}?dimension=adherence&level=evaluation"
    answer = root.get(url)

    assert url.replace("&", "&amp;") in read(root, drafts_url("ada"))
    assert answer["Content-Disposition"] == 'attachment; filename="ada.yaml"'
    assert [p.id for p in load_file(team.write("adherence/x.yaml", answer.content.decode())).propositions] == ["dry"]
    assert root.get(url.replace("adherence", "nonsense")).status_code == 404
    assert root.get(url.replace("adherence", "fluency")).status_code == 404


def test_the_command_counts_retired_ones_apart_from_drafts(team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "dry")
    team.claims("adherence/ada.drafts.yaml", "old", extra="active: false, retired: true")
    out = StringIO()
    call_command("check_propositions", stdout=out)

    assert "adherence/ada: 1 retired" in out.getvalue()
    assert "besides, not judged" not in out.getvalue()
    out = StringIO()
    call_command("check_propositions", "--json", stdout=out)
    assert [file["retired"] for file in json.loads(out.getvalue())["files"]] == [["old"], []]

"""The sidebar, the tabs of lists and the breadcrumbs say where one is, in the same words."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import RequestFactory
from django.urls import reverse

from agents.kit.console.home import breadcrumbs, navigation, tabs
from agents.models import Channel
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationSchedule, EvaluationScore
from tests.console import list_of, page_of, plain, read, signed_in, staff, superuser, viewer
from tests.factories import make_agent
from tests.listed_rows import MAKERS, people
from tests.machinery import ROOT

pytestmark = pytest.mark.django_db


def asking(user: User, name: str) -> HttpRequest:
    request = RequestFactory().get(reverse(f"admin:{name}"))
    request.user = user
    return request


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("index", ["Home"]),
        ("swarm_swarm_changelist", ["Agents", "Swarms"]),
        ("evaluation_drift_overview", ["Quality", "Overview"]),
        ("change_baseline_help", ["Quality", "Evaluations", "Baselines"]),
        ("kit_llmcall_changelist", ["More", "Logs", "Model calls"]),
        ("auth_user_changelist", ["More", "Access", "Users"]),
        ("settings", ["More", "Access", "Settings"]),
        ("review", ["To review"]),
        ("alerts_alert_changelist", ["To review", "All alerts"]),
        ("change_driftalert_changelist", ["To review", "All alerts", "Drift alerts"]),
        ("evaluation_evaluationscore_changelist", ["Quality", "Evaluations", "Scores"]),
        ("evaluation_job_suggest", ["Quality", "Propositions"]),
        ("help", ["More", "Help"]),
        ("glossary", ["More", "Help", "Glossary"]),
        ("password_change", []),
    ],
)
def test_breadcrumbs_and_the_one_marked_entry_name_the_same_place(name: str, way: list[str]) -> None:
    request = asking(superuser(), name)

    groups = navigation(request)
    marked = [(group["title"], item["title"]) for group in groups for item in group["items"] if item["active"]]

    assert [part["title"] for part in breadcrumbs(request, [{"title": "Welcome"}]) if part["title"] != "Welcome"] == way
    assert [title for place in marked for title in place if title] == way[: 2 if way[:1] in GROUPS else 1]


GROUPS = (["Quality"], ["Gate"], ["More"])


def test_tabs_are_the_viewable_tables_and_an_entry_leads_to_the_first() -> None:
    request = asking(staff("change.view_baseline", "change.view_change"), "change_baseline_changelist")

    entries = {item["title"]: item["link"] for group in navigation(request) for item in group["items"]}
    families = [[tab["title"] for tab in family["items"]] for family in tabs(request)]

    assert ["Baselines", "Changes"] in families
    assert entries["Evaluations"] == reverse("admin:change_baseline_changelist")
    assert "Agents" not in entries


def test_the_sidebar_has_no_more_entries_than_one_looks_over() -> None:
    entries = [item for group in navigation(asking(superuser(), "index")) for item in group["items"]]

    assert len(entries) <= 14


def test_every_list_is_a_tab_or_below_one() -> None:
    reachable = set()
    for group in navigation(asking(superuser(), "index")):
        for item in group["items"]:
            for tab in item["tabs"]:
                reachable |= {tab["link"], *(listed["link"] for listed in tab["below"])}

    assert [model for model in admin.site._registry if list_of(model) not in reachable] == []


def test_lists_without_a_tab_are_linked_from_what_their_rows_are_about() -> None:
    cast = people()
    MAKERS["evaluation.evaluationscore"](cast, 0, 1)
    MAKERS["change.driftalert"](cast, 0, 1)
    client = signed_in(superuser())

    assert list_of(EvaluationScore) in read(client, page_of(EvaluationScore.objects.get().evaluation_run))
    assert list_of(DriftAlert) in read(client, list_of(EvaluationSchedule))


def test_pages_that_are_tabs_show_the_tabs_of_their_entry() -> None:
    client = signed_in(superuser())

    for name, others in {
        "review": ("All alerts", "All requests"),
        "glossary": ("Help",),
        "settings": ("API tokens",),
    }.items():
        shown = plain(read(client, reverse(f"admin:{name}")).partition('id="tabs-items"')[2].partition("</nav>")[0])
        assert all(other in shown for other in others), name


def test_lists_show_their_tabs_and_rows_their_way_from_the_sidebar() -> None:
    agent = make_agent("pam")
    client = signed_in(viewer())

    assert "Imports" in plain(read(client, list_of(Channel)).partition('id="tabs-items"')[2].partition("</nav>")[0])
    heading = read(client, page_of(agent)).partition("<h1")[2].partition("</h1>")[0]
    assert [part for part in plain("<" + heading).split() if part != "chevron_right"] == ["Agents", *str(agent).split()]


def named_places() -> list[str]:
    """Every place of the console that a message, a help text or a document names, as ``Gate › Log``."""
    files = [*ROOT.glob("*/**/*.py"), *ROOT.glob("*/**/*.md"), *ROOT.glob("*/**/*.html"), ROOT / "README.md"]
    pattern = re.compile(r"[A-Z][a-z]+(?: [a-z]+)?(?: › [A-Z][A-Za-z]+(?: [a-z]+)?)+")
    places = []
    for file in files:
        if not {"tests", ".venv", "site"} & set(file.relative_to(ROOT).parts):
            text = file.read_text(encoding="utf-8")
            places += pattern.findall(text) if "›" in text else []
    return places


def test_the_places_of_the_console_that_texts_name_exist() -> None:
    request = asking(superuser(), "index")
    known = set()
    for group in navigation(request):
        for item in group["items"]:
            way = " › ".join(filter(None, (group["title"], item["title"])))
            known |= {way, *(f"{way} › {tab['title']}" for tab in item["tabs"])}

    places = named_places()

    assert len(places) > 10
    assert [place for place in places if not any(_names(place, way) for way in known)] == []


def _names(place: str, way: str) -> bool:
    """Whether a text names this way; the word that follows it in the text may stand in it, a further step may not."""
    return place.startswith(way) and not place.removeprefix(way).startswith(" ›")

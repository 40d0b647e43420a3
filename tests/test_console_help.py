"""Help in the console: a page per model, a glossary, the documents; every link leads somewhere and every command named exists."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.contrib import admin
from django.core.management import get_commands
from django.db.models import Model
from django.urls import reverse

from agents.kit.console.help import anchor_of, document, documents, fields_of, glossary, help_of, resolve_link
from agents.kit.models import ModelPrice
from agents.kit.registry import tables
from agents.models import Agent
from evaluation.models import EvaluationRun
from tests.console import list_of, plain, read, signed_in, staff, superuser, viewer

MODELS = list(admin.site._registry)
SECTIONS = ["Where rows come from", "What to do with them", "In the terminal and over the API", "Read on"]
LINK = re.compile(r"\]\(([^)]+)\)")
TEXTS = {model._meta.label: help_of(model) for model in MODELS} | {
    f"term {term.name}": term.text for term in glossary()
}


def named(model: type[Model]) -> str:
    return model._meta.label


def test_every_model_has_a_help_page_with_all_its_parts() -> None:
    for model in MODELS:
        text = help_of(model)

        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS, named(model)
        assert not re.search(r"\b(TODO|TBD)\b", text), named(model)
        assert len(text.partition("\n## ")[0]) > 60, f"{named(model)}: says too little of what it is"


def test_every_link_leads_somewhere_and_every_command_and_route_exists() -> None:
    routes = set(re.findall(r"^  (/api/.*):$", (settings.BASE_DIR / "docs/openapi.yaml").read_text(), re.MULTILINE))

    for where, text in TEXTS.items():
        assert [link for link in LINK.findall(text) if resolve_link(None, link) is None] == [], where
        assert [name for name in re.findall(r"manage\.py ([a-z_]+)", text) if name not in get_commands()] == [], where
        named_routes = set(re.findall(r"`(/api/[^`]*)`", text)) - {"/api/", "/api/docs/", "/api/schema/"}
        assert named_routes <= routes, where
        for link in LINK.findall(text):
            name, _, anchor = link.removeprefix("doc:").partition("#")
            if link.startswith("doc:") and anchor:
                headings = re.findall(r"^#+ (.+)$", document(name), re.MULTILINE)
                assert anchor in map(anchor_of, headings), f"{where}: {link}"


def test_terms_are_each_there_once_and_can_be_linked() -> None:
    anchors = [term.anchor for term in glossary()]

    assert len(anchors) == len(set(anchors))
    wanted = (
        "adherence consistency fluency convergence ideas baseline drift stale unscored heuristic judge proposition claim window "
        "threshold gate observe enforce forced-through timed-out nudge intervention repetition behaviour-request trait-strength "
        "procedure calibration kappa precision lease"
    )
    assert set(wanted.split()) <= set(anchors)


def test_fields_say_their_unit_and_what_is_allowed() -> None:
    price = {note.name: note for note in fields_of(ModelPrice)}
    run = {note.name: note for note in fields_of(EvaluationRun)}

    assert "USD per million" in price["input_usd"].text
    assert ("paused_budget", "paused (budget)") in run["status"].values
    assert "0 to 9" in run["overall_score"].text


@pytest.mark.slow
@pytest.mark.django_db
def test_help_pages_open_and_lists_and_forms_lead_there() -> None:
    client = signed_in(superuser())
    for model in MODELS:
        address = f"admin:{model._meta.app_label}_{model._meta.model_name}_"
        url = reverse(f"{address}help")

        page = plain(read(client, url))
        assert all(section in page for section in SECTIONS), named(model)
        assert f'href="{url}"' in read(client, list_of(model)), named(model)
        if admin.site.get_model_admin(model).has_add_permission(client.get(url).wsgi_request):
            assert f'href="{url}"' in read(client, reverse(f"{address}add")), named(model)


@pytest.mark.django_db
def test_the_glossary_anchors_each_term_and_links_lists_the_reader_may_see() -> None:
    html = read(signed_in(viewer()), reverse("admin:glossary"))
    nobody = read(signed_in(staff()), reverse("admin:glossary"))

    assert all(f'id="{term.anchor}"' in html for term in glossary())
    assert f'href="{reverse("admin:agents_agent_help")}"' in html
    assert f'href="{reverse("admin:agents_agent_help")}"' not in nobody
    assert "A persona that a model acts as" in plain(nobody)


@pytest.mark.django_db
def test_a_help_page_needs_view_permission_and_links_to_nothing_forbidden() -> None:
    url = reverse("admin:agents_agent_help")
    assert signed_in(staff()).get(url).status_code == 403

    html = read(signed_in(staff("agents.view_agent", username="reader")), url)
    assert f'href="{list_of(Agent)}"' in html
    assert "correction/agentevaluationconfig" not in html


@pytest.mark.slow
@pytest.mark.django_db
def test_each_document_can_be_read_and_its_links_lead_somewhere() -> None:
    root = signed_in(superuser())
    pages = {reverse("admin:document", args=[name]): "" for name in documents()}
    for path in pages:
        pages[path] = read(root, path)

    for path, html in pages.items():
        assert "<img" not in html, path
        for target, anchor in re.findall(r'href="(/admin/help/docs/[^"#]*)#([^"]+)"', html):
            assert f'id="{anchor}"' in pages[target], f"{path}: {target}#{anchor}"


@pytest.mark.django_db
def test_only_documents_are_read() -> None:
    root = signed_in(superuser())

    for name in ("..%2fREADME", "nothing", "settings"):
        assert root.get(f"/admin/help/docs/{name}/").status_code == 404
    assert root.post(reverse("admin:help")).status_code == 405


@pytest.mark.django_db
def test_the_overview_lists_every_help_page_the_reader_may_open() -> None:
    everything = read(signed_in(superuser()), reverse("admin:help"))
    little = plain(read(signed_in(staff("agents.view_agent")), reverse("admin:help")))

    for model in (table.model for table in tables().values() if table.menu):
        assert reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_help") in everything
    assert "An agent is a persona" in little
    assert "Correction log" not in little

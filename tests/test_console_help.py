"""Help in the console: a page per model, a glossary, the documents; every link leads somewhere and every command named exists."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.contrib import admin
from django.core.management import get_commands
from django.urls import reverse

from agents.kit.capability import capabilities
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


def test_every_model_of_the_console_has_help_with_all_its_parts(subtests: pytest.Subtests) -> None:
    for model in MODELS:
        with subtests.test(model=model._meta.label):
            text = help_of(model)

            assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
            assert not re.search(r"\b(TODO|TBD)\b", text)
            assert len(text.partition("\n## ")[0]) > 60, "says too little of what it is"


def test_every_link_leads_somewhere_and_every_command_and_route_exists() -> None:
    routes = set(re.findall(r"^  (/api/.*):$", (settings.BASE_DIR / "docs/openapi.yaml").read_text(), re.MULTILINE))

    for where, text in TEXTS.items():
        assert [link for link in LINK.findall(text) if resolve_link(None, link) is None] == [], where
        assert [name for name in re.findall(r"manage\.py ([a-z_]+)", text) if name not in get_commands()] == [], where
        named_routes = set(re.findall(r"`(/api/[^`]*)`", text)) - {"/api/", "/api/docs/", "/api/schema/"}
        assert named_routes <= routes, where


def test_links_to_a_part_of_a_document_find_its_heading() -> None:
    for where, text in TEXTS.items():
        for link in LINK.findall(text):
            name, _, anchor = link.removeprefix("doc:").partition("#")
            if link.startswith("doc:") and anchor:
                headings = re.findall(r"^#+ (.+)$", document(name), re.MULTILINE)
                assert anchor in map(anchor_of, headings), f"{where}: {link}"


def test_commands_named_take_the_options_named() -> None:
    for where, text in TEXTS.items():
        for command, rest in re.findall(r"`manage\.py ([a-z_]+)([^`]*)`", text):
            known = get_commands()[command]
            if known not in {app.name for app in capabilities()}:
                continue
            module = __import__(f"{known}.management.commands.{command}", fromlist=["Command"])
            parser = module.Command().create_parser("manage.py", command)
            allowed = {option for action in parser._actions for option in action.option_strings}
            for option in re.findall(r"--[a-z-]+", rest):
                assert option in allowed, f"{where}: manage.py {command} {option}"


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
def test_the_page_opens_and_the_list_and_the_form_lead_there(subtests: pytest.Subtests) -> None:
    client = signed_in(superuser())
    for model in MODELS:
        with subtests.test(model=model._meta.label):
            url = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_help")
            page = client.get(url)

            assert all(section in plain(page.content.decode()) for section in SECTIONS)
            assert f'href="{url}"' in read(client, list_of(model))
            if admin.site.get_model_admin(model).has_add_permission(page.wsgi_request):
                add = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_add")
                assert f'href="{url}"' in read(client, add)


@pytest.mark.django_db
def test_the_glossary_has_an_anchor_for_each_term_and_lists_are_linked_for_those_who_may_see_them() -> None:
    html = read(signed_in(viewer()), reverse("admin:glossary"))
    nobody = read(signed_in(staff()), reverse("admin:glossary"))

    assert all(f'id="{term.anchor}"' in html for term in glossary())
    assert f'href="{reverse("admin:agents_agent_help")}"' in html
    assert f'href="{reverse("admin:agents_agent_help")}"' not in nobody
    assert "A persona that a model acts as" in plain(nobody)


@pytest.mark.django_db
def test_a_help_page_needs_the_permission_to_view_the_model_and_links_to_nothing_forbidden() -> None:
    url = reverse("admin:agents_agent_help")
    assert signed_in(staff()).get(url).status_code == 403

    html = read(signed_in(staff("agents.view_agent", username="reader")), url)
    assert f'href="{list_of(Agent)}"' in html
    assert "correction/agentevaluationconfig" not in html


@pytest.mark.django_db
def test_each_document_can_be_read_and_its_links_lead_somewhere(subtests: pytest.Subtests) -> None:
    root = signed_in(superuser())
    pages = {reverse("admin:document", args=[name]): "" for name in documents()}
    for path in pages:
        pages[path] = read(root, path)
    for path, html in pages.items():
        with subtests.test(path=path):
            for target, anchor in re.findall(r'href="(/admin/help/docs/[^"#]*)#([^"]+)"', html):
                assert f'id="{anchor}"' in pages[target], f"{target}#{anchor}"
            assert "<img" not in html


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

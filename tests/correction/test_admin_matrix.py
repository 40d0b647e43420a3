"""The matrix of agents and mechanisms: what is in effect, where it comes from, and changing it with one button."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agents.models import Agent
from correction.config.configure import config_history, configure
from correction.config.settings import resolve_config
from correction.models import AgentEvaluationConfig
from tests.console import list_of, queries, read
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

MATRIX = list_of(AgentEvaluationConfig)


def cell(html: str, target: object, mechanism: str) -> str:
    """The text of one cell."""
    got = re.search(rf'<td id="cell-{target}-{mechanism}".*?</td>', html, flags=re.S)
    assert got is not None, f"there is no cell {target} {mechanism}"
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", got.group())).split())


def switch(html: str, target: object, mechanism: str) -> str:
    """What the switch of a cell shows: true or false."""
    got = re.search(rf'id="cell-{target}-{mechanism}-switch"[^>]*aria-checked="(\w+)"', html)
    assert got is not None
    return got.group(1)


def press(client: Client, **button: str) -> Any:
    return client.post(MATRIX, button)


def test_a_cell_says_what_is_in_effect_and_where_it_comes_from(root: Client) -> None:
    ada, bob = make_agent(), make_agent("bob")
    configure(agent=None, changes={"repetition_suppression_enabled": "on", "repetition_threshold": "0.4"})
    configure(agent=ada, changes={"gate_adherence_enabled": "on", "gate_adherence_threshold": "6.5"})
    configure(agent=ada, changes={"gate_fluency_threshold": "7", "daily_budget_usd": "12.50"})
    html = read(root, MATRIX)

    assert cell(html, ada.pk, "gate") == "enforce › follows the checks"
    assert cell(html, ada.pk, "adherence") == "on ≥ 6.5 own ↺"
    assert cell(html, ada.pk, "fluency") == "off ≥ 7 partly own ↺"
    assert cell(html, ada.pk, "rules") == "on … follows adherence"
    assert cell(html, ada.pk, "budget") == "off $12.50 partly own ↺"
    assert cell(html, ada.pk, "repetition") == cell(html, bob.pk, "repetition") == "on > 0.4 defaults"
    assert cell(html, bob.pk, "adherence") == "off ≥ 5 built-in"
    assert cell(html, bob.pk, "gate") == "off › follows the checks"
    assert cell(html, "defaults", "repetition") == "on > 0.4 set ↺"
    assert "daily_budget_usd is set, but budget_enabled is off" in html


def test_a_switch_sets_the_agents_own_value_under_the_users_name(root: Client) -> None:
    ada = make_agent()
    html = read(root, MATRIX)
    assert switch(html, ada.pk, "adherence") == "false"
    button = re.search(rf'name="set" value="({ada.pk}:gate_adherence_enabled:\w+)"', html)
    assert button is not None
    answer = press(root, set=button.group(1))

    assert answer.status_code == 302
    assert answer["Location"] == f"{MATRIX}#cell-{ada.pk}-adherence"
    assert resolve_config(ada)["gate_adherence_enabled"] is True
    assert switch(read(root, MATRIX), ada.pk, "adherence") == "true"
    newest = config_history(ada)[0]
    assert (newest.user, dict(newest.changes)) == ("root", {"gate_adherence_enabled": (None, True)})
    press(root, set=f"{ada.pk}:gate_adherence_enabled:off")
    assert resolve_config(ada).provenance["gate_adherence_enabled"] == "agent"


def test_a_reset_cell_inherits_again(root: Client) -> None:
    ada = make_agent()
    configure(agent=None, changes={"gate_adherence_threshold": "4"})
    own = {"gate_adherence_enabled": "on", "gate_adherence_threshold": "6.5", "gate_fluency_enabled": "on"}
    configure(agent=ada, changes=own)
    press(root, reset=f"{ada.pk}:adherence")

    html = read(root, MATRIX)
    assert cell(html, ada.pk, "adherence") == "off ≥ 4 defaults"
    assert cell(html, ada.pk, "fluency") == "on ≥ 5 partly own ↺"


def undo(client: Client, html: str) -> str:
    """Press the button that takes back what was just saved; returns what the page says."""
    form = re.search(r'<form class="pl-undo" method="post" action="([^"]*)">(.*?)</form>', html, flags=re.S)
    assert form is not None, "no undo is offered"
    sent = dict(re.findall(r'name="([\w-]+)" value="([^"]*)"', unescape(form.group(2))))
    answer = client.post(unescape(form.group(1)), sent, follow=True)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.content.decode())).split())


@pytest.mark.parametrize("button", [{"set": "defaults:gate_adherence_enabled:on"}, {"reset": "defaults:repetition"}])
def test_a_change_of_the_defaults_asks_first_naming_its_inheritors(root: Client, button: dict[str, str]) -> None:
    own = {"gate_adherence_enabled": "off", "repetition_suppression_enabled": "off", "repetition_threshold": "0.5"}
    configure(agent=make_agent(), changes=own)
    for name in ("bob", "cleo", "dave"):
        make_agent(name)
    configure(agent=None, changes={"repetition_suppression_enabled": "on"})
    before = config_history(None)
    answer = root.post(MATRIX, button)
    html = answer.content.decode()

    assert "3 agents inherit this" in html
    assert "Cleo" in html
    assert "Ada" not in html
    assert config_history(None) == before
    sent = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', html))
    root.post(MATRIX, sent)
    assert len(config_history(None)) == len(before) + 1


def test_what_was_changed_is_undone_exactly(root: Client) -> None:
    ada, whose = make_agent(), "defaults"
    configure(agent=None, changes={"gate_adherence_threshold": "6.5"})
    before = resolve_config(ada)
    html = root.post(
        MATRIX, {"set": f"{whose}:gate_adherence_enabled:on", "confirmed": "1"}, follow=True
    ).content.decode()
    assert resolve_config(ada).gate_mode == "enforce"
    text = undo(root, html)

    assert resolve_config(ada) == before
    assert before.provenance["gate_adherence_enabled"] == "built-in"
    assert "no draft is checked from now on" in text


def test_what_another_person_changed_since_is_not_undone(root: Client) -> None:
    ada = make_agent()
    html = root.post(MATRIX, {"set": f"{ada.pk}:gate_adherence_enabled:on"}, follow=True).content.decode()
    configure(agent=ada, changes={"gate_adherence_enabled": "off"})
    configure(agent=ada, changes={"gate_fluency_threshold": "7"})

    assert "was changed since" in undo(root, html)
    assert resolve_config(ada).provenance["gate_adherence_enabled"] == "agent"


def test_undo_leads_to_no_other_site(root: Client) -> None:
    ada = make_agent()
    press(root, set=f"{ada.pk}:gate_adherence_enabled:on")
    url = reverse("admin:correction_agentevaluationconfig_target_history", args=[ada.pk])
    entry = {"undo": str(config_history(ada)[0].history_id)}

    assert root.post(url, {**entry, "next": "https://elsewhere.example/"})["Location"] == url


@pytest.mark.parametrize(
    "button",
    [
        {"set": "77:gate_adherence_enabled:on"},
        {"set": "defaults:gate_adherence_threshold:9"},
        {"reset": "99999999999999999999:adherence"},
    ],
)
def test_a_button_that_is_not_there_is_not_found(root: Client, button: dict[str, str]) -> None:
    assert press(root, **button).status_code == 404
    assert not AgentEvaluationConfig.objects.exists()


def test_the_number_of_queries_does_not_grow_with_the_agents(root: Client) -> None:
    configure(agent=make_agent(), changes={"gate_adherence_enabled": "on"})
    few = queries(root, MATRIX)
    for n in range(6):
        configure(agent=make_agent(f"agent-{n}"), changes={"gate_adherence_enabled": "on", "gate_mode": "off"})

    assert len(queries(root, MATRIX)) == len(few)


def test_agents_are_searched_and_paged(root: Client) -> None:
    Agent.objects.bulk_create(Agent(slug=f"agent-{n}", display_name=f"Agent {n}") for n in range(60))
    make_agent("zoe", display_name="Zoë")

    first, second = read(root, MATRIX), read(root, f"{MATRIX}?p=2")
    assert len(re.findall(r'<th scope="row">', first)) == 51  # the defaults stand on every page
    assert len(re.findall(r'<th scope="row">', second)) == 12
    got = read(root, f"{MATRIX}?q=Zo")
    assert len(re.findall(r'<th scope="row">', got)) == 2
    assert "No agent is named like that" in read(root, f"{MATRIX}?q=nobody")
    read(root, f"{MATRIX}?p=nonsense")

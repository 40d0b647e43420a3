"""Corrections on the agents' pages: the panel, copying a configuration."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agents.models import Agent
from correction.config.configure import config_history, configure
from correction.config.settings import resolve_config
from correction.models import AgentEvaluationConfig
from tests.console import (
    HOSTILE,
    figures,
    list_of,
    page_of,
    plain,
    queries,
    read,
    row_about,
    signed_in,
    staff,
    tab_of,
    viewer,
)
from tests.correction.config_page import filled_in
from tests.correction.judged_drafts import make_log
from tests.correction.ledger import call
from tests.evaluation.change.measured import flattened
from tests.evaluation.test_admin_home import fell
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def run(client: Client, action: str, agents: list[Agent], **typed: object) -> str:
    """Choose agents in the list, run an action; with what was typed on its page, if anything."""
    chosen: dict[str, Any] = {"action": action, "_selected_action": [str(agent.pk) for agent in agents], **typed}
    if typed:
        chosen["confirmed"] = "1"
    return str(client.post(list_of(Agent), chosen, follow=True).content.decode())


# -- copying
def test_a_configuration_is_copied_to_the_chosen_agents(root: Client) -> None:
    ada, bob, eve = make_agent(), make_agent("bob"), make_agent("eve")
    configure(agent=ada, changes={"gate_adherence_enabled": "on", "gate_adherence_threshold": "6.5"})
    configure(agent=bob, changes={"gate_fluency_enabled": "on"})
    assert "Copy corrections" in plain(run(root, "copy_corrections", [ada, bob, eve]))
    text = plain(run(root, "copy_corrections", [ada, bob, eve], source=ada.pk))

    assert "2 agents set as Ada." in text
    assert "1 skipped: it is copied from." in text
    for agent in (bob, eve):
        config = resolve_config(agent)
        assert config["gate_adherence_threshold"] == resolve_config(ada)["gate_adherence_threshold"]
        assert config["gate_fluency_enabled"] is False
    assert config_history(bob)[0].user == "root"


def test_copying_needs_the_right_to_change_configurations() -> None:
    ada, looking = make_agent(), signed_in(viewer())
    run(looking, "copy_corrections", [ada], source=ada.pk)

    assert "Copy corrections" not in read(looking, list_of(Agent))
    assert not AgentEvaluationConfig.objects.exists()


@pytest.fixture
def ada() -> Agent:
    return make_agent()


def test_the_agents_page_shows_settings_drafts_held_back_and_costs(root: Client, ada: Agent) -> None:
    configure(agent=None, changes={"gate_fluency_enabled": "on"})
    configure(agent=ada, changes={"gate_adherence_threshold": "6.5", "budget_enabled": "on"})
    make_log(ada, {"adherence": 8.0}, text="All is well.")
    log = make_log(ada, {"adherence": 2.0}, outcome="forced_through")
    call(ada, cost="0.0125", input_tokens=900, output_tokens=80)
    call(ada, cost=None, purpose="evaluation", mechanism="adherence")
    call(ada, cost="7", at=timezone.now() - timedelta(days=8))
    html = read(root, tab_of(ada, "gate"))
    text = plain(html)
    history = read(root, tab_of(ada, "history"))

    assert "gate enforce" in text
    assert "adherence threshold: 6.5, own" in text
    assert "adherence hard: off, built-in" in text
    assert "daily_budget_usd is not set" in text
    target = f"/admin/correction/agentevaluationconfig/target/{ada.pk}/"
    assert f'href="{target}"' in html
    assert f'href="{target}history/"' in html
    assert "attempt 1 forced through gate" in text
    assert f'href="{page_of(log)}"' in html
    assert "All is well." not in text
    costs = plain(history).partition("Costs, last 7 days")[2]
    assert "2 calls" in costs
    assert "$0.0125 + 1 unpriced" in costs
    assert figures(row_about(history, "gate", "correction")) == ["0.0125", "1", "80", "900"]


def test_each_part_takes_its_own_right(ada: Agent) -> None:
    make_log(ada, {"adherence": 2.0}, outcome="corrected", text="As per my last mail.")
    seen = plain(read(signed_in(staff("agents.view_agent", "correction.view_correctionlog")), tab_of(ada, "gate")))
    others = plain(read(signed_in(staff("agents.view_agent", username="other")), tab_of(ada, "gate")))

    assert "Last corrections" in seen
    assert "As per my last mail." not in seen  # which takes the right to read messages
    assert "Costs" not in plain(read(signed_in(User.objects.get(username="staff")), tab_of(ada, "history")))
    assert "Last corrections" not in others


@pytest.mark.parametrize("tab", ["overview", "persona", "gate", "history"])
def test_the_agents_page_takes_constant_queries(ada: Agent, tab: str) -> None:
    client = signed_in(viewer())
    make_log(ada, {"adherence": 2.0}, outcome="corrected", text="As per my last mail.")
    call(ada)
    few = queries(client, tab_of(ada, tab))
    for _ in range(4):
        make_log(ada, {"adherence": 2.0}, outcome="corrected", text="As per my last mail.")
        call(ada)
    many = queries(client, tab_of(ada, tab))

    assert len(many) == len(few), "\n".join(many)


@pytest.mark.parametrize(
    ("own", "offered"),
    [
        ({"gate_adherence_enabled": "on", "gate_mode": "observe"}, ["Enforce it at the gate"]),
        ({"gate_adherence_enabled": "on", "gate_mode": "enforce"}, []),
    ],
)
def test_a_drifted_agent_s_card_offers_the_next_step_at_the_gate(
    root: Client, ada: Agent, own: dict[str, str], offered: list[str]
) -> None:
    flattened(ada)
    configure(agent=ada, changes=own)
    text = plain(read(root, reverse("admin:evaluation_drift_overview")))

    assert [label for label in ("Observe it at the gate", "Enforce it at the gate") if label in text] == offered


def test_observing_what_fell_holds_nothing_back(root: Client, ada: Agent) -> None:
    """The form is saved as the link on the card opens it."""
    flattened(ada)
    configure(agent=ada, changes={"gate_fluency_enabled": "on"})
    card = read(root, reverse("admin:evaluation_drift_overview"))
    link = re.search(r'href="([^"]*)"[^>]*>\s*Observe it at the gate', card)
    assert link is not None
    url = unescape(link.group(1))
    root.post(url, {**filled_in(read(root, url)), "_save": ""})
    config = resolve_config(ada)

    assert (config.gate_mode, config["gate_adherence_enabled"]) == ("observe", True)


# -- charts
def test_changes_of_corrections_are_marked_in_the_agent_s_charts(root: Client) -> None:
    ada = make_agent()
    fell(ada)
    anna = User.objects.create_user("anna")
    configure(agent=ada, changes={"gate_mode": "observe"}, user=anna)
    configure(agent=ada, changes={"gate_mode": "enforce", "gate_adherence_threshold": "6"}, user=anna, reason=HOSTILE)
    configure(agent=make_agent("bob"), changes={"gate_mode": "off"}, user=anna)
    configure(agent=None, changes={"max_correction_attempts": 1}, user=anna)
    html = charts(read(root, tab_of(ada, "history")))
    text = plain(html)

    assert "Ada: gate mode observe → enforce, adherence threshold inherit → 6 by anna" in text
    assert "Defaults: max correction attempts inherit → 1 by anna" in text
    assert "Bob: " not in text
    assert f"/admin/correction/agentevaluationconfig/target/{ada.pk}/history/" in html
    assert "/admin/correction/agentevaluationconfig/target/defaults/history/" in html
    blind = staff("change.view_baseline", "evaluation.view_evaluationrun", "agents.view_agent", username="blind")
    assert "--pl-warning" not in charts(read(signed_in(blind), tab_of(ada, "history")))


def charts(html: str) -> str:
    return html[html.index('id="drift"') :].split("</section>")[0]

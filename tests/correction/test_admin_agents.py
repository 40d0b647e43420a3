"""Corrections on the agents' pages: the panel, switching a mechanism for several agents, copying a configuration."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agents.models import Agent
from correction.config.configure import config_history, configure
from correction.config.settings import resolve_config
from correction.models import AgentEvaluationConfig
from tests.console import HOSTILE, list_of, page_of, plain, queries, read, signed_in, staff, viewer
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def run(client: Client, action: str, agents: list[Agent], **typed: object) -> str:
    """Choose agents in the list, run an action; with what was typed on its page, if anything."""
    chosen: dict[str, Any] = {"action": action, "_selected_action": [str(agent.pk) for agent in agents], **typed}
    if typed:
        chosen["apply"] = "1"
    return str(client.post(list_of(Agent), chosen, follow=True).content.decode())


# -- the panel
def test_the_agents_page_shows_what_is_in_effect_and_leads_to_changing_it(root: Client) -> None:
    ada = make_agent()
    configure(agent=None, changes={"gate_fluency_enabled": "on"})
    configure(agent=ada, changes={"gate_adherence_threshold": "6.5", "budget_enabled": "on"})
    html = read(root, page_of(ada))
    text = plain(html)

    assert "gate enforce adherence off consistency off fluency on rules off" in text
    assert "budget on own" in text
    assert "fluency on defaults fluency" in text or "fluency on defaults" in text
    assert "adherence threshold 6.5 own" in text
    assert "adherence hard off built-in" in text
    assert "daily_budget_usd is not set: nothing is capped" in text
    target = f"/admin/correction/agentevaluationconfig/target/{ada.pk}/"
    assert f'href="{target}"' in html
    assert f'href="{target}history/"' in html


def test_the_panel_needs_the_right_to_view_configurations() -> None:
    ada = make_agent()
    half = signed_in(staff("agents.view_agent", "agents.view_trait"))

    assert "Corrections" not in read(half, page_of(ada))
    assert "Look at them in full" in read(signed_in(viewer()), page_of(ada))


def test_the_panel_costs_one_query(root: Client) -> None:
    ada = make_agent()

    asked = [sql for sql in queries(root, page_of(ada)) if 'FROM "agent_evaluation_config"' in sql]
    assert len(asked) == 1


# -- switching
def test_a_mechanism_is_asked_for_before_anything_is_done(root: Client) -> None:
    ada = make_agent()
    text = plain(run(root, "switch_mechanism", [ada]))

    assert "1 agent A Ada" in text
    assert "adherence: judges each draft for adherence" in text
    assert not AgentEvaluationConfig.objects.exists()


def test_a_mechanism_is_switched_for_the_chosen_agents_and_it_says_for_whom(root: Client) -> None:
    ada, bob, eve = make_agent(), make_agent("bob"), make_agent("eve")
    configure(agent=bob, changes={"gate_fluency_enabled": "on"})
    text = plain(run(root, "switch_mechanism", [ada, bob], mechanism="fluency", state="on"))

    assert "fluency on: set for Ada." in text
    assert "fluency on: skipped, because it is so already, for Bob." in text
    assert [resolve_config(agent)["gate_fluency_enabled"] for agent in (ada, bob, eve)] == [True, True, False]
    assert (config_history(ada)[0].user, config_history(ada)[0].reason) == ("root", "from the list of agents")


def test_a_mechanism_is_given_back_to_the_defaults(root: Client) -> None:
    ada = make_agent()
    configure(agent=ada, changes={"gate_mode": "observe"})
    run(root, "switch_mechanism", [ada], mechanism="gate", state="inherit")

    assert resolve_config(ada).provenance["gate_mode"] == "built-in"


@pytest.mark.parametrize(
    ("mechanism", "state", "said"),
    [
        ("gate", "on", "allowed: off or observe or enforce"),
        ("fluency", "observe", "allowed: on or off"),
        ("nonsense", "on", "Select a valid choice"),
    ],
)
def test_a_state_that_the_mechanism_does_not_have_is_refused(
    root: Client, mechanism: str, state: str, said: str
) -> None:
    text = plain(run(root, "switch_mechanism", [make_agent()], mechanism=mechanism, state=state))

    assert said in text
    assert not AgentEvaluationConfig.objects.exists()


# -- copying
def test_a_configuration_is_copied_to_the_chosen_agents(root: Client) -> None:
    ada, bob, eve = make_agent(), make_agent("bob"), make_agent("eve")
    configure(agent=ada, changes={"gate_adherence_enabled": "on", "gate_adherence_threshold": "6.5"})
    configure(agent=bob, changes={"gate_fluency_enabled": "on"})
    assert "Copy corrections" in plain(run(root, "copy_corrections", [ada, bob, eve]))
    text = plain(run(root, "copy_corrections", [ada, bob, eve], source=ada.pk))

    assert "Corrections copied from Ada to Bob, Eve." in text
    assert "Ada was skipped: it is the one copied from." in text
    for agent in (bob, eve):
        config = resolve_config(agent)
        assert config["gate_adherence_threshold"] == resolve_config(ada)["gate_adherence_threshold"]
        assert config["gate_fluency_enabled"] is False
    assert config_history(bob)[0].user == "root"


def test_copying_from_an_agent_that_sets_nothing_says_so(root: Client) -> None:
    ada, bob = make_agent(), make_agent("bob")
    configure(agent=bob, changes={"gate_fluency_enabled": "on"})
    text = plain(run(root, "copy_corrections", [bob], source=ada.pk))

    assert "Ada sets nothing itself: they inherit everything now." in text
    assert resolve_config(bob)["gate_fluency_enabled"] is False


def test_both_actions_need_the_right_to_change_configurations() -> None:
    ada, looking = make_agent(), signed_in(viewer())
    html = run(looking, "switch_mechanism", [ada], mechanism="fluency", state="on")

    assert "Switch a correction mechanism" not in html
    assert "Copy corrections" not in read(looking, list_of(Agent))
    assert not AgentEvaluationConfig.objects.exists()


def test_hostile_names_are_shown_and_never_run(root: Client) -> None:
    ada = make_agent(display_name=HOSTILE)
    bob = make_agent("bob", display_name=HOSTILE)
    pages = [
        run(root, "switch_mechanism", [ada]),
        run(root, "switch_mechanism", [ada], mechanism="fluency", state="on"),
        run(root, "copy_corrections", [ada]),
        run(root, "copy_corrections", [ada, bob], source=ada.pk),
        read(root, page_of(ada)),
    ]

    for html in pages:
        assert "<script>alert" not in html
        assert "alert(&#x27;x&#x27;)" in html

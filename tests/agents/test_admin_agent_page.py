"""An agent's page and those beside it: what its model would read, and a turn that is asked for."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.models import Agent, Channel, ChannelMember, Run
from agents.personas.persona import TraitValue, current_digest
from tests.console import HOSTILE, list_of, page_of, plain, queries, read, signed_in, staff, tab_of, viewer
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


class Shouting:
    """A stage that adds a section to every prompt."""

    name = "shouting"

    def prepare(self, turn: object) -> None:
        turn.add_section("Shout", f"Say it loudly. {HOSTILE}")  # type: ignore[attr-defined]


class Broken:
    """A stage without which no turn may begin."""

    name, required = "broken", True

    def prepare(self, turn: object) -> None:
        raise RuntimeError("out of order")


@pytest.fixture
def office() -> Channel:
    return make_channel()


@pytest.fixture
def ada(office: Channel) -> Agent:
    agent = make_agent(traits=[TraitValue("dry", "Says little.", strength=0.0)])
    ChannelMember.objects.create(channel=office, agent=agent)
    say(office, "Zoe", "Where is the stapler?")
    return agent


# The parts of each tab, by their ids: a link to one of them leads to its tab.
PARTS = {
    "overview": {"change"},
    "persona": {"persona", "requests"},
    "gate": {"config", "corrections", "nudges"},
    "history": {"drift", "versions", "baselines", "by-position", "costs"},
}


@pytest.mark.parametrize("tab", PARTS)
def test_a_tab_shows_its_parts_and_the_way_to_all_others(root: Client, ada: Agent, tab: str) -> None:
    html = read(root, tab_of(ada, tab))
    shown = {part for parts in PARTS.values() for part in parts if f'id="{part}"' in html}
    elsewhere = dict(re.findall(r'data-part="([^"]*)" href="([^"]*)"', html))

    assert shown == PARTS[tab]
    assert elsewhere == {
        part: f"{tab_of(ada, other)}#{part}" for other, parts in PARTS.items() if other != tab for part in parts
    }


@pytest.mark.parametrize("query", ["", "?tab=overview", "?tab=unknown", "?tab="])
def test_an_address_without_a_known_tab_shows_the_overview(root: Client, ada: Agent, query: str) -> None:
    assert 'data-tab="overview"' in read(root, f"{page_of(ada)}{query}")


def test_only_the_tab_with_the_form_offers_to_save(root: Client, ada: Agent) -> None:
    assert [tab for tab in PARTS if 'name="_save"' in read(root, tab_of(ada, tab))] == ["persona"]
    assert 'name="_save"' not in read(signed_in(viewer()), tab_of(ada, "persona"))
    assert 'name="_save"' in read(root, f"{page_of(ada)}?_popup=1")


def test_four_buttons_are_in_sight_and_the_others_in_a_menu(root: Client, ada: Agent) -> None:
    buttons, _, menu = read(root, page_of(ada)).partition("pl-toolbar")[2].partition("<details")

    assert re.findall(r'class="pl-button" href="[^"]*"[^>]*>([^<]*)<', buttons) == [
        "Chat",
        "Check",
        "Evaluate",
        "Set the gate",
    ]
    for view in ("prompt", "turn", "versions"):
        assert page_of(ada, view) in menu


def test_a_tab_of_which_a_user_may_see_nothing_is_not_offered(ada: Agent) -> None:
    html = read(signed_in(staff("agents.view_agent")), tab_of(ada, "gate"))

    assert 'id="persona"' in html
    assert [tab for tab in PARTS if tab_of(ada, tab) in html] == ["persona"]


def test_tabs_and_saving_keep_the_filters_of_the_list(root: Client, ada: Agent) -> None:
    filters = urlencode({"_changelist_filters": "is_active__exact=1"})
    html = read(root, f"{page_of(ada)}?{filters}")
    assert f"{tab_of(ada, 'persona')}&amp;{filters}" in html

    empty = {f"{name}-{count}_FORMS": "0" for name in ("traits", "memory_blocks") for count in ("TOTAL", "INITIAL")}
    names = {"slug": "ada", "display_name": "Ada", "system_prompt": "You are Ada.", "max_turns": "9"}
    typed = {**empty, **names, "avatar_color": "#112233", "sample_lines": "[]", "aliases": "[]"}
    typed["opened"] = current_digest(ada)
    url = f"{tab_of(ada, 'persona')}&{filters}"
    assert root.post(url, {**typed, "_continue": ""})["Location"] == url
    typed["opened"] = current_digest(Agent.objects.get(pk=ada.pk))
    assert root.post(url, typed)["Location"] == f"{list_of(Agent)}?is_active__exact=1"


def test_an_agent_that_is_not_there_or_not_theirs(root: Client, ada: Agent) -> None:
    missing = page_of(ada).replace(f"/{ada.pk}/", "/4711/")
    nobody = signed_in(User.objects.create_user("nobody", is_staff=True))

    assert root.get(missing).status_code == 302
    assert nobody.get(page_of(ada)).status_code == 403


def test_a_tab_asks_the_database_for_its_own_parts_only(root: Client, ada: Agent) -> None:
    for tab in PARTS:
        read(root, tab_of(ada, tab))
    statements = {tab: len(queries(root, tab_of(ada, tab))) for tab in PARTS}

    assert all(count <= 30 for count in statements.values()), statements
    assert statements["overview"] <= 20, statements


def test_each_part_of_the_prompt_says_which_stage_added_it(root: Client, ada: Agent, settings: Settings) -> None:
    settings.TURN_PIPELINE = [f"{__name__}.Shouting"]
    page = read(root, page_of(ada, "prompt"))
    text = plain(page)

    assert "Persona in every prompt" in text
    assert "Instructions in every prompt" in text
    assert "Shout stage shouting" in text
    assert "Say it loudly." in text
    assert "Where is the stapler?" in text
    assert HOSTILE not in page
    assert "shouting ran" in text
    assert not LLMCall.objects.exists()
    assert not Run.objects.exists()


@pytest.mark.parametrize("view", ["prompt", "turn"])
def test_an_agent_in_no_channel_says_what_to_do(root: Client, view: str) -> None:
    assert "has joined no channel" in plain(read(root, page_of(make_agent("bob"), view)))


@pytest.mark.parametrize("view", ["prompt", "turn"])
def test_a_required_stage_that_fails_is_named(root: Client, ada: Agent, settings: Settings, view: str) -> None:
    settings.TURN_PIPELINE = [f"{__name__}.Broken"]

    assert "a required stage failed (broken: RuntimeError: out of order)" in plain(read(root, page_of(ada, view)))


def test_a_turn_says_what_it_takes_before_it_is_queued(root: Client, ada: Agent, settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.ANTHROPIC_API_KEY = "claude-haiku-5-5", "key"
    text = plain(read(root, page_of(ada, "turn")))

    assert "Actor claude-haiku-5-5 Calls about 2 Tokens, in and out" in text
    assert "Cost, estimated $0.00" in text
    assert not Run.objects.exists()


def test_a_click_queues_a_turn_and_leads_to_its_steps(root: Client, ada: Agent, office: Channel) -> None:
    answer = root.post(page_of(ada, "turn"), {"channel": "office", "prompt": "Say hello to Zoe."})
    run = Run.objects.get()

    assert answer["Location"] == page_of(run)
    assert (run.agent, run.channel, run.status, run.prompt) == (ada, office, "pending", "Say hello to Zoe.")
    assert "data-live" in read(root, answer["Location"])
    assert f"Under way already: run {run.pk} ." in plain(read(root, page_of(ada, "turn")))


def test_an_inactive_agent_takes_no_turn(root: Client, ada: Agent) -> None:
    ada.is_active = False
    ada.save()
    page = root.post(page_of(ada, "turn"), {"channel": "office"}).content.decode()

    assert "is inactive" in page
    assert not Run.objects.exists()


def test_a_prompt_holds_messages_so_it_takes_the_right_to_read_them(ada: Agent) -> None:
    client = signed_in(staff("agents.view_agent"))

    assert client.get(page_of(ada, "prompt")).status_code == 403
    assert page_of(ada, "prompt") not in read(client, page_of(ada))

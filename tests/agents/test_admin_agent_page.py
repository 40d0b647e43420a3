"""An agent's page and those beside it: what its model would read, and a turn that is asked for."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.models import Agent, Channel, ChannelMember, Run
from agents.personas.persona import TraitValue
from tests.console import HOSTILE, page_of, plain, read, signed_in, staff
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

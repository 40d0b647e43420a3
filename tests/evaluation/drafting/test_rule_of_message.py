"""A message of an agent leads from its chat to a new proposition that is filled in with what it says."""

from __future__ import annotations

import pytest
from django.urls import reverse

from agents.chat import begin_chat
from agents.models import Agent, Channel, Message
from tests.console import HOSTILE, page_of, read, signed_in, staff, superuser
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
TEXT = f'Sorry, "dear customer". {HOSTILE}'


@pytest.fixture
def ada() -> Agent:
    return make_agent()


@pytest.fixture
def chat(ada: Agent) -> Channel:
    return begin_chat(ada)


@pytest.fixture
def message(ada: Agent, chat: Channel) -> Message:
    said: Message = Message.objects.create(channel=chat, position=1, agent=ada, text=TEXT, synthetic=True)
    return said


def form_url(agent: Agent, message: object) -> str:
    return f"{reverse('admin:evaluation_proposition_new', args=[agent.slug])}?from_message={message}"


def test_the_link_fills_in_that_the_agent_never_says_this(ada: Agent, chat: Channel, message: Message) -> None:
    client = signed_in(superuser())
    url = form_url(ada, message.pk)
    assert f'href="{url}"' in read(client, page_of(chat, "chat"))
    html = read(client, url)
    assert "Sorry, dear customer" in html
    assert HOSTILE not in html


@pytest.mark.parametrize("number", ["0", "999", "no number", "9" * 30])
def test_a_message_that_is_not_there_fills_in_nothing(number: str, ada: Agent, message: Message) -> None:
    assert "dear customer" not in read(signed_in(superuser()), form_url(ada, number))


def test_what_another_agent_said_or_may_not_be_read_is_not_filled_in(ada: Agent, message: Message) -> None:
    bob = make_agent("bob")
    assert "dear customer" not in read(signed_in(superuser()), form_url(bob, message.pk))
    editor = staff("evaluation.view_proposition", "evaluation.change_proposition")
    assert "dear customer" not in read(signed_in(editor), form_url(ada, message.pk))


def test_only_who_may_write_propositions_is_offered_a_rule(chat: Channel, message: Message) -> None:
    reader = staff("agents.view_agent", "agents.view_channel", "agents.view_message")
    html = read(signed_in(reader), page_of(chat, "chat"))
    assert "Make this a rule" not in html
    assert "Make this a test" in html

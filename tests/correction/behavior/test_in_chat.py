"""Requests in a chat: a line at the message says what was heard and where it holds, and Undo takes it back there."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from agents.chat import ask, begin_chat
from agents.models import Agent, Channel, Message
from correction.behavior.models import BehaviorRequest
from correction.behavior.work import work_one
from correction.models import AgentEvaluationConfig
from tests.console import HOSTILE, in_group, page_of, plain, queries, read, signed_in, staff
from tests.correction.behavior.asking import CONCISE, YES, judge
from tests.correction.behavior.test_scope import shown
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
READING = (
    "agents.view_agent",
    "agents.view_channel",
    "agents.view_message",
    "behavior.view_behaviorrequest",
)


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


@pytest.fixture
def zed(db: None) -> User:
    return in_group("Operator")


@pytest.fixture
def chat(ada: Agent, zed: User) -> Channel:
    return begin_chat(ada, user=zed)


@pytest.fixture
def says(ada: Agent, chat: Channel, zed: User, llm_server: LLMServer, django_capture_on_commit_callbacks: Any) -> Any:
    """Zed says something in the chat; it is read for requests unless a worker is still to come."""

    def say(text: str, *, is_read: bool = True, **answers: Any) -> Message:
        llm_server.respond = judge(**({"map": CONCISE} | answers))
        with django_capture_on_commit_callbacks(execute=True):
            ask(ada, chat, text, user=zed)
        if is_read:
            assert work_one(owner="w")
        message: Message = Message.objects.latest("pk")
        return message

    return say


def of(message: Message) -> BehaviorRequest:
    request: BehaviorRequest = BehaviorRequest.objects.get(message=message)
    return request


def undo_url(request: BehaviorRequest) -> str:
    return reverse("admin:behavior_behaviorrequest_undo", args=[request.pk])


def test_the_chat_says_what_it_heard_for_whom_and_links_to_the_request(says: Any, chat: Channel, zed: User) -> None:
    request = of(says("Be shorter from now on"))
    assert request.status == "applied"
    html = read(signed_in(zed), page_of(chat, "chat"))
    text = plain(html)
    assert "Heard as a request:" in text
    assert f"{request.trait_name}" in text
    assert "for you, in this conversation" in text
    assert page_of(request) in html
    other = plain(read(signed_in(staff(*READING)), page_of(chat, "chat")))
    assert "in this conversation" in other
    assert "for you" not in other


def test_a_chat_reads_its_requests_once(says: Any, chat: Channel, zed: User) -> None:
    says("Be shorter from now on")
    says("And kinder", is_read=False)
    of_messages = '"behavior_requests"."message_id" IN'
    reading = [sql for sql in queries(signed_in(zed), page_of(chat, "chat")) if of_messages in sql]
    assert len(reading) == 1


def test_the_person_who_asked_undoes_it_in_the_chat(says: Any, ada: Agent, chat: Channel, zed: User) -> None:
    request = of(says("Be shorter from now on"))
    client = signed_in(zed)
    here = page_of(chat, "chat")
    assert f'formaction="{undo_url(request)}"' in read(client, here)
    assert shown(ada, chat)
    assert client.get(undo_url(request)).status_code == 405
    answer = client.post(undo_url(request), {"next": here})
    assert answer["Location"] == here
    request.refresh_from_db()
    assert (request.status, request.reviewed_by) == ("reverted", zed)
    assert shown(ada, chat) == []
    html = read(client, here)
    assert "reverted" in plain(html)
    assert "Undo</button>" not in html
    assert "Nothing was undone" in plain(client.post(undo_url(request), {"next": here}, follow=True).content.decode())


def test_undo_needs_a_token_and_leads_to_no_other_site(says: Any, zed: User) -> None:
    request = of(says("Be shorter from now on"))
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(zed)
    assert strict.post(undo_url(request), secure=True).status_code == 403
    answer = signed_in(zed).post(undo_url(request), {"next": "https://example.com/"})
    assert answer["Location"].startswith("/admin/")


def test_others_may_not_undo_and_are_offered_no_button(says: Any, chat: Channel) -> None:
    request = of(says("Be shorter from now on"))
    reader = signed_in(staff(*READING, "agents.add_run"))
    assert "Undo</button>" not in read(reader, page_of(chat, "chat"))
    assert reader.post(undo_url(request)).status_code == 403
    request.refresh_from_db()
    assert request.status == "applied"
    editor = signed_in(in_group("Editor"))
    assert "Undo</button>" in read(editor, page_of(chat, "chat"))


def test_a_request_that_waits_is_applied_in_the_chat_by_who_may_decide(says: Any, chat: Channel, zed: User) -> None:
    request = of(says("Be shorter from now on", gate={**YES, "confidence": "medium"}))
    assert request.status == "pending_review"
    here = page_of(chat, "chat")
    assert "Apply</button>" not in read(signed_in(zed), here)
    editor = signed_in(in_group("Editor"))
    url = reverse("admin:behavior_behaviorrequest_apply", args=[request.pk])
    assert f'formaction="{url}"' in read(editor, here)
    assert editor.post(url, {"next": here})["Location"] == here
    request.refresh_from_db()
    assert request.status == "applied"


def test_a_message_that_no_worker_has_read_is_said_to_wait(says: Any, chat: Channel, zed: User) -> None:
    says("Be shorter from now on", is_read=False)
    assert "not read for requests yet" in plain(read(signed_in(zed), page_of(chat, "chat")))


def test_a_message_that_asks_for_nothing_has_no_line(says: Any, chat: Channel, zed: User) -> None:
    says("Good morning", gate={"has_request": False, "confidence": "high", "reason": "a greeting"})
    assert "as a request" not in plain(read(signed_in(zed), page_of(chat, "chat")))


def test_a_request_that_does_not_count_says_why(says: Any, ada: Agent, chat: Channel, zed: User) -> None:
    AgentEvaluationConfig.objects.create(agent=ada, behavior_requesters="named", behavior_named_requesters=["somebody"])
    request = of(says("Be shorter from now on"))
    assert request.status == "cancelled"
    text = plain(read(signed_in(zed), page_of(chat, "chat")))
    assert "Not heard as a request:" in text
    assert "behavior_named_requesters" in text


def test_a_message_that_could_not_be_read_is_not_said_to_ask_for_nothing(says: Any, chat: Channel, zed: User) -> None:
    request = of(says("Be shorter from now on", is_read=False))
    BehaviorRequest.objects.filter(pk=request.pk).update(status="failed", error="the judge did not answer")
    text = plain(read(signed_in(zed), page_of(chat, "chat")))
    assert "the judge did not answer" in text
    assert "eard as a request" not in text


def test_what_a_model_makes_of_a_message_is_shown_as_text(says: Any, chat: Channel, zed: User) -> None:
    of(says("Be shorter from now on", map={**CONCISE, "name": f"short {HOSTILE}"}))
    html = read(signed_in(zed), page_of(chat, "chat"))
    assert "as a request:" in plain(html)
    assert HOSTILE not in html

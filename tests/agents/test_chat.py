"""Scratch conversations: the service behind the console's page and ``manage.py chat``, and the pages."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from agents.chat import ChatOpen, answers_again, ask, ask_again, begin_chat, chats_of, delete_chat, exchange
from agents.kit.models import LLMCall, WorkerHeartbeat, owner_name
from agents.kit.work.worker import Worker
from agents.models import Agent, Channel, Message, PersonaVersion, Run
from agents.personas.persona import current_digest
from agents.turn.orchestrator import run_turn, work_one
from agents.turn.send_message import SendRefused, TurnRefused
from tests.agents.turn.playing import plays, shown, texts
from tests.console import HOSTILE, list_of, page_of, plain, queries, read, signed_in, staff, superuser
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]
TALKING = ("agents.view_agent", "agents.view_channel", "agents.view_message", "agents.add_run")


@pytest.fixture
def ada() -> Agent:
    return make_agent(sample_lines=["Noted.", "Filed under B.", "As you wish."])


def answered(run: Run) -> Run:
    return run_turn(run, owner=owner_name())


def speech(channel: str, text: str) -> tuple[str, dict[str, str]]:
    """What a model does to say something."""
    return ("send_message", {"channel": channel, "text": text})


def again_url(question: Message) -> str:
    return reverse("admin:agents_channel_again", args=[question.channel_id, question.position])


def chats_url(agent: Agent) -> str:
    return reverse("admin:agents_channel_chats", args=[agent.pk])


# -- the service
def test_what_is_said_in_a_chat_is_synthetic_and_never_measured(ada: Agent) -> None:
    chat = begin_chat(ada)
    exchange(ada, chat, "Good morning.")
    assert len(texts(chat)) == 2
    assert all(Message.objects.filter(channel=chat).values_list("synthetic", flat=True))


def test_a_number_that_an_earlier_chat_left_is_not_used_twice(ada: Agent) -> None:
    first, second = begin_chat(ada), begin_chat(ada)
    delete_chat(first)
    third = begin_chat(ada)
    assert third.slug != second.slug
    assert list(chats_of(ada)) == [third, second]


def test_a_text_that_cannot_be_said_queues_nothing(ada: Agent) -> None:
    chat = begin_chat(ada)
    with pytest.raises(SendRefused):
        ask(ada, chat, " \n")
    Agent.objects.update(is_active=False)
    ada.refresh_from_db()
    with pytest.raises(TurnRefused):
        ask(ada, chat, "Are you there?")
    assert not Message.objects.exists()
    assert not Run.objects.exists()


def test_a_question_is_answered_again_as_if_nothing_had_come_after_it(ada: Agent, llm_server: LLMServer) -> None:
    chat = begin_chat(ada)
    said = speech(chat.slug, "No.")
    plays(llm_server, said, "Done.", said, "Done.")
    answered(ask(ada, chat, "May I come in?"))
    answered(ask(ada, chat, "Why not?"))
    question = Message.objects.get(channel=chat, text="Why not?")
    run = ask_again(question, agent=ada, system_prompt="You are Ada, glad of every guest.")
    assert run.channel is not None
    plays(llm_server, speech(run.channel.slug, "Gladly!"), "Done.")
    answered(run)
    prompt = shown(llm_server.bodies[4])
    assert "glad of every guest" in prompt
    assert "dry and careful clerk" not in prompt
    assert "May I come in?" in prompt
    assert "Why not?" in prompt
    assert texts(chat) == ["May I come in?", "No.", "Why not?", "No."]
    new = Message.objects.get(run=run)
    assert (new.text, new.position, new.synthetic) == ("Gladly!", 4, True)
    assert list(answers_again(question)) == [run]


def test_an_edited_persona_is_saved_nowhere_and_passes_for_no_version(ada: Agent) -> None:
    chat = begin_chat(ada)
    answered(ask(ada, chat, "Hello"))
    run = answered(ask_again(Message.objects.get(text="Hello"), agent=ada, system_prompt="You are a pirate."))
    ada.refresh_from_db()
    assert ada.system_prompt == "You are Ada, a dry and careful clerk."
    assert PersonaVersion.objects.count() == 1
    assert Message.objects.get(channel=chat, agent=ada).persona_version is not None
    assert Message.objects.get(run=run).persona_version is None


def test_a_deleted_chat_leaves_what_its_calls_cost_and_nothing_else(ada: Agent) -> None:
    chat, other = begin_chat(ada), begin_chat(ada)
    for one in (chat, other):
        answered(ask(ada, one, "Hello"))
        answered(
            ask_again(Message.objects.get(channel=one, text="Hello", agent=None), agent=ada, system_prompt="Ahoy.")
        )
    calls = LLMCall.objects.count()
    delete_chat(chat)
    assert Channel.objects.count() == 2
    assert Run.objects.count() == 2
    assert not Run.objects.filter(channel=None).exists()
    assert LLMCall.objects.count() == calls
    assert len(texts(other)) == 2


def test_a_chat_whose_turn_has_not_ended_is_not_deleted(ada: Agent) -> None:
    chat = begin_chat(ada)
    ask(ada, chat, "Hello")
    with pytest.raises(ChatOpen):
        delete_chat(chat)
    assert texts(chat) == ["Hello"]


# -- the pages
def test_the_first_message_begins_a_chat_that_shows_answer_and_turn(ada: Agent) -> None:
    client = signed_in(staff(*TALKING))
    assert "None yet" in plain(read(client, chats_url(ada)))
    page = client.post(chats_url(ada), {"text": f"Good morning.\r\n{HOSTILE}"})
    chat = chats_of(ada).get()
    assert page["Location"] == page_of(chat, "chat")
    assert Message.objects.get().text == f"Good morning.\n{HOSTILE}"
    assert "none is running" in plain(read(client, page_of(chat, "chat")))
    Worker(WorkerHeartbeat.Kind.WORK, {}).beat()
    assert "It waits for a worker." in plain(read(client, page_of(chat, "chat")))

    assert work_one(owner=owner_name())
    html = read(client, page_of(chat, "chat"))
    assert "Noted." in html or "Filed under B." in html or "As you wish." in html
    assert HOSTILE not in html
    assert "say it again with an edited persona" in html
    assert chat.name in read(client, chats_url(ada))


def test_chats_ask_for_missing_sample_lines_where_no_model_answers(ada: Agent) -> None:
    client, bob = signed_in(staff(*TALKING)), make_agent("bob")
    assert "the scripted actor says the sample lines of" in plain(read(client, chats_url(ada)))
    html = read(client, chats_url(bob))
    assert "no sample lines for the scripted actor to say: add some" in plain(html)
    assert f'href="{page_of(bob)}"' in html


def test_json_tells_a_script_where_the_chat_is_or_what_is_wrong(ada: Agent) -> None:
    client = signed_in(staff(*TALKING))
    headers = {"Accept": "application/json"}
    assert "empty" in client.post(chats_url(ada), {"text": " "}, headers=headers).json()["problem"]
    assert not Channel.objects.exists()
    assert client.post(chats_url(ada), {"text": "Hello"}, headers=headers).json()["url"] == page_of(
        chats_of(ada).get(), "chat"
    )


def test_progress_is_another_answer_once_something_happened_and_only_then(ada: Agent) -> None:
    client, chat = signed_in(staff(*TALKING)), begin_chat(ada)
    ask(ada, chat, "Hello")
    url = page_of(chat, "chat") + "?progress=1"
    before = client.get(url).json()
    assert client.get(url).json() == before
    work_one(owner=owner_name())
    assert client.get(url).json() != before


@pytest.mark.parametrize("failure", [{"status": 400}, {"stop_reason": "refusal", "text": "I will not."}])
def test_a_failed_turn_says_why_and_is_tried_again_as_it_was(
    failure: dict[str, Any], ada: Agent, llm_server: LLMServer
) -> None:
    client, chat = signed_in(staff(*TALKING)), begin_chat(ada)
    llm_server.reply(**failure)
    run = answered(ask(ada, chat, "Hello", overrides={"gate_mode": "off"}))
    assert run.status == Run.Status.FAILED
    assert "the model call failed" in plain(read(client, page_of(chat, "chat")))
    client.post(page_of(chat, "chat"), {"retry": run.pk})
    plays(llm_server, speech(chat.slug, "Here I am."), "Done.")
    assert work_one(owner=owner_name())
    newest = Run.objects.latest("pk")
    assert (newest.trigger, newest.overrides) == (run.trigger, {"gate_mode": "off"})
    assert "Here I am." in read(client, page_of(chat, "chat"))
    assert texts(chat) == ["Hello", "Here I am."]


def test_a_silent_turn_says_the_reason_that_the_agent_gave(ada: Agent, llm_server: LLMServer) -> None:
    chat = begin_chat(ada)
    plays(llm_server, ("do_nothing", {"reason": "the clerk is out for lunch"}))
    answered(ask(ada, chat, "Hello"))
    assert "the clerk is out for lunch" in plain(read(signed_in(superuser()), page_of(chat, "chat")))


def test_a_turn_is_stopped_by_those_who_may_change_turns(ada: Agent) -> None:
    chat = begin_chat(ada)
    run = ask(ada, chat, "Hello")
    assert signed_in(staff(*TALKING)).post(page_of(chat, "chat"), {"stop": run.pk}).status_code == 403
    assert signed_in(staff(*TALKING[:2], username="deaf")).get(page_of(chat, "chat")).status_code == 403
    stopper = signed_in(staff(*TALKING, "agents.change_run", username="stopper"))
    stopper.post(page_of(chat, "chat"), {"stop": run.pk})
    run.refresh_from_db()
    assert run.status == Run.Status.CANCELLED


def test_people_delete_their_own_chats_and_those_of_others_only_with_permission(ada: Agent) -> None:
    mine, other = staff(*TALKING), staff(*TALKING, username="other")
    signed_in(mine).post(chats_url(ada), {"text": "Hello"})
    work_one(owner=owner_name())
    chat = chats_of(ada).get()
    assert signed_in(other).post(page_of(chat, "chat"), {"delete": "1"}).status_code == 403
    assert "Delete" not in plain(read(signed_in(other), chats_url(ada)))
    assert signed_in(mine).post(page_of(chat, "chat"), {"delete": "1"}).status_code == 302
    assert not Channel.objects.exists()


def test_a_conversation_that_is_no_chat_has_no_such_page(ada: Agent) -> None:
    real = Channel.objects.create(slug="chat-real", name="chat-real", kind="dm")
    assert signed_in(superuser()).get(page_of(real, "chat")).status_code == 404


def test_edited_personas_are_tried_beside_the_answer_and_saved_as_versions(ada: Agent) -> None:
    client, chat = signed_in(superuser()), begin_chat(ada)
    answered(ask(ada, chat, "Hello"))
    url = again_url(Message.objects.get(text="Hello"))
    opened = current_digest(ada)
    assert client.post(url, {"system_prompt": f"You are a pirate. {HOSTILE}", "opened": opened}).status_code == 302
    assert work_one(owner=owner_name())
    copy = Channel.objects.latest("pk")
    listed = read(client, list_of(Channel))
    assert chat.name in listed
    assert copy.name not in listed
    html = read(client, url)
    assert html.count("pl-by-agent") == 2
    assert "You are a pirate." in html
    assert HOSTILE not in html
    ada.refresh_from_db()
    assert "pirate" not in ada.system_prompt

    given = {"system_prompt": "You are a pirate.\r\nAhoy.", "opened": opened, "note": "bolder", "save": "1"}
    assert client.post(url, given, follow=True).status_code == 200
    version = PersonaVersion.objects.latest("number")
    assert (version.system_prompt, version.note) == ("You are a pirate.\nAhoy.", "edited in a chat: bolder")
    page = client.post(url, {**given, "system_prompt": "You are a nun."}, follow=True)
    assert "Nothing was saved" in plain(page.content.decode())
    assert PersonaVersion.objects.count() == 2


def fill(agent: Agent, chat: Channel, pairs: int) -> None:
    """Questions with their turns and answers, as after a long talk."""
    begin, now = chat.next_position, timezone.now()
    common: dict[str, Any] = {"channel": chat, "synthetic": True, "sent_at": now}
    asked = Message.objects.bulk_create(
        Message(position=begin + 2 * n, outsider="you", text=f"Question {n}", **common) for n in range(pairs)
    )
    runs = Run.objects.bulk_create(
        Run(agent=agent, channel=chat, trigger=one, status="completed", stop_reason="end_turn", finished_at=now)
        for one in asked
    )
    Message.objects.bulk_create(
        Message(position=begin + 2 * n + 1, agent=agent, text=f"Answer {n}", run=run, **common)
        for n, run in enumerate(runs)
    )
    Channel.objects.filter(pk=chat.pk).update(next_position=begin + 2 * pairs)
    chat.refresh_from_db()


def test_a_long_chat_shows_its_newest_messages_without_more_statements(ada: Agent) -> None:
    client, chat = signed_in(superuser()), begin_chat(ada)
    fill(ada, chat, 3)
    few = len(queries(client, page_of(chat, "chat")))
    fill(ada, chat, 200)
    url = page_of(chat, "chat")
    assert len(queries(client, url)) <= few
    html = read(client, url)
    assert "Answer 199" in html
    assert "Answer 100" not in html
    assert "Answer 100" in read(client, f"{url}?before={2 * 105}")

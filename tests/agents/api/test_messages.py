"""Messages over the API: read, filtered, and handed in by people."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from pytest_django import Settings

from agents.models import Agent, Channel, Message, Reaction, Run
from agents.turn.send_message import append
from tests.agents.turn import stages
from tests.api_client import Program, listed
from tests.factories import MONDAY, make_channel, say, talk
from tests.machinery import wait_until

pytestmark = pytest.mark.django_db

MESSAGES = "/api/messages/"


def test_a_message_is_shown_with_who_said_it_where_and_when(client: Program, ada: Agent, office: Channel) -> None:
    message = talk(ada, ["Good morning."])[0]
    Reaction.objects.create(message=message, agent=ada, emoji="👍")
    run = Run.objects.create(agent=ada, channel=office, trigger=message)

    row = client.get(MESSAGES).json()["results"][0]

    assert {name: row[name] for name in ("id", "channel", "position", "author", "agent", "user", "outsider", "text")} == {
        "id": message.pk, "channel": "office", "position": 1, "author": "Ada Byron", "agent": "ada", "user": None,
        "outsider": "", "text": "Good morning.",
    }  # fmt: skip
    assert row["sent_at"] == "2026-11-02T09:00:00Z"
    whole = client.get(row["url"]).json()
    assert whole == {
        **row,
        "reactions": [{"emoji": "👍", "agent": "ada", "user": None}],
        "turns": whole["turns"],
        "notes": [],
    }
    assert client.get(whole["turns"][0]).json()["id"] == run.pk


def test_the_list_is_filtered(client: Program, ada: Agent, bob: Agent, office: Channel) -> None:
    one, two, three = talk(ada, ["Paper?", "No paper.", "100% sure"])
    four = say(make_channel("annex"), "Guest", "hello", tags={"build": "41"}, sent_at=MONDAY + timedelta(days=1))
    office.refresh_from_db()
    five = Message.objects.create(channel=office, position=9, user=User.objects.get(username="eve"), text="I am here")

    assert listed(client, f"{MESSAGES}?user=eve") == [five.pk]
    assert listed(client, f"{MESSAGES}?search=paper&agent=ada") == [two.pk, one.pk]
    assert listed(client, f"{MESSAGES}?search=0%25&channel=office") == [three.pk]
    assert listed(client, f"{MESSAGES}?search=O&since=2026-11-03") == [four.pk]
    assert listed(client, f"{MESSAGES}?tag=build=41") == [four.pk]


def test_a_channel_is_asked_for_what_is_new(client: Program, ada: Agent, office: Channel) -> None:
    talk(ada, ["a", "b", "c"])

    assert listed(client, "/api/channels/office/messages/?after=1&ordering=position", "text") == ["b", "c"]
    assert listed(client, "/api/channels/office/messages/?after=3") == []
    for wrong in ("-1", "x", "9" * 12):
        assert client.get(f"/api/channels/office/messages/?after={wrong}").status_code == 400


@pytest.mark.service
@pytest.mark.django_db(transaction=True)
def test_no_message_appears_below_a_seen_one_however_late_its_writer_commits(
    office: Channel,
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL: set DATABASE_URL")
    taken, commit = threading.Event(), threading.Event()

    def write(text: str, hold: bool) -> None:
        try:
            with transaction.atomic():
                append(channel=office, outsider="Zoe", text=text, external_id=text)
                taken.set()
                assert not hold or commit.wait(20)
        finally:
            connection.close()

    def waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            return bool(cursor.fetchone()[0])

    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(write, "slow", True)
        assert taken.wait(20)
        fast = threads.submit(write, "fast", False)
        wait_until(waits, timeout=20, what="the second writer waits for the first")
        commit.set()
        slow.result(20), fast.result(20)

    assert list(Message.objects.order_by("position").values_list("position", "text")) == [(1, "slow"), (2, "fast")]


# -- what people say
def test_a_message_to_an_agent_is_saved_and_its_turn_queued(client: Program, ada: Agent, bob: Agent) -> None:
    answer = client.post(MESSAGES, {"channel": "office", "text": " Good morning, @ada! ", "tags": {"build": "41"}})

    assert answer.status_code == 201
    shown = answer.json()
    assert (shown["user"], shown["author"], shown["text"], shown["tags"]) == (
        "eve", "eve", " Good morning, @ada! ", {"build": "41"},
    )  # fmt: skip
    run = Run.objects.get()
    assert (run.agent, run.trigger_id, run.status) == (ada, shown["id"], "pending")
    assert [client.get(url).json()["agent"] for url in shown["turns"]] == ["ada"]
    assert client.get(answer["Location"]).json()["text"] == " Good morning, @ada! "


def test_an_outsider_speaks_through_a_program_and_in_a_thread(client: Program, ada: Agent, office: Channel) -> None:
    first = say(office, ada, "Yes?")

    shown = client.post(
        MESSAGES, {"channel": "office", "text": "Hm.", "outsider": " Guest ", "parent": first.pk}
    ).json()

    assert (shown["outsider"], shown["user"], shown["author"], shown["parent"]) == ("Guest", None, "Guest", first.pk)
    assert len(shown["turns"]) == 1, "a reply calls the author of what it replies to"


def test_the_answer_says_when_a_message_calls_nobody(client: Program, ada: Agent, bob: Agent) -> None:
    shown = client.post(MESSAGES, {"channel": "office", "text": "Good morning."}).json()

    assert shown["turns"] == []
    assert [("@ada" in note, "no agent takes a turn" in note) for note in shown["notes"]] == [(True, True)]


def test_the_stages_hear_of_it(client: Program, ada: Agent, settings: Settings) -> None:
    settings.TURN_PIPELINE = ["tests.agents.turn.stages.Ear"]
    stages.heard.clear()

    client.post(MESSAGES, {"channel": "office", "text": "Ada Byron, listen."})

    assert len(stages.heard) == 1

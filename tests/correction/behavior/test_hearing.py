"""What is looked at for requests: new words of people to an agent, once each. Hearing of them costs the sender next to nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks

from agents.models import Agent, Channel, ChannelMember, Message, Run
from agents.transcripts.ingest import Spoken, ingest_messages
from agents.work.queues import wake_workers, work_queues
from correction.behavior import work
from correction.behavior.words import own_words
from correction.models import AgentEvaluationConfig, BehaviorRequest
from tests.correction.behavior.asking import dm_with, write
from tests.correction.gating import join, send, statements
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def waiting() -> list[tuple[str, str]]:
    """Agents and texts of what waits to be looked at."""
    rows = BehaviorRequest.objects.order_by("pk").values_list("agent__slug", "message__text", "status")
    assert {status for *_, status in rows} <= {"queued"}
    return [(slug, text) for slug, text, _ in rows]


def test_what_a_person_writes_waits_for_a_worker_and_asks_no_model(
    llm_server: LLMServer, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    _, channel = dm_with()

    with django_capture_on_commit_callbacks() as callbacks:
        write(channel, "Be more concise")

    assert waiting() == [("ada", "Be more concise")]
    assert llm_server.calls == 0
    assert wake_workers in callbacks
    assert Run.objects.get().trace[0] == {
        **Run.objects.get().trace[0],
        "stage": "behavior",
        "phase": "received",
        "status": "ran",
    }


def test_a_user_is_heard_as_well(llm_server: LLMServer) -> None:
    _, channel = dm_with()

    write(channel, "Be more concise", outsider="", user=User.objects.create(username="zed"))

    assert waiting() == [("ada", "Be more concise")]


def test_elsewhere_only_who_is_addressed_is_meant() -> None:
    dm_with()
    office = make_channel("office")
    for slug in ("bob", "cleo"):
        join(make_agent(slug), office)

    write(office, "@bob, be more concise")
    write(office, "Everybody be more concise")

    assert waiting() == [("bob", "@bob, be more concise")]


def test_hearing_takes_the_same_few_statements_for_each_agent_however_much_was_said() -> None:
    channel = make_channel("room", kind="dm")
    agents = [make_agent(f"agent{n}") for n in range(8)]
    for agent in agents:
        ChannelMember.objects.create(channel=channel, agent=agent)
    for n in range(40):
        say(channel, agents[0] if n % 2 else "Zed", f"line {n}")
    messages = [say(channel, "Zed", "Be brief") for _ in range(2)]

    counts = []
    for agent in agents:
        for message in messages:
            with statements() as made:
                work.queue(message=message, agent=agent)
            counts.append(len(made))

    assert set(counts) == {2}  # the settings, the row
    assert BehaviorRequest.objects.count() == 16


def test_a_message_that_is_heard_again_is_looked_at_once() -> None:
    agent, channel = dm_with()
    message = write(channel, "Be more concise", idempotency_key="k")
    Run.objects.all().delete()  # a crash before the turn was queued

    write(channel, "Be more concise", idempotency_key="k")

    assert work.queue(message=message, agent=agent) == BehaviorRequest.objects.get()
    assert len(waiting()) == 1


def test_what_was_decided_is_not_looked_at_again() -> None:
    agent, channel = dm_with()
    message = write(channel, "Be more concise")
    BehaviorRequest.objects.update(status="rejected")

    request = work.queue(message=message, agent=agent)

    assert request is not None
    assert request.status == "rejected"


def test_an_old_message_is_never_looked_at_however_it_is_heard_of() -> None:
    agent, channel = dm_with()
    message = say(channel, "Zed", "Be more concise", sent_at=timezone.now() - timedelta(days=2))

    assert work.queue(message=message, agent=agent) is None


def test_an_agents_words_are_no_request_its_own_or_anothers() -> None:
    ada, channel = dm_with()
    bob = make_agent("bob")
    join(bob, channel)

    for agent in (ada, bob):
        assert send(agent, channel, "@ada, be more concise").message is not None
    said = Message.objects.filter(agent=bob).get()

    assert waiting() == []
    assert work.queue(message=said, agent=ada) is None


def test_played_imported_and_ingested_words_are_no_request() -> None:
    agent, channel = dm_with()
    spoken = {"channel": channel.slug, "text": "@ada be more concise", "outsider": "Zed", "tags": {}, "payload": {}}
    ingest_messages([Spoken(external_id="1", **spoken)])  # type: ignore[arg-type]
    Channel.objects.filter(pk=channel.pk).update(synthetic=True)
    channel.refresh_from_db()
    played = write(channel, "@ada be more concise")

    assert waiting() == []
    assert work.queue(message=played, agent=agent) is None


@pytest.mark.parametrize("off", [{"behavior_requests_enabled": False}, {}], ids=["for the agent", "by default"])
def test_where_it_is_switched_off_nothing_is_looked_at(off: dict[str, Any]) -> None:
    _, channel = dm_with(**off)
    if not off:
        AgentEvaluationConfig.objects.update_or_create(is_defaults=True, defaults={"behavior_requests_enabled": False})

    write(channel, "Be more concise")

    assert waiting() == []


def test_an_inactive_agent_is_not_asked() -> None:
    agent, channel = dm_with()
    message = say(channel, "Zed", "Be more concise")
    Agent.objects.update(is_active=False)
    agent.refresh_from_db()

    write(channel, "Be more concise")

    assert waiting() == []
    assert work.queue(message=message, agent=agent) is None


@pytest.mark.django_db(transaction=True)
def test_a_message_that_was_deleted_meanwhile_breaks_nothing() -> None:
    agent, channel = dm_with()
    message = say(channel, "Zed", "Be more concise")
    Message.objects.all().delete()

    assert work.queue(message=message, agent=agent) is None


def test_workers_know_the_queue_as_bulk_work() -> None:
    bulk = list(work_queues(["bulk"]))

    assert work_queues()["behavior requests"] is work.work_one
    assert bulk.index("behavior requests") < bulk.index("evaluations")


def test_nothing_of_a_long_message_is_read_while_its_sender_waits() -> None:
    _, channel = dm_with()

    write(channel, "x" * 100_000)

    assert own_words(BehaviorRequest.objects.get().message.text).cut

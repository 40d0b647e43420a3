"""Messages that were spoken elsewhere come in once, whole, and set nothing off but observing."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.models import Agent, Channel, Message, Run
from correction.config.configure import configure
from correction.models import CorrectionLog, ObservedMessage
from tests.api_client import Program
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
URL = "/api/messages/ingest/"


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def spoken(number: int, **fields: Any) -> dict[str, Any]:
    return {"external_id": f"m-{number}", "agent": "ada", "text": f"line {number}", **fields}


def send(client: Program, *messages: Any, **fields: Any) -> Any:
    return client.post(URL, {"channel": "desk", "messages": list(messages), **fields})


def errors(answer: Any) -> dict[str, list[str]]:
    assert answer.status_code == 400, answer.json()
    found: dict[str, list[str]] = answer.json()["errors"]
    return found


def test_messages_are_stored_in_the_order_given_with_everything_said_of_them(client: Program, ada: Agent) -> None:
    first = spoken(1, sent_at="2026-03-01T12:00:00+02:00", tags={"build": "41", "locale": "en"}, payload={"card": 1})
    second = {"external_id": "m-2", "outsider": "Customer", "text": "Hello?", "parent": "m-1"}

    answer = send(client, first, second, tags={"build": "42"})

    assert answer.status_code == 200
    counts = answer.json()
    assert counts.pop("channels")["desk"].endswith("/api/channels/desk/")
    assert counts == {
        "received": 2, "imported": 2, "duplicates": 0, "sampled_out": 0, "other_author": 0, "observed": 0, "replies_without_parent": 0,
        "notes": [],
    }  # fmt: skip
    one, two = Message.objects.filter(channel__slug="desk").order_by("position")
    assert (one.agent, one.text, one.tags, one.payload) == (ada, "line 1", {"build": "42", "locale": "en"}, {"card": 1})
    assert one.sent_at is not None
    assert one.sent_at.isoformat() == "2026-03-01T10:00:00+00:00"
    assert (two.outsider, two.parent_id, two.sent_at, two.synthetic) == ("Customer", one.pk, None, False)


def test_tags_and_payload_are_stored_as_they_were_sent(client: Program, ada: Agent) -> None:
    send(client, spoken(1, tags={"build": " 41 "}, payload={" card ": " 1 "}))

    message = Message.objects.get()
    assert (message.tags, message.payload) == ({"build": " 41 "}, {" card ": " 1 "})
    assert "tags. locale" in errors(send(client, spoken(2, tags={" locale": "en"}))).popitem()[0]


def test_a_batch_sent_again_adds_nothing_and_says_so(client: Program, ada: Agent) -> None:
    send(client, spoken(1), spoken(2))

    answer = send(client, spoken(2, text="other words"), spoken(3), spoken(3), spoken(1, agent=None, outsider="Ada"))

    assert answer.json() | {"channels": None} == {
        "received": 4, "imported": 1, "duplicates": 3, "sampled_out": 0, "other_author": 1, "observed": 0, "replies_without_parent": 0,
        "notes": [],
        "channels": None,
    }  # fmt: skip
    assert list(Message.objects.order_by("position").values_list("text", flat=True)) == ["line 1", "line 2", "line 3"]


def test_no_agent_answers_and_no_stage_hears_of_it(client: Program, ada: Agent, settings: Any) -> None:
    settings.TURN_PIPELINE = ["correction.interventions.stages.Nudges", "correction.stages.ActionGate"]

    send(client, {"external_id": "q", "outsider": "Customer", "text": "@ada are you there?"}, spoken(2))

    assert Message.objects.count() == 2
    assert not Run.objects.exists()
    assert not CorrectionLog.objects.exists()


def test_of_an_observed_agent_the_sampled_share_waits_to_be_judged(client: Program, ada: Agent) -> None:
    make_agent("bob")
    changes = {"gate_mode": "observe", "gate_adherence_enabled": True, "observe_sample_rate": 0.5}
    configure(agent=ada, changes=changes, user=None, reason="")

    messages = [spoken(n, channel=f"talk-{n // 2}") for n in range(160)]

    answer = send(client, *messages, *[spoken(1000 + n, agent="bob") for n in range(5)])

    waiting = ObservedMessage.objects.select_related("message")
    assert answer.json()["observed"] == waiting.count()
    assert 40 < waiting.count() < 120
    assert {one.message.agent_id for one in waiting} == {ada.pk}
    assert set(Counter(one.message.channel_id for one in waiting).values()) == {2}  # a conversation as a whole
    assert {one.inclusion_weight for one in waiting} == {2.0}
    assert send(client, *messages).json()["observed"] == 0


def test_what_was_really_said_is_not_mixed_into_a_played_channel(client: Program, ada: Agent) -> None:
    Channel.objects.create(slug="desk", name="desk", synthetic=True)

    assert "is synthetic" in errors(send(client, spoken(1)))["messages[0].channel"][0]


def test_many_messages_cost_as_many_queries_as_ten(client: Program, ada: Agent) -> None:
    def cost(start: int, count: int) -> int:
        with CaptureQueriesContext(connection) as seen:
            answer = send(client, *[spoken(start + n, outsider="C", agent=None) for n in range(count)])
        assert answer.json()["imported"] == count
        return len(seen)

    send(client, spoken(0))
    few = cost(1, 10)

    assert cost(5000, 200) - few <= 6  # SQLite takes so many rows in one statement only
    assert few < 20


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "messages/ingest/",
            {"channel": "desk", "messages": [{"external_id": "1", "outsider": "a\x1bb", "text": "."}]},
        ),
        ("agents/", {"slug": "bob", "display_name": "Bo\nb", "system_prompt": "You are Bob."}),
        ("channels/", {"slug": "desk", "name": "De\rsk"}),
    ],
)
def test_names_with_control_characters_are_refused(client: Program, path: str, body: dict[str, Any]) -> None:
    answer = client.post(f"/api/{path}", body)

    assert answer.status_code == 400
    assert "control character" in json.dumps(answer.json()["errors"])


def test_an_outsider_with_an_agents_name_is_marked_and_stays_one_message(client: Program, ada: Agent) -> None:
    line = spoken(1, agent=None, outsider=ada.display_name.upper())

    assert send(client, line).json()["imported"] == 1
    again = send(client, line).json()
    assert (again["imported"], again["duplicates"], again["other_author"]) == (0, 1, 0)
    assert Message.objects.get().author_name == f"{ada.display_name.upper()} (outsider)"

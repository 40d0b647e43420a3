"""A person's message: saved once, heard by the stages, and answered by those it is addressed to."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from agents.kit.models import owner_name
from agents.models import Agent, Channel, Message, Run
from agents.turn.orchestrator import start_turn, work_one
from agents.turn.receive import receive_message, why_nobody_is_called
from agents.turn.send_message import SendRefused
from tests.agents.turn import stages
from tests.agents.turn.playing import join, plays, texts
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer
from tests.tracing import Caught, tree

pytestmark = pytest.mark.django_db


HERE = "tests.agents.turn.stages."


def queued() -> list[str]:
    return list(Run.objects.order_by("agent__slug").values_list("agent__slug", flat=True))


@pytest.fixture
def dm(ada: Agent) -> Channel:
    channel = make_channel("dm-zed-ada", kind="dm")
    join(channel, ada)
    return channel


def test_a_direct_message_is_saved_and_queues_the_agents_turn(ada: Agent, dm: Channel) -> None:
    zed = User.objects.create(username="zed")

    message = receive_message(channel=dm, user=zed, text="Hello?", tags={"locale": "en"})

    run = Run.objects.get()
    assert (message.position, message.user, message.text, message.tags) == (1, zed, "Hello?", {"locale": "en"})
    assert (run.agent, run.trigger, run.depth, run.status) == (ada, message, 0, "pending")


@pytest.mark.parametrize(
    ("text", "addressed"),
    [
        ("Hello everybody.", ["ada", "bob"]),
        ("I told everybody.", []),
        ("@ada, what do you think?", ["ada"]),
        ("@ada and @bob, please.", ["ada", "bob"]),
        ("Ask Bob Vance about it.", []),
        ("bob vance!", ["bob"]),
        ("mail me@ada.example or @ada-lovelace", []),
    ],
)
def test_elsewhere_those_who_are_named_are_addressed(
    ada: Agent, office: Channel, text: str, addressed: list[str]
) -> None:
    Agent.objects.filter(pk=ada.pk).update(display_name="Ada Quill")
    join(office, make_agent("bob", display_name="Bob Vance"))
    make_agent("cleo", display_name="Cleo")

    receive_message(channel=office, outsider="Zed", text=text)

    assert queued() == addressed


@pytest.mark.parametrize(
    ("text", "addressed"),
    [
        ("Michael, be shorter", ["michael"]),
        ("What do you say, Boss?", ["michael"]),
        ("Jim: be funnier. Michael Scott is loud.", ["jim"]),
        ("Zed, be shorter", []),
        ("Ok. Anna, be shorter", []),
        ("Max, be shorter. Jim, be funnier", ["jim"]),
    ],
)
def test_a_first_name_or_alias_set_apart_calls_its_agent_unless_shared(
    office: Channel, text: str, addressed: list[str]
) -> None:
    join(office, make_agent("michael", display_name="Michael Scott", aliases=["Boss"]))
    join(office, make_agent("jim", display_name="Jim Halpert"))
    join(office, make_agent("max-1", display_name="Max Moss"), make_agent("max-2", display_name="Max Marsh"))
    say(office, "Anna Michaels", "Hello.")

    receive_message(channel=office, outsider="Zed", text=text)

    assert queued() == addressed


@pytest.mark.parametrize(
    ("text", "addressed"),
    [
        ("That was too long.", ["max-1"]),
        ("Max, be shorter", ["max-1"]),
        ("@jim, what do you say?", ["jim"]),
        ("Fine. Jim, what do you say?", ["jim", "max-1"]),
    ],
)
def test_a_reply_calls_the_author_replied_to_unless_it_calls_another(
    office: Channel, text: str, addressed: list[str]
) -> None:
    long_winded = make_agent("max-1", display_name="Max Moss")
    join(office, long_winded, make_agent("max-2", display_name="Max Marsh"), make_agent("jim"))
    said = say(office, long_winded, "Well, well, well.")

    receive_message(channel=office, outsider="Zed", text=text, parent=said)

    assert queued() == addressed


def test_an_agent_is_called_though_a_person_once_spoke_under_its_name(office: Channel) -> None:
    join(office, make_agent("michael", display_name="Michael Scott"))
    say(office, "Michael Scott", "Imported, before there was an agent.")

    receive_message(channel=office, outsider="Zed", text="Michael, hello")

    assert queued() == ["michael"]


@pytest.mark.parametrize(
    ("text", "addressed", "why", "ways"),
    [
        ("Mira, dose?", [], "'Mira' is a person here", "write @mira-vale, or"),
        ("Max, dose?", [], "'Max' is the name of several here", "write @max-1, @max-2, or"),
        ("I asked Mira Vale yesterday", [], "'Mira Vale' is named and not addressed", "write @mira-vale, or"),
        ("What is the dose?", [], "it names none of them", "write @max-1, @max-2, @mira-vale, or"),
        ("Mira Vale, dose?", ["mira-vale"], "", ""),
        ("@mira-vale dose?", ["mira-vale"], "", ""),
        ("@mira dose?", ["mira-vale"], "", ""),
    ],
)
def test_a_message_that_calls_nobody_says_why_and_how_to_call(
    office: Channel, text: str, addressed: list[str], why: str, ways: str
) -> None:
    agents = [make_agent("mira-vale", display_name="Mira Vale"), make_agent("max-1", display_name="Max Moss")]
    office.memberships.all().delete()
    join(office, *agents, make_agent("max-2", display_name="Max Marsh"))
    say(office, "Mira", "hi")

    message = receive_message(channel=office, outsider="Zed", text=text)

    assert queued() == addressed
    assert (why in why_nobody_is_called(message), ways in why_nobody_is_called(message)) == (True, True)
    assert (why_nobody_is_called(message) == "") == bool(addressed)


def test_a_slug_calls_the_agent_although_a_person_bears_it(office: Channel) -> None:
    join(office, make_agent("mira", display_name="Dr. Mira Vale"))
    say(office, "mira", "hi")
    receive_message(channel=office, user=User.objects.create_user("mira"), text="hello")

    receive_message(channel=office, outsider="Zed", text="@mira dose?")

    assert queued() == ["mira"]


def test_in_a_channel_that_is_played_nobody_is_addressed(ada: Agent, dm: Channel) -> None:
    Channel.objects.filter(pk=dm.pk).update(synthetic=True)

    assert receive_message(channel=dm, outsider="Zed", text="To be?").synthetic
    assert queued() == []


def test_the_stages_hear_of_it_before_the_turn_is_queued(ada: Agent, dm: Channel, settings: Settings) -> None:
    settings.TURN_PIPELINE = [HERE + "Broken", HERE + "Ear"]

    receive_message(channel=dm, outsider="Zed", text="Be nicer.")

    assert stages.heard == [("ada", "Be nicer.")]
    assert [(e["stage"], e["phase"], e["status"]) for e in Run.objects.get().trace] == [
        ("broken", "received", "failed"),
        ("ear", "received", "ran"),
    ]


def test_the_same_key_saves_and_queues_once(ada: Agent, dm: Channel, settings: Settings) -> None:
    settings.TURN_PIPELINE = [HERE + "Ear"]
    first = receive_message(channel=dm, outsider="Zed", text="Hello?", idempotency_key="k")

    assert receive_message(channel=dm, outsider="Zed", text="Hello?", idempotency_key="k") == first

    assert texts(dm) == ["Hello?"]
    assert Run.objects.count() == 1
    assert len(stages.heard) == 1


def test_the_same_key_makes_up_for_what_a_crash_left_undone(ada: Agent, dm: Channel) -> None:
    first = receive_message(channel=dm, outsider="Zed", text="Hello?", idempotency_key="k")
    Run.objects.all().delete()

    receive_message(channel=dm, outsider="Zed", text="Hello?", idempotency_key="k")

    assert Run.objects.get().trigger == first


def test_a_key_belongs_to_one_message(ada: Agent, dm: Channel, office: Channel) -> None:
    receive_message(channel=dm, outsider="Zed", text="Hello?", idempotency_key="k")

    for fields in ({"channel": office, "outsider": "Zed"}, {"channel": dm, "outsider": "Yan"}):
        with pytest.raises(SendRefused, match="'k' was used for another message"):
            receive_message(text="Hello?", idempotency_key="k", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"outsider": ""}, "one author; allowed: user, or outsider"),
        ({"outsider": "Z" * 201}, "outsider has 201 characters; allowed: at most 200"),
        ({"outsider": "Zed\rada"}, r"outsider: .*U\+000D"),
        ({"tags": {"a b": "x"}}, "Tag key 'a b'"),
        ({"outsider": "Z\x00"}, "outsider: the text holds a NUL"),
    ],
)
def test_what_cannot_be_taken_is_refused_in_words(dm: Channel, fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SendRefused, match=complaint):
        receive_message(**{"channel": dm, "outsider": "Zed", "text": "Hi.", **fields})

    assert not Message.objects.exists()


def test_an_answer_belongs_into_the_channel_of_what_it_answers(dm: Channel, office: Channel) -> None:
    with pytest.raises(SendRefused, match="is not in channel 'dm-zed-ada'"):
        receive_message(channel=dm, outsider="Zed", text="Hi.", parent=say(office, "Zed", "Hi."))


def test_a_message_to_too_many_agents_is_refused_and_not_said(ada: Agent, dm: Channel) -> None:
    join(dm, *(make_agent(f"clerk-{number}") for number in range(50)))

    with pytest.raises(SendRefused, match="addressed to 51 agents of channel 'dm-zed-ada'; allowed: at most 50"):
        receive_message(channel=dm, outsider="Zed", text="Hello?")

    assert not Message.objects.exists()


def test_a_failure_on_hearing_a_message_costs_the_turn_not_the_answer(
    ada: Agent, dm: Channel, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.TURN_PIPELINE = ["nowhere.Stage"]

    message = receive_message(channel=dm, outsider="Zed", text="Hello?")

    assert texts(dm) == ["Hello?"]
    assert queued() == []
    assert f"no turn of agent ada for message {message.pk}" in caplog.text


# -- Traces of turns: caught by a transport where Sentry's would send them; never the text of a message or a person
SECRETS = ("the raccoon is in the annex", "dry and careful clerk", "what Zed wrote", "sk-test-secret")


def test_a_turn_is_one_transaction_with_its_steps(
    sentry: Caught, ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    say(office, "Zed", "what Zed wrote")
    plays(llm_server, ("send_message", {"channel": "office", "text": "the raccoon is in the annex"}), "done")
    run = start_turn(agent=ada, channel=office)

    assert work_one(owner=owner_name())

    (transaction,) = sentry.of_type("transaction")
    assert tree(transaction) == {
        ("agents.turn", "agents.work"): 1,
        ("agents.turn.tool", "agents.turn"): 1,
        ("agents.send_message", "agents.turn.tool"): 1,
        ("llm.call", "agents.turn"): 2,
    }
    data = next(span["data"] for span in transaction["spans"] if span["op"] == "agents.turn")
    assert (data["run"], data["agent"], data["stop_reason"]) == (run.pk, ada.pk, "end_turn")
    assert not any(secret in sentry.text for secret in SECRETS)


def test_a_stage_that_fails_is_reported_once(
    sentry: Caught, ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = ["tests.agents.turn.stages.Broken"]
    plays(llm_server, ("do_nothing", {"reason": "tired"}))
    start_turn(agent=ada, channel=office)

    work_one(owner=owner_name())

    values = [event["exception"]["values"][-1]["value"] for event in sentry.of_type("event")]
    assert values == ["prepare is broken", "finish is broken"]


@pytest.mark.parametrize("name", ["Ada", " ada ", "\uff21da", "Ada  Quill"])
def test_an_outsider_with_an_agents_name_is_marked(ada: Agent, dm: Channel, name: str) -> None:
    Agent.objects.filter(pk=ada.pk).update(display_name="Ada Quill" if "Quill" in name else "Ada")

    message = receive_message(channel=dm, outsider=name, text="Hello?", idempotency_key="k")

    assert message.author_name == f"{name.strip()} (outsider)"
    assert receive_message(channel=dm, outsider=name, text="Hello?", idempotency_key="k") == message


def test_an_earlier_outsider_is_marked_once_an_agent_has_the_same_name(office: Channel) -> None:
    said = receive_message(channel=office, outsider="nora  VALE", text="Hello?")
    other = receive_message(channel=office, outsider="Nora", text="Hello!")

    agent = make_agent("nora", display_name="Nora Vale")
    agent.title = "clerk"
    agent.save()

    names = [Message.objects.get(pk=message.pk).author_name for message in (said, other)]
    assert names == ["nora  VALE (outsider)", "Nora"]

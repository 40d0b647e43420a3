"""The registered functions: what each measures, and how its parameters are checked (AC-7.1.1, AC-7.1.14)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agents.debates.answers import Answer
from agents.debates.measures import groupthink
from agents.debates.models import Debate, DebateRound
from agents.models import Agent, Channel, Message
from correction.interventions import Finding, FunctionalPrecondition
from correction.interventions.functions import FUNCTIONS
from tests.correction.interventions.steering import ECHOES, MIXED, chatter, context_of
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(office: Channel) -> Agent:
    return make_agent("ada")


def held(
    agent: Agent, channel: Channel, name: str, *, window: int = 10, **parameters: Any
) -> tuple[bool | None, float | None]:
    result = FunctionalPrecondition.named(name, parameters).evaluate(context_of(agent, channel, window))
    return result.held, result.score


@pytest.mark.parametrize("answer", ["no", None, 1, Finding("no")])  # type: ignore[arg-type]
def test_a_function_that_returns_no_bool_is_an_error_naming_it(ada: Agent, office: Channel, answer: Any) -> None:
    def is_late(context: Any) -> Any:
        return answer

    with pytest.raises(TypeError, match=r"is_late returned .*allowed: True, False"):
        FunctionalPrecondition(test=is_late, text="late").evaluate(context_of(ada, office))


@pytest.mark.parametrize(("said", "expected"), [(6, False), (7, True)])
def test_message_count_holds_from_n_messages_of_the_agent_on_ac_7_1_7(
    ada: Agent, office: Channel, said: int, expected: bool
) -> None:
    """Committed messages of this agent in this channel: those of others, of other channels, and played ones do not count."""
    other, elsewhere = make_agent("bob"), make_channel("elsewhere")
    for number in range(said):
        say(office, ada, f"idea {number}")
        say(office, other, f"reply {number}")
        say(elsewhere, ada, f"chat {number}")
    say(office, ada, "played", synthetic=True)
    say(office, ada, "  \n ")

    assert held(ada, office, "message_count", window=2, at_least=7) == (expected, said)
    assert held(ada, office, "message_count", window=2, at_least=7, of="channel") == (True, 2 * said)


def test_a_turn_in_a_long_channel_does_not_count_all_its_messages(ada: Agent, office: Channel) -> None:
    messages = [Message(channel=office, position=number, agent=ada, text="No.") for number in range(1, 1_203)]
    Message.objects.bulk_create(messages)

    assert held(ada, office, "message_count", at_least=7) == (True, 1_000)
    assert held(ada, office, "message_count", at_least=1_202) == (True, 1_202)
    assert held(ada, office, "message_count", at_least=1_203) == (False, 1_202)


def test_vocabulary_similarity_tells_an_echo_from_a_conversation(ada: Agent, office: Channel) -> None:
    mixed = make_channel("mixed")
    chatter(office, ECHOES)
    chatter(mixed, MIXED)

    assert held(ada, office, "vocabulary_similarity", at_least=0.6)[0] is True
    assert held(ada, mixed, "vocabulary_similarity", at_least=0.6)[0] is False


def test_silence_counts_what_others_said_since(ada: Agent, office: Channel) -> None:
    chatter(office, MIXED)
    assert held(ada, office, "silence", at_least=4) == (True, 4)  # never spoke
    say(office, ada, "Here I am.")
    assert held(ada, office, "silence", at_least=1) == (False, 0)
    chatter(office, MIXED[:2])
    assert held(ada, office, "silence", at_least=2) == (True, 2)


def test_mentions_counts_messages(ada: Agent, office: Channel) -> None:
    chatter(office, ECHOES)

    assert held(ada, office, "mentions", phrases=["i agree", "/agreed?/"], at_least=3) == (True, 3)
    assert held(ada, office, "mentions", phrases=["beets"]) == (False, 0)


def test_groupthink_is_measured_in_the_last_round_of_a_debate(ada: Agent, office: Channel) -> None:
    channel = make_channel("debate-1", kind=Channel.Kind.DEBATE)
    debate = Debate.objects.create(channel=channel, mode="collaborative", topic="Order more paper?")
    say(channel, ada, "We need paper.")
    agreed = groupthink([Answer(seat=n, position="We need paper.", stance="yes", confidence=0.9) for n in (1, 2)], None)
    sure = groupthink([Answer(seat=n, position="x" * n, confidence=0.9) for n in (1, 2)], None)

    def add(number: int, measured: dict[str, Any]) -> None:
        DebateRound.objects.create(debate=debate, number=number, groupthink=measured)

    add(0, agreed.model_dump(mode="json"))
    assert held(ada, channel, "groupthink") == (None, None)  # only the poll is complete
    add(1, sure.model_dump(mode="json"))
    assert held(ada, channel, "groupthink") == (False, 1)
    assert held(ada, channel, "groupthink", at_least=1) == (True, 1)
    add(2, agreed.model_dump(mode="json"))
    assert held(ada, channel, "groupthink") == (True, 2)
    assert held(ada, office, "groupthink") == (None, None)


def test_in_an_empty_channel_no_function_fails_and_none_holds_by_accident(ada: Agent, office: Channel) -> None:
    for name in FUNCTIONS:
        given: dict[str, Any] = {"at_least": 1} | ({"phrases": ["x"]} if name == "mentions" else {})
        assert held(ada, office, name, **given)[0] is (None if name == "groupthink" else False), name


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("mood", {}, "function 'mood' is not registered; allowed: groupthink, mentions, message_count"),
        ("message_count", {}, "message_count: at_least: is required"),
        ("message_count", {"at_least": True}, "message_count: at_least: input should be a valid integer (got True)"),
        ("message_count", {"at_least": 1, "x": 1}, "message_count: x: unknown field; allowed: at_least, of"),
        ("groupthink", {"at_least": 3}, "groupthink: at_least: input should be less than or equal to 2 (got 3)"),
        ("mentions", {"phrases": ["/(/"]}, "not a valid regular expression"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_named(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        FunctionalPrecondition.named(name, parameters)


def test_functions_read_as_much_of_a_message_as_a_judge(ada: Agent, office: Channel) -> None:
    say(office, ada, "word " * 20_000 + "beets")

    assert held(ada, office, "mentions", phrases=["beets"]) == (False, 0)
